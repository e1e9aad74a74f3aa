//! Lists: order, pages and fields.

use std::cmp::Ordering;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use bowline_simulator::{Call, Fields, Record, Reply};
use serde_json::{Value, json};

use super::address::Address;
use super::objects::view;
use super::rules;
use super::simulator::State;
use super::wire::{Outcome, check_parameters, flag, invalid, invalid_path, require};

/// Parameters of a list and of a search. A list ignores `included_fields`.
pub(crate) const PARAMETERS: [&str; 5] = ["cursor", "included_fields", "page_size", "sort_ascending", "sort_by"];

/// Maximum number of objects on a page of the real manager.
const LARGEST: usize = 1000;

pub(crate) fn list(state: &State, call: &Call, address: &Address) -> Outcome {
    check_parameters(call, &[PARAMETERS.as_slice(), &["include_mark_for_delete_objects"]].concat())?;
    if let Some(parent) = address.parent.as_ref().filter(|parent| !rules::exists(state, parent)) {
        return Err(invalid_path(parent));
    }
    let with_deleted = flag(call, "include_mark_for_delete_objects")?;
    let deleted = state.records.of("purging").iter().map(|row| &row.record).filter(|record| {
        let of = Address::of(record.text("id"));
        with_deleted && of.is_some_and(|of| of.kind == address.kind && of.owner() == address.owner())
    });
    let rows = state.records.of(address.kind).owned_by(address.owner());
    let records = rows.iter().map(|row| &row.record).chain(deleted).map(view).collect();
    page(call, records, state.options.max_page, false)
}

/// One page of these objects. The cursor is the sort key of the last object on the page, so that an object that is deleted between two
/// requests moves no other one to another page. A search has a cursor on its last page, too.
pub(crate) fn page(call: &Call, mut records: Vec<Record>, max: usize, is_search: bool) -> Outcome {
    let field = call.value("sort_by").unwrap_or("display_name");
    let ascending = call.value("sort_ascending").is_none() || flag(call, "sort_ascending")?;
    let key = |record: &Record| (record.text(field).to_owned(), record.text("path").to_owned());
    let compare = |a: &(String, String), b: &(String, String)| if ascending { a.cmp(b) } else { b.cmp(a) };
    records.sort_by(|a, b| compare(&key(a), &key(b)));
    let total = records.len();
    let after = call.value("cursor").map(decode).transpose()?;
    let mut rest: Vec<Record> = records;
    rest.retain(|record| after.as_ref().is_none_or(|after| compare(&key(record), after) == Ordering::Greater));
    let has_more = rest.len() > size(call, max)?;
    rest.truncate(size(call, max)?);
    let last = rest.last().map(key).or_else(|| after.clone());
    let shown: Vec<Value> = rest.into_iter().map(Value::Object).collect();
    let mut body = json!({"results": shown, "sort_by": field, "sort_ascending": ascending});
    if after.is_none() {
        body["result_count"] = json!(total);
    }
    if let Some(last) = last.filter(|_| has_more || is_search) {
        body["cursor"] = json!(encode(&last));
    }
    Ok(Reply::json(200, body))
}

fn size(call: &Call, max: usize) -> Result<usize, Reply> {
    let Some(text) = call.value("page_size") else { return Ok(max.min(LARGEST)) };
    let size = text.parse().map_err(|_| invalid("query parameter page_size is not a number"))?;
    require(size <= LARGEST, "query parameter page_size is out of range")?;
    Ok(max.min(if size == 0 { LARGEST } else { size }))
}

/// Cursor with characters that a client must escape.
fn encode(key: &(String, String)) -> String {
    BASE64_STANDARD.encode(json!([key.0, key.1, "+?/"]).to_string())
}

fn decode(cursor: &str) -> Result<(String, String), Reply> {
    let bytes = BASE64_STANDARD.decode(cursor).ok();
    let key = bytes.and_then(|bytes| serde_json::from_slice::<(String, String, String)>(&bytes).ok());
    key.map(|(text, path, _)| (text, path)).ok_or_else(|| invalid("query parameter cursor is not valid"))
}
