//! Text the way Go prints it, where a message must read exactly as the real server's.

use std::borrow::Cow;
use std::fmt::Write as _;

/// A text in quotes, as `%q` writes it.
pub(crate) fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            c => push_escaped(&mut out, c),
        }
    }
    out.push('"');
    out
}

/// A byte in single quotes. Go takes the byte for a character of its own, so 0x81 is `'\u0081'`.
pub(crate) fn quote_byte(byte: u8) -> String {
    let mut out = String::from("'");
    match byte {
        b'\'' => out.push_str("\\'"),
        byte => push_escaped(&mut out, char::from(byte)),
    }
    out.push('\'');
    out
}

/// Why a text is no number, as the function of `strconv` says it.
pub(crate) fn number_error(function: &str, text: &str, error: &std::num::ParseIntError) -> String {
    use std::num::IntErrorKind::{NegOverflow, PosOverflow};
    let why = match error.kind() {
        PosOverflow | NegOverflow => "value out of range",
        _ => "invalid syntax",
    };
    format!("strconv.{function}: parsing {}: {why}", quote(text))
}

fn push_escaped(out: &mut String, c: char) {
    let short = match c {
        '\\' => "\\\\",
        '\u{7}' => "\\a",
        '\u{8}' => "\\b",
        '\u{c}' => "\\f",
        '\n' => "\\n",
        '\r' => "\\r",
        '\t' => "\\t",
        '\u{b}' => "\\v",
        c if is_printable(c) => return out.push(c),
        c => return push_code(out, c),
    };
    out.push_str(short);
}

fn push_code(out: &mut String, c: char) {
    // Writing into a String cannot fail.
    let _ = match u32::from(c) {
        code @ (0..=0x1f | 0x7f) => write!(out, "\\x{code:02x}"),
        code @ 0..=0xffff => write!(out, "\\u{code:04x}"),
        code => write!(out, "\\U{code:08x}"),
    };
}

/// Beyond ASCII, Rust's idea of "printable" is Go's, except that a mark needs a letter before it.
pub(crate) fn is_printable(c: char) -> bool {
    match c.is_ascii() {
        true => (' '..='~').contains(&c),
        false => String::from_iter(['a', c]).escape_debug().eq(['a', c]),
    }
}

/// Bytes as text; every byte that is not part of valid UTF-8 becomes one replacement character.
pub(crate) fn valid_text(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(bytes.len() + 8);
    for chunk in bytes.utf8_chunks() {
        out.push_str(chunk.valid());
        out.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    Cow::Owned(out)
}

/// Reads a decimal number the way Go does: digits only, no sign. The error is in Go's words.
pub(crate) fn parse_uint(text: &str) -> Result<u64, String> {
    let digits_only = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let why = match text.parse::<u64>() {
        Ok(number) if digits_only => return Ok(number),
        Err(_) if digits_only => "value out of range",
        _ => "invalid syntax",
    };
    Err(format!("strconv.ParseUint: parsing {}: {why}", quote(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_escape_what_go_escapes() {
        for (text, quoted) in [
            ("plain 'text'", r#""plain 'text'""#),
            ("a\"b\\c", r#""a\"b\\c""#),
            ("tab\tbell\u{7}nul\0", r#""tab\tbell\anul\x00""#),
            ("é\u{81}\u{feff}", r#""é\u0081\ufeff""#),
            ("e\u{301}\u{a0}", "\"e\u{301}\\u00a0\""),
            ("\u{e0001}", r#""\U000e0001""#),
        ] {
            assert_eq!(quote(text), quoted);
        }
    }

    #[test]
    fn bytes_are_characters_of_their_own() {
        for (byte, quoted) in [(b'b', "'b'"), (b'\'', r"'\''"), (b'"', r#"'"'"#), (0x81, r"'\u0081'"), (0xe9, "'é'")] {
            assert_eq!(quote_byte(byte), quoted);
        }
    }

    #[test]
    fn each_invalid_byte_is_replaced_alone() {
        assert_eq!(valid_text(b"a\xe2\x82z"), "a\u{fffd}\u{fffd}z");
        assert_eq!(valid_text("é".as_bytes()), "é");
    }

    #[test]
    fn numbers_are_digits_that_fit() {
        assert_eq!(parse_uint("007"), Ok(7));
        for odd in ["", "+5", "-1", "1_0", "x"] {
            let wanted = format!("strconv.ParseUint: parsing {odd:?}: invalid syntax");
            assert_eq!(parse_uint(odd), Err(wanted));
        }
        let huge = "99999999999999999999";
        assert_eq!(parse_uint(huge), Err(format!("strconv.ParseUint: parsing {huge:?}: value out of range")));
    }
}
