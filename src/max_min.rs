//! max() and min() of type snowflake, by an index.
//!
//! PostgreSQL answers max() by the last entry of an index only if a sort operator is declared
//! for the aggregate, one of its own type. Type snowflake has no operators, since pg_upgrade
//! would lose them. So a query is changed before it is planned: max(id) becomes
//! max(id::bigint)::snowflake, which is the same bits. On a server without the library, and in
//! SQL functions that the planner inlines, max(id) reads all rows; the answer is the same.
//!
//! Most queries have neither aggregates nor subqueries. For these, the price is a look at three
//! flags and at the kinds of what the query reads.

use std::ffi::{c_char, c_int, c_void};

use pgrx::pg_sys;

use super::{catalog, compat, report};

static mut PREVIOUS: pg_sys::planner_hook_type = None;

/// Hooks into the planner. Called only in the postmaster, while it preloads.
pub fn register() {
    // SAFETY: the postmaster has one thread; hooks are chained as PostgreSQL documents it.
    unsafe {
        PREVIOUS = pg_sys::planner_hook;
        pg_sys::planner_hook = Some(on_plan);
    }
}

/// Called for every query. Errors of the planner pass through this frame, which has nothing to
/// clean up.
unsafe extern "C-unwind" fn on_plan(
    query: *mut pg_sys::Query,
    text: *const c_char,
    options: c_int,
    parameters: pg_sys::ParamListInfo,
    #[cfg(feature = "pg19")] explain: *mut pg_sys::ExplainState,
) -> *mut pg_sys::PlannedStmt {
    // SAFETY: PostgreSQL's arguments. Planning may change the query.
    unsafe {
        if may_aggregate(&*query) {
            report::guard(|| {
                let mut found: Vec<*mut pg_sys::Aggref> = Vec::new();
                compat::walk(query.cast(), Some(collect), (&raw mut found).cast());
                found.into_iter().for_each(|aggregate| by_bigint(aggregate));
                Ok(())
            });
        }
        match PREVIOUS.or(compat::STANDARD_PLANNER) {
            #[cfg(not(feature = "pg19"))]
            Some(next) => next(query, text, options, parameters),
            #[cfg(feature = "pg19")]
            Some(next) => next(query, text, options, parameters, explain),
            None => std::ptr::null_mut(),
        }
    }
}

/// Whether an aggregate may be in a query. One of a subquery is under a sublink, in a CTE, or
/// in what the query reads.
///
/// # Safety
/// The query is one that is to be planned.
unsafe fn may_aggregate(query: &pg_sys::Query) -> bool {
    // SAFETY: as the caller guarantees.
    let read = unsafe { compat::entries(query.rtable) };
    query.hasAggs
        || query.hasSubLinks
        || !query.cteList.is_null()
        || read
            .iter()
            // SAFETY: the range table is a list of entries.
            .map(|cell| unsafe { &*cell.ptr_value.cast::<pg_sys::RangeTblEntry>() })
            .any(|entry| entry.rtekind == pg_sys::RTEKind::RTE_SUBQUERY)
}

/// Collects the aggregates of one argument that have its type, if PostgreSQL does not have that
/// type from the start.
///
/// # Safety
/// Called by [`compat::walk`], with a `Vec` of them.
unsafe extern "C-unwind" fn collect(node: *mut pg_sys::Node, found: *mut c_void) -> bool {
    if node.is_null() {
        return false;
    }
    // SAFETY: as the caller guarantees; a node of this kind is an aggregate.
    unsafe {
        if (*node).type_ == pg_sys::NodeTag::T_Aggref {
            let aggregate: *mut pg_sys::Aggref = node.cast();
            let kind = (*aggregate).aggtype;
            if kind.to_u32() >= pg_sys::FirstNormalObjectId
                && matches!(compat::entries((*aggregate).aggargtypes), [only] if only.oid_value == kind)
            {
                (*found.cast::<Vec<*mut pg_sys::Aggref>>()).push(aggregate);
            }
        }
        compat::walk_parts(node, Some(collect), found)
    }
}

/// Puts max(x::bigint)::snowflake in the place of max(x), if that is the extension's; likewise
/// min(). The owner of the extension may add aggregates to it, which can be of any type that is
/// his own; only superusers make a base type that is stored as bigint is. A domain over bigint is
/// none, and anybody makes one.
///
/// # Safety
/// One of those that [`collect`] has found.
unsafe fn by_bigint(aggregate: *mut pg_sys::Aggref) {
    // SAFETY: catalog look-ups, in a transaction; the name of a function is NUL-terminated. The
    // aggregate has one argument. The node that takes its place is smaller.
    unsafe {
        // The walk comes twice to a node that has two parents.
        if (*aggregate).xpr.type_ != pg_sys::NodeTag::T_Aggref {
            return;
        }
        let (function, kind) = ((*aggregate).aggfnoid, (*aggregate).aggtype);
        let owner = pg_sys::getExtensionOfObject(pg_sys::ProcedureRelationId, function);
        let name = pg_sys::get_func_name(function);
        if name.is_null()
            || catalog::extension(c"snowflake_id").is_none_or(|extension| extension != owner)
            || pg_sys::getBaseType(kind) != kind
            || !pg_sys::IsBinaryCoercible(kind, pg_sys::INT8OID)
        {
            return;
        }
        let of_bigint = match std::ffi::CStr::from_ptr(name).to_bytes() {
            b"max" => pg_sys::F_MAX_INT8,
            b"min" => pg_sys::F_MIN_INT8,
            _ => return,
        };
        let ([argument], [kind_of_argument]) = (
            compat::entries((*aggregate).args),
            compat::entries((*aggregate).aggargtypes),
        ) else {
            return;
        };
        let argument: *mut pg_sys::TargetEntry = argument.ptr_value.cast();
        (*argument).expr = relabelled((*argument).expr, pg_sys::INT8OID).cast();
        kind_of_argument.oid_value = pg_sys::INT8OID;
        (*aggregate).aggfnoid = pg_sys::Oid::from(of_bigint);
        (*aggregate).aggtype = pg_sys::INT8OID;
        let moved: *mut pg_sys::Aggref = pg_sys::palloc(size_of::<pg_sys::Aggref>()).cast();
        moved.write(aggregate.read());
        const { assert!(size_of::<pg_sys::RelabelType>() <= size_of::<pg_sys::Aggref>()) };
        aggregate
            .cast::<pg_sys::RelabelType>()
            .write(relabelled(moved.cast(), kind).read());
    }
}

/// # Safety
/// `part` is an expression whose values are stored as those of the type are.
unsafe fn relabelled(part: *mut pg_sys::Expr, kind: pg_sys::Oid) -> *mut pg_sys::RelabelType {
    let format = pg_sys::CoercionForm::COERCE_EXPLICIT_CAST;
    // SAFETY: as the caller guarantees; neither type has a modifier or a collation.
    unsafe { pg_sys::makeRelabelType(part, kind, -1, pg_sys::InvalidOid, format) }
}
