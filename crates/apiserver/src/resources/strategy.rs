//! [`Strategy`]: the hooks of a kind that the request path calls.
//!
//! A write runs these steps, in the same order as kube-apiserver:
//!
//! ```text
//! decode ─► apply_defaults ─► managed fields ─► admit_* ─► begin_* (allocations)
//!        ─► prepare_* ─► validate_* ─► warnings ─► commit (or the Reservation rolls back)
//! ```

use serde_json::Value;

use super::{Resource, meta};
use crate::auth::User;
use crate::field_error::FieldError;
use crate::state::State;
use crate::status::ApiResult;
use crate::validation;
use crate::value::Json;

/// Context of a write request, passed to every [`Strategy`] hook.
#[derive(Clone, Copy)]
pub(crate) struct WriteCx<'a> {
    pub(crate) state: &'a State,
    pub(crate) resource: &'static Resource,
    pub(crate) subresource: Option<&'a str>,
    pub(crate) namespace: &'a str,
    pub(crate) user: &'a User,
    /// Field manager that the changes are recorded under.
    pub(crate) manager: &'a str,
    pub(crate) dry_run: bool,
}

/// Allocations (IP addresses, ports) that are released on drop unless the write is committed.
pub(crate) struct Reservation {
    commit: Option<Box<dyn FnOnce() + Send>>,
    rollback: Option<Box<dyn FnOnce() + Send>>,
}

impl Reservation {
    pub(crate) fn new(commit: impl FnOnce() + Send + 'static, rollback: impl FnOnce() + Send + 'static) -> Self {
        Reservation { commit: Some(Box::new(commit)), rollback: Some(Box::new(rollback)) }
    }

    /// Keeps the allocations. Call this once the write is stored.
    pub(crate) fn commit(mut self) {
        self.rollback = None;
        if let Some(commit) = self.commit.take() {
            commit();
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some(rollback) = self.rollback.take() {
            rollback();
        }
    }
}

/// Deletion mode of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Grace {
    /// Removed immediately, unless it has finalizers.
    Now,
    /// Marked with a deletionTimestamp. A second DELETE (the kubelet's) removes it after this grace period in seconds.
    Seconds(i64),
}

/// The rules of a kind. Objects are canonical: the schema has decoded them, so hooks do not check types.
pub(crate) trait Strategy: Sync {
    /// Fills in defaults. Runs on every decoded object, before validation.
    fn apply_defaults(&self, _obj: &mut Value) {}

    /// Admission of a new object: may mutate or reject it.
    fn admit_create(&self, _cx: &WriteCx<'_>, _obj: &mut Value) -> ApiResult<()> {
        Ok(())
    }

    /// Admission of an update: may mutate or reject it.
    fn admit_update(&self, _cx: &WriteCx<'_>, _new: &mut Value, _old: &Value) -> ApiResult<()> {
        Ok(())
    }

    /// Admission of a deletion: may reject it.
    fn admit_delete(&self, _cx: &WriteCx<'_>, _old: &Value) -> ApiResult<()> {
        Ok(())
    }

    /// Allocates what a new object needs from shared pools. A dry run must not keep allocations.
    fn begin_create(&self, _cx: &WriteCx<'_>, _obj: &mut Value) -> ApiResult<Option<Reservation>> {
        Ok(None)
    }

    /// Allocates what an update needs and releases on commit what it no longer needs.
    fn begin_update(&self, _cx: &WriteCx<'_>, _new: &mut Value, _old: &Value) -> ApiResult<Option<Reservation>> {
        Ok(None)
    }

    /// Resets fields that clients may not set on create. The default clears `status` of kinds with a status subresource.
    fn prepare_create(&self, cx: &WriteCx<'_>, obj: &mut Value) {
        clear_status(cx, obj);
    }

    /// Restores fields that an update of the main resource may not change. The default keeps `status`.
    fn prepare_update(&self, cx: &WriteCx<'_>, new: &mut Value, old: &Value) {
        keep_status(cx, new, old);
    }

    /// Restores fields that an update of `/status` may not change: everything but status and metadata.
    fn prepare_status_update(&self, _cx: &WriteCx<'_>, new: &mut Value, old: &Value) {
        keep_all_but_status(new, old);
    }

    /// Returns all errors of a new object in the order they are reported: metadata, then [`Strategy::validate_create`].
    fn validate_new(&self, cx: &WriteCx<'_>, obj: &Value) -> Vec<FieldError> {
        let mut errors = meta::validate_create(cx, obj);
        errors.extend(self.validate_create(cx, obj));
        errors
    }

    fn validate_create(&self, _cx: &WriteCx<'_>, _obj: &Value) -> Vec<FieldError> {
        Vec::new()
    }

    /// Validates an update. The caller has already validated metadata (immutable fields, finalizers, labels).
    fn validate_update(&self, _cx: &WriteCx<'_>, _new: &Value, _old: &Value) -> Vec<FieldError> {
        Vec::new()
    }

    fn validate_status_update(&self, _cx: &WriteCx<'_>, _new: &Value, _old: &Value) -> Vec<FieldError> {
        Vec::new()
    }

    /// Returns the errors of a name. `prefix` is set for a generateName.
    fn validate_name(&self, name: &str, prefix: bool) -> Vec<String> {
        validation::dns_subdomain(validation::mask_trailing_dash(name, prefix).as_ref())
    }

    /// Returns the texts for `Warning` headers.
    fn warnings(&self, _cx: &WriteCx<'_>, _new: &Value, _old: Option<&Value>) -> Vec<String> {
        Vec::new()
    }

    /// Returns the deletion mode. `requested` is the client's `gracePeriodSeconds`.
    fn deletion_grace(&self, _obj: &Value, _requested: Option<i64>) -> Grace {
        Grace::Now
    }

    /// True if the first DELETE only sets the deletionTimestamp, even without finalizers (Namespace).
    fn outlives_deletion(&self) -> bool {
        false
    }

    /// Sets further fields, besides the deletionTimestamp, of an object that [outlives](Strategy::outlives_deletion) its
    /// first DELETE.
    fn mark_deleted(&self, _obj: &mut Value) {}

    /// Whether objects of this kind can be owners, so that `propagationPolicy` applies to their deletion.
    fn has_dependents(&self) -> bool {
        true
    }

    /// True if something other than `metadata.finalizers` blocks the removal (`spec.finalizers` of a Namespace).
    fn has_spec_finalizers(&self, _obj: &Value) -> bool {
        false
    }

    /// Releases the object's allocations. Called once, after the object is removed.
    fn after_delete(&self, _state: &State, _obj: &Value) {}

    /// Field labels of this kind other than `metadata.name` and `metadata.namespace`; `None` if it has none of its own.
    fn field_labels(&self) -> Option<&'static [&'static str]> {
        None
    }

    /// Returns the value of one of [`Strategy::field_labels`], as resolved by [`Strategy::field_alias`]. The default reads
    /// the path of the same name.
    fn field_value(&self, obj: &Value, label: &str) -> String {
        match obj.at(label) {
            Value::String(s) => s.clone(),
            Value::Bool(b) => b.to_string(),
            Value::Number(n) => n.to_string(),
            _ => String::new(),
        }
    }

    /// Resolves a label that a client sent to the stored one (`spec.host` to `spec.nodeName`). A label is known if it is one
    /// of [`Strategy::field_labels`] or has an alias.
    fn field_alias<'l>(&self, label: &'l str) -> &'l str {
        label
    }
}

/// Strategy without rules beyond metadata.
pub(crate) struct Plain;

impl Strategy for Plain {}

pub(crate) fn clear_status(cx: &WriteCx<'_>, obj: &mut Value) {
    if cx.resource.has_status() {
        obj.take_at("status");
        restore_always(cx.resource, obj);
    }
}

pub(crate) fn keep_status(cx: &WriteCx<'_>, new: &mut Value, old: &Value) {
    if !cx.resource.has_status() {
        return;
    }
    match old.get("status") {
        Some(status) => new.put("status", status.clone()),
        None => {
            new.take_at("status");
        }
    }
}

pub(crate) fn keep_all_but_status(new: &mut Value, old: &Value) {
    let (Some(new), Some(old)) = (new.as_object_mut(), old.as_object()) else { return };
    let is_kept = |key: &str| matches!(key, "metadata" | "status" | "kind" | "apiVersion");
    new.retain(|key, _| is_kept(key));
    new.extend(old.iter().filter(|(key, _)| !is_kept(key)).map(|(k, v)| (k.clone(), v.clone())));
}

/// Restores top-level structs that are always serialised, even when empty.
fn restore_always(resource: &Resource, obj: &mut Value) {
    if let Some(object) = obj.as_object_mut() {
        crate::schema::fill_always(resource.type_id(), object);
    }
}
