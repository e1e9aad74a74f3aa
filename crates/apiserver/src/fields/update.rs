//! Managed fields of writes other than apply.

use serde_json::{Map, Value};

use super::Writer;
use super::compare::Changes;
use super::entry::{self, Entry, Operation};
use super::scope;
use super::shape::Shape;
use crate::resources::{RESOURCES, Resource};
use crate::schema::{Ty, zero};

/// Records in `new.metadata.managedFields` what a write changed. See [`super::record_update`].
pub(super) fn record(writer: Writer<'_>, old: Option<&Value>, new: &mut Value) {
    let (entries, origin) = base_entries(writer, old, new);
    if entries.is_empty() && old.is_some() {
        // upstream: an object without managed fields stays without them until the first apply.
        return;
    }
    let changes = match old {
        Some(old) => changes_between(writer, old, new),
        None => changes_between(writer, &empty_object(writer.resource), new),
    };
    let list = match origin {
        Origin::Stored if changes.is_empty() => entries,
        _ => entry::to_list(transfer_ownership(writer, served_entries(writer.resource, entries), &changes)),
    };
    put_entries(new, list);
}

/// Returns an empty object of this kind.
pub(super) fn empty_object(resource: &Resource) -> Value {
    zero(&Ty::Struct(resource.type_id()))
}

/// Returns the changes of a write to this endpoint that the writer can own.
pub(super) fn changes_between(writer: Writer<'_>, old: &Value, new: &Value) -> Changes {
    let mut changes = Changes::between(Shape::root(writer.resource.type_id()), old, new);
    changes.ignore(scope::stripped_fields(), &scope::reset_fields(writer.resource, writer.subresource));
    changes
}

/// Adds the written fields to the writer's entry and removes them, and the removed fields, from all other entries.
pub(super) fn transfer_ownership(writer: Writer<'_>, mut entries: Vec<Entry>, changes: &Changes) -> Vec<Entry> {
    let owner = writer.owner(Operation::Update);
    let written = changes.written();
    for entry in entries.iter_mut().filter(|e| e.owner.api_version == owner.api_version) {
        entry.subtract(&changes.removed);
        if !entry.owner.is_same(&owner) {
            entry.subtract(&written);
        }
    }
    if !written.is_empty() {
        let time = writer.time();
        match entries.iter_mut().find(|e| e.owner.is_same(&owner)) {
            Some(own) => {
                own.union_with(&written);
                own.time = time;
            }
            None => entries.push(Entry::new(owner, &written, time)),
        }
    }
    entries.retain(|e| !e.is_empty());
    entry::cap_updates(&mut entries);
    entries
}

/// Returns the entries of served versions: that of the resource and, for Events, that of the other group.
pub(super) fn served_entries(resource: &Resource, stored: Vec<Value>) -> Vec<Entry> {
    let views = RESOURCES.iter().filter(|r| r.storage == resource.storage);
    let versions: Vec<String> = views.map(Resource::api_version).collect();
    let mut entries = entry::from_stored(stored);
    entries.retain(|e| versions.contains(&e.owner.api_version));
    entries
}

// === Base entries ===

/// Origin of the base entries.
#[derive(Debug, PartialEq)]
enum Origin {
    /// Stored entries, which are already sorted.
    Stored,
    /// Entries of the request.
    Request,
}

/// Removes the entries from `new` and returns them if they are valid, else those of the live object.
fn base_entries(writer: Writer<'_>, old: Option<&Value>, new: &mut Value) -> (Vec<Value>, Origin) {
    let live = old.and_then(stored_list);
    let sent = take_list(new);
    match sent {
        Some(sent) if Some(&sent) == live => (sent, Origin::Stored),
        // upstream: entries sent to a subresource are ignored.
        Some(sent) if writer.subresource.is_none() => match is_reset(&sent) {
            true => (Vec::new(), Origin::Request),
            false => client_entries(sent, live),
        },
        _ => (live.cloned().unwrap_or_default(), Origin::Stored),
    }
}

fn client_entries(sent: Vec<Value>, live: Option<&Vec<Value>>) -> (Vec<Value>, Origin) {
    match entry::parse(sent) {
        Ok(entries) if !entries.is_empty() => (entry::to_list(entries), Origin::Request),
        _ => (live.cloned().unwrap_or_default(), Origin::Stored),
    }
}

/// True for `[]` and `[{}]`, which clear all entries.
fn is_reset(sent: &[Value]) -> bool {
    match sent {
        [] => true,
        [one] => one.as_object().is_some_and(Map::is_empty),
        _ => false,
    }
}

/// Returns the entries of an object.
pub(super) fn stored_list(object: &Value) -> Option<&Vec<Value>> {
    object.get("metadata")?.get("managedFields")?.as_array()
}

/// Removes the entries from an object and returns them.
pub(super) fn take_list(object: &mut Value) -> Option<Vec<Value>> {
    match object.get_mut("metadata")?.as_object_mut()?.remove("managedFields")? {
        Value::Array(list) => Some(list),
        _ => None,
    }
}

/// Sets the entries of an object that has none.
pub(super) fn put_entries(object: &mut Value, list: Vec<Value>) {
    if let (false, Some(Value::Object(metadata))) = (list.is_empty(), object.get_mut("metadata")) {
        metadata.insert("managedFields".to_owned(), Value::Array(list));
    }
}
