//! Values that a layout or one of its fields cannot hold or express.

use pgrx::PgSqlErrorCode::*;
use pgrx::spi::quote_literal;

use crate::error::{Code, Error, invalid, not_supported, out_of_range};
use crate::postgres::time::display;
use snowflake_core::id::layout::{LayoutError, OrderError};
use snowflake_core::label::excerpt::excerpt;
use snowflake_core::label::{Field, Label};

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
            LayoutError::Given {
                field,
                value,
                fixed,
            } => out_of_range(format!("field \"{field}\" cannot be {value}"))
                .detail(format!("In IDs of this layout it is {fixed}.")),
            LayoutError::Unknown(field) => {
                invalid(format!("the layout has no field \"{}\"", excerpt(&field)))
                    .hint("Name the fields as the layout does; the time is the first argument.")
            }
            LayoutError::Missing(field) => invalid(format!("field \"{field}\" has no value"))
                .hint("Give a value to each field that is neither fixed nor a clock sequence."),
            LayoutError::Unordered(disorder) => no_range(disorder),
            LayoutError::FieldRange { field, value, max } => {
                out_of_range(format!("{field} {value} is out of range"))
                    .hint(format!("The layout holds 0 to {max}."))
            }
            LayoutError::InstantRange { at, first, last } => {
                let (at, first, last) = (display(at), display(first), display(last));
                ERRCODE_DATETIME_FIELD_OVERFLOW
                    .error(format!("instant {at} is out of range"))
                    .hint(format!("The layout holds {first} to {last}."))
            }
        }
    }
}

fn not_an_id(id: i64) -> Error {
    out_of_range(format!("{id} is not an ID of this layout"))
}

fn no_range(disorder: OrderError) -> Error {
    let error = not_supported("IDs of this layout have no range for an instant");
    let error = because_of(error, disorder);
    match disorder {
        OrderError::NegativeFrom(_) => error.hint("Before that instant, ranges are as expected."),
        _ => error,
    }
}

/// Adds why IDs of a layout do not sort by time.
pub(super) fn because_of(error: Error, disorder: OrderError) -> Error {
    match disorder {
        OrderError::Reversed => {
            error.detail("The bits of its time are reversed: IDs do not sort by time.")
        }
        OrderError::TimeBelow => error
            .detail("Other fields are above its time: IDs do not sort by time.")
            .hint(
                "If such a field is the same in all IDs of a generator, give it its value in the \
                 label.",
            ),
        OrderError::NegativeFrom(at) => {
            let at = display(at);
            error.detail(format!(
                "They are negative from {at} on, and sort before all others."
            ))
        }
    }
}

pub fn fields_not_object() -> Error {
    invalid("fields are not a JSON object").hint(FIELDS_HINT)
}

pub fn fields_not_read() -> Error {
    invalid("a value of fields is not a whole number of bigint").hint(FIELDS_HINT)
}

pub fn field_not_number(field: &str) -> Error {
    let field = excerpt(field);
    let message = format!("value of field \"{field}\" is not a whole number of bigint");
    invalid(message).hint(FIELDS_HINT)
}

/// The call gives no fields, and the generator takes some.
pub fn needs_fields(generator: &str, label: &Label) -> Error {
    let error = format!("generator {generator} takes fields from its caller, and none are given");
    asking_for_fields(invalid(error), generator, label)
}

/// The call gives other fields, or other values, than the label leaves to the call.
pub fn given_fields(generator: &str, label: &Label, error: LayoutError) -> Error {
    match error {
        LayoutError::Unknown(field) => {
            let error = invalid(format!(
                "generator {generator} takes no field \"{}\" from its caller",
                excerpt(&field)
            ));
            match label.caller_fields().next() {
                Some(_) => asking_for_fields(error, generator, label),
                None => {
                    error.hint("Its label leaves no field to the caller: call snowflake_nextval().")
                }
            }
        }
        LayoutError::Missing(field) => {
            let error = format!("field \"{field}\" of generator {generator} has no value");
            asking_for_fields(invalid(error), generator, label)
        }
        other => other.into(),
    }
}

/// A column's default cannot give the fields that the generator takes.
pub fn no_default(generator: &str, label: &Label) -> Error {
    let pairs = caller_fields(label, |field| format!("'{0}', NEW.{0}", field.name));
    let quoted = quote_literal(generator);
    not_supported(format!(
        "generator {generator} takes fields from its caller, which a default cannot give"
    ))
    .detail(left_to_the_caller(label))
    .hint(format!(
        "Fill the column in a BEFORE INSERT trigger, as in: NEW.id := \
         snowflake_nextval({quoted}, jsonb_build_object({pairs}))"
    ))
}

/// The fields that the caller gives, as a list.
fn caller_fields(label: &Label, text: impl Fn(&Field) -> String) -> String {
    let fields: Vec<_> = label.caller_fields().map(text).collect();
    fields.join(", ")
}

fn left_to_the_caller(label: &Label) -> String {
    let fields = caller_fields(label, |it| format!("{} (0 to {})", it.name, it.max()));
    format!("Its label leaves to the caller: {fields}.")
}

/// Adds which fields to give, and how.
fn asking_for_fields(error: Error, generator: &str, label: &Label) -> Error {
    let fields = caller_fields(label, |field| format!("\"{}\": 0", field.name));
    let quoted = quote_literal(generator);
    error.detail(left_to_the_caller(label)).hint(format!(
        "Give them with each call, as in: SELECT snowflake_nextval({quoted}, '{{{fields}}}')"
    ))
}

pub fn time_mismatch(time: i64, tick: i64) -> Error {
    let message = format!("field \"time\" is {time}, but the instant is tick {tick}");
    invalid(message).hint("Leave this field out: the instant gives its value.")
}

pub fn infinite_instant() -> Error {
    ERRCODE_DATETIME_FIELD_OVERFLOW.error("an ID cannot have an infinite instant")
}

const FIELDS_HINT: &str = "Give the values by field, as in '{\"region\": 3, \"machine\": 1}'.";
