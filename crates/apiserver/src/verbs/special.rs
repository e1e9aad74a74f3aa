//! Subresources with a kind of their own: tokens, evictions, bindings, scale, logs.

use http::StatusCode;
use serde_json::Value;

use super::delete::{DeleteOptions, delete_object};
use super::{Call, Raced, Write, create, update, update_object};
use crate::auth;
use crate::http::body::{self, Expected, settle_issues};
use crate::http::negotiate::{PatchType, patch_type};
use crate::http::query::{FieldValidation, WriteOptions};
use crate::http::respond::Answer;
use crate::patch as patches;
use crate::resources::subresources as sub;
use crate::schema::{self, TypeId, schema};
use crate::status::{ApiError, ApiResult};
use crate::store::{Draft, Expect, Refused};
use crate::value::Json;

/// Whether a subresource is one of these.
pub(super) fn handles(subresource: &str) -> bool {
    matches!(subresource, "token" | "eviction" | "binding" | "scale" | "log")
}

pub(super) fn run(call: &mut Call, subresource: &str, verb: &str) -> ApiResult<Answer> {
    match (subresource, verb) {
        ("token", "create") => token(call),
        ("eviction", "create") => evict(call),
        ("binding", "create") => bind(call),
        ("scale", "get") => Ok(plain(StatusCode::OK, sub::scale_of(&call.stored_or_404()?.value()))),
        ("scale", "update") => put_scale(call),
        ("scale", "patch") => patch_scale(call),
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
    Ok(plain(StatusCode::CREATED, value))
}

fn plain(code: StatusCode, value: Value) -> Answer {
    Answer::Plain { code, value }
}

// === Pods: where they go, and that they go ===

fn bind(call: &mut Call) -> ApiResult<Answer> {
    let (mut binding, options) = decode(call, "v1", "Binding", "core/v1.Binding")?;
    create::check_namespace(&binding, &call.path.namespace)?;
    if let Some(node) = call.state.store.get("nodes", "", binding.text("target.name")) {
        sub::label_binding(&mut binding, &node.labels);
    }
    loop {
        let current = call.stored_or_404()?;
        let mut pod = current.value();
        sub::bind(&mut pod, &binding)?;
        let draft = Draft::new(call.resource(), &pod);
        let written = match options.dry_run {
            true => Ok(()),
            false => {
                let expect = Expect::Revision(current.revision);
                call.state.store.put(call.resource().storage, expect, draft).map(|_| ())
            }
        };
        match written {
            Ok(()) => return Ok(plain(StatusCode::CREATED, sub::created())),
            Err(Refused::Missing) => return Err(ApiError::not_found(call.resource().named(), &call.path.name)),
            Err(_) => {}
        }
    }
}

fn evict(call: &mut Call) -> ApiResult<Answer> {
    let (eviction, options) = decode(call, "policy/v1", "Eviction", "policy/v1.Eviction")?;
    create::check_namespace(&eviction, &call.path.namespace)?;
    let asked = sub::eviction_options(&call.path.name, &eviction, options.dry_run)?;
    let mut delete = DeleteOptions::from_value(&asked)?;
    let manager = call.manager(options.field_manager.as_deref());
    let write = call.writer(&manager, delete.dry_run);
    sub::check_preconditions(&call.stored_or_404()?.value(), &asked)?;
    if !delete.dry_run {
        let version = mark_evicted(call, &write, &asked)?;
        delete.resource_version = delete.resource_version.map(|_| version);
    }
    delete_object(&write, &call.path.name, &delete)?;
    Ok(plain(StatusCode::CREATED, sub::created()))
}

/// Leaves the reason on the pod before it goes; answers the pod's new resourceVersion.
fn mark_evicted(call: &Call, write: &Write<'_>, options: &Value) -> ApiResult<String> {
    let write = Write { subresource: Some("status"), ..*write };
    loop {
        let current = call.stored_or_404()?;
        let old = current.value();
        sub::check_preconditions(&old, options)?;
        let mut new = old.clone();
        sub::mark_evicted(&mut new);
        match update_object(&write, &current, &old, new, false, &mut Vec::new()) {
            Ok(object) => return Ok(object.into_value(call.resource()).text("metadata.resourceVersion").to_owned()),
            Err(Raced::Refused(error)) => return Err(error),
            Err(Raced::Again) => {}
        }
    }
}

// === Scale ===

const SCALE: &str = "autoscaling/v1.Scale";

fn put_scale(call: &mut Call) -> ApiResult<Answer> {
    let options = WriteOptions::parse(&call.query, "UpdateOptions", false)?;
    let expected = Expected { api_version: "autoscaling/v1", kind: "Scale", ty: schema().id(SCALE) };
    let given = body::decode_object(&call.headers, &call.body, expected, options.field_validation, &mut call.warnings)?;
    update::check_name(&given, &call.path.name)?;
    create::check_namespace(&given, &call.path.namespace)?;
    rescale(call, &options, |_, _| Ok(given.clone()))
}

fn patch_scale(call: &mut Call) -> ApiResult<Answer> {
    let kind = patch_type(&call.headers)?;
    let options = WriteOptions::parse(&call.query, "PatchOptions", kind == PatchType::Apply)?;
    let body = call.body.clone();
    rescale(call, &options, |scale, warnings| {
        let ty = schema().id(SCALE);
        let raw = match kind {
            PatchType::Json => patches::json(scale, &body)?,
            PatchType::Merge => patches::merge(scale, &body)?,
            PatchType::Strategic => patches::strategic(ty, scale, &body)?,
            PatchType::Apply => return Err(ApiError::unsupported_media_type("a scale cannot be applied")),
        };
        canonical_scale(ty, &raw, options.field_validation, warnings)
    })
}

fn canonical_scale(
    ty: TypeId,
    raw: &Value,
    validation: FieldValidation,
    warnings: &mut Vec<String>,
) -> ApiResult<Value> {
    let decoded = schema::decode(ty, raw).map_err(|e| ApiError::bad_request(e.to_string()))?;
    match settle_issues(&decoded.issues, validation, warnings) {
        Some(message) => Err(ApiError::bad_request(message)),
        None => Ok(decoded.value),
    }
}

/// Shows the change a deployment's scale, and writes what becomes of it.
fn rescale(
    call: &mut Call,
    options: &WriteOptions,
    change: impl Fn(&Value, &mut Vec<String>) -> ApiResult<Value>,
) -> ApiResult<Answer> {
    let manager = call.manager(options.field_manager.as_deref());
    let mut warnings = Vec::new();
    let scale = loop {
        let current = call.stored_or_404()?;
        let old = current.value();
        let mut new = old.clone();
        sub::apply_scale(&mut new, &change(&sub::scale_of(&old), &mut warnings)?)?;
        let version = new.text("metadata.resourceVersion");
        if !matches!(version, "" | "0") && version != old.text("metadata.resourceVersion") {
            return Err(ApiError::modified(call.resource().named(), &call.path.name));
        }
        let write = call.writer(&manager, options.dry_run);
        match update_object(&write, &current, &old, new, false, &mut warnings) {
            Ok(object) => break sub::scale_of(&object.into_value(call.resource())),
            Err(Raced::Refused(error)) => return Err(error),
            Err(Raced::Again) => warnings.clear(),
        }
    };
    call.warnings.append(&mut warnings);
    Ok(plain(StatusCode::OK, scale))
}
