//! A search through every order of some events, up to a stated number of events.
//!
//! The search is breadth-first: orders that lead to the same state continue as one, so that
//! walks can be long, and what fails is shown by one of the shortest orders that fail.
//! `cargo test walk -- --nocapture` prints how many states there were, and with
//! `WALK_DEEPER=n` most walks are n events longer.

// Numbers are small here, and a part of a hash is one.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss
)]

use std::collections::HashSet;
use std::fmt::{Debug, Write as _};
use std::hash::{BuildHasherDefault, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use siphasher::sip128::{Hasher128, SipHasher13};

/// What events do, and what must hold after each of them.
pub trait Rules: Clone {
    type State: Clone;
    type Event: Copy + Debug;

    /// False if the event cannot happen, or changes nothing. What must hold and does not is an
    /// error or a panic.
    fn step(&mut self, state: &mut Self::State, event: Self::Event) -> Result<bool, String>;

    /// All that decides what a state does and what must hold of it.
    fn hash(&self, state: &Self::State, into: &mut SipHasher13);

    /// A state in a line, for the walk that failed.
    fn line(&self, _state: &Self::State) -> String {
        String::new()
    }
}

pub struct Explorer<'a, E> {
    pub name: &'a str,
    /// The events before each walk.
    pub prelude: &'a [E],
    pub events: &'a [E],
    pub depth: usize,
    /// No further level is begun with more states than this in the last.
    pub budget: usize,
}

/// What a search has found.
pub struct Found<R: Rules> {
    pub states: usize,
    pub steps: usize,
    /// The states that the last event led to, each with the walk to it.
    pub edge: Vec<(R::State, Vec<R::Event>)>,
    pub rules: R,
}

/// States are hashes already.
#[derive(Default)]
struct AsIs(u64);

impl Hasher for AsIs {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {}
    fn write_u128(&mut self, hash: u128) {
        self.0 = hash as u64;
    }
}

/// How many events more than by default.
pub fn deeper() -> usize {
    std::env::var("WALK_DEEPER").map_or(0, |text| text.parse().unwrap())
}

/// These events, and more of them.
pub fn with<E: Copy>(events: &[E], more: &[E]) -> Vec<E> {
    [events, more].concat()
}

fn hash_of<R: Rules>(rules: &R, state: &R::State) -> u128 {
    let mut hasher = SipHasher13::new();
    rules.hash(state, &mut hasher);
    hasher.finish128().as_u128()
}

fn step<R: Rules>(rules: &mut R, state: &mut R::State, event: R::Event) -> Result<bool, String> {
    catch_unwind(AssertUnwindSafe(|| rules.step(state, event)))
        .unwrap_or_else(|_| Err("it panics, as said above".to_string()))
}

impl<E: Copy + Debug> Explorer<'_, E> {
    /// Every walk from this state.
    pub fn run<R: Rules<Event = E>>(&self, rules: &R, first: &R::State) -> Found<R> {
        let begun = Instant::now();
        let (start, mut rules, before) = (self.start(rules, first), rules.clone(), rules);
        let mut known: HashSet<u128, BuildHasherDefault<AsIs>> = HashSet::default();
        known.insert(hash_of(&rules, &start));
        // How each state was reached: from which state, and by which event.
        let mut ways: Vec<(usize, u8)> = vec![(0, 0)];
        let mut level = vec![(0, start)];
        let (mut steps, mut depth) = (0, 0);
        while depth < self.depth && level.len() <= self.budget && !level.is_empty() {
            let mut next = Vec::new();
            for (from, state) in &level {
                for (number, event) in self.events.iter().enumerate() {
                    let mut state = state.clone();
                    steps += 1;
                    match step(&mut rules, &mut state, *event) {
                        Ok(false) => continue,
                        Ok(true) => {}
                        Err(problem) => {
                            let mut way = self.way(&ways, *from);
                            way.push(*event);
                            self.fail(before, first, &way, &problem);
                        }
                    }
                    if known.insert(hash_of(&rules, &state)) {
                        ways.push((*from, u8::try_from(number).unwrap()));
                        next.push((ways.len() - 1, state));
                    }
                }
            }
            level = next;
            depth += 1;
        }
        println!(
            "{:64} {depth:2} events deep {:8} states {steps:9} steps {:5} ms",
            self.name,
            ways.len(),
            begun.elapsed().as_millis(),
        );
        let edge = level.into_iter();
        Found {
            states: ways.len(),
            steps,
            edge: edge
                .map(|(at, state)| (state, self.way(&ways, at)))
                .collect(),
            rules,
        }
    }

    /// `count` walks of `length` events, taken at random.
    pub fn at_random<R: Rules<Event = E>>(
        &self,
        rules: &R,
        first: &R::State,
        (count, length): (usize, usize),
        seed: u64,
    ) -> R {
        let (start, before) = (self.start(rules, first), rules);
        let (mut rules, mut random) = (rules.clone(), Random(seed));
        for _ in 0..count {
            let (mut state, mut way) = (start.clone(), vec![]);
            for _ in 0..length {
                way.push(random.pick(self.events));
                if let Err(problem) = step(&mut rules, &mut state, way[way.len() - 1]) {
                    self.fail(before, first, &way, &problem);
                }
            }
        }
        rules
    }

    /// The state after the prelude.
    fn start<R: Rules<Event = E>>(&self, rules: &R, first: &R::State) -> R::State {
        let (mut state, mut rules, before) = (first.clone(), rules.clone(), rules);
        for event in self.prelude {
            if let Err(problem) = step(&mut rules, &mut state, *event) {
                self.fail(before, first, &[], &problem);
            }
        }
        state
    }

    fn way(&self, ways: &[(usize, u8)], mut at: usize) -> Vec<E> {
        let mut way = vec![];
        while at != 0 {
            way.push(self.events[usize::from(ways[at].1)]);
            at = ways[at].0;
        }
        way.reverse();
        way
    }

    /// Prints the walk that failed, with the states that it comes through.
    pub fn fail<R>(&self, rules: &R, first: &R::State, way: &[E], problem: &str) -> !
    where
        R: Rules<Event = E>,
    {
        let (mut text, mut state, mut rules) = (String::new(), first.clone(), rules.clone());
        for event in self.prelude.iter().chain(way) {
            let _ = step(&mut rules, &mut state, *event);
            let _ = writeln!(text, "{event:?}:\n    {}", rules.line(&state));
        }
        panic!("{}\n{text}{problem}", self.name);
    }
}

/// Numbers at random, by splitmix64.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn secret(&mut self) -> (u64, u64) {
        (self.next(), self.next())
    }

    pub fn below(&mut self, most: i64) -> i64 {
        (self.next() % most.max(1) as u64) as i64
    }

    /// Whether, in so many of a hundred cases.
    pub fn percent(&mut self, of: i64) -> bool {
        self.below(100) < of
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as i64) as usize]
    }
}
