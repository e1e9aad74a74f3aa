//! Builds responses: objects, lists, statuses and streams in the negotiated representation.

use std::collections::HashSet;
use std::io::Write as _;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures::Stream;
use futures::stream;
use http::header::{ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER, VARY, WARNING};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use serde_json::{Value, json};

use super::negotiate::{Format, Negotiated, Shape};
use crate::resources::{self, Resource};
use crate::schema::{self, yaml};
use crate::status::{ApiError, ApiResult};
use crate::store::Stored;
use crate::table::{self, Include};
use crate::value::Json;

/// The body of every response.
pub(crate) type Body = UnsyncBoxBody<Bytes, std::io::Error>;

/// Minimum size in bytes of responses that are compressed for clients that accept gzip.
const COMPRESS_ABOVE: usize = 128 << 10;

/// Maximum number of characters of all warnings of a response; if exceeded, each is truncated to [`WARNING_CUT`].
const WARNINGS: usize = 4 << 10;
const WARNING_CUT: usize = 256;

/// Chunk size of a streamed list in bytes.
const CHUNK: usize = 64 << 10;

/// The result of a verb, before it is converted to the negotiated representation.
#[derive(Debug)]
pub(crate) enum ResponseContent {
    /// An object of the requested resource.
    Object {
        code: StatusCode,
        object: Object,
    },
    /// An object of another kind (`Scale`, `TokenRequest`, a review, `Status`), sent unchanged.
    Plain {
        code: StatusCode,
        value: Value,
    },
    List(List),
    /// 204 No Content.
    Nothing,
}

/// An object to send: a stored object or a value.
#[derive(Debug)]
pub(crate) enum Object {
    Stored(Arc<Stored>),
    Value(Value),
}

impl Object {
    /// The object in the API version of `resource`.
    pub(crate) fn into_value(self, resource: &Resource) -> Value {
        match (self, resource.view) {
            (Object::Stored(stored), Some(view)) => (view.from_stored)(stored.value()),
            (Object::Stored(stored), None) => stored.value(),
            (Object::Value(value), _) => value,
        }
    }

    fn json(self, resource: &Resource) -> Bytes {
        match (self, resource.view) {
            (Object::Stored(stored), None) => stored.json(),
            (object, _) => object.into_value(resource).to_string().into(),
        }
    }
}

/// A list and its metadata.
#[derive(Debug)]
pub(crate) struct List {
    pub(crate) objects: Vec<Arc<Stored>>,
    pub(crate) revision: u64,
    pub(crate) continue_token: Option<String>,
    pub(crate) remaining: Option<usize>,
}

impl List {
    fn metadata(&self) -> Value {
        let mut metadata = json!({"resourceVersion": self.revision.to_string()});
        if let Some(token) = &self.continue_token {
            metadata["continue"] = token.clone().into();
        }
        if let Some(remaining) = self.remaining {
            metadata["remainingItemCount"] = remaining.into();
        }
        metadata
    }
}

/// Converts the result of a verb to a response in the negotiated representation.
pub(crate) fn to_response(
    resource: &'static Resource,
    negotiated: &Negotiated,
    include: Include,
    request: &HeaderMap,
    content: ResponseContent,
) -> ApiResult<Response<Body>> {
    match content {
        ResponseContent::Plain { code, value }
            if resource.is_virtual() && negotiated.format == Format::Json && !negotiated.pretty =>
        {
            let text = schema::ordered_json(resource.type_id(), &value);
            Ok(bytes_response(code, "application/json", request, text.into()))
        }
        ResponseContent::Plain { code, value } => Ok(value_response(code, negotiated, request, &value)),
        ResponseContent::Object { code, object } => {
            object_response(resource, negotiated, include, request, code, object)
        }
        ResponseContent::List(list) => list_response(resource, negotiated, include, request, list),
        ResponseContent::Nothing => {
            let mut response = Response::new(full(Bytes::new()));
            *response.status_mut() = StatusCode::NO_CONTENT;
            Ok(response)
        }
    }
}

fn object_response(
    resource: &'static Resource,
    negotiated: &Negotiated,
    include: Include,
    request: &HeaderMap,
    code: StatusCode,
    object: Object,
) -> ApiResult<Response<Body>> {
    match &negotiated.shape {
        Shape::Object if negotiated.format == Format::Json && !negotiated.pretty => {
            Ok(bytes_response(code, "application/json", request, object.json(resource)))
        }
        Shape::Object => Ok(value_response(code, negotiated, request, &object.into_value(resource))),
        Shape::Table { version } => {
            let value = object.into_value(resource);
            let metadata = json!({"resourceVersion": value.text("metadata.resourceVersion")});
            let table = table::render(resource, &[value], metadata, include, true, version);
            Ok(value_response(code, negotiated, request, &table))
        }
        Shape::Partial { version, list: false } => {
            Ok(value_response(code, negotiated, request, &partial(&object.into_value(resource), version)))
        }
        Shape::Partial { list: true, .. } => Err(ApiError::not_acceptable(format!(
            "you requested PartialObjectMetadataList, but the requested object is not a list (*{}.{})",
            go_package(resource),
            resource.kind
        ))),
    }
}

fn list_response(
    resource: &'static Resource,
    negotiated: &Negotiated,
    include: Include,
    request: &HeaderMap,
    list: List,
) -> ApiResult<Response<Body>> {
    match &negotiated.shape {
        Shape::Object if negotiated.format == Format::Json && !negotiated.pretty && resource.view.is_none() => {
            Ok(streamed_list(resource, request, list))
        }
        Shape::Object => Ok(value_response(StatusCode::OK, negotiated, request, &list_value(resource, list))),
        Shape::Table { version } => {
            let metadata = list.metadata();
            let values: Vec<Value> = list.objects.into_iter().map(|o| Object::Stored(o).into_value(resource)).collect();
            let table = table::render(resource, &values, metadata, include, true, version);
            Ok(value_response(StatusCode::OK, negotiated, request, &table))
        }
        Shape::Partial { version, list: true } => {
            let metadata = list.metadata();
            let items: Vec<Value> =
                list.objects.into_iter().map(|o| partial(&Object::Stored(o).into_value(resource), version)).collect();
            let value = json!({
                "kind": "PartialObjectMetadataList",
                "apiVersion": format!("meta.k8s.io/{version}"),
                "metadata": metadata,
                // upstream: an empty list has `items: null`.
                "items": if items.is_empty() { Value::Null } else { Value::Array(items) },
            });
            Ok(value_response(StatusCode::OK, negotiated, request, &value))
        }
        Shape::Partial { list: false, .. } => Err(ApiError::not_acceptable(format!(
            "you requested PartialObjectMetadata, but the requested object is a list (*{}.{}List)",
            go_package(resource),
            resource.kind
        ))),
    }
}

/// The Go package in upstream's messages: `core`, `apps`, `rbac`.
fn go_package(resource: &Resource) -> &'static str {
    match resource.group {
        "" | "events.k8s.io" => "core",
        group => group.split('.').next().unwrap_or(group),
    }
}

/// The PartialObjectMetadata of an object.
pub(crate) fn partial(object: &Value, version: &str) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": format!("meta.k8s.io/{version}"),
        "metadata": resources::partial_metadata(object),
    })
}

fn list_value(resource: &'static Resource, list: List) -> Value {
    let metadata = list.metadata();
    let items: Vec<Value> = list
        .objects
        .into_iter()
        .map(|o| {
            let mut item = Object::Stored(o).into_value(resource);
            item.take_at("kind");
            item.take_at("apiVersion");
            item
        })
        .collect();
    json!({
        "kind": format!("{}List", resource.kind),
        "apiVersion": resource.api_version(),
        "metadata": metadata,
        "items": items,
    })
}

/// Streams a list in chunks from the stored bytes, without parsing them.
fn streamed_list(resource: &'static Resource, request: &HeaderMap, list: List) -> Response<Body> {
    let head = format!(
        "{{\"kind\":\"{}List\",\"apiVersion\":\"{}\",\"metadata\":{},\"items\":[",
        resource.kind,
        resource.api_version(),
        list.metadata()
    );
    let size: usize = list.objects.iter().map(|o| o.size()).sum();
    let mut chunks = ListChunks { head: Some(head), objects: list.objects, next: 0, closed: false };
    if size < CHUNK {
        let whole = chunks.next().unwrap_or_default();
        return bytes_response(StatusCode::OK, "application/json", request, whole);
    }
    let mut response = response(StatusCode::OK, "application/json");
    if size > COMPRESS_ABOVE && accepts_gzip(request) {
        mark_compressed(&mut response);
        *response.body_mut() = stream_body(stream::iter(gzip_chunks(chunks).map(Ok)));
    } else {
        *response.body_mut() = stream_body(stream::iter(chunks.map(Ok)));
    }
    response
}

struct ListChunks {
    head: Option<String>,
    objects: Vec<Arc<Stored>>,
    next: usize,
    closed: bool,
}

impl Iterator for ListChunks {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if self.closed {
            return None;
        }
        let mut chunk = BytesMut::with_capacity(CHUNK);
        if let Some(head) = self.head.take() {
            chunk.extend_from_slice(head.as_bytes());
        }
        while let Some(object) = self.objects.get(self.next) {
            if chunk.len() >= CHUNK {
                return Some(chunk.freeze());
            }
            chunk.extend_from_slice(if self.next == 0 { b"{" } else { b",{" });
            chunk.extend_from_slice(&object.item_tail());
            self.next += 1;
        }
        chunk.extend_from_slice(b"]}");
        self.closed = true;
        Some(chunk.freeze())
    }
}

fn gzip_chunks(chunks: impl Iterator<Item = Bytes>) -> impl Iterator<Item = Bytes> {
    let mut encoder = Some(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
    let mut chunks = chunks;
    std::iter::from_fn(move || {
        let writer = encoder.as_mut()?;
        for chunk in chunks.by_ref() {
            // Writing to memory cannot fail.
            let _ = writer.write_all(&chunk);
            if writer.get_ref().len() >= CHUNK {
                return Some(std::mem::take(writer.get_mut()).into());
            }
        }
        encoder.take().and_then(|e| e.finish().ok()).map(Bytes::from)
    })
}

// === Building responses ===

/// An empty response with the common headers.
pub(crate) fn response(code: StatusCode, content_type: &'static str) -> Response<Body> {
    let mut response = Response::new(full(Bytes::new()));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    add_audit_id(headers);
    response
}

/// Adds the header that every response has.
pub(crate) fn add_audit_id(headers: &mut HeaderMap) {
    headers.insert(HeaderName::from_static("audit-id"), audit_id());
}

fn audit_id() -> HeaderValue {
    HeaderValue::from_str(&uuid::Uuid::new_v4().to_string()).unwrap_or(HeaderValue::from_static(""))
}

pub(crate) fn full(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

/// A body from a stream of chunks; an error closes the connection.
pub(crate) fn stream_body(chunks: impl Stream<Item = Result<Bytes, std::io::Error>> + Send + 'static) -> Body {
    use futures::StreamExt as _;
    StreamBody::new(chunks.map(|chunk| chunk.map(Frame::data))).boxed_unsync()
}

/// upstream: only `gzip` without parameters in the first header is recognised, not `gzip;q=1`.
fn accepts_gzip(request: &HeaderMap) -> bool {
    let value = request.get(ACCEPT_ENCODING).and_then(|v| v.to_str().ok());
    value.is_some_and(|v| v.split(',').any(|encoding| encoding.trim() == "gzip"))
}

fn mark_compressed(response: &mut Response<Body>) {
    response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    response.headers_mut().insert(VARY, HeaderValue::from_static("Accept-Encoding"));
}

/// A complete response, compressed if it is large and the client accepts gzip.
pub(crate) fn bytes_response(
    code: StatusCode,
    content_type: &'static str,
    request: &HeaderMap,
    bytes: Bytes,
) -> Response<Body> {
    let mut response = response(code, content_type);
    let compressed = bytes.len() > COMPRESS_ABOVE && accepts_gzip(request);
    let bytes = if compressed {
        mark_compressed(&mut response);
        gzip_chunks(std::iter::once(bytes))
            .fold(BytesMut::new(), |mut all, chunk| {
                all.extend_from_slice(&chunk);
                all
            })
            .freeze()
    } else {
        bytes
    };
    *response.body_mut() = full(bytes);
    response
}

/// Serializes a value in the negotiated format.
pub(crate) fn value_response(
    code: StatusCode,
    negotiated: &Negotiated,
    request: &HeaderMap,
    value: &Value,
) -> Response<Body> {
    let (content_type, text) = match negotiated.format {
        Format::Yaml => ("application/yaml", yaml::to_text(value)),
        Format::Json if negotiated.pretty => ("application/json", pretty_json(value)),
        Format::Json => ("application/json", value.to_string()),
    };
    bytes_response(code, content_type, request, text.into())
}

fn pretty_json(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

/// Serializes an error as a Status object.
pub(crate) fn error_response(negotiated: &Negotiated, request: &HeaderMap, error: &ApiError) -> Response<Body> {
    let mut response = value_response(error.code, negotiated, request, &error.to_status());
    if let Some(seconds) = error.retry_after {
        response.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    response
}

/// A plain-text response, for health endpoints and the router's 404.
pub(crate) fn text_response(code: StatusCode, text: impl Into<String>) -> Response<Body> {
    let mut response = response(code, "text/plain; charset=utf-8");
    let headers = response.headers_mut();
    headers.insert(HeaderName::from_static("x-content-type-options"), HeaderValue::from_static("nosniff"));
    *response.body_mut() = full(Bytes::from(text.into()));
    response
}

/// Adds a `Warning` header for each text. upstream: if their total length exceeds the limit, each is truncated, and warnings
/// beyond the limit are dropped.
pub(crate) fn add_warnings(response: &mut Response<Body>, warnings: &[String]) {
    let mut seen = HashSet::new();
    let texts: Vec<&str> = warnings.iter().map(String::as_str).filter(|text| seen.insert(*text)).collect();
    let length = |text: &str| text.chars().count();
    let cut = texts.iter().map(|text| length(text)).sum::<usize>() > WARNINGS;
    let mut written = 0;
    for text in texts {
        if written >= WARNINGS {
            break;
        }
        let end = text.char_indices().nth(WARNING_CUT).filter(|_| cut).map_or(text.len(), |(at, _)| at);
        let text = &text[..end];
        written += length(text);
        let quoted = text.replace('\\', "\\\\").replace('"', "\\\"");
        let clean: String = quoted.chars().filter(|c| !c.is_control()).collect();
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{clean}\"")) {
            response.headers_mut().append(WARNING, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warnings_of(texts: impl IntoIterator<Item = String>) -> Vec<usize> {
        let mut response = response(StatusCode::OK, "text/plain");
        add_warnings(&mut response, &texts.into_iter().collect::<Vec<_>>());
        response.headers().get_all(WARNING).iter().map(|value| value.len() - "299 - \"\"".len()).collect()
    }

    #[test]
    fn warnings_are_truncated_beyond_their_total_limit() {
        assert_eq!(warnings_of(["x".repeat(4096)]), [4096]);
        assert_eq!(warnings_of(["x".repeat(4097)]), [256]);
        assert_eq!(warnings_of((0..50_000).map(|n| format!("{n:0300}"))), [256; 16]);
        assert_eq!(warnings_of(vec!["same".to_owned(); 50_000]), [4]);
    }

    #[test]
    fn only_gzip_without_parameters_is_recognised() {
        let cases = [("gzip", true), ("deflate, gzip", true), ("gzip;q=1.0", false), ("gzip;q=0", false), ("*", false)];
        for (value, accepted) in cases {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(value));
            assert_eq!(accepts_gzip(&headers), accepted, "{value}");
        }
    }
}
