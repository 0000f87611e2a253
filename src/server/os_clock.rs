//! The two clocks of the operating system.

use std::cmp::min_by_key;

use snowflake_core::id::{BootNanos, Nanos, UnixNanos};
use snowflake_core::protocol::clock::Reading;

/// This clock also counts while the machine sleeps, and nobody can step it. Reading it
/// takes no system call since Linux 5.3, thanks to the vDSO.
#[cfg(target_os = "linux")]
const BOOT_CLOCK: libc::clockid_t = libc::CLOCK_BOOTTIME;
#[cfg(not(target_os = "linux"))]
const BOOT_CLOCK: libc::clockid_t = libc::CLOCK_MONOTONIC;

/// A process may lose its core between two clock readings; the difference would then be
/// taken for a step of the wall clock. Readings further apart than this are taken
/// again, and the best of the attempts is used.
const READINGS_APART: Nanos = Nanos::new(20_000);
const READING_ATTEMPTS: u32 = 8;

#[inline]
fn nanos(clock: libc::clockid_t) -> i64 {
    let mut at = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `at` is a valid place for the result; both clocks exist on every
    // supported system, so the call cannot fail.
    unsafe { libc::clock_gettime(clock, &raw mut at) };
    at.tv_sec
        .saturating_mul(1_000_000_000)
        .saturating_add(at.tv_nsec)
}

pub fn boot() -> BootNanos {
    BootNanos::new(nanos(BOOT_CLOCK))
}

pub fn wall() -> UnixNanos {
    UnixNanos::new(nanos(libc::CLOCK_REALTIME))
}

/// Both clocks as of one moment. The boot clock is read last: the short time between
/// the readings makes the generator's clock late, never early.
pub fn read() -> Reading {
    let attempt = || {
        let (before, wall, boot) = (boot(), wall(), boot());
        (boot.since(before), Reading { boot, wall })
    };
    let mut best = attempt();
    for _ in 1..READING_ATTEMPTS {
        if best.0 <= READINGS_APART {
            break;
        }
        best = min_by_key(best, attempt(), |(apart, _)| *apart);
    }
    best.1
}
