//! Metadata rules that all kinds share.

use serde_json::Value;

use super::WriteCx;
use crate::field_error::FieldError;

/// Checks `metadata` of a new object (its name and generateName included).
pub(crate) fn validate_create(_cx: &WriteCx<'_>, _obj: &Value) -> Vec<FieldError> {
    Vec::new()
}

/// Checks `metadata` of a change.
pub(crate) fn validate_update(_cx: &WriteCx<'_>, _new: &Value, _old: &Value) -> Vec<FieldError> {
    Vec::new()
}

/// Texts for `Warning` headers about metadata, and the fixes that go with them (duplicate owner references go).
pub(crate) fn tidy(_obj: &mut Value) -> Vec<String> {
    Vec::new()
}
