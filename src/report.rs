//! Passes errors and messages to PostgreSQL.
//!
//! pgrx reports both in UTF-8, whatever the database's encoding is. So this file
//! bypasses pgrx twice:
//!
//! - [`emit`] and [`guard`] report in the database's encoding: `guard` takes the place
//!   of `#[pg_guard]` where an error can contain a name.
//! - pgrx turns PostgreSQL's errors that pass through Rust into errors of its own:
//!   without the bytes that are not UTF-8, without context, without the names of
//!   constraints. [`keeping_errors`] keeps a copy of the original, and `guard` reports
//!   that copy.

use std::any::Any;
use std::cell::Cell;
use std::ffi::{CStr, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use pgrx::pg_sys::panic::{CaughtError, ErrorReportWithLevel, pgrx_extern_c_guard};
use pgrx::{PgLogLevel, PgSqlErrorCode, pg_sys};

use super::compat;
use super::encoding::to_server;
use super::error::{Error, joined};

thread_local! {
    /// The error that is passing through Rust, if it was kept, in memory of the
    /// transaction.
    static KEPT: Cell<*mut pg_sys::ErrorData> = const { Cell::new(std::ptr::null_mut()) };
}

/// An error as a report in PostgreSQL's memory.
fn data(error: &Error, level: PgLogLevel) -> *mut pg_sys::ErrorData {
    let optional = |text: &str| match text {
        "" => std::ptr::null_mut(),
        text => to_server(text),
    };
    let data = pg_sys::ErrorData {
        elevel: level as i32,
        sqlerrcode: error.code as i32,
        message: to_server(&error.message),
        detail: optional(&error.detail),
        hint: optional(&error.hint),
        // SAFETY: a variable of this process.
        assoc_context: unsafe { pg_sys::CurrentMemoryContext },
        ..pg_sys::ErrorData::default()
    };
    // SAFETY: room for one report.
    unsafe {
        let room = pg_sys::palloc(size_of_val(&data)).cast::<pg_sys::ErrorData>();
        room.write(data);
        room
    }
}

/// Sends a report that does not end the statement.
#[cold]
fn emit(error: &Error, level: PgLogLevel) {
    // SAFETY: a level that returns; all texts are copied.
    unsafe { pg_sys::ThrowErrorData(data(error, level)) };
}

impl Error {
    /// Sends the client a notice. The statement continues.
    pub fn notice(self) {
        emit(&self, PgLogLevel::NOTICE);
    }

    /// Sends the client a warning. The statement continues.
    pub fn warning(self) {
        emit(&self, PgLogLevel::WARNING);
    }

    /// Writes to the server log, not to the client; `more` goes before the detail.
    pub fn log(mut self, more: &str) {
        self.message = format!("snowflake_id: {}", self.message);
        self.detail = joined(more, &self.detail);
        emit(&self, PgLogLevel::LOG_SERVER_ONLY);
    }
}

/// Runs `f`, the whole of a function that PostgreSQL calls. The error that `f` returns,
/// or with which it panics, is reported after all values of Rust's are dropped.
///
/// # Safety
/// The caller has nothing that must be dropped.
#[inline]
pub unsafe fn guard<R>(f: impl FnOnce() -> Result<R, Error>) -> R {
    let payload = match catch_unwind(AssertUnwindSafe(f)) {
        Ok(Ok(result)) => return result,
        Ok(Err(error)) => Box::new(error),
        Err(payload) => payload,
    };
    // SAFETY: as the caller guarantees.
    unsafe { raise(payload) }
}

/// # Safety
/// As for [`guard`].
#[cold]
#[inline(never)]
unsafe fn raise(payload: Box<dyn Any + Send>) -> ! {
    // SAFETY: as the caller guarantees. Making the report may itself fail, or leave a
    // panic to pgrx.
    unsafe {
        let data = pgrx_extern_c_guard(move || data_of(payload));
        compat::throw(data)
    }
}

/// Runs `f`. An error with which it panics is returned as well: the caller aborts the
/// transaction then.
pub fn caught<T>(f: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|payload| Err(error_of(payload).0))
}

/// The report that a panic carries, if it carries one.
fn data_of(payload: Box<dyn Any + Send>) -> *mut pg_sys::ErrorData {
    let kept = KEPT.take();
    let (error, level, is_caught) = error_of(payload);
    // SAFETY: null, or a copy that lives as long as the transaction.
    if is_caught && unsafe { is_original(kept, &error) } {
        return kept;
    }
    data(&error, level)
}

/// The error that a panic carries, its level, and whether it is one of PostgreSQL's.
fn error_of(payload: Box<dyn Any + Send>) -> (Error, PgLogLevel, bool) {
    let payload = match payload.downcast::<Error>() {
        Ok(error) => return (*error, PgLogLevel::ERROR, false),
        Err(payload) => payload,
    };
    let (report, is_caught) = match payload.downcast::<ErrorReportWithLevel>() {
        Ok(report) => (*report, false),
        Err(payload) => match payload.downcast::<CaughtError>() {
            Ok(caught) => match *caught {
                CaughtError::PostgresError(report) => (report, true),
                CaughtError::ErrorReport(report) => (report, false),
                panicked @ CaughtError::RustPanic { .. } => panicked.rethrow(),
            },
            Err(payload) => resume_unwind(payload),
        },
    };
    let error = Error {
        code: report.sql_error_code(),
        message: report.message().to_string(),
        detail: report.detail().unwrap_or_default().to_string(),
        hint: report.hint().unwrap_or_default().to_string(),
    };
    (error, report.level(), is_caught)
}

/// Whether pgrx made an error of the report `kept`.
///
/// # Safety
/// `kept` is null, or points to an error.
unsafe fn is_original(kept: *const pg_sys::ErrorData, error: &Error) -> bool {
    // SAFETY: as the caller guarantees; a message is NUL-terminated.
    unsafe {
        let Some(kept) = kept.as_ref().filter(|kept| !kept.message.is_null()) else {
            return false;
        };
        // pgrx has one code for all SQLSTATEs that it does not know, such as a user's own.
        PgSqlErrorCode::from(kept.sqlerrcode) == error.code
            && CStr::from_ptr(kept.message).to_string_lossy() == error.message
    }
}

/// Runs `f`, which calls PostgreSQL in a transaction, and keeps the error that ends it.
pub fn keeping_errors<T>(f: impl FnOnce() -> T) -> T {
    /// Removes the callback, also while an error passes.
    struct Installed(*mut pg_sys::ErrorContextCallback);
    impl Drop for Installed {
        fn drop(&mut self) {
            // SAFETY: a variable of this process.
            unsafe { pg_sys::error_context_stack = self.0 };
        }
    }
    // SAFETY: variables of this process. The callback exists until it is removed.
    let previous = unsafe { pg_sys::error_context_stack };
    let mut callback = pg_sys::ErrorContextCallback {
        previous,
        callback: Some(keep),
        arg: std::ptr::null_mut(),
    };
    let _installed = Installed(previous);
    // SAFETY: as above.
    unsafe { pg_sys::error_context_stack = &raw mut callback };
    KEPT.set(std::ptr::null_mut());
    let result = f();
    KEPT.set(std::ptr::null_mut());
    result
}

/// Called for each message that PostgreSQL makes meanwhile, before the message is sent.
/// The last error is the one that passes: earlier errors were caught on their way.
unsafe extern "C-unwind" fn keep(_argument: *mut c_void) {
    // SAFETY: a report is being made, in a memory context that must not be used.
    unsafe {
        let context = pg_sys::CurrentMemoryContext;
        pg_sys::CurrentMemoryContext = pg_sys::TopTransactionContext;
        let copy = compat::copy_error();
        pg_sys::CurrentMemoryContext = context;
        let other = match (*copy).elevel {
            level if level == PgLogLevel::ERROR as i32 => KEPT.replace(copy),
            _ => copy,
        };
        if !other.is_null() {
            compat::free_error(other);
        }
    }
}
