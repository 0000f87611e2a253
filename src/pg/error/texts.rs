//! What each error says: SQLSTATE, message, detail and hint.

use pgrx::PgSqlErrorCode::*;

use super::{Error, Text};
use crate::pg::time::display;
use crate::snowflake::label::{EncodeError, on_rollback_text};
use crate::snowflake::layout::{Change, Disorder, LayoutError};
use crate::snowflake::policy::OnRollback;

impl Error {
    pub(super) fn text(&self) -> Text {
        match self {
            Self::NotPreloaded => {
                Text::not_ready("snowflake_id must be loaded at server start to generate IDs").hint(
                    "Add snowflake_id to what \"shared_preload_libraries\" lists in \
                     postgresql.conf, as in: shared_preload_libraries = 'snowflake_id', and \
                     restart the server.",
                )
            }
            Self::NoWorkerId { max } => Text::not_ready("this server has no worker ID")
                .detail(
                    "Two servers that generate IDs with the same worker ID generate the same IDs, \
                     so there is no default.",
                )
                .hint(worker_hint(*max)),
            Self::WorkerIdRange {
                worker,
                max,
                generator,
                layout,
            } => Text::invalid(format!(
                "worker ID {worker} is out of range for generator {generator}"
            ))
            .detail(format!(
                "Layout \"{layout}\" holds worker IDs from 0 to {max}."
            ))
            .hint(worker_hint(*max)),
            Self::NoSuchRelation { oid } => Text::new(
                ERRCODE_UNDEFINED_TABLE,
                format!("relation with OID {} does not exist", oid.to_u32()),
            ),
            Self::NoDefaultGenerator => Text::new(
                ERRCODE_UNDEFINED_OBJECT,
                "the default generator does not exist",
            )
            .detail("Extension snowflake_id has no sequence \"snowflake_default\" in its schema.")
            .hint("If it was renamed or moved, undo that."),
            Self::NotAGenerator { name } => Text::wrong_type(format!("{name} is not a generator"))
                .hint(
                    "View snowflake_generators lists the generators of this database; \
                     snowflake_create_generator() makes one.",
                ),
            Self::UnfitSequence { name, reason } => Text::not_ready(format!(
                "sequence {name} cannot hold the mark of a generator"
            ))
            .detail(reason)
            .hint(
                "It needs to be a logged bigint sequence with INCREMENT, START and MAXVALUE \
                 9223372036854775807, MINVALUE 1 and NO CYCLE, as snowflake_create_generator() \
                 makes it.",
            ),
            Self::Unsupported { name } => Text::unsupported(format!(
                "generator {name} has a policy that is not supported yet"
            ))
            .detail(format!(
                "Its label says on_rollback={}, and worker IDs cannot be leased. It can decode, \
                 but issues no IDs.",
                on_rollback_text(OnRollback::NextWorker)
            ))
            .hint(
                "Set its label with another on_rollback, which can follow a preset: wait, error or \
                 continue.",
            ),
            Self::BadLabel { text, error } => {
                Text::invalid(format!("invalid label: {}", error.problem))
                    .detail(place(text, error.at))
                    .hint(&error.allowed)
            }
            Self::StoredLabel { name, text, error } => Text::invalid(format!(
                "generator {name} has an invalid label: {}",
                error.problem
            ))
            .detail(place(text, error.at))
            .hint("It may be of a later version of snowflake_id, or have been set without it."),
            Self::LabelOnlyDecodes { problem, help } => {
                Text::invalid(format!("invalid label for a generator: {problem}")).hint(help)
            }
            Self::LabelNotOnSequence => {
                Text::wrong_type("a label of provider snowflake_id can be set on sequences only")
                    .hint("snowflake_create_generator() makes a sequence with its label.")
            }
            Self::LabelOnDefault => {
                Text::unsupported("cannot set a label on the default generator")
                    .detail("Its layout is fixed: indexes and partitions may rely on it.")
                    .hint("Make a generator of your own with snowflake_create_generator().")
            }
            Self::LabelRemoved { name } => Text::not_ready(format!(
                "cannot remove the label of generator {name}: it has issued IDs"
            ))
            .detail("With another label afterwards, it could issue them again.")
            .hint("Drop the sequence if it is not needed any more."),
            Self::LayoutChanged {
                name,
                change,
                before,
                after,
            } => cannot_change_layout(name)
                .detail(match change {
                    Change::Tick => {
                        "The tick would change: new IDs could repeat existing ones, or sort before \
                         them."
                            .to_string()
                    }
                    Change::LaterEpoch => {
                        "The epoch would be later: new IDs would repeat existing ones, or sort \
                         before them."
                            .to_string()
                    }
                    Change::NarrowerTime => {
                        "The time would have fewer bits: new IDs could repeat existing ones."
                            .to_string()
                    }
                    Change::Fields => format!(
                        "Layout \"{before}\" cannot become \"{after}\": new IDs could repeat \
                         existing ones, or sort before them."
                    ),
                })
                .hint(
                    "An earlier epoch, a wider time that is on top, and other policies are \
                     allowed. For anything else make a new generator.",
                ),
            Self::LayoutTooShort {
                name,
                reached,
                last,
            } => cannot_change_layout(name)
                .detail(format!(
                    "Its IDs have reached {}, and the time of the new layout ends at {}.",
                    display(*reached),
                    display(*last)
                ))
                .hint("Give the time more bits, or a later epoch."),
            Self::LayoutIsOver { layout, last } => Text::new(
                ERRCODE_SEQUENCE_GENERATOR_LIMIT_EXCEEDED,
                "the time of this layout is used up",
            )
            .detail(format!(
                "Layout \"{layout}\" lasted until {}.",
                display(*last)
            ))
            .hint(
                "It can decode. To generate, give it a later epoch or a wider time; tables that \
                 have IDs already then need a column that tells old IDs from new ones.",
            ),
            Self::MarkDoesNotFit { name, mark } => {
                Text::not_ready(format!("cannot restart generator {name} with these bounds"))
                    .detail(format!(
                        "Its mark, {} in Unix milliseconds, has to be kept and does not lie \
                         between them.",
                        mark.get()
                    ))
                    .hint("Drop the sequence if it is not needed as a generator any more.")
            }
            Self::Unlabelled { name } => Text::wrong_type(format!(
                "{name} is not a generator: it has no label"
            ))
            .hint(format!(
                "If a dump was restored without security labels, its mark may be there all the \
                 same: do not drop it, but put the label back: SECURITY LABEL FOR snowflake_id ON \
                 SEQUENCE {name} IS ..."
            )),
            Self::LabelNotCommitted { name } => Text::not_ready(format!(
                "generator {name} was given another layout in this transaction"
            ))
            .detail(
                "If that is rolled back, the earlier layout could repeat IDs that are taken now.",
            )
            .hint("Commit first."),
            Self::Encode(error) => encode_text(error),
            Self::FieldsNotObject => {
                Text::invalid("fields are not a JSON object").hint(FIELDS_HINT)
            }
            Self::FieldNotNumber { field } => Text::invalid(format!(
                "value of field \"{field}\" is not a whole number of bigint"
            )),
            Self::FieldsNotRead => {
                Text::invalid("a value of fields is not a whole number of bigint").hint(FIELDS_HINT)
            }
            Self::TimeMismatch { time, tick } => Text::invalid(format!(
                "field \"time\" is {time}, but the instant is tick {tick}"
            ))
            .hint("Leave it out: the instant says it."),
            Self::NoPrivilege {
                name,
                owner,
                update,
            } => {
                let privilege = if *update { "UPDATE" } else { "USAGE" };
                Text::new(
                    ERRCODE_INSUFFICIENT_PRIVILEGE,
                    format!("permission denied for generator {name}"),
                )
                .hint(format!(
                    "Its owner, role {owner}, can run: GRANT {privilege} ON SEQUENCE {name} TO ..."
                ))
            }
            Self::SlotsExhausted { max } => Text::new(
                ERRCODE_CONFIGURATION_LIMIT_EXCEEDED,
                "there is no shared memory for another generator",
            )
            .detail(format!(
                "Up to {max} generators have a place there, and those that are in use or ahead of \
                 the clock keep theirs."
            ))
            .hint("Increase \"snowflake_id.max_generators\" and restart the server."),
            Self::ImpossibleMark { name, value } => Text::new(
                ERRCODE_DATA_CORRUPTED,
                format!("sequence {name} holds {value}, which is no mark of a generator"),
            ),
            Self::Refused {
                name,
                generator,
                why,
            } => super::refused::text(name, generator, *why),
            Self::BatchCount { count, max } => {
                Text::out_of_range(format!("count {count} is out of range"))
                    .hint(format!("A batch has 1 to {max} IDs."))
            }
            Self::DamagedSequence { name } => Text::new(
                ERRCODE_DATA_CORRUPTED,
                format!("sequence {name} has a damaged page"),
            ),
            Self::NoCurrval { name } => Text::not_ready(format!(
                "snowflake_currval of generator {name} is not yet defined in this session"
            ))
            .hint("Call snowflake_nextval() first."),
            Self::Layout(error) => layout_text(error),
            Self::InfiniteInstant => Text::new(
                ERRCODE_DATETIME_FIELD_OVERFLOW,
                "an ID cannot have an infinite instant",
            ),
            Self::Spi { status } => Text::new(
                ERRCODE_INTERNAL_ERROR,
                format!("could not run a statement: SPI status {status}"),
            ),
            Self::NullTable => Text::new(ERRCODE_NULL_VALUE_NOT_ALLOWED, "table must not be null"),
            Self::NoNextvalFunction => Text::new(
                ERRCODE_UNDEFINED_FUNCTION,
                "extension snowflake_id has no function snowflake_nextval",
            ),
            Self::Table { table, reason } => reason.text(table),
            Self::Column {
                table,
                column,
                reason,
            } => reason.text(table, column),
            Self::DefaultNotSet { column } => {
                Text::not_ready(format!("could not set the default of {column}"))
                    .detail("Another session has renamed its schema meanwhile.")
                    .hint("Try again.")
            }
        }
    }
}

fn layout_text(error: &LayoutError) -> Text {
    match error {
        LayoutError::NotAnId { id, bits } => not_an_id(*id).hint(format!(
            "Its IDs are 0 to {}.",
            i64::MAX >> 63_u32.saturating_sub(*bits).min(62)
        )),
        LayoutError::Fixed {
            id,
            field,
            value,
            fixed,
        } => not_an_id(*id).detail(format!(
            "Its field \"{field}\" is {value}; in IDs of this layout it is {fixed}."
        )),
        LayoutError::Unordered(disorder) => {
            let text = Text::unsupported("IDs of this layout have no range for an instant");
            match disorder {
                Disorder::Reversed => {
                    text.detail("The bits of its time are reversed: IDs do not sort by time.")
                }
                Disorder::TimeBelow => text
                    .detail("Other fields are above its time: IDs do not sort by time.")
                    .hint(
                        "If such a field is the same in all IDs of a generator, give it its value \
                         in the label.",
                    ),
                Disorder::NegativeFrom(at) => text
                    .detail(format!(
                        "They are negative from {} on, and sort before all others.",
                        display(*at)
                    ))
                    .hint("Before that instant, ranges are as expected."),
            }
        }
        LayoutError::FieldRange { field, value, max } => {
            Text::out_of_range(format!("{field} {value} is out of range"))
                .hint(format!("The layout holds 0 to {max}."))
        }
        LayoutError::InstantRange { at, first, last } => Text::new(
            ERRCODE_DATETIME_FIELD_OVERFLOW,
            format!("instant {} is out of range", display(*at)),
        )
        .hint(format!(
            "The layout holds {} to {}.",
            display(*first),
            display(*last)
        )),
    }
}

fn encode_text(error: &EncodeError) -> Text {
    match error {
        EncodeError::Layout(error) => layout_text(error),
        EncodeError::Unknown(field) => {
            Text::invalid(format!("the layout has no field \"{field}\""))
                .hint("Name the fields as the layout does; the time is the first argument.")
        }
        EncodeError::Missing(field) => Text::invalid(format!("field \"{field}\" has no value"))
            .hint("All fields need one, but for fixed ones and a clock."),
        EncodeError::Fixed {
            field,
            value,
            fixed,
        } => Text::out_of_range(format!("field \"{field}\" cannot be {value}"))
            .detail(format!("In IDs of this layout it is {fixed}.")),
    }
}

fn cannot_change_layout(name: &str) -> Text {
    Text::not_ready(format!(
        "cannot change the layout of generator {name}: it has issued IDs"
    ))
}

fn not_an_id(id: i64) -> Text {
    Text::out_of_range(format!("{id} is not an ID of this layout"))
}

const FIELDS_HINT: &str = "Give the values by field, as in '{\"worker\": 7, \"sequence\": 0}'.";

fn worker_hint(max: u64) -> String {
    format!(
        "Set \"snowflake_id.worker_id\" in postgresql.conf to a number from 0 to {max} that no \
         other server of the cluster has, and restart the server."
    )
}

/// Where in a label something is.
fn place(text: &str, at: usize) -> String {
    const MOST: usize = 40;
    let before = text.get(..at).unwrap_or(text);
    let rest = text.get(at..).unwrap_or_default();
    if rest.is_empty() {
        return "At the end of the label.".to_string();
    }
    let number = before.chars().count() + 1;
    let mut shown: String = rest.chars().take(MOST).collect();
    if shown.len() < rest.len() {
        shown.push_str("...");
    }
    format!("At character {number}: {shown}")
}
