//! What users are told that keeps nobody from going on.

use super::error::errors;
use super::time::display;
use crate::snowflake::duration::measured_text;
use crate::snowflake::id::{Millis, UnixMillis};

errors! {
    // From this instant on, or from some.
    can_be_negative(from: Option<UnixMillis>)
        [are_negative = from.map_or_else(
            || "can be negative".to_string(),
            |at| format!("are negative from {} on", display(at)),
        )]
        NOTICE "IDs of this layout {are_negative}"
        detail "Its fields have 64 bits. Negative IDs sort before all others.";

    mark_kept(name: &str)
        NOTICE "generator {name} keeps its mark"
        detail "IDs follow the time: a restart would only forget how far they are.";

    epoch_moved(name: &str, by: Millis) [by = measured_text(by.get())]
        NOTICE "IDs that generator {name} has issued decode to {by} earlier from now on"
        detail "Once this is committed, there is no way back to a later epoch.";

    is_foreign_key(column: &str, constraint: &str)
        NOTICE "{column} is a foreign key, constraint {constraint}"
        hint "An ID of its own is in no other table: rows that get it by default will violate the \
              constraint.";

    narrow_foreign_key(column: &str, declared: &str, constraint: &str)
        NOTICE "{column} refers to the column, constraint {constraint}, and is of type {declared}, \
                which holds no IDs"
        hint "Change its type to bigint.";

    values_not_compared(column: &str, generator: &str)
        NOTICE "values of {column} were not compared with IDs to come"
        detail "IDs of generator {generator} do not sort by time, so that any value of the column \
                may be issued a second time."
        hint "A unique constraint refuses a row whose ID is there already.";

    owner_lacks_usage(table: &str, owner: &str, generator: &str)
        NOTICE "role {owner}, which owns table {table}, cannot get IDs of generator {generator}"
        hint "Each role that inserts rows needs: GRANT USAGE ON SEQUENCE {generator} TO ...";
}
