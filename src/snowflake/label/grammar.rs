//! The grammar of labels: it takes a text apart into pairs of key and value, and a
//! layout's text into fields. Everything keeps its place, for error messages.

use std::fmt;

use super::LabelError;
use crate::snowflake::layout::Role;

/// The keys that labels have; all others are names of fields.
pub const KEYS: [&str; 10] = [
    "preset",
    "layout",
    "epoch",
    "tick",
    "on_rollback",
    "max_rollback",
    "max_wait",
    "max_borrow",
    "on_exhausted",
    "sequence_start",
];

/// Most characters of a field's name, as of a name in PostgreSQL.
const NAME_MAX: usize = 63;

/// A place in a label. The text that a preset stands for has no place of its own:
/// all of it is where the preset's name is.
#[derive(Clone, Copy)]
pub struct Spot {
    offset: usize,
    is_preset: bool,
}

impl Spot {
    /// The place behind so many bytes of the label.
    pub const fn behind(offset: usize) -> Self {
        Self {
            offset,
            is_preset: false,
        }
    }

    /// The place of the text that a preset stands for, whose name is here.
    pub const fn of_preset(self) -> Self {
        Self {
            is_preset: true,
            ..self
        }
    }

    /// Whether a preset says it, and not the label itself.
    pub const fn is_preset(self) -> bool {
        self.is_preset
    }

    const fn plus(self, bytes: usize) -> Self {
        if self.is_preset {
            self
        } else {
            Self::behind(self.offset + bytes)
        }
    }

    /// Returns an error in this place, made of the parts of a [`LabelError`].
    pub fn error<T>(
        self,
        problem: impl Into<String>,
        allowed: impl Into<String>,
    ) -> Result<T, LabelError> {
        Err(LabelError {
            at: self.offset,
            problem: problem.into(),
            allowed: allowed.into(),
        })
    }
}

/// Something, and where it stands.
#[derive(Clone, Copy)]
pub struct Placed<T> {
    pub value: T,
    pub at: Spot,
}

impl<T> Placed<T> {
    /// Something else in the same place.
    pub fn with<U>(&self, value: U) -> Placed<U> {
        Placed { value, at: self.at }
    }
}

impl Placed<String> {
    pub fn as_str(&self) -> Placed<&str> {
        self.with(self.value.as_str())
    }
}

/// Error messages show a text quoted, and not too long.
impl fmt::Display for Placed<&str> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MOST: usize = 40;
        match self.value.char_indices().nth(MOST) {
            Some((end, _)) => write!(f, "\"{}...\"", self.value.get(..end).unwrap_or_default()),
            None => write!(f, "\"{}\"", self.value),
        }
    }
}

impl<'a> Placed<&'a str> {
    /// The text in two, without the one character between them.
    fn split_once(self, separator: char) -> Option<(Self, Self)> {
        let (left, right) = self.value.split_once(separator)?;
        let at = self.at.plus(left.len() + separator.len_utf8());
        Some((self.with(left), Placed { value: right, at }))
    }

    /// The words between white space.
    fn words(self) -> impl Iterator<Item = Placed<&'a str>> {
        let mut end = 0;
        let words = self.value.split(|c: char| c.is_ascii_whitespace());
        let words = words.map(move |value| {
            let at = self.at.plus(end);
            end += value.len() + 1;
            Placed { value, at }
        });
        words.filter(|word| !word.value.is_empty())
    }
}

/// A `key=value`.
pub struct Pair<'a> {
    pub key: Placed<&'a str>,
    /// Without its quotes; its place is that of its first character.
    pub value: Placed<String>,
}

/// Takes apart a text that starts at `start`. White space is that of ASCII.
pub fn pairs<'a>(text: &'a str, start: Spot) -> Result<Vec<Pair<'a>>, LabelError> {
    const FORM: &str = "A label is a list of key=value, separated by spaces, with none around \"=\". Values with spaces are quoted, as in layout='time:41 worker:10 sequence:12'.";
    let here = |rest: &'a str| Placed {
        value: rest,
        at: start.plus(text.len() - rest.len()),
    };
    let mut found: Vec<Pair<'_>> = Vec::new();
    let mut rest = text.trim_ascii_start();
    while !rest.is_empty() {
        let (key, behind) = split_before(rest, |c| !(c.is_ascii_alphanumeric() || c == '_'));
        let key = here(rest).with(key);
        if key.value.is_empty() {
            return key.at.error(format!("unexpected {}", here(rest)), FORM);
        }
        let Some(value) = behind.strip_prefix('=') else {
            let problem = format!("{key} is not followed by \"=\"");
            return here(behind).at.error(problem, FORM);
        };
        let at = here(value).at;
        if value.starts_with('"') {
            return at.error("a value is in double quotes", FORM);
        }
        let (value, behind) = if let Some(quoted) = value.strip_prefix('\'') {
            let Some((value, behind)) = unquoted(quoted) else {
                return at.error("a quoted value is not closed", FORM);
            };
            (here(quoted).with(value), behind)
        } else {
            let (bare, behind) = split_before(value, |c| c.is_ascii_whitespace() || c == '\'');
            (here(value).with(bare.to_string()), behind)
        };
        rest = behind.trim_ascii_start();
        if rest.len() == behind.len() && !rest.is_empty() {
            let at = here(rest).at;
            return at.error("a value is not followed by a space", FORM);
        }
        if found.iter().any(|pair| pair.key.value == key.value) {
            let problem = format!("{key} is given twice");
            return key.at.error(problem, "Give each key once.");
        }
        if key.value == "preset" && !found.is_empty() {
            let allowed = "Put it first: what follows overrides it.";
            return key.at.error("\"preset\" is not first", allowed);
        }
        found.push(Pair { key, value });
    }
    Ok(found)
}

/// A text up to the first character that ends it, and the rest.
fn split_before(text: &str, ends: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(ends).unwrap_or(text.len()))
}

/// A value up to its closing quote, and what is behind that.
fn unquoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut rest = text;
    loop {
        let (before, behind) = rest.split_once('\'')?;
        value.push_str(before);
        let Some(more) = behind.strip_prefix('\'') else {
            return Some((value, behind));
        };
        value.push('\'');
        rest = more;
    }
}

/// A field of a layout as it is written; its bits are not checked.
pub struct FieldText {
    pub name: Placed<String>,
    pub bits: u64,
    pub value: Option<Placed<u64>>,
}

impl FieldText {
    /// The role that its name gives it. Other fields are parts of the worker ID, or
    /// the same in all IDs.
    pub fn named_role(&self) -> Option<Role> {
        match self.name.value.as_str() {
            "time" => Some(Role::Time),
            "time_reversed" => Some(Role::TimeReversed),
            "time_by_mode" => Some(Role::TimeByMode),
            "sequence" => Some(Role::Sequence),
            "clock" => Some(Role::Clock),
            _ => None,
        }
    }

    /// Its role. `by_mode` says whether the layout writes its time by mode.
    pub fn role(&self, by_mode: bool) -> Role {
        let value = self.value.map(|value| value.value);
        match (self.named_role(), value) {
            (Some(role), _) => role,
            (None, value) if by_mode && self.name.value == "mode" => Role::Mode(value),
            (None, Some(value)) => Role::Fixed(value),
            (None, None) => Role::Worker,
        }
    }
}

/// Reads the fields of a layout.
pub fn fields(text: Placed<&str>) -> Result<Vec<FieldText>, LabelError> {
    let mut found = Vec::new();
    for word in text.words() {
        let field = field(word, &found)?;
        found.push(field);
    }
    if found.is_empty() {
        return text.at.error("the layout is empty", FIELD_FORM);
    }
    // Before the bits of a "timestamp" or "ms" are found to be too many.
    let is_time = |field: &FieldText| field.named_role().is_some_and(Role::is_time);
    if !found.iter().any(is_time) {
        let allowed = "Add one, such as time:41.";
        return text.at.error("the layout has no time field", allowed);
    }
    Ok(found)
}

/// The help for fields that are not well formed.
pub const FIELD_FORM: &str = "Fields are written name:bits or name:bits=value, with spaces between, from high to low, as in layout='time:41 worker:10 sequence:12'.";

fn field(word: Placed<&str>, before: &[FieldText]) -> Result<FieldText, LabelError> {
    let at = word.at;
    if word.value.contains(',') {
        return at.error(format!("{word} has a comma"), FIELD_FORM);
    }
    let Some((name, rest)) = word.split_once(':') else {
        return at.error(format!("{word} is not a field"), FIELD_FORM);
    };
    let of_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if !name.value.starts_with(|c: char| c.is_ascii_lowercase())
        || !name.value.chars().all(of_name)
        || name.value.len() > NAME_MAX
    {
        let allowed = format!(
            "Names have up to {NAME_MAX} lower-case letters, digits and underscores, and begin with a letter."
        );
        return at.error(format!("field name {name} is not valid"), allowed);
    }
    let name = name.value;
    if KEYS.contains(&name) {
        let keys = list(&KEYS, "and");
        return at.error(
            format!("a field cannot be called \"{name}\""),
            format!("These names have a meaning of their own: {keys}."),
        );
    }
    if before.iter().any(|field| field.name.value == name) {
        return at.error(format!("field \"{name}\" is given twice"), FIELD_FORM);
    }
    let (bits, value) = match rest.split_once('=') {
        Some((bits, value)) => (bits, Some(value)),
        None => (rest, None),
    };
    let field = FieldText {
        name: word.with(name.to_string()),
        bits: number(bits)?.value,
        value: value.map(number).transpose()?,
    };
    match field.value {
        Some(value) if field.named_role().is_some() => no_value(name, value.at),
        _ => Ok(field),
    }
}

/// The error for a field with a role of its own that is given a value.
pub fn no_value<T>(field: &str, at: Spot) -> Result<T, LabelError> {
    at.error(
        format!("field \"{field}\" cannot have a value"),
        "Time, sequence and clock differ from ID to ID.",
    )
}

/// Whether a text is digits, and nothing else.
pub fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Reads a whole number.
pub fn number(text: Placed<&str>) -> Result<Placed<u64>, LabelError> {
    let (problem, allowed) = match text.value.parse() {
        _ if !is_digits(text.value) => (
            format!("{text} is not a whole number"),
            "Numbers are written in decimal digits.".to_string(),
        ),
        Ok(number) => return Ok(text.with(number)),
        Err(_) => (
            format!("number {text} is out of range"),
            format!("Numbers can be 0 to {}.", u64::MAX),
        ),
    };
    text.at.error(problem, allowed)
}

/// Words as a sentence lists them.
pub fn list(words: &[&str], last: &str) -> String {
    match words {
        [] => String::new(),
        [word] => (*word).to_string(),
        [words @ .., word] => format!("{} {last} {word}", words.join(", ")),
    }
}
