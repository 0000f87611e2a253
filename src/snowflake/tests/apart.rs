//! A reservation that a test takes apart, to look at what others do in between.

use super::*;

#[derive(Clone, Copy)]
pub enum UnderWay {
    Planned(Planned),
    Durable(Durable),
    Moved(Moved),
}

impl UnderWay {
    /// How far it has come, and what it carries out.
    pub fn parts(&self) -> (u8, &Plan) {
        match self {
            Self::Planned(planned) => (0, planned.plan()),
            Self::Durable(durable) => (1, durable.plan()),
            Self::Moved(moved) => (2, moved.plan()),
        }
    }

    /// Begins a reservation; `None` if it is not needed.
    pub fn begin<H: Host>(host: &H, need: Need) -> Result<Result<Option<Self>, Refusal>, H::Error> {
        let (slot, generator) = host.entered().unwrap();
        host.reserving(|token| prepare(host, slot, generator, token, need))
            .map(|begun| begun.map(|planned| planned.map(Self::Planned)))
    }

    /// Its next step; `None` after the last.
    pub fn go_on<H: Host>(self, host: &H) -> Result<Option<Self>, H::Error> {
        let (slot, generator) = host.entered().unwrap();
        host.reserving(|token| {
            Ok(match self {
                Self::Planned(planned) => Some(Self::Durable(write(host, slot, token, planned)?)),
                Self::Durable(durable) => {
                    Some(Self::Moved(move_word(slot, generator, token, durable)))
                }
                Self::Moved(moved) => {
                    publish(host, slot, token, moved);
                    None
                }
            })
        })
    }
}
