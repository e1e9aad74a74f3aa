//! A label selector as one line.

use serde_json::Value;

use crate::value::Json;

/// The requirements sorted by key and joined by commas; `None` if one of them makes no sense.
pub(super) fn line(selector: &Value) -> Option<String> {
    let labels = selector.map("matchLabels").into_iter().flatten();
    let mut requirements: Vec<(&str, String)> =
        labels.map(|(key, value)| (key.as_str(), format!("{key}={}", value.as_str().unwrap_or_default()))).collect();
    for expression in selector.list("matchExpressions") {
        requirements.push((expression.text("key"), requirement(expression)?));
    }
    requirements.sort_by_key(|(key, _)| *key);
    Some(requirements.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(","))
}

fn requirement(expression: &Value) -> Option<String> {
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
    use serde_json::json;

    use super::*;

    #[test]
    fn requirements_are_sorted_by_key() {
        let selector = json!({"matchLabels": {"d": "1", "a": "b"}, "matchExpressions": [
            {"key": "c", "operator": "In", "values": ["y", "x"]}, {"key": "e", "operator": "NotIn", "values": ["z"]},
            {"key": "b", "operator": "Exists"}, {"key": "f", "operator": "DoesNotExist"}]});
        assert_eq!(line(&selector).as_deref(), Some("a=b,b,c in (x,y),d=1,e notin (z),!f"));
    }

    #[test]
    fn a_senseless_requirement_spoils_the_line() {
        assert_eq!(line(&json!({"matchExpressions": [{"key": "c", "operator": "In"}]})), None);
        assert_eq!(line(&json!({"matchExpressions": [{"key": "c", "operator": "Near"}]})), None);
        assert_eq!(line(&json!({})).as_deref(), Some(""));
    }
}
