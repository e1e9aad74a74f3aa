//! Writes YAML the way the real server does, down to quotes and line breaks.
//!
//! Maps are sorted, lists stand at the column of their key, texts are plain where that is safe, in quotes where it is
//! not, and in a literal block where they hold line breaks. Lines are folded at blanks past column 80.

use std::cmp::Ordering;

use serde_json::{Map, Value};

use super::resolve;

const STEP: usize = 2;
const WIDTH: usize = 80;
/// Longer keys are written with a `?` in front.
const LONG_KEY: usize = 128;

pub(super) fn emit(value: &Value) -> String {
    let mut emitter = Emitter { out: String::new(), column: 0, indent: None, whitespace: true, indention: true };
    emitter.node(value, false);
    emitter.write_indent();
    emitter.out
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    Plain,
    SingleQuoted,
    DoubleQuoted,
    Literal,
}

struct Emitter {
    out: String,
    /// Characters since the last line break.
    column: usize,
    /// `None` before the first collection.
    indent: Option<usize>,
    /// What was written last separates tokens.
    whitespace: bool,
    /// Nothing but indentation and `-`, `?`, `:` stands on this line yet.
    indention: bool,
}

// === Structure ===

impl Emitter {
    fn node(&mut self, value: &Value, in_mapping: bool) {
        match value {
            Value::Object(entries) => self.mapping(entries),
            Value::Array(items) => self.sequence(items, in_mapping),
            Value::String(text) => self.text(text, false),
            Value::Number(number) => self.scalar(&number_text(number), Style::Plain, true),
            other => self.scalar(&other.to_string(), Style::Plain, true),
        }
    }

    fn mapping(&mut self, entries: &Map<String, Value>) {
        if entries.is_empty() {
            self.indicator("{", true, true, false);
            return self.indicator("}", false, false, false);
        }
        let outer = self.indent;
        self.indent = Some(outer.map_or(0, |indent| indent + STEP));
        let mut sorted: Vec<_> = entries.iter().collect();
        sorted.sort_by(|(a, _), (b, _)| natural_order(a, b));
        for (key, value) in sorted {
            self.write_indent();
            self.key(key);
            self.node(value, true);
        }
        self.indent = outer;
    }

    fn key(&mut self, key: &str) {
        if key.len() <= LONG_KEY && !key.contains(is_break) {
            self.text(key, true);
            return self.indicator(":", false, false, false);
        }
        self.indicator("?", true, false, true);
        self.text(key, false);
        self.write_indent();
        self.indicator(":", true, false, true);
    }

    fn sequence(&mut self, items: &[Value], in_mapping: bool) {
        if items.is_empty() {
            self.indicator("[", true, true, false);
            return self.indicator("]", false, false, false);
        }
        let outer = self.indent;
        let step = if in_mapping && !self.indention { 0 } else { STEP };
        self.indent = Some(outer.map_or(0, |indent| indent + step));
        for item in items {
            self.write_indent();
            self.indicator("-", true, false, true);
            self.node(item, false);
        }
        self.indent = outer;
    }

    /// Starts a line at the present indentation, unless we are at such a place already.
    fn write_indent(&mut self) {
        let indent = self.indent.unwrap_or(0);
        if !self.indention || self.column > indent || (self.column == indent && !self.whitespace) {
            self.line_break();
        }
        while self.column < indent {
            self.put(' ');
        }
        self.whitespace = true;
        self.indention = true;
    }

    fn indicator(&mut self, text: &str, need_whitespace: bool, is_whitespace: bool, is_indention: bool) {
        if need_whitespace && !self.whitespace {
            self.put(' ');
        }
        text.chars().for_each(|c| self.put(c));
        self.whitespace = is_whitespace;
        self.indention = self.indention && is_indention;
    }

    fn put(&mut self, c: char) {
        self.out.push(c);
        self.column += 1;
    }

    fn line_break(&mut self) {
        self.out.push('\n');
        self.column = 0;
    }
}

// === Scalars ===

impl Emitter {
    fn text(&mut self, text: &str, simple_key: bool) {
        let wanted = match text {
            _ if text.contains('\n') => Style::Literal,
            _ if resolve::needs_quotes(text) => Style::DoubleQuoted,
            _ => Style::Plain,
        };
        self.scalar(text, Looks::of(text).allowed(wanted, simple_key), !simple_key);
    }

    /// Writes a scalar; its further lines stand one step deeper.
    fn scalar(&mut self, text: &str, style: Style, may_fold: bool) {
        let outer = self.indent;
        self.indent = Some(outer.map_or(STEP, |indent| indent + STEP));
        match style {
            Style::Plain => self.plain(text, may_fold),
            Style::SingleQuoted => self.single_quoted(text, may_fold),
            Style::DoubleQuoted => self.double_quoted(text, may_fold),
            Style::Literal => self.literal(text),
        }
        self.indent = outer;
    }

    fn plain(&mut self, text: &str, may_fold: bool) {
        if !self.whitespace {
            self.put(' ');
        }
        self.folded(text, may_fold, |next, _| next != Some(' '));
        self.whitespace = false;
        self.indention = false;
    }

    fn single_quoted(&mut self, text: &str, may_fold: bool) {
        self.indicator("'", true, false, false);
        self.folded(text, may_fold, |next, first| !first && next.is_some_and(|c| c != ' '));
        self.indicator("'", false, false, false);
        self.whitespace = false;
        self.indention = false;
    }

    /// Writes characters, with a line break in place of some blanks past the width. `foldable` is asked about a blank
    /// that follows no other: what comes next, and whether it is the first character.
    fn folded(&mut self, text: &str, may_fold: bool, foldable: impl Fn(Option<char>, bool) -> bool) {
        let quoted = self.out.ends_with('\'');
        let (mut spaces, mut breaks) = (false, false);
        let mut chars = text.char_indices().peekable();
        while let Some((at, c)) = chars.next() {
            let next = chars.peek().map(|(_, c)| *c);
            if c == ' ' {
                if may_fold && !spaces && self.column > WIDTH && foldable(next, at == 0) {
                    self.write_indent();
                } else {
                    self.put(c);
                }
                spaces = true;
            } else if is_break(c) {
                if !breaks && c == '\n' {
                    self.line_break();
                }
                self.write_break(c);
                self.indention = true;
                breaks = true;
            } else {
                if breaks {
                    self.write_indent();
                }
                if c == '\'' && quoted {
                    self.put('\'');
                }
                self.put(c);
                self.indention = false;
                (spaces, breaks) = (false, false);
            }
        }
    }

    fn double_quoted(&mut self, text: &str, may_fold: bool) {
        self.indicator("\"", true, false, false);
        let mut spaces = false;
        let mut chars = text.char_indices().peekable();
        while let Some((at, c)) = chars.next() {
            let next = chars.peek().map(|(_, c)| *c);
            let folds = may_fold && !spaces && self.column > WIDTH && at > 0 && next.is_some();
            match c {
                ' ' if folds => {
                    self.write_indent();
                    if next == Some(' ') {
                        self.put('\\');
                    }
                }
                c if !is_printable(c) || is_break(c) || matches!(c, '"' | '\\') => self.escaped(c),
                c => self.put(c),
            }
            spaces = c == ' ';
        }
        self.indicator("\"", false, false, false);
        self.whitespace = false;
        self.indention = false;
    }

    fn escaped(&mut self, c: char) {
        let code = u32::from(c);
        let escape = match c {
            '\0' => "\\0".to_owned(),
            '\u{7}' => "\\a".to_owned(),
            '\u{8}' => "\\b".to_owned(),
            '\t' => "\\t".to_owned(),
            '\n' => "\\n".to_owned(),
            '\u{b}' => "\\v".to_owned(),
            '\u{c}' => "\\f".to_owned(),
            '\r' => "\\r".to_owned(),
            '\u{1b}' => "\\e".to_owned(),
            '"' | '\\' => format!("\\{c}"),
            '\u{85}' => "\\N".to_owned(),
            '\u{2028}' => "\\L".to_owned(),
            '\u{2029}' => "\\P".to_owned(),
            _ if code <= 0xff => format!("\\x{code:02X}"),
            _ if code <= 0xffff => format!("\\u{code:04X}"),
            _ => format!("\\U{code:08X}"),
        };
        escape.chars().for_each(|c| self.put(c));
    }

    fn literal(&mut self, text: &str) {
        self.indicator("|", true, false, false);
        if text.starts_with(|c| c == ' ' || is_break(c)) {
            self.indicator("2", false, false, false);
        }
        let mut back = text.chars().rev();
        match (back.next(), back.next()) {
            (Some(last), Some(before)) if is_break(last) && !is_break(before) => {}
            (Some(last), _) if is_break(last) => self.indicator("+", false, false, false),
            _ => self.indicator("-", false, false, false),
        }
        self.line_break();
        self.indention = true;
        self.whitespace = true;
        let mut breaks = true;
        for c in text.chars() {
            if is_break(c) {
                self.write_break(c);
                self.indention = true;
                breaks = true;
                continue;
            }
            if breaks {
                self.write_indent();
            }
            self.put(c);
            self.indention = false;
            breaks = false;
        }
    }

    fn write_break(&mut self, c: char) {
        match c {
            '\n' => self.line_break(),
            c => {
                self.out.push(c);
                self.column = 0;
            }
        }
    }
}

/// What stands in a text that limits how it can be written.
#[derive(Default)]
struct Looks {
    multiline: bool,
    plain: bool,
    single_quoted: bool,
    block: bool,
}

impl Looks {
    fn of(text: &str) -> Looks {
        let first = text.chars().next();
        let last = text.chars().next_back();
        let blank_at_end = last == Some(' ');
        let pairs = || text.chars().zip(text.chars().skip(1));
        let break_then_space = pairs().any(|(a, b)| is_break(a) && b == ' ');
        let space_then_break = pairs().any(|(a, b)| a == ' ' && is_break(b));
        let special = text.chars().any(|c| !is_printable(c)) || space_then_break;
        let multiline = text.contains(is_break);
        let blank_edges = blank_at_end || first == Some(' ');
        Looks {
            multiline,
            plain: !blank_edges && !break_then_space && !special && !multiline && !has_indicators(text),
            single_quoted: !break_then_space && !special,
            block: !blank_at_end && !special && !text.is_empty(),
        }
    }

    /// The wanted style, or the next best that can hold the text.
    fn allowed(&self, wanted: Style, simple_key: bool) -> Style {
        let wanted = if simple_key && self.multiline { Style::DoubleQuoted } else { wanted };
        match wanted {
            Style::Plain if self.plain => Style::Plain,
            Style::Plain | Style::SingleQuoted if self.single_quoted => Style::SingleQuoted,
            Style::Literal if self.block && !simple_key => Style::Literal,
            _ => Style::DoubleQuoted,
        }
    }
}

/// Whether a plain text would be taken for something else by what it starts with or by a `: ` or ` #` inside.
fn has_indicators(text: &str) -> bool {
    if text.starts_with("---") || text.starts_with("...") {
        return true;
    }
    let mut preceded_by_blank = true;
    let mut chars = text.chars().enumerate().peekable();
    while let Some((at, c)) = chars.next() {
        let followed_by_blank = chars.peek().is_none_or(|(_, next)| matches!(next, ' ' | '\t'));
        let found = match c {
            ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%' | '@' | '`' => at == 0,
            '#' => preceded_by_blank,
            ':' => followed_by_blank,
            '?' | '-' => at == 0 && followed_by_blank,
            _ => false,
        };
        if found {
            return true;
        }
        preceded_by_blank = matches!(c, ' ' | '\t' | '\0') || is_break(c);
    }
    false
}

fn is_break(c: char) -> bool {
    matches!(c, '\r' | '\n' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

fn is_printable(c: char) -> bool {
    matches!(c, '\n' | ' '..='~' | '\u{a0}'..='\u{fffd}') && c != '\u{feff}'
}

fn number_text(number: &serde_json::Number) -> String {
    match number.as_f64() {
        Some(float) if number.is_f64() => resolve::go_float(float),
        _ => number.to_string(),
    }
}

/// The order of keys: letters after everything else, and runs of digits by their value.
fn natural_order(a: &str, b: &str) -> Ordering {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let Some(at) = a.iter().zip(&b).position(|(a, b)| a != b) else { return a.len().cmp(&b.len()) };
    let (left, right) = (a[at], b[at]);
    match (left.is_alphabetic(), right.is_alphabetic()) {
        (true, true) => left.cmp(&right),
        (true, false) => Ordering::Greater,
        (false, true) => Ordering::Less,
        (false, false) => {
            let inside_number = (left == '0' || right == '0') && follows_nonzero_digit(&a[..at]);
            let (a, b) = (digit_run(&a[at..], inside_number), digit_run(&b[at..], inside_number));
            a.cmp(&b).then(left.cmp(&right))
        }
    }
}

/// Whether the digits right before a place have one that is not zero.
fn follows_nonzero_digit(before: &[char]) -> bool {
    before.iter().rev().take_while(|c| c.is_ascii_digit()).any(|c| *c != '0')
}

/// The value and length of the digits at the start.
fn digit_run(text: &[char], inside_number: bool) -> (i64, usize) {
    let digits = text.iter().map_while(|c| c.to_digit(10));
    let value = digits.clone().fold(i64::from(inside_number), |n, d| n.wrapping_mul(10).wrapping_add(d.into()));
    (value, digits.count())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn objects_look_like_the_recorded_ones() {
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 404, "reason": "NotFound",
            "message": "configmaps \"none\" not found", "details": {"name": "none", "kind": "configmaps"},
        });
        assert_eq!(
            emit(&status),
            "apiVersion: v1\ncode: 404\ndetails:\n  kind: configmaps\n  name: none\nkind: Status\n\
             message: configmaps \"none\" not found\nmetadata: {}\nreason: NotFound\nstatus: Failure\n"
        );
        let message = "only the following media types are accepted: application/json;stream=watch, \
                       application/vnd.kubernetes.protobuf;stream=watch";
        assert_eq!(
            emit(&json!({"message": message})),
            "message: 'only the following media types are accepted: application/json;stream=watch,\n  \
             application/vnd.kubernetes.protobuf;stream=watch'\n"
        );
    }

    #[test]
    fn lists_stand_at_the_column_of_their_key() {
        let value = json!({"a": [1, {"b": 2, "c": [true, null]}, [], ["x", {"y": "z"}]], "d": {"e": {"f": []}}});
        let want = "a:\n- 1\n- b: 2\n  c:\n  - true\n  - null\n- []\n- - x\n  - \"y\": z\nd:\n  e:\n    f: []\n";
        assert_eq!(emit(&value), want);
        assert_eq!(emit(&json!(["a", ["b"]])), "- a\n- - b\n");
        assert_eq!(emit(&json!({})), "{}\n");
        assert_eq!(emit(&json!("text")), "text\n");
    }

    #[test]
    fn quotes_stand_only_where_they_are_needed() {
        for (text, want) in [
            ("plain text", "plain text"),
            ("", "\"\""),
            ("true", "\"true\""),
            ("8080", "\"8080\""),
            ("2024-01-02T03:04:05Z", "\"2024-01-02T03:04:05Z\""),
            ("a: b", "'a: b'"),
            ("it's: ", "'it''s: '"),
            ("- a", "'- a'"),
            ("-a", "-a"),
            ("a #b", "'a #b'"),
            ("a#b", "a#b"),
            ("*", "'*'"),
            ("{}", "'{}'"),
            ("@x", "'@x'"),
            ("a:b", "a:b"),
            ("x:", "'x:'"),
            ("tab\there", "\"tab\\there\""),
            ("emoji \u{1f600}", "\"emoji \\U0001F600\""),
            ("é", "é"),
            ("a\nb", "|-\n  a\n  b"),
            ("a\nb\n", "|\n  a\n  b"),
            ("a\n\n", "|+\n  a\n"),
            ("\na", "|2-\n\n  a"),
            ("a \nb", "\"a \\nb\""),
            ("a\n b", "|-\n  a\n   b"),
            ("a\nb ", "\"a\\nb \""),
        ] {
            assert_eq!(emit(&json!({"k": text})), format!("k: {want}\n"), "{text:?}");
        }
    }

    #[test]
    fn long_texts_are_folded_at_blanks() {
        let words = vec!["word"; 30].join(" ");
        let line = vec!["word"; 16].join(" ");
        let rest = vec!["word"; 14].join(" ");
        assert_eq!(emit(&json!({"key": words})), format!("key: {line}\n  {rest}\n"));
        let long_key = "k".repeat(129);
        assert_eq!(emit(&json!({ &long_key: [1] })), format!("? {long_key}\n: - 1\n"));
    }

    #[test]
    fn keys_are_in_natural_order() {
        let value = json!({"b": 1, "a10": 1, "a2": 1, "A": 1, "a.b": 1, "a": 1, "1": 1});
        assert_eq!(emit(&value), "\"1\": 1\nA: 1\na: 1\na.b: 1\na2: 1\na10: 1\nb: 1\n");
    }
}
