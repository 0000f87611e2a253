//! Measures what happens when many cores want IDs at once, with the real core of the
//! extension on this machine's cores, and models machines with more cores.
//!
//! Argument: nanoseconds between two IDs of a backend. The default, 150, is the cost
//! of a row that a statement returns (`make bench`: the empty call).
//!
//! The core does not reach the layout's limit: the question is how much the word can
//! bear. Retries are counted by looks at the clock, one per attempt.

mod contention_model;

use contention_model::{Costs, Design, Outcome, simulate};
use snowflake_core::id::{BootNanos, Millis, Position, UnixMillis, UnixNanos};
use snowflake_core::label::generator::Generator;
use snowflake_core::label::policy::Policy;
use snowflake_core::protocol::clock::Reading;
use snowflake_core::protocol::clock_seq::ClockSeqHistory;
use snowflake_core::protocol::cursor::{Clocks, Live, Step};
use snowflake_core::protocol::plan::{NewPlan, Plan};
use snowflake_core::protocol::tenure::{Generation, Tenure};
use std::cell::Cell;
use std::convert::Infallible;
use std::hint::{black_box, spin_loop};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

#[repr(C)]
struct Timespec {
    seconds: i64,
    nanos: i64,
}

unsafe extern "C" {
    fn clock_gettime(clock: i32, at: *mut Timespec) -> i32;
    fn sched_setaffinity(pid: i32, size: usize, mask: *const u64) -> i32;
}

const CLOCK_BOOTTIME: i32 = 7;

fn boot() -> BootNanos {
    let mut at = Timespec {
        seconds: 0,
        nanos: 0,
    };
    // SAFETY: a valid place for the result.
    unsafe { clock_gettime(CLOCK_BOOTTIME, &raw mut at) };
    BootNanos::new(at.seconds * 1_000_000_000 + at.nanos)
}

fn wall() -> UnixNanos {
    let wall = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("a clock after 1970");
    UnixNanos::new(i64::try_from(wall.as_nanos()).expect("a clock before 2262"))
}

/// The clocks of this machine, and how often the boot clock was read.
#[derive(Default)]
struct Counted(Cell<u64>);

impl Clocks for Counted {
    fn wall(&self) -> UnixNanos {
        wall()
    }

    fn boot(&self) -> BootNanos {
        self.0.set(self.0.get() + 1);
        boot()
    }

    fn read(&self) -> Reading {
        Reading {
            boot: boot(),
            wall: wall(),
        }
    }
}

/// Moves the calling thread to a core; if that is refused, the thread stays.
fn pin(core: usize) {
    let mask = 1u64 << (core % 64);
    // SAFETY: a valid mask of 8 bytes; 0 is the calling thread.
    unsafe { sched_setaffinity(0, 8, &raw const mask) };
}

/// Two lines: processors fetch pairs.
#[repr(align(128))]
struct Line<T>(T);

/// The default generator, except that it never waits for the clock: the question is
/// what the word can bear, not what the layout allows.
const GENERATOR: Generator = Generator {
    layout: Generator::DEFAULT.layout,
    policy: Policy {
        max_borrow_ticks: 1 << 39,
        ..Policy::DEFAULT
    },
};

/// The state that issuers use, with far more reserved than they take.
struct Shared(Live);

impl Shared {
    fn new() -> Self {
        let reading = Counted::default().read();
        let live = Live::new(reading);
        let far = Position::new(1 << 62);
        let plan = Plan {
            reading,
            mark: UnixMillis::new(i64::MAX),
            value: i64::MAX,
            clock_from: reading.wall,
            cursor_from: None,
            clock_history: ClockSeqHistory::FRESH,
            believes: false,
            leaves_gap: false,
            window: Millis::ZERO,
            forgiven: Millis::ZERO,
            least: None,
            before: Position::ZERO,
            tenure: Tenure::NONE,
            reserved: far,
            early: far,
            starts: true,
            lead: Millis::ZERO,
            switches: false,
        };
        let Ok(durable) = NewPlan::new(plan).write(|_| Ok::<_, Infallible>(()));
        assert!(durable.move_cursor(&GENERATOR, &live).publish(&live));
        Self(live)
    }

    fn tick(&self) -> i64 {
        GENERATOR
            .layout
            .tick_number(self.0.clock().now(boot()).millis())
    }
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// Nanoseconds for each of many rounds, in the quickest of some runs: a run in which
/// the core is taken away only lasts longer.
fn nanos_of(mut round: impl FnMut()) -> f64 {
    const ROUNDS: u32 = 200_000;
    let run = |_| {
        let start = Instant::now();
        for _ in 0..ROUNDS {
            round();
        }
        start.elapsed().as_secs_f64() * 1e9 / f64::from(ROUNDS)
    };
    (0..15).map(run).fold(f64::INFINITY, f64::min)
}

/// Work that uses no memory and no clock: `turns` dependent steps.
fn think(turns: u64) {
    let mut x = turns;
    for _ in 0..turns {
        x = black_box(x.rotate_left(5).wrapping_add(1));
    }
    black_box(x);
}

/// The time that a line takes from one core to another. Two threads hand a number
/// back and forth; each turn is a read of a line that the other has written and
/// a write of a line that the other has read: two transfers.
fn transfer_nanos() -> f64 {
    const TURNS: u64 = 100_000;
    let run = |_| {
        let line = Line(AtomicU64::new(0));
        let start = Instant::now();
        std::thread::scope(|scope| {
            for parity in 0..2 {
                let line = &line;
                scope.spawn(move || {
                    pin(parity);
                    for turn in (parity as u64..TURNS).step_by(2) {
                        while line.0.load(Ordering::Acquire) != turn {
                            spin_loop();
                        }
                        line.0.store(turn + 1, Ordering::Release);
                    }
                });
            }
        });
        start.elapsed().as_secs_f64() * 1e9 / TURNS as f64 / 2.0
    };
    // The quickest, as above.
    (0..9).map(run).fold(f64::INFINITY, f64::min)
}

/// The work of a measurement's threads for each ID: the core itself, or one of the
/// designs without the rest of the core. Returns the number of attempts.
trait Take: Sync {
    fn take(&self, last_end: &mut u64) -> u64;
}

/// The core.
struct Core(Shared);

impl Take for Core {
    fn take(&self, _: &mut u64) -> u64 {
        let clocks = Counted::default();
        let step = self
            .0
            .0
            .issue::<false>(&GENERATOR, Generation::NONE, 1, &clocks);
        assert!(matches!(black_box(step), Step::Issue { .. }));
        clocks.0.get()
    }
}

/// The designs of the model, bare: the clock, the word, nothing else.
struct Bare {
    design: Design,
    shared: Shared,
    word: Line<AtomicU64>,
}

impl Take for Bare {
    fn take(&self, last_end: &mut u64) -> u64 {
        let mut attempts = 0;
        let fresh = || {
            let tick = self.shared.tick().cast_unsigned();
            tick << 12 | tick % 64
        };
        let start = loop {
            attempts += 1;
            if self.design == Design::BlindAdd && *last_end > fresh() {
                break self.word.0.fetch_add(1, Ordering::AcqRel);
            }
            let word = self.word.0.load(Ordering::Acquire);
            let fresh = fresh();
            if self.design != Design::Swap && word > fresh {
                break self.word.0.fetch_add(1, Ordering::AcqRel);
            }
            let start = word.max(fresh);
            if self
                .word
                .0
                .compare_exchange(word, start + 1, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
            {
                break start;
            }
            spin_loop();
        };
        *last_end = start + 1;
        attempts
    }
}

/// IDs per second and retries per ID of so many threads.
fn measure(cores: usize, threads: usize, turns: u64, taker: &impl Take) -> Outcome {
    let barrier = Barrier::new(threads);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let run = |number: usize| {
            let (barrier, stop) = (&barrier, &stop);
            scope.spawn(move || {
                pin(number % cores);
                let (mut issued, mut attempts, mut last_end) = (0u64, 0, 0);
                barrier.wait();
                let start = Instant::now();
                while !stop.load(Ordering::Relaxed) {
                    attempts += taker.take(&mut last_end);
                    issued += 1;
                    think(turns);
                }
                (issued, attempts, start, Instant::now())
            })
        };
        let running: Vec<_> = (0..threads).map(run).collect();
        std::thread::sleep(Duration::from_millis(150));
        stop.store(true, Ordering::Relaxed);
        let results: Vec<_> = running
            .into_iter()
            .map(|thread| thread.join().expect("a thread that ends"))
            .collect();
        let issued: u64 = results.iter().map(|result| result.0).sum();
        let attempts: u64 = results.iter().map(|result| result.1).sum();
        let start = results
            .iter()
            .map(|result| result.2)
            .min()
            .expect("a thread");
        let end = results
            .iter()
            .map(|result| result.3)
            .max()
            .expect("a thread");
        Outcome {
            rate: issued as f64 / (end - start).as_secs_f64(),
            retries: attempts as f64 / issued as f64 - 1.0,
        }
    })
}

/// The model's figures for one core by itself, measured on a quiet machine of this
/// kind. So the model gives the same results on every machine.
const ELSEWHERE: Costs = Costs {
    transfer: 0.0,
    clock: 35.0,
    local: 10.0,
    think: 0.0,
    stay: 0.0,
};

const DESIGNS: [Design; 3] = [Design::Swap, Design::LoadAdd, Design::BlindAdd];

fn main() {
    let think_nanos: f64 = std::env::args()
        .nth(1)
        .map_or(150.0, |text| text.parse().expect("nanoseconds"));
    // Asked before pinning: a pinned thread is told of its one core.
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    pin(0);
    let shared = Shared::new();
    let word = AtomicU64::new(0);
    let clock = nanos_of(|| {
        black_box(shared.tick());
    });
    let raw_clock = nanos_of(|| {
        let _ = black_box(boot());
    });
    let add = nanos_of(|| {
        black_box(word.fetch_add(1, Ordering::AcqRel));
    });
    let swap = nanos_of(|| {
        let old = word.load(Ordering::Acquire);
        black_box(
            word.compare_exchange(old, old + 1, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok(),
        );
    });
    let turn = nanos_of(|| think(1000)) / 1000.0;
    let turns = (think_nanos / turn) as u64;
    let transfer = transfer_nanos();
    println!("One core and two, nanoseconds");
    for (what, nanos) in [
        ("clock_gettime(BOOTTIME)", raw_clock),
        ("the generator's clock, with it", clock),
        ("fetch-and-add, nobody else", add),
        ("load + compare-and-swap, nobody else", swap),
        ("a line from one core to the other", transfer),
    ] {
        println!("  {what:<38} {nanos:7.1}");
    }

    println!("\nMeasured: pinned threads (million IDs per second; retries per ID)");
    println!(
        "                       the core              load, swap            load, add             add"
    );
    let mut two = Vec::new();
    for turns in [0, turns] {
        println!("  {:.0} ns between IDs", turns as f64 * turn);
        let mut of_two = Vec::new();
        for threads in [1, 2, 4, 8, 32] {
            let mut outcomes: [Vec<Outcome>; 4] = Default::default();
            for round in 0..9 {
                // Another thread comes first each time.
                for contestant in (0..4).map(|number| (number + round) % 4) {
                    let bare = |design| Bare {
                        design,
                        shared: Shared::new(),
                        word: Line(AtomicU64::new(0)),
                    };
                    outcomes[contestant].push(match contestant {
                        0 => measure(cores, threads, turns, &Core(Shared::new())),
                        1 => measure(cores, threads, turns, &bare(Design::Swap)),
                        2 => measure(cores, threads, turns, &bare(Design::LoadAdd)),
                        _ => measure(cores, threads, turns, &bare(Design::BlindAdd)),
                    });
                }
            }
            print!("  {threads:>3} threads  ");
            for (contestant, runs) in outcomes.iter().enumerate() {
                let rate = median(runs.iter().map(|run| run.rate).collect());
                let retries = median(runs.iter().map(|run| run.retries).collect());
                print!("   {:>8.2} {:>8.3}    ", rate / 1e6, retries);
                if threads == 2 && contestant > 0 {
                    of_two.push(rate);
                }
            }
            println!();
        }
        two.push(of_two);
    }
    println!();

    println!("Model: {think_nanos:.0} ns between IDs (million IDs per second; retries per ID)");
    for (transfer, stay) in [(100.0, 0.0), (200.0, 0.0), (100.0, 0.5), (200.0, 0.5)] {
        let leaves = if stay == 0.0 {
            "leaves when the operation is done"
        } else {
            "stays for half of the next handover"
        };
        println!("  a line takes {transfer:.0} ns, and {leaves}");
        println!("                          load, swap            load, add             add");
        for backends in [1, 2, 4, 8, 16, 32, 64, 128] {
            print!("  {backends:>3} backends  ");
            for design in DESIGNS {
                let costs = Costs {
                    transfer,
                    stay,
                    think: think_nanos,
                    ..ELSEWHERE
                };
                let out = simulate(design, backends, costs);
                print!("   {:>8.2} {:>8.3}    ", out.rate / 1e6, out.retries);
            }
            println!();
        }
    }

    println!(
        "\nModel against measurement, with the transfer time of this machine (million IDs per second, model / measured)"
    );
    for (think, measured) in [(0.0, &two[0]), (think_nanos, &two[1])] {
        print!("  2 backends, {think:>3.0} ns between IDs  ");
        for (design, measured) in DESIGNS.into_iter().zip(measured) {
            let costs = Costs {
                transfer,
                clock,
                local: add,
                think,
                stay: 0.0,
            };
            print!(
                "   {:.2} / {:.2}",
                simulate(design, 2, costs).rate / 1e6,
                measured / 1e6
            );
        }
        println!();
    }
}
