//! Messages between servers and the registry of worker IDs: the JSON of the core's
//! types, and `format`, the number of their format. The other side can run another
//! version of the extension. A later version that adds a field, which this one ignores,
//! keeps the number; one that adds or changes what must be understood raises it.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The format of this version.
pub const FORMAT: u64 = 1;

/// Why a message is not understood.
#[derive(Debug)]
pub enum MessageError {
    /// The message has another format.
    Format(u64),
    /// The message is not of the expected kind.
    Content(String),
}

/// What each message has.
#[derive(Deserialize)]
struct Header {
    #[serde(default)]
    format: Value,
}

/// A message with its format.
#[derive(Serialize)]
struct Message<'a, T> {
    format: u64,
    #[serde(flatten)]
    content: &'a T,
}

/// Reads a message of this version's format.
pub fn decode<T: DeserializeOwned>(text: &str) -> Result<T, MessageError> {
    // The position is of no use: jsonb has the text in an order of its own.
    let wrong = |error: serde_json::Error| {
        let text = error.to_string();
        let why = text.rsplit_once(" at line ");
        MessageError::Content(why.map_or(&*text, |(why, _)| why).to_string())
    };
    let header: Header = serde_json::from_str(text).map_err(wrong)?;
    match header.format.as_u64() {
        Some(FORMAT) => serde_json::from_str(text).map_err(wrong),
        Some(other) => Err(MessageError::Format(other)),
        None => Err(MessageError::Content("no number \"format\"".to_string())),
    }
}

/// A message as text; it is an object. The core's types have no content that JSON lacks.
pub fn encode(content: &impl Serialize) -> String {
    let format = FORMAT;
    serde_json::to_string(&Message { format, content }).unwrap_or_default()
}
