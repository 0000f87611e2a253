//! Random walks of the world of leases, steered by profiles: each has the events that
//! belong together. What the profile cannot promise, as the head of `lease/mod.rs` says,
//! is left out of it.
//!
//! Every walk ends in calm: the newest registry, and as many servers as the pool has
//! worker IDs, awake and in contact. Each of them issues within a lease, a hold and a few
//! seconds. `WALK_DEEPER=n` walks more; `cargo test lease_search -- --nocapture` counts.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss
)]

use super::explorer::{Random, deeper};
use super::lease::{Disk, Flight, How, Plan, SECOND, World};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Freeze,
    Wake,
    Crash,
    /// One crash each second.
    CrashLoop,
    Reboot,
    Stop,
    /// A release that arrives late, or never.
    StopLate,
    /// More than a lease and a hold.
    Long,
    /// A server's generator is advanced, by less than may be led.
    Lead,
    /// A server's clock is set, by less than may be led.
    ClockNear,
    /// By up to hours.
    ClockFar,
    /// By up to an hour, and only on.
    ClockOn,
    RegistryClock,
    Promote,
    PromoteTwice,
    /// What is lost is no grant, so the promise has no exception for clocks that are ahead.
    LoseRenewals,
    /// A takeover is lost.
    LoseTakeover,
    Snapshot,
    CloneOther,
    CloneSame,
    Backup,
    Restore,
    Revoke,
    /// The registry is out of reach for a while.
    Away,
    /// An administrator ends the grace period.
    EndGrace,
}

use Event::{
    Away, Backup, ClockFar, ClockNear, ClockOn, CloneOther, CloneSame, Crash, CrashLoop, EndGrace,
    Freeze, Lead, Long, LoseRenewals, LoseTakeover, Promote, PromoteTwice, Reboot, RegistryClock,
    Restore, Revoke, Snapshot, Stop, StopLate, Wake,
};

const PROFILES: [(&str, &[Event]); 12] = [
    (
        "promote",
        &[
            Freeze,
            Freeze,
            Promote,
            PromoteTwice,
            Wake,
            Lead,
            Crash,
            Long,
            Long,
        ],
    ),
    (
        "leads",
        &[ClockNear, Lead, Freeze, Promote, Wake, Crash, Long],
    ),
    (
        "slow",
        &[
            Freeze,
            Freeze,
            LoseTakeover,
            Promote,
            PromoteTwice,
            Wake,
            Crash,
            Long,
            Long,
            Stop,
        ],
    ),
    (
        "snapshots",
        &[Freeze, Snapshot, Wake, Long, Crash, Stop, StopLate],
    ),
    (
        "losses",
        &[
            Freeze, Snapshot, Promote, Wake, Long, Crash, Reboot, Stop, Lead, Away, Revoke,
            EndGrace,
        ],
    ),
    (
        "renewals",
        &[
            ClockOn,
            Freeze,
            Away,
            LoseRenewals,
            Wake,
            Crash,
            Stop,
            Long,
            Lead,
        ],
    ),
    (
        "clones",
        &[
            CloneOther, CloneSame, Crash, Freeze, Wake, Long, Stop, Revoke,
        ],
    ),
    (
        "backups",
        &[Backup, Restore, Stop, Crash, Long, Freeze, Wake],
    ),
    (
        "clocks",
        &[
            ClockNear,
            ClockFar,
            RegistryClock,
            Crash,
            Long,
            Freeze,
            Wake,
            Lead,
            Stop,
        ],
    ),
    (
        "crashes",
        &[Crash, CrashLoop, Reboot, Stop, StopLate, Long, Lead],
    ),
    (
        "away",
        &[
            Away, Crash, Freeze, Wake, Long, Stop, StopLate, Revoke, ClockFar,
        ],
    ),
    (
        "mixed",
        &[
            Freeze,
            Wake,
            Crash,
            Reboot,
            Stop,
            StopLate,
            Long,
            Lead,
            ClockFar,
            RegistryClock,
            CloneOther,
            CloneSame,
            Backup,
            Restore,
            Revoke,
            Away,
        ],
    ),
];

/// One walk.
struct Walk {
    world: World,
    random: Random,
    plan: Plan,
    /// How many of a hundred messages are lost, late or repeated.
    bad: i64,
    away: bool,
    /// How far clocks and leads went.
    furthest_clock: i64,
    /// Whether the registry has lost grants.
    lost: bool,
    /// All clocks differ, by less than a hold.
    are_near: bool,
}

/// How far a clock is off that is not wrong.
fn near(random: &mut Random, plan: Plan) -> i64 {
    random.pick(&[-15, -8, -3, 0, 3, 8, 15]) * plan.hold / 32
}

impl Walk {
    fn new(seed: u64, profile: &str, tell: bool) -> Self {
        // A third of the walks have leases that are longer than the patience.
        let is_long = seed % 3 == 2;
        let mut random = Random(seed.wrapping_mul(7919) ^ profile.len() as u64);
        let pool = random.pick(&[1, 1, 2]);
        let plan = Plan {
            pool,
            servers: random.pick(&[2, 3]),
            tick: random.pick(&[SECOND, SECOND, 4 * SECOND, 700]),
            ..if is_long {
                Plan::long()
            } else {
                Plan::default()
            }
        };
        let mut world = World::new(plan);
        if tell {
            world = world.tell();
        }
        world.keep_memory = random.percent(50);
        if profile == "slow" {
            for server in 0..plan.servers {
                world.servers[server].off = near(&mut random, plan);
            }
        }
        if random.percent(20) {
            world.servers[1].fixed = crate::id::WorkerId::new(0);
            world.crash(1, true);
        }
        world.say(|| format!("{plan:?}"));
        let bad = random.pick(&[0, 0, 15, 30]);
        Self {
            world,
            random,
            plan,
            bad,
            away: false,
            furthest_clock: 0,
            lost: false,
            are_near: profile == "slow",
        }
    }

    /// A request and its reply, which may be lost, late or repeated.
    fn contact(&mut self, server: usize) {
        let Some(request) = self.world.ask(server) else {
            return;
        };
        let (number, to) = (request.number, self.world.servers[server].registry);
        if self.away || self.random.percent(self.bad / 2) {
            if !self.away {
                let from = server;
                self.world
                    .flights
                    .push(Flight::Request { from, to, request });
            }
            self.world.give_up(server, number);
            return;
        }
        if self.random.percent(self.bad / 3) {
            let (from, request) = (server, request.clone());
            self.world
                .flights
                .push(Flight::Request { from, to, request });
        }
        let reply = self.world.answer(to, server, &request);
        if self.random.percent(self.bad / 2) {
            self.world.flights.push(Flight::Reply { to: server, reply });
            if self.random.percent(50) {
                self.world.give_up(server, number);
            }
            return;
        }
        self.world.hear(server, &reply);
        // The server may pause between the reply and its use.
        if !self.random.percent(self.bad) {
            self.world.publish(server);
        }
    }

    /// What is under way arrives, or does not.
    fn arrive(&mut self) {
        if self.world.flights.is_empty() || !self.random.percent(40) {
            return;
        }
        let which = self.random.below(self.world.flights.len() as i64) as usize;
        match self.world.flights.swap_remove(which) {
            Flight::Request { from, to, request } => {
                let reply = self.world.answer(to, from, &request);
                self.world.flights.push(Flight::Reply { to: from, reply });
            }
            Flight::Reply { to, reply } => {
                self.world.hear(to, &reply);
            }
        }
    }

    fn second(&mut self) {
        self.world.pass(self.plan.step);
        for server in 0..self.world.servers.len() {
            if self.random.percent(70) {
                self.contact(server);
            }
            match self.random.below(8) {
                0 => {
                    self.world.begin(server);
                }
                1 => {
                    self.world.finish(server);
                }
                2 => self.world.publish(server),
                3 => {}
                _ => {
                    self.world.issue(server);
                    self.contact(server);
                    self.world.issue(server);
                }
            }
            // What a reply that is lost for good would leave behind: a time-out.
            if self.random.percent(10) {
                let number = self.world.servers[server].node.latest_number();
                self.world.give_up(server, number);
            }
        }
        self.arrive();
        self.watch();
    }

    fn seconds(&mut self, count: i64) {
        for _ in 0..count {
            self.second();
        }
    }

    /// No lead runs away, at any time.
    fn watch(&mut self) {
        let offs = self.world.servers.iter().map(|server| server.off);
        let registries = self.world.registries.iter().map(|registry| registry.off);
        let off = offs.chain(registries).max().unwrap_or(0);
        self.furthest_clock = self.furthest_clock.max(off);
        let plan = self.plan;
        // A lead by advance, a lease, and what the model borrows and reserves. A loss
        // adds its margin.
        let mut allowed = self.furthest_clock + plan.max_ahead + 3 * plan.lease + 8 * SECOND;
        if self.lost {
            allowed += 2 * plan.lease + 2 * plan.hold + plan.max_ahead;
        }
        let lead = self.world.lead() * SECOND;
        if lead > allowed && self.world.twice.is_none() {
            self.world.twice = Some(format!("the lead runs away: {lead} > {allowed}"));
            self.world.say(|| format!("RUNS AWAY: {lead} > {allowed}"));
        }
    }

    fn lose(&mut self, how: How, most: i64) {
        self.lost = true;
        let changes = self.random.below(most) as usize;
        self.world.replace(changes, how);
        if self.are_near {
            self.world.newest().off = near(&mut self.random, self.plan);
        }
    }

    fn happen(&mut self, event: Event, backups: &mut [Option<i64>]) {
        let holders = (0..self.world.servers.len())
            .filter(|server| self.world.servers[*server].stamp().is_some())
            .collect::<Vec<_>>();
        let server = self.random.below(self.world.servers.len() as i64) as usize;
        let holder = if holders.is_empty() {
            server
        } else {
            self.random.pick(&holders)
        };
        let plan = self.plan;
        match event {
            Event::Freeze => self.world.freeze(holder),
            Event::Wake => self.world.wake(server),
            Event::Crash => {
                let starts = self.random.percent(80);
                self.world.crash(server, starts);
            }
            Event::CrashLoop => {
                for _ in 0..self.random.below(40) {
                    self.world.crash(holder, true);
                    self.second();
                }
            }
            Event::Reboot => self.world.reboot(server),
            Event::Stop => {
                if self.world.servers[server].awake() {
                    self.world.stop(server);
                    if self.random.percent(60) {
                        self.world.start(server);
                    }
                }
            }
            Event::StopLate => {
                let to = self.world.servers[server].registry;
                if let Some(request) = self.world.close(server) {
                    let from = server;
                    self.world
                        .flights
                        .push(Flight::Request { from, to, request });
                }
                if self.random.percent(60) {
                    self.world.start(server);
                }
            }
            Event::Long => {
                let more = self.random.below(6) * plan.step;
                self.seconds((plan.patience() + plan.hold + more) / plan.step);
            }
            Event::Lead => {
                let by = self.random.below(plan.max_ahead / SECOND) * SECOND;
                self.world.advance(holder, by);
            }
            Event::ClockNear => {
                let off = self.random.pick(&[-8, -3, 0, 3, 8]) * plan.step;
                self.world.servers[server].off = off;
                self.world.say(|| format!("server {server}: clock {off:+}"));
            }
            Event::ClockFar => {
                let off = self.random.pick(&[-7200, -50, -20, 0, 20, 50, 7200]) * SECOND;
                self.world.servers[server].off = off;
                self.world.say(|| format!("server {server}: clock {off:+}"));
            }
            Event::ClockOn => {
                let off = self.random.pick(&[50, 200, 3000]) * SECOND;
                let host = &mut self.world.servers[server];
                host.off = off.max(host.off);
                self.world.say(|| format!("server {server}: clock {off:+}"));
            }
            Event::RegistryClock => {
                let off = self.random.pick(&[-200_000, -50, -20, 0, 20, 50, 7200]) * SECOND;
                self.world.newest().off = off;
                self.world.say(|| format!("registry: clock {off:+}"));
            }
            Event::Promote => self.lose(How::Promotion, 8),
            Event::PromoteTwice => {
                self.lose(How::Promotion, 4);
                // Also after the grace period of the first one.
                let quiet = (plan.patience() + 2 * plan.hold) / plan.step;
                let between = self.random.below(25 + quiet);
                self.seconds(between);
                self.lose(How::Promotion, 4);
            }
            Event::LoseRenewals => {
                self.lost = true;
                let tokens = |disk: &Disk| {
                    let rows = disk.1.rows.values();
                    rows.map(|row| row.counter).collect::<Vec<_>>()
                };
                let newest = self.world.newest();
                let granted = tokens(&newest.disk);
                let since = newest.copies.iter().rev();
                let since = since.take_while(|copy| tokens(copy) == granted).count();
                let changes = self.random.below(since as i64 + 1) as usize;
                let how = self.random.pick(&[How::Promotion, How::Snapshot]);
                self.world.replace(changes, how);
            }
            Event::LoseTakeover => {
                self.world.freeze(holder);
                let (grants, mut left) = (self.world.grants, 25);
                while self.world.grants == grants && left > 0 {
                    self.second();
                    left -= 1;
                }
                self.lose(How::Promotion, 4);
                self.world.wake(holder);
            }
            Event::Snapshot => self.lose(How::Snapshot, 14),
            Event::CloneOther | Event::CloneSame => {
                if self.world.servers.len() < 4 {
                    self.world.clone_disk(server, event == Event::CloneSame);
                }
            }
            Event::Backup => backups[server] = Some(self.world.servers[server].mark),
            Event::Restore => {
                if let Some(mark) = backups[server] {
                    self.world.crash(server, true);
                    self.world.servers[server].mark = mark;
                }
            }
            Event::Revoke => {
                let now = self.world.now;
                let registry = self.world.newest();
                let input = registry.registry_input(now);
                let (state, table) = &mut registry.disk;
                let worker = crate::id::WorkerId::new(0).unwrap();
                super::lease_table::revoke(state, table, worker, &input);
                self.world.say(|| "worker 0 is revoked".to_string());
            }
            Event::EndGrace => {
                let now = self.world.now;
                let registry = self.world.newest();
                let input = registry.registry_input(now);
                registry.disk.0.end_grace(&input);
                self.world.say(|| "the grace period is ended".to_string());
            }
            Event::Away => {
                self.away = true;
                let time = self.random.below(30);
                self.seconds(time);
                self.away = false;
            }
        }
    }

    /// Some servers, awake, towards the newest registry: each of them must issue.
    fn calm(&mut self) -> Result<(), String> {
        let world = &mut self.world;
        world.flights.clear();
        let registry = world.registries.len() - 1;
        let plan = self.plan;
        let mut wait = plan.patience() + plan.hold;
        if self.lost && plan.lease > plan.patience() {
            // The rows rest that had a holder at the loss; for longer by what is lost, if it led.
            wait += 2 * plan.lease + 2 * plan.hold + plan.max_ahead;
        }
        let wait = wait / plan.step + 5;
        let mut live = (0..world.servers.len()).collect::<Vec<_>>();
        for origin in (1..live.len()).rev() {
            live.swap(origin, self.random.below(origin as i64 + 1) as usize);
        }
        // A fixed worker ID may be taken; then its server waits rightly.
        live.sort_by_key(|server| world.servers[*server].fixed.is_none());
        // Of the incarnations of one server, one gets a worker ID.
        let mut known = Vec::new();
        live.retain(|server| {
            let identity = world.servers[*server].identity;
            let is_new = !known.contains(&identity);
            known.push(identity);
            is_new
        });
        live.truncate(self.plan.pool as usize);
        if live.len() > 1 && world.servers[live[0]].fixed.is_some() {
            live.truncate(1);
        }
        for server in 0..world.servers.len() {
            world.servers[server].registry = registry;
            if live.contains(&server) {
                world.start(server);
                world.wake(server);
            } else {
                world.crash(server, false);
            }
        }
        world.say(|| format!("calm; live: {live:?}"));
        for server in &live {
            // Replies that are lost are not waited for.
            world.give_up(*server, world.servers[*server].node.latest_number());
        }
        let begin = world.now;
        self.bad = 0;
        let mut left = wait;
        let mut declared = false;
        while left > 0 {
            left -= 1;
            let world = &mut self.world;
            world.second();
            let issued = |server: &usize| world.servers[*server].issued_at > Some(begin);
            if live.iter().all(issued) {
                return Ok(());
            }
            let now = world.now;
            let newest = world.newest();
            if newest.disk.0.stopped.is_some() && !declared {
                let input = newest.registry_input(now);
                newest.disk.0.declare(&input);
                world.say(|| "an administrator declares".to_string());
                (left, declared) = (wait, true);
            }
        }
        let stuck = live
            .iter()
            .filter(|server| self.world.servers[**server].issued_at <= Some(begin));
        Err(format!("STUCK: {:?}", stuck.collect::<Vec<_>>()))
    }

    fn run(&mut self, events: &[Event]) -> Result<(), String> {
        let mut backups = vec![None; 8];
        let first = self.random.below(27) + 3;
        self.seconds(first);
        for _ in 0..self.random.below(11) + 3 {
            let event = self.random.pick(events);
            self.happen(event, &mut backups);
            for server in 0..self.world.servers.len() {
                if self.random.percent(30) {
                    self.world.start(server);
                }
            }
            let some = self.random.below(7) + 1;
            self.seconds(some);
            if let Some(twice) = &self.world.twice {
                return Err(twice.clone());
            }
        }
        self.calm()?;
        self.watch();
        self.world.twice.clone().map_or(Ok(()), Err)
    }
}

pub fn search(name: &str, runs: u64) {
    let (_, events) = PROFILES.iter().find(|profile| profile.0 == name).unwrap();
    let mut failed = Vec::new();
    let mut grants = 0;
    for seed in 0..runs {
        let mut walk = Walk::new(seed, name, false);
        let result = walk.run(events);
        grants += walk.world.grants;
        if let Err(why) = result {
            let mut walk = Walk::new(seed, name, true);
            let _ = walk.run(events);
            failed.push((walk.world.log.len(), seed, why, walk.world.log));
        }
    }
    println!(
        "{name}: {runs} runs, {grants} grants, {} failed",
        failed.len()
    );
    failed.sort();
    for (_, seed, why, _) in failed.iter().take(10) {
        println!("  seed {seed}: {why}");
    }
    if let Some((_, seed, why, log)) = failed.first() {
        let waits = |line: &&String| !line.contains("NoneFree") && !line.contains("Quiet");
        let log: Vec<_> = log.iter().filter(waits).cloned().collect();
        panic!("seed {seed}: {why}\n{}", log.join("\n"));
    }
}

pub fn runs() -> u64 {
    300 << (2 * deeper())
}

macro_rules! searches {
    ($($test:ident $name:literal;)*) => {
        $(#[test]
        fn $test() {
            search($name, runs());
        })*

        #[test]
        fn every_profile_is_searched() {
            assert_eq!([$($name),*], PROFILES.map(|profile| profile.0));
        }
    };
}

searches! {
    promote "promote";
    leads "leads";
    slow "slow";
    snapshots "snapshots";
    losses "losses";
    renewals "renewals";
    clones "clones";
    backups "backups";
    clocks "clocks";
    crashes "crashes";
    away "away";
    mixed "mixed";
}
