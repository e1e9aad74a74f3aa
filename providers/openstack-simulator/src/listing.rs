//! Lists: filters, fields and pages, each as its service has them.

use serde_json::{Value, json};

use crate::records::{Fields, Record};
use crate::wire::{Call, Reply, Service};

/// Query parameters that are about the list and not about what is in it.
const ABOUT_THE_LIST: [&str; 7] = ["limit", "marker", "fields", "sort_key", "sort_dir", "sort", "page_reverse"];

/// Query parameters about tags.
pub(crate) const ABOUT_TAGS: [&str; 4] = ["tags", "tags-any", "not-tags", "not-tags-any"];

/// The filters of a call, each with all its values.
pub(crate) fn filters(call: &Call) -> impl Iterator<Item = (&str, Vec<&str>)> {
    let mut seen = Vec::new();
    let keys = call.query.iter().map(|(key, _)| key.as_str());
    keys.filter(move |key| {
        let new = !ABOUT_THE_LIST.contains(key) && !seen.contains(key);
        seen.push(key);
        new
    })
    .map(|key| (key, call.values(key).collect()))
}

/// Whether a record passes one filter: one of its values is the field's, or among them.
pub(crate) fn passes(record: &Record, field: &str, values: &[&str]) -> bool {
    match field {
        "fixed_ips" => values.iter().any(|value| has_fixed_ip(record, value)),
        "tags" => has_all(record, values),
        "tags-any" => has_any(record, values),
        "not-tags" => !has_all(record, values),
        "not-tags-any" => !has_any(record, values),
        _ => record.get(field).is_some_and(|held| values.iter().any(|value| is(held, value))),
    }
}

fn is(held: &Value, value: &str) -> bool {
    match held {
        Value::String(text) => text == value,
        Value::Bool(held) => ["true", "1"].contains(&value.to_ascii_lowercase().as_str()) == *held,
        Value::Number(number) => number.to_string() == value,
        Value::Array(list) => list.iter().any(|held| is(held, value)),
        Value::Null => value.is_empty(),
        Value::Object(_) => false,
    }
}

/// `ip_address=10.0.0.1` or `subnet_id=…`.
fn has_fixed_ip(record: &Record, condition: &str) -> bool {
    let Some((field, value)) = condition.split_once('=') else { return false };
    let ips = record.get("fixed_ips").and_then(Value::as_array);
    ips.into_iter().flatten().any(|ip| ip.get(field).and_then(Value::as_str) == Some(value))
}

fn has_all(record: &Record, values: &[&str]) -> bool {
    wanted_tags(values).iter().all(|tag| record.texts("tags").contains(tag))
}

fn has_any(record: &Record, values: &[&str]) -> bool {
    wanted_tags(values).iter().any(|tag| record.texts("tags").contains(tag))
}

fn wanted_tags<'a>(values: &[&'a str]) -> Vec<&'a str> {
    values.iter().flat_map(|value| value.split(',')).collect()
}

/// Only the fields that are asked for.
pub(crate) fn shown(call: &Call, record: Record) -> Value {
    let wanted: Vec<&str> = call.values("fields").collect();
    if wanted.is_empty() {
        return Value::Object(record);
    }
    Value::Object(record.into_iter().filter(|(field, _)| wanted.contains(&field.as_str())).collect())
}

/// One page of a list.
pub(crate) struct Page {
    pub(crate) items: Vec<Value>,
    /// The ID of the last one, if the page is full.
    pub(crate) next: Option<String>,
    /// The ID of the first one.
    pub(crate) first: Option<String>,
}

/// The records after the marker, at most as many as the limit says. `Err` if the marker is not among them.
pub(crate) fn page(call: &Call, records: Vec<Record>, limit: Option<usize>) -> Result<Page, String> {
    let start = match call.value("marker") {
        None => 0,
        Some(marker) => match records.iter().position(|record| record.text("id") == marker) {
            Some(at) => at + 1,
            None => return Err(marker.to_owned()),
        },
    };
    let records: Vec<_> = records.into_iter().skip(start).take(limit.unwrap_or(usize::MAX)).collect();
    let id = |record: Option<&Record>| record.map(|record| record.text("id").to_owned());
    let full = limit.is_some_and(|limit| limit > 0 && records.len() == limit);
    let (first, last) = (id(records.first()), id(records.last()));
    let items = records.into_iter().map(|record| shown(call, record)).collect();
    Ok(Page { items, next: last.filter(|_| full), first })
}

/// The limit that a call asks for, but no more than the service gives.
pub(crate) fn limit(call: &Call, most: Option<usize>) -> Result<Option<usize>, String> {
    let Some(asked) = call.value("limit") else { return Ok(most) };
    let asked: usize = asked.parse().map_err(|_| asked.to_owned())?;
    let asked = (asked > 0).then_some(asked);
    Ok(match (asked, most) {
        (Some(asked), Some(most)) => Some(asked.min(most)),
        (asked, most) => asked.or(most),
    })
}

/// The URL of another page: this call's, from this marker, with its filters or without.
pub(crate) fn link(call: &Call, rel: &str, marker: &str, filters: bool, reverse: bool) -> Value {
    let mut query = form_urlencoded::Serializer::new(String::new());
    let mut asked: Vec<_> = call.query.iter().collect();
    if call.service == Service::Compute {
        // Nova writes them anew, in alphabetical order.
        asked.sort();
    }
    for (key, value) in asked {
        if !["marker", "page_reverse"].contains(&key.as_str()) && (filters || key == "limit") {
            query.append_pair(key, value);
        }
    }
    query.append_pair("marker", marker);
    if reverse {
        query.append_pair("page_reverse", "True");
    }
    let url = call.url(&call.path.join("/"));
    json!({"rel": rel, "href": format!("{url}?{}", query.finish())})
}

/// An answer with one thing of this name.
pub(crate) fn one(status: u16, name: &str, value: impl Into<Value>) -> Reply {
    let mut body = Record::new();
    body.insert(name.to_owned(), value.into());
    Reply::json(status, Value::Object(body))
}
