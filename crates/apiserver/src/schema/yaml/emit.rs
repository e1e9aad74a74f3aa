//! Writes YAML in block style: map keys are sorted, lists have the indentation of their key, and long strings are folded at
//! spaces after column 80.

use serde_json::{Map, Value};

use super::resolve;

const STEP: usize = 2;
const WIDTH: usize = 80;
/// Longer keys are written as complex keys, with a `?` in front.
const LONG_KEY: usize = 128;

pub(super) fn emit(value: &Value) -> String {
    let mut out = String::new();
    block(&mut out, value, 0);
    out
}

/// Writes a value whose first line starts at the current column and whose other lines are indented.
fn block(out: &mut String, value: &Value, indent: usize) {
    match value {
        Value::Object(entries) if !entries.is_empty() => mapping(out, entries, indent),
        Value::Array(items) if !items.is_empty() => sequence(out, items, indent),
        _ => {
            scalar(out, value, Some(indent));
            out.push('\n');
        }
    }
}

fn mapping(out: &mut String, entries: &Map<String, Value>, indent: usize) {
    for (i, (key, value)) in entries.iter().enumerate() {
        if i > 0 {
            indent_by(out, indent);
        }
        if key.chars().count() > LONG_KEY {
            out.push_str("? ");
            text(out, key, None);
            out.push('\n');
            indent_by(out, indent);
            out.push_str(": ");
            block(out, value, indent + STEP);
            continue;
        }
        text(out, key, None);
        out.push(':');
        let nested = match value {
            Value::Object(entries) if !entries.is_empty() => Some(indent + STEP),
            Value::Array(items) if !items.is_empty() => Some(indent),
            _ => None,
        };
        out.push(if nested.is_some() { '\n' } else { ' ' });
        indent_by(out, nested.unwrap_or(0));
        block(out, value, nested.unwrap_or(indent));
    }
}

fn sequence(out: &mut String, items: &[Value], indent: usize) {
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            indent_by(out, indent);
        }
        out.push_str("- ");
        block(out, item, indent + STEP);
    }
}

fn indent_by(out: &mut String, count: usize) {
    out.extend(std::iter::repeat_n(' ', count));
}

fn scalar(out: &mut String, value: &Value, fold: Option<usize>) {
    match value {
        Value::String(value) => text(out, value, fold),
        other => out.push_str(&other.to_string()),
    }
}

/// Writes a string: plain where that is unambiguous, else quoted. It may be folded if `fold` has the parent's indentation.
fn text(out: &mut String, text: &str, fold: Option<usize>) {
    if !text.chars().all(is_printable) || resolve::is_ambiguous(text) {
        return double_quoted(out, text);
    }
    let quoted = has_indicators(text);
    if quoted {
        out.push('\'');
    }
    folded(out, &text.replace('\'', if quoted { "''" } else { "'" }), fold);
    if quoted {
        out.push('\'');
    }
}

/// Writes characters, replacing single spaces after the maximum width with line breaks.
fn folded(out: &mut String, text: &str, fold: Option<usize>) {
    let mut column = out.rsplit('\n').next().unwrap_or_default().chars().count();
    let mut before = ' ';
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let single = c == ' ' && before != ' ' && chars.peek().is_some_and(|next| *next != ' ');
        match fold.filter(|_| single && column > WIDTH) {
            Some(indent) => {
                out.push('\n');
                indent_by(out, indent + STEP);
                column = indent + STEP;
            }
            None => {
                out.push(c);
                column += 1;
            }
        }
        before = c;
    }
}

fn double_quoted(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c if is_printable(c) => out.push(c),
            c => out.push_str(&format!("\\U{:08X}", u32::from(c))),
        }
    }
    out.push('"');
}

/// Whether a plain string would be parsed as something else because of its first or last character, or a `: ` or ` #`
/// inside it.
fn has_indicators(text: &str) -> bool {
    text.starts_with(|c: char| "-?:,[]{}#&*!|>'\"%@`= ".contains(c))
        || text.ends_with([' ', ':'])
        || text.contains(": ")
        || text.contains(" #")
}

fn is_printable(c: char) -> bool {
    matches!(c, ' '..='~' | '\u{a0}'..='\u{fffd}') && !matches!(c, '\u{feff}' | '\u{2028}' | '\u{2029}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn objects_are_formatted_as_recorded() {
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
    fn lists_have_the_indentation_of_their_key() {
        let value = json!({"a": [1, {"b": 2, "c": [true, null]}, [], ["x", {"y": "z"}]], "d": {"e": {"f": []}}});
        let want = "a:\n- 1\n- b: 2\n  c:\n  - true\n  - null\n- []\n- - x\n  - \"y\": z\nd:\n  e:\n    f: []\n";
        assert_eq!(emit(&value), want);
        assert_eq!(emit(&json!(["a", ["b"]])), "- a\n- - b\n");
        assert_eq!(emit(&json!({})), "{}\n");
        assert_eq!(emit(&json!("text")), "text\n");
    }

    #[test]
    fn strings_are_quoted_only_where_needed() {
        for (text, want) in [
            ("plain text", "plain text"),
            ("", "\"\""),
            ("true", "\"true\""),
            ("8080", "\"8080\""),
            ("2024-01-02T03:04:05Z", "\"2024-01-02T03:04:05Z\""),
            ("a: b", "'a: b'"),
            ("it's: ", "'it''s: '"),
            ("it's", "it's"),
            ("- a", "'- a'"),
            ("a #b", "'a #b'"),
            ("a#b", "a#b"),
            ("*", "'*'"),
            ("{}", "'{}'"),
            ("a:b", "a:b"),
            ("x:", "'x:'"),
            ("tab\there", "\"tab\\there\""),
            ("emoji \u{1f600}", "\"emoji \\U0001F600\""),
            ("é", "é"),
            ("a\nb\n", "\"a\\nb\\n\""),
        ] {
            assert_eq!(emit(&json!({"k": text})), format!("k: {want}\n"), "{text:?}");
        }
    }

    #[test]
    fn long_strings_are_folded_at_spaces() {
        let words = vec!["word"; 30].join(" ");
        let line = vec!["word"; 16].join(" ");
        let rest = vec!["word"; 14].join(" ");
        assert_eq!(emit(&json!({"key": words})), format!("key: {line}\n  {rest}\n"));
        let long_key = "k".repeat(129);
        assert_eq!(emit(&json!({ &long_key: [1] })), format!("? {long_key}\n: - 1\n"));
    }
}
