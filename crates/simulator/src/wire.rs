//! Parsed requests, and responses of a service.

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use percent_encoding::percent_decode_str;
use serde_json::Value;

use crate::records::{Record, object};

/// A parsed request.
#[derive(Debug, Clone)]
pub struct Call {
    /// HTTP method.
    pub method: Method,
    /// Scheme and authority of the URL.
    pub origin: String,
    /// Decoded path segments, without empty ones.
    pub path: Vec<String>,
    /// Decoded query parameters.
    pub query: Vec<(String, String)>,
    /// Headers.
    pub headers: HeaderMap,
    /// Body.
    pub body: Bytes,
}

impl Call {
    pub(crate) fn read(request: Request<Bytes>) -> Call {
        let (parts, body) = request.into_parts();
        let origin = origin(&parts);
        let segments = parts.uri.path().split('/').filter(|segment| !segment.is_empty());
        let path = segments.map(|segment| percent_decode_str(segment).decode_utf8_lossy().into_owned()).collect();
        let query = pairs(parts.uri.query().unwrap_or_default().as_bytes());
        Call { method: parts.method, origin, path, query, headers: parts.headers, body }
    }

    /// Path segments, for use in a pattern.
    pub fn segments(&self) -> Vec<&str> {
        self.path.iter().map(String::as_str).collect()
    }

    /// Whether the method is GET or HEAD.
    pub fn is_read(&self) -> bool {
        self.method == Method::GET || self.method == Method::HEAD
    }

    /// Value of a header, if it is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// All values of a query parameter.
    pub fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.query.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// First value of a query parameter.
    pub fn value<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        self.values(name).next()
    }

    /// Body as JSON.
    pub fn json(&self) -> Option<Value> {
        serde_json::from_slice(&self.body).ok()
    }

    /// Object with this name in the JSON body; `None` if there is none.
    pub fn object(&self, name: &str) -> Option<Record> {
        self.json()?.get(name).filter(|value| value.is_object()).cloned().map(object)
    }

    /// Fields of a form body, as query APIs send it.
    pub fn form(&self) -> Vec<(String, String)> {
        pairs(&self.body)
    }
}

fn pairs(text: &[u8]) -> Vec<(String, String)> {
    form_urlencoded::parse(text).into_owned().collect()
}

fn origin(parts: &http::request::Parts) -> String {
    let host = parts.headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let authority = parts.uri.authority().map(|authority| authority.as_str()).or(host).unwrap_or("cloud.invalid");
    format!("{}://{authority}", parts.uri.scheme_str().unwrap_or("http"))
}

/// A response.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    /// HTTP status.
    pub status: u16,
    /// Headers other than the content type.
    pub headers: Vec<(&'static str, String)>,
    /// Body.
    pub body: Body,
}

/// Body of a response.
#[derive(Debug, Clone, PartialEq)]
pub enum Body {
    /// No body.
    Nothing,
    /// JSON.
    Json(Value),
    /// Plain text.
    Text(String),
    /// XML.
    Xml(String),
}

impl Reply {
    /// JSON response.
    pub fn json(status: u16, body: Value) -> Reply {
        Reply { status, headers: Vec::new(), body: Body::Json(body) }
    }

    /// JSON response with a single field.
    pub fn one(status: u16, name: &str, value: impl Into<Value>) -> Reply {
        Reply::json(status, Value::Object([(name.to_owned(), value.into())].into_iter().collect()))
    }

    /// Plain text response.
    pub fn text(status: u16, body: impl Into<String>) -> Reply {
        Reply { status, headers: Vec::new(), body: Body::Text(body.into()) }
    }

    /// XML response.
    pub fn xml(status: u16, body: impl Into<String>) -> Reply {
        Reply { status, headers: Vec::new(), body: Body::Xml(body.into()) }
    }

    /// Response without a body.
    pub fn empty(status: u16) -> Reply {
        Reply { status, headers: Vec::new(), body: Body::Nothing }
    }

    /// Adds a header.
    pub fn with(mut self, header: &'static str, value: impl Into<String>) -> Reply {
        self.headers.push((header, value.into()));
        self
    }

    pub(crate) fn into_response(self) -> Response<Bytes> {
        let (kind, body) = match self.body {
            Body::Nothing => (None, Bytes::new()),
            Body::Json(body) => (Some("application/json"), Bytes::from(body.to_string())),
            Body::Text(body) => (Some("text/plain; charset=UTF-8"), Bytes::from(body)),
            Body::Xml(body) => (Some("text/xml; charset=UTF-8"), Bytes::from(body)),
        };
        let mut builder = Response::builder().status(self.status);
        for (name, value) in kind.map(|kind| ("content-type", kind.to_owned())).into_iter().chain(self.headers) {
            builder = builder.header(name, value);
        }
        builder.body(body).unwrap_or_else(|_| {
            let mut broken = Response::new(Bytes::new());
            *broken.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
            broken
        })
    }
}
