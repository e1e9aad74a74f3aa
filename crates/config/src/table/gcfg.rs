//! gcfg parser. An invalid line is reported and skipped, so that all errors are reported at once.
//!
//! Error messages never quote a value, because it may be a credential.

use std::iter::Peekable;
use std::path::Path;
use std::str::Chars;

use super::declared::Format;
use super::document::{Entry, Part, Shape};
use crate::{ConfigError, ConfigErrors};

/// Parses the whole text. Returns the valid parts and all errors.
pub(super) fn parse(file: &Path, text: &str) -> (Vec<Part>, ConfigErrors) {
    // upstream: a byte order mark is a syntax error. Editors write it invisibly, so Bowline accepts it.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut reader = Reader { rest: text.chars().peekable(), line: 1, parts: Vec::new() };
    let mut errors = nul_bytes(file, text);
    while let Some(next) = reader.skip_blanks() {
        if let Err(error) = reader.read_line(next) {
            errors.push(error.into_config_error(file, reader.parts.last()));
            reader.skip_line();
        }
    }
    (reader.parts, errors)
}

/// Returns an error for each line with a NUL byte, which is not allowed anywhere, not even in a comment.
fn nul_bytes(file: &Path, text: &str) -> ConfigErrors {
    let mut errors = ConfigErrors::new();
    for (index, _) in text.split('\n').enumerate().filter(|(_, line)| line.contains('\0')) {
        let error = ConfigError::file(file, Some(index + 1), "the line contains a NUL byte");
        errors.push(error.hint("save the file as plain text"));
    }
    errors
}

/// A syntax error.
struct SyntaxError {
    line: usize,
    key: Option<String>,
    message: String,
    hint: String,
}

impl SyntaxError {
    fn into_config_error(self, file: &Path, part: Option<&Part>) -> ConfigError {
        let error = ConfigError::file(file, Some(self.line), self.message).hint(self.hint);
        match (self.key, part) {
            (Some(key), Some(part)) => error.field(Format::Gcfg.field(&part.name, part.subsection.as_deref(), &key)),
            (Some(key), None) => error.field(key),
            (None, _) => error,
        }
    }
}

const HEADER_HINT: &str = "write [Name] or [Name \"subsection\"]";

struct Reader<'a> {
    rest: Peekable<Chars<'a>>,
    /// Line of the next character.
    line: usize,
    parts: Vec<Part>,
}

impl Reader<'_> {
    fn peek(&mut self) -> Option<char> {
        self.rest.peek().copied()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.rest.next();
        self.line += usize::from(next == Some('\n'));
        next
    }

    /// Skips whitespace except line ends, and returns the next character without consuming it.
    fn skip_blanks(&mut self) -> Option<char> {
        while self.peek().is_some_and(is_blank) {
            self.next();
        }
        self.peek()
    }

    /// Skips the rest of the line, without the line end.
    fn skip_line(&mut self) {
        while self.peek().is_some_and(|next| next != '\n') {
            self.next();
        }
    }

    fn error(&self, message: impl Into<String>, hint: impl Into<String>) -> SyntaxError {
        SyntaxError { line: self.line, key: None, message: message.into(), hint: hint.into() }
    }

    fn read_line(&mut self, first: char) -> Result<(), SyntaxError> {
        match first {
            '\n' => {
                self.next();
                Ok(())
            }
            ';' | '#' => {
                self.skip_line();
                Ok(())
            }
            '[' => self.header(),
            first if first.is_alphabetic() => self.entry(),
            first => Err(self.error(
                format!("a line cannot begin with {first:?}"),
                "write [Section], key = value, or a comment after # or ;",
            )),
        }
    }

    /// Reads a name of letters, digits and `-`; empty if the next character is not a letter.
    fn name(&mut self) -> String {
        let mut name = String::new();
        if !self.peek().is_some_and(char::is_alphabetic) {
            return name;
        }
        while let Some(next) = self.peek().filter(|next| next.is_alphabetic() || is_digit(*next) || *next == '-') {
            name.push(next);
            self.next();
        }
        name
    }

    // ---- [Name "subsection"]

    fn header(&mut self) -> Result<(), SyntaxError> {
        let line = self.line;
        self.next();
        // Even if the header is invalid, the following entries are not outside any section.
        self.parts.push(Part { name: String::new(), subsection: None, line, entries: Vec::new() });
        self.skip_blanks();
        let name = self.name();
        if name.is_empty() {
            return Err(self.error("a section name must begin with a letter", HEADER_HINT));
        }
        let subsection = if self.skip_blanks() == Some('"') { Some(self.subsection()?) } else { None };
        if self.skip_blanks() != Some(']') {
            let message =
                "a section header has a name of letters, digits and '-', and at most one quoted subsection name";
            return Err(self.error(message, HEADER_HINT));
        }
        self.next();
        if let Some(part) = self.parts.last_mut() {
            (part.name, part.subsection) = (name, subsection);
        }
        match self.skip_blanks() {
            None | Some('\n' | ';' | '#') => Ok(()),
            _ => Err(self.error("unexpected text after the section header", "move it to the next line")),
        }
    }

    fn subsection(&mut self) -> Result<String, SyntaxError> {
        self.next();
        let mut name = String::new();
        loop {
            match self.peek() {
                Some('"') => break,
                Some('\\') => {
                    self.next();
                    let Some(escaped) = self.peek().filter(|next| matches!(next, '\\' | '"')) else {
                        return Err(self.error("invalid escape sequence", "write \\\\ or \\\" in a subsection name"));
                    };
                    name.push(escaped);
                }
                Some('\n') | None => return Err(self.unterminated_quote()),
                Some(next) => name.push(next),
            }
            self.next();
        }
        self.next();
        match name.is_empty() {
            true => Err(self.error("the subsection name is empty", "write a name between the quotes, or remove them")),
            false => Ok(name),
        }
    }

    fn unterminated_quote(&self) -> SyntaxError {
        self.error("the quote is not closed on its line", "close it with \", and write a quote inside it as \\\"")
    }

    // ---- key = value

    fn entry(&mut self) -> Result<(), SyntaxError> {
        let line = self.line;
        let key = self.name();
        if self.parts.is_empty() {
            let error = self.error("the key is outside any section", "write the section above it, such as [Global]");
            return Err(SyntaxError { key: Some(key), ..error });
        }
        let value = match self.skip_blanks() {
            None | Some('\n' | ';' | '#') => None,
            Some('=') => {
                self.next();
                self.skip_blanks();
                Some(self.value().map_err(|error| SyntaxError { key: Some(key.clone()), ..error })?)
            }
            Some('_') => return Err(self.underscore(key)),
            Some(_) => {
                let error = self.error("expected '=' after the key", "write key = value; a key contains no whitespace");
                return Err(SyntaxError { key: Some(key), ..error });
            }
        };
        if let Some(part) = self.parts.last_mut() {
            part.entries.push(Entry { key, value, line, shape: Shape::Plain });
        }
        Ok(())
    }

    fn underscore(&mut self, mut key: String) -> SyntaxError {
        while let Some(next) = self.peek().filter(|next| next.is_alphanumeric() || matches!(next, '-' | '_')) {
            key.push(next);
            self.next();
        }
        let hint = format!("write {}", key.replace('_', "-"));
        SyntaxError { key: Some(key), ..self.error("a key must not contain '_'", hint) }
    }

    /// Reads quoted and bare parts up to a comment or the end of the line, without trailing whitespace.
    fn value(&mut self) -> Result<String, SyntaxError> {
        let mut value = String::new();
        // Length without trailing unquoted whitespace.
        let mut length = 0;
        loop {
            match self.peek() {
                None | Some('\n' | ';' | '#') => break,
                Some('"') => self.quoted(&mut value)?,
                Some('\\') => self.escape(&mut value)?,
                Some(next) => {
                    self.next();
                    // upstream: a carriage return is never part of a value.
                    value.extend(Some(next).filter(|next| *next != '\r'));
                    if is_blank(next) {
                        continue;
                    }
                }
            }
            length = value.len();
        }
        value.truncate(length);
        Ok(value)
    }

    /// Reads an escape outside quotes: a line continuation or an escaped quote.
    fn escape(&mut self, value: &mut String) -> Result<(), SyntaxError> {
        self.next();
        if self.peek() == Some('\r') {
            self.next();
        }
        match self.peek() {
            Some('\n') => {}
            Some('"') => value.push('"'),
            _ => {
                let message = "a backslash outside quotes must be at the end of a line or before a quote";
                return Err(self.error(message, "put the value in quotes, and write the backslash as \\\\"));
            }
        }
        self.next();
        Ok(())
    }

    fn quoted(&mut self, value: &mut String) -> Result<(), SyntaxError> {
        self.next();
        loop {
            match self.peek() {
                Some('"') => break,
                Some('\\') => {
                    self.next();
                    value.push(self.quoted_escape()?);
                }
                Some('\n') | None => return Err(self.unterminated_quote()),
                Some('\r') => {}
                Some(next) => value.push(next),
            }
            self.next();
        }
        self.next();
        Ok(())
    }

    /// Returns the character that an escape in quotes stands for, without consuming the input.
    fn quoted_escape(&mut self) -> Result<char, SyntaxError> {
        match self.peek() {
            Some(plain @ ('\\' | '"')) => Ok(plain),
            Some('n') => Ok('\n'),
            Some('t') => Ok('\t'),
            _ => Err(self.error("invalid escape sequence", "inside quotes write \\\\, \\\", \\n or \\t")),
        }
    }
}

fn is_blank(next: char) -> bool {
    matches!(next, ' ' | '\t' | '\r')
}

/// Returns whether the character is a decimal digit of any script.
fn is_digit(next: char) -> bool {
    next.is_ascii_digit() || (!next.is_ascii() && next.is_numeric())
}
