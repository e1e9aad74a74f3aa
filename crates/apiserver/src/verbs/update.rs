//! PUT: replaces an object, or creates it where the kind allows.

use serde_json::Value;

use super::{Call, Raced, Write, create, create_object, created, ok, update_object};
use crate::auth::{self, Attributes};
use crate::field_error::FieldError;
use crate::http::body::{self, Expected};
use crate::http::query::WriteOptions;
use crate::http::respond::{Answer, Object};
use crate::status::{ApiError, ApiResult};
use crate::store::Stored;
use crate::value::Json;

pub(super) fn update(call: &mut Call) -> ApiResult<Answer> {
    let options = WriteOptions::parse(&call.query, "UpdateOptions", false)?;
    let api_version = call.resource().api_version();
    let expected = Expected::resource(call.resource(), &api_version);
    let mut warnings = Vec::new();
    let mut object = body::decode_object(&call.headers, &call.body, expected, options.field_validation, &mut warnings)?;
    create::settle_namespace(&mut object, &call.path.namespace)?;
    check_name(&object, &call.path.name)?;
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
        let result = match call.stored() {
            None => create_by_put(call, object.clone(), &write, warnings),
            Some(current) => {
                check_preconditions(call, &object, &current)?;
                let old = call.seen(&current);
                update_object(&write, &current, &old, object.clone(), false, warnings).map(ok)
            }
        };
        match result {
            Ok(answer) => return Ok(answer),
            Err(Raced::Refused(error)) => return Err(error),
            // Read again: either the write is unconditional, or the precondition now fails.
            Err(Raced::Again) => warnings.clear(),
        }
    }
}

fn create_by_put(
    call: &Call,
    mut object: Value,
    write: &Write<'_>,
    warnings: &mut Vec<String>,
) -> Result<Answer, Raced> {
    let resource = call.resource();
    if !resource.put_creates || call.path.subresource.is_some() {
        return Err(ApiError::not_found(resource.named(), &call.path.name).into());
    }
    may_create(call)?;
    if !matches!(object.text("metadata.uid"), "") {
        return Err(uid_conflict(call, object.text("metadata.uid"), "").into());
    }
    object.take_at("metadata.resourceVersion");
    first_or_again(call, create_object(write, object, false, warnings))
}

/// A create by PUT or apply that comes second is an update of what is there by now.
pub(super) fn first_or_again(call: &Call, result: ApiResult<Object>) -> Result<Answer, Raced> {
    result.map(created).map_err(|error| match error.reason {
        Some("AlreadyExists") if call.stored().is_some() => Raced::Again,
        _ => Raced::Refused(error),
    })
}

/// The right to change an object is not the right to make it.
pub(super) fn may_create(call: &Call) -> ApiResult<()> {
    let resource = call.resource();
    let wants = Attributes {
        verb: "create".into(),
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
    check_uid(call, object, current)?;
    check_version(call, object, current)
}

/// A uid in the body of a PUT is that of the object.
pub(super) fn check_uid(call: &Call, object: &Value, current: &Stored) -> ApiResult<()> {
    match object.text("metadata.uid") {
        "" => Ok(()),
        uid if *uid == *current.uid => Ok(()),
        uid => Err(uid_conflict(call, uid, &current.uid)),
    }
}

/// The resourceVersion of the new state is the present one, or absent where the kind allows.
pub(super) fn check_version(call: &Call, object: &Value, current: &Stored) -> ApiResult<()> {
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
    let resource = call.resource();
    let key = match call.path.namespace.as_str() {
        "" => format!("/registry/{}/{}", resource.plural, call.path.name),
        namespace => format!("/registry/{}/{namespace}/{}", resource.plural, call.path.name),
    };
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: \
         Precondition failed: UID in precondition: {given}, UID in object meta: {found}"
    );
    ApiError::conflict(resource.named(), &call.path.name, &why)
}
