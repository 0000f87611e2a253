//! Messages between servers and the registry of worker IDs: the JSON of the core's
//! types, and `format`, the number of their format. The other side can run another
//! version of the extension. A later version that adds a field, which this one ignores,
//! keeps the number; one that adds or changes what must be understood raises it.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The format of this version.
pub const FORMAT: u64 = 1;

/// Why a message is not understood.
#[derive(Debug)]
pub enum UnreadableMessage {
    /// It has another format.
    Format(u64),
    /// It is none of the expected kind.
    Content(String),
}

/// Reads a message of this version's format.
pub fn decode<T: DeserializeOwned>(text: &str) -> Result<T, UnreadableMessage> {
    let wrong = |error: serde_json::Error| UnreadableMessage::Content(error.to_string());
    let message: Value = serde_json::from_str(text).map_err(wrong)?;
    match message.get("format").and_then(Value::as_u64) {
        Some(FORMAT) => serde_json::from_value(message).map_err(wrong),
        Some(other) => Err(UnreadableMessage::Format(other)),
        None => Err(UnreadableMessage::Content(
            "no number \"format\"".to_string(),
        )),
    }
}

/// A message as text; it is an object. The core's types have no content that JSON lacks.
pub fn encode(message: &impl Serialize) -> String {
    let mut message = serde_json::to_value(message).unwrap_or_default();
    if let Some(fields) = message.as_object_mut() {
        fields.insert("format".to_string(), FORMAT.into());
    }
    message.to_string()
}
