//! Everything that knows PostgreSQL.
//!
//! | module | does |
//! |---|---|
//! | [`guc`] | settings |
//! | [`shmem`] | shared memory: the words, bounds and clocks of all generators |
//! | [`os_clock`] | reads the two clocks of the operating system |
//! | [`entry`] | what this session knows of a generator, and when that is void |
//! | [`label`] | reads labels of sequences |
//! | [`mark`] | the durable mark: reads it, raises it |
//! | [`issue`] | acts on the core's steps until there is an ID |
//! | [`provider`] | checks a label when it is set |
//! | [`reservation_lock`] | who may raise a mark |
//! | [`restart`] | keeps it when a sequence is restarted |
//! | [`spi`] | runs SQL statements of our own |
//! | [`time`] | conversions between PostgreSQL's time and ours |
//! | [`compat`] | what differs between PostgreSQL versions |
//! | [`error`] | what users read when something is wrong |
//! | [`notice`] | what users are told besides |
//! | [`sql`] | the SQL functions |

mod compat;
mod entry;
mod error;
mod guc;
mod issue;
mod label;
mod mark;
mod notice;
mod os_clock;
mod provider;
mod reservation_lock;
mod restart;
mod shmem;
mod spi;
mod sql;
mod time;

#[cfg(feature = "pg_test")]
mod tests;

/// Loads the library. Without `shared_preload_libraries` there is no shared
/// memory and there are no settings: decoding works, generating says why not.
pub fn init() {
    // Else pgrx would show users a backtrace in the detail of every error, where
    // the server's environment asks Rust for backtraces of panics.
    if std::env::var_os("RUST_LIB_BACKTRACE").is_none() {
        // SAFETY: a process of PostgreSQL has one thread.
        unsafe { std::env::set_var("RUST_LIB_BACKTRACE", "0") };
    }
    provider::register();
    // SAFETY: a flag that only the postmaster changes, before any backend.
    if unsafe { pgrx::pg_sys::process_shared_preload_libraries_in_progress } {
        guc::define();
        shmem::request();
        restart::register();
    }
}
