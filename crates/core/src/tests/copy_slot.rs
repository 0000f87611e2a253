//! Slots taken apart, to copy and compare models of a server.

use super::*;

impl Slot {
    /// A copy of a slot that nobody uses, for a model of a server.
    pub fn copy(&self) -> Self {
        let rest = &self.rest;
        let copy = |raw: &AtomicI64| AtomicI64::new(raw.load(Relaxed));
        let flag = |raw: &AtomicBool| AtomicBool::new(raw.load(Relaxed));
        let [boot, wall] = &rest.seen;
        Self {
            live: Live::from_parts(self.live.parts()),
            rest: SlotFields {
                key: AtomicU64::new(rest.key.load(Relaxed)),
                pins: AtomicU32::new(rest.pins.load(Relaxed)),
                file: AtomicU32::new(rest.file.load(Relaxed)),
                epoch: copy(&rest.epoch),
                scale: AtomicU64::new(rest.scale.load(Relaxed)),
                window: copy(&rest.window),
                seen: [copy(boot), copy(wall)],
                highest: copy(&rest.highest),
                gap_at: copy(&rest.gap_at),
                refused_at: copy(&rest.refused_at),
                refused_lead: copy(&rest.refused_lead),
                forgiven_lead: copy(&rest.forgiven_lead),
                clock_history: self.clock_history().parts().map(AtomicU64::new),
                undone: flag(&rest.undone),
                end_is_near: flag(&rest.end_is_near),
                refused_by_rollback: flag(&rest.refused_by_rollback),
            },
            stats: CacheLine((
                Stats::new(0),
                HighWater(copy(&self.stats.0.1.0)),
                Least(copy(&self.stats.0.2.0)),
            )),
            horizon: CacheLine((self.horizon().copy(), PutBack(copy(&self.horizon.0.1.0)))),
        }
    }

    /// All fields that decide what the slot does, without those only shown or noted.
    pub fn parts(&self) -> impl std::hash::Hash + use<> {
        let rest = &self.rest;
        let (cursor, bounds, [offset, line, latest, _]) = self.live.parts();
        let numbers = [
            &rest.epoch,
            &rest.window,
            &rest.highest,
            &rest.gap_at,
            &self.horizon.0.1.0,
            &rest.refused_lead,
            &rest.forgiven_lead,
        ];
        (
            (cursor, bounds, [offset, line, latest]),
            numbers.map(|raw| raw.load(Relaxed)),
            (rest.scale.load(Relaxed), self.stats.0.1.0.load(Relaxed)),
            self.least(),
            rest.file.load(Relaxed),
            self.clock_history().parts(),
            (self.is_undone(), self.is_refused_by_rollback()),
        )
    }
}
