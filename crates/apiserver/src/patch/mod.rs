//! Patch types other than server-side apply: JSON patch, merge patch, strategic merge patch.
//!
//! ```text
//!  text ─► Patch ─► apply to the current object ─► patched value ─► decoded by the schema (elsewhere)
//!                                                       │ decode error, or strict validation error
//!                                                       └─► AppliedPatch: 422 `"" is invalid: patch: …`
//! ```

mod applied;
pub(crate) mod go_values;
mod json;
mod lists;
mod merge;
mod restore;
mod strategic;
mod strict;
mod untouched;

use serde_json::{Map, Value};

use crate::schema::{DecodeError, TypeId};
use crate::status::{ApiError, ApiResult};

pub(crate) use applied::AppliedPatch;
pub(crate) use untouched::Untouched;

/// Type of a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PatchKind {
    /// RFC 6902, as lenient as upstream.
    Json,
    /// RFC 7386.
    Merge,
    /// Strategic merge patch, which uses the schema to merge lists.
    Strategic,
}

/// A patch as the client sent it.
#[derive(Debug)]
pub(crate) struct Patch<'t> {
    kind: PatchKind,
    text: &'t [u8],
    parsed: Value,
}

impl<'t> Patch<'t> {
    /// Parses the body of a request. The content is validated only when the patch is applied.
    pub(crate) fn parse(kind: PatchKind, text: &'t [u8]) -> ApiResult<Patch<'t>> {
        let parsed = serde_json::from_slice(text).map_err(|_| ApiError::bad_request("invalid JSON patch"))?;
        Ok(Patch { kind, text, parsed })
    }

    /// Applies the patch to `current`. The result is not canonical and may not even match the type.
    pub(crate) fn apply(&self, ty: TypeId, current: &Value) -> ApiResult<Value> {
        match self.kind {
            PatchKind::Json => json::apply(current, &self.parsed),
            PatchKind::Merge => self.merge(current),
            PatchKind::Strategic => self.merge_strategically(ty, current).map(|(patched, _)| patched),
        }
    }

    /// Removes the parts that the patch does not mention from the patched object and returns them.
    pub(crate) fn split_untouched(&self, patched: &mut Value) -> Untouched {
        match self.kind {
            PatchKind::Json => Untouched::default(),
            PatchKind::Merge | PatchKind::Strategic => Untouched::take(&self.parsed, patched),
        }
    }

    fn merge(&self, current: &Value) -> ApiResult<Value> {
        let patch = match &self.parsed {
            Value::Object(patch) => patch.clone(),
            Value::Null => return Err(ApiError::bad_request("Invalid JSON Patch")),
            other => return Err(patch_decode_error(other, "value of type map[string]interface {}")),
        };
        let mut patched = current.clone();
        if let Value::Object(doc) = &mut patched {
            merge::merge(doc, patch);
        }
        Ok(patched)
    }

    /// Returns the patched object, and the rest of the patch that merging did not consume.
    fn merge_strategically(&self, ty: TypeId, current: &Value) -> ApiResult<(Value, Map<String, Value>)> {
        let mut patch = match &self.parsed {
            Value::Object(patch) => patch.clone(),
            Value::Null => Map::new(),
            other => {
                let kind = json_kind(other);
                let message = format!("json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}");
                return Err(ApiError::bad_request(message));
            }
        };
        let mut patched = current.clone();
        if let Value::Object(doc) = &mut patched {
            strategic::merge(ty, doc, &mut patch)?;
            // upstream: such a patch cannot change the kind.
            for key in ["kind", "apiVersion"] {
                match current.get(key) {
                    Some(value) => doc.insert(key.to_owned(), value.clone()),
                    None => doc.remove(key),
                };
            }
        }
        normalize_whole_floats(&mut patched);
        Ok((patched, patch))
    }
}

/// Converts whole floats such as 80.0 to integers. upstream: conversion accepts them as integers, unlike the JSON decoder.
pub(crate) fn normalize_whole_floats(value: &mut Value) {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Array(items) => items.iter_mut().for_each(normalize_whole_floats),
        Value::Object(fields) => fields.values_mut().for_each(normalize_whole_floats),
        Value::Number(n) if n.is_f64() => {
            if let Some(f) = n.as_f64().filter(|f| f.fract() == 0.0 && f.abs() <= EXACT) {
                *value = Value::from(f as i64);
            }
        }
        _ => {}
    }
}

/// Returns the message of upstream's conversion for a value that decoding rejected with `error`.
pub(crate) fn conversion_error(ty: TypeId, value: &Value, error: &DecodeError) -> String {
    let message = error.to_string();
    match restore::first_error(ty, value) {
        Some(error) => error,
        None if message.starts_with("illegal base64") => format!("error decoding from json: {message}"),
        None => message,
    }
}

fn patch_decode_error(value: &Value, target: &str) -> ApiError {
    let kind = json_kind(value);
    ApiError::bad_request(format!("error decoding patch: json: cannot unmarshal {kind} into Go {target}"))
}

/// Returns the name that Go's JSON decoder has for the kind of a value.
pub(crate) fn json_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests;
