//! DELETE of one object or of a collection.
//!
//! ```text
//! held by finalizers, a grace period or its kind? ──yes──► mark (deletionTimestamp), MODIFIED, answer the object
//!                 └─no──► remove, DELETED, answer the object or a Status
//! ```

use std::sync::Arc;

use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::list::snapshot;
use super::{Call, Write, ok};
use crate::field_error::FieldError;
use crate::http::body;
use crate::http::query::{ListOptions, Query, dry_run_errors};
use crate::http::respond::{Answer, List, Object};
use crate::resources::{Grace, Resource, of_storage};
use crate::status::{ApiError, ApiResult, Named};
use crate::store::{Draft, Expect, Refused, Stored};
use crate::value::Json;

/// How to delete.
#[derive(Debug, Clone, Default)]
pub(crate) struct DeleteOptions {
    pub(crate) grace: Option<i64>,
    pub(crate) policy: Option<Propagation>,
    pub(crate) uid: Option<String>,
    pub(crate) resource_version: Option<String>,
    pub(crate) dry_run: bool,
}

/// What becomes of dependents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Propagation {
    Foreground,
    Background,
    Orphan,
}

/// What DELETE did.
#[derive(Debug)]
pub(crate) enum Deleted {
    /// It is gone; this is its last state.
    Gone(Object),
    /// It is marked and waits for somebody.
    Marked(Object),
}

const DELETE_OPTIONS: Named<'static> = Named { group: "meta.k8s.io", kind: "DeleteOptions" };

impl DeleteOptions {
    /// From the body; without one, from the query.
    fn parse(call: &Call) -> ApiResult<DeleteOptions> {
        let mut given = body::decode_delete_options(&call.headers, &call.body)?;
        if given.is_null() {
            given = from_query(&call.query)?;
        }
        DeleteOptions::from_value(&given)
    }

    /// From a decoded `DeleteOptions` object.
    pub(crate) fn from_value(given: &Value) -> ApiResult<DeleteOptions> {
        let mut errors = Vec::new();
        let orphan = given.at("orphanDependents").as_bool();
        let policy = match given.at("propagationPolicy").as_str() {
            None => None,
            Some("Foreground") => Some(Propagation::Foreground),
            Some("Background") => Some(Propagation::Background),
            Some("Orphan") => Some(Propagation::Orphan),
            Some(other) => {
                let known = ["Foreground", "Background", "Orphan", "nil"];
                errors.push(FieldError::not_supported("propagationPolicy", other, &known));
                None
            }
        };
        if let (Some(_), Some(policy)) = (orphan, given.at("propagationPolicy").as_str()) {
            let why = "orphanDependents and deletionPropagation cannot be both set";
            errors.insert(0, FieldError::invalid("propagationPolicy", policy, why));
        }
        errors.extend(dry_run_errors(&given.texts("dryRun")));
        if !errors.is_empty() {
            return Err(ApiError::invalid(DELETE_OPTIONS, "", &errors));
        }
        let text = |path: &str| given.at(path).as_str().map(str::to_owned);
        Ok(DeleteOptions {
            grace: given.int("gracePeriodSeconds"),
            policy: policy.or(orphan.map(|o| if o { Propagation::Orphan } else { Propagation::Background })),
            uid: text("preconditions.uid"),
            resource_version: text("preconditions.resourceVersion"),
            dry_run: !given.list("dryRun").is_empty(),
        })
    }
}

fn from_query(query: &Query) -> ApiResult<Value> {
    let mut given = json!({});
    if let Some(grace) = query.int("gracePeriodSeconds")? {
        given["gracePeriodSeconds"] = grace.into();
    }
    if let Some(policy) = query.get("propagationPolicy") {
        given["propagationPolicy"] = policy.into();
    }
    if let Some(orphan) = query.optional_flag("orphanDependents") {
        given["orphanDependents"] = orphan.into();
    }
    let dry_run = query.all("dryRun");
    if !dry_run.is_empty() {
        given["dryRun"] = dry_run.into();
    }
    Ok(given)
}

// === The verbs ===

pub(super) fn delete(call: &mut Call) -> ApiResult<Answer> {
    let mut options = DeleteOptions::parse(call)?;
    options.dry_run |= call.query.get("dryRun").is_some();
    if let Some(error) = dry_run_errors(&call.query.all("dryRun")) {
        return Err(ApiError::invalid(DELETE_OPTIONS, "", &[error]));
    }
    let write = call.writer("", options.dry_run);
    match delete_object(&write, &call.path.name, &options)? {
        Deleted::Marked(object) => Ok(ok(object)),
        Deleted::Gone(object) if call.resource().returns_deleted => Ok(ok(object)),
        Deleted::Gone(object) => {
            let uid = object.into_value(call.resource()).text("metadata.uid").to_owned();
            Ok(Answer::Plain { code: StatusCode::OK, value: success(call.resource(), &call.path.name, &uid) })
        }
    }
}

fn success(resource: &Resource, name: &str, uid: &str) -> Value {
    let mut details = json!({"name": name, "kind": resource.plural, "uid": uid});
    if !resource.group.is_empty() {
        details["group"] = resource.group.into();
    }
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}

/// Deletes every match and answers the list as it was.
pub(super) fn delete_collection(call: &mut Call) -> ApiResult<Answer> {
    let mut options = DeleteOptions::parse(call)?;
    options.dry_run |= call.query.get("dryRun").is_some();
    let list_options = ListOptions::parse(call.resource(), &call.query)?;
    let found = snapshot(call, &list_options)?;
    let matching = found.objects.into_iter().filter(|o| list_options.matches(o));
    let limit = if list_options.limit == 0 { usize::MAX } else { list_options.limit };
    let objects: Vec<Arc<Stored>> = matching.take(limit).collect();
    let write = call.writer("", options.dry_run);
    for object in &objects {
        match delete_object(&write, &object.key.name, &options) {
            Ok(_) => {}
            Err(error) if error.code == StatusCode::NOT_FOUND => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Answer::List(List { objects, revision: found.revision, continue_token: None, remaining: None }))
}

// === One object ===

/// Deletes one object, or marks it.
pub(crate) fn delete_object(write: &Write<'_>, name: &str, options: &DeleteOptions) -> ApiResult<Deleted> {
    loop {
        let storage = write.resource.storage;
        let Some(current) = write.state.store.get(storage, write.namespace, name) else {
            return Err(ApiError::not_found(write.resource.named(), name));
        };
        check_preconditions(write.resource, name, &current, options)?;
        let value = current.value();
        write.resource.strategy.admit_delete(&write.cx(), &value)?;
        match try_delete(write, &current, value, options) {
            Ok(deleted) => return Ok(deleted),
            Err(Refused::Missing) => return Err(ApiError::not_found(write.resource.named(), name)),
            // Somebody wrote in between: look again.
            Err(_) => {}
        }
    }
}

fn check_preconditions(resource: &Resource, name: &str, current: &Stored, options: &DeleteOptions) -> ApiResult<()> {
    // upstream: these conflicts name the Kind, not the plural.
    let what = Named { group: resource.group, kind: resource.kind };
    if let Some(uid) = options.uid.as_deref().filter(|uid| **uid != *current.uid) {
        let why = format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been \
             deleted and then recreated",
            current.uid
        );
        return Err(ApiError::conflict(what, name, &why));
    }
    let found = current.revision.to_string();
    if let Some(version) = options.resource_version.as_deref().filter(|version| *version != found) {
        let why = format!(
            "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record \
             ({found}). The object might have been modified"
        );
        return Err(ApiError::conflict(what, name, &why));
    }
    Ok(())
}

fn try_delete(
    write: &Write<'_>,
    current: &Arc<Stored>,
    mut value: Value,
    options: &DeleteOptions,
) -> Result<Deleted, Refused> {
    let strategy = write.resource.strategy;
    let (grace, graceful) = match strategy.deletion_grace(&value, options.grace) {
        Grace::Now => (0, false),
        Grace::Seconds(seconds) => (seconds, true),
    };
    if value.has("metadata.deletionTimestamp") {
        return delete_again(write, current, value, grace);
    }
    set_finalizers(&mut value, options.policy);
    let held = !value.list("metadata.finalizers").is_empty() || strategy.is_held(&value);
    if !graceful && !held {
        return remove(write, current, value);
    }
    strategy.mark_deleted(&mut value, &time_after(grace), grace);
    raise_generation(&mut value);
    match grace == 0 && !held {
        true => mark_and_remove(write, current, value),
        false => mark(write, current, value),
    }
}

/// A kind with a grace period is marked even when that period is none.
fn mark_and_remove(write: &Write<'_>, current: &Arc<Stored>, value: Value) -> Result<Deleted, Refused> {
    match mark(write, current, value.clone())? {
        Deleted::Marked(Object::Stored(marked)) => remove(write, &marked, value),
        Deleted::Marked(Object::Value(value)) | Deleted::Gone(Object::Value(value)) => {
            Ok(Deleted::Gone(Object::Value(value)))
        }
        gone => Ok(gone),
    }
}

/// A marked object stays as it is, unless the new grace period is shorter than the old one.
fn delete_again(write: &Write<'_>, current: &Arc<Stored>, mut value: Value, grace: i64) -> Result<Deleted, Refused> {
    let pending = value.int("metadata.deletionGracePeriodSeconds").unwrap_or(0);
    if pending <= grace {
        return Ok(Deleted::Marked(Object::Stored(current.clone())));
    }
    write.resource.strategy.mark_deleted(&mut value, &time_after(grace), grace);
    match grace == 0 && value.list("metadata.finalizers").is_empty() {
        true => mark_and_remove(write, current, value),
        false => mark(write, current, value),
    }
}

fn mark(write: &Write<'_>, current: &Arc<Stored>, value: Value) -> Result<Deleted, Refused> {
    if write.dry_run {
        return Ok(Deleted::Marked(Object::Value(value)));
    }
    let draft = Draft::new(of_storage(write.resource.storage), &value);
    let stored = write.state.store.put(write.resource.storage, Expect::Revision(current.revision), draft)?;
    Ok(Deleted::Marked(Object::Stored(stored)))
}

fn remove(write: &Write<'_>, current: &Arc<Stored>, value: Value) -> Result<Deleted, Refused> {
    if write.dry_run {
        return Ok(Deleted::Gone(Object::Value(value)));
    }
    let gone = write.state.store.delete(write.resource.storage, &current.key, current.revision)?;
    write.resource.strategy.released(write.state, &value);
    Ok(Deleted::Gone(Object::Stored(gone)))
}

/// The finalizers that stand for a propagation policy.
fn set_finalizers(value: &mut Value, policy: Option<Propagation>) {
    let Some(policy) = policy else { return };
    let (add, drop) = match policy {
        Propagation::Foreground => (Some("foregroundDeletion"), "orphan"),
        Propagation::Orphan => (Some("orphan"), "foregroundDeletion"),
        Propagation::Background => (None, ""),
    };
    let mut finalizers: Vec<Value> = value.list("metadata.finalizers").to_vec();
    match add {
        None => finalizers.retain(|f| f != "orphan" && f != "foregroundDeletion"),
        Some(add) => {
            finalizers.retain(|f| f != drop);
            if !finalizers.iter().any(|f| f == add) {
                finalizers.push(add.into());
            }
        }
    }
    match finalizers.is_empty() {
        true => drop_field(value),
        false => value.put("metadata.finalizers", finalizers),
    }
}

fn drop_field(value: &mut Value) {
    value.take_at("metadata.finalizers");
}

fn raise_generation(value: &mut Value) {
    if let Some(generation) = value.int("metadata.generation").filter(|g| *g > 0) {
        value.put("metadata.generation", generation + 1);
    }
}

fn time_after(seconds: i64) -> String {
    let then = Timestamp::now().checked_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX);
    then.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
