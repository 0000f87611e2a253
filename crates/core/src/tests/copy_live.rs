//! Live state taken apart, to copy a model of a server.

use super::*;

impl Live {
    /// All fields, to copy a model of a server.
    pub fn parts(&self) -> (u64, [u64; 4], [i64; 4]) {
        let bounds = self.bounds();
        let bounds = [
            &bounds.reserved,
            &bounds.generation,
            &bounds.early,
            &bounds.clock_seq_span,
        ];
        (
            self.cursor().position().get(),
            bounds.map(|field| field.load(Relaxed)),
            self.clock().parts(),
        )
    }

    /// Made from its fields, in the order of [`Self::parts`].
    pub fn from_parts((cursor, bounds, clock): (u64, [u64; 4], [i64; 4])) -> Self {
        let [reserved, generation, early, clock_seq_span] = bounds.map(AtomicU64::new);
        let bounds = Bounds {
            reserved,
            generation,
            early,
            clock_seq_span,
        };
        Self {
            cursor: CacheLine(Cursor(AtomicU64::new(cursor))),
            limits: CacheLine((bounds, Clock::from_parts(clock))),
        }
    }
}
