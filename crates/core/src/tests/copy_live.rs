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
            &bounds.spread,
        ];
        (
            self.word().position().get(),
            bounds.map(|field| field.load(Relaxed)),
            self.clock().parts(),
        )
    }

    /// Made from its fields, in the order of [`Self::parts`].
    pub fn from_parts((word, bounds, clock): (u64, [u64; 4], [i64; 4])) -> Self {
        let [reserved, generation, early, spread] = bounds.map(AtomicU64::new);
        let bounds = Bounds {
            reserved,
            generation,
            early,
            spread,
        };
        Self {
            word: Line(Word(AtomicU64::new(word))),
            limits: Line((bounds, Clock::from_parts(clock))),
        }
    }
}
