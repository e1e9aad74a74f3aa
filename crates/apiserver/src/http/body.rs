//! Request bodies: read up to a limit, then decoded into canonical objects.

use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http_body::Body as HttpBody;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde_json::Value;

use super::negotiate::{BodyType, body_type};
use super::query::FieldValidation;
use crate::resources::{self, Resource};
use crate::schema::{self, DecodeError, Decoded, StrictIssue, TypeId, schema};
use crate::status::{ApiError, ApiResult};
use crate::value::Json;

/// Larger bodies are refused with 413.
pub(crate) const LIMIT: usize = 3 << 20;

/// How long a client may take to send a body, as long as a real server gives a whole request.
const TIME: Duration = Duration::from_secs(60);

/// Reads the whole body.
pub(crate) async fn read<B>(body: B) -> ApiResult<Bytes>
where
    B: HttpBody<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    match tokio::time::timeout(TIME, Limited::new(body, LIMIT).collect()).await {
        Ok(Ok(whole)) => Ok(whole.to_bytes()),
        Err(_) => Err(ApiError::timed_out()),
        Ok(Err(e)) if e.is::<LengthLimitError>() => Err(ApiError::too_large(LIMIT)),
        Ok(Err(e)) => Err(ApiError::bad_request(format!("cannot read the request body: {e}"))),
    }
}

/// What a body is expected to hold.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expected<'a> {
    pub(crate) api_version: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) ty: TypeId,
}

impl<'a> Expected<'a> {
    pub(crate) fn resource(resource: &'static Resource, api_version: &'a str) -> Expected<'a> {
        Expected { api_version, kind: resource.kind, ty: resource.type_id() }
    }

    fn version(&self) -> &str {
        version_of(self.api_version)
    }
}

fn version_of(api_version: &str) -> &str {
    api_version.rsplit('/').next().unwrap_or(api_version)
}

/// Decodes an object body. Issues that strict validation only warns about are appended to `warnings`.
pub(crate) fn decode_object(
    headers: &HeaderMap,
    body: &[u8],
    expected: Expected<'_>,
    validation: FieldValidation,
    warnings: &mut Vec<String>,
) -> ApiResult<Value> {
    let mut decoded = match body_type(headers)? {
        BodyType::Json => decode_text(body, expected, peek_json, schema::decode_json)?,
        BodyType::Yaml => decode_text(body, expected, peek_yaml, schema::decode_yaml)?,
        BodyType::Protobuf => Decoded { value: decode_protobuf(body, expected)?, issues: Vec::new() },
    };
    if let Some(message) = settle_issues(&decoded.issues, validation, warnings) {
        return Err(cannot_handle(expected.kind, expected.version(), expected.kind, &message));
    }
    decoded.value.put("kind", expected.kind);
    decoded.value.put("apiVersion", expected.api_version);
    Ok(decoded.value)
}

/// Strict: the message to refuse with. Warn: adds warnings. Ignore: nothing.
pub(crate) fn settle_issues(
    issues: &[StrictIssue],
    validation: FieldValidation,
    warnings: &mut Vec<String>,
) -> Option<String> {
    match validation {
        _ if issues.is_empty() => None,
        FieldValidation::Ignore => None,
        FieldValidation::Warn => {
            warnings.extend(issues.iter().map(ToString::to_string));
            None
        }
        FieldValidation::Strict => Some(format!("strict decoding error: {}", schema::strict_summary(issues))),
    }
}

fn cannot_handle(kind: &str, version: &str, wanted: &str, why: &str) -> ApiError {
    ApiError::bad_request(format!("{kind} in version {version:?} cannot be handled as a {wanted}: {why}"))
}

#[derive(serde::Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct TypeMeta {
    api_version: Option<String>,
    kind: Option<String>,
}

type Peek = fn(&[u8]) -> Result<TypeMeta, String>;
type Decode = fn(TypeId, &[u8]) -> Result<Decoded, DecodeError>;

fn decode_text(body: &[u8], expected: Expected<'_>, peek: Peek, decode: Decode) -> ApiResult<Decoded> {
    let unrecognized = |why: String| {
        ApiError::bad_request(format!("the object provided is unrecognized (must be of type {}): {why}", expected.kind))
    };
    let meta = peek(body).map_err(unrecognized)?;
    check_type(&meta, expected)?;
    decode(expected.ty, body)
        .map_err(|e| cannot_handle(expected.kind, expected.version(), expected.kind, &e.to_string()))
}

fn peek_json(body: &[u8]) -> Result<TypeMeta, String> {
    match serde_json::from_slice::<Option<TypeMeta>>(body) {
        Ok(meta) => Ok(meta.unwrap_or_default()),
        Err(e) => {
            let why = if e.is_data() { not_an_object(body) } else { schema::json_error(body, &e) };
            Err(format!("couldn't get version/kind; json parse error: {why} ({})", excerpt(body)))
        }
    }
}

/// upstream: Go names the anonymous struct it reads the two fields into.
fn not_an_object(body: &[u8]) -> String {
    let found = match body.trim_ascii_start().first() {
        Some(b'"') => "string",
        Some(b'[') => "array",
        Some(b't' | b'f') => "bool",
        Some(b'{') => return wrong_type_meta(body),
        _ => "number",
    };
    format!(
        "json: cannot unmarshal {found} into Go value of type struct {{ APIVersion string \
         \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}"
    )
}

/// One of the two fields is no text. The struct has no name, so neither has the field's owner.
fn wrong_type_meta(body: &[u8]) -> String {
    let value: Value = serde_json::from_slice(body).unwrap_or_default();
    let fields = ["apiVersion", "kind"].map(|name| (name, json_type(value.at(name))));
    let wrong = fields.into_iter().find(|(_, found)| !matches!(*found, "null" | "string"));
    let (name, found) = wrong.unwrap_or(("kind", "object"));
    format!("json: cannot unmarshal {found} into Go struct field .{name} of type string")
}

fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn peek_yaml(body: &[u8]) -> Result<TypeMeta, String> {
    let (value, _) = schema::yaml::to_value(body).map_err(|e| format!("{e} ({})", hex(body)))?;
    let text = |key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    Ok(TypeMeta { api_version: text("apiVersion"), kind: text("kind") })
}

/// upstream: texts that look like JSON are quoted, everything else is shown as hexadecimal.
fn excerpt(body: &[u8]) -> String {
    const SHOWN: usize = 30;
    if body.is_empty() {
        return "<empty>".into();
    }
    let looks_like_json = matches!(body[0], b'{' | b'[' | b'-' | b' ' | b'\n' | b'\t') || body[0].is_ascii_alphabetic();
    match std::str::from_utf8(body) {
        Ok(text) if looks_like_json && text.chars().count() > SHOWN => {
            format!("{} ...", text.chars().take(SHOWN).collect::<String>())
        }
        Ok(text) if looks_like_json => text.to_owned(),
        _ => hex(body),
    }
}

fn hex(body: &[u8]) -> String {
    const SHOWN: usize = 1024;
    body.iter().take(SHOWN).map(|b| format!("{b:02x}")).collect()
}

/// Refuses an object of another type; what is absent is taken from the path.
fn check_type(meta: &TypeMeta, expected: Expected<'_>) -> ApiResult<()> {
    let kind = meta.kind.as_deref().filter(|k| !k.is_empty()).unwrap_or(expected.kind);
    let api_version = meta.api_version.as_deref().filter(|v| !v.is_empty()).unwrap_or(expected.api_version);
    match other_type(api_version, kind, expected) {
        Some(why) => Err(cannot_handle(kind, version_of(api_version), expected.kind, &why)),
        None => Ok(()),
    }
}

/// Why an object of this type is not what is expected; `None` if it is.
pub(crate) fn other_type(api_version: &str, kind: &str, expected: Expected<'_>) -> Option<String> {
    if kind == expected.kind && api_version == expected.api_version {
        return None;
    }
    let known = resources::find_kind(api_version, kind).is_some() || matches!((api_version, kind), ("v1", "List"));
    Some(if known {
        format!(
            "converting ({}.{kind}) to ({}.{}): unknown conversion",
            version_of(api_version),
            internal_group(expected),
            expected.kind
        )
    } else {
        format!(
            "no kind {kind:?} is registered for version {api_version:?} in scheme \"k8s.io/kubernetes/pkg/api/legacyscheme/scheme.go:30\""
        )
    })
}

/// `core`, `apps`, `rbac`: the name of the Go package of a group's internal types.
fn internal_group<'a>(expected: Expected<'a>) -> &'a str {
    match expected.api_version.split_once('/') {
        Some((group, _)) => group.split('.').next().unwrap_or(group),
        None => "core",
    }
}

fn decode_protobuf(body: &[u8], expected: Expected<'_>) -> ApiResult<Value> {
    let type_of = |api_version: &str, kind: &str| {
        let matches = (api_version.is_empty() || api_version == expected.api_version)
            && (kind.is_empty() || kind == expected.kind);
        matches.then_some(expected.ty)
    };
    schema::decode_protobuf(schema(), body, type_of).map_err(|e| match e {
        DecodeError::Syntax(why) => ApiError::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): {why} ({})",
            expected.kind,
            hex(body)
        )),
        DecodeError::Type(why) => cannot_handle(expected.kind, expected.version(), expected.kind, &why),
    })
}

/// Decodes the optional `DeleteOptions` of a DELETE. They may carry any group's version, or none.
pub(crate) fn decode_delete_options(headers: &HeaderMap, body: &[u8]) -> ApiResult<Value> {
    if body.is_empty() {
        return Ok(Value::Null);
    }
    let ty = schema().id("meta/v1.DeleteOptions");
    let value = match body_type(headers)? {
        BodyType::Protobuf => schema::decode_protobuf(schema(), body, |_, _| Some(ty)),
        BodyType::Yaml => schema::decode_yaml(ty, body).map(|d| d.value),
        BodyType::Json => {
            let meta = serde_json::from_slice::<Option<TypeMeta>>(body).map_err(|e| {
                let why = schema::json_error(body, &e);
                ApiError::bad_request(format!("couldn't get version/kind; json parse error: {why}"))
            })?;
            refuse_other_kind(&meta.unwrap_or_default())?;
            schema::decode_json(ty, body).map(|d| d.value)
        }
    };
    value.map_err(|e| ApiError::bad_request(e.to_string()))
}

fn refuse_other_kind(meta: &TypeMeta) -> ApiResult<()> {
    match meta.kind.as_deref() {
        None | Some("" | "DeleteOptions") => Ok(()),
        Some(kind) => {
            let version = meta.api_version.as_deref().unwrap_or_default();
            Err(ApiError::bad_request(format!(
                "no kind {kind:?} is registered for version {version:?} in scheme \"k8s.io/kubernetes/pkg/api/legacyscheme/scheme.go:30\""
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::stream;
    use http_body::Frame;
    use http_body_util::StreamBody;

    #[tokio::test(start_paused = true)]
    async fn a_body_that_never_ends_is_not_waited_for_for_ever() {
        let unfinished = stream::pending::<Result<Frame<Bytes>, std::io::Error>>();
        let error = read(StreamBody::new(unfinished)).await.unwrap_err();
        assert_eq!((error.code.as_u16(), error.reason), (504, Some("Timeout")));
        assert_eq!(error.message, "Timeout: request did not complete within the allotted timeout");
    }
}
