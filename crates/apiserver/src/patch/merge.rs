//! Merge patch (RFC 7386): objects are merged, null removes, everything else replaces.

use serde_json::{Map, Value};

/// Merges `patch` into `doc`.
pub(super) fn merge(doc: &mut Map<String, Value>, patch: Map<String, Value>) {
    for (key, value) in patch {
        if value.is_null() {
            doc.remove(&key);
            continue;
        }
        match (doc.get_mut(&key), value) {
            (Some(Value::Object(doc)), Value::Object(patch)) => merge(doc, patch),
            (Some(existing @ Value::Object(_)), value) => *existing = value,
            (_, value) => {
                doc.insert(key, without_nulls(value));
            }
        }
    }
}

/// Removes nulls from a new value, in which they have nothing to remove. Lists keep nulls; objects in lists do not.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            fields.into_iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| (k, without_nulls(v))).collect()
        }
        Value::Array(items) => items.into_iter().map(without_nulls).collect(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn objects_merge_and_everything_else_replaces() {
        let cases = [
            (json!({"a": {"b": 1, "c": 2}}), json!({"a": {"b": null, "d": 3}}), json!({"a": {"c": 2, "d": 3}})),
            (json!({"a": [1, 2]}), json!({"a": [3]}), json!({"a": [3]})),
            (json!({"a": {"b": 1}}), json!({"a": [1]}), json!({"a": [1]})),
            (json!({"a": 1}), json!({"a": {"b": null, "c": [{"d": null}, null]}}), json!({"a": {"c": [{}, null]}})),
            (json!({}), json!({"a": {"b": {"c": null}}}), json!({"a": {"b": {}}})),
            (json!({"a": null}), json!({"a": {"b": null}}), json!({"a": {}})),
        ];
        for (mut doc, patch, expected) in cases {
            let (Value::Object(fields), Value::Object(patch)) = (&mut doc, patch) else { panic!() };
            merge(fields, patch);
            assert_eq!(doc, expected);
        }
    }
}
