//! How a session, or the main thread of a background worker, waits for another server.

use std::ffi::c_int;
use std::time::Instant;

use crate::postgres::compat;
use snowflake_registry_client::libpq::wait::{Ready, SocketEvent, WaitEnded, Waiter, millis_until};

/// Waits for the latch as well. An interrupt such as a cancelled query raises its error, and the
/// end of the postmaster ends the process.
pub struct Backend;

impl Waiter for Backend {
    fn wait(
        &mut self,
        socket: c_int,
        wanted: SocketEvent,
        deadline: Instant,
    ) -> Result<Ready, WaitEnded> {
        let (read, write) = (wanted != SocketEvent::Write, wanted != SocketEvent::Read);
        loop {
            pgrx::check_for_interrupts!();
            let left = millis_until(deadline);
            if compat::wait_socket(socket, read, write, i64::from(left)) {
                return Ok(Ready::Yes);
            }
            if left == 0 {
                return Ok(Ready::No);
            }
        }
    }
}
