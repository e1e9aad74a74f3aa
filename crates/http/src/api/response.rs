//! Response to a call.

use std::fmt::Display;

use bowline_cloud::{Error, ErrorKind, Result};
use bytes::Bytes;
use http::{HeaderMap, Method, Response, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Successful response to a call.
#[derive(Debug)]
pub struct ApiResponse {
    pub(super) name: &'static str,
    pub(super) method: Method,
    pub(super) url: String,
    pub(super) response: Response<Bytes>,
}

/// Fields of a JSON object, in which many clouds wrap a resource or a list.
#[derive(Debug)]
pub struct Fields<'a> {
    response: &'a ApiResponse,
    fields: Map<String, Value>,
}

impl ApiResponse {
    /// Returns the status.
    pub fn status(&self) -> StatusCode {
        self.response.status()
    }

    /// Returns the headers.
    pub fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    /// Returns the body.
    pub fn body(&self) -> &Bytes {
        self.response.body()
    }

    /// Returns the body as text.
    pub fn text(&self) -> Result<&str> {
        self.decoded(std::str::from_utf8(self.body()))
    }

    /// Decodes the body as JSON.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T> {
        self.decoded(serde_json::from_slice(self.body()))
    }

    /// Decodes the body as JSON; a field that is null counts as missing.
    pub fn json_without_nulls<T: DeserializeOwned>(&self) -> Result<T> {
        self.decoded(serde_json::from_value(without_nulls(self.json()?)))
    }

    /// Decodes the body as a JSON object; a field that is null, at any depth, counts as missing.
    pub fn fields(&self) -> Result<Fields<'_>> {
        Ok(Fields { response: self, fields: self.json_without_nulls()? })
    }

    /// Decodes the resource or the list in a field of the body, as [`fields`](ApiResponse::fields) does.
    pub fn field<T: DeserializeOwned>(&self, name: &str) -> Result<T> {
        self.fields()?.take(name)
    }

    /// Succeeds on a response without content. Any other must be JSON, otherwise it does not come from the cloud's API.
    pub fn without_result(&self) -> Result<()> {
        match self.status() {
            StatusCode::NO_CONTENT => Ok(()),
            _ => self.json::<Value>().map(drop),
        }
    }

    /// Decodes the body as XML.
    pub fn xml<T: DeserializeOwned>(&self) -> Result<T> {
        self.decoded(quick_xml::de::from_str(self.text()?))
    }

    /// Returns the decoded value, or an error for an invalid response. The cloud may have executed the call.
    pub fn decoded<T, E: Display>(&self, outcome: std::result::Result<T, E>) -> Result<T> {
        outcome.map_err(|error| {
            let message = format!("{} {}: invalid response: {error}", self.method, self.url);
            Error::new(ErrorKind::Unexpected, self.name, message).outcome_unknown()
        })
    }
}

impl Fields<'_> {
    /// Decodes a field; an error if it is missing.
    pub fn take<T: DeserializeOwned>(&mut self, name: &str) -> Result<T> {
        let value = self.fields.remove(name).ok_or_else(|| format!("missing field `{name}`"));
        let value = value.and_then(|value| serde_json::from_value(value).map_err(|error| format!("{name}: {error}")));
        self.response.decoded(value)
    }

    /// Decodes a field that the cloud may leave out.
    pub fn take_or_default<T: DeserializeOwned + Default>(&mut self, name: &str) -> Result<T> {
        if self.fields.contains_key(name) { self.take(name) } else { Ok(T::default()) }
    }
}

fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.into_iter().filter(|(_, value)| !value.is_null());
            fields.map(|(key, value)| (key, without_nulls(value))).collect()
        }
        Value::Array(items) => items.into_iter().map(without_nulls).collect(),
        other => other,
    }
}
