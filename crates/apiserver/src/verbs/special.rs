//! Subresources with a separate kind: token, eviction, binding, scale and log.

use std::sync::Arc;

use http::StatusCode;
use serde_json::Value;

use super::patch::{applied_object, check_duplicates, patch_kind, patched};
use super::write::{check_namespace, now, replace};
use super::{Call, DeleteOptions, UpdateError, create, delete_object, update, update_object};
use crate::auth;
use crate::fields;
use crate::http::body::{self, Expected};
use crate::http::negotiate::{PatchType, patch_type};
use crate::http::query::WriteOptions;
use crate::http::respond::ResponseContent;
use crate::patch::{Patch, PatchKind};
use crate::resources::subresources;
use crate::schema::schema;
use crate::status::{ApiError, ApiResult, Named};
use crate::store::Stored;
use crate::value::Json;

/// The kind of a subresource.
#[derive(Clone, Copy)]
struct Kind {
    api_version: &'static str,
    name: &'static str,
    ty: &'static str,
}

impl Kind {
    fn expected(self) -> Expected<'static> {
        Expected { api_version: self.api_version, kind: self.name, ty: schema().id(self.ty) }
    }
}

const BINDING: Kind = Kind { api_version: "v1", name: "Binding", ty: "core/v1.Binding" };
const EVICTION: Kind = Kind { api_version: "policy/v1", name: "Eviction", ty: "policy/v1.Eviction" };
const SCALE: Kind = Kind { api_version: "autoscaling/v1", name: "Scale", ty: "autoscaling/v1.Scale" };
const TOKEN: Kind =
    Kind { api_version: "authentication.k8s.io/v1", name: "TokenRequest", ty: "authentication/v1.TokenRequest" };

/// Whether this module handles the subresource.
pub(super) fn handles(subresource: &str) -> bool {
    matches!(subresource, "token" | "eviction" | "binding" | "scale" | "log")
}

pub(super) fn run(call: &mut Call, subresource: &str, verb: &str) -> ApiResult<ResponseContent> {
    match (subresource, verb) {
        ("token", "create") => token(call),
        ("eviction", "create") => evict(call),
        ("binding", "create") => bind(call),
        ("scale", "get") => Ok(plain(StatusCode::OK, subresources::scale_of(&call.stored_or_404()?.value()))),
        ("scale", "update") => put_scale(call),
        ("scale", "patch") => patch_scale(call),
        ("log", "get") => log(call),
        _ => Err(ApiError::method_not_allowed()),
    }
}

fn plain(code: StatusCode, value: Value) -> ResponseContent {
    ResponseContent::Plain { code, value }
}

fn decode(call: &mut Call, kind: Kind, options: &WriteOptions) -> ApiResult<Value> {
    body::decode_object(&call.headers, &call.body, kind.expected(), options.field_validation, &mut call.warnings)
}

/// upstream: a POST to a subresource counts as new content of its namespace.
fn admit(call: &Call) -> ApiResult<()> {
    check_namespace(&call.writer("", false), &call.path.name)
}

fn token(call: &mut Call) -> ApiResult<ResponseContent> {
    let options = WriteOptions::parse(&call.query, "CreateOptions", false)?;
    let request = decode(call, TOKEN, &options)?;
    admit(call)?;
    let value = auth::request_token(&call.state, &call.path.namespace, &call.path.name, request)?;
    Ok(plain(StatusCode::CREATED, value))
}

// === Eviction ===

fn evict(call: &mut Call) -> ApiResult<ResponseContent> {
    let options = WriteOptions::parse(&call.query, "CreateOptions", false)?;
    let mut eviction = decode(call, EVICTION, &options)?;
    create::check_body_namespace(&mut eviction, &call.path.namespace)?;
    admit(call)?;
    let given = subresources::eviction_options(&call.path.name, &eviction, options.dry_run)?;
    // upstream: these options are not validated.
    let mut delete_options = DeleteOptions::from_value(&given);
    let mut write = call.writer("", delete_options.dry_run);
    write.subresource = Some("status");
    let marked = retry_on_conflict(call, |current, old| {
        subresources::check_preconditions(old, &given)?;
        let mut new = old.clone();
        subresources::mark_evicted(&mut new);
        // upstream: no field manager owns the DisruptionTarget condition.
        update_object(&write, current, old, new, true, &mut Vec::new())
    })?;
    // The previous write changed the resource version: a version precondition now refers to the new one.
    let version = marked.into_value(call.resource()).text("metadata.resourceVersion").to_owned();
    delete_options.resource_version = delete_options.resource_version.map(|_| version);
    write.subresource = None;
    delete_object(&write, &call.path.name, &delete_options)?;
    Ok(plain(StatusCode::CREATED, subresources::created_status()))
}

/// Reads the object and runs `work` to write it; retries on a conflict.
fn retry_on_conflict<T>(
    call: &Call,
    mut work: impl FnMut(&Arc<Stored>, &Value) -> Result<T, UpdateError>,
) -> ApiResult<T> {
    loop {
        let current = call.stored_or_404()?;
        match work(&current, &current.value()) {
            Ok(done) => return Ok(done),
            Err(UpdateError::Rejected(error)) => return Err(error),
            Err(UpdateError::Conflict) => {}
        }
    }
}

// === Binding ===

fn bind(call: &mut Call) -> ApiResult<ResponseContent> {
    let options = WriteOptions::parse(&call.query, "CreateOptions", false)?;
    let mut binding = decode(call, BINDING, &options)?;
    create::check_body_namespace(&mut binding, &call.path.namespace)?;
    admit(call)?;
    if let Some(node) = call.state.store.get("nodes", "", binding.text("target.name")) {
        subresources::label_binding(&mut binding, &node.labels);
    }
    let write = call.writer("", options.dry_run);
    retry_on_conflict(call, |current, old| {
        let mut new = old.clone();
        subresources::bind(&mut new, &binding)?;
        replace(&write, current, old, new).map(|_| ())
    })?;
    Ok(plain(StatusCode::CREATED, subresources::created_status()))
}

// === Scale ===

fn put_scale(call: &mut Call) -> ApiResult<ResponseContent> {
    let options = WriteOptions::parse(&call.query, "UpdateOptions", false)?;
    let mut scale = decode(call, SCALE, &options)?;
    create::check_body_namespace(&mut scale, &call.path.namespace)?;
    update::check_name(&scale, &call.path.name)?;
    rescale(call, &options, |current, _| {
        update::check_uid(call, &scale, current)?;
        Ok(scale.clone())
    })
}

fn patch_scale(call: &mut Call) -> ApiResult<ResponseContent> {
    let kind = patch_type(&call.headers)?;
    let options = WriteOptions::parse(&call.query, "PatchOptions", kind == PatchType::Apply)?;
    let mut warnings = Vec::new();
    let result = match patch_kind(kind) {
        Some(kind) => modify_scale(call, kind, &options, &mut warnings),
        None => apply_to_scale(call, &options, &mut warnings),
    };
    call.warnings.append(&mut warnings);
    result
}

fn modify_scale(
    call: &Call,
    kind: PatchKind,
    options: &WriteOptions,
    warnings: &mut Vec<String>,
) -> ApiResult<ResponseContent> {
    let patch = Patch::parse(kind, &call.body)?;
    rescale(call, options, |_, old| {
        let mut scale = patched(SCALE.expected(), &patch, old, options.field_validation, warnings)?;
        create::check_body_namespace(&mut scale, &call.path.namespace)?;
        update::check_name(&scale, &call.path.name)?;
        Ok(scale)
    })
}

/// Updates the deployment with the scale that `change` computes from the current one.
fn rescale(
    call: &Call,
    options: &WriteOptions,
    mut change: impl FnMut(&Stored, &Value) -> ApiResult<Value>,
) -> ApiResult<ResponseContent> {
    let manager = call.manager(options.field_manager.as_deref());
    let write = call.writer(&manager, options.dry_run);
    retry_on_conflict(call, |current, old| {
        let scale = change(current, &subresources::scale_of(old))?;
        let mut new = old.clone();
        subresources::apply_scale(&mut new, &scale)?;
        update::check_version(call, &new, current)?;
        let object = update_object(&write, current, old, new, false, &mut Vec::new())?;
        Ok(plain(StatusCode::OK, subresources::scale_of(&object.into_value(call.resource()))))
    })
}

/// Server-side apply of a scale: applies the fields of the deployment that the scale contains.
fn apply_to_scale(call: &Call, options: &WriteOptions, warnings: &mut Vec<String>) -> ApiResult<ResponseContent> {
    let (applied, issues) = applied_object(&call.body)?;
    let manager = call.manager(options.field_manager.as_deref());
    let write = call.writer(&manager, options.dry_run);
    let now = now();
    retry_on_conflict(call, |current, old| {
        fields::check_applied(SCALE.api_version, SCALE.name, schema().id(SCALE.ty), &applied)?;
        let config = subresources::applied_scale(call.resource(), &applied);
        let mut applied = fields::apply(write.writer(&now), Some(old), &config, options.force.unwrap_or(false))?;
        check_duplicates(&issues, options.field_validation, warnings)?;
        let mut scale = subresources::scale_of(&applied);
        create::check_body_namespace(&mut scale, &call.path.namespace)?;
        update::check_name(&scale, &call.path.name)?;
        let mut new = old.clone();
        subresources::apply_scale(&mut new, &scale)?;
        match applied.take_at("metadata.managedFields") {
            Some(entries) => new.put("metadata.managedFields", entries),
            None => drop(new.take_at("metadata.managedFields")),
        }
        update::check_version(call, &new, current)?;
        let object = update_object(&write, current, old, new, true, &mut Vec::new())?;
        Ok(plain(StatusCode::OK, subresources::scale_of(&object.into_value(call.resource()))))
    })
}

// === Logs ===

/// Handles a log request. This server runs no Pods, so it responds as a server whose node has no kubelet.
fn log(call: &Call) -> ApiResult<ResponseContent> {
    let pod = call.stored_or_404()?.value();
    let Some(node) = subresources::log_source(&pod, call.query.get("container").unwrap_or_default())? else {
        return Ok(ResponseContent::Nothing);
    };
    match call.state.store.get("nodes", "", node) {
        None => Err(ApiError::not_found(Named { group: "", kind: "nodes" }, node)),
        Some(_) => {
            let name = &call.path.name;
            Err(ApiError::internal(format!("node {node} has no kubelet: the logs of pod {name} are not available")))
        }
    }
}
