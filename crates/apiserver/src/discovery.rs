//! Which groups, versions and resources there are.

use serde_json::Value;

/// `GET /api`.
pub(crate) fn api_versions(_address: &str) -> Value {
    Value::Null
}

/// `GET /apis`.
pub(crate) fn group_list() -> Value {
    Value::Null
}

/// `GET /apis/GROUP`.
pub(crate) fn group(_name: &str) -> Option<Value> {
    None
}

/// `GET /api/v1` or `/apis/GROUP/VERSION`; the core group is empty.
pub(crate) fn resource_list(_group: &str, _version: &str) -> Option<Value> {
    None
}

/// The aggregated (v2) document of `/api` (`core`) or `/apis`.
pub(crate) fn aggregated(_core: bool) -> Value {
    Value::Null
}
