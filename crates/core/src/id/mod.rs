//! The kinds of numbers that everything else is made of: instants, durations, ticks,
//! positions, IDs. A number of one kind cannot be taken for another kind: nanoseconds
//! for milliseconds, an instant for a duration. A position of one clock sequence does not
//! compare with a position of another.
//!
//! All arithmetic saturates: the ends of `i64` are centuries away from any clock.

use serde::{Deserialize, Serialize};

pub mod layout; // which bit means what, and which instant a tick is
pub mod mask; // IDs that tell nothing without a key
pub mod shuffle; // a tick's sequence numbers in an unpredictable order
pub mod text; // IDs as text

pub const NANOS_PER_MILLI: i64 = 1_000_000;

/// Declares kinds of numbers: any value of the type inside is one.
macro_rules! kinds {
    ($($(#[$about:meta])* $name:ident($number:ty);)*) => {$(
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[must_use]
        pub struct $name($number);

        impl $name {
            pub const fn new(number: $number) -> Self {
                Self(number)
            }

            /// The bare number, in the unit of the type.
            pub const fn get(self) -> $number {
                self.0
            }
        }
    )*};
}

kinds! {
    /// How long something takes, in milliseconds. Can be negative.
    #[derive(Default, PartialOrd, Ord, Serialize, Deserialize)]
    Millis(i64);
    /// How long something takes, in nanoseconds. Can be negative.
    #[derive(Default, PartialOrd, Ord)]
    Nanos(i64);
    /// A whole number of milliseconds since 1970-01-01 00:00:00 UTC.
    #[derive(PartialOrd, Ord, Serialize, Deserialize)]
    UnixMillis(i64);
    /// Nanoseconds since 1970-01-01 00:00:00 UTC by some clock; until 2262.
    #[derive(PartialOrd, Ord)]
    UnixNanos(i64);
    /// Nanoseconds since the machine was booted, suspended time included.
    #[derive(PartialOrd, Ord, Serialize, Deserialize)]
    BootNanos(i64);
    /// A number of ticks since the epoch of a layout. Never negative; the code that
    /// uses a tick checks whether the layout holds it.
    #[derive(PartialOrd, Ord)]
    Tick(u64);
    /// What a generator counts, in its stored form: see [`crate::id::layout`]. Positions of
    /// different clock sequences have no order, so this type has none;
    /// [`crate::id::layout::Layout::offset`] gives what can be compared.
    Position(u64);
    /// A position without its clock sequence, in its stored form.
    #[derive(PartialOrd, Ord)]
    Offset(u64);
    /// The bits that all IDs issued by a server share, in their stored form: see
    /// [`crate::id::layout::Layout::stamp`].
    Stamp(u64);
    /// A 64-bit ID as PostgreSQL's `bigint` holds it; decoding checks whether a layout
    /// can have made it.
    #[derive(PartialOrd, Ord)]
    SnowflakeId(i64);
}

/// The identity of one server in its cluster: 0 to 2^31 - 1 here, and at most
/// what the worker field of a [`crate::id::layout::Layout`] holds when it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "i32", into = "u32")]
pub struct WorkerId(u32);

impl TryFrom<i32> for WorkerId {
    type Error = &'static str;

    fn try_from(id: i32) -> Result<Self, Self::Error> {
        Self::new(id).ok_or("a worker ID is not negative")
    }
}

impl From<WorkerId> for u32 {
    fn from(worker: WorkerId) -> Self {
        worker.get()
    }
}

impl WorkerId {
    /// For layouts that have no worker ID.
    pub const NONE: Self = Self(0);

    /// `None` if negative: -1 is how a setting says "not set".
    pub fn new(id: i32) -> Option<Self> {
        u32::try_from(id).ok().map(Self)
    }

    pub const fn get(self) -> u32 {
        self.0
    }
}

/// Durations, and the instants between which they lie.
macro_rules! durations {
    ($($duration:ident between $($instant:ident),+;)*) => {$(
        impl $duration {
            pub const ZERO: Self = Self(0);

            pub const fn plus(self, other: Self) -> Self {
                Self(self.0.saturating_add(other.0))
            }
        }

        $(impl $instant {
            /// How far this is after `earlier`; negative if it is before.
            pub const fn since(self, earlier: Self) -> $duration {
                $duration(self.0.saturating_sub(earlier.0))
            }
        })+
    )*};
}

durations! {
    Millis between UnixMillis;
    Nanos between UnixNanos, BootNanos;
}

impl Millis {
    /// The same time in nanoseconds; at most 292 years.
    pub const fn nanos(self) -> Nanos {
        Nanos(self.0.saturating_mul(NANOS_PER_MILLI))
    }

    pub const fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    pub const fn times(self, count: i64) -> Self {
        Self(self.0.saturating_mul(count))
    }

    /// Half of this time, rounded towards zero.
    pub const fn half(self) -> Self {
        Self(self.0 / 2)
    }

    pub const fn abs(self) -> Self {
        Self(self.0.saturating_abs())
    }
}

impl Nanos {
    /// Whole milliseconds, rounded towards zero.
    pub const fn millis(self) -> Millis {
        Millis(self.0 / NANOS_PER_MILLI)
    }
}

impl UnixMillis {
    /// The beginning of this millisecond; past 2262 the latest instant there is.
    pub const fn nanos(self) -> UnixNanos {
        UnixNanos(self.0.saturating_mul(NANOS_PER_MILLI))
    }

    pub const fn plus(self, millis: Millis) -> Self {
        Self(self.0.saturating_add(millis.0))
    }
}

impl UnixNanos {
    /// The millisecond that holds this instant.
    pub const fn millis(self) -> UnixMillis {
        UnixMillis(self.0.div_euclid(NANOS_PER_MILLI))
    }
}

impl BootNanos {
    /// Half of this number, rounded down.
    pub const fn half(self) -> i64 {
        self.0 >> 1
    }
}

impl Stamp {
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl Tick {
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl Position {
    /// The least position. As a bound: nothing may be issued.
    pub const ZERO: Self = Self(0);
}
