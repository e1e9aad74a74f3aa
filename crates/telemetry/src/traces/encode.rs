//! Encodes spans as OTLP `ExportTraceServiceRequest`, in protobuf or JSON.

use serde_json::{Value as Json, json};

use super::protobuf::Message;
use super::span::{Span, Value};

/// Name of the instrumentation scope.
const SCOPE: &str = "bowline";

/// OTLP status code of a failed span.
const FAILED: u64 = 2;

/// Encodes spans in protobuf.
pub(super) fn protobuf(resource: &[(String, String)], spans: &[Span]) -> Vec<u8> {
    let mut request = Message::default();
    request.message(1, |resource_spans| {
        resource_spans.message(1, |message| {
            resource.iter().for_each(|(key, value)| text_attribute(message, 1, key, value));
        });
        resource_spans.message(2, |scope_spans| {
            scope_spans.message(1, |scope| {
                scope.bytes(1, SCOPE.as_bytes()).bytes(2, env!("CARGO_PKG_VERSION").as_bytes());
            });
            for span in spans {
                scope_spans.message(2, |message| span_message(message, span));
            }
        });
    });
    request.into_bytes()
}

fn span_message(message: &mut Message, span: &Span) {
    message.bytes(1, &span.trace.to_be_bytes()).bytes(2, &span.id.to_be_bytes());
    if let Some(parent) = span.parent {
        message.bytes(4, &parent.to_be_bytes());
    }
    message.bytes(5, span.name.as_bytes()).varint(6, span.kind as u64);
    message.fixed(7, span.start).fixed(8, span.end);
    span.attributes.iter().for_each(|(key, value)| attribute(message, 9, key, value));
    if let Some(error) = &span.error {
        message.message(15, |status| {
            status.bytes(2, error.as_bytes()).varint(3, FAILED);
        });
    }
}

fn attribute(message: &mut Message, field: u64, key: &str, value: &Value) {
    message.message(field, |pair| {
        pair.bytes(1, key.as_bytes()).message(2, |any| {
            match value {
                Value::Text(text) => any.bytes(1, text.as_bytes()),
                Value::Bool(value) => any.varint(2, u64::from(*value)),
                Value::Integer(value) => any.varint(3, *value as u64),
                Value::Number(value) => any.fixed(4, value.to_bits()),
            };
        });
    });
}

fn text_attribute(message: &mut Message, field: u64, key: &str, value: &str) {
    attribute(message, field, key, &Value::Text(value.to_owned()));
}

/// Encodes spans in JSON, in which 64-bit numbers are strings and IDs are hexadecimal.
pub(super) fn json(resource: &[(String, String)], spans: &[Span]) -> Vec<u8> {
    let resource: Vec<_> =
        resource.iter().map(|(key, value)| json!({"key": key, "value": {"stringValue": value}})).collect();
    let spans: Vec<_> = spans.iter().map(span_json).collect();
    let scope = json!({"name": SCOPE, "version": env!("CARGO_PKG_VERSION")});
    let scopes = json!([{"scope": scope, "spans": spans}]);
    json!({"resourceSpans": [{"resource": {"attributes": resource}, "scopeSpans": scopes}]}).to_string().into_bytes()
}

fn span_json(span: &Span) -> Json {
    let attributes: Vec<_> =
        span.attributes.iter().map(|(key, value)| json!({"key": key, "value": value_json(value)})).collect();
    let mut object = json!({
        "traceId": format!("{:032x}", span.trace),
        "spanId": format!("{:016x}", span.id),
        "name": span.name,
        "kind": span.kind as u64,
        "startTimeUnixNano": span.start.to_string(),
        "endTimeUnixNano": span.end.to_string(),
        "attributes": attributes,
    });
    if let Some(fields) = object.as_object_mut() {
        fields.extend(span.parent.map(|parent| ("parentSpanId".to_owned(), format!("{parent:016x}").into())));
        let status = span.error.as_ref().map(|error| json!({"code": FAILED, "message": error}));
        fields.extend(status.map(|status| ("status".to_owned(), status)));
    }
    object
}

fn value_json(value: &Value) -> Json {
    match value {
        Value::Text(text) => json!({"stringValue": text}),
        Value::Bool(value) => json!({"boolValue": value}),
        Value::Integer(value) => json!({"intValue": value.to_string()}),
        Value::Number(value) => json!({"doubleValue": value}),
    }
}
