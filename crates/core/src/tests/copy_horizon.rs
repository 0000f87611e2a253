//! What a slot knows of horizons, copied for a model of a server.

use super::*;

impl Horizon {
    pub fn copy(&self) -> Self {
        Self {
            announced: AtomicI64::new(self.announced.load(Relaxed)),
            returned: AtomicI64::new(self.returned.load(Relaxed)),
        }
    }
}
