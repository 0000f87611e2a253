//! Blocks: consecutive IDs for a caller that gets only the first ID and counts up.
//!
//! Consecutive positions are consecutive IDs within a tick and a clock, since only the
//! lowest field, the sequence number, changes there. [`issue()`] promises no more than
//! consecutive positions: they may cross into the next tick, and may be fewer than
//! requested. So a block takes positions up to [`ATTEMPTS`] times:
//!
//! 1. as many as are wanted, which is enough if they lie within a tick;
//! 2. then the positions that are missing in the tick that the first call has reached;
//! 3. if another session has taken some in between: so many that they contain a whole
//!    block wherever they start.
//!
//! Positions that are taken but do not belong to the block are lost: no call issues
//! them. That is the price for leaving the path of single IDs as it is.

use crate::id::Position;
use crate::label::generator::Generator;
use crate::protocol::cursor::IssuedRange;
use crate::protocol::host::{Host, IssueError};
use crate::protocol::issue;

/// How often a call takes positions while others take some in between. Each time may
/// exhaust a tick that others wait for, so the call does not try more often.
const ATTEMPTS: u32 = 100;

impl Generator {
    /// The largest block: what a fresh tick holds, wherever its sequence numbers start.
    /// `None` if the IDs of a tick do not count up by one.
    pub fn max_block(&self) -> Option<u64> {
        let counts_up = self.layout.counts_by_one() && !self.is_random();
        counts_up.then(|| self.layout.max_sequence() + 1 - self.policy.sequence_start.last())
    }
}

/// The positions of `count` consecutive IDs, at most [`Generator::max_block`] of the
/// host's generator. Waits for the clock and reserves as needed; a failed call issues
/// nothing. Fails with the host's error, or why there is no block.
pub fn issue_block<H: Host>(host: &H, count: u64) -> Result<IssuedRange, H::Error> {
    let (_, generator) = host.enter()?;
    let (bits, max_chunk) = (generator.layout.sequence_bits(), generator.max_chunk());
    let anywhere = (2 * count - 1).min(max_chunk);
    let mut held: Option<BlockRange> = None;
    let (mut asked, mut waited) = (count, false);
    for _ in 0..ATTEMPTS {
        let issued = issue(host, asked)?;
        waited |= issued.waited;
        let end = issued.end.get();
        let next = BlockRange {
            start: issued.start.get(),
            end,
            borrowed_from: end - issued.borrowed,
        };
        let joined = held.and_then(|held| held.joined(next));
        let taken = joined.unwrap_or(next);
        if let Some(block) = taken.block(count, bits) {
            return Ok(IssuedRange {
                start: Position::new(block.start),
                end: Position::new(block.end),
                borrowed: block
                    .end
                    .saturating_sub(block.start.max(block.borrowed_from)),
                waited,
            });
        }
        let last = taken.in_last_tick(bits);
        asked = if held.is_some() && joined.is_none() {
            anywhere
        } else {
            count - (last.end - last.start)
        };
        held = Some(last);
    }
    Err(host.error(IssueError::Interleaved { count }))
}

/// Consecutive positions. Those from `borrowed_from` on belong to ticks that the clock
/// had not reached.
#[derive(Clone, Copy)]
struct BlockRange {
    start: u64,
    end: u64,
    borrowed_from: u64,
}

impl BlockRange {
    /// Joins these positions with later ones, if the later ones continue them.
    fn joined(self, later: Self) -> Option<Self> {
        let mine = (self.borrowed_from < self.end).then_some(self.borrowed_from);
        (self.end == later.start).then_some(Self {
            start: self.start,
            end: later.end,
            borrowed_from: mine.unwrap_or(later.borrowed_from),
        })
    }

    /// The first `count` positions that lie within one tick and one clock. `bits` is
    /// the width of their sequence numbers.
    fn block(self, count: u64, bits: u32) -> Option<Self> {
        let next_tick = ((self.start >> bits) + 1) << bits;
        let start = if self.start + count <= next_tick {
            self.start
        } else {
            next_tick
        };
        let end = start + count;
        (end <= self.end).then_some(Self { start, end, ..self })
    }

    /// The positions that another call might continue; none if their tick is exhausted.
    fn in_last_tick(self, bits: u32) -> Self {
        let start = self.start.max(self.end >> bits << bits);
        Self { start, ..self }
    }
}
