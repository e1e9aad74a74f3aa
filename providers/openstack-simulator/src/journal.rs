//! What was asked of the cloud.

use std::collections::BTreeMap;

use http::Method;
use serde_json::Value;

use crate::faults::is_write;
use crate::wire::{Call, Service};

/// A call as it was made.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Whom it was made to.
    pub service: Service,
    /// The method.
    pub method: Method,
    /// What kind of call: the path below the version, with `{id}` for IDs.
    pub template: String,
    /// The path below the version.
    pub path: String,
    /// The query, decoded.
    pub query: Vec<(String, String)>,
    /// What it sent; `Null` if that was no JSON.
    pub body: Value,
    /// Its headers, but for the token.
    pub headers: Vec<(String, String)>,
    /// The status of the answer; `None` if there was none.
    pub status: Option<u16>,
    /// It would change something; getting a token does not.
    pub is_write: bool,
}

/// The calls so far.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    entries: Vec<Entry>,
    /// How many of them are forgotten.
    forgotten: usize,
}

impl Journal {
    /// Notes a call and returns its number.
    pub(crate) fn note(&mut self, call: &Call, template: &str) -> usize {
        let headers = call.headers.iter().filter(|(name, _)| *name != "x-auth-token");
        let headers = headers.filter_map(|(name, value)| Some((name.to_string(), value.to_str().ok()?.to_owned())));
        self.entries.push(Entry {
            service: call.service,
            method: call.method.clone(),
            template: template.to_owned(),
            path: call.resource().join("/"),
            query: call.query.clone(),
            body: call.json().unwrap_or_default(),
            headers: headers.collect(),
            status: None,
            is_write: is_write(call),
        });
        self.entries.len() - 1
    }

    pub(crate) fn answered(&mut self, number: usize, status: u16) {
        if let Some(entry) = self.entries.get_mut(number) {
            entry.status = Some(status);
        }
    }

    /// All since the last [`forget`](Journal::forget).
    pub(crate) fn entries(&self) -> &[Entry] {
        self.entries.get(self.forgotten..).unwrap_or_default()
    }

    pub(crate) fn all(&self) -> &[Entry] {
        &self.entries
    }

    pub(crate) fn forget(&mut self) {
        self.forgotten = self.entries.len();
    }

    /// How often each kind of call was made: `GET ports`, `PUT pools/{id}/members`.
    pub(crate) fn counts(&self) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        for entry in self.entries() {
            *counts.entry(format!("{} {}", entry.method, entry.template)).or_default() += 1;
        }
        counts
    }
}
