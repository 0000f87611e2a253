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
