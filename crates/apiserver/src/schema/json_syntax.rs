//! What the real server says about text that is not JSON, and what it makes of text that is only just JSON.
//!
//! serde_json does the decoding. It is asked here only after it refused a text: either that text is broken, and the
//! scanner finds Go's words for it, or Go would have taken it (invalid UTF-8, half a surrogate pair) and it can be
//! repaired.

use crate::go_text;

/// Go refuses anything deeper.
const MAX_DEPTH: usize = 10_000;
/// The replacement character, escaped.
const REPLACEMENT: &str = "\\ufffd";
const UNEXPECTED_END: &str = "unexpected end of JSON input";

/// The error Go's `encoding/json` reports for a text, or `None` if it is well-formed.
pub(crate) fn go_syntax_error(text: &[u8]) -> Option<String> {
    Scanner { text, at: 0, open: Vec::new() }.document().err()
}

/// What an object or array that is still open waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Open {
    Object,
    Array,
}

struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
    open: Vec<Open>,
}

type Scan = Result<(), String>;

impl Scanner<'_> {
    /// The next byte. Go ends every text with a blank, which then shows up in messages.
    fn peek(&self) -> Option<u8> {
        match self.text.get(self.at) {
            None if self.at == self.text.len() => Some(b' '),
            byte => byte.copied(),
        }
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    fn unexpected(&self, context: &str) -> String {
        match self.peek() {
            Some(byte) => format!("invalid character {} {context}", go_text::quote_byte(byte)),
            None => UNEXPECTED_END.to_owned(),
        }
    }

    /// Takes the next byte if `wanted` says so.
    fn expect(&mut self, wanted: impl Fn(u8) -> bool, context: &str) -> Scan {
        match self.peek() {
            Some(byte) if wanted(byte) => {
                self.at += 1;
                Ok(())
            }
            _ => Err(self.unexpected(context)),
        }
    }

    fn document(mut self) -> Scan {
        self.value()?;
        while let Some(open) = self.open.last() {
            match open {
                Open::Object => self.after_member()?,
                Open::Array => self.after_element()?,
            }
        }
        self.skip_space();
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.unexpected("after top-level value")),
        }
    }

    /// A whole scalar or empty container; of others, the way to their first value and that value.
    fn value(&mut self) -> Scan {
        loop {
            self.skip_space();
            match self.peek() {
                Some(b'{') => {
                    self.enter(Open::Object)?;
                    self.skip_space();
                    if self.peek() == Some(b'}') {
                        return self.leave();
                    }
                    self.key()?;
                }
                Some(b'[') => {
                    self.enter(Open::Array)?;
                    self.skip_space();
                    if self.peek() == Some(b']') {
                        return self.leave();
                    }
                }
                _ => return self.scalar(),
            }
        }
    }

    fn enter(&mut self, open: Open) -> Scan {
        if self.open.len() == MAX_DEPTH {
            return Err(self.unexpected("exceeded max depth"));
        }
        self.at += 1;
        self.open.push(open);
        Ok(())
    }

    fn leave(&mut self) -> Scan {
        self.at += 1;
        self.open.pop();
        Ok(())
    }

    fn key(&mut self) -> Scan {
        self.skip_space();
        self.expect(|b| b == b'"', "looking for beginning of object key string")?;
        self.rest_of_string()?;
        self.skip_space();
        self.expect(|b| b == b':', "after object key")
    }

    fn after_member(&mut self) -> Scan {
        self.skip_space();
        match self.peek() {
            Some(b'}') => self.leave(),
            Some(b',') => {
                self.at += 1;
                self.key()?;
                self.value()
            }
            _ => Err(self.unexpected("after object key:value pair")),
        }
    }

    fn after_element(&mut self) -> Scan {
        self.skip_space();
        match self.peek() {
            Some(b']') => self.leave(),
            Some(b',') => {
                self.at += 1;
                self.value()
            }
            _ => Err(self.unexpected("after array element")),
        }
    }

    fn scalar(&mut self) -> Scan {
        match self.peek() {
            Some(b'"') => {
                self.at += 1;
                self.rest_of_string()
            }
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word("true"),
            Some(b'f') => self.word("false"),
            Some(b'n') => self.word("null"),
            _ => Err(self.unexpected("looking for beginning of value")),
        }
    }

    fn rest_of_string(&mut self) -> Scan {
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => {
                    self.at += 1;
                    self.escape()?;
                }
                Some(0..0x20) => return Err(self.unexpected("in string literal")),
                Some(_) => self.at += 1,
                None => return Err(UNEXPECTED_END.to_owned()),
            }
        }
    }

    fn escape(&mut self) -> Scan {
        if self.peek() != Some(b'u') {
            return self.expect(|b| b"bfnrt\\/\"".contains(&b), "in string escape code");
        }
        self.at += 1;
        (0..4).try_for_each(|_| self.expect(|b| b.is_ascii_hexdigit(), "in \\u hexadecimal character escape"))
    }

    fn number(&mut self) -> Scan {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits("in numeric literal")?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits("after decimal point in numeric literal")?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits("in exponent of numeric literal")?;
        }
        Ok(())
    }

    /// At least one digit.
    fn digits(&mut self, context: &str) -> Scan {
        self.expect(|b| b.is_ascii_digit(), context)?;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        Ok(())
    }

    fn word(&mut self, word: &str) -> Scan {
        self.at += 1;
        word.bytes().skip(1).try_for_each(|letter| {
            let context = format!("in literal {word} (expecting '{}')", char::from(letter));
            self.expect(|b| b == letter, &context)
        })
    }
}

/// A well-formed text with everything replaced that Go replaces: bytes that are not UTF-8, and escapes of half a
/// surrogate pair.
pub(super) fn repaired(text: &[u8]) -> String {
    let text = go_text::valid_text(text);
    let mut out = String::with_capacity(text.len());
    let mut rest: &str = &text;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        out.push_str(before);
        let (kept, length) = match hex_escape(escape) {
            Some(unit) => repaired_unit(unit, escape),
            None => (escape.get(..2).unwrap_or(escape), 2),
        };
        out.push_str(kept);
        rest = escape.get(length..).unwrap_or_default();
    }
    out + rest
}

/// What to write for an escaped UTF-16 unit, and how much of the text that covers.
fn repaired_unit(unit: u16, escape: &str) -> (&str, usize) {
    let next = escape.get(6..).and_then(hex_escape);
    match char::decode_utf16([unit].into_iter().chain(next)).next() {
        Some(Ok(c)) => {
            let length = 6 * c.len_utf16();
            (escape.get(..length).unwrap_or(escape), length)
        }
        _ => (REPLACEMENT, 6),
    }
}

/// The unit of `\uXXXX` at the start of the text.
fn hex_escape(text: &str) -> Option<u16> {
    u16::from_str_radix(text.strip_prefix("\\u")?.get(..4)?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        go_syntax_error(text.as_bytes()).unwrap_or_default()
    }

    #[test]
    fn broken_json_is_described_as_go_describes_it() {
        for (text, want) in [
            ("{bad", "invalid character 'b' looking for beginning of object key string"),
            ("", "unexpected end of JSON input"),
            ("  ", "unexpected end of JSON input"),
            ("{} trailing", "invalid character 't' after top-level value"),
            ("nope", "invalid character 'o' in literal null (expecting 'u')"),
            ("tru", "invalid character ' ' in literal true (expecting 'e')"),
            ("{\"a\" 1}", "invalid character '1' after object key"),
            ("{\"a\":1 \"b\"}", "invalid character '\"' after object key:value pair"),
            ("{\"a\":1,}", "invalid character '}' looking for beginning of object key string"),
            ("[1 2]", "invalid character '2' after array element"),
            ("[1,]", "invalid character ']' looking for beginning of value"),
            ("[1", "unexpected end of JSON input"),
            ("{\"a\":[{\"b\":1}", "unexpected end of JSON input"),
            ("\"a\nb\"", "invalid character '\\n' in string literal"),
            ("\"a\\x\"", "invalid character 'x' in string escape code"),
            ("\"\\u12g4\"", "invalid character 'g' in \\u hexadecimal character escape"),
            ("\"open", "unexpected end of JSON input"),
            ("-", "invalid character ' ' in numeric literal"),
            ("1.", "invalid character ' ' after decimal point in numeric literal"),
            ("1e+x", "invalid character 'x' in exponent of numeric literal"),
            ("01", "invalid character '1' after top-level value"),
            ("'a'", "invalid character '\\'' looking for beginning of value"),
            ("\u{feff}{}", "invalid character 'ï' looking for beginning of value"),
        ] {
            assert_eq!(error(text), want, "{text:?}");
        }
        assert_eq!(
            go_syntax_error(b"\x81").as_deref(),
            Some("invalid character '\\u0081' looking for beginning of value")
        );
    }

    #[test]
    fn well_formed_json_has_no_error() {
        for text in ["null", " {} ", "[[],{}]", "{\"a\":[1,-0.5e+3,{\"b\":\"\\u00e9\\n\"}],\"c\":true}", "0"] {
            assert_eq!(error(text), "", "{text}");
        }
    }

    #[test]
    fn depth_is_limited_without_using_the_stack() {
        assert_eq!(error(&"[".repeat(10_001)), "invalid character '[' exceeded max depth");
        assert_eq!(error(&("[".repeat(10_000) + &"]".repeat(10_000))), "");
    }

    #[test]
    fn halves_of_pairs_and_stray_bytes_are_replaced() {
        assert_eq!(repaired(b"\"\\ud800x\\\\ud800\""), "\"\\ufffdx\\\\ud800\"");
        assert_eq!(repaired(b"\"\\ud83d\\ude00\\udc00\""), "\"\\ud83d\\ude00\\ufffd\"");
        assert_eq!(repaired(b"\"a\xffb\\n\""), "\"a\u{fffd}b\\n\"");
    }
}
