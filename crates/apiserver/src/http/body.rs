//! Reads request bodies up to a size limit and decodes them into canonical objects.

use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http_body::Body as HttpBody;
use http_body_util::BodyExt as _;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::kinds;
use super::negotiate::{BodyType, body_type};
use super::query::FieldValidation;
use crate::limits::{Memory, REQUEST_TIMEOUT};
use crate::patch::json_kind;
use crate::resources::Resource;
use crate::schema::{self, DecodeError, Decoded, StrictIssue, TypeId, schema};
use crate::status::{ApiError, ApiResult};
use crate::value::Json;

/// Maximum size of a request body in bytes; larger bodies are rejected with status 413.
pub(crate) const LIMIT: usize = 3 << 20;

/// Timeout for reading the body of a rejected request.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(10);

/// Reads the whole body and accounts for its memory as it grows.
pub(crate) async fn read<B>(body: Pin<&mut B>, memory: &mut Memory<'_>) -> ApiResult<Bytes>
where
    B: HttpBody<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    tokio::time::timeout(REQUEST_TIMEOUT, collect(body, memory)).await.unwrap_or_else(|_| Err(ApiError::timed_out()))
}

async fn collect<B>(mut body: Pin<&mut B>, memory: &mut Memory<'_>) -> ApiResult<Bytes>
where
    B: HttpBody<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (mut parts, mut size) = (Vec::new(), 0);
    while let Some(frame) = body.frame().await {
        let read_error = |e: B::Error| ApiError::bad_request(format!("cannot read the request body: {}", e.into()));
        let Ok(data) = frame.map_err(read_error)?.into_data() else { continue };
        size += data.len();
        if size > LIMIT {
            return Err(ApiError::too_large(LIMIT));
        }
        memory.grow(size)?;
        parts.push(data);
    }
    Ok(match parts.len() {
        1 => parts.swap_remove(0),
        _ => parts.concat().into(),
    })
}

/// Reads and discards the rest of a rejected request's body, up to the limit. Otherwise a client that is still sending
/// would see a broken connection instead of the response.
pub(crate) async fn discard<B: HttpBody<Data = Bytes>>(mut body: Pin<&mut B>) {
    let drain = async {
        let mut size = 0;
        while let Some(Ok(frame)) = body.frame().await {
            size += frame.data_ref().map_or(0, Bytes::len);
            if size > LIMIT {
                break;
            }
        }
    };
    // The response is the same whether or not the body was read completely.
    let _ = tokio::time::timeout(DISCARD_TIMEOUT, drain).await;
}

/// The type of object that a body must contain.
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

/// Decodes an object body. With field validation `Warn`, strict decoding errors are appended to `warnings`.
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
    if let Some(message) = apply_field_validation(&decoded.issues, validation, warnings) {
        return Err(cannot_handle(expected.kind, expected.version(), expected.kind, &message));
    }
    decoded.value.put("kind", expected.kind);
    decoded.value.put("apiVersion", expected.api_version);
    Ok(decoded.value)
}

/// Handles strict decoding errors: `Strict` returns the error message, `Warn` adds warnings, `Ignore` does nothing.
pub(crate) fn apply_field_validation(
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
    let meta = peek(body).map_err(|why| unrecognized(body, expected, &why))?;
    check_type(&meta, body, expected)?;
    decode(expected.ty, body)
        .map_err(|e| cannot_handle(expected.kind, expected.version(), expected.kind, &e.to_string()))
}

/// The error for a body that is not an API object, with an excerpt of the body.
fn unrecognized(body: &[u8], expected: Expected<'_>, why: &str) -> ApiError {
    let (kind, printed) = (expected.kind, excerpt(body));
    ApiError::bad_request(format!("the object provided is unrecognized (must be of type {kind}): {why} ({printed})"))
}

fn peek_json(body: &[u8]) -> Result<TypeMeta, String> {
    let meta = match body.trim_ascii_start().first() {
        // serde would deserialize an array as the struct's fields in order.
        Some(b'[') => serde_json::from_slice::<IgnoredAny>(body).map(|_| None),
        _ => serde_json::from_slice::<Option<TypeMeta>>(body).map(|meta| Some(meta.unwrap_or_default())),
    };
    let why = match meta {
        Ok(Some(meta)) => return Ok(meta),
        Ok(None) => not_an_object(body),
        Err(e) if e.is_data() => not_an_object(body),
        Err(e) => schema::json_error(body, &e),
    };
    Err(format!("couldn't get version/kind; json parse error: {why}"))
}

/// Why apiVersion and kind of a JSON object cannot be read; `None` if they can.
pub(crate) fn type_meta_error(text: &[u8]) -> Option<String> {
    match peek_json(text) {
        Ok(meta) => meta.api_version.as_deref().and_then(api_version_error),
        Err(why) => Some(why),
    }
}

/// The error for an apiVersion with more than one slash.
fn api_version_error(api_version: &str) -> Option<String> {
    let parts = api_version.matches('/').count();
    (parts > 1).then(|| format!("unexpected GroupVersion string: {api_version}"))
}

/// upstream: the message contains the anonymous Go struct with the two fields.
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

/// The error if apiVersion or kind is not a string. The Go struct is anonymous, so the message has an empty type name.
fn wrong_type_meta(body: &[u8]) -> String {
    let value: Value = serde_json::from_slice(body).unwrap_or_default();
    let fields = ["apiVersion", "kind"].map(|name| (name, json_kind(value.at(name))));
    let wrong = fields.into_iter().find(|(_, found)| !matches!(*found, "null" | "string"));
    let (name, found) = wrong.unwrap_or(("kind", "object"));
    format!("json: cannot unmarshal {found} into Go struct field .{name} of type string")
}

/// upstream: YAML is converted to JSON first.
fn peek_yaml(body: &[u8]) -> Result<TypeMeta, String> {
    let (value, _) = schema::yaml::to_value(body).map_err(|e| e.to_string())?;
    match &value {
        Value::Object(fields) => {
            let is_text = |name: &str| fields.get(name).is_none_or(|v| v.is_string() || v.is_null());
            if !is_text("apiVersion") || !is_text("kind") {
                return peek_json(value.to_string().as_bytes());
            }
            let text = |key: &str| fields.get(key).and_then(Value::as_str).map(str::to_owned);
            Ok(TypeMeta { api_version: text("apiVersion"), kind: text("kind") })
        }
        other => peek_json(other.to_string().as_bytes()),
    }
}

/// upstream: a body that starts with `{` is printed as text, everything else in hexadecimal.
fn excerpt(body: &[u8]) -> String {
    const SHOWN: usize = 30;
    let start = &body[..body.len().min(SHOWN)];
    let dots = if body.len() > SHOWN { " ..." } else { "" };
    match body.first() {
        None => "<empty>".into(),
        Some(b'{') => format!("{}{dots}", String::from_utf8_lossy(start)),
        Some(_) => start.iter().map(|b| format!("{b:02x}")).chain([dots.to_owned()]).collect(),
    }
}

/// Rejects an object of another type; missing apiVersion and kind default to those of the path.
fn check_type(meta: &TypeMeta, body: &[u8], expected: Expected<'_>) -> ApiResult<()> {
    let kind = meta.kind.as_deref().filter(|k| !k.is_empty()).unwrap_or(expected.kind);
    let api_version = meta.api_version.as_deref().filter(|v| !v.is_empty()).unwrap_or(expected.api_version);
    if let Some(why) = api_version_error(api_version) {
        return Err(unrecognized(body, expected, &why));
    }
    let wanted = expected.api_version;
    if kind == expected.kind && api_version != wanted && kinds::same_kind(kind, api_version, wanted) {
        return Err(ApiError::bad_request(format!(
            "the API version in the data ({api_version}) does not match the expected API version ({wanted})"
        )));
    }
    match type_mismatch(api_version, kind, expected) {
        Some(why) => Err(cannot_handle(kind, version_of(api_version), expected.kind, &why)),
        None => Ok(()),
    }
}

/// The error for an object of another type than expected; `None` if the types match.
pub(crate) fn type_mismatch(api_version: &str, kind: &str, expected: Expected<'_>) -> Option<String> {
    if kind == expected.kind && api_version == expected.api_version {
        return None;
    }
    Some(if kinds::is_registered(api_version, kind) {
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

/// The Go package of a group's internal types: `core`, `apps`, `rbac`.
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
        DecodeError::Syntax(why) => unrecognized(body, expected, &why),
        DecodeError::Type(why) => cannot_handle(expected.kind, expected.version(), expected.kind, &why),
    })
}

/// Decodes the optional `DeleteOptions` of a DELETE. Their apiVersion may be that of any group, or empty.
pub(crate) fn decode_delete_options(headers: &HeaderMap, body: &[u8]) -> ApiResult<Value> {
    if body.is_empty() {
        return Ok(Value::Null);
    }
    let ty = schema().id("meta/v1.DeleteOptions");
    let value = match body_type(headers)? {
        BodyType::Protobuf => schema::decode_protobuf(schema(), body, |_, _| Some(ty)),
        BodyType::Yaml => schema::decode_yaml(ty, body).map(|d| d.value),
        BodyType::Json => {
            let meta = peek_json(body).map_err(ApiError::bad_request)?;
            // Check the kind first: a body of another kind may have fields that fail to decode.
            check_delete_options_kind(meta.kind.as_deref().unwrap_or(""), meta.api_version.as_deref().unwrap_or(""))?;
            schema::decode_json(ty, body).map(|d| d.value)
        }
    };
    let value = value.map_err(|e| ApiError::bad_request(e.to_string()))?;
    check_delete_options_kind(value.text("kind"), value.text("apiVersion"))?;
    Ok(value)
}

fn check_delete_options_kind(kind: &str, version: &str) -> ApiResult<()> {
    if matches!(kind, "" | "DeleteOptions") {
        return Ok(());
    }
    let version = if version.is_empty() { "meta.k8s.io/v1" } else { version };
    Err(ApiError::bad_request(format!(
        "no kind {kind:?} is registered for version {version:?} in scheme \
         \"k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme/register.go:27\""
    )))
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures::stream;
    use http_body::Frame;
    use http_body_util::StreamBody;

    use super::*;
    use crate::limits::Limits;
    use crate::resources::RESOURCES;

    fn rejection(content_type: &'static str, body: &str) -> String {
        let resource = RESOURCES.iter().find(|r| r.plural == "configmaps").unwrap();
        let headers =
            HeaderMap::from_iter([(http::header::CONTENT_TYPE, http::HeaderValue::from_static(content_type))]);
        let expected = Expected::resource(resource, "v1");
        let decoded = decode_object(&headers, body.as_bytes(), expected, FieldValidation::Warn, &mut Vec::new());
        decoded.unwrap_err().message
    }

    #[test]
    fn bodies_that_are_not_objects_are_unrecognized() {
        let no_object = |found: &str, printed: &str| {
            format!(
                "the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse \
                 error: json: cannot unmarshal {found} into Go value of type struct {{ APIVersion string \
                 \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }} ({printed})"
            )
        };
        assert_eq!(rejection("application/json", "[]"), no_object("array", "5b5d"));
        assert_eq!(rejection("application/json", "[1]"), no_object("array", "5b315d"));
        assert_eq!(rejection("application/json", "true"), no_object("bool", "74727565"));
        assert_eq!(rejection("application/yaml", "- a"), no_object("array", "2d2061"));
        assert!(rejection("application/json", "[1").ends_with("unexpected end of JSON input (5b31)"));
    }

    #[test]
    fn long_bodies_are_truncated_in_errors() {
        let text = rejection("application/json", &format!("[\"{}", "x".repeat(40)));
        assert!(text.ends_with(&format!("(5b22{} ...)", "78".repeat(28))), "{text}");
    }

    #[test]
    fn invalid_versions_and_other_kinds_have_different_errors() {
        let versions = "{\"apiVersion\":\"a/b/c\",\"kind\":\"ConfigMap\"}";
        assert!(rejection("application/json", versions).contains("unexpected GroupVersion string: a/b/c ({"));
        let list = "{\"kind\":\"ConfigMapList\",\"apiVersion\":\"v1\"}";
        assert!(
            rejection("application/json", list)
                .ends_with("converting (v1.ConfigMapList) to (core.ConfigMap): unknown conversion")
        );
    }

    #[test]
    fn bodies_without_a_readable_type_are_rejected() {
        const NO_TYPE: &str = "couldn't get version/kind; json parse error: ";
        let cases = [
            (r#"{"kind": "A", "apiVersion": "v1"}"#, None),
            ("null", None),
            ("[]", Some("json: cannot unmarshal array into Go value of type struct")),
            (r#"["v1", "ConfigMap"]"#, Some("json: cannot unmarshal array into Go value of type struct")),
            (r#"{"kind": 5}"#, Some("json: cannot unmarshal number into Go struct field .kind of type string")),
        ];
        for (text, expected) in cases {
            let found = type_meta_error(text.as_bytes());
            let expected = expected.map(|why| format!("{NO_TYPE}{why}"));
            let starts = found.as_deref().zip(expected.as_deref()).is_none_or(|(found, why)| found.starts_with(why));
            assert!(starts && found.is_some() == expected.is_some(), "{text}: {found:?}");
        }
        let found = type_meta_error(br#"{"apiVersion": "a/b/c"}"#);
        assert_eq!(found.as_deref(), Some("unexpected GroupVersion string: a/b/c"));
    }

    #[tokio::test(start_paused = true)]
    async fn reading_a_body_that_never_ends_times_out() {
        let unfinished = stream::pending::<Result<Frame<Bytes>, std::io::Error>>();
        let (limits, body) = (Limits::default(), pin!(StreamBody::new(unfinished)));
        let error = read(body, &mut limits.client("jane").memory()).await.unwrap_err();
        assert_eq!((error.code.as_u16(), error.reason), (504, Some("Timeout")));
        assert_eq!(error.message, "Timeout: request did not complete within the allotted timeout");
    }
}
