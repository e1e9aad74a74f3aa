//! Log lines in klog's text format.
//!
//! `I1115 02:36:39.200307   12345 sync.rs:42] "Created route" controller="node-route-controller" range="10.0.0.0/24" id=7`:
//! severity, month and day, local time, process ID, source location, message, fields. The header has fixed columns, so that it can
//! be parsed by position.

use std::fmt::Write as _;

use jiff::Zoned;
use tracing::Level;

use super::callsite::Callsite;
use super::fields::{Fields, Value};

/// Writes one line.
pub(super) fn write(line: &mut String, callsite: &Callsite<'_>, fields: &Fields, now: &Zoned, process: u32) {
    header(line, callsite, now, process);
    if callsite.is_as_written {
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

fn header(line: &mut String, callsite: &Callsite<'_>, now: &Zoned, process: u32) {
    let (month, day, hour, minute, second) = (now.month(), now.day(), now.hour(), now.minute(), now.second());
    let micros = now.subsec_nanosecond() / 1000;
    let (severity, file, number) = (severity(callsite.level), file(callsite.path), callsite.line);
    let _ = write!(
        line,
        "{severity}{month:02}{day:02} {hour:02}:{minute:02}:{second:02}.{micros:06} {process:>7} {file}:{number}] "
    );
}

/// Severity letters of klog. Its F, for fatal errors, is an E here.
fn severity(level: Level) -> char {
    match level {
        Level::ERROR => 'E',
        Level::WARN => 'W',
        _ => 'I',
    }
}

/// File name, as in klog; `mod.rs` with its directory.
fn file(path: &str) -> &str {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    if name != "mod.rs" {
        return name;
    }
    let start = folder.rfind('/').map_or(0, |slash| slash + 1);
    path.get(start..).unwrap_or(name)
}

/// Quotes a string as Go does.
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

/// Escapes control characters.
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

/// Writes a multi-line value with indented lines, so that none looks like a log line.
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
        for (text, expected) in cases {
            let mut line = String::new();
            quote(&mut line, text);
            assert_eq!(line, expected, "{text:?}");
        }
    }

    #[test]
    fn multi_line_values_are_indented() {
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
