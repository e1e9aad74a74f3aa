//! POST to a collection.

use http::StatusCode;

use super::{Call, create_object, created};
use crate::auth;
use crate::http::body::{self, Expected};
use crate::http::query::WriteOptions;
use crate::http::respond::ResponseContent;
use crate::status::{ApiError, ApiResult};
use crate::value::Json;

pub(super) fn create(call: &mut Call) -> ApiResult<ResponseContent> {
    let options = WriteOptions::parse(&call.query, "CreateOptions", false)?;
    let resource = call.resource();
    let api_version = resource.api_version();
    let expected = Expected::resource(resource, &api_version);
    let mut warnings = Vec::new();
    let mut object = body::decode_object(&call.headers, &call.body, expected, options.field_validation, &mut warnings)?;
    check_body_namespace(&mut object, &call.path.namespace)?;
    if resource.is_virtual() {
        let value = auth::review(&call.state, resource, &call.path.namespace, &call.user, object)?;
        call.warnings.append(&mut warnings);
        return Ok(ResponseContent::Plain { code: StatusCode::CREATED, value });
    }
    let manager = call.manager(options.field_manager.as_deref());
    let object = create_object(&call.writer(&manager, options.dry_run), object, false, &mut warnings);
    call.warnings.append(&mut warnings);
    Ok(created(object?))
}

/// Checks that the namespace of the body, if set, is that of the path. For cluster-scoped resources it is removed.
pub(super) fn check_body_namespace(object: &mut serde_json::Value, namespace: &str) -> ApiResult<()> {
    let given = object.text("metadata.namespace");
    if given.is_empty() || given == namespace {
        return Ok(());
    }
    if namespace.is_empty() {
        object.take_at("metadata.namespace");
        return Ok(());
    }
    Err(ApiError::bad_request("the namespace of the provided object does not match the namespace sent on the request"))
}
