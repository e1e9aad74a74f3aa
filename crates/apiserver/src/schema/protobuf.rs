//! Reads protobuf requests.

use serde_json::Value;

use super::{DecodeError, Schema};

const MAGIC: &[u8] = b"k8s\0";

/// Whether the body starts as protobuf bodies do.
pub(crate) fn looks_like_protobuf(body: &[u8]) -> bool {
    body.starts_with(MAGIC)
}

/// Reads a protobuf body: the envelope names `apiVersion` and `kind`, and `type_of` says which type that is.
/// The answer is canonical, with `apiVersion` and `kind` set.
pub(crate) fn decode_protobuf(
    _schema: &Schema,
    _body: &[u8],
    _type_of: impl Fn(&str, &str) -> Option<super::TypeId>,
) -> Result<Value, DecodeError> {
    Err(DecodeError::Syntax("not written".into()))
}
