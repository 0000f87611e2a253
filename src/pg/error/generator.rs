//! Servers, sequences and calls without what a generator needs.

use pgrx::pg_sys;

use super::errors;
use crate::snowflake::id::UnixMillis;

errors! {
    not_preloaded()
        NOT_READY "snowflake_id must be loaded at server start to generate IDs"
        hint "Add snowflake_id to what \"shared_preload_libraries\" lists in postgresql.conf, as \
              in: shared_preload_libraries = 'snowflake_id', and restart the server.";

    no_worker_id(max: u64) [hint = worker_hint(max)]
        NOT_READY "this server has no worker ID"
        detail "Two servers that generate IDs with the same worker ID generate the same IDs, so \
                there is no default."
        hint "{hint}";

    worker_id_range(worker: u32, max: u64, generator: &str, layout: &str) [hint = worker_hint(max)]
        INVALID "worker ID {worker} is out of range for generator {generator}"
        detail "Layout \"{layout}\" holds worker IDs from 0 to {max}."
        hint "{hint}";

    no_such_relation(oid: pg_sys::Oid)
        ERRCODE_UNDEFINED_TABLE "relation with OID {oid} does not exist";

    no_default_generator()
        ERRCODE_UNDEFINED_OBJECT "the default generator does not exist"
        detail "Extension snowflake_id has no sequence \"snowflake_default\" in its schema."
        hint "If it was renamed or moved, undo that.";

    not_a_generator(name: &str)
        WRONG_KIND "{name} is not a generator"
        hint "View snowflake_generators lists the generators of this database; \
              snowflake_create_generator() makes one.";

    unlabelled(name: &str)
        WRONG_KIND "{name} is not a generator: it has no label"
        hint "If a dump was restored without security labels, its mark may be there all the same: \
              do not drop it, but put the label back: SECURITY LABEL FOR snowflake_id ON SEQUENCE \
              {name} IS ...";

    unfit_sequence(name: &str, reason: &str)
        NOT_READY "sequence {name} cannot hold the mark of a generator"
        detail "{reason}"
        hint "It needs to be a logged bigint sequence with INCREMENT, START and MAXVALUE \
              9223372036854775807, MINVALUE 1 and NO CYCLE, as snowflake_create_generator() makes \
              it.";

    mark_does_not_fit(name: &str, mark: UnixMillis) [mark = mark.get()]
        NOT_READY "cannot restart generator {name} with these bounds"
        detail "Its mark, {mark} in Unix milliseconds, has to be kept and does not lie between \
                them."
        hint "Drop the sequence if it is not needed as a generator any more.";

    impossible_mark(name: &str, value: i64)
        ERRCODE_DATA_CORRUPTED "sequence {name} holds {value}, which is no mark of a generator";

    damaged_sequence(name: &str)
        ERRCODE_DATA_CORRUPTED "sequence {name} has a damaged page";

    no_privilege(privilege: &str, name: &str, owner: &str)
        ERRCODE_INSUFFICIENT_PRIVILEGE "permission denied for generator {name}"
        hint "Its owner, role {owner}, can run: GRANT {privilege} ON SEQUENCE {name} TO ...";

    slots_exhausted(max: usize)
        ERRCODE_CONFIGURATION_LIMIT_EXCEEDED "there is no shared memory for another generator"
        detail "Up to {max} generators have a place there, and those that are in use or ahead of \
                the clock keep theirs."
        hint "Increase \"snowflake_id.max_generators\" and restart the server.";

    batch_count(count: i32, max: i32)
        OUT_OF_RANGE "count {count} is out of range"
        hint "A batch has 1 to {max} IDs.";

    no_currval(name: &str)
        NOT_READY "snowflake_currval of generator {name} is not yet defined in this session"
        hint "Call snowflake_nextval() first.";

    spi(status: i32)
        ERRCODE_INTERNAL_ERROR "could not run a statement: SPI status {status}";
}

fn worker_hint(max: u64) -> String {
    format!(
        "Set \"snowflake_id.worker_id\" in postgresql.conf to a number from 0 to {max} that no \
         other server of the cluster has, and restart the server."
    )
}
