//! DELETE of one object or of a collection.
//!
//! ```text
//! held by finalizers, a grace period or its kind? ──yes──► set deletionTimestamp, MODIFIED, return the object
//!                 └─no──► delete, DELETED, return the object or a Status
//! ```

use std::sync::Arc;

use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::write::time_text;
use super::{Call, list, ok, update};
use crate::field_error::FieldError;
use crate::http::body;
use crate::http::query::{ListOptions, Query, dry_run_errors};
use crate::http::respond::{Object, ResponseContent};
use crate::resources::{Grace, Resource, WriteCx, find_storage};
use crate::status::{ApiError, ApiResult, Named};
use crate::store::{Draft, Expect, Stored, WriteError};
use crate::value::Json;

/// Options of a deletion.
#[derive(Debug, Clone, Default)]
pub(crate) struct DeleteOptions {
    pub(crate) grace: Option<i64>,
    pub(crate) policy: Option<Propagation>,
    /// The deprecated form of the propagation policy; sets `policy`.
    pub(crate) orphan_dependents: Option<bool>,
    pub(crate) uid: Option<String>,
    pub(crate) resource_version: Option<String>,
    pub(crate) dry_run: bool,
    /// Delete an object that cannot be read from storage.
    pub(crate) ignore_read_errors: bool,
}

/// Propagation policy: how dependents are garbage collected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Propagation {
    Foreground,
    Background,
    Orphan,
}

/// Result of a DELETE.
#[derive(Debug)]
pub(crate) enum Deleted {
    /// The object is deleted; this is its last state.
    Gone(Object),
    /// The object has a deletionTimestamp and waits for finalizers or its grace period.
    Marked(Object),
}

const DELETE_OPTIONS: Named<'static> = Named { group: "meta.k8s.io", kind: "DeleteOptions" };

impl DeleteOptions {
    /// Reads the options from the body or, without one, from the query.
    fn parse(call: &Call) -> ApiResult<DeleteOptions> {
        let mut given = body::decode_delete_options(&call.headers, &call.body)?;
        if given.is_null() {
            given = from_query(&call.query)?;
        }
        DeleteOptions::checked(&given)
    }

    /// Validates a decoded `DeleteOptions` object.
    fn checked(given: &Value) -> ApiResult<DeleteOptions> {
        let errors = errors(given);
        match errors.is_empty() {
            true => Ok(DeleteOptions::from_value(given)),
            false => Err(ApiError::invalid(DELETE_OPTIONS, "", &errors)),
        }
    }

    /// Reads a decoded `DeleteOptions` object; invalid values count as absent.
    pub(crate) fn from_value(given: &Value) -> DeleteOptions {
        let orphan = given.at("orphanDependents").as_bool();
        let policy = Propagation::parse(given.text("propagationPolicy"));
        let text = |path: &str| given.at(path).as_str().map(str::to_owned);
        DeleteOptions {
            grace: given.int("gracePeriodSeconds"),
            policy: policy.or(orphan.map(|o| if o { Propagation::Orphan } else { Propagation::Background })),
            orphan_dependents: orphan,
            uid: text("preconditions.uid"),
            resource_version: text("preconditions.resourceVersion"),
            dry_run: !given.list("dryRun").is_empty(),
            ignore_read_errors: given.at(UNSAFE) == true,
        }
    }
}

impl Propagation {
    fn parse(text: &str) -> Option<Propagation> {
        match text {
            "Foreground" => Some(Propagation::Foreground),
            "Background" => Some(Propagation::Background),
            "Orphan" => Some(Propagation::Orphan),
            _ => None,
        }
    }
}

/// Validation errors of `DeleteOptions`.
fn errors(given: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let Some(policy) = given.at("propagationPolicy").as_str() {
        if given.has("orphanDependents") {
            let why = "orphanDependents and deletionPropagation cannot be both set";
            errors.push(FieldError::invalid("propagationPolicy", policy, why));
        }
        if Propagation::parse(policy).is_none() {
            let known = ["Foreground", "Background", "Orphan", "nil"];
            errors.push(FieldError::not_supported("propagationPolicy", policy, &known));
        }
    }
    errors.extend(dry_run_errors(&given.texts("dryRun")));
    errors.extend(unsafe_errors(given));
    errors
}

/// The option to delete objects that cannot be read. This server has none, but validates the option.
const UNSAFE: &str = "ignoreStoreReadErrorWithClusterBreakingPotential";

fn unsafe_errors(given: &Value) -> Vec<FieldError> {
    if given.at(UNSAFE) != true {
        return Vec::new();
    }
    let others = ["propagationPolicy", "orphanDependents", "gracePeriodSeconds", "preconditions"];
    let given = others.into_iter().filter(|other| given.has(other));
    given.map(|other| FieldError::invalid(UNSAFE, true, format!("cannot be set together with .{other}"))).collect()
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
    if let Some(ignore_read_errors) = query.optional_flag(UNSAFE) {
        given[UNSAFE] = ignore_read_errors.into();
    }
    let dry_run = query.all("dryRun");
    if !dry_run.is_empty() {
        given["dryRun"] = dry_run.into();
    }
    Ok(given)
}

// === Verbs ===

pub(super) fn delete(call: &mut Call) -> ApiResult<ResponseContent> {
    let options = DeleteOptions::parse(call)?;
    if options.ignore_read_errors {
        return Err(unsafe_deletion_error(call));
    }
    let write = call.writer("", options.dry_run);
    match delete_object(&write, &call.path.name, &options)? {
        // upstream: only the deprecated option returns 202 for an object that still exists.
        Deleted::Marked(object) if options.orphan_dependents == Some(false) => {
            Ok(ResponseContent::Object { code: StatusCode::ACCEPTED, object })
        }
        Deleted::Marked(object) => Ok(ok(object)),
        Deleted::Gone(object) if call.resource().returns_deleted => Ok(ok(object)),
        Deleted::Gone(object) => {
            let uid = object.into_value(call.resource()).text("metadata.uid").to_owned();
            Ok(ResponseContent::Plain { code: StatusCode::OK, value: success(call.resource(), &call.path.name, &uid) })
        }
    }
}

/// The error for an unsafe deletion: every object of this server is readable, so none may be deleted that way.
fn unsafe_deletion_error(call: &Call) -> ApiError {
    const VERB: &str = "unsafe-delete-ignore-read-errors";
    if update::authorize_verb(call, VERB).is_err() {
        let why = format!("not permitted to do {VERB:?}, reason: ");
        return ApiError::forbidden(call.resource().named(), &call.path.name, &why);
    }
    match call.stored_or_404() {
        Err(missing) => missing,
        Ok(_) => {
            let why = "unsafe deletion is not allowed because the object is decodable from storage";
            update::storage_conflict(call, why)
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

/// Deletes all matching objects, or the first page of them if there is a limit, and returns them as a list.
pub(super) async fn delete_collection(call: &mut Call) -> ApiResult<ResponseContent> {
    let list_options = ListOptions::parse(call.resource(), &call.query)?;
    let options = DeleteOptions::parse(call)?;
    if options.ignore_read_errors {
        let why = "is not allowed with DELETECOLLECTION, try again after removing the option";
        return Err(ApiError::invalid(DELETE_OPTIONS, "", &[FieldError::invalid(UNSAFE, true, why)]));
    }
    let found = list::page(call, &list_options).await?;
    let write = call.writer("", options.dry_run);
    for object in &found.objects {
        match delete_object(&write, &object.key.name, &options) {
            Ok(_) => {}
            Err(error) if error.code == StatusCode::NOT_FOUND => {}
            Err(error) => return Err(error),
        }
    }
    Ok(ResponseContent::List(found))
}

// === One object ===

/// Deletes an object, or sets its deletionTimestamp.
pub(crate) fn delete_object(write: &WriteCx<'_>, name: &str, options: &DeleteOptions) -> ApiResult<Deleted> {
    loop {
        let storage = write.resource.storage;
        let Some(current) = write.state.store.get(storage, write.namespace, name) else {
            return Err(ApiError::not_found(write.resource.named(), name));
        };
        check_preconditions(write.resource, name, &current, options)?;
        let value = current.value();
        write.resource.strategy.admit_delete(write, &value)?;
        match try_delete(write, &current, value, options) {
            Ok(deleted) => return Ok(deleted),
            Err(WriteError::Missing) => return Err(ApiError::not_found(write.resource.named(), name)),
            // Another client modified the object: retry.
            Err(_) => {}
        }
    }
}

fn check_preconditions(resource: &Resource, name: &str, current: &Stored, options: &DeleteOptions) -> ApiResult<()> {
    let version = current.revision.to_string();
    let checks: [(&str, Option<&str>, &str, &str); 2] = [
        ("UID", options.uid.as_deref(), &current.uid, "deleted and then recreated"),
        ("ResourceVersion", options.resource_version.as_deref(), &version, "modified"),
    ];
    for (word, wanted, found, cause) in checks {
        let Some(wanted) = wanted.filter(|wanted| *wanted != found) else { continue };
        if resource.strategy.outlives_deletion() {
            let why = format!("Precondition failed: {word} in precondition: {wanted}, {word} in object meta: {found}");
            return Err(ApiError::conflict(resource.named(), name, &why));
        }
        let why = format!(
            "the {word} in the precondition ({wanted}) does not match the {word} in record ({found}). The object \
             might have been {cause}"
        );
        // upstream: these conflicts name the kind, not the plural.
        return Err(ApiError::conflict(Named { group: resource.group, kind: resource.kind }, name, &why));
    }
    Ok(())
}

/// Attempts a deletion of the state `current`; fails if another client modified the object.
fn try_delete(
    write: &WriteCx<'_>,
    current: &Arc<Stored>,
    value: Value,
    options: &DeleteOptions,
) -> Result<Deleted, WriteError> {
    let strategy = write.resource.strategy;
    let marked = value.has("metadata.deletionTimestamp");
    if strategy.outlives_deletion() && !marked {
        return mark_namespace(write, current, value, options);
    }
    if strategy.has_spec_finalizers(&value) {
        return Ok(Deleted::Marked(Object::Stored(current.clone())));
    }
    let pending = value.int("metadata.deletionGracePeriodSeconds").unwrap_or(0);
    match strategy.deletion_grace(&value, options.grace) {
        Grace::Seconds(seconds) if !marked => delete_after(write, current, value, seconds, options),
        Grace::Seconds(_) if pending != 0 => shorten_grace_period(write, current, value, pending, options),
        _ => delete_now(write, current, value, options),
    }
}

/// Sets the deletionTimestamp of a namespace, which exists until its finalizers are removed.
fn mark_namespace(
    write: &WriteCx<'_>,
    current: &Arc<Stored>,
    mut value: Value,
    options: &DeleteOptions,
) -> Result<Deleted, WriteError> {
    let policy = match options.orphan_dependents {
        // upstream: for a namespace, `orphanDependents: false` means foreground deletion.
        Some(false) => Some(Propagation::Foreground),
        _ => options.policy,
    };
    set_finalizers(&mut value, policy);
    value.put("metadata.deletionTimestamp", time_text(Timestamp::now()));
    write.resource.strategy.mark_deleted(&mut value);
    mark(write, current, value)
}

/// Deletes an object without finalizers; otherwise sets its deletionTimestamp with a grace period of 0.
fn delete_now(
    write: &WriteCx<'_>,
    current: &Arc<Stored>,
    mut value: Value,
    options: &DeleteOptions,
) -> Result<Deleted, WriteError> {
    set_policy(write, &mut value, options);
    if value.list("metadata.finalizers").is_empty() {
        return remove(write, current, value);
    }
    let now = Timestamp::now();
    let marked = deletion_time(&value);
    if marked.is_none() {
        increment_generation(&mut value);
    }
    if marked.is_none_or(|time| time > now) {
        value.put("metadata.deletionTimestamp", time_text(now));
    }
    value.put("metadata.deletionGracePeriodSeconds", 0);
    mark(write, current, value)
}

/// Sets the deletionTimestamp of an object with a grace period, which may be 0.
fn delete_after(
    write: &WriteCx<'_>,
    current: &Arc<Stored>,
    mut value: Value,
    seconds: i64,
    options: &DeleteOptions,
) -> Result<Deleted, WriteError> {
    set_policy(write, &mut value, options);
    increment_generation(&mut value);
    value.put("metadata.deletionTimestamp", time_text(after(Timestamp::now(), seconds)));
    value.put("metadata.deletionGracePeriodSeconds", seconds);
    mark_or_remove(write, current, value, seconds)
}

/// Shortens the grace period: a second deletion cannot extend it.
fn shorten_grace_period(
    write: &WriteCx<'_>,
    current: &Arc<Stored>,
    mut value: Value,
    pending: i64,
    options: &DeleteOptions,
) -> Result<Deleted, WriteError> {
    let wanted = options.grace.map(|seconds| if seconds < 0 { 1 } else { seconds });
    let Some(seconds) = wanted.filter(|seconds| *seconds < pending) else {
        return Ok(Deleted::Marked(Object::Stored(current.clone())));
    };
    let now = Timestamp::now();
    let requested_at = deletion_time(&value).map_or(now, |end| after(end, -pending));
    let end = after(requested_at, seconds);
    let (end, left) = if end < now { (now, seconds.min(1)) } else { (end, seconds) };
    set_policy(write, &mut value, options);
    value.put("metadata.deletionTimestamp", time_text(end));
    value.put("metadata.deletionGracePeriodSeconds", left);
    mark_or_remove(write, current, value, left)
}

/// Sets the deletionTimestamp, then deletes the object if its grace period is 0 and it has no finalizers.
fn mark_or_remove(
    write: &WriteCx<'_>,
    current: &Arc<Stored>,
    value: Value,
    seconds: i64,
) -> Result<Deleted, WriteError> {
    if seconds != 0 || !value.list("metadata.finalizers").is_empty() {
        return mark(write, current, value);
    }
    match mark(write, current, value.clone())? {
        Deleted::Marked(Object::Stored(marked)) => remove(write, &marked, value),
        Deleted::Marked(object) | Deleted::Gone(object) => Ok(Deleted::Gone(object)),
    }
}

fn mark(write: &WriteCx<'_>, current: &Arc<Stored>, value: Value) -> Result<Deleted, WriteError> {
    if write.dry_run {
        return Ok(Deleted::Marked(Object::Value(value)));
    }
    let draft = Draft::new(find_storage(write.resource.storage), &value);
    if draft.equals(current) {
        return Ok(Deleted::Marked(Object::Stored(current.clone())));
    }
    let stored = write.state.store.put(write.resource.storage, Expect::Revision(current.revision), draft)?;
    Ok(Deleted::Marked(Object::Stored(stored)))
}

fn remove(write: &WriteCx<'_>, current: &Arc<Stored>, value: Value) -> Result<Deleted, WriteError> {
    if write.dry_run {
        return Ok(Deleted::Gone(Object::Value(value)));
    }
    let deleted = write.state.store.delete(write.resource.storage, &current.key, current.revision)?;
    write.resource.strategy.after_delete(write.state, &value);
    Ok(Deleted::Gone(Object::Stored(deleted)))
}

/// Sets the finalizers of the propagation policy; kinds without dependents have none.
fn set_policy(write: &WriteCx<'_>, value: &mut Value, options: &DeleteOptions) {
    let policy = match write.resource.strategy.has_dependents() {
        true => options.policy,
        false => Some(Propagation::Background),
    };
    set_finalizers(value, policy);
}

/// Sets the finalizers that implement a propagation policy.
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
        true => remove_finalizers(value),
        false => value.put("metadata.finalizers", finalizers),
    }
}

fn remove_finalizers(value: &mut Value) {
    value.take_at("metadata.finalizers");
}

fn increment_generation(value: &mut Value) {
    if let Some(generation) = value.int("metadata.generation").filter(|g| *g > 0) {
        value.put("metadata.generation", generation + 1);
    }
}

fn deletion_time(value: &Value) -> Option<Timestamp> {
    value.text("metadata.deletionTimestamp").parse().ok()
}

fn after(time: Timestamp, seconds: i64) -> Timestamp {
    time.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX)
}
