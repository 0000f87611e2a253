//! A model of many cores on one word: a cache line that is handed from core to
//! core, first come, first served.
//!
//! The model contains:
//!
//! - An operation on a line in the core's cache costs its time there only.
//!   Otherwise the core asks for the line and waits for its turn; a
//!   handover takes `transfer` nanoseconds, and there is one at a time.
//! - A load needs a shared copy, which leaves the line readable where it was.
//!   Copies of a line that nobody has changed are handed out side by side.
//! - A read-modify-write, also a compare-and-swap that fails, needs the line
//!   alone and takes it away from everybody.
//! - The core that gets the line does its operation at once, and keeps the line
//!   for the part `stay` of the next handover: the next request takes that long to
//!   reach it.
//! - Time passes in ticks of a millisecond, 4096 positions each; the numbers of
//!   a new tick start with the first core that sees the tick.
//!
//! The model leaves out that cores with a shared cache or socket are nearer to
//! each other, and that real processors hand out lines less fairly; both help the
//! loop of the compare-and-swap more than the addition. The model has no preemption.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// How a backend takes a sequence number. The core's way is `LoadAdd`; see
/// `crates/core/src/protocol/cursor.rs`. The others were compared with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Design {
    /// Load, clock, compare-and-swap; again if another backend was faster.
    Swap,
    /// Load, clock; where the word is past the start of the tick, fetch-and-add
    /// (which always succeeds), else compare-and-swap.
    LoadAdd,
    /// Clock; where the backend's own last number is past the start of the tick,
    /// the word is too: fetch-and-add without a load. Else as `LoadAdd`.
    BlindAdd,
}

/// Nanoseconds, but for `stay`.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// From core to core.
    pub transfer: f64,
    /// One look at the clock, with what is computed from it.
    pub clock: f64,
    /// A read-modify-write on a line that is there.
    pub local: f64,
    /// Between one ID and the next of a backend, on average.
    pub think: f64,
    /// Part of a handover for which the line stays usable where it was.
    pub stay: f64,
}

/// The result of a run.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// IDs per second.
    pub rate: f64,
    /// Attempts beyond the first, per ID.
    pub retries: f64,
}

const LOCAL_LOAD: f64 = 1.0;
const TICK_NANOS: f64 = 1e6;
const TICK_SIZE: u64 = 4096;
const WARM_UP_NANOS: f64 = 3e6;
const MEASURED_NANOS: f64 = 20e6;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Doing {
    Thinking,
    Loading,
    Reading { loaded: Option<u64> },
    Swapping { from: u64, to: u64 },
    Adding,
}

struct Core {
    doing: Doing,
    /// When the line is here for writing, and for reading: from, until.
    write: (f64, f64),
    read: (f64, f64),
    /// One past the last number of this backend.
    last_end: u64,
}

/// Times are ordered as integers: thousandths of a nanosecond.
fn key(at: f64) -> u64 {
    (at * 1000.0) as u64
}

struct Model {
    costs: Costs,
    cores: Vec<Core>,
    events: BinaryHeap<Reverse<(u64, u64, usize)>>,
    times: u64,
    word: u64,
    /// When the next handover can start.
    free_at: f64,
    /// The core, if any, that may write to the line without asking.
    owner: Option<usize>,
    random: u64,
}

impl Model {
    fn at(&mut self, at: f64, core: usize, doing: Doing) {
        self.cores[core].doing = doing;
        self.times += 1;
        self.events.push(Reverse((key(at), self.times, core)));
    }

    /// Between half and one and a half of `mean`, so that backends do not march in step.
    fn around(&mut self, mean: f64) -> f64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        mean * (0.5 + (self.random >> 11) as f64 / (1u64 << 53) as f64)
    }

    /// When a read of the line by `core`, wanted at `now`, is done.
    fn load_done(&mut self, now: f64, core: usize) -> f64 {
        let here = |(from, until): (f64, f64)| from <= now && now < until;
        if here(self.cores[core].read) || here(self.cores[core].write) {
            return now + LOCAL_LOAD;
        }
        let start = now.max(self.free_at);
        let done = start + self.costs.transfer;
        if let Some(owner) = self.owner.take() {
            // Stays readable there; the line is busy meanwhile.
            let left = start + self.costs.stay * self.costs.transfer;
            let owner = &mut self.cores[owner];
            owner.write.1 = owner.write.1.min(left);
            owner.read = (left, f64::INFINITY);
            self.free_at = done;
        }
        self.cores[core].read = (done, f64::INFINITY);
        done
    }

    /// The same for a read-modify-write.
    fn write_done(&mut self, now: f64, core: usize) -> f64 {
        let (from, until) = self.cores[core].write;
        if from <= now && now < until {
            return now + self.costs.local;
        }
        let start = now.max(self.free_at);
        let done = start + self.costs.transfer;
        let left = start + self.costs.stay * self.costs.transfer;
        for other in &mut self.cores {
            other.write.1 = other.write.1.min(left);
            other.read.1 = other.read.1.min(left);
        }
        self.free_at = done;
        self.owner = Some(core);
        self.cores[core].write = (done, f64::INFINITY);
        self.cores[core].read = (done, f64::INFINITY);
        // The next handover can start when the line has come; the operation
        // itself is done before the line leaves.
        done + self.costs.local
    }
}

/// `backends` of them for 20 milliseconds.
pub fn simulate(design: Design, backends: usize, costs: Costs) -> Outcome {
    let mut model = Model {
        costs,
        cores: (0..backends)
            .map(|_| Core {
                doing: Doing::Thinking,
                write: (f64::INFINITY, 0.0),
                read: (f64::INFINITY, 0.0),
                last_end: 0,
            })
            .collect(),
        events: BinaryHeap::new(),
        times: 0,
        word: 0,
        free_at: 0.0,
        owner: None,
        random: 0x9e37_79b9_7f4a_7c15,
    };
    for core in 0..backends {
        let at = model.around(costs.think + costs.clock);
        model.at(at, core, Doing::Thinking);
    }
    let (mut issued, mut attempts) = (0u64, 0u64);
    let end = WARM_UP_NANOS + MEASURED_NANOS;
    while let Some(Reverse((at, _, core))) = model.events.pop() {
        let now = at as f64 / 1000.0;
        if now > end {
            break;
        }
        let counts = now > WARM_UP_NANOS;
        let taken = |model: &mut Model, from: u64| {
            model.cores[core].last_end = from + 1;
            let pause = model.around(costs.think);
            model.at(now + pause, core, Doing::Thinking);
        };
        match model.cores[core].doing {
            Doing::Thinking => {
                attempts += u64::from(counts);
                if design == Design::BlindAdd {
                    model.at(now + costs.clock, core, Doing::Reading { loaded: None });
                } else {
                    let done = model.load_done(now, core);
                    model.at(done, core, Doing::Loading);
                }
            }
            Doing::Loading => {
                let loaded = Some(model.word);
                model.at(now + costs.clock, core, Doing::Reading { loaded });
            }
            Doing::Reading { loaded } => {
                let tick = (now / TICK_NANOS) as u64;
                let fresh = tick * TICK_SIZE + tick % 64;
                let known = loaded.unwrap_or(model.cores[core].last_end);
                if design != Design::Swap && known > fresh {
                    let done = model.write_done(now, core);
                    model.at(done, core, Doing::Adding);
                } else if let Some(from) = loaded {
                    let done = model.write_done(now, core);
                    let to = from.max(fresh);
                    model.at(done, core, Doing::Swapping { from, to });
                } else {
                    let done = model.load_done(now, core);
                    model.at(done, core, Doing::Loading);
                }
            }
            Doing::Swapping { from, to } => {
                if model.word == from {
                    model.word = to + 1;
                    issued += u64::from(counts);
                    taken(&mut model, to);
                } else {
                    attempts += u64::from(counts);
                    let done = model.load_done(now, core);
                    model.at(done, core, Doing::Loading);
                }
            }
            Doing::Adding => {
                let from = model.word;
                model.word += 1;
                issued += u64::from(counts);
                taken(&mut model, from);
            }
        }
    }
    Outcome {
        rate: issued as f64 * 1e9 / MEASURED_NANOS,
        retries: (attempts as f64 / issued.max(1) as f64 - 1.0).max(0.0),
    }
}
