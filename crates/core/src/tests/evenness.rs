//! `sequence_start`: whether the sequence numbers of fresh ticks spread evenly, at a
//! rate so low that nearly every ID is the first of its tick; and whether those of
//! `random` reveal anything. Seeds are fixed: a test that passes once passes always.

use std::collections::HashSet;

use super::explorer::Random;
use super::scripted::{MS, ScriptError, Server};
use crate::id::SnowflakeId;
use crate::id::shuffle::Shuffle;
use crate::protocol::host::IssueError;

/// The upper 0.1 % points of chi squared with `classes - 1` degrees of freedom, as
/// in the NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.4.
fn critical(classes: u64) -> f64 {
    match classes {
        2 => 10.828,
        3 => 13.816,
        4 => 16.266,
        5 => 18.467,
        7 => 22.458,
        8 => 24.322,
        10 => 27.877,
        12 => 31.264,
        16 => 37.697,
        32 => 61.098,
        64 => 103.442,
        100 => 148.230,
        _ => panic!("{classes} classes"),
    }
}

/// The two-sided 0.1 % point of the standard normal distribution.
const NORMAL: f64 = 3.2905;

/// Chi squared of values of this many equally likely classes.
fn chi_squared(values: impl Iterator<Item = u64>, classes: u64) -> f64 {
    let mut counts = vec![0.0; usize::try_from(classes).unwrap()];
    for value in values {
        counts[usize::try_from(value).unwrap()] += 1.0;
    }
    let expected = counts.iter().sum::<f64>() / counts.len() as f64;
    let squares = counts.iter().map(|count| (count - expected).powi(2));
    squares.sum::<f64>() / expected
}

fn is_even(values: impl Iterator<Item = u64>, classes: u64) -> bool {
    chi_squared(values, classes) < critical(classes)
}

/// The correlation of a list with itself, shifted by `lag`.
fn correlation(values: &[f64], lag: usize) -> f64 {
    between(&values[..values.len() - lag], &values[lag..])
}

/// Pearson's coefficient of correlation.
fn between(a: &[f64], b: &[f64]) -> f64 {
    let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len() as f64;
    let (mean_a, mean_b) = (mean(a), mean(b));
    let sum = |f: &dyn Fn(f64, f64) -> f64| -> f64 {
        let pairs = a.iter().zip(b);
        pairs.map(|(a, b)| f(a - mean_a, b - mean_b)).sum()
    };
    sum(&|a, b| a * b) / (sum(&|a, _| a * a) * sum(&|_, b| b * b)).sqrt()
}

/// The default generator with another start.
fn server(start: &str, secret: (u64, u64)) -> Server {
    let label = format!("preset=default sequence_start='{start}'");
    Server::new(&label, 5, secret, 60_000_000_123)
}

/// One ID in each second of an hour, in a varying millisecond of the second.
fn an_hour(server: &mut Server, random: &mut Random) -> Vec<u64> {
    let mut at = 0;
    (0..3600)
        .map(|second| {
            let next = second * 1000 + (random.next() % 1000).cast_signed();
            server.pass((next - at) * MS);
            at = next;
            id(server)
        })
        .collect()
}

/// One ID every 1000 ms, as a timer asks for them.
fn an_hour_by_a_timer(server: &mut Server) -> Vec<u64> {
    (0..3600)
        .map(|_| {
            server.pass(1000 * MS);
            id(server)
        })
        .collect()
}

/// One ID in each of `ticks` ticks; returns their sequence numbers.
fn starts(server: &mut Server, ticks: usize) -> Vec<u64> {
    (0..ticks)
        .map(|_| {
            server.pass(MS);
            id(server) % 4096
        })
        .collect()
}

fn id(server: &mut Server) -> u64 {
    let ids = server.issue(1).unwrap();
    ids[0].get().cast_unsigned()
}

fn modulo(ids: &[u64], by: u64) -> impl Iterator<Item = u64> {
    ids.iter().map(move |id| id % by)
}

fn distinct(values: impl Iterator<Item = u64>) -> usize {
    values.collect::<HashSet<_>>().len()
}

#[test]
fn random_is_even_whatever_ids_are_divided_by() {
    let mut random = Random(1);
    for _ in 0..8 {
        let mut server = server("random", random.secret());
        let ids = an_hour(&mut server, &mut random);
        for by in [2, 4, 8, 16, 32, 64, 3, 5, 7, 10, 12, 100] {
            let chi = chi_squared(modulo(&ids, by), by);
            assert!(chi < critical(by), "id % {by}: {chi}");
        }
        // The high bits of the sequence number as well as the low ones.
        let high = ids.iter().map(|id| id >> 6 & 63);
        assert!(is_even(high, 64));
    }
    // The same where the wall clock is read for each ID.
    let label = "preset=random_start epoch='2025-01-01 00:00:00+00'";
    let mut server = Server::new(label, 5, random.secret(), 1 << 40);
    let ids = an_hour(&mut server, &mut random);
    for by in [2, 4, 8, 16, 32, 64] {
        assert!(is_even(modulo(&ids, by), by), "id % {by}");
    }
}

#[test]
fn vibrate_is_even_by_its_power_of_two() {
    let mut random = Random(2);
    for last in [1, 3, 7, 63] {
        let mut server = server(&format!("vibrate {last}"), (0, 0));
        let ids = an_hour(&mut server, &mut random);
        let mut by = 2;
        while by <= last + 1 {
            let chi = chi_squared(modulo(&ids, by), by);
            assert!(chi < critical(by), "vibrate {last}: id % {by}: {chi}");
            by *= 2;
        }
        // It is uneven by no more than that: half of the remainders do not come up.
        let ours = usize::try_from(last).unwrap() + 1;
        assert_eq!(distinct(modulo(&ids, 2 * (last + 1))), ours);
    }
}

/// The time above the sequence numbers also changes remainders, except by powers of two.
/// With these numbers, the two together are even; an odd divisor needs none of them.
#[test]
fn vibrate_63_is_even_by_all_that_it_has_the_powers_of_two_of() {
    let mut random = Random(3);
    for (start, divisors) in [
        ("vibrate 63", &[3, 5, 7, 10, 12, 100][..]),
        ("zero", &[3, 5, 7]),
    ] {
        let mut server = server(start, (0, 0));
        let ids = an_hour(&mut server, &mut random);
        for &by in divisors {
            let chi = chi_squared(modulo(&ids, by), by);
            assert!(chi < critical(by), "{start}: id % {by}: {chi}");
        }
    }
}

/// By `N + 1` that is no power of two, the numbers are even, and IDs need not be: in
/// this layout the time has 22 bits below it, and 2^22 is 4 modulo 10 and modulo 100.
/// An ID is 4 times its tick, plus its tick, plus the worker: every fifth remainder.
#[test]
fn vibrate_by_another_number_evens_numbers_and_not_ids() {
    let mut random = Random(4);
    for last in [9, 99] {
        let mut server = server(&format!("vibrate {last}"), (0, 0));
        let ids = an_hour(&mut server, &mut random);
        let by = last + 1;
        let numbers = ids.iter().map(|id| id % 4096 % by);
        assert!(is_even(numbers, by), "vibrate {last}");
        assert!(!is_even(modulo(&ids, by), by), "vibrate {last}");
        let remainders = usize::try_from(by / 5).unwrap();
        assert_eq!(distinct(modulo(&ids, by)), remainders);
    }
}

#[test]
fn zero_is_not_even() {
    let mut server = server("zero", (0, 0));
    let ids = an_hour(&mut server, &mut Random(5));
    for by in [2, 4, 8, 16, 32, 64] {
        assert!(!is_even(modulo(&ids, by), by), "id % {by}");
        assert_eq!(distinct(modulo(&ids, by)), 1);
    }
}

/// The starts that `vibrate` gives to ticks are not random: calls that come with a
/// timer meet few of them. 1000 is 8 times an odd number, so that a tick is always the
/// same modulo 8, and one of 8 values modulo 64. Only `random` helps there.
#[test]
fn a_timer_finds_few_starts() {
    let mut server = self::server("vibrate 63", (0, 0));
    let ids = an_hour_by_a_timer(&mut server);
    assert_eq!(distinct(modulo(&ids, 64)), 8);
    assert_eq!(distinct(modulo(&ids, 8)), 1);

    let mut server = self::server("random", Random(6).secret());
    let ids = an_hour_by_a_timer(&mut server);
    for by in [2, 4, 8, 16, 32, 64] {
        assert!(is_even(modulo(&ids, by), by), "id % {by}");
    }
}

#[test]
fn random_uses_each_number_of_a_tick_once() {
    let label = "preset=random_start epoch='2025-01-01 00:00:00+00'";
    let mut random = Random(7);
    let mut server = Server::new(label, 5, random.secret(), 1 << 40);
    let mut orders = vec![];
    for _ in 0..3 {
        server.pass(MS);
        let order: Vec<_> = (0..4096).map(|_| id(&mut server)).collect();
        assert_eq!(distinct(order.iter().copied()), 4096);
        assert_eq!(distinct(order.iter().map(|id| id >> 12)), 1);
        let refused = server.issue(1).unwrap_err();
        assert!(matches!(
            refused,
            ScriptError::Why(IssueError::TickUsedUp { .. })
        ));
        orders.push(order.iter().map(|id| id % 4096).collect::<Vec<_>>());
    }
    assert!(orders[0] != orders[1] && orders[1] != orders[2]);
    // A batch takes the same sequence numbers.
    server.pass(MS);
    let ids = server.issue(4096).unwrap();
    let numbers = ids.iter().map(|id: &SnowflakeId| id.get().cast_unsigned());
    assert_eq!(distinct(numbers), 4096);
}

/// Without the key, starts cannot be predicted from earlier ones: that is a property of
/// SipHash, and no test can show it. This test would see a start that depends on the
/// last one, on the tick or on the clock in a simple way.
#[test]
fn starts_do_not_tell_the_next_one() {
    const TICKS: usize = 20_000;
    let limit = NORMAL / (TICKS as f64).sqrt();
    let numbers = |starts: &[u64]| starts.iter().map(|it| *it as f64).collect::<Vec<_>>();
    let mut random = Random(8);
    for _ in 0..4 {
        let secret = random.secret();
        let starts = starts(&mut server("random", secret), TICKS);
        for lag in 1..=8 {
            let r = correlation(&numbers(&starts), lag);
            assert!(r.abs() < limit, "lag {lag}: {r}");
        }
        // A correlation does not show everything: it would not show constant steps.
        let steps = || starts.windows(2).map(|it| it[1].wrapping_sub(it[0]) & 4095);
        assert!(is_even(steps().map(|step| step & 63), 64));
        assert!(is_even(steps().map(|step| step >> 6), 64));

        // The clocks of a tick, and what lies between its first two IDs.
        let shuffle = Shuffle::new(secret, 1);
        let number = |tick, clock, nth| shuffle.number(tick, clock, nth) & 4095;
        let ticks = 0..TICKS as u64;
        let of_clock = |clock| {
            let starts = ticks.clone().map(|tick| number(tick, clock, 0));
            numbers(&starts.collect::<Vec<_>>())
        };
        let r = between(&of_clock(0), &of_clock(1));
        assert!(r.abs() < limit, "two clocks: {r}");
        let between = || {
            let ticks = ticks.clone();
            ticks.map(|tick| number(tick, 0, 1).wrapping_sub(number(tick, 0, 0)) & 4095)
        };
        assert!(between().all(|step| step % 2 == 1));
        assert!(is_even(between().map(|step| step >> 1 & 63), 64));
        assert!(is_even(between().map(|step| step >> 6), 64));
    }
    // The test can fail: here the starts go round.
    let starts = starts(&mut server("vibrate 63", (0, 0)), TICKS);
    assert!(correlation(&numbers(&starts), 1) > limit);
    let steps = starts.windows(2).map(|it| it[1].wrapping_sub(it[0]) & 63);
    assert!(!is_even(steps, 64));
}
