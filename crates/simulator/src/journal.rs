//! Journal of the calls to a cloud.

use std::collections::BTreeMap;

use http::Method;
use serde_json::Value;

use crate::service::Operation;
use crate::wire::Call;

/// A recorded call.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Service that was called, if the cloud has several.
    pub part: &'static str,
    /// HTTP method.
    pub method: Method,
    /// Kind of call: the path with `{id}` for IDs, or the name of the operation.
    pub template: String,
    /// Path with the IDs.
    pub path: String,
    /// Decoded query parameters.
    pub query: Vec<(String, String)>,
    /// Body: text if it is not JSON, `Null` if there is none.
    pub body: Value,
    /// Headers without credentials.
    pub headers: Vec<(String, String)>,
    /// Status of the response; `None` if there was none.
    pub status: Option<u16>,
    /// Whether it is a write.
    pub is_write: bool,
}

/// Headers with credentials.
const SECRET: [&str; 8] = [
    "authorization",
    "cookie",
    "csp-auth-token",
    "vmware-api-session-id",
    "x-auth-token",
    "x-amz-security-token",
    "x-aws-ec2-metadata-token",
    "x-xsrf-token",
];

/// All calls so far.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    entries: Vec<Entry>,
    /// Number of entries before the last [`forget`](Journal::forget).
    forgotten: usize,
}

impl Journal {
    /// Records a call and returns its number.
    pub(crate) fn record(&mut self, call: &Call, operation: Operation) -> usize {
        let headers = call.headers.iter().filter(|(name, _)| !SECRET.contains(&name.as_str()));
        let headers = headers.filter_map(|(name, value)| Some((name.to_string(), value.to_str().ok()?.to_owned())));
        let Operation { part, template, path, is_write } = operation;
        let (method, query, headers) = (call.method.clone(), call.query.clone(), headers.collect());
        self.entries.push(Entry {
            part,
            method,
            template,
            path,
            query,
            body: body(call),
            headers,
            status: None,
            is_write,
        });
        self.entries.len() - 1
    }

    pub(crate) fn answered(&mut self, number: usize, status: u16) {
        if let Some(entry) = self.entries.get_mut(number) {
            entry.status = Some(status);
        }
    }

    /// Entries since the last [`forget`](Journal::forget).
    pub(crate) fn entries(&self) -> &[Entry] {
        self.entries.get(self.forgotten..).unwrap_or_default()
    }

    pub(crate) fn all(&self) -> &[Entry] {
        &self.entries
    }

    pub(crate) fn forget(&mut self) {
        self.forgotten = self.entries.len();
    }

    /// Number of calls of each kind: `GET ports`, `PUT pools/{id}/members`.
    pub(crate) fn counts(&self) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        for entry in self.entries() {
            *counts.entry(format!("{} {}", entry.method, entry.template)).or_default() += 1;
        }
        counts
    }
}

fn body(call: &Call) -> Value {
    match call.json() {
        Some(body) => body,
        None if call.body.is_empty() => Value::Null,
        None => Value::String(String::from_utf8_lossy(&call.body).into_owned()),
    }
}
