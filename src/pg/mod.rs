//! Everything that knows PostgreSQL.

mod catalog; // look-ups of sequences in the catalogs
mod compat; // what differs between PostgreSQL versions
mod encoding; // text between UTF-8 and the database's encoding
mod entry; // what this session knows of a generator, and when that is void
mod error; // what users read when something is wrong
mod guc; // settings
mod issue; // PostgreSQL as a host of the protocol; the path of each ID
mod label; // reads labels of sequences
mod log; // what the server's log says
mod mark; // the durable mark: reads it, writes it, says who may raise it
mod notice; // what users are told besides
mod os_clock; // reads the two clocks of the operating system
mod provider; // checks a label when it is set
mod report; // how errors and messages leave for PostgreSQL
mod restart; // keeps the mark when a sequence is restarted
mod shmem; // shared memory: the words, bounds and clocks of all generators
mod spi; // runs SQL statements of our own
mod sql; // the SQL functions
mod time; // conversions between PostgreSQL's time and ours

#[cfg(feature = "pg_test")]
mod tests;

/// Loads the library. Without `shared_preload_libraries` there is no shared
/// memory and there are no settings: decoding works, generating says why not.
pub fn init() {
    no_backtraces();
    provider::register();
    // SAFETY: a flag that only the postmaster changes, before any backend.
    if unsafe { pgrx::pg_sys::process_shared_preload_libraries_in_progress } {
        guc::define();
        shmem::request();
        restart::register();
    }
}

/// Else pgrx would show users a backtrace in the detail of every error, where the
/// server's environment asks Rust for backtraces of panics. The standard library asks
/// the environment once and keeps the answer, each library its own; so the variable is
/// set for that one question, and no child process or other extension sees it.
fn no_backtraces() {
    const NAME: &str = "RUST_LIB_BACKTRACE";
    if std::env::var_os(NAME).is_some() {
        return;
    }
    // SAFETY: a process of PostgreSQL has one thread.
    unsafe { std::env::set_var(NAME, "0") };
    drop(std::backtrace::Backtrace::capture());
    // SAFETY: as above.
    unsafe { std::env::remove_var(NAME) };
}
