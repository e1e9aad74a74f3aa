//! Label selectors inside objects: `{matchLabels, matchExpressions}`.
//!
//! Matching, and conversion to the syntax of the `labelSelector` parameter. [`crate::validation::label_selector`]
//! validates them.

use serde_json::{Map, Value};

use crate::value::Json;

/// True if the selector has no requirements.
pub(crate) fn is_empty(selector: &Value) -> bool {
    selector.map("matchLabels").is_none_or(Map::is_empty) && selector.list("matchExpressions").is_empty()
}

/// Whether a valid selector matches these labels. An absent selector matches nothing, an empty one everything.
pub(crate) fn matches(selector: &Value, labels: Option<&Map<String, Value>>) -> bool {
    let label = |key: &str| labels.and_then(|l| l.get(key)).and_then(Value::as_str);
    let mut pairs = selector.map("matchLabels").into_iter().flatten();
    !selector.is_null()
        && pairs.all(|(key, value)| label(key) == value.as_str())
        && selector.list("matchExpressions").iter().all(|e| requirement_matches(e, label(e.text("key"))))
}

fn requirement_matches(expression: &Value, label: Option<&str>) -> bool {
    let listed = label.is_some_and(|l| expression.texts("values").contains(&l));
    match expression.text("operator") {
        "In" => listed,
        "NotIn" => !listed,
        "Exists" => label.is_some(),
        "DoesNotExist" => label.is_none(),
        _ => false,
    }
}

/// Formats the selector in the syntax of the `labelSelector` parameter, requirements sorted by key. Returns `None` if a
/// requirement is invalid.
pub(crate) fn text(selector: &Value) -> Option<String> {
    let labels = selector.map("matchLabels").into_iter().flatten();
    let mut requirements: Vec<(&str, String)> =
        labels.map(|(key, value)| (key.as_str(), format!("{key}={}", value.as_str().unwrap_or_default()))).collect();
    for expression in selector.list("matchExpressions") {
        requirements.push((expression.text("key"), requirement_text(expression)?));
    }
    requirements.sort_by_key(|(key, _)| *key);
    Some(requirements.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(","))
}

fn requirement_text(expression: &Value) -> Option<String> {
    let key = expression.text("key");
    let mut values = expression.texts("values");
    values.sort_unstable();
    match (expression.text("operator"), values.is_empty()) {
        ("In", false) => Some(format!("{key} in ({})", values.join(","))),
        ("NotIn", false) => Some(format!("{key} notin ({})", values.join(","))),
        ("Exists", true) => Some(key.to_owned()),
        ("DoesNotExist", true) => Some(format!("!{key}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_absent_selector_matches_nothing_and_an_empty_one_everything() {
        assert!(!matches(&Value::Null, None));
        assert!(matches(&json!({}), None));
        assert!(is_empty(&json!({"matchLabels": {}})));
    }

    #[test]
    fn all_requirements_must_hold() {
        let labels = json!({"a": "b", "c": "d"});
        let table = [
            (json!({"matchLabels": {"a": "b"}}), true),
            (json!({"matchLabels": {"a": "b", "c": "x"}}), false),
            (json!({"matchExpressions": [{"key": "a", "operator": "In", "values": ["b", "z"]}]}), true),
            (json!({"matchExpressions": [{"key": "q", "operator": "NotIn", "values": ["b"]}]}), true),
            (json!({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}), false),
            (json!({"matchExpressions": [{"key": "a", "operator": "Exists"}]}), true),
        ];
        for (selector, expected) in table {
            assert_eq!(matches(&selector, labels.as_object()), expected, "{selector}");
        }
    }

    #[test]
    fn the_text_form_is_sorted_by_key() {
        let selector = json!({
            "matchLabels": {"z": "1", "a": "b"},
            "matchExpressions": [
                {"key": "m", "operator": "In", "values": ["y", "x"]},
                {"key": "n", "operator": "NotIn", "values": ["x"]},
                {"key": "o", "operator": "Exists"},
                {"key": "p", "operator": "DoesNotExist"},
            ],
        });
        assert_eq!(text(&selector).as_deref(), Some("a=b,m in (x,y),n notin (x),o,!p,z=1"));
    }

    #[test]
    fn invalid_requirement_has_no_text_form() {
        assert_eq!(text(&json!({"matchExpressions": [{"key": "c", "operator": "In"}]})), None);
        assert_eq!(text(&json!({"matchExpressions": [{"key": "c", "operator": "Near"}]})), None);
        assert_eq!(text(&json!({})).as_deref(), Some(""));
    }
}
