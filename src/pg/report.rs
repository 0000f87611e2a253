//! How errors and messages leave for PostgreSQL.
//!
//! pgrx has both in UTF-8, whatever the database's encoding is. So it is gone round
//! twice:
//!
//! - [`emit`] and [`guard`] report in the database's encoding: `guard` takes the place
//!   of `#[pg_guard]` where an error can have a name in it.
//! - pgrx makes an error of PostgreSQL's that passes through Rust an error of its own:
//!   without the bytes that are no UTF-8, without context, without the names of
//!   constraints. [`keeping_errors`] keeps a copy of the original, and `guard` reports
//!   that.

use std::any::Any;
use std::cell::Cell;
use std::ffi::{CStr, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use pgrx::pg_sys::panic::{CaughtError, ErrorReportWithLevel, pgrx_extern_c_guard};
use pgrx::{PgLogLevel, PgSqlErrorCode, pg_sys};

use super::compat;
use super::encoding::to_server;

thread_local! {
    /// The error that is on its way through Rust, if it was kept. In memory of the
    /// transaction.
    static KEPT: Cell<*mut pg_sys::ErrorData> = const { Cell::new(std::ptr::null_mut()) };
}

/// A report. Detail and hint are empty if there are none.
#[derive(Clone, Copy)]
pub struct Report<'a> {
    pub level: PgLogLevel,
    pub code: PgSqlErrorCode,
    pub message: &'a str,
    pub detail: &'a str,
    pub hint: &'a str,
}

impl Report<'_> {
    /// In memory of PostgreSQL.
    fn data(self) -> *mut pg_sys::ErrorData {
        let optional = |text: &str| match text {
            "" => std::ptr::null_mut(),
            text => to_server(text),
        };
        let data = pg_sys::ErrorData {
            elevel: self.level as i32,
            sqlerrcode: self.code as i32,
            message: to_server(self.message),
            detail: optional(self.detail),
            hint: optional(self.hint),
            // SAFETY: a variable of this process.
            assoc_context: unsafe { pg_sys::CurrentMemoryContext },
            ..pg_sys::ErrorData::default()
        };
        // SAFETY: room for one.
        unsafe {
            let room = pg_sys::palloc(size_of_val(&data)).cast::<pg_sys::ErrorData>();
            room.write(data);
            room
        }
    }
}

/// Sends a report that ends nothing.
#[cold]
pub fn emit(report: Report) {
    // SAFETY: of a level that returns; all texts are copied.
    unsafe { pg_sys::ThrowErrorData(report.data()) };
}

/// Runs `f`, the whole of a function that PostgreSQL calls. If `f` panics, its error is
/// reported when nothing of Rust's is left.
///
/// # Safety
/// The caller has nothing that must be dropped.
#[inline]
pub unsafe fn guard<R>(f: impl FnOnce() -> R) -> R {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(result) => result,
        // SAFETY: the caller's.
        Err(payload) => unsafe { raise(payload) },
    }
}

/// # Safety
/// As for [`guard`].
#[cold]
#[inline(never)]
unsafe fn raise(payload: Box<dyn Any + Send>) -> ! {
    // SAFETY: the caller's. What makes the report may fail in its turn, or leave a panic
    // to pgrx.
    unsafe {
        let data = pgrx_extern_c_guard(move || data_of(payload));
        compat::throw(data)
    }
}

/// What a panic says, if it is a report.
fn data_of(payload: Box<dyn Any + Send>) -> *mut pg_sys::ErrorData {
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
    let kept = KEPT.take();
    // SAFETY: null, or a copy that lives as long as the transaction.
    if is_caught && unsafe { is_original(kept, &report) } {
        return kept;
    }
    Report {
        level: report.level(),
        code: report.sql_error_code(),
        message: report.message(),
        detail: report.detail().unwrap_or_default(),
        hint: report.hint().unwrap_or_default(),
    }
    .data()
}

/// Whether pgrx has made a report of this error.
///
/// # Safety
/// Null, or an error.
unsafe fn is_original(kept: *const pg_sys::ErrorData, report: &ErrorReportWithLevel) -> bool {
    // SAFETY: the caller's; a message is NUL-terminated.
    unsafe {
        let Some(kept) = kept.as_ref().filter(|kept| !kept.message.is_null()) else {
            return false;
        };
        kept.sqlerrcode == report.sql_error_code() as i32
            && CStr::from_ptr(kept.message).to_string_lossy() == report.message()
    }
}

/// Runs `f`, which calls PostgreSQL in a transaction, and keeps the error that ends it.
pub fn keeping_errors<T>(f: impl FnOnce() -> T) -> T {
    /// Takes the call-back away, also while an error passes.
    struct Installed(*mut pg_sys::ErrorContextCallback);
    impl Drop for Installed {
        fn drop(&mut self) {
            // SAFETY: a variable of this process.
            unsafe { pg_sys::error_context_stack = self.0 };
        }
    }
    // SAFETY: variables of this process. The call-back is there until it is taken away.
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

/// Called for each message that PostgreSQL makes meanwhile, before it is sent. The last
/// error is the one that passes: earlier ones were caught on their way.
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
