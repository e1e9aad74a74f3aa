//! PUT: replaces an object, or creates it where the kind allows.

use serde_json::Value;

use super::{Call, Raced, create, create_object, created, ok, update_object};
use crate::auth::{self, Attributes};
use crate::field_error::FieldError;
use crate::http::body::{self, Expected};
use crate::http::query::WriteOptions;
use crate::http::respond::Answer;
use crate::status::{ApiError, ApiResult};
use crate::store::Stored;
use crate::value::Json;

pub(super) fn update(call: &mut Call) -> ApiResult<Answer> {
    let options = WriteOptions::parse(&call.query, "UpdateOptions", false)?;
    let api_version = call.resource().api_version();
    let expected = Expected::resource(call.resource(), &api_version);
    let mut warnings = Vec::new();
    let object = body::decode_object(&call.headers, &call.body, expected, options.field_validation, &mut warnings)?;
    check_name(&object, &call.path.name)?;
    create::check_namespace(&object, &call.path.namespace)?;
    let manager = call.manager(options.field_manager.as_deref());
    let answer = put(call, object, &manager, options.dry_run, &mut warnings);
    call.warnings.append(&mut warnings);
    answer
}

/// The name of the body is there and is the one of the path.
pub(super) fn check_name(object: &Value, name: &str) -> ApiResult<()> {
    match object.text("metadata.name") {
        given if given == name => Ok(()),
        "" => Err(ApiError::bad_request(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        ))),
        given => Err(ApiError::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({name})"
        ))),
    }
}

fn put(call: &Call, object: Value, manager: &str, dry_run: bool, warnings: &mut Vec<String>) -> ApiResult<Answer> {
    let write = call.writer(manager, dry_run);
    loop {
        let Some(current) = call.stored() else {
            return create_by_put(call, object, manager, dry_run, warnings);
        };
        check_preconditions(call, &object, &current)?;
        let old = call.seen(&current);
        match update_object(&write, &current, &old, object.clone(), false, warnings) {
            Ok(object) => return Ok(ok(object)),
            Err(Raced::Refused(error)) => return Err(error),
            // Read again: either the write is unconditional, or the precondition now fails.
            Err(Raced::Again) => warnings.clear(),
        }
    }
}

fn create_by_put(
    call: &Call,
    mut object: Value,
    manager: &str,
    dry_run: bool,
    warnings: &mut Vec<String>,
) -> ApiResult<Answer> {
    let resource = call.resource();
    if !resource.put_creates || call.path.subresource.is_some() {
        return Err(ApiError::not_found(resource.named(), &call.path.name));
    }
    may_create(call)?;
    if !matches!(object.text("metadata.uid"), "") {
        return Err(uid_conflict(call, object.text("metadata.uid"), ""));
    }
    object.take_at("metadata.resourceVersion");
    Ok(created(create_object(&call.writer(manager, dry_run), object, false, warnings)?))
}

/// The right to change an object is not the right to make it.
pub(super) fn may_create(call: &Call) -> ApiResult<()> {
    may(call, "create")
}

/// Whether the user may do more with the object than the request itself takes.
pub(super) fn may(call: &Call, verb: &str) -> ApiResult<()> {
    let resource = call.resource();
    let wants = Attributes {
        verb: verb.into(),
        group: resource.group.into(),
        version: resource.version.into(),
        resource: resource.plural.into(),
        namespace: call.path.namespace.clone(),
        name: call.path.name.clone(),
        ..Attributes::default()
    };
    auth::authorize(&call.state, &call.user, &wants)
}

/// A uid or resourceVersion in the body must be the present one.
fn check_preconditions(call: &Call, object: &Value, current: &Stored) -> ApiResult<()> {
    let uid = object.text("metadata.uid");
    if !uid.is_empty() && *uid != *current.uid {
        return Err(uid_conflict(call, uid, &current.uid));
    }
    match object.text("metadata.resourceVersion") {
        "" | "0" if call.resource().unconditional_put => Ok(()),
        "" | "0" => {
            let error = FieldError::invalid("metadata.resourceVersion", 0, "must be specified for an update");
            Err(ApiError::invalid(call.resource().named(), &call.path.name, &[error]))
        }
        given => match given.parse::<u64>() {
            Ok(version) if version == current.revision => Ok(()),
            Ok(_) => Err(ApiError::modified(call.resource().named(), &call.path.name)),
            Err(_) => Err(ApiError::plain(format!("strconv.ParseUint: parsing {given:?}: invalid syntax"))),
        },
    }
}

fn uid_conflict(call: &Call, given: &str, found: &str) -> ApiError {
    let why = format!("Precondition failed: UID in precondition: {given}, UID in object meta: {found}");
    storage_conflict(call, &why)
}

/// A conflict in the words of a real server's storage.
pub(super) fn storage_conflict(call: &Call, why: &str) -> ApiError {
    let key = storage_key(call.resource().plural, &call.path.namespace, &call.path.name);
    let why =
        format!("StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: {why}");
    ApiError::conflict(call.resource().named(), &call.path.name, &why)
}

/// Where a real server keeps an object.
fn storage_key(plural: &str, namespace: &str, name: &str) -> String {
    // upstream: some resources are still kept under the names they had long ago.
    let place = match plural {
        "services" => "services/specs",
        "endpoints" => "services/endpoints",
        "nodes" => "minions",
        other => other,
    };
    match namespace {
        "" => format!("/registry/{place}/{name}"),
        namespace => format!("/registry/{place}/{namespace}/{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_of_a_real_server() {
        let table = [
            (("configmaps", "n", "a"), "/registry/configmaps/n/a"),
            (("services", "n", "a"), "/registry/services/specs/n/a"),
            (("nodes", "", "a"), "/registry/minions/a"),
        ];
        for ((plural, namespace, name), key) in table {
            assert_eq!(storage_key(plural, namespace, name), key);
        }
    }
}
