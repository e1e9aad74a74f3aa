//! Lists: filters by a field, and pages that go on after a record.

use serde_json::Value;

use crate::records::{Fields, Record};

/// One page of a list.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// The records on it.
    pub records: Vec<Record>,
    /// Whether it has as many as the limit allows.
    pub is_full: bool,
    /// Whether there are more after it.
    pub has_more: bool,
}

impl Page {
    /// The records after the one with the ID `after`, at most `limit`; `None` if there is no such record.
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

    /// The ID of its first record.
    pub fn first(&self) -> Option<String> {
        self.records.first().map(|record| record.text("id").to_owned())
    }

    /// The ID of its last record.
    pub fn last(&self) -> Option<String> {
        self.records.last().map(|record| record.text("id").to_owned())
    }
}

/// The smaller of the limit that a call asks for and the largest that the service allows; 0 asks for no limit.
pub fn limit(asked: Option<usize>, largest: Option<usize>) -> Option<usize> {
    match (asked.filter(|asked| *asked > 0), largest) {
        (Some(asked), Some(largest)) => Some(asked.min(largest)),
        (asked, largest) => asked.or(largest),
    }
}

/// Whether a value is the one that a query names, or a list that has it.
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
