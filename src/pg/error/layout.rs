//! What a layout cannot hold or say, and the values of its fields.

use super::{Error, error, errors};
use crate::pg::time::display;
use crate::snowflake::label::EncodeError;
use crate::snowflake::layout::{Disorder, LayoutError};

impl From<LayoutError> for Error {
    fn from(error: LayoutError) -> Self {
        match error {
            LayoutError::NotAnId { id, bits } => {
                let max = i64::MAX >> 63_u32.saturating_sub(bits).min(62);
                not_an_id(id).hint(format!("Its IDs are 0 to {max}."))
            }
            LayoutError::Fixed {
                id,
                field,
                value,
                fixed,
            } => not_an_id(id).detail(format!(
                "Its field \"{field}\" is {value}; in IDs of this layout it is {fixed}."
            )),
            LayoutError::Unordered(disorder) => no_range(disorder),
            LayoutError::FieldRange { field, value, max } => {
                error!(OUT_OF_RANGE, "{field} {value} is out of range")
                    .hint(format!("The layout holds 0 to {max}."))
            }
            LayoutError::InstantRange { at, first, last } => {
                let (at, first, last) = (display(at), display(first), display(last));
                error!(
                    ERRCODE_DATETIME_FIELD_OVERFLOW,
                    "instant {at} is out of range"
                )
                .hint(format!("The layout holds {first} to {last}."))
            }
        }
    }
}

impl From<EncodeError> for Error {
    fn from(error: EncodeError) -> Self {
        match error {
            EncodeError::Layout(error) => error.into(),
            EncodeError::Unknown(field) => error!(INVALID, "the layout has no field \"{field}\"")
                .hint("Name the fields as the layout does; the time is the first argument."),
            EncodeError::Missing(field) => error!(INVALID, "field \"{field}\" has no value")
                .hint("All fields need one, but for fixed ones and a clock."),
            EncodeError::Fixed {
                field,
                value,
                fixed,
            } => error!(OUT_OF_RANGE, "field \"{field}\" cannot be {value}")
                .detail(format!("In IDs of this layout it is {fixed}.")),
        }
    }
}

fn no_range(disorder: Disorder) -> Error {
    let error = error!(
        NOT_SUPPORTED,
        "IDs of this layout have no range for an instant"
    );
    match disorder {
        Disorder::Reversed => {
            error.detail("The bits of its time are reversed: IDs do not sort by time.")
        }
        Disorder::TimeBelow => error
            .detail("Other fields are above its time: IDs do not sort by time.")
            .hint(
                "If such a field is the same in all IDs of a generator, give it its value in the \
                 label.",
            ),
        Disorder::NegativeFrom(at) => {
            let at = display(at);
            error
                .detail(format!(
                    "They are negative from {at} on, and sort before all others."
                ))
                .hint("Before that instant, ranges are as expected.")
        }
    }
}

errors! {
    not_an_id(id: i64)
        OUT_OF_RANGE "{id} is not an ID of this layout";

    fields_not_object()
        INVALID "fields are not a JSON object"
        hint "Give the values by field, as in '{{\"worker\": 7, \"sequence\": 0}}'.";

    fields_not_read()
        INVALID "a value of fields is not a whole number of bigint"
        hint "Give the values by field, as in '{{\"worker\": 7, \"sequence\": 0}}'.";

    field_not_number(field: &str)
        INVALID "value of field \"{field}\" is not a whole number of bigint";

    time_mismatch(time: i64, tick: i64)
        INVALID "field \"time\" is {time}, but the instant is tick {tick}"
        hint "Leave it out: the instant says it.";

    infinite_instant()
        ERRCODE_DATETIME_FIELD_OVERFLOW "an ID cannot have an infinite instant";
}
