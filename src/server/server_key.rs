//! What tells this server from others, and this start of it from earlier ones.

use std::ffi::CStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU64, Ordering};

use pgrx::pg_sys;

use crate::postgres::time;
use crate::server::start_file;
use snowflake_core::lease::ServerKey;

/// Where Linux tells its boot ID.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Names the last start whose data may be older than what the server had said before: it
/// went through crash recovery, and a snapshot that was restored looks the same. A random
/// number; 0 unless the postmaster has looked. The postmaster's children inherit its copy,
/// and so do those after a crash of one of them: then the data on disk are the same.
static CLEAN_SINCE: AtomicU64 = AtomicU64::new(0);

/// Looks whether the server was stopped cleanly before this start. Called by the
/// postmaster while it loads the library, which is before recovery. A clean stop says nothing
/// of the start that it has ended, so the start file tells what that one knew.
pub fn look_how_it_stopped() {
    let mut is_whole = false;
    // SAFETY: reads a file of the data directory, into new memory.
    let stopped = unsafe {
        let control = pg_sys::get_controlfile(pg_sys::DataDir, &raw mut is_whole);
        (*control).state == pg_sys::DBState::DB_SHUTDOWNED
    };
    let before = start_file::clean_since().filter(|_| stopped && is_whole);
    CLEAN_SINCE.store(before.unwrap_or_else(another), Ordering::Relaxed);
}

/// A number that no other start has, not 0.
fn another() -> u64 {
    let mut random = [0u8; 8];
    // SAFETY: as many bytes as there are. Without random numbers the server does not start,
    // see `shmem::secret`.
    unsafe { pg_sys::pg_strong_random(random.as_mut_ptr().cast(), random.len()) };
    u64::from_ne_bytes(random).max(1)
}

/// Since which start nothing may have been lost of what was stored before it: see
/// [`snowflake_core::lease::state::RegistryInput::clean_since`]. Without preloading, this one.
pub fn clean_since() -> u128 {
    match CLEAN_SINCE.load(Ordering::Relaxed) {
        0 => start(),
        number => number.into(),
    }
}

/// Names this start of the postmaster. A crash of one of its children ends no start.
pub fn start() -> u128 {
    // SAFETY: a variable of this process, set when it started.
    u128::from(unsafe { pg_sys::PgStartTime }.unsigned_abs())
}

/// When the postmaster started, in microseconds since 1970, as it tells other servers.
pub fn postmaster_start() -> i64 {
    // SAFETY: a variable of this process, which stays as it is.
    time::unix_micros(unsafe { pg_sys::PgStartTime })
}

/// The identity of this server. What cannot be read is 0.
pub fn server_key() -> ServerKey {
    // SAFETY: in a process with shared memory; the data directory is NUL-terminated.
    let (system, directory) = unsafe {
        let directory = CStr::from_ptr(pg_sys::DataDir);
        (pg_sys::GetSystemIdentifier(), directory)
    };
    let boot = std::fs::read_to_string(BOOT_ID).unwrap_or_default();
    let boot = boot.trim().replace('-', "");
    let path = std::ffi::OsStr::from_bytes(directory.to_bytes());
    let found = std::fs::metadata(path).map(|found| (found.dev(), found.ino()));
    let (device, inode) = found.unwrap_or_default();
    ServerKey {
        system,
        boot: u128::from_str_radix(&boot, 16).unwrap_or_default(),
        device,
        inode,
    }
}
