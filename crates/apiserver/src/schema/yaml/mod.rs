//! Parses and writes YAML as upstream's library does: YAML 1.1, converted to and from JSON.
//!
//! ```text
//! text ─► events (granit) ─► read ─► Value        resolve: type of a plain scalar
//! Value ─► emit ─► text                           (emit uses resolve to decide what needs quotes)
//! ```
//!
//! Only the first document is read. Of duplicate keys the last one wins, and the duplicate is reported.

mod emit;
mod read;
mod resolve;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::StrictIssue;

/// Parses a YAML document. Returns its value and its duplicate keys in document order.
pub(crate) fn to_value(text: &[u8]) -> Result<(Value, Vec<StrictIssue>), String> {
    // Most YAML bodies are JSON, apply patches in particular.
    if let Ok(PlainJson(value)) = serde_json::from_slice(text) {
        return Ok((value, Vec::new()));
    }
    let text = std::str::from_utf8(text).map_err(|_| "yaml: invalid UTF-8".to_owned())?;
    match text.chars().all(is_allowed) {
        true => read::read(text.strip_prefix('\u{feff}').unwrap_or(text)),
        false => Err("yaml: control characters are not allowed".to_owned()),
    }
}

fn is_allowed(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' | '\u{a0}'..='\u{fffd}' | '\u{10000}'..)
}

/// Writes a value as YAML.
pub(crate) fn to_text(value: &Value) -> String {
    emit::emit(value)
}

/// JSON without duplicate keys, which parses the same as YAML; anything else is an error.
struct PlainJson(Value);

impl<'de> Deserialize<'de> for PlainJson {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<PlainJson, D::Error> {
        source.deserialize_any(PlainVisitor).map(PlainJson)
    }
}

struct PlainVisitor;

impl<'de> Visitor<'de> for PlainVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, v: bool) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_i64<E>(self, v: i64) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_u64<E>(self, v: u64) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_f64<E: de::Error>(self, v: f64) -> Result<Value, E> {
        resolve::float(v).map_err(E::custom)
    }

    fn visit_str<E>(self, v: &str) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_string<E>(self, v: String) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(PlainJson(item)) = seq.next_element()? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut entries = Map::new();
        while let Some((key, PlainJson(value))) = map.next_entry::<String, _>()? {
            if entries.insert(key, value).is_some() {
                return Err(de::Error::custom("duplicate key"));
            }
        }
        Ok(Value::Object(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn value(text: &str) -> Value {
        to_value(text.as_bytes()).map(|(value, _)| value).unwrap_or_else(|e| json!({"error": e}))
    }

    fn issues(text: &str) -> Vec<String> {
        to_value(text.as_bytes()).unwrap().1.iter().map(ToString::to_string).collect()
    }

    fn error(text: &str) -> String {
        to_value(text.as_bytes()).unwrap_err()
    }

    #[test]
    fn documents_become_json() {
        let text =
            "# note\napiVersion: v1\nmetadata: {name: a, labels: {x: 'y'}}\nlist:\n- 1\n- two\ntext: |\n  a\n  b\n";
        let want = json!({
            "apiVersion": "v1", "metadata": {"name": "a", "labels": {"x": "y"}}, "list": [1, "two"], "text": "a\nb\n",
        });
        assert_eq!(value(text), want);
        assert_eq!(value(""), Value::Null);
        assert_eq!(value("{\"a\": [1.0, 1e3, \"\\u00e9\"]}"), json!({"a": [1, 1000, "é"]}));
    }

    #[test]
    fn only_the_first_document_is_read() {
        assert_eq!(value("a: 1\n---\nb: [\n"), json!({"a": 1}));
        assert_eq!(value("---\na: 1\n...\n"), json!({"a": 1}));
    }

    #[test]
    fn keys_are_converted_to_strings() {
        assert_eq!(
            value("1: a\n0x10: b\ntrue: c\nno: d\n1.5: e\n"),
            json!({"1": "a", "16": "b", "true": "c", "false": "d", "1.5": "e"})
        );
        assert_eq!(error("null: 1"), "yaml: a map key may not be null");
        assert_eq!(error("[a]: 1"), "yaml: a map key may not be a list or a map");
    }

    #[test]
    fn duplicate_keys_are_reported_with_the_line_of_the_value_and_the_last_wins() {
        let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: '1', k: '2'}\nbogus: 1\n";
        assert_eq!(issues(text), ["line 4: key \"k\" already set in map"]);
        assert_eq!(value(text)["data"], json!({"k": "2"}));
        assert_eq!(
            issues("a: 1\na: {b: 1, b: 2}\n1: x\n1: y\n"),
            [
                "line 2: key \"b\" already set in map",
                "line 2: key \"a\" already set in map",
                "line 4: key 1 already set in map",
            ]
        );
        assert_eq!(issues("{\"a\": 1,\n\"a\": 2}"), ["line 2: key \"a\" already set in map"]);
    }

    #[test]
    fn anchors_and_merges_are_expanded() {
        let text = "base: &b {w: 1, z: 2}\na:\n  <<: *b\n  z: 3\nb: *b\nc:\n  <<: [{w: 5}, *b]\n";
        assert_eq!(
            value(text),
            json!({
                "base": {"w": 1, "z": 2}, "a": {"w": 1, "z": 3}, "b": {"w": 1, "z": 2}, "c": {"w": 5, "z": 2},
            })
        );
        assert_eq!(error("a: *nope"), "yaml: unknown anchor 'nope' referenced");
        assert_eq!(error("a: &x [*x]"), "yaml: anchor value contains itself");
        assert_eq!(error("<<: 5"), "yaml: map merge requires map or sequence of maps as the value");
    }

    #[test]
    fn alias_bombs_are_rejected() {
        let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for i in 1..10 {
            let items = vec![format!("*a{}", i - 1); 10].join(", ");
            text.push_str(&format!("a{i}: &a{i} [{items}]\n"));
        }
        assert_eq!(error(&text), "yaml: document contains excessive aliasing");
    }

    #[test]
    fn the_size_of_expanded_aliases_is_limited() {
        let aliased = |length: usize, uses: usize| {
            let text = format!("a: &a {}\nb: [{}]\n", "x".repeat(length), vec!["*a"; uses].join(", "));
            to_value(text.as_bytes()).map(|(value, _)| value["b"].as_array().map_or(0, Vec::len))
        };
        assert_eq!(aliased(100 << 10, 30), Ok(30));
        assert_eq!(aliased(100 << 10, 31), Err("yaml: document contains excessive aliasing".to_owned()));
        assert_eq!(aliased(100 << 10, 9000), Err("yaml: document contains excessive aliasing".to_owned()));
        let keys: String = (0..40).map(|n| format!("m{n}: {{*a : {n}}}\n")).collect();
        assert_eq!(
            error(&format!("a: &a {}\n{keys}", "x".repeat(100 << 10))),
            "yaml: document contains excessive aliasing"
        );
    }

    #[test]
    fn the_number_of_reported_duplicates_is_limited() {
        assert_eq!(issues(&"a: 1\n".repeat(1000)).len(), crate::schema::MAX_ISSUES);
    }

    #[test]
    fn malformed_yaml_is_rejected_with_its_line() {
        assert_eq!(error("a: ["), "yaml: line 1: did not find expected node content");
        for text in ["a: b: c", "a:\n\tb: c", "a: 'x", "- a\nb: c", "a: b\n- c", "a: ]", "a: \u{1}"] {
            assert!(error(text).starts_with("yaml: "), "{text:?}");
        }
        assert_eq!(to_value(b"a: \xff"), Err("yaml: invalid UTF-8".to_owned()));
    }

    #[test]
    fn deep_nesting_is_rejected() {
        for text in ["[".repeat(5000), "- ".repeat(5000), "a: {".repeat(5000)] {
            assert!(to_value(text.as_bytes()).is_err());
        }
    }
}
