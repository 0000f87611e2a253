//! What all sessions of a server share.

pub mod error; // what the settings and the shared memory lack
pub mod guc; // settings
pub mod lease_error; // why there is no worker ID, or no later bound
pub mod lease_state; // the place of a lease in shared memory
pub mod os_clock; // reads the two clocks of the operating system
pub mod server_key; // what tells this server, and this start of it, from others
pub mod shmem; // shared memory: the cursors, bounds and clocks of all generators
pub mod start_file; // remembers the last start, to notice copies
