//! A reservation that a test takes apart, to look at what others do in between.

use super::*;

#[derive(Clone, Copy)]
pub enum UnderWay {
    Planned(Planned, Work),
    Durable(Durable, Work),
    Moved(Moved, Work),
}

impl UnderWay {
    /// How far it has come, what it carries out, and what it remembers.
    pub fn parts(&self) -> (u8, &Plan, impl std::hash::Hash + use<>) {
        let (phase, plan, work) = match self {
            Self::Planned(planned, work) => (0, planned.plan(), work),
            Self::Durable(durable, work) => (1, durable.plan(), work),
            Self::Moved(moved, work) => (2, moved.plan(), work),
        };
        let work = (
            work.need == Need::Switch,
            work.reading,
            work.leaves_gap,
            work.forgiven,
        );
        (phase, plan, work)
    }

    /// Begins a reservation; `None` if it is not needed.
    pub fn begin<H: Host>(host: &H, need: Need) -> Result<Option<Self>, Result<Refusal, H::Error>> {
        let (slot, generator) = host.entered().unwrap();
        host.reserving(|token| prepare(host, slot, generator, token, need))
            .map(|begun| begun.map(|(planned, work)| Self::Planned(planned, work)))
            .map_err(|failure| match failure {
                Failure::Refused(refusal) => Ok(refusal),
                Failure::Host(error) => Err(error),
            })
    }

    /// Its next step; `None` after the last.
    pub fn go_on<H: Host>(self, host: &H) -> Result<Option<Self>, H::Error> {
        let (slot, generator) = host.entered().unwrap();
        host.reserving(|token| {
            Ok(match self {
                Self::Planned(planned, work) => {
                    Some(Self::Durable(work.write(host, slot, token, planned)?, work))
                }
                Self::Durable(durable, work) => Some(Self::Moved(
                    work.move_word(slot, generator, token, durable),
                    work,
                )),
                Self::Moved(moved, work) => {
                    work.publish(host, slot, token, moved);
                    None
                }
            })
        })
    }
}
