//! Lists: filters, fields and pages, each as its service has them.

use bowline_simulator::listing;
use serde_json::{Value, json};

use crate::records::{Fields, Record};
use crate::wire::{Call, Service};

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
        _ => record.get(field).is_some_and(|held| values.iter().any(|value| listing::is(held, value))),
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
    let marker = call.value("marker");
    let page = listing::Page::after(records, marker, limit).ok_or_else(|| marker.unwrap_or_default().to_owned())?;
    let (next, first) = (page.last().filter(|_| page.is_full), page.first());
    Ok(Page { items: page.records.into_iter().map(|record| shown(call, record)).collect(), next, first })
}

/// The limit that a call asks for, but no more than the service gives.
pub(crate) fn limit(call: &Call, largest: Option<usize>) -> Result<Option<usize>, String> {
    let asked = call.value("limit").map(|asked| asked.parse().map_err(|_| asked.to_owned())).transpose()?;
    Ok(listing::limit(asked, largest))
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
