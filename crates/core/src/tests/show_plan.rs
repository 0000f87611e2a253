//! A plan that is being carried out, for a test to look at and to copy.

use super::{DurablePlan, MovedPlan, NewPlan, Plan};

macro_rules! copied {
    ($($phase:ident)*) => {$(
        impl Clone for $phase {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl Copy for $phase {}
    )*};
}

macro_rules! shown {
    ($($phase:ident)*) => {$(
        impl $phase {
            pub const fn plan(&self) -> &Plan {
                &self.0
            }
        }
    )*};
}

copied!(NewPlan DurablePlan MovedPlan);
shown!(NewPlan DurablePlan);
