//! Lists: filters, field selection and pages, as each service implements them.

use bowline_simulator::listing;
use serde_json::{Value, json};

use crate::records::{Fields, Record};
use crate::wire::{Call, Service};

/// Query parameters for paging, sorting and field selection, which are not filters.
const LIST_PARAMETERS: [&str; 7] = ["limit", "marker", "fields", "sort_key", "sort_dir", "sort", "page_reverse"];

/// Query parameters that filter by tags.
pub(crate) const TAG_FILTERS: [&str; 4] = ["tags", "tags-any", "not-tags", "not-tags-any"];

/// Filters of a call, each with all its values.
pub(crate) fn filters(call: &Call) -> impl Iterator<Item = (&str, Vec<&str>)> {
    let mut seen = Vec::new();
    let keys = call.query.iter().map(|(key, _)| key.as_str());
    keys.filter(move |key| {
        let new = !LIST_PARAMETERS.contains(key) && !seen.contains(key);
        seen.push(key);
        new
    })
    .map(|key| (key, call.values(key).collect()))
}

/// Whether a record matches a filter: the field equals one of the values or contains one.
pub(crate) fn matches(record: &Record, field: &str, values: &[&str]) -> bool {
    match field {
        "fixed_ips" => values.iter().any(|value| has_fixed_ip(record, value)),
        "tags" => has_all(record, values),
        "tags-any" => has_any(record, values),
        "not-tags" => !has_all(record, values),
        "not-tags-any" => !has_any(record, values),
        _ => record.get(field).is_some_and(|held| values.iter().any(|value| listing::is(held, value))),
    }
}

/// Matches `ip_address=10.0.0.1` or `subnet_id=…`.
fn has_fixed_ip(record: &Record, condition: &str) -> bool {
    let Some((field, value)) = condition.split_once('=') else { return false };
    let ips = record.get("fixed_ips").and_then(Value::as_array);
    ips.into_iter().flatten().any(|ip| ip.get(field).and_then(Value::as_str) == Some(value))
}

fn has_all(record: &Record, values: &[&str]) -> bool {
    split_tags(values).iter().all(|tag| record.texts("tags").contains(tag))
}

fn has_any(record: &Record, values: &[&str]) -> bool {
    split_tags(values).iter().any(|tag| record.texts("tags").contains(tag))
}

fn split_tags<'a>(values: &[&'a str]) -> Vec<&'a str> {
    values.iter().flat_map(|value| value.split(',')).collect()
}

/// Returns the record with only the requested fields.
pub(crate) fn select(call: &Call, record: Record) -> Value {
    let requested: Vec<&str> = call.values("fields").collect();
    if requested.is_empty() {
        return Value::Object(record);
    }
    Value::Object(record.into_iter().filter(|(field, _)| requested.contains(&field.as_str())).collect())
}

/// A page of a list.
pub(crate) struct Page {
    pub(crate) items: Vec<Value>,
    /// ID of the last record, if the page is full.
    pub(crate) next: Option<String>,
    /// ID of the first record.
    pub(crate) first: Option<String>,
}

/// Returns at most `limit` records after the marker. `Err` holds a marker that is not in the list.
pub(crate) fn page(call: &Call, records: Vec<Record>, limit: Option<usize>) -> Result<Page, String> {
    let marker = call.value("marker");
    let page = listing::Page::after(records, marker, limit).ok_or_else(|| marker.unwrap_or_default().to_owned())?;
    let (next, first) = (page.last().filter(|_| page.is_full), page.first());
    Ok(Page { items: page.records.into_iter().map(|record| select(call, record)).collect(), next, first })
}

/// Page size of a call: the requested limit, capped by the service's maximum.
pub(crate) fn limit(call: &Call, maximum: Option<usize>) -> Result<Option<usize>, String> {
    let requested = call.value("limit").map(|limit| limit.parse().map_err(|_| limit.to_owned())).transpose()?;
    Ok(listing::limit(requested, maximum))
}

/// Link to another page of this list from this marker, with or without the filters.
pub(crate) fn link(call: &Call, rel: &str, marker: &str, filters: bool, reverse: bool) -> Value {
    let mut query = form_urlencoded::Serializer::new(String::new());
    let mut parameters: Vec<_> = call.query.iter().collect();
    if call.service == Service::Compute {
        // Nova sorts the query parameters.
        parameters.sort();
    }
    for (key, value) in parameters {
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
