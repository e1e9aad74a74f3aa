//! Subresources with a kind of their own: tokens, evictions, bindings, scale, logs.

use http::StatusCode;
use serde_json::Value;

use super::Call;
use crate::auth;
use crate::http::body::{self, Expected};
use crate::http::query::WriteOptions;
use crate::http::respond::Answer;
use crate::schema::schema;
use crate::status::{ApiError, ApiResult};

/// Whether a subresource is one of these.
pub(super) fn handles(subresource: &str) -> bool {
    matches!(subresource, "token" | "eviction" | "binding" | "scale" | "log")
}

pub(super) fn run(call: &mut Call, subresource: &str, verb: &str) -> ApiResult<Answer> {
    match (subresource, verb) {
        ("token", "create") => token(call),
        _ => Err(ApiError::method_not_allowed()),
    }
}

fn decode(call: &mut Call, api_version: &str, kind: &str, ty: &str) -> ApiResult<(Value, WriteOptions)> {
    let options = WriteOptions::parse(&call.query, "CreateOptions", false)?;
    let expected = Expected { api_version, kind, ty: schema().id(ty) };
    let value = body::decode_object(&call.headers, &call.body, expected, options.field_validation, &mut call.warnings)?;
    Ok((value, options))
}

fn token(call: &mut Call) -> ApiResult<Answer> {
    let (request, options) =
        decode(call, "authentication.k8s.io/v1", "TokenRequest", "authentication/v1.TokenRequest")?;
    let value = auth::request_token(&call.state, &call.path.namespace, &call.path.name, request, options.dry_run)?;
    Ok(Answer::Plain { code: StatusCode::CREATED, value })
}
