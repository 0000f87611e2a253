//! Numbers of 128 bits in messages and in what is stored: 32 hexadecimal digits, since
//! JSON readers take numbers for floating-point ones.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serializer};

pub fn serialize<S: Serializer>(number: &u128, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&format!("{number:032x}"))
}

pub fn deserialize<'a, D: Deserializer<'a>>(deserializer: D) -> Result<u128, D::Error> {
    let text = String::deserialize(deserializer)?;
    let is_plain = text.len() == 32 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    let number = is_plain.then(|| u128::from_str_radix(&text, 16).ok());
    let wrong = || D::Error::custom("a number of 128 bits has 32 hexadecimal digits");
    number.flatten().ok_or_else(wrong)
}

/// 32 bytes as 64 hexadecimal digits.
pub mod bytes {
    use super::{Bytes, Deserialize, Deserializer, Error, Serializer};

    pub fn serialize<S: Serializer>(bytes: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
        let digits = bytes.iter().map(|byte| format!("{byte:02x}"));
        serializer.serialize_str(&digits.collect::<String>())
    }

    pub fn deserialize<'a, D: Deserializer<'a>>(deserializer: D) -> Result<Bytes, D::Error> {
        let text = String::deserialize(deserializer)?;
        let mut bytes = Bytes::default();
        let is_plain = text.len() == 64 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
        for (at, byte) in bytes.iter_mut().enumerate() {
            let digits = text.get(2 * at..2 * at + 2).filter(|_| is_plain);
            let read = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
            let wrong = || D::Error::custom("32 bytes have 64 hexadecimal digits");
            *byte = read.ok_or_else(wrong)?;
        }
        Ok(bytes)
    }
}

type Bytes = [u8; 32];
