//! PATCH: reads, patches and writes the object, and retries on a conflict.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::{Call, UpdateError, create, create_object, ok, update, update_object};
use crate::fields;
use crate::http::body::{self, Expected};
use crate::http::negotiate::{PatchType, patch_type};
use crate::http::query::{FieldValidation, WriteOptions};
use crate::http::respond::ResponseContent;
use crate::patch::{AppliedPatch, Patch, PatchKind};
use crate::resources::meta;
use crate::schema::{self, StrictIssue};
use crate::status::{ApiError, ApiResult};
use crate::store::Stored;
use crate::value::Json;

pub(super) fn patch(call: &mut Call) -> ApiResult<ResponseContent> {
    let kind = patch_type(&call.headers)?;
    let options = WriteOptions::parse(&call.query, "PatchOptions", kind == PatchType::Apply)?;
    let manager = call.manager(options.field_manager.as_deref());
    let mut warnings = Vec::new();
    let result = match patch_kind(kind) {
        None => apply(call, &options, &manager, &mut warnings),
        Some(kind) => modify(call, kind, &options, &manager, &mut warnings),
    };
    call.warnings.append(&mut warnings);
    result
}

/// The patch types that only change values; `None` is server-side apply.
pub(super) fn patch_kind(kind: PatchType) -> Option<PatchKind> {
    match kind {
        PatchType::Json => Some(PatchKind::Json),
        PatchType::Merge => Some(PatchKind::Merge),
        PatchType::Strategic => Some(PatchKind::Strategic),
        PatchType::Apply => None,
    }
}

// === JSON, merge and strategic merge patch ===

fn modify(
    call: &Call,
    kind: PatchKind,
    options: &WriteOptions,
    manager: &str,
    warnings: &mut Vec<String>,
) -> ApiResult<ResponseContent> {
    let patch = Patch::parse(kind, &call.body)?;
    let write = call.writer(manager, options.dry_run);
    let api_version = call.resource().api_version();
    let expected = Expected::resource(call.resource(), &api_version);
    loop {
        let current = call.stored_or_404()?;
        let old = call.to_view(&current);
        let mut new = patched(expected, &patch, &old, options.field_validation, warnings)?;
        check_patched(call, &mut new, &current)?;
        warnings.extend(meta::dedup_patched_owner_references(&mut new));
        match update_object(&write, &current, &old, new, false, warnings) {
            Ok(object) => return Ok(ok(object)),
            Err(UpdateError::Rejected(error)) => return Err(error),
            Err(UpdateError::Conflict) => warnings.clear(),
        }
    }
}

/// The old object with the patch applied, in canonical form.
pub(super) fn patched(
    expected: Expected<'_>,
    patch: &Patch<'_>,
    old: &Value,
    validation: FieldValidation,
    warnings: &mut Vec<String>,
) -> ApiResult<Value> {
    let ty = expected.ty;
    let mut raw = patch.apply(ty, old)?;
    let attempt = AppliedPatch { patch, ty, current: old };
    if let Some(why) = changed_type(&raw, expected) {
        return Err(attempt.invalid(&why));
    }
    let untouched = patch.split_untouched(&mut raw);
    let decoded = schema::decode_owned(ty, raw).map_err(|error| attempt.decode_error(&error))?;
    if validation != FieldValidation::Ignore {
        let issues = attempt.strict_issues(&decoded.issues);
        match validation {
            FieldValidation::Strict if !issues.is_empty() => return Err(attempt.strict_error(&issues)),
            _ => warnings.extend(issues),
        }
    }
    let mut new = decoded.value;
    untouched.merge_into(&mut new);
    new.put("kind", expected.kind);
    new.put("apiVersion", expected.api_version);
    Ok(new)
}

/// The error for a patch that changes apiVersion or kind. Removing them is allowed.
fn changed_type(raw: &Value, expected: Expected<'_>) -> Option<String> {
    let is = |key: &str, text: &str| raw.get(key).is_some_and(|value| value == text);
    if is("kind", expected.kind) && is("apiVersion", expected.api_version) {
        return None;
    }
    if let Some(why) = body::type_meta_error(raw.to_string().as_bytes()) {
        return Some(why);
    }
    let or = |text: &str, default: &str| if text.is_empty() { default.to_owned() } else { text.to_owned() };
    let (version, kind) = (or(raw.text("apiVersion"), expected.api_version), or(raw.text("kind"), expected.kind));
    body::type_mismatch(&version, &kind, expected)
}

fn check_patched(call: &Call, new: &mut Value, current: &Stored) -> ApiResult<()> {
    create::check_body_namespace(new, &call.path.namespace)?;
    update::check_name(new, &call.path.name)?;
    update::check_version(call, new, current)
}

// === Server-side apply ===

fn apply(call: &Call, options: &WriteOptions, manager: &str, warnings: &mut Vec<String>) -> ApiResult<ResponseContent> {
    let (applied, issues) = applied_object(&call.body)?;
    let write = call.writer(manager, options.dry_run);
    let now = super::now();
    loop {
        let current: Option<Arc<Stored>> = call.stored();
        let old = current.as_ref().map(|c| call.to_view(c));
        let mut new = fields::apply(write.writer(&now), old.as_ref(), &applied, options.force.unwrap_or(false))?;
        check_duplicates(&issues, options.field_validation, warnings)?;
        check_applied(call, &mut new, current.as_deref())?;
        new.take_at("metadata.resourceVersion");
        let outcome = match (current, old) {
            (Some(current), Some(old)) => update_object(&write, &current, &old, new, true, warnings).map(ok),
            _ if call.path.subresource.is_some() => {
                Err(ApiError::not_found(call.resource().named(), &call.path.name).into())
            }
            _ => {
                update::authorize_create(call)?;
                update::created_or_conflict(call, create_object(&write, new, true, warnings))
            }
        };
        match outcome {
            Ok(result) => return Ok(result),
            Err(UpdateError::Rejected(error)) => return Err(error),
            Err(UpdateError::Conflict) => warnings.clear(),
        }
    }
}

/// Parses the body of an apply patch, YAML or JSON. Returns the object and its duplicate keys.
pub(super) fn applied_object(body: &[u8]) -> ApiResult<(Value, Vec<StrictIssue>)> {
    let (value, issues) =
        schema::yaml::to_value(body).map_err(|e| ApiError::bad_request(format!("error encoding patch: {e}")))?;
    match value {
        Value::Object(_) => Ok((value, issues)),
        Value::Null => Ok((Value::Object(Map::new()), issues)),
        other => {
            let found = crate::patch::json_kind(&other);
            Err(ApiError::bad_request(format!(
                "error decoding patch: error unmarshaling JSON: while decoding JSON: \
                 json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"
            )))
        }
    }
}

pub(super) fn check_duplicates(
    issues: &[StrictIssue],
    validation: FieldValidation,
    warnings: &mut Vec<String>,
) -> ApiResult<()> {
    match validation {
        FieldValidation::Strict if !issues.is_empty() => Err(ApiError::bad_request(format!(
            "error strict decoding patch: error converting YAML to JSON: {}",
            schema::strict_summary(issues)
        ))),
        FieldValidation::Warn => {
            warnings.extend(issues.iter().map(ToString::to_string));
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Checks the result of an apply against the request path and the current state.
fn check_applied(call: &Call, new: &mut Value, current: Option<&Stored>) -> ApiResult<()> {
    match (current, new.text("metadata.uid")) {
        (Some(current), _) => check_patched(call, new, current),
        (None, "") => {
            create::check_body_namespace(new, &call.path.namespace)?;
            update::check_name(new, &call.path.name)
        }
        (None, uid) => {
            let why =
                format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
            Err(ApiError::conflict(call.resource().named(), &call.path.name, &why))
        }
    }
}
