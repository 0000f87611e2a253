//! A clock taken apart, to copy a model of a server.

use super::*;

impl Clock {
    /// All fields, to copy a model of a server.
    pub fn parts(&self) -> [i64; 4] {
        [&self.offset, &self.line, &self.latest, &self.counted].map(|field| field.load(Relaxed))
    }

    /// Made from its fields, in the order of [`Self::parts`].
    pub fn from_parts(parts: [i64; 4]) -> Self {
        let [offset, line, latest, counted] = parts.map(AtomicI64::new);
        Self {
            offset,
            line,
            latest,
            counted,
        }
    }
}
