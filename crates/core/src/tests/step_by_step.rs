//! A reservation that a test takes apart, to look at what others do in between.

use super::*;

#[derive(Clone, Copy)]
pub enum UnderWay {
    Planned(NewPlan),
    Durable(DurablePlan),
    Moved(MovedPlan),
}

impl UnderWay {
    /// How far the reservation has come, and the plan that it carries out.
    pub fn parts(&self) -> (u8, &Plan) {
        match self {
            Self::Planned(planned) => (0, planned.plan()),
            Self::Durable(durable) => (1, durable.plan()),
            Self::Moved(moved) => (2, moved.plan()),
        }
    }

    /// Begins a reservation; `None` if it is not needed.
    pub fn begin<H: Host>(
        host: &H,
        need: Need,
    ) -> Result<Result<Option<Self>, ReserveError>, H::Error> {
        let begun = reserving(host, |reserver| reserver.prepare(need));
        begun.map(|begun| begun.map(|planned| planned.map(Self::Planned)))
    }

    /// The next step of the reservation; `None` after the last one.
    pub fn go_on<H: Host>(self, host: &H) -> Result<Option<Self>, H::Error> {
        reserving(host, |reserver| {
            Ok(match self {
                Self::Planned(planned) => Some(Self::Durable(reserver.write(planned)?)),
                Self::Durable(durable) => Some(Self::Moved(reserver.move_cursor(durable))),
                Self::Moved(moved) => {
                    reserver.publish(moved);
                    None
                }
            })
        })
    }
}

/// What a reserver would find.
pub fn situation<H: Host>(
    host: &H,
    need: Need,
    on_disk: OnDisk,
    trusted: &TrustedClock,
    tenure: Tenure,
) -> Result<PlanInput, ReserveError> {
    let found = Survey {
        on_disk,
        trusted,
        tenure,
        reading: host.read(),
        rollback: None,
    };
    reserving(host, |reserver| reserver.situation(need, &found))
}

fn reserving<H: Host, T>(host: &H, f: impl FnOnce(&Reserver<H>) -> T) -> T {
    let (slot, generator) = host.entered().unwrap();
    host.reserving(|token| {
        f(&Reserver {
            host,
            slot,
            generator,
            token,
        })
    })
}
