//! What users are told that keeps nobody from going on.

use pgrx::PgLogLevel;

use super::error::Text;
use super::time::display;
use crate::snowflake::duration::measured_text;
use crate::snowflake::id::UnixMillis;

/// Durations are in milliseconds.
#[derive(Debug)]
pub enum Notice {
    CanBeNegative {
        from: Option<UnixMillis>,
    },
    MarkKept {
        name: String,
    },
    EpochMoved {
        name: String,
        by: i64,
    },
    IsForeignKey {
        column: String,
        constraint: String,
    },
    NarrowForeignKey {
        column: String,
        declared: String,
        constraint: String,
    },
    ValuesNotCompared {
        column: String,
        generator: String,
    },
    OwnerLacksUsage {
        table: String,
        owner: String,
        generator: String,
    },
}

impl Notice {
    fn text(&self) -> Text {
        match self {
            Self::CanBeNegative { from } => Text::notice(match from {
                Some(at) => format!("IDs of this layout are negative from {} on", display(*at)),
                None => "IDs of this layout can be negative".to_string(),
            })
            .detail("Its fields have 64 bits. Negative IDs sort before all others."),
            Self::MarkKept { name } => Text::notice(format!("generator {name} keeps its mark"))
                .detail("IDs follow the time: a restart would only forget how far they are."),
            Self::EpochMoved { name, by } => Text::notice(format!(
                "IDs that generator {name} has issued decode to {} earlier from now on",
                measured_text(*by)
            ))
            .detail("Once this is committed, there is no way back to a later epoch."),
            Self::IsForeignKey { column, constraint } => Text::notice(format!(
                "{column} is a foreign key, constraint {constraint}"
            ))
            .hint(
                "An ID of its own is in no other table: rows that get it by default will violate \
                 the constraint.",
            ),
            Self::NarrowForeignKey {
                column,
                declared,
                constraint,
            } => Text::notice(format!(
                "{column} refers to the column, constraint {constraint}, and is of type \
                 {declared}, which holds no IDs"
            ))
            .hint("Change its type to bigint."),
            Self::ValuesNotCompared { column, generator } => Text::notice(format!(
                "values of {column} were not compared with IDs to come"
            ))
            .detail(format!(
                "IDs of generator {generator} do not sort by time, so that any value may come \
                 again."
            ))
            .hint("A unique constraint refuses a row whose ID is there already."),
            Self::OwnerLacksUsage {
                table,
                owner,
                generator,
            } => Text::notice(format!(
                "role {owner}, which owns table {table}, cannot get IDs of generator {generator}"
            ))
            .hint(format!(
                "Each role that inserts rows needs: GRANT USAGE ON SEQUENCE {generator} TO ..."
            )),
        }
    }

    /// Tells the client, and goes on.
    #[cold]
    pub fn notice(self) {
        self.text().report(PgLogLevel::NOTICE);
    }
}
