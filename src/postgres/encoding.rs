//! The border between Rust's UTF-8 and the encoding of the database.
//!
//! All text from PostgreSQL enters through [`from_server`] or [`bytes_from_server`].
//! All text leaves in the database's encoding: messages through [`crate::postgres::error_report`],
//! results through [`DatabaseText`], SQL statements through [`crate::postgres::spi`]. ASCII is the same
//! on both sides, and so is all text if the database's encoding is UTF-8.
//!
//! Conversion never fails, since a message has to show a name whatever its bytes are:
//!
//! | what has no equivalent | becomes |
//! |---|---|
//! | a byte that comes in | a *stand-in*, a character that nobody uses. The stand-in goes out as the same byte |
//! | a character that goes out | its number, as in `\u2500` |
//!
//! SQL_ASCII and MULE_INTERNAL have no conversion to UTF-8. Their bytes pass unchanged:
//! those that happen to be UTF-8 are read as UTF-8, all others become stand-ins.
//!
//! A role's name may be in the encoding of another database, in which the role was
//! created. A stand-in that would make text invalid goes out as the number of its byte,
//! as in `\xe9`.

use std::borrow::Cow;
use std::ffi::{CStr, c_char};

use pgrx::{IntoDatum, pg_sys};

const UTF8: i32 = pg_sys::pg_enc::PG_UTF8.cast_signed();

/// The stand-in of byte 0; only those of bytes from 0x80 on are used. Stand-ins are the
/// last private characters of Unicode; one in a text is replaced byte by byte.
const STAND_INS: u32 = 0x0010_FF00;

/// A character takes at most this many times its bytes in another encoding:
/// `MAX_CONVERSION_GROWTH` of mb/pg_wchar.h.
const GROWTH: usize = 4;

/// The byte for which a character stands, if the character is a stand-in.
fn stood_for(char: char) -> Option<u8> {
    let byte = u32::from(char).checked_sub(STAND_INS)?;
    u8::try_from(byte).ok().filter(|byte| !byte.is_ascii())
}

/// Text in the database's encoding, as UTF-8.
pub fn from_server(text: &CStr) -> String {
    bytes_from_server(text.to_bytes()).into_owned()
}

/// A text of PostgreSQL's, if there is one.
///
/// # Safety
/// `text` is null or NUL-terminated.
pub unsafe fn read(text: *const c_char) -> Option<String> {
    // SAFETY: as the caller guarantees.
    (!text.is_null()).then(|| from_server(unsafe { CStr::from_ptr(text) }))
}

/// As [`from_server`], for text with a length; without a copy if nothing needs conversion.
pub fn bytes_from_server(bytes: &[u8]) -> Cow<'_, str> {
    let encoding = database_encoding();
    if let Some(text) = valid(bytes)
        && (bytes.is_ascii() || encoding == UTF8)
    {
        return Cow::Borrowed(text);
    }
    let mut read = String::with_capacity(bytes.len());
    let Some(conversion) = Conversion::find(encoding, UTF8) else {
        read_as_utf8(bytes, &mut read);
        return Cow::Owned(read);
    };
    let mut rest = bytes;
    while !rest.is_empty() {
        let (utf8, behind) = conversion.run(rest);
        read_as_utf8(&utf8, &mut read);
        let (failed, behind) = behind.split_at(first_length(encoding, behind));
        read.extend(failed.iter().copied().map(as_char));
        rest = behind;
    }
    Cow::Owned(read)
}

/// Reads text in which some bytes may not be UTF-8.
fn read_as_utf8(bytes: &[u8], read: &mut String) {
    for chunk in bytes.utf8_chunks() {
        for char in chunk.valid().chars() {
            match stood_for(char) {
                Some(_) => read.extend(char.encode_utf8(&mut [0; 4]).bytes().map(as_char)),
                None => read.push(char),
            }
        }
        read.extend(chunk.invalid().iter().copied().map(as_char));
    }
}

/// An ASCII byte as it is, any other byte as its stand-in.
fn as_char(byte: u8) -> char {
    let code = if byte.is_ascii() { 0 } else { STAND_INS };
    char::from_u32(code + u32::from(byte)).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// The text of bytes that are UTF-8 without stand-ins.
fn valid(bytes: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(bytes).ok()?;
    // All stand-ins begin with this byte; few other characters do.
    let has_stand_ins = bytes.contains(&0xF4) && text.chars().any(|c| stood_for(c).is_some());
    (!has_stand_ins).then_some(text)
}

/// UTF-8 in the database's encoding; characters without an equivalent become numbers.
fn bytes_to_server(text: &str) -> Cow<'_, [u8]> {
    match exact(text) {
        Ok(bytes) => bytes,
        Err(EncodingError) => Cow::Owned(write(text, |char, written| {
            let number = match stood_for(char) {
                Some(byte) => format!("\\x{byte:02x}"),
                None => format!("\\u{:04X}", u32::from(char)),
            };
            written.extend(number.into_bytes());
        })),
    }
}

/// A text has characters that the database's encoding does not have.
#[derive(Debug)]
pub struct EncodingError;

/// UTF-8 in the database's encoding, which must have every character of it.
fn exact(text: &str) -> Result<Cow<'_, [u8]>, EncodingError> {
    let bytes = text.as_bytes();
    if text.is_ascii() || database_encoding() == UTF8 && valid(bytes).is_some() {
        return Ok(Cow::Borrowed(bytes));
    }
    let mut is_exact = true;
    let mut stands_in = false;
    let written = write(text, |char, written| match stood_for(char) {
        Some(byte) => {
            stands_in = true;
            written.push(byte);
        }
        None => is_exact = false,
    });
    if is_exact && (!stands_in || is_valid(&written)) {
        Ok(Cow::Owned(written))
    } else {
        Err(EncodingError)
    }
}

/// Converts `text`; `other` writes each character without equivalent, also stand-ins.
fn write(text: &str, mut other: impl FnMut(char, &mut Vec<u8>)) -> Vec<u8> {
    let mut written = Vec::with_capacity(text.len());
    let Some(conversion) = Conversion::find(UTF8, database_encoding()) else {
        for char in text.chars() {
            match stood_for(char) {
                Some(_) => other(char, &mut written),
                None => written.extend(char.encode_utf8(&mut [0; 4]).bytes()),
            }
        }
        return written;
    };
    let mut rest = text;
    loop {
        // It stops at a stand-in, too: no other encoding has that character.
        let (bytes, behind) = conversion.run(rest.as_bytes());
        written.extend(bytes);
        let behind = rest.get(rest.len() - behind.len()..).unwrap_or_default();
        let mut chars = behind.chars();
        let Some(char) = chars.next() else {
            return written;
        };
        other(char, &mut written);
        rest = chars.as_str();
    }
}

/// UTF-8 in the database's encoding, NUL-terminated, in the current memory context.
pub fn to_server(text: &str) -> *mut c_char {
    terminated(&bytes_to_server(text))
}

/// As [`to_server`], for text in which every character counts, such as a statement.
pub fn to_server_exactly(text: &str) -> Result<*mut c_char, EncodingError> {
    exact(text).map(|bytes| terminated(&bytes))
}

fn terminated(bytes: &[u8]) -> *mut c_char {
    // SAFETY: copies as many bytes as there are.
    unsafe { pg_sys::pnstrdup(bytes.as_ptr().cast(), bytes.len() as pg_sys::Size) }
}

pub struct DatabaseText<T>(pub T);

impl<T: AsRef<str>> IntoDatum for DatabaseText<T> {
    fn into_datum(self) -> Option<pg_sys::Datum> {
        let bytes = bytes_to_server(self.0.as_ref());
        let length = i32::try_from(bytes.len()).ok()?;
        // SAFETY: copies as many bytes as there are.
        let text = unsafe { pg_sys::cstring_to_text_with_len(bytes.as_ptr().cast(), length) };
        Some(text.into())
    }

    fn type_oid() -> pg_sys::Oid {
        pg_sys::TEXTOID
    }
}

/// A JSON text as a value of type jsonb for SQL.
pub struct Json(pub String);

impl IntoDatum for Json {
    fn into_datum(self) -> Option<pg_sys::Datum> {
        let text = to_server(&self.0);
        // SAFETY: NUL-terminated, JSON.
        Some(unsafe {
            pg_sys::OidInputFunctionCall(pg_sys::F_JSONB_IN.into(), text, pg_sys::InvalidOid, -1)
        })
    }

    fn type_oid() -> pg_sys::Oid {
        pg_sys::JSONBOID
    }
}

fn database_encoding() -> i32 {
    // SAFETY: a variable of this process.
    unsafe { pg_sys::GetDatabaseEncoding() }
}

/// Whether bytes are valid text in the database's encoding.
fn is_valid(bytes: &[u8]) -> bool {
    let Ok(length) = i32::try_from(bytes.len()) else {
        return false;
    };
    // SAFETY: as many bytes as there are; raises no error.
    unsafe { pg_sys::pg_verify_mbstr(database_encoding(), bytes.as_ptr().cast(), length, true) }
}

/// The length of the first character in bytes, at most as many as there are.
fn first_length(encoding: i32, bytes: &[u8]) -> usize {
    // Four bytes are enough to tell. No encoding has a character with a NUL in it.
    let mut first = [0_u8; 5];
    for (to, from) in first.iter_mut().zip(bytes.iter().take(4)) {
        *to = *from;
    }
    // SAFETY: NUL-terminated.
    let length = unsafe { pg_sys::pg_encoding_mblen(encoding, first.as_ptr().cast()) };
    usize::try_from(length).unwrap_or(1).max(1).min(bytes.len())
}

/// A conversion function of PostgreSQL.
struct Conversion {
    function: pg_sys::Oid,
    from: i32,
    to: i32,
}

impl Conversion {
    /// `None` if there is no such function, or if the catalogs cannot be read.
    fn find(from: i32, to: i32) -> Option<Self> {
        // SAFETY: in a transaction, as is checked first.
        let function = unsafe {
            if from == to || !pg_sys::IsTransactionState() {
                return None;
            }
            pg_sys::FindDefaultConversionProc(from, to)
        };
        (function != pg_sys::InvalidOid).then_some(Self { function, from, to })
    }

    /// Converts the beginning of a text. Also returns the rest: nothing, or text that
    /// begins with a character that cannot be converted.
    fn run<'a>(&self, text: &'a [u8]) -> (Vec<u8>, &'a [u8]) {
        let room = (text.len() + 2) * GROWTH;
        let (Ok(length), Ok(size)) = (i32::try_from(text.len()), i32::try_from(room)) else {
            return (Vec::new(), text);
        };
        let source = terminated(text);
        let mut converted = vec![0_u8; room];
        // SAFETY: as many bytes as there are, and room for their conversion. The text
        // raises no error; any other error ends the statement. What is written is
        // NUL-terminated.
        let (consumed, written) = unsafe {
            let consumed = pg_sys::pg_do_encoding_conversion_buf(
                self.function,
                self.from,
                self.to,
                source.cast(),
                length,
                converted.as_mut_ptr(),
                size,
                true,
            );
            pg_sys::pfree(source.cast());
            let written = CStr::from_ptr(converted.as_ptr().cast()).to_bytes().len();
            (consumed, written)
        };
        converted.truncate(written);
        let consumed = usize::try_from(consumed).unwrap_or(0);
        (converted, text.get(consumed..).unwrap_or_default())
    }
}
