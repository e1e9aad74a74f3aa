//! Lists: filters by field, and pages with a marker.

use serde_json::Value;

use crate::records::{Fields, Record};

/// One page of a list.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// Records on the page.
    pub records: Vec<Record>,
    /// Whether the page has as many records as the limit allows.
    pub is_full: bool,
    /// Whether there are more records after the page.
    pub has_more: bool,
}

impl Page {
    /// At most `limit` records after the one with the ID `after`; `None` if there is no such record.
    pub fn after(records: Vec<Record>, after: Option<&str>, limit: Option<usize>) -> Option<Page> {
        let start = match after {
            None => 0,
            Some(id) => records.iter().position(|record| record.text("id") == id)? + 1,
        };
        let limit = limit.unwrap_or(usize::MAX);
        let rest = records.len() - start;
        let records: Vec<_> = records.into_iter().skip(start).take(limit).collect();
        Some(Page { is_full: limit > 0 && records.len() == limit, has_more: rest > records.len(), records })
    }

    /// ID of the first record.
    pub fn first(&self) -> Option<String> {
        self.records.first().map(|record| record.text("id").to_owned())
    }

    /// ID of the last record.
    pub fn last(&self) -> Option<String> {
        self.records.last().map(|record| record.text("id").to_owned())
    }
}

/// Smaller of the requested limit and the largest limit that the service allows; 0 requests no limit.
pub fn limit(requested: Option<usize>, largest: Option<usize>) -> Option<usize> {
    match (requested.filter(|requested| *requested > 0), largest) {
        (Some(requested), Some(largest)) => Some(requested.min(largest)),
        (requested, largest) => requested.or(largest),
    }
}

/// Whether a field matches the value of a query parameter; a list matches if one of its items does.
pub fn is(held: &Value, value: &str) -> bool {
    match held {
        Value::String(text) => text == value,
        Value::Bool(held) => ["true", "1"].contains(&value.to_ascii_lowercase().as_str()) == *held,
        Value::Number(number) => number.to_string() == value,
        Value::Array(list) => list.iter().any(|held| is(held, value)),
        Value::Null => value.is_empty(),
        Value::Object(_) => false,
    }
}
