//! Filters of EC2 lists.

use serde_json::Value;

use crate::params::{items, text};
use crate::wire::{Failure, require};

/// Maximum number of values of all filters of a request.
const LIMIT: usize = 200;

/// Whether a resource matches all filters. Fails for filters that the kind of resource does not have.
pub(super) fn matches(filters: &[Value], paths: &str, view: &Value) -> Result<bool, Failure> {
    let count: usize = filters.iter().map(|filter| items(filter, "Value").len()).sum();
    let message = format!("The maximum number of filter values specified on a single call is {LIMIT}");
    require(count <= LIMIT, || Failure::new("FilterLimitExceeded", message))?;
    let mut is_match = true;
    for filter in filters {
        let held = held(view, text(filter, "Name"), paths)?;
        let values = items(filter, "Value").iter().filter_map(Value::as_str);
        is_match &= values.into_iter().any(|value| held.iter().any(|held| is_like(held, value)));
    }
    Ok(is_match)
}

/// Values of a resource that a filter compares.
fn held(view: &Value, name: &str, paths: &str) -> Result<Vec<String>, Failure> {
    let tags = items(view, "tagSet");
    let of = |field: &str| tags.iter().map(|tag| text(tag, field).to_owned()).collect();
    if let Some(key) = name.strip_prefix("tag:") {
        return Ok(tags.iter().filter(|tag| tag["key"] == key).map(|tag| text(tag, "value").to_owned()).collect());
    }
    let mut paths = paths.split(' ').filter_map(|pair| pair.split_once('='));
    match (name, paths.find(|(known, _)| *known == name)) {
        ("tag-key", _) => Ok(of("key")),
        ("tag-value", _) => Ok(of("value")),
        (_, Some((_, path))) => Ok(at(view, path)),
        (_, None) => Err(Failure::invalid(format!("The filter '{name}' is invalid"))),
    }
}

/// All values at a path; the path goes through each item of a list.
fn at(value: &Value, path: &str) -> Vec<String> {
    match (value, path.split_once('.')) {
        (Value::Array(list), _) => list.iter().flat_map(|item| at(item, path)).collect(),
        (Value::Object(_), Some((field, rest))) => at(&value[field], rest),
        (Value::Object(_), None) if !path.is_empty() => at(&value[path], ""),
        (Value::String(text), _) => vec![text.clone()],
        (Value::Null | Value::Object(_), _) => Vec::new(),
        (other, _) => vec![other.to_string()],
    }
}

/// Compares case-sensitively; `*` and `?` in the pattern are wildcards.
fn is_like(text: &str, pattern: &str) -> bool {
    match (pattern.chars().next(), text.chars().next()) {
        (None, first) => first.is_none(),
        (Some('*'), first) => {
            let rest = |text: &str| text.chars().skip(1).collect::<String>();
            is_like(text, &rest(pattern)) || first.is_some() && is_like(&rest(text), pattern)
        }
        (Some(expected), Some(first)) if expected == '?' || expected == first => {
            is_like(text.get(first.len_utf8()..).unwrap_or(""), pattern.get(expected.len_utf8()..).unwrap_or(""))
        }
        _ => false,
    }
}
