//! Request bodies, errors and pages of the API.

use bowline_simulator::{Body, Call, Fault, Record, Reply};
use http::StatusCode;
use serde_json::{Value, json};

/// Successful response, or an error response.
pub(crate) type Outcome = Result<Reply, Reply>;

/// Fault that answers with an error in the API's format.
pub fn error_fault(status: u16, message: &str) -> Fault {
    Fault::Answer(status, json!({"id": error_id(status), "message": message, "request_id": "injected"}).to_string())
}

/// Error response. [`with_request_id`] adds the ID of the request.
pub(crate) fn error(status: u16, message: impl Into<String>) -> Reply {
    Reply::json(status, json!({"id": error_id(status), "message": message.into()}))
}

fn error_id(status: u16) -> String {
    let reason = StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
    reason.filter(|_| status != 500).unwrap_or("server error").to_lowercase().replace(' ', "_")
}

/// Rejects the request with 422 unless the condition holds.
pub(crate) fn require(condition: bool, message: impl Into<String>) -> Result<(), Reply> {
    if condition { Ok(()) } else { Err(error(422, message)) }
}

/// Name of a single record: `load_balancer` for `load_balancers`.
pub(crate) fn singular(kind: &str) -> &str {
    kind.strip_suffix('s').unwrap_or(kind)
}

/// Error for an unknown ID.
pub(crate) fn not_found(kind: &str) -> Reply {
    error(404, format!("The {} you requested could not be found.", singular(kind).replace('_', " ")))
}

/// Adds the request ID to a response: as a header, and to the body of an error.
pub(crate) fn with_request_id(mut reply: Reply, id: &str) -> Reply {
    if let (Body::Json(Value::Object(body)), 400..) = (&mut reply.body, reply.status) {
        body.insert("request_id".to_owned(), json!(id));
    }
    reply.with("x-request-id", id)
}

/// Object in the request body.
pub(crate) fn sent(call: &Call) -> Result<Record, Reply> {
    match call.json() {
        Some(Value::Object(body)) => Ok(body),
        Some(_) => Err(error(422, "The request body must be a JSON object.")),
        None => Err(error(400, "Unable to parse the request body as JSON.")),
    }
}

/// Whether the text has only letters, digits, dots and dashes, and begins with a letter or digit.
pub(crate) fn is_name(text: &str) -> bool {
    let is_legal = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '-';
    text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.len() <= 255 && text.chars().all(is_legal)
}

/// One page of a list: 20 records by default, and at most `max`.
pub(crate) fn page<T>(call: &Call, kind: &str, items: &[T], max: usize, render: impl Fn(&T) -> Record) -> Outcome {
    let page = parameter(call, "page", 1)?.max(1);
    let size = parameter(call, "per_page", 20)?.clamp(1, max);
    let last = items.len().div_ceil(size).max(1);
    let before = [("first", 1), ("prev", page - 1)].into_iter().filter(|_| page > 1);
    let after = [("next", page + 1), ("last", last)].into_iter().filter(|_| page < last);
    let pages: Record = before.chain(after).map(|(name, to)| (name.to_owned(), link(call, to, size))).collect();
    let links = if pages.is_empty() { json!({}) } else { json!({"pages": pages}) };
    let shown = items.iter().skip((page - 1).saturating_mul(size)).take(size);
    let shown: Vec<Value> = shown.map(|item| render(item).into()).collect();
    Ok(Reply::json(200, json!({kind: shown, "links": links, "meta": {"total": items.len()}})))
}

/// Value of a filter in the query. An empty one does not count.
pub(crate) fn filter<'a>(call: &'a Call, name: &'a str) -> Option<&'a str> {
    call.value(name).filter(|value| !value.is_empty())
}

fn parameter(call: &Call, name: &str, default: usize) -> Result<usize, Reply> {
    let Some(text) = call.value(name) else { return Ok(default) };
    text.parse().map_err(|_| error(400, format!("{name} must be a positive integer")))
}

/// Absolute URL of another page, with the other parameters of this request.
fn link(call: &Call, page: usize, size: usize) -> Value {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(call.query.iter().filter(|(name, _)| name != "page" && name != "per_page"));
    query.append_pair("page", &page.to_string()).append_pair("per_page", &size.to_string());
    json!(format!("{}/{}?{}", call.origin, call.path.join("/"), query.finish()))
}
