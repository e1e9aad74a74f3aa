//! PATCH: reads, patches, writes, and starts over if somebody was faster.

use std::sync::Arc;

use serde_json::Value;

use super::{Call, Raced, create, create_object, created, ok, update, update_object};
use crate::field_error::FieldError;
use crate::fields;
use crate::http::body::settle_issues;
use crate::http::negotiate::{PatchType, patch_type};
use crate::http::query::{FieldValidation, WriteOptions};
use crate::http::respond::Answer;
use crate::patch as patches;
use crate::resources::meta;
use crate::schema;
use crate::status::{ApiError, ApiResult, Named};
use crate::store::Stored;
use crate::value::Json;

pub(super) fn patch(call: &mut Call) -> ApiResult<Answer> {
    let kind = patch_type(&call.headers)?;
    let options = WriteOptions::parse(&call.query, "PatchOptions", kind == PatchType::Apply)?;
    let manager = call.manager(options.field_manager.as_deref());
    let mut warnings = Vec::new();
    let answer = match kind {
        PatchType::Apply => apply(call, &options, &manager, &mut warnings),
        _ => modify(call, kind, &options, &manager, &mut warnings),
    };
    call.warnings.append(&mut warnings);
    answer
}

// === JSON, merge and strategic merge patch ===

fn modify(
    call: &Call,
    kind: PatchType,
    options: &WriteOptions,
    manager: &str,
    warnings: &mut Vec<String>,
) -> ApiResult<Answer> {
    let write = call.writer(manager, options.dry_run);
    loop {
        let current = call.stored_or_404()?;
        let old = call.seen(&current);
        let mut new = patched(call, kind, &old, options.field_validation, warnings)?;
        check_patched(call, &new, &current)?;
        warnings.extend(meta::tidy_patched(&mut new));
        match update_object(&write, &current, &old, new, false, warnings) {
            Ok(object) => return Ok(ok(object)),
            Err(Raced::Refused(error)) => return Err(error),
            Err(Raced::Again) => warnings.clear(),
        }
    }
}

/// The old object with the patch applied, in canonical form.
fn patched(
    call: &Call,
    kind: PatchType,
    old: &Value,
    validation: FieldValidation,
    warnings: &mut Vec<String>,
) -> ApiResult<Value> {
    let ty = call.resource().type_id();
    let raw = match kind {
        PatchType::Json => patches::json(old, &call.body)?,
        PatchType::Merge => patches::merge(old, &call.body)?,
        _ => patches::strategic(ty, old, &call.body)?,
    };
    let decoded = schema::decode(ty, &raw).map_err(|e| unfit(&raw, &e.to_string()))?;
    if let Some(message) = settle_issues(&decoded.issues, validation, warnings) {
        return Err(unfit(&raw, &message));
    }
    let mut new = decoded.value;
    new.put("kind", call.resource().kind);
    new.put("apiVersion", call.resource().api_version());
    Ok(new)
}

/// The patch gives something that is no object of this kind.
fn unfit(raw: &Value, why: &str) -> ApiError {
    let error = FieldError::invalid("patch", raw.to_string(), why);
    ApiError::invalid(Named { group: "", kind: "" }, "", &[error])
}

fn check_patched(call: &Call, new: &Value, current: &Stored) -> ApiResult<()> {
    update::check_name(new, &call.path.name)?;
    create::check_namespace(new, &call.path.namespace)?;
    match new.text("metadata.resourceVersion") {
        "" | "0" => Ok(()),
        given if given == current.revision.to_string() => Ok(()),
        given if given.parse::<u64>().is_err() => {
            Err(ApiError::plain(format!("strconv.ParseUint: parsing {given:?}: invalid syntax")))
        }
        _ => Err(ApiError::modified(call.resource().named(), &call.path.name)),
    }
}

// === Server-side apply ===

fn apply(call: &Call, options: &WriteOptions, manager: &str, warnings: &mut Vec<String>) -> ApiResult<Answer> {
    let applied = applied_object(call, options.field_validation, warnings)?;
    let write = call.writer(manager, options.dry_run);
    let now = super::now();
    loop {
        let current: Option<Arc<Stored>> = call.stored();
        let old = current.as_ref().map(|c| call.seen(c));
        check_applied(call, &applied, current.as_deref())?;
        let merged = fields::apply(write.writer(&now), old.as_ref(), &applied, options.force.unwrap_or(false))?;
        let new = canonical(call, &merged)?;
        let result = match (current, old) {
            (Some(current), Some(old)) => update_object(&write, &current, &old, new, true, warnings).map(ok),
            _ if call.path.subresource.is_some() => {
                Err(ApiError::not_found(call.resource().named(), &call.path.name).into())
            }
            _ => {
                update::may_create(call)?;
                create_object(&write, new, true, warnings).map(created).map_err(Raced::from)
            }
        };
        match result {
            Ok(answer) => return Ok(answer),
            Err(Raced::Refused(error)) => return Err(error),
            Err(Raced::Again) => warnings.clear(),
        }
    }
}

/// The body of an apply: YAML (and so also JSON), with the right kind.
fn applied_object(call: &Call, validation: FieldValidation, warnings: &mut Vec<String>) -> ApiResult<Value> {
    let (mut value, duplicate) =
        schema::yaml::to_value(&call.body).map_err(|e| ApiError::bad_request(format!("error decoding YAML: {e}")))?;
    let issues: Vec<_> = duplicate.into_iter().collect();
    if let Some(message) = settle_issues(&issues, validation, warnings) {
        return Err(ApiError::bad_request(format!("error strict decoding YAML: {message}")));
    }
    let resource = call.resource();
    let (kind, api_version) = (value.text("kind").to_owned(), value.text("apiVersion").to_owned());
    if kind.is_empty() || api_version.is_empty() {
        return Err(ApiError::bad_request("apiVersion and kind must be set in an applied object"));
    }
    if kind != resource.kind || api_version != resource.api_version() {
        return Err(ApiError::bad_request(format!(
            "the object applied is a {api_version} {kind}, but the path is about a {} {}",
            resource.api_version(),
            resource.kind
        )));
    }
    if value.text("metadata.name").is_empty() {
        value.put("metadata.name", call.path.name.as_str());
    }
    Ok(value)
}

fn check_applied(call: &Call, applied: &Value, current: Option<&Stored>) -> ApiResult<()> {
    update::check_name(applied, &call.path.name)?;
    create::check_namespace(applied, &call.path.namespace)?;
    match current {
        Some(current) => check_patched(call, applied, current),
        None if applied.text("metadata.uid").is_empty() => Ok(()),
        None => Err(ApiError::conflict(
            call.resource().named(),
            &call.path.name,
            &format!(
                "uid mismatch: the provided object specified uid {}, and no existing object was found",
                applied.text("metadata.uid")
            ),
        )),
    }
}

fn canonical(call: &Call, merged: &Value) -> ApiResult<Value> {
    let decoded = schema::decode(call.resource().type_id(), merged).map_err(|e| ApiError::plain(e.to_string()))?;
    let mut new = decoded.value;
    new.put("kind", call.resource().kind);
    new.put("apiVersion", call.resource().api_version());
    new.take_at("metadata.resourceVersion");
    Ok(new)
}
