//! What validation finds: a field, what is wrong with it, and the words for it.

use std::fmt;

use serde_json::{Value, json};

/// The sort of an error, with the names the API gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldErrorKind {
    NotFound,
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
    /// The `reason` of a cause.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::NotFound => "FieldValueNotFound",
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
            Self::NotFound => "Not found",
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

/// One problem of one field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FieldError {
    pub(crate) kind: FieldErrorKind,
    /// `spec.ports[0].port`.
    pub(crate) field: String,
    /// The offending value as it is shown, quoted if it is text; `None` where it is left out.
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
        Self::new(FieldErrorKind::Invalid, field, Some(shown(&value.into())), detail)
    }

    pub(crate) fn duplicate(field: impl Into<String>, value: impl Into<Value>) -> Self {
        Self::new(FieldErrorKind::Duplicate, field, Some(shown(&value.into())), "")
    }

    /// For values that Go shows in a form of its own; `shown` is that form.
    pub(crate) fn duplicate_shown(field: impl Into<String>, shown: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Duplicate, field, Some(shown.into()), "")
    }

    pub(crate) fn not_found(field: impl Into<String>, value: impl Into<Value>) -> Self {
        Self::new(FieldErrorKind::NotFound, field, Some(shown(&value.into())), "")
    }

    pub(crate) fn forbidden(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Forbidden, field, None, detail)
    }

    /// `supported` is listed in the given order.
    pub(crate) fn not_supported(field: impl Into<String>, value: impl Into<Value>, supported: &[&str]) -> Self {
        let list: Vec<String> = supported.iter().map(|s| format!("{s:?}")).collect();
        let detail = if list.is_empty() { String::new() } else { format!("supported values: {}", list.join(", ")) };
        Self::new(FieldErrorKind::NotSupported, field, Some(shown(&value.into())), detail)
    }

    /// A text or size over its limit; `max` in bytes.
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

    /// The message without the field.
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

    /// The entry of `details.causes`.
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

/// Text is quoted, everything else is shown as JSON.
fn shown(value: &Value) -> String {
    value.to_string()
}
