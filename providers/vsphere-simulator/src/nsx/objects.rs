//! Objects: read, create, change and delete.

use std::time::Duration;

use bowline_simulator::{Call, Fields, Record, Reply};
use serde_json::{Value, json};

use super::address::{Address, kinds};
use super::rules;
use super::schema::{Schema, is_empty};
use super::simulator::State;
use super::wire::{Outcome, check_parameters, error, flag, invalid_path, not_found, require, sent};

impl State {
    /// All objects, as they are stored.
    pub(crate) fn objects(&self) -> impl Iterator<Item = &Record> {
        kinds().flat_map(|kind| self.records.of(kind).iter()).map(|row| &row.record)
    }

    /// Stores an object, and starts to index and to realize it. Empty values are left out.
    fn store(&mut self, address: &Address, record: Record) {
        let shown = self.insert(address, record);
        self.indexing.begin((address.path(), Some(shown)), self.options.index_lag);
        self.begin_realization(address.path());
    }

    /// Stores an object, and returns it as responses show it.
    pub(crate) fn insert(&mut self, address: &Address, mut record: Record) -> Record {
        record.retain(|_, value| !is_empty(Some(value)));
        record.set("id", address.path());
        let shown = view(&record);
        self.records.of_mut(address.kind).insert(address.owner(), record);
        shown
    }

    /// Removes an object, and starts to purge it.
    pub(crate) fn discard(&mut self, address: &Address) -> Option<Record> {
        let path = address.path();
        let mut record = self.records.of_mut(address.kind).remove(&path)?;
        self.release(&path);
        record.set("marked_for_delete", true);
        self.indexing.begin((path.clone(), Some(view(&record))), self.options.index_lag);
        self.records.of_mut("purging").insert("", record.clone());
        self.purges.begin(path, self.options.purge);
        Some(record)
    }

    /// Adds the fields of the server to an object that a client sent. `old` is the object before the change.
    pub(crate) fn describe(
        &mut self,
        address: &Address,
        mut record: Record,
        old: Option<&Record>,
        user: &str,
    ) -> Record {
        let now = self.clock.date_in(Duration::ZERO).as_millisecond();
        let (id, root) = (address.id.as_deref().unwrap_or_default(), address.root.as_str());
        let parent = address.parent.as_deref().or(root.strip_suffix("/infra")).filter(|parent| !parent.is_empty());
        let mut identity = |field: &str| old.map_or_else(|| self.ids.uuid(), |old| old.text(field).to_owned());
        let fields = json!({
            "path": address.path(),
            "relative_path": id,
            "parent_path": parent.unwrap_or(root),
            "unique_id": identity("unique_id"),
            "realization_id": identity("realization_id"),
            "owner_id": identity("owner_id"),
            "remote_path": "",
            "marked_for_delete": false,
            "overridden": false,
            "_system_owned": false,
            "_protection": "NOT_PROTECTED",
            "_create_time": old.map_or(json!(now), |old| old["_create_time"].clone()),
            "_create_user": old.map_or(user, |old| old.text("_create_user")),
            "_last_modified_time": now,
            "_last_modified_user": user,
            "_revision": old.map_or(0, |old| revision(old) + 1),
        });
        record.entry("display_name").or_insert_with(|| json!(id));
        record.extend(fields.as_object().cloned().unwrap_or_default());
        record
    }
}

/// An object as responses show it.
pub(crate) fn view(record: &Record) -> Record {
    let mut view = record.clone();
    view.set("id", record.text("relative_path"));
    view
}

fn revision(record: &Record) -> u64 {
    record.get("_revision").and_then(Value::as_u64).unwrap_or_default()
}

pub(crate) fn get(state: &State, call: &Call, address: &Address) -> Outcome {
    check_parameters(call, &[])?;
    let record = state.records.get(address.kind, &address.path()).ok_or_else(|| not_found(&address.path()))?;
    Ok(Reply::json(200, view(record).into()))
}

/// Creates an object, or replaces the one with the same revision.
pub(crate) fn put(state: &mut State, call: &Call, address: &Address, user: &str) -> Outcome {
    check_parameters(call, &[])?;
    let body = sent(call)?;
    let old = state.records.get(address.kind, &address.path()).cloned();
    if let Some(old) = &old {
        check_revision(state, &body, old)?;
    }
    write(state, address, body, old.as_ref(), user)?;
    get(state, call, address)
}

/// Creates an object, or changes it, any revision of it if the request has none. The request replaces all fields of a load balancer's
/// object, and in a static route only those that it has.
pub(crate) fn patch(state: &mut State, call: &Call, address: &Address, user: &str) -> Outcome {
    check_parameters(call, &[])?;
    let body = sent(call)?;
    let old = state.records.get(address.kind, &address.path()).cloned();
    if let Some(old) = old.as_ref().filter(|_| body.contains_key("_revision")) {
        check_revision(state, &body, old)?;
    }
    let mut merged = old.clone().filter(|_| address.kind == "static-routes").unwrap_or_default();
    merged.extend(body);
    write(state, address, merged, old.as_ref(), user)?;
    Ok(Reply::empty(200))
}

fn check_revision(state: &State, body: &Record, old: &Record) -> Result<(), Reply> {
    if body.get("_revision") == old.get("_revision") {
        return Ok(());
    }
    let message = format!("The object {} was changed by another client. Read it again and retry.", old.text("id"));
    let (status, code) = state.options.stale_error;
    Err(error(status, code, message))
}

/// Validates and stores an object. An allocation never changes: a write to an existing one has no effect.
fn write(
    state: &mut State,
    address: &Address,
    mut record: Record,
    old: Option<&Record>,
    user: &str,
) -> Result<(), Reply> {
    let path = address.path();
    if state.records.get("purging", &path).is_some() {
        return Err(error(400, 500_045, format!("The object path=[{path}] is marked for deletion")));
    }
    let schema = Schema::of(address.kind);
    let schema =
        schema.ok_or_else(|| error(403, 289, format!("Only the fixture of a test writes {}", address.kind)))?;
    check_id(address, &record)?;
    Schema::strip(&mut record);
    schema.check(&record)?;
    rules::check_paths(state, address, &record)?;
    rules::check_gateway(state, address, &record)?;
    if address.kind == "ip-allocations" && old.is_some() {
        return Ok(());
    }
    record.retain(|_, value| !is_empty(Some(value)));
    schema.complete(&mut record);
    let record = state.describe(address, record, old, user);
    state.store(address, record);
    Ok(())
}

/// Rejects a body with the ID of another object.
fn check_id(address: &Address, record: &Record) -> Result<(), Reply> {
    let is_other = |id: &&str| !id.is_empty() && Some(*id) != address.id.as_deref() && *id != address.path();
    let other = Some(record.text("id")).filter(is_other);
    require(other.is_none(), format!("property id is not the one of {}", address.path()))
}

pub(crate) fn delete(state: &mut State, call: &Call, address: &Address) -> Outcome {
    let is_forced = match address.kind {
        "ip-allocations" | "static-routes" => check_parameters(call, &[]).map(|()| false)?,
        _ => check_parameters(call, &["force"]).and_then(|()| flag(call, "force"))?,
    };
    let path = address.path();
    if let Some(parent) = address.parent.as_ref().filter(|parent| !rules::exists(state, parent)) {
        return Err(invalid_path(parent));
    }
    if state.vanishing.remove(&path) {
        state.discard(address);
    }
    if state.records.get(address.kind, &path).is_none() {
        return Err(not_found(&path));
    }
    if !is_forced {
        rules::check_unused(state, &path)?;
    }
    state.discard(address);
    Ok(Reply::empty(200))
}
