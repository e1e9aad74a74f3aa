//! Bodies as the clients in Go send them.

use serde_json::Value;

/// Leaves out, at any depth, what Go's `omitempty` leaves out: null, false, 0, an empty text and an empty list. An empty object stays,
/// and so do false and 0 in the fields of `always`.
pub fn omit_empty(value: Value, always: &[&str]) -> Value {
    let is_sent = |(key, value): &(String, Value)| match value {
        Value::Null => false,
        Value::Bool(false) => always.contains(&key.as_str()),
        Value::Number(number) => number.as_f64() != Some(0.0) || always.contains(&key.as_str()),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => true,
    };
    match value {
        Value::Object(fields) => {
            fields.into_iter().filter(is_sent).map(|(key, value)| (key, omit_empty(value, always))).collect()
        }
        Value::Array(items) => items.into_iter().map(|item| omit_empty(item, always)).collect(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn empty_values_are_left_out_at_any_depth() {
        let body = json!({"a": "", "b": 0, "c": false, "d": [], "e": null, "f": {}, "kept": false, "rules": [{"port": 80, "path": ""}]});
        assert_eq!(omit_empty(body, &["kept"]), json!({"f": {}, "kept": false, "rules": [{"port": 80}]}));
    }
}
