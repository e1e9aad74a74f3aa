//! Field errors of validation, with upstream's messages.

use std::fmt;

use serde_json::{Value, json};

use crate::go_text;
use crate::schema::{Ty, schema};

/// Type of a field error, as in upstream's `field.ErrorType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldErrorKind {
    Required,
    Duplicate,
    Invalid,
    NotSupported,
    Forbidden,
    TooLong,
    TooMany,
    Internal,
}

impl FieldErrorKind {
    /// The `reason` of a cause in `details.causes`.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::Internal => "InternalError",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Required => "Required value",
            Self::Duplicate => "Duplicate value",
            Self::Invalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::Internal => "Internal error",
        }
    }
}

/// A validation error of one field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FieldError {
    pub(crate) kind: FieldErrorKind,
    /// `spec.ports[0].port`.
    pub(crate) field: String,
    /// The invalid value as printed, quoted if it is a string; `None` where the message omits it.
    value: Option<String>,
    detail: String,
}

impl FieldError {
    fn new(kind: FieldErrorKind, field: impl Into<String>, value: Option<String>, detail: impl Into<String>) -> Self {
        FieldError { kind, field: field.into(), value, detail: detail.into() }
    }

    pub(crate) fn required(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Required, field, None, detail)
    }

    pub(crate) fn invalid(field: impl Into<String>, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Invalid, field, Some(format_value(&value.into())), detail)
    }

    /// Like [`FieldError::invalid`] for a value that is already formatted as Go prints it.
    pub(crate) fn invalid_as(field: impl Into<String>, formatted: String, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Invalid, field, Some(formatted), detail)
    }

    /// Like [`FieldError::duplicate`] for a value that is already formatted as Go prints it.
    pub(crate) fn duplicate_as(field: impl Into<String>, formatted: String, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Duplicate, field, Some(formatted), detail)
    }

    pub(crate) fn duplicate(field: impl Into<String>, value: impl Into<Value>) -> Self {
        Self::new(FieldErrorKind::Duplicate, field, Some(format_value(&value.into())), "")
    }

    pub(crate) fn forbidden(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Forbidden, field, None, detail)
    }

    /// Lists `supported` in the given order.
    pub(crate) fn not_supported(field: impl Into<String>, value: impl Into<Value>, supported: &[&str]) -> Self {
        Self::not_supported_as(field, format_value(&value.into()), supported)
    }

    /// Like [`FieldError::not_supported`] for a value that is already formatted as Go prints it.
    pub(crate) fn not_supported_as(field: impl Into<String>, formatted: String, supported: &[&str]) -> Self {
        let list: Vec<String> = supported.iter().map(|s| format!("{s:?}")).collect();
        let detail = if list.is_empty() { String::new() } else { format!("supported values: {}", list.join(", ")) };
        Self::new(FieldErrorKind::NotSupported, field, Some(formatted), detail)
    }

    /// A string or object larger than `max` bytes.
    pub(crate) fn too_long(field: impl Into<String>, max: usize) -> Self {
        Self::new(FieldErrorKind::TooLong, field, None, format!("may not be more than {max} bytes"))
    }

    pub(crate) fn too_many(field: impl Into<String>, actual: usize, max: usize) -> Self {
        let unit = if max == 1 { "item" } else { "items" };
        Self::new(FieldErrorKind::TooMany, field, Some(actual.to_string()), format!("must have at most {max} {unit}"))
    }

    pub(crate) fn internal(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Internal, field, None, detail)
    }

    /// The message without the field path.
    pub(crate) fn body(&self) -> String {
        let mut text = self.kind.title().to_owned();
        if let Some(value) = &self.value {
            text.push_str(": ");
            text.push_str(value);
        }
        if !self.detail.is_empty() {
            text.push_str(": ");
            text.push_str(&self.detail);
        }
        text
    }

    /// The entry for `details.causes`.
    pub(crate) fn cause(&self) -> Value {
        let mut cause = json!({"reason": self.kind.reason(), "message": self.body()});
        if !self.field.is_empty() {
            cause["field"] = self.field.clone().into();
        }
        cause
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body())
    }
}

// === Formatting values as Go does ===

/// Quotes strings and formats everything else as JSON.
fn format_value(value: &Value) -> String {
    match value {
        Value::String(text) => go_text::quote(text),
        other => go_json(other),
    }
}

/// JSON with the HTML characters escaped that Go's encoding/json escapes.
fn go_json(value: &Value) -> String {
    let mut text = value.to_string();
    for (c, escaped) in
        [('<', "\\u003c"), ('>', "\\u003e"), ('&', "\\u0026"), ('\u{2028}', "\\u2028"), ('\u{2029}', "\\u2029")]
    {
        if text.contains(c) {
            text = text.replace(c, escaped);
        }
    }
    text
}

/// JSON with object fields in the order of their type's declaration, as Go marshals structs.
pub(crate) fn typed_json(ty: &Ty, value: &Value) -> String {
    match (ty, value) {
        (Ty::Struct(id), Value::Object(object)) => {
            let fields = &schema().get(*id).fields;
            let given = fields.iter().filter_map(|f| object.get(f.name).map(|v| (f.name, typed_json(&f.ty, v))));
            braced(given)
        }
        (Ty::List(item), Value::Array(items)) => {
            let items: Vec<String> = items.iter().map(|v| typed_json(item, v)).collect();
            format!("[{}]", items.join(","))
        }
        _ => go_json(value),
    }
}

/// JSON of an internal type of upstream, which has no JSON tags: all fields in order, with their Go names.
pub(crate) fn go_struct(fields: &[(&str, Value)]) -> String {
    braced(fields.iter().map(|(name, value)| (*name, go_json(value))))
}

fn braced<'a>(members: impl Iterator<Item = (&'a str, String)>) -> String {
    let members: Vec<String> = members.map(|(name, value)| format!("\"{name}\":{value}")).collect();
    format!("{{{}}}", members.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_formatted_as_json_with_html_escaped() {
        let error = FieldError::invalid("f", json!(["<a>", "b"]), "d");
        assert_eq!(error.to_string(), r#"f: Invalid value: ["\u003ca\u003e","b"]: d"#);
    }

    #[test]
    fn structs_are_formatted_in_declaration_order() {
        let ty = Ty::Struct(schema().id("meta/v1.OwnerReference"));
        let owner = json!({"uid": "u", "name": "x", "kind": "K", "controller": true, "apiVersion": "v1"});
        assert_eq!(typed_json(&ty, &owner), r#"{"apiVersion":"v1","kind":"K","name":"x","uid":"u","controller":true}"#);
        let formatted = go_struct(&[("Type", "InternalIP".into()), ("Address", Value::Null)]);
        assert_eq!(formatted, r#"{"Type":"InternalIP","Address":null}"#);
    }
}
