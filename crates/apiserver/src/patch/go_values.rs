//! Values in the format of Go's `fmt` package, for error messages.
//!
//! Several errors of kube-apiserver contain a value formatted by `fmt`, such as `map[spec:map[foo:1]]`. Only error
//! messages use these formats.

use serde_json::{Map, Number, Value};

use crate::go_text::quote;

/// Representation of numbers in Go: its decoder for patches keeps integers, the one for YAML converts all to floats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Numbers {
    AsGiven,
    AsFloats,
}

/// `%v`: `map[a:1 b:[x y]]`.
pub(crate) fn plain(value: &Value, numbers: Numbers) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::Bool(b) => b.to_string(),
        Value::Number(n) => number(n, numbers),
        Value::String(s) => s.clone(),
        Value::Array(items) => list(items, numbers),
        Value::Object(entries) => object(entries, numbers),
    }
}

/// `%v` of an object: `map[a:1]`.
pub(crate) fn object(entries: &Map<String, Value>, numbers: Numbers) -> String {
    let entries: Vec<String> = entries.iter().map(|(k, v)| format!("{k}:{}", plain(v, numbers))).collect();
    format!("map[{}]", entries.join(" "))
}

/// `%v` of a list: `[x y]`.
pub(crate) fn list(items: &[Value], numbers: Numbers) -> String {
    let items: Vec<String> = items.iter().map(|v| plain(v, numbers)).collect();
    format!("[{}]", items.join(" "))
}

/// `%#v`: `map[string]interface {}{"a":1}`.
pub(crate) fn syntax(value: &Value, numbers: Numbers) -> String {
    match value {
        Value::String(s) => quote(s),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(|v| element_syntax(v, numbers)).collect();
            format!("[]interface {{}}{{{}}}", items.join(", "))
        }
        Value::Object(entries) => {
            let entries: Vec<String> =
                entries.iter().map(|(k, v)| format!("{}:{}", quote(k), element_syntax(v, numbers))).collect();
            format!("map[string]interface {{}}{{{}}}", entries.join(", "))
        }
        other => plain(other, numbers),
    }
}

fn element_syntax(value: &Value, numbers: Numbers) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        other => syntax(other, numbers),
    }
}

/// `%s` of a value that should have been text: `%!s(int64=5)`.
pub(crate) fn as_text(value: &Value) -> String {
    match value {
        Value::Null => "%!s(<nil>)".to_owned(),
        Value::Bool(_) | Value::Number(_) => format!("%!s({}={})", type_name(value), plain(value, Numbers::AsGiven)),
        other => plain(other, Numbers::AsGiven),
    }
}

/// Returns the Go type that a patch value is decoded into: `%T`.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(n) if n.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// Returns the kind of that Go type, without element types.
pub(crate) fn kind_name(value: &Value) -> &'static str {
    match value {
        Value::Array(_) => "slice",
        Value::Object(_) => "map",
        other => type_name(other),
    }
}

fn number(n: &Number, numbers: Numbers) -> String {
    match n.as_f64() {
        Some(f) if n.is_f64() || numbers == Numbers::AsFloats => float(f),
        _ => n.to_string(),
    }
}

/// `%g` with the fewest digits that identify the number: exponents below -4 and from 6 on use scientific notation.
fn float(f: f64) -> String {
    let scientific = format!("{f:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    match exponent.parse::<i32>() {
        Ok(e) if !(-4..6).contains(&e) => {
            let sign = if e < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", e.abs())
        }
        _ => f.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn maps_and_lists_have_the_format_of_go() {
        let value = json!({"spec": {"foo": 1, "l": ["a", null, true, 1.5]}});
        assert_eq!(plain(&value, Numbers::AsGiven), "map[spec:map[foo:1 l:[a <nil> true 1.5]]]");
        assert_eq!(
            syntax(&json!({"a": [1, "x", null]}), Numbers::AsGiven),
            r#"map[string]interface {}{"a":[]interface {}{1, "x", interface {}(nil)}}"#
        );
    }

    #[test]
    fn string_verb_marks_other_types() {
        assert_eq!(as_text(&json!(5)), "%!s(int64=5)");
        assert_eq!(as_text(&json!("x")), "x");
    }

    #[test]
    fn large_and_small_floats_have_exponents() {
        assert_eq!(plain(&json!(1), Numbers::AsFloats), "1");
        assert_eq!(plain(&json!(0.00001), Numbers::AsGiven), "1e-05");
        assert_eq!(plain(&json!(1_000_000), Numbers::AsFloats), "1e+06");
        assert_eq!(plain(&json!(100_000), Numbers::AsFloats), "100000");
        assert_eq!(plain(&json!(1_000_000), Numbers::AsGiven), "1000000");
    }
}
