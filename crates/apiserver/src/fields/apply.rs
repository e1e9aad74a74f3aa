//! Server-side apply.
//!
//! ```text
//!  live ──┐
//!         ├─► merge ─► prune ─► compare with live ─► conflicts? ─► new object + owners
//!  config ┘              ▲            │
//!        fields this manager applied  └─ changed fields of other managers
//!        earlier and no other owns
//! ```

use serde_json::Value;

use super::conflict::{self, Conflict};
use super::entry::{self, Entry, Operation, Owner};
use super::set::FieldSet;
use super::shape::Shape;
use super::{Writer, compare, extract, last_applied, merge, scope, update, validate};
use crate::patch;
use crate::schema::{self, TypeId};
use crate::status::{ApiError, ApiResult};

/// Owner of the fields of an object without managed fields, at its first apply.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// See [`super::apply`].
pub(super) fn apply(writer: Writer<'_>, live: Option<&Value>, config: &Value, force: bool) -> ApiResult<Value> {
    let request = Request::new(writer, live, config)?;
    let outcome = request.try_apply(force).or_else(|conflicts| request.resolve_kubectl_conflicts(conflicts));
    let Outcome { object, entries } = outcome.map_err(conflict::error)?;
    let mut object = request.decode(object)?;
    update::put_entries(&mut object, entry::to_list(entries));
    if writer.manager == last_applied::MANAGER {
        last_applied::refresh(&mut object, config);
    }
    Ok(object)
}

/// One apply request.
struct Request<'a> {
    writer: Writer<'a>,
    shape: Shape,
    /// Live object without managed fields.
    live: Value,
    config: &'a Value,
    /// Current owners.
    entries: Vec<Entry>,
}

/// Result of an apply without conflicts.
struct Outcome {
    object: Value,
    entries: Vec<Entry>,
}

impl<'a> Request<'a> {
    fn new(writer: Writer<'a>, live: Option<&Value>, config: &'a Value) -> ApiResult<Self> {
        let resource = writer.resource;
        check(&resource.api_version(), resource.kind, resource.type_id(), config)?;
        let shape = Shape::root(resource.type_id());
        let mut live = live.cloned().unwrap_or_else(|| update::empty_object(writer.resource));
        let stored = update::take_list(&mut live).unwrap_or_default();
        let entries = match stored.is_empty() {
            true => first_entries(writer, &live),
            false => update::served_entries(writer.resource, stored),
        };
        Ok(Request { writer, shape, live, config, entries })
    }

    fn try_apply(&self, force: bool) -> Result<Outcome, Vec<Conflict>> {
        let owner = self.writer.owner(Operation::Apply);
        let (own, mut others): (Vec<Entry>, Vec<Entry>) =
            self.entries.iter().cloned().partition(|e| e.owner.is_same(&owner));
        let applied = self.applied_fields();
        let merged = merge::merge(self.shape, Some(&self.live), Some(self.config)).unwrap_or_default();
        let object = match own.first() {
            Some(previous) if !previous.is_empty() => self.prune(&merged, &previous.set(), &applied, &others),
            _ => merged,
        };
        let changes = update::changes_between(self.writer, &self.live, &object);
        let written = changes.written();
        let conflicts = conflicts_with(&others, &owner, &written);
        if !force && !conflicts.is_empty() {
            return Err(conflicts);
        }
        for other in others.iter_mut().filter(|e| e.owner.api_version == owner.api_version) {
            other.subtract(&written);
            other.subtract(&changes.removed);
        }
        // upstream: the time is that of the last apply that changed the object.
        let time = match compare::same(&self.live, &object) {
            true => own.into_iter().next().and_then(|e| e.time),
            false => self.writer.time(),
        };
        others.push(Entry::new(owner, &applied.difference(scope::stripped_fields()), time));
        others.retain(|e| !e.is_empty());
        Ok(Outcome { object, entries: others })
    }

    /// Returns the fields of the request that this endpoint can set.
    fn applied_fields(&self) -> FieldSet {
        let mut fields = extract::fields_of(self.shape, self.config);
        fields.subtract_recursive(&scope::reset_fields(self.writer.resource, self.writer.subresource));
        fields
    }

    /// Removes fields that this manager applied earlier, no longer applies, and no other manager owns.
    ///
    /// A field is removed with its descendants only if all of them can be removed. The earlier fields are removed first, then
    /// owned fields are restored, and finally only fields that this manager owned are pruned.
    fn prune(&self, merged: &Value, previous: &FieldSet, applied: &FieldSet, others: &[Entry]) -> Value {
        let with_parents = |set: &FieldSet| extract::with_parents(Some(self.shape), set);
        let fields = |value: &Value| with_parents(&extract::fields_of(self.shape, value));
        let previous = with_parents(previous);
        let all = fields(merged);
        let mut owned = applied.clone();
        for other in others {
            owned.union_with(&other.set());
        }
        let bare = extract::remove_fields(self.shape, merged, &previous);
        let unowned = all.difference(&fields(&bare).union(&with_parents(&owned)));
        let kept = extract::remove_fields(self.shape, merged, &unowned);
        let pruned = all.difference(&fields(&kept)).intersection(&previous);
        extract::remove_fields(self.shape, merged, &pruned)
    }

    /// Applies despite conflicts about fields that `kubectl` set by client-side apply.
    fn resolve_kubectl_conflicts(&self, mut conflicts: Vec<Conflict>) -> Result<Outcome, Vec<Conflict>> {
        if self.writer.manager != last_applied::MANAGER {
            return Err(conflicts);
        }
        let Some(allowed) = last_applied::kubectl_fields(self.writer.resource, &self.live) else {
            return Err(conflicts);
        };
        for conflict in &mut conflicts {
            conflict.fields.subtract(&allowed);
        }
        conflicts.retain(|c| !c.fields.is_empty());
        if conflicts.is_empty() { self.try_apply(true) } else { Err(conflicts) }
    }

    /// Decodes the object to its canonical form.
    fn decode(&self, mut object: Value) -> ApiResult<Value> {
        let ty = self.writer.resource.type_id();
        patch::normalize_whole_floats(&mut object);
        schema::decode(ty, &object).map(|decoded| decoded.value).map_err(|error| {
            let why = patch::conversion_error(ty, &object, &error);
            let (identity, kind) = (identity(self.config), kind_text(self.config));
            ApiError::plain(format!(
                "failed to convert new object ({identity}) to proper version: \
                 unable to convert unstructured object to {kind}: {why}"
            ))
        })
    }
}

/// Assigns all fields of an object without managed fields to [`BEFORE_FIRST_APPLY`].
fn first_entries(writer: Writer<'_>, live: &Value) -> Vec<Entry> {
    let earlier = Writer { manager: BEFORE_FIRST_APPLY, ..writer };
    let changes = update::changes_between(earlier, &update::empty_object(writer.resource), live);
    update::transfer_ownership(earlier, Vec::new(), &changes)
}

fn conflicts_with(others: &[Entry], owner: &Owner, written: &FieldSet) -> Vec<Conflict> {
    let same_version = others.iter().filter(|e| e.owner.api_version == owner.api_version);
    let conflict = |e: &Entry| Conflict { owner: e.owner.clone(), fields: e.set().intersection(written) };
    same_version.map(conflict).filter(|c| !c.fields.is_empty()).collect()
}

/// See [`super::check_applied`].
pub(super) fn check(api_version: &str, kind: &str, ty: TypeId, config: &Value) -> ApiResult<()> {
    if text(config, "kind") != kind || text(config, "apiVersion") != api_version {
        return Err(ApiError::bad_request(format!("invalid object type: {}", kind_text(config))));
    }
    if config.get("metadata").and_then(|m| m.get("managedFields")).is_some_and(Value::is_array) {
        return Err(ApiError::bad_request("metadata.managedFields must be nil"));
    }
    validate::validate(Shape::root(ty), config)
        .map_err(|why| ApiError::plain(format!("failed to create typed patch object ({}): {why}", identity(config))))
}

fn text<'v>(object: &'v Value, key: &str) -> &'v str {
    object.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Formats an object as `namespace/name; group/version, Kind=K`.
fn identity(object: &Value) -> String {
    let metadata = object.get("metadata").unwrap_or(&Value::Null);
    format!("{}/{}; {}", text(metadata, "namespace"), text(metadata, "name"), kind_text(object))
}

/// Formats a kind as `apps/v1, Kind=Deployment`. The core group is empty.
fn kind_text(object: &Value) -> String {
    let kind = text(object, "kind");
    match text(object, "apiVersion").split('/').collect::<Vec<_>>().as_slice() {
        [version] => format!("/{version}, Kind={kind}"),
        [group, version] => format!("{group}/{version}, Kind={kind}"),
        // upstream: an invalid version drops the kind, too.
        _ => "/, Kind=".to_owned(),
    }
}
