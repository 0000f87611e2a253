//! As which role a server asks.

use std::fmt;
use std::hash::{Hash, Hasher};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// PostgreSQL's names have 63 bytes at most. In UTF-8, each of them becomes up to three.
const LONGEST: usize = 190;

/// The name of the role as which a server asks. The registry's host sets it, whatever a
/// request says. Empty where there are no roles, as in etcd.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Role {
    bytes: [u8; LONGEST],
    length: u8,
}

impl Role {
    /// Where there are no roles.
    pub const NONE: Self = Self {
        bytes: [0; LONGEST],
        length: 0,
    };

    /// The role of this name; `None` if it is longer than names are.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let mut role = Self::NONE;
        role.length = u8::try_from(name.len()).ok()?;
        role.bytes
            .get_mut(..name.len())?
            .copy_from_slice(name.as_bytes());
        Some(role)
    }

    #[must_use]
    pub fn name(&self) -> &str {
        let bytes = self.bytes.get(..usize::from(self.length));
        bytes
            .and_then(|bytes| std::str::from_utf8(bytes).ok())
            .unwrap_or_default()
    }
}

impl Default for Role {
    fn default() -> Self {
        Self::NONE
    }
}

/// What follows the name is always the same.
impl Hash for Role {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

impl fmt::Debug for Role {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        self.name().fmt(f)
    }
}

impl Serialize for Role {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'a> Deserialize<'a> for Role {
    fn deserialize<D: Deserializer<'a>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        let name = String::deserialize(deserializer)?;
        Self::named(&name).ok_or_else(|| D::Error::custom("the name of a role is too long"))
    }
}
