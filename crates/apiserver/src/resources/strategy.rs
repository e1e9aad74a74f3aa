//! The rules of a kind, as the request path calls them.
//!
//! A write goes through these steps, in this order (the real server's):
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

/// A write: where, by whom, and whether for real. What its steps may look at.
#[derive(Clone, Copy)]
pub(crate) struct WriteCx<'a> {
    pub(crate) state: &'a State,
    pub(crate) resource: &'static Resource,
    pub(crate) subresource: Option<&'a str>,
    pub(crate) namespace: &'a str,
    pub(crate) user: &'a User,
    /// The name its changes are recorded under.
    pub(crate) manager: &'a str,
    pub(crate) dry_run: bool,
}

/// Something taken (addresses, ports) that is given back unless the write goes through.
pub(crate) struct Reservation {
    commit: Option<Box<dyn FnOnce() + Send>>,
    rollback: Option<Box<dyn FnOnce() + Send>>,
}

impl Reservation {
    pub(crate) fn new(commit: impl FnOnce() + Send + 'static, rollback: impl FnOnce() + Send + 'static) -> Self {
        Reservation { commit: Some(Box::new(commit)), rollback: Some(Box::new(rollback)) }
    }

    /// The write went through.
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

/// How an object goes on DELETE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Grace {
    /// Removed at once (unless finalizers hold it).
    Now,
    /// Marked, and left for somebody to finish after so many seconds.
    Seconds(i64),
}

/// The rules of a kind. Objects are canonical: decoded by the schema, so types need no checking.
pub(crate) trait Strategy: Sync {
    /// Fills in defaults. Runs on everything that was decoded, before validation.
    fn apply_defaults(&self, _obj: &mut Value) {}

    /// Admission of a new object: may change it or refuse it.
    fn admit_create(&self, _cx: &WriteCx<'_>, _obj: &mut Value) -> ApiResult<()> {
        Ok(())
    }

    /// Admission of a change.
    fn admit_update(&self, _cx: &WriteCx<'_>, _new: &mut Value, _old: &Value) -> ApiResult<()> {
        Ok(())
    }

    /// Whether the object may be deleted at all.
    fn admit_delete(&self, _cx: &WriteCx<'_>, _old: &Value) -> ApiResult<()> {
        Ok(())
    }

    /// Takes what a new object needs from shared pools. On a dry run nothing may stay taken.
    fn begin_create(&self, _cx: &WriteCx<'_>, _obj: &mut Value) -> ApiResult<Option<Reservation>> {
        Ok(None)
    }

    /// Takes and frees what a change needs; what is freed is freed on commit.
    fn begin_update(&self, _cx: &WriteCx<'_>, _new: &mut Value, _old: &Value) -> ApiResult<Option<Reservation>> {
        Ok(None)
    }

    /// Resets what clients may not set on create. The default clears `status` of kinds with a status subresource.
    fn prepare_create(&self, cx: &WriteCx<'_>, obj: &mut Value) {
        clear_status(cx, obj);
    }

    /// Carries over what an update of the main resource may not change. The default keeps `status`.
    fn prepare_update(&self, cx: &WriteCx<'_>, new: &mut Value, old: &Value) {
        keep_status(cx, new, old);
    }

    /// Carries over what an update of `/status` may not change: everything but status and metadata.
    fn prepare_status_update(&self, _cx: &WriteCx<'_>, new: &mut Value, old: &Value) {
        keep_all_but_status(new, old);
    }

    /// All that is wrong with a new object, in the order it is told: metadata, then [`Strategy::validate_create`].
    fn validate_new(&self, cx: &WriteCx<'_>, obj: &Value) -> Vec<FieldError> {
        let mut errors = meta::validate_create(cx, obj);
        errors.extend(self.validate_create(cx, obj));
        errors
    }

    fn validate_create(&self, _cx: &WriteCx<'_>, _obj: &Value) -> Vec<FieldError> {
        Vec::new()
    }

    /// Metadata (immutable fields, finalizers, labels) has been checked before this is called.
    fn validate_update(&self, _cx: &WriteCx<'_>, _new: &Value, _old: &Value) -> Vec<FieldError> {
        Vec::new()
    }

    fn validate_status_update(&self, _cx: &WriteCx<'_>, _new: &Value, _old: &Value) -> Vec<FieldError> {
        Vec::new()
    }

    /// What is wrong with a name; `prefix` is set for a generateName.
    fn validate_name(&self, name: &str, prefix: bool) -> Vec<String> {
        validation::dns_subdomain(validation::masked(name, prefix).as_ref())
    }

    /// Texts for `Warning` headers.
    fn warnings(&self, _cx: &WriteCx<'_>, _new: &Value, _old: Option<&Value>) -> Vec<String> {
        Vec::new()
    }

    /// How a DELETE with this grace period (if the client gave one) goes.
    fn deletion_grace(&self, _obj: &Value, _requested: Option<i64>) -> Grace {
        Grace::Now
    }

    /// A first DELETE only marks objects of this kind, whatever holds them (Namespace).
    fn outlives_deletion(&self) -> bool {
        false
    }

    /// Notes more than the time on an object that [`outlives`](Strategy::outlives_deletion) its deletion.
    fn mark_deleted(&self, _obj: &mut Value) {}

    /// Whether others may depend on objects of this kind, so that a DELETE can say what becomes of them.
    fn has_dependents(&self) -> bool {
        true
    }

    /// Something beside `metadata.finalizers` keeps a marked object (`spec.finalizers` of a Namespace).
    fn is_held(&self, _obj: &Value) -> bool {
        false
    }

    /// Gives back what an object held; called once, after it is gone.
    fn released(&self, _state: &State, _obj: &Value) {}

    /// The field labels of this kind beside `metadata.name` and `metadata.namespace`; `None`: it has none of its own.
    fn field_labels(&self) -> Option<&'static [&'static str]> {
        None
    }

    /// The value of one of [`Strategy::field_labels`] (as resolved by [`Strategy::field_alias`]). The default
    /// reads the path of the same name.
    fn field_value(&self, obj: &Value, label: &str) -> String {
        match obj.at(label) {
            Value::String(s) => s.clone(),
            Value::Bool(b) => b.to_string(),
            Value::Number(n) => n.to_string(),
            _ => String::new(),
        }
    }

    /// The stored label a client's spelling stands for (`spec.host` for `spec.nodeName`). A label is known if it is one
    /// of [`Strategy::field_labels`] or has an alias.
    fn field_alias<'l>(&self, label: &'l str) -> &'l str {
        label
    }
}

/// Stored as it comes: no rules beyond metadata.
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
    let kept = |key: &str| matches!(key, "metadata" | "status" | "kind" | "apiVersion");
    new.retain(|key, _| kept(key));
    new.extend(old.iter().filter(|(key, _)| !kept(key)).map(|(k, v)| (k.clone(), v.clone())));
}

/// Puts back the top-level structs that are always written, after one was taken out.
fn restore_always(resource: &Resource, obj: &mut Value) {
    if let Some(object) = obj.as_object_mut() {
        crate::schema::fill_always(resource.type_id(), object);
    }
}
