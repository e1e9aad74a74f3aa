//! The patch types that need no ownership: JSON patch, merge patch, strategic merge patch.
//!
//! ```text
//!  text ─► Patch ─► apply to the current object ─► patched value ─► decoded by the schema (elsewhere)
//!                                                       │ does not decode, or strict and not clean
//!                                                       └─► Attempt: 422 `"" is invalid: patch: …`
//! ```

mod attempt;
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

pub(crate) use attempt::Attempt;
pub(crate) use untouched::Untouched;

/// How a patch says what to change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PatchKind {
    /// RFC 6902, with the real server's leniency.
    Json,
    /// RFC 7386.
    Merge,
    /// Merge patch that knows the types.
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
    /// Reads the text of a request's body. What the JSON says is only looked at when it is applied.
    pub(crate) fn parse(kind: PatchKind, text: &'t [u8]) -> ApiResult<Patch<'t>> {
        let parsed = serde_json::from_slice(text).map_err(|_| ApiError::bad_request("invalid JSON patch"))?;
        Ok(Patch { kind, text, parsed })
    }

    /// `current` with the patch applied; not in canonical form, and perhaps not even of the type.
    pub(crate) fn apply(&self, ty: TypeId, current: &Value) -> ApiResult<Value> {
        match self.kind {
            PatchKind::Json => json::apply(current, &self.parsed),
            PatchKind::Merge => self.merge(current),
            PatchKind::Strategic => self.merge_strategically(ty, current).map(|(patched, _)| patched),
        }
    }

    /// Takes what the patch left alone out of what it was applied to.
    pub(crate) fn set_untouched_aside(&self, patched: &mut Value) -> Untouched {
        match self.kind {
            PatchKind::Json => Untouched::default(),
            PatchKind::Merge | PatchKind::Strategic => Untouched::take(&self.parsed, patched),
        }
    }

    fn merge(&self, current: &Value) -> ApiResult<Value> {
        let patch = match &self.parsed {
            Value::Object(patch) => patch.clone(),
            Value::Null => return Err(ApiError::bad_request("Invalid JSON Patch")),
            other => return Err(undecodable_patch(other, "value of type map[string]interface {}")),
        };
        let mut patched = current.clone();
        if let Value::Object(doc) = &mut patched {
            merge::merge(doc, patch);
        }
        Ok(patched)
    }

    /// The patched object, and the patch as far as merging did not use it up.
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
            // upstream: what kind it is, is not for such a patch to say.
            for key in ["kind", "apiVersion"] {
                match current.get(key) {
                    Some(value) => doc.insert(key.to_owned(), value.clone()),
                    None => doc.remove(key),
                };
            }
        }
        whole_numbers(&mut patched);
        Ok((patched, patch))
    }
}

/// Makes 80 of 80.0. Conversion (unlike the JSON decoder) takes whole floats for integers.
pub(crate) fn whole_numbers(value: &mut Value) {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Array(items) => items.iter_mut().for_each(whole_numbers),
        Value::Object(fields) => fields.values_mut().for_each(whole_numbers),
        Value::Number(n) if n.is_f64() => {
            if let Some(f) = n.as_f64().filter(|f| f.fract() == 0.0 && f.abs() <= EXACT) {
                *value = Value::from(f as i64);
            }
        }
        _ => {}
    }
}

/// What conversion has to say about a value that decoding refused with `error`.
pub(crate) fn conversion_complaint(ty: TypeId, value: &Value, error: &DecodeError) -> String {
    let words = error.to_string();
    match restore::complaint(ty, value) {
        Some(complaint) => complaint,
        None if words.starts_with("illegal base64") => format!("error decoding from json: {words}"),
        None => words,
    }
}

fn undecodable_patch(value: &Value, target: &str) -> ApiError {
    let kind = json_kind(value);
    ApiError::bad_request(format!("error decoding patch: json: cannot unmarshal {kind} into Go {target}"))
}

/// What Go's decoder calls a value.
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
