//! OpenAPI v3, made from the schema and the resource table.

use bytes::Bytes;

/// `GET /openapi/v3`.
pub(crate) fn index() -> Bytes {
    Bytes::new()
}

/// `GET /openapi/v3/PATH` (`api/v1`, `apis/apps/v1`); JSON.
pub(crate) fn document(_path: &str) -> Option<Bytes> {
    None
}
