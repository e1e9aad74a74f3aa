//! Formats text as Go does, for messages that must match those of kube-apiserver exactly.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Quotes a string as Go's `%q` does.
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

/// Quotes a byte in single quotes. Go treats the byte as a character, so 0x81 is `'\u0081'`.
pub(crate) fn quote_byte(byte: u8) -> String {
    let mut out = String::from("'");
    match byte {
        b'\'' => out.push_str("\\'"),
        byte => push_escaped(&mut out, char::from(byte)),
    }
    out.push('\'');
    out
}

/// The error that a function of Go's `strconv` returns for an invalid number.
pub(crate) fn number_error(function: &str, text: &str, error: &std::num::ParseIntError) -> String {
    use std::num::IntErrorKind::{NegOverflow, PosOverflow};
    let why = match error.kind() {
        PosOverflow | NegOverflow => "value out of range",
        _ => "invalid syntax",
    };
    format!("strconv.{function}: parsing {}: {why}", quote(text))
}

/// The error of Go's `time.ParseDuration`; `None` for a valid duration (`1h30m`, `-1.5s`, `0`).
pub(crate) fn duration_error(text: &str) -> Option<String> {
    let invalid = || Some(format!("time: invalid duration {}", quote(text)));
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    match rest {
        "0" => return None,
        "" => return invalid(),
        _ => {}
    }
    while !rest.is_empty() {
        let number = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').len();
        let (digits, tail) = rest.split_at(number);
        if !digits.contains(|c: char| c.is_ascii_digit()) || digits.matches('.').count() > 1 {
            return invalid();
        }
        let end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(end);
        match unit {
            "" => return Some(format!("time: missing unit in duration {}", quote(text))),
            "ns" | "us" | "µs" | "μs" | "ms" | "s" | "m" | "h" => rest = tail,
            _ => return Some(format!("time: unknown unit {} in duration {}", quote(unit), quote(text))),
        }
    }
    None
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
    // Writing to a String cannot fail.
    let _ = match u32::from(c) {
        code @ (0..=0x1f | 0x7f) => write!(out, "\\x{code:02x}"),
        code @ 0..=0xffff => write!(out, "\\u{code:04x}"),
        code => write!(out, "\\U{code:08x}"),
    };
}

/// Outside ASCII, Rust and Go agree on printable characters, except that Rust needs a letter before a combining mark.
pub(crate) fn is_printable(c: char) -> bool {
    match c.is_ascii() {
        true => (' '..='~').contains(&c),
        false => String::from_iter(['a', c]).escape_debug().eq(['a', c]),
    }
}

/// Decodes UTF-8 and replaces each invalid byte with one replacement character.
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

/// Parses a decimal number as Go's `strconv.ParseUint` does: digits only, no sign. The error is Go's message.
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
    fn strings_are_quoted_as_in_go() {
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
    fn a_byte_is_quoted_as_a_character() {
        for (byte, quoted) in [(b'b', "'b'"), (b'\'', r"'\''"), (b'"', r#"'"'"#), (0x81, r"'\u0081'"), (0xe9, "'é'")] {
            assert_eq!(quote_byte(byte), quoted);
        }
    }

    #[test]
    fn each_invalid_byte_is_replaced_separately() {
        assert_eq!(valid_text(b"a\xe2\x82z"), "a\u{fffd}\u{fffd}z");
        assert_eq!(valid_text("é".as_bytes()), "é");
    }

    #[test]
    fn only_digits_within_range_are_numbers() {
        assert_eq!(parse_uint("007"), Ok(7));
        for odd in ["", "+5", "-1", "1_0", "x"] {
            let wanted = format!("strconv.ParseUint: parsing {odd:?}: invalid syntax");
            assert_eq!(parse_uint(odd), Err(wanted));
        }
        let huge = "99999999999999999999";
        assert_eq!(parse_uint(huge), Err(format!("strconv.ParseUint: parsing {huge:?}: value out of range")));
    }

    #[test]
    fn durations_are_validated_as_in_go() {
        for good in ["32s", "1h30m", "-1.5s", "+5ms", "0", "1.s", ".5h", "1µs"] {
            assert_eq!(duration_error(good), None, "{good}");
        }
        for (bad, want) in [
            ("abc", "time: invalid duration \"abc\""),
            ("-", "time: invalid duration \"-\""),
            (".s", "time: invalid duration \".s\""),
            ("1..5s", "time: invalid duration \"1..5s\""),
            ("5", "time: missing unit in duration \"5\""),
            ("5x", "time: unknown unit \"x\" in duration \"5x\""),
        ] {
            assert_eq!(duration_error(bad).as_deref(), Some(want), "{bad}");
        }
    }
}
