//! Rotations: how a generator goes back in time under the next worker ID of its server.
//!
//! After a clock rollback, a generator with `on_rollback=next_worker` has its server take another
//! worker ID, and continues at the tick of now. Every generator of the server comes to the new
//! tenure, each by its own policy ([`crate::protocol::plan`]):
//!
//! | policy | where it starts, not before the floor |
//! |---|---|
//! | `next_worker` | at the tick of now, in its next rotation |
//! | all others | at the tick of now, its own mark, or the tick after its cursor, whichever is latest |
//!
//! # Why no ID is issued twice
//!
//! An ID is a worker ID and a position of one generator. The server closes before it has the next
//! worker ID ([`crate::protocol::tenure`]), so that the IDs under the old one end:
//!
//! - **Under the new worker ID**, nobody has issued an ID at or past the floor of the grant, and
//!   no generator starts before the floor.
//! - **Under the old one**, nothing is issued after the close. Its end is at or past the positions
//!   of all generators, and whoever gets it next starts at that end, this server included.
//! - **Within a tenure**, the cursor of a generator only grows. It is in one rotation: only a new
//!   tenure begins another one.
//!
//! So the IDs of one worker ID in two rotations lie on two sides of a floor, and the end of the
//! present rotation is that of the worker ID. If the registry does not hear of the end, the worker
//! ID ends at its bound, which is later.
//!
//! For generators of other policies, the first tick of the new tenure is later than all before. So
//! the IDs of a session ascend where the time lies above the worker field.
//!
//! # Why the cursor does not go back
//!
//! The tick of now lies before the ticks that the cursor has passed. If the cursor were
//! lowered, it would come to the same values again, and a session that was stopped between
//! loading the cursor and swapping it would take a position for the old worker ID that was
//! taken before. So each worker ID has a **rotation**, a number above the time of a position,
//! where generators that change clocks have the clock:
//!
//! ```text
//!   position:   rotation | tick | sequence number
//! ```
//!
//! A further rotation starts at an earlier tick and at a greater position. So the cursor only
//! grows, and all that [`crate::protocol::cursor`] shows for a slot that comes to another generation
//! holds as it stands. The cursor is raised past every bound of the generation before, then
//! the generation is stored, then the bound is published. A session that has loaded the
//! cursor before fails to swap, whatever it has loaded else.
//!
//! The other ways were a shift of the time for each worker ID, which each ID would have to
//! subtract; and to issue under the reservation lock, which is slow.
//!
//! # When a rotation begins
//!
//! 1. A session finds the wall clock behind an earlier reading, by more than `max_wait`. It
//!    asks for a reservation ([`crate::protocol::host::Need::Switch`]). If the generator's clock is
//!    not behind the cursor (it leads since its start, or the ticks are long), the generator
//!    believes the clock and continues. Otherwise the worker ID is used up for that time
//!    ([`crate::protocol::plan::ReserveError::WorkerUsed`]).
//! 2. The session asks its host for another worker ID
//!    ([`crate::protocol::host::Host::another_worker`]). If the host sees, too, that the clock was
//!    set back, the server gets a new tenure, whose floor is not after the wall clock.
//! 3. The session enters anew and reserves. The slot is of the older generation, so the
//!    reservation is a start: at the floor or now. If that is before the latest mark, the
//!    cursor goes to the next rotation.
//!
//! A new tenure without a rollback, as after a lost lease, begins a rotation by the same
//! rule. A generator that has no rotation left continues at its latest mark, ahead of the
//! clock, as with `continue`: for the default layout after 2,047 changes since the server started.
//!
//! # Marks
//!
//! What keeps two rotations apart is the registry's bound, not the mark. So a generator that
//! runs does not obey the marks that it has written. It writes none below them either, so
//! that the mark on disk lies past the IDs of all rotations, whatever the label says later. A
//! start of the slot obeys the mark, for it may be of other worker IDs: of another server, of
//! another registry, of a dump. A mark that somebody sets while the generator runs, and an
//! advance, hold for all later rotations too (`least` in [`crate::protocol::slot`]).
//!
//! A server whose worker IDs come from another registry or pool from now on starts no
//! rotation before the marks of before. Only a restart of the server forgets that. So the worker
//! IDs that it leases must not be those of IDs that it had before by other means, from
//! another registry or from a setting. A rollback to a time before the start of the server
//! would meet them.
