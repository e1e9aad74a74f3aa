//! The patch types that need no ownership: JSON patch, merge patch, strategic merge patch.

pub(crate) mod go_text;

use serde_json::Value;

use crate::schema::TypeId;
use crate::status::ApiResult;

/// RFC 7386. `patch` is the request's JSON text.
pub(crate) fn merge(_current: &Value, _patch: &[u8]) -> ApiResult<Value> {
    Err(crate::status::ApiError::plain("not written"))
}

/// RFC 6902, with the real server's leniency.
pub(crate) fn json(_current: &Value, _patch: &[u8]) -> ApiResult<Value> {
    Err(crate::status::ApiError::plain("not written"))
}

/// Strategic merge patch by the schema of `ty`.
pub(crate) fn strategic(_ty: TypeId, _current: &Value, _patch: &[u8]) -> ApiResult<Value> {
    Err(crate::status::ApiError::plain("not written"))
}
