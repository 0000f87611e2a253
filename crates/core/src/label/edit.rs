//! Labels by their keys: what a text says of each key, and the text with other values.

use super::grammar::{self, KEYS, Text};
use super::{LabelError, pair};

/// The keys that a text gives, with their values. It need not be the text of a whole label.
pub fn given(text: &str) -> Result<Vec<(String, String)>, LabelError> {
    let pairs = grammar::pairs(text)?.into_iter();
    Ok(pairs
        .map(|pair| (pair.key.text.to_string(), pair.value))
        .collect())
}

/// The text with other values for these keys and fields; an empty value removes a key. What
/// names neither a preset nor a layout is for the default preset.
///
/// The result has the keys in their order, then the fields by name. Without changes a text
/// stays as it is, so that a copy of a label equals the original.
pub fn edit(text: &str, changes: &[(&str, &str)]) -> Result<String, LabelError> {
    if changes.is_empty() && !text.is_empty() {
        return Ok(text.to_string());
    }
    let mut pairs = given(text)?;
    pairs.retain(|(key, _)| changes.iter().all(|(changed, _)| changed != key));
    let set = changes.iter().filter(|(_, value)| !value.is_empty());
    pairs.extend(set.map(|(key, value)| ((*key).to_string(), (*value).to_string())));
    if !pairs
        .iter()
        .any(|(key, _)| key == "preset" || key == "layout")
    {
        pairs.push(("preset".to_string(), "default".to_string()));
    }
    let place = |key: &str| KEYS.iter().position(|known| *known == key);
    let place = |key: &str| place(key).unwrap_or(KEYS.len());
    pairs.sort_by(|(one, _), (other, _)| (place(one), one).cmp(&(place(other), other)));
    let texts = pairs.iter().map(|(key, value)| pair(key, value));
    Ok(texts.collect::<Vec<_>>().join(" "))
}

/// Refuses a name that no field can have.
pub fn check_field_name(name: &str) -> Result<(), LabelError> {
    grammar::check_name(Text { text: name, at: 0 })
}

/// The key that has this place of a text, or whose value has it; `None` at the end of the
/// text, where something is missing.
pub fn key_at(text: &str, at: usize) -> Option<String> {
    let pairs = grammar::pairs(text).ok()?;
    let mut before = pairs.iter().rev();
    let pair = before.find(|pair| at < text.len() && pair.key.at <= at)?;
    Some(pair.key.text.to_string())
}
