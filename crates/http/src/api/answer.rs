//! The answer to a call.

use std::fmt::Display;

use bowline_cloud::{Error, ErrorKind, Result};
use bytes::Bytes;
use http::{HeaderMap, Method, Response, StatusCode};
use serde::de::DeserializeOwned;

/// The successful answer to a call.
#[derive(Debug)]
pub struct ApiResponse {
    pub(super) name: &'static str,
    pub(super) method: Method,
    pub(super) url: String,
    pub(super) response: Response<Bytes>,
}

impl ApiResponse {
    /// Its status.
    pub fn status(&self) -> StatusCode {
        self.response.status()
    }

    /// Its headers.
    pub fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    /// Its body.
    pub fn body(&self) -> &Bytes {
        self.response.body()
    }

    /// Its body as text.
    pub fn text(&self) -> Result<&str> {
        self.understood(std::str::from_utf8(self.body()))
    }

    /// The value that its body has as JSON.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T> {
        self.understood(serde_json::from_slice(self.body()))
    }

    /// The value that its body has as XML.
    pub fn xml<T: DeserializeOwned>(&self) -> Result<T> {
        self.understood(quick_xml::de::from_str(self.text()?))
    }

    /// The value, or an error that says that this answer makes no sense. The call may have been executed.
    pub fn understood<T, E: Display>(&self, outcome: std::result::Result<T, E>) -> Result<T> {
        outcome.map_err(|why| {
            let message = format!("{} {}: the answer is not understood: {why}", self.method, self.url);
            Error::new(ErrorKind::Unexpected, self.name, message).outcome_unknown()
        })
    }
}
