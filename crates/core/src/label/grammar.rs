//! The grammar of labels: it takes a text apart into pairs of key and value, and a
//! layout's text into fields. Everything keeps its place, for error messages.

use std::fmt;

use super::LabelError;
use crate::id::layout::FieldRole;
use crate::label::excerpt::excerpt;

/// The keys that labels have; all others are names of fields.
pub const KEYS: [&str; 11] = [
    "preset",
    "layout",
    "epoch",
    "tick",
    "on_rollback",
    "max_rollback",
    "max_wait",
    "max_borrow",
    "max_observe",
    "on_exhausted",
    "sequence_start",
];

/// Most bytes of the name of a field, the same as of a name in PostgreSQL.
pub const NAME_MAX: usize = 63;

/// A part of a label, and the number of bytes before it.
#[derive(Clone, Copy)]
pub struct Text<'a> {
    pub text: &'a str,
    pub at: usize,
}

/// Error messages show a text quoted and, if it is long, cut.
impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", excerpt(self.text))
    }
}

impl<'a> Text<'a> {
    /// Returns an error in this place, made of the parts of a [`LabelError`].
    pub fn error<T>(self, problem: &str, allowed: &str) -> Result<T, LabelError> {
        Err(LabelError {
            at: self.at,
            problem: problem.to_string(),
            allowed: allowed.to_string(),
        })
    }

    /// The end of this text, in its place.
    fn rest(self, text: &'a str) -> Self {
        let at = self.at + self.text.len() - text.len();
        Self { text, at }
    }

    /// The text without the white space of ASCII at its beginning.
    fn trimmed(self) -> Self {
        self.rest(self.text.trim_ascii_start())
    }

    /// What follows this character, if the text begins with the character.
    fn after(self, first: char) -> Option<Self> {
        Some(self.rest(self.text.strip_prefix(first)?))
    }

    /// The text up to the first character that ends it, and the rest.
    pub fn split_before(self, ends: impl Fn(char) -> bool) -> (Self, Self) {
        let end = self.text.find(ends).unwrap_or(self.text.len());
        let (text, rest) = self.text.split_at(end);
        (Self { text, ..self }, self.rest(rest))
    }
}

/// A `key=value`. All pairs of a preset have the place of its name.
pub struct Pair<'a> {
    pub key: Text<'a>,
    /// The value without its quotes.
    pub value: String,
    /// The place of the value: that of its first character.
    pub at: usize,
    /// Whether the pair comes from a preset, and not from the label itself.
    pub is_preset: bool,
}

impl Pair<'_> {
    pub fn text(&self) -> Text<'_> {
        Text {
            text: &self.value,
            at: self.at,
        }
    }

    pub fn invalid<T>(&self, allowed: &str) -> Result<T, LabelError> {
        let text = self.text();
        let problem = format!("invalid value for {}: {text}", self.key.text);
        text.error(&problem, allowed)
    }
}

pub fn pairs(text: &str) -> Result<Vec<Pair<'_>>, LabelError> {
    const FORM: &str = "A label is a list of key=value, separated by spaces, with none around \"=\". Values with spaces are quoted, as in layout='time:41 worker:10 sequence:12'.";
    let mut found: Vec<Pair<'_>> = Vec::new();
    let mut rest = Text { text, at: 0 }.trimmed();
    while !rest.text.is_empty() {
        let (key, behind) = rest.split_before(|c| !(c.is_ascii_alphanumeric() || c == '_'));
        if key.text.is_empty() {
            return rest.error(&format!("unexpected {rest}"), FORM);
        }
        let Some(value) = behind.after('=') else {
            return behind.error(&format!("{key} is not followed by \"=\""), FORM);
        };
        if value.text.starts_with('"') {
            return value.error("a value is in double quotes", FORM);
        }
        let (value, text, behind) = if let Some(quoted) = value.after('\'') {
            let Some((text, behind)) = unquoted(quoted) else {
                return value.error("a quoted value is not closed", FORM);
            };
            (quoted, text, behind)
        } else {
            let (bare, behind) = value.split_before(|c| c.is_ascii_whitespace() || c == '\'');
            (bare, bare.text.to_string(), behind)
        };
        rest = behind.trimmed();
        if rest.at == behind.at && !rest.text.is_empty() {
            return rest.error("a value is not followed by a space", FORM);
        }
        if found.iter().any(|pair| pair.key.text == key.text) {
            return key.error(&format!("{key} is given twice"), "Give each key once.");
        }
        if key.text == "preset" && !found.is_empty() {
            let allowed = "Put it first: what follows overrides it.";
            return key.error("\"preset\" is not first", allowed);
        }
        found.push(Pair {
            key,
            value: text,
            at: value.at,
            is_preset: false,
        });
    }
    Ok(found)
}

/// Splits a text into a value up to its closing quote, and what follows the quote.
fn unquoted(text: Text<'_>) -> Option<(String, Text<'_>)> {
    // A doubled quote is part of the value.
    let end = text.text.replace("''", "--").find('\'')?;
    let (value, behind) = text.text.split_at(end);
    Some((value.replace("''", "'"), text.rest(behind).after('\'')?))
}

/// A field of a layout as it is written; its bits are not checked.
pub struct FieldText<'a> {
    pub name: Text<'a>,
    pub bits: u64,
    /// The role that the field's name gives, or else its value. A mode is taken for any
    /// other field.
    pub role: FieldRole,
    /// Where the field's value is, if there is one.
    pub value_at: usize,
}

impl FieldText<'_> {
    /// Whether the field can have a value: it is a part of the worker ID, or it was one
    /// before it got a value.
    pub fn is_free(&self) -> bool {
        matches!(
            self.role,
            FieldRole::Worker | FieldRole::Fixed(_) | FieldRole::Caller
        )
    }

    /// Gives the field a value. If it can have none, that is an error of `key`.
    pub fn set(&mut self, key: Text<'_>, value: Text<'_>) -> Result<(), LabelError> {
        if !self.is_free() {
            return key.error(
                &format!("field \"{}\" cannot have a value", self.name.text),
                "Time, sequence and clock differ from ID to ID.",
            );
        }
        self.role = role_of(value)?;
        self.value_at = value.at;
        Ok(())
    }
}

/// Stands in place of a value: each call gives one.
pub const CALLER: &str = "caller";

fn role_of(value: Text<'_>) -> Result<FieldRole, LabelError> {
    if value.text == CALLER {
        return Ok(FieldRole::Caller);
    }
    number(value, VALUES).map(FieldRole::Fixed)
}

pub fn fields(text: Text<'_>) -> Result<Vec<FieldText<'_>>, LabelError> {
    let mut found = Vec::new();
    let mut rest = text.trimmed();
    while !rest.text.is_empty() {
        let (word, behind) = rest.split_before(|c| c.is_ascii_whitespace());
        found.push(field(word, &found)?);
        rest = behind.trimmed();
    }
    if found.is_empty() {
        return text.error("the layout is empty", FIELD_FORM);
    }
    // Checked before the bits of a "timestamp" or "ms" are found to be too many.
    if !found.iter().any(|field| field.role.is_time()) {
        return text.error("the layout has no time field", "Add one, such as time:41.");
    }
    Ok(found)
}

/// The help for fields that are not well formed.
pub const FIELD_FORM: &str = "Fields are written name:bits or name:bits=value, with spaces between, from high to low, as in layout='time:41 worker:10 sequence:12'.";

/// Refuses a name that no field can have.
pub fn check_name(name: Text<'_>) -> Result<(), LabelError> {
    let of_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if !name.text.starts_with(|c: char| c.is_ascii_lowercase())
        || !name.text.chars().all(of_name)
        || name.text.len() > NAME_MAX
    {
        let allowed = format!(
            "Names have up to {NAME_MAX} lower-case letters, digits and underscores, and begin with a letter."
        );
        return name.error(&format!("field name {name} is not valid"), &allowed);
    }
    if KEYS.contains(&name.text) {
        let keys = list(&KEYS, "and");
        return name.error(
            &format!("a field cannot be called {name}"),
            &format!("These names have a meaning of their own: {keys}."),
        );
    }
    Ok(())
}

fn field<'a>(word: Text<'a>, before: &[FieldText<'a>]) -> Result<FieldText<'a>, LabelError> {
    if word.text.contains(',') {
        return word.error(&format!("{word} has a comma"), FIELD_FORM);
    }
    let (name, rest) = word.split_before(|c| c == ':');
    let Some(rest) = rest.after(':') else {
        return word.error(&format!("{word} is not a field"), FIELD_FORM);
    };
    check_name(name)?;
    if before.iter().any(|field| field.name.text == name.text) {
        return word.error(
            &format!("field \"{}\" is given twice", name.text),
            FIELD_FORM,
        );
    }
    let (bits, value) = rest.split_before(|c| c == '=');
    let mut field = FieldText {
        name,
        bits: number(bits, DIGITS)?,
        role: match name.text {
            "time" => FieldRole::Time,
            "time_reversed" => FieldRole::TimeReversed,
            "time_by_mode" => FieldRole::TimeByMode,
            "sequence" => FieldRole::Sequence,
            "clock" => FieldRole::Clock,
            _ => FieldRole::Worker,
        },
        value_at: rest.at,
    };
    if let Some(value) = value.after('=') {
        // Also checked if the field can have no value.
        role_of(value)?;
        field.set(value, value)?;
    }
    Ok(field)
}

/// Whether a text consists of digits only.
pub fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

const DIGITS: &str = "Numbers are written in decimal digits.";
const VALUES: &str = "A value is a number in decimal digits, or caller if each call gives it.";

/// Reads a whole number. `form` says what it looks like.
fn number(text: Text<'_>, form: &str) -> Result<u64, LabelError> {
    match text.text.parse() {
        _ if !is_digits(text.text) => text.error(&format!("{text} is not a whole number"), form),
        Ok(number) => Ok(number),
        Err(_) => text.error(
            &format!("number {text} is out of range"),
            &format!("Numbers can be 0 to {}.", u64::MAX),
        ),
    }
}

/// Words as a sentence lists them.
pub fn list(words: &[&str], last: &str) -> String {
    let list = words.join(", ");
    match list.rsplit_once(", ") {
        Some((words, word)) => format!("{words} {last} {word}"),
        None => list,
    }
}
