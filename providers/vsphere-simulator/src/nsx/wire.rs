//! Request bodies, query parameters and errors of the API.

use bowline_simulator::{Call, Fault, Record, Reply};
use http::StatusCode;
use serde_json::{Value, json};

/// Successful response, or an error response.
pub(crate) type Outcome = Result<Reply, Reply>;

/// Fault that answers with an error in the API's format.
pub fn error_fault(status: u16, code: u32, message: &str) -> Fault {
    Fault::Answer(status, error_body(status, code, message).to_string())
}

/// Fault that answers with an HTML page, as from a proxy.
pub fn html_fault(status: u16) -> Fault {
    Fault::Answer(status, format!("<html><head><title>{status}</title></head><body>The proxy failed.</body></html>"))
}

pub(crate) fn error(status: u16, code: u32, message: impl AsRef<str>) -> Reply {
    Reply::json(status, error_body(status, code, message.as_ref()))
}

fn error_body(status: u16, code: u32, message: &str) -> Value {
    let reason = StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason()).unwrap_or("Unknown");
    let name = reason.to_uppercase().replace(' ', "_");
    let module = if code >= 500_000 { "policy" } else { "common-services" };
    json!({"httpStatus": name, "error_code": code, "module_name": module, "error_message": message})
}

/// Error for a field that is unknown.
pub(crate) fn unrecognized(field: &str) -> Reply {
    error(400, 287, format!("Json de-serialization error: property {field} is unrecognized."))
}

/// Error for a parameter that is unknown, or for a wrong value.
pub(crate) fn invalid(message: impl AsRef<str>) -> Reply {
    error(400, 255, format!("Field level validation errors: {{{}}}", message.as_ref()))
}

/// Rejects the request with 400 unless the condition holds.
pub(crate) fn require(condition: bool, message: impl AsRef<str>) -> Result<(), Reply> {
    if condition { Ok(()) } else { Err(invalid(message)) }
}

/// Error for an unknown object.
pub(crate) fn not_found(path: &str) -> Reply {
    error(404, 600, format!("The requested object : {path} could not be found. Object identifiers are case sensitive."))
}

/// Error for a path in the request that leads to no object.
pub(crate) fn invalid_path(path: &str) -> Reply {
    error(400, 500_012, format!("The path=[{path}] is invalid"))
}

/// Object in the request body.
pub(crate) fn sent(call: &Call) -> Result<Record, Reply> {
    match call.json() {
        Some(Value::Object(body)) => Ok(body),
        _ => Err(error(400, 220, "JSON message parse error: the body is not an object")),
    }
}

/// Rejects query parameters other than these, and repeated ones.
pub(crate) fn check_parameters(call: &Call, known: &[&str]) -> Result<(), Reply> {
    for (name, _) in &call.query {
        require(known.contains(&name.as_str()), format!("query parameter {name} is not known"))?;
        require(call.values(name).count() == 1, format!("query parameter {name} is repeated"))?;
    }
    Ok(())
}

/// Value of a boolean query parameter; `false` if it is missing.
pub(crate) fn flag(call: &Call, name: &str) -> Result<bool, Reply> {
    let text = call.value(name).unwrap_or("false");
    text.parse().map_err(|_| invalid(format!("query parameter {name} is not a boolean")))
}
