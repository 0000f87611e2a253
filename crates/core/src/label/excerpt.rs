//! What an error message shows of a text that a caller has given.

use std::borrow::Cow;

/// The most bytes. A message goes to the server's log, where a role without any privilege
/// could write as much as a text may have.
const MOST: usize = 40;

/// The text, or its beginning and an ellipsis.
pub fn excerpt(text: &str) -> Cow<'_, str> {
    cut(text, MOST)
}

/// The text, or its first bytes and an ellipsis.
pub fn cut(text: &str, most: usize) -> Cow<'_, str> {
    if text.len() <= most {
        return Cow::Borrowed(text);
    }
    let end = (0..=most).rev().find(|end| text.is_char_boundary(*end));
    let shown = end.and_then(|end| text.get(..end)).unwrap_or_default();
    Cow::Owned(format!("{shown}..."))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::excerpt;

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(excerpt(&"a".repeat(40)), "a".repeat(40));
        assert_eq!(excerpt(&"a".repeat(41)), format!("{}...", "a".repeat(40)));
        let text = format!("a{}", "é".repeat(20));
        assert_eq!(excerpt(&text), format!("a{}...", "é".repeat(19)));
        assert_eq!(excerpt(""), "");
    }
}
