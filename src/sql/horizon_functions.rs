//! The horizon, who holds it back, and the trigger for IDs that come from elsewhere.

use std::ffi::{CStr, c_void};

use pgrx::datum::FromDatum;
use pgrx::spi::quote_literal;
use pgrx::{PgList, pg_sys};

use crate::postgres::encoding::{from_server, to_server};
use crate::postgres::own_tables::{self, Until};
use crate::postgres::{catalog, compat, size_limit, spi, time};
use crate::server::shmem;
use crate::session;
use crate::session::generator::{self, SessionGenerator};
use crate::session::{horizon, horizon_error, label};
use crate::sql::call::{c_function, columns};
use crate::sql::error::Error;
use snowflake_core::horizon::Processes;
use snowflake_core::id::UnixMillis;

// `snowflake_horizon([generator]) -> bigint`.
c_function!(snowflake_horizon, |call| {
    shmem::shared()?;
    let entry = call.entry(0)?;
    // SAFETY: reads shared memory, and a variable of this process.
    if unsafe { pg_sys::RecoveryInProgress() } {
        return Err(horizon_error::in_recovery());
    }
    generator::prevent_where_nextval_is(c"snowflake_horizon()");
    // SAFETY: a variable of this process.
    if unsafe { pg_sys::XactIsoLevel } >= pg_sys::XACT_REPEATABLE_READ.cast_signed() {
        return Err(horizon_error::old_snapshot());
    }
    // A change of the label waits for us, and we wait for it.
    entry.lock_for(catalog::ANY_USE)?;
    horizon::check_ascends(entry)?;
    let at = horizon::read(entry)?;
    horizon::least_id(entry, at)
});

// `snowflake_horizon_support(internal) -> internal`: the planner asks it to simplify a call of
// the function above. It simplifies nothing, and refuses a query that reads tables as well,
// and calls outside of a query: parameters of EXECUTE are computed after the snapshot by
// which the prepared query reads.
c_function!(snowflake_horizon_support, |call| {
    let request = call.datum(0).cast_mut_ptr::<pg_sys::Node>();
    // SAFETY: the planner passes a request, which is a node; the queries of a request to
    // simplify, and those around them, are there while it plans.
    unsafe {
        if (*request).type_ == pg_sys::NodeTag::T_SupportRequestSimplify {
            let request = &*request.cast::<pg_sys::SupportRequestSimplify>();
            if request.root.is_null() {
                return Err(horizon_error::outside_of_query());
            }
            if is_beside_tables(request.root) {
                return Err(horizon_error::beside_tables());
            }
        }
    }
    Ok(pg_sys::Datum::from(0))
});

/// Whether a query reads a table, or one around it, or a subquery of these that is planned
/// already: such a one has left the query.
///
/// # Safety
/// The queries are being planned.
unsafe fn is_beside_tables(mut root: *mut pg_sys::PlannerInfo) -> bool {
    let reads = |root: *mut pg_sys::PlannerInfo| {
        // A query may have many calls, and each looks at all of it.
        pgrx::check_for_interrupts!();
        // SAFETY: as the caller guarantees.
        unsafe { compat::walk((*root).parse.cast(), Some(reads_tables)) }
    };
    // SAFETY: as the caller guarantees.
    unsafe {
        let glob = (*root).glob.as_ref();
        let planned = glob.map_or(std::ptr::null_mut(), |glob| glob.subroots);
        let planned = PgList::<pg_sys::PlannerInfo>::from_pg(planned);
        while !(*root).parent_root.is_null() {
            root = (*root).parent_root;
        }
        reads(root) || planned.iter_ptr().any(reads)
    }
}

/// Whether a part of a query reads a table.
///
/// # Safety
/// Called by [`compat::walk`]; the context is not used. Nothing here has to be dropped, see
/// [`compat::walk_parts`].
unsafe extern "C-unwind" fn reads_tables(node: *mut pg_sys::Node, context: *mut c_void) -> bool {
    if node.is_null() {
        return false;
    }
    // SAFETY: as the caller guarantees; a node of this kind is a query.
    unsafe {
        if (*node).type_ == pg_sys::NodeTag::T_Query && lists_a_table(&*node.cast()) {
            return true;
        }
        compat::walk_parts(node, Some(reads_tables), context)
    }
}

/// Whether the range table of a query has a table that it reads. The target of an INSERT is
/// not read.
///
/// # Safety
/// The query is one that is being planned.
unsafe fn lists_a_table(query: &pg_sys::Query) -> bool {
    let is_insert = query.commandType == pg_sys::CmdType::CMD_INSERT;
    let target = usize::try_from(query.resultRelation).unwrap_or(0);
    // SAFETY: as the caller guarantees; the range table of a query is a list of entries, with
    // as many elements as it says. PostgreSQL's own look-up would be guarded for each.
    unsafe {
        let Some(list) = query.rtable.as_ref() else {
            return false;
        };
        let count = usize::try_from(list.length).unwrap_or(0);
        let cells = std::slice::from_raw_parts(list.elements, count);
        cells.iter().enumerate().any(|(index, cell)| {
            let entry = &*cell.ptr_value.cast::<pg_sys::RangeTblEntry>();
            let is_target = is_insert && index + 1 == target;
            // A view stands beside the query that took its place.
            let is_view = compat::byte(entry.relkind) == pg_sys::RELKIND_VIEW;
            entry.rtekind == pg_sys::RTEKind::RTE_RELATION && !is_target && !is_view
        })
    }
}

// The view `snowflake_horizon_holders`: the places of running transactions of this database.
// The view adds the locks, from pg_locks.
c_function!(snowflake_horizon_held, |call| {
    let shared = shmem::shared()?;
    // SAFETY: a variable of this process.
    let database = unsafe { pg_sys::MyDatabaseId }.to_u32();
    let holders = shared.holders().iter();
    let rows = holders
        .flat_map(|holder| holder.shown())
        .filter_map(|shown| {
            let key = shmem::SlotKey::from_bits(shown.key);
            let relation = match key.is_default() {
                _ if key.database_oid() != database => return None,
                true => session::default_relation().ok()?,
                false => key.relation(),
            };
            // How far a generator is, is shown only to users who may use it.
            let may_watch = session::of_sequence(relation).may_watch();
            Some(columns![
                shown.process.cast_signed(),
                relation,
                may_watch.then(|| time::to_datum(shown.at)),
            ])
        });
    let rows: Vec<_> = rows.collect();
    call.rows(rows.into_iter());
    Ok(())
});

// The trigger `snowflake_check_horizon([column [, generator]])`.
c_function!(snowflake_check_horizon, |call| {
    let trigger = call.trigger().ok_or_else(horizon_error::not_a_trigger)?;
    let event = trigger.tg_event;
    let is_update = match event & pg_sys::TRIGGER_EVENT_OPMASK {
        pg_sys::TRIGGER_EVENT_INSERT => false,
        pg_sys::TRIGGER_EVENT_UPDATE => true,
        _ => return Err(horizon_error::not_a_trigger()),
    };
    if event & pg_sys::TRIGGER_EVENT_ROW == 0 {
        return Err(horizon_error::not_a_trigger());
    }
    let row = if is_update {
        trigger.tg_newtuple
    } else {
        trigger.tg_trigtuple
    };
    // SAFETY: PostgreSQL calls a trigger with its description.
    let number = unsafe { (*trigger.tg_trigger).tgoid };
    let (column, entry) = horizon::of_trigger(number, || find(trigger, call.function()?))?;
    let value = |tuple| {
        let mut is_null = false;
        // SAFETY: a row of the trigger's relation, which has this column, a bigint.
        unsafe {
            let descriptor = (*trigger.tg_relation).rd_att;
            let datum = pg_sys::SPI_getbinval(tuple, descriptor, column, &raw mut is_null);
            i64::from_datum(datum, is_null)
        }
    };
    let id = value(row);
    if let Some(id) = id
        && !(is_update && value(trigger.tg_trigtuple) == Some(id))
    {
        horizon::insert(entry, id)?;
    }
    Ok(pg_sys::Datum::from(row))
});

/// The column and the generator of a trigger, whose function is given. It looks names up.
fn find(
    trigger: &pg_sys::TriggerData,
    function: pg_sys::Oid,
) -> Result<(i32, &'static SessionGenerator), Error> {
    shmem::shared()?;
    own_tables::hold(function, Until::EndOfTransaction)?;
    // SAFETY: PostgreSQL calls a trigger with its relation, and with as many arguments as it
    // says, NUL-terminated.
    let (relation, owner, arguments) = unsafe {
        let its = &*trigger.tg_trigger;
        let count = usize::try_from(its.tgnargs).unwrap_or(0);
        let argument = |index| {
            let argument = CStr::from_ptr(*its.tgargs.add(index));
            size_limit::NAME.check(argument.count_bytes())?;
            Ok(from_server(argument))
        };
        let arguments: Result<Vec<_>, Error> = (0..count.min(2)).map(argument).collect();
        let relation = &*trigger.tg_relation;
        (relation.rd_id, (*relation.rd_rel).relowner, arguments?)
    };
    let table = || catalog::relation_name(relation);
    let oid = relation.to_u32();
    let column = match arguments.first() {
        Some(column) => column.clone(),
        None => {
            let key = spi::read_one(&format!(
                "SELECT a.attname AS column FROM pg_catalog.pg_index i \
                 JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0] \
                 WHERE i.indrelid = {oid} AND i.indisprimary AND i.indnkeyatts = 1"
            ))?;
            let key = key.ok_or_else(|| horizon_error::no_ordered_column(&table()))?;
            key.text("column")
        }
    };
    // SAFETY: the description of the relation; a NUL-terminated name.
    let number = unsafe {
        let descriptor = (*trigger.tg_relation).rd_att;
        let number = pg_sys::SPI_fnumber(descriptor, to_server(&column));
        // A domain over bigint is stored as bigint is.
        let is_bigint = number > 0
            && pg_sys::IsBinaryCoercible(
                pg_sys::SPI_gettypeid(descriptor, number),
                pg_sys::INT8OID,
            );
        is_bigint.then_some(number)
    };
    let number = number.ok_or_else(|| horizon_error::unfit_column(&table(), &column))?;
    let generator = match arguments.get(1) {
        Some(name) => {
            // Not by the search path of the session that inserts.
            let quoted = quote_literal(name);
            let own = catalog::schema_of_extension().unwrap_or_default();
            let found = spi::read_one(&format!(
                "SELECT coalesce(CASE WHEN n.qualified THEN pg_catalog.to_regclass({quoted}) END, \
                 pg_catalog.to_regclass(n.schema || '.' || {quoted}), \
                 pg_catalog.to_regclass({own} || '.' || {quoted}))::pg_catalog.oid AS oid \
                 FROM (SELECT pg_catalog.quote_ident(s.nspname) AS schema, \
                 pg_catalog.cardinality(pg_catalog.parse_ident({quoted})) > 1 AS qualified \
                 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace s ON s.oid = c.relnamespace \
                 WHERE c.oid = {oid}) n",
                own = quote_literal(&own)
            ))?;
            let found = found.and_then(|row| row.get("oid").map(str::to_string));
            Some(found.ok_or_else(|| horizon_error::unknown_generator(name))?)
        }
        // A partition that was attached need not have the default of the table that is used.
        None => spi::read_one(&format!(
            "SELECT g.generator::pg_catalog.oid AS oid \
             FROM (SELECT {oid}::pg_catalog.oid AS relid, 0::bigint AS level \
             UNION ALL SELECT p.relid, p.level \
             FROM pg_catalog.pg_partition_ancestors({oid}) WITH ORDINALITY p(relid, level)) t \
             JOIN pg_catalog.pg_attribute a ON a.attrelid = t.relid AND a.attname = {name} \
             JOIN _snowflake.default_generators(t.relid) g ON g.number = a.attnum \
             ORDER BY t.level LIMIT 1",
            name = quote_literal(&column)
        ))?
        .and_then(|row| row.get("oid").map(str::to_string)),
    };
    let generator = generator.and_then(|generator| generator.parse().ok());
    let generator: u32 =
        generator.ok_or_else(|| horizon_error::no_default_to_follow(&table(), &column))?;
    let generator = pg_sys::Oid::from(generator);
    let entry = session::of_named(generator)?;
    // A session that inserts holds back the generator's readers: so its table's owner must be one
    // who may use the generator.
    if !catalog::has_privilege_of(generator, owner, pg_sys::ACL_USAGE | pg_sys::ACL_UPDATE) {
        let (name, role) = (entry.name(), catalog::role_name(owner));
        return Err(horizon_error::owner_lacks_usage(&name, &role));
    }
    entry.lock();
    horizon::check_ascends(entry)?;
    Ok((number, entry))
}

/// How far the horizon of a generator lies behind the clock, in milliseconds; `None` if it has
/// none. For a view, which waits for no lock.
pub fn lag(entry: &SessionGenerator, locked: &[(u64, UnixMillis)], now: UnixMillis) -> Option<f64> {
    // SAFETY: reads shared memory.
    if unsafe { pg_sys::RecoveryInProgress() } {
        return None;
    }
    let label = entry.read_label(entry.is_default(), label::read).ok()?;
    let generator = label.map_or(label::of_default().generator, |label| label.generator);
    if generator.descends().is_some() {
        return None;
    }
    let key = entry.key();
    let shared = shmem::shared().ok()?;
    let at = shared.with_slot(key, |slot| horizon::at(shared, key, slot, locked, now))?;
    // Exact: far below 2^53.
    #[allow(clippy::cast_precision_loss)]
    Some(now.since(at).get().max(0) as f64)
}
