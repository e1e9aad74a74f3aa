//! Who owns which field: managed fields and server-side apply.

use serde_json::Value;

use crate::resources::Resource;
use crate::status::ApiResult;

/// Who writes, and how.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Writer<'a> {
    pub(crate) manager: &'a str,
    pub(crate) resource: &'static Resource,
    pub(crate) subresource: Option<&'a str>,
    /// RFC 3339, whole seconds.
    pub(crate) now: &'a str,
}

/// Records in `new.metadata.managedFields` what a create (no `old`) or an update changed.
pub(crate) fn record_update(_writer: Writer<'_>, _old: Option<&Value>, _new: &mut Value) -> ApiResult<()> {
    Ok(())
}

/// Server-side apply: merges `applied` into `live` (absent: creates) and answers the result, managed fields included.
pub(crate) fn apply(_writer: Writer<'_>, _live: Option<&Value>, _applied: &Value, _force: bool) -> ApiResult<Value> {
    Err(crate::status::ApiError::plain("not written"))
}

/// Equal but for the times in managed fields; such a write changes nothing.
pub(crate) fn same_but_for_times(_a: &Value, _b: &Value) -> bool {
    false
}
