//! Updates: everything that changes fields without applying them.

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
    let (entries, unchanged) = base_entries(writer, old, new);
    if entries.is_empty() && old.is_some() {
        // upstream: an object that nobody is known to own is left so until it is first applied to.
        return;
    }
    let changes = match old {
        Some(old) => changes_between(writer, old, new),
        None => changes_between(writer, &blank(writer.resource), new),
    };
    let list = match unchanged {
        Unchanged::Stored if changes.is_empty() => entries,
        _ => entry::to_list(take_over(writer, known_entries(writer.resource, entries), &changes)),
    };
    put_entries(new, list);
}

/// An object of this kind before anything is set.
pub(super) fn blank(resource: &Resource) -> Value {
    zero(&Ty::Struct(resource.type_id()))
}

/// What a write through this address changed, as far as it can own it.
pub(super) fn changes_between(writer: Writer<'_>, old: &Value, new: &Value) -> Changes {
    let mut changes = Changes::between(Shape::root(writer.resource.type_id()), old, new);
    changes.ignore(scope::server_set(), &scope::out_of_reach(writer.resource, writer.subresource));
    changes
}

/// Gives what was written to the writer and takes it, and what was removed, from everybody else.
pub(super) fn take_over(writer: Writer<'_>, mut entries: Vec<Entry>, changes: &Changes) -> Vec<Entry> {
    let owner = writer.owner(Operation::Update);
    let written = changes.written();
    for entry in entries.iter_mut().filter(|e| e.owner.api_version == owner.api_version) {
        entry.subtract(&changes.removed);
        if !entry.owner.is(&owner) {
            entry.subtract(&written);
        }
    }
    if !written.is_empty() {
        let time = writer.time();
        match entries.iter_mut().find(|e| e.owner.is(&owner)) {
            Some(own) => {
                own.unite(&written);
                own.time = time;
            }
            None => entries.push(Entry::new(owner, &written, time)),
        }
    }
    entries.retain(|e| !e.is_empty());
    entry::cap_updates(&mut entries);
    entries
}

/// The entries for versions in which objects are offered: the resource's own, and for events that of the other group.
pub(super) fn known_entries(resource: &Resource, stored: Vec<Value>) -> Vec<Entry> {
    let views = RESOURCES.iter().filter(|r| r.storage == resource.storage);
    let versions: Vec<String> = views.map(Resource::api_version).collect();
    let mut entries = entry::from_stored(stored);
    entries.retain(|e| versions.contains(&e.owner.api_version));
    entries
}

// === The entries to start from ===

/// Whether entries are those that are stored already, or still need to be put in order.
#[derive(Debug, PartialEq)]
enum Unchanged {
    Stored,
    No,
}

/// Takes the entries out of `new`: those the client sent if they make sense, else those of the live object.
fn base_entries(writer: Writer<'_>, old: Option<&Value>, new: &mut Value) -> (Vec<Value>, Unchanged) {
    let live = old.and_then(stored_list);
    let sent = take_list(new);
    match sent {
        Some(sent) if Some(&sent) == live => (sent, Unchanged::Stored),
        // upstream: entries sent to a subresource are not looked at.
        Some(sent) if writer.subresource.is_none() => match is_reset(&sent) {
            true => (Vec::new(), Unchanged::No),
            false => client_entries(sent, live),
        },
        _ => (live.cloned().unwrap_or_default(), Unchanged::Stored),
    }
}

fn client_entries(sent: Vec<Value>, live: Option<&Vec<Value>>) -> (Vec<Value>, Unchanged) {
    match entry::parse(sent) {
        Ok(entries) if !entries.is_empty() => (entry::to_list(entries), Unchanged::No),
        _ => (live.cloned().unwrap_or_default(), Unchanged::Stored),
    }
}

/// `[]` and `[{}]` ask for all entries to go.
fn is_reset(sent: &[Value]) -> bool {
    match sent {
        [] => true,
        [one] => one.as_object().is_some_and(Map::is_empty),
        _ => false,
    }
}

/// The entries of an object.
pub(super) fn stored_list(object: &Value) -> Option<&Vec<Value>> {
    object.get("metadata")?.get("managedFields")?.as_array()
}

/// Takes the entries out of an object.
pub(super) fn take_list(object: &mut Value) -> Option<Vec<Value>> {
    match object.get_mut("metadata")?.as_object_mut()?.remove("managedFields")? {
        Value::Array(list) => Some(list),
        _ => None,
    }
}

/// Puts entries into an object that has none.
pub(super) fn put_entries(object: &mut Value, list: Vec<Value>) {
    if let (false, Some(Value::Object(metadata))) = (list.is_empty(), object.get_mut("metadata")) {
        metadata.insert("managedFields".to_owned(), Value::Array(list));
    }
}
