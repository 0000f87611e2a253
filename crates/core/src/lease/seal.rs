//! How a registry knows its own words again.
//!
//! What a server remembers of a registry is the only sign of a loss that nothing else
//! shows, and only who lost a grant knows of it. So it counts from anybody; and it can begin a
//! grace period, or stop the registry. That is why each [`Memory`] carries a **seal**: a MAC
//! (HMAC-SHA256) by a key that lies in the registry's state, and that copies of the registry have
//! too. Who may only ask can repeat what a registry has said, and can make up nothing.
//!
//! In etcd, each server reads the key and seals what it stores. A process that can do that can
//! write the state itself, so there the seal protects from mistakes only.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use super::{Memory, Nonce, Pool, ServerKey, hex};
use crate::id::{UnixMillis, WorkerId};

/// What only a registry and its copies know.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SealKey(#[serde(with = "hex::bytes")] [u8; 32]);

/// A MAC by the key of a registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Seal(#[serde(with = "hex::bytes")] [u8; 32]);

/// A token, and who has it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token<'a> {
    pub pool: &'a Pool,
    pub worker: WorkerId,
    pub counter: u64,
    pub nonce: Nonce,
    pub identity: &'a ServerKey,
    /// What was granted with it, or the latest renewal.
    pub bound: UnixMillis,
}

impl SealKey {
    /// From strong random bytes.
    #[must_use]
    pub const fn new(random: [u8; 32]) -> Self {
        Self(random)
    }

    fn mac(&self) -> Hmac<Sha256> {
        // A key that is shorter than a block of the hash is filled up with zeros.
        let mut block = [0; 64];
        if let Some(start) = block.first_chunk_mut() {
            *start = self.0;
        }
        Hmac::new(&block.into())
    }

    /// All that a memory says, but for its seal. The first byte tells it from a token.
    fn mac_of(&self, memory: &Memory) -> Hmac<Sha256> {
        let (era, origin) = (memory.era, memory.era.origin);
        let mut mac = self.mac();
        mac.update(b"M");
        for number in [
            era.declared,
            era.counter,
            origin.system,
            origin.timeline,
            origin.database,
            memory.serial,
        ] {
            mac.update(&number.to_be_bytes());
        }
        for number in [era.random, memory.start] {
            mac.update(&number.to_be_bytes());
        }
        if let Some(Seal(token)) = &memory.token {
            mac.update(token);
        }
        mac
    }

    /// The same memory with the right seal.
    #[must_use]
    pub fn seal(&self, memory: Memory) -> Memory {
        let seal = Seal(self.mac_of(&memory).finalize().into_bytes().into());
        Memory { seal, ..memory }
    }

    /// Whether this registry, or a copy of it, has sealed the memory.
    #[must_use]
    pub fn has_sealed(&self, memory: &Memory) -> bool {
        self.mac_of(memory).verify_slice(&memory.seal.0).is_ok()
    }

    /// What proves that the token was granted.
    pub(super) fn seal_token(&self, token: &Token) -> Seal {
        let mut mac = self.mac();
        mac.update(b"T");
        mac.update(&token.worker.get().to_be_bytes());
        mac.update(&token.counter.to_be_bytes());
        mac.update(&token.nonce.0.to_be_bytes());
        mac.update(&token.bound.get().to_be_bytes());
        // The pool's name comes last, and a key of servers has no NUL.
        mac.update(token.identity.text().as_bytes());
        mac.update(&[0]);
        mac.update(token.pool.name.as_bytes());
        Seal(mac.finalize().into_bytes().into())
    }
}

/// A key is not for logs.
impl fmt::Debug for SealKey {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("Key")
    }
}

impl Seal {
    /// No seal of any key.
    pub const NONE: Self = Self([0; 32]);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::lease::{Era, Origin};

    /// RFC 4231, test case 2, whose key is shorter than 32 bytes.
    #[test]
    fn is_hmac_sha256() {
        let mut key = [0; 32];
        key[..4].copy_from_slice(b"Jefe");
        let mut mac = SealKey::new(key).mac();
        mac.update(b"what do ya want for nothing?");
        let digest: [u8; 32] = mac.finalize().into_bytes().into();
        let text: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            text,
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
    }

    fn memory() -> Memory {
        let origin = Origin {
            system: 1,
            timeline: 2,
            database: 3,
        };
        let era = Era {
            declared: 4,
            counter: 5,
            origin,
            random: 6,
        };
        Memory {
            era,
            serial: 7,
            start: 8,
            token: Some(Seal([9; 32])),
            seal: Seal::NONE,
        }
    }

    #[test]
    fn each_part_of_a_memory_is_sealed() {
        let key = SealKey::new([1; 32]);
        let sealed = key.seal(memory());
        assert!(key.has_sealed(&sealed) && !key.has_sealed(&memory()));
        assert!(!SealKey::new([2; 32]).has_sealed(&sealed));
        let change: [fn(&mut Memory); 10] = [
            |memory| memory.era.declared += 1,
            |memory| memory.era.counter += 1,
            |memory| memory.era.origin.system += 1,
            |memory| memory.era.origin.timeline += 1,
            |memory| memory.era.origin.database += 1,
            |memory| memory.era.random += 1,
            |memory| memory.serial += 1,
            |memory| memory.start += 1,
            |memory| memory.token = None,
            |memory| memory.token = Some(Seal::NONE),
        ];
        for (number, change) in change.iter().enumerate() {
            let mut changed = sealed;
            change(&mut changed);
            assert!(!key.has_sealed(&changed), "{number}");
        }
    }

    #[test]
    fn a_memory_and_a_key_are_the_same_as_text() {
        let key = SealKey::new(*b"0123456789abcdef0123456789abcdef");
        let sealed = key.seal(memory());
        let text = serde_json::to_string(&(key, sealed)).unwrap();
        let (read, again): (SealKey, Memory) = serde_json::from_str(&text).unwrap();
        assert_eq!((read, again), (key, sealed));
        assert!(!format!("{key:?}").contains("30"));
        let short = text.replacen("3031", "31", 1);
        assert!(serde_json::from_str::<(SealKey, Memory)>(&short).is_err());
    }
}
