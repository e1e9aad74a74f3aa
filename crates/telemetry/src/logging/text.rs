//! Lines as klog writes them.
//!
//! `I1115 02:36:39.200307   12345 pass.rs:42] "Made a route" controller="node-route-controller" range="10.0.0.0/24" id=7`:
//! severity, month and day, local time, process, place, message, fields. Nothing but the first word and the place differs
//! from line to line in form, so it can be taken apart by position.

use std::fmt::Write as _;

use jiff::Zoned;
use tracing::Level;

use super::fields::{Fields, Value};
use super::place::Place;

/// Writes one line.
pub(super) fn write(line: &mut String, place: &Place<'_>, fields: &Fields, now: &Zoned, process: u32) {
    header(line, place, now, process);
    if place.is_as_written {
        line.push_str(fields.message());
    } else {
        quote(line, fields.message());
    }
    for (name, value) in fields.iter() {
        let _ = write!(line, " {name}=");
        match value {
            Value::Bare(text) => line.push_str(text),
            Value::Text(text) if text.contains('\n') => block(line, text),
            Value::Text(text) => quote(line, text),
        }
    }
    line.push('\n');
}

fn header(line: &mut String, place: &Place<'_>, now: &Zoned, process: u32) {
    let (month, day, hour, minute, second) = (now.month(), now.day(), now.hour(), now.minute(), now.second());
    let micros = now.subsec_nanosecond() / 1000;
    let (severity, file, number) = (severity(place.level), file(place.path), place.line);
    let _ = write!(
        line,
        "{severity}{month:02}{day:02} {hour:02}:{minute:02}:{second:02}.{micros:06} {process:>7} {file}:{number}] "
    );
}

/// Klog's letters; its F is for what ends the process, and here that is an error.
fn severity(level: Level) -> char {
    match level {
        Level::ERROR => 'E',
        Level::WARN => 'W',
        _ => 'I',
    }
}

/// The name of the file, as klog has it. A `mod.rs` says nothing without its folder.
fn file(path: &str) -> &str {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    if name != "mod.rs" {
        return name;
    }
    let start = folder.rfind('/').map_or(0, |slash| slash + 1);
    path.get(start..).unwrap_or(name)
}

/// As Go quotes a string.
fn quote(line: &mut String, text: &str) {
    line.push('"');
    for character in text.chars() {
        match character {
            '"' => line.push_str("\\\""),
            '\\' => line.push_str("\\\\"),
            character => visible(line, character),
        }
    }
    line.push('"');
}

/// What a terminal would obey is written so that it can be read.
fn visible(line: &mut String, character: char) {
    match character {
        '\n' => line.push_str("\\n"),
        '\r' => line.push_str("\\r"),
        '\t' => line.push_str("\\t"),
        character if character.is_ascii_control() => {
            let _ = write!(line, "\\x{:02x}", u32::from(character));
        }
        character if character.is_control() => {
            let _ = write!(line, "\\u{:04x}", u32::from(character));
        }
        character => line.push(character),
    }
}

/// Several lines stay several lines; each is indented, so that none can be taken for a line of the log.
fn block(line: &mut String, text: &str) {
    line.push_str("<\n");
    for part in text.strip_suffix('\n').unwrap_or(text).split('\n') {
        line.push('\t');
        for character in part.trim_end_matches('\r').chars() {
            if character == '\t' { line.push(character) } else { visible(line, character) }
        }
        line.push('\n');
    }
    line.push_str(" >");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_quoted_as_in_go() {
        let cases = [
            ("plain", r#""plain""#),
            ("with \"quotes\" and \\", r#""with \"quotes\" and \\""#),
            ("two\nlines\tand\r", r#""two\nlines\tand\r""#),
            ("\u{1b}[31mred\u{7f}", r#""\x1b[31mred\x7f""#),
            ("\u{85}", r#""\u0085""#),
            ("größer ≥", "\"größer ≥\""),
        ];
        for (text, wanted) in cases {
            let mut line = String::new();
            quote(&mut line, text);
            assert_eq!(line, wanted, "{text:?}");
        }
    }

    #[test]
    fn several_lines_are_indented() {
        for text in ["one\ntwo", "one\ntwo\n"] {
            let mut line = String::new();
            block(&mut line, text);
            assert_eq!(line, "<\n\tone\n\ttwo\n >", "{text:?}");
        }
        let mut line = String::new();
        block(&mut line, "one\r\n\ttwo\rE1115 forged\u{1b}[2J");
        assert_eq!(line, "<\n\tone\n\t\ttwo\\rE1115 forged\\x1b[2J\n >");
    }
}
