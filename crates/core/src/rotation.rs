//! Rotations: how a generator goes back in time under another worker ID.
//!
//! A generator with `on_rollback=next_worker` leases worker IDs of its own. After a clock
//! rollback it takes a further one, and continues at the tick of now. Its IDs differ from
//! all earlier ones by the worker ID: of the new worker ID, nothing was issued from the floor
//! of the grant on, and the generator does not start before that floor. Of the old one,
//! nothing is issued from its bound on.
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
//! grows, and all that [`super::cursor`] shows for a slot that comes to another generation
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
//!    asks for a reservation ([`super::protocol::host::Need::Switch`]). If the generator's clock is
//!    not behind the cursor (it leads since its start, or the ticks are long), the generator
//!    believes the clock and continues. Otherwise the worker ID is used up for that time
//!    ([`super::plan::ReserveError::WorkerUsed`]).
//! 2. The session asks its host for another worker ID
//!    ([`super::protocol::host::Host::another_worker`]). The host gives the generator a new
//!    tenure, whose floor is not after the wall clock.
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
//! start of the slot obeys the mark, for it may be of other worker IDs: of the server, of
//! another registry, of a dump. A mark that somebody sets while the generator runs, and an
//! advance, hold for all later rotations too (`least` in [`super::slot`]).
//!
//! A generator whose worker IDs come from another registry or pool from now on starts no
//! rotation before the marks of before. Only a restart of the server forgets that. So the worker
//! IDs that it leases must not be those of IDs that it had before by other means, from
//! another registry or from the server. A rollback to a time before the start of the server
//! would meet them.
