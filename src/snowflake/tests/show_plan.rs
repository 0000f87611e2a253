//! A plan that is being carried out, for a test to look at.

use super::{Durable, Plan, Planned};

macro_rules! plan {
    ($($phase:ident)*) => {$(
        impl $phase {
            pub const fn plan(&self) -> &Plan {
                &self.0
            }
        }
    )*};
}

plan!(Planned Durable);
