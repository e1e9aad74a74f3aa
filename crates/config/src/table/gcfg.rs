//! From text to parts. A line that cannot be read is told and left out, so that all of them are told at once.
//!
//! Messages never quote a value: it may be a credential.

use std::iter::Peekable;
use std::path::Path;
use std::str::Chars;

use super::declared::Format;
use super::document::{Entry, Part, Shape};
use crate::{ConfigError, ConfigErrors};

/// Reads the whole text: what can be read of it, and what cannot.
pub(super) fn parse(file: &Path, text: &str) -> (Vec<Part>, ConfigErrors) {
    // upstream: a byte order mark is a syntax error. Editors write it, and nobody sees it.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut reader = Reader { rest: text.chars().peekable(), line: 1, parts: Vec::new() };
    let mut errors = zeros(file, text);
    while let Some(next) = reader.after_blanks() {
        if let Err(wrong) = reader.read_line(next) {
            errors.push(wrong.into_problem(file, reader.parts.last()));
            reader.skip_line();
        }
    }
    (reader.parts, errors)
}

/// Lines with a zero byte, which is nowhere allowed, not even in a comment.
fn zeros(file: &Path, text: &str) -> ConfigErrors {
    let mut errors = ConfigErrors::new();
    for (index, _) in text.split('\n').enumerate().filter(|(_, line)| line.contains('\0')) {
        let problem = ConfigError::file(file, Some(index + 1), "there is a zero byte");
        errors.push(problem.hint("save the file as plain text"));
    }
    errors
}

/// What is wrong with a line.
struct Wrong {
    line: usize,
    key: Option<String>,
    message: String,
    hint: String,
}

impl Wrong {
    fn into_problem(self, file: &Path, part: Option<&Part>) -> ConfigError {
        let problem = ConfigError::file(file, Some(self.line), self.message).hint(self.hint);
        match (self.key, part) {
            (Some(key), Some(part)) => problem.field(Format::Gcfg.field(&part.name, part.own_name.as_deref(), &key)),
            (Some(key), None) => problem.field(key),
            (None, _) => problem,
        }
    }
}

const HEADS: &str = "write [Name] or [Name \"own name\"]";

struct Reader<'a> {
    rest: Peekable<Chars<'a>>,
    /// That of the next character.
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

    /// The next character that is no blank, which stays. A line's end is none.
    fn after_blanks(&mut self) -> Option<char> {
        while self.peek().is_some_and(is_blank) {
            self.next();
        }
        self.peek()
    }

    /// The end of the line stays.
    fn skip_line(&mut self) {
        while self.peek().is_some_and(|next| next != '\n') {
            self.next();
        }
    }

    fn wrong(&self, message: impl Into<String>, hint: impl Into<String>) -> Wrong {
        Wrong { line: self.line, key: None, message: message.into(), hint: hint.into() }
    }

    fn read_line(&mut self, first: char) -> Result<(), Wrong> {
        match first {
            '\n' => {
                self.next();
                Ok(())
            }
            ';' | '#' => {
                self.skip_line();
                Ok(())
            }
            '[' => self.head(),
            first if first.is_alphabetic() => self.entry(),
            first => Err(self.wrong(
                format!("a line cannot begin with {first:?}"),
                "a line is [Section], key = value, or a comment behind # or ;",
            )),
        }
    }

    /// Letters, digits and `-`; empty if the next character is no letter.
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

    // ---- [Name "own"]

    fn head(&mut self) -> Result<(), Wrong> {
        let line = self.line;
        self.next();
        // Whatever it is called, what follows is not without a section.
        self.parts.push(Part { name: String::new(), own_name: None, line, entries: Vec::new() });
        self.after_blanks();
        let name = self.name();
        if name.is_empty() {
            return Err(self.wrong("the name of a section begins with a letter", HEADS));
        }
        let own_name = if self.after_blanks() == Some('"') { Some(self.own_name()?) } else { None };
        if self.after_blanks() != Some(']') {
            let message = "the head of a section is a name of letters, digits and '-', and at most one quoted name";
            return Err(self.wrong(message, HEADS));
        }
        self.next();
        if let Some(part) = self.parts.last_mut() {
            (part.name, part.own_name) = (name, own_name);
        }
        match self.after_blanks() {
            None | Some('\n' | ';' | '#') => Ok(()),
            _ => Err(self.wrong("something follows the head of a section", "put it on the next line")),
        }
    }

    fn own_name(&mut self) -> Result<String, Wrong> {
        self.next();
        let mut own = String::new();
        loop {
            match self.peek() {
                Some('"') => break,
                Some('\\') => {
                    self.next();
                    let Some(escaped) = self.peek().filter(|next| matches!(next, '\\' | '"')) else {
                        return Err(
                            self.wrong("the backslash escapes nothing", "write \\\\ or \\\" in a section's name")
                        );
                    };
                    own.push(escaped);
                }
                Some('\n') | None => return Err(self.unended()),
                Some(next) => own.push(next),
            }
            self.next();
        }
        self.next();
        match own.is_empty() {
            true => Err(self.wrong("the quoted name is empty", "write a name between the quotes, or leave them out")),
            false => Ok(own),
        }
    }

    fn unended(&self) -> Wrong {
        self.wrong("a quote does not end on its line", "close it with \", and write a quote inside it as \\\"")
    }

    // ---- key = value

    fn entry(&mut self) -> Result<(), Wrong> {
        let line = self.line;
        let key = self.name();
        if self.parts.is_empty() {
            let wrong = self.wrong("a key stands before any section", "put the section above it, such as [Global]");
            return Err(Wrong { key: Some(key), ..wrong });
        }
        let value = match self.after_blanks() {
            None | Some('\n' | ';' | '#') => None,
            Some('=') => {
                self.next();
                self.after_blanks();
                Some(self.value().map_err(|wrong| Wrong { key: Some(key.clone()), ..wrong })?)
            }
            Some('_') => return Err(self.underscore(key)),
            Some(_) => {
                let wrong =
                    self.wrong("there is no '=' behind the key", "write key = value; a name has no blanks in it");
                return Err(Wrong { key: Some(key), ..wrong });
            }
        };
        if let Some(part) = self.parts.last_mut() {
            part.entries.push(Entry { key, value, line, shape: Shape::Plain });
        }
        Ok(())
    }

    fn underscore(&mut self, mut key: String) -> Wrong {
        while let Some(next) = self.peek().filter(|next| next.is_alphanumeric() || matches!(next, '-' | '_')) {
            key.push(next);
            self.next();
        }
        let hint = format!("write {}", key.replace('_', "-"));
        Wrong { key: Some(key), ..self.wrong("a name cannot have '_' in it", hint) }
    }

    /// Quoted and bare pieces up to a comment or the end of the line, without the blanks at its end.
    fn value(&mut self) -> Result<String, Wrong> {
        let mut value = String::new();
        // How much of it does not end in blanks that are not quoted.
        let mut length = 0;
        loop {
            match self.peek() {
                None | Some('\n' | ';' | '#') => break,
                Some('"') => self.quoted(&mut value)?,
                Some('\\') => self.escape(&mut value)?,
                Some(next) => {
                    self.next();
                    // upstream: a carriage return is nowhere part of a value.
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

    /// Outside quotes: before the end of a line, or before a quote.
    fn escape(&mut self, value: &mut String) -> Result<(), Wrong> {
        self.next();
        if self.peek() == Some('\r') {
            self.next();
        }
        match self.peek() {
            Some('\n') => {}
            Some('"') => value.push('"'),
            _ => {
                let message = "a backslash outside quotes stands at the end of a line or before a quote";
                return Err(self.wrong(message, "put the value in quotes, and write the backslash as \\\\"));
            }
        }
        self.next();
        Ok(())
    }

    fn quoted(&mut self, value: &mut String) -> Result<(), Wrong> {
        self.next();
        loop {
            match self.peek() {
                Some('"') => break,
                Some('\\') => {
                    self.next();
                    value.push(self.quoted_escape()?);
                }
                Some('\n') | None => return Err(self.unended()),
                Some('\r') => {}
                Some(next) => value.push(next),
            }
            self.next();
        }
        self.next();
        Ok(())
    }

    /// What it stands for; the character itself stays.
    fn quoted_escape(&mut self) -> Result<char, Wrong> {
        match self.peek() {
            Some(plain @ ('\\' | '"')) => Ok(plain),
            Some('n') => Ok('\n'),
            Some('t') => Ok('\t'),
            _ => Err(self.wrong("the backslash escapes nothing", "inside quotes write \\\\, \\\", \\n or \\t")),
        }
    }
}

fn is_blank(next: char) -> bool {
    matches!(next, ' ' | '\t' | '\r')
}

/// A decimal digit of any script.
fn is_digit(next: char) -> bool {
    next.is_ascii_digit() || (!next.is_ascii() && next.is_numeric())
}
