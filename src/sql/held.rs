//! The two ways by which what users call keeps the extension first: see [`crate::postgres::own_tables`].

use std::ffi::CStr;

use pgrx::pg_sys;

use crate::postgres::own_tables::{self, Until};
use crate::postgres::spi;
use crate::sql::call::{Call, c_function};
use crate::sql::error::{self, Error};

// `snowflake_internal_hold()`: for functions. The transaction keeps the lock.
c_function!(snowflake_internal_hold, |call| {
    own_tables::hold(call.function()?, Until::EndOfTransaction).map(drop)
});

// A procedure that may commit: it calls the one of the same name and arguments in the schema
// of the extension's internal functions, and keeps the extension over all its transactions. In a
// transaction block, a COMMIT fails anyway, and the lock is that of the transaction: an exception
// block gives it back with the rest.
c_function!(snowflake_internal_held_procedure, call_held);

// One that always commits, so that it cannot run in a transaction block.
c_function!(snowflake_internal_committing_procedure, |call| {
    if call.may_commit() {
        return call_held(call);
    }
    // SAFETY: the function that is called has a name, which is NUL-terminated.
    let name = unsafe { CStr::from_ptr(pg_sys::get_func_name(call.function()?)) };
    Err(error::needs_to_commit(&name.to_string_lossy()))
});

fn call_held(call: &Call) -> Result<(), Error> {
    let function = call.function()?;
    let may_commit = call.may_commit();
    let until = match may_commit {
        true => Until::GivenBack,
        false => Until::EndOfTransaction,
    };
    let held = own_tables::hold(function, until)?;
    call_inner(call, function, held.schema, may_commit)?;
    if may_commit {
        held.give_back();
    }
    Ok(())
}

/// Calls the procedure in `schema`.
fn call_inner(
    call: &Call,
    function: pg_sys::Oid,
    schema: &CStr,
    may_commit: bool,
) -> Result<(), Error> {
    let (mut types, mut count) = (std::ptr::null_mut(), 0);
    // SAFETY: in a transaction. The function is the one that is called: the name, which is
    // NUL-terminated, and the types are copies of its row; it has as many arguments as are counted.
    let (name, types) = unsafe {
        pg_sys::get_func_signature(function, &raw mut types, &raw mut count);
        let count = usize::try_from(count).unwrap_or(0);
        let types = match count {
            0 => &[],
            _ => std::slice::from_raw_parts(types, count),
        };
        (CStr::from_ptr(pg_sys::get_func_name(function)), types)
    };
    let places: Vec<_> = (1..=types.len()).map(|place| format!("${place}")).collect();
    let statement = format!(
        "CALL {}.{}({})",
        schema.to_string_lossy(),
        name.to_string_lossy(),
        places.join(", ")
    );
    let values = types.iter().enumerate().map(|(place, type_)| {
        let value = (!call.is_null(place)).then(|| call.datum(place));
        (*type_, value)
    });
    spi::call(&statement, values, may_commit)
}
