//! Managed objects: properties in their wire format, parents and children, and the search index.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;
use std::net::IpAddr;

use bowline_simulator::{Fields, Record, Records};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::schema::is_a;

/// Kinds of managed objects, and the prefixes of their IDs.
const KINDS: [(&str, &str); 7] = [
    ("Folder", "group-v"),
    ("Datacenter", "datacenter-"),
    ("ClusterComputeResource", "domain-c"),
    ("HostSystem", "host-"),
    ("ResourcePool", "resgroup-"),
    ("VirtualApp", "resgroup-v"),
    ("VirtualMachine", "vm-"),
];

/// Properties that refer to children, which views show.
const CHILDREN: [&str; 8] =
    ["childEntity", "vmFolder", "hostFolder", "datastoreFolder", "networkFolder", "host", "resourcePool", "vm"];

/// Maximum depth of the inventory.
const MAX_DEPTH: usize = 64;

/// Reference to a managed object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reference {
    /// Type, such as `VirtualMachine`.
    pub kind: String,
    /// ID, such as `vm-42`.
    pub id: String,
}

impl Reference {
    /// Creates a reference.
    pub fn new(kind: &str, id: &str) -> Reference {
        Reference { kind: kind.to_owned(), id: id.to_owned() }
    }

    /// Parses the form `TYPE:ID`.
    pub(super) fn parse(text: &str) -> Option<Reference> {
        text.split_once(':').map(|(kind, id)| Reference::new(kind, id))
    }

    /// All references in a property: one, or a list.
    pub(super) fn all_in(value: &Value) -> Vec<Reference> {
        let one = std::slice::from_ref(value);
        let items = value.as_array().map_or(one, Vec::as_slice).iter();
        items.filter_map(Value::as_str).filter_map(Reference::parse).collect()
    }

    pub(super) fn to_value(&self) -> Value {
        Value::String(self.to_string())
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind, self.id)
    }
}

/// What the user can do with an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Access {
    /// The user can read it.
    #[default]
    Full,
    /// The user can find it, but not read its properties (no `System.Read`).
    NoRead,
    /// The user can neither find nor read it (no `System.View`).
    NoView,
}

/// Criterion of a search.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Key {
    Uuid(String),
    InstanceUuid(String),
    HostName(String),
    Address(IpAddr),
}

/// All managed objects of a vCenter.
#[derive(Default)]
pub(super) struct Inventory {
    pub(super) records: Records<&'static str>,
    /// Objects on which the user lacks a privilege.
    denied: BTreeMap<String, Access>,
    /// Keys of each machine in the search index.
    keys: BTreeMap<String, Vec<Key>>,
    index: HashMap<Key, BTreeSet<String>>,
    last: u64,
}

// ---- objects

impl Inventory {
    /// Adds an object. The ID is chosen unless it is given.
    pub(super) fn add(&mut self, kind: &str, id: Option<&str>, parent: Option<&Reference>, name: &str) -> Reference {
        let (kind, prefix) = KINDS.into_iter().find(|(known, _)| *known == kind).unwrap_or(("Folder", "group-v"));
        self.last += 1;
        let reference = Reference::new(kind, &id.map_or_else(|| format!("{prefix}{}", self.last), str::to_owned));
        let mut record = Record::new();
        record.set("id", reference.id.as_str());
        record.set("name", escape_name(name));
        record.set("overallStatus", "green");
        record.set("configStatus", "green");
        record.set("value", json!([]));
        if let Some(parent) = parent {
            record.set("parent", parent.to_value());
        }
        self.records.of_mut(kind).insert("", record);
        if let Some(parent) = parent {
            self.attach(parent, &reference);
        }
        reference
    }

    pub(super) fn get(&self, reference: &Reference) -> Option<&Record> {
        self.records.get(known(&reference.kind)?, &reference.id)
    }

    pub(super) fn get_mut(&mut self, reference: &Reference) -> Option<&mut Record> {
        self.records.get_mut(known(&reference.kind)?, &reference.id)
    }

    /// Sets properties of an object.
    pub(super) fn set(&mut self, reference: &Reference, properties: Record) {
        if let Some(record) = self.get_mut(reference) {
            record.extend(properties);
        }
    }

    /// First object of a kind with this name or ID.
    pub(super) fn find(&self, kind: &str, name: &str) -> Option<Reference> {
        let rows = self.records.of(known(kind)?).oldest_first();
        let (mut records, escaped) = (rows.into_iter().map(|row| &row.record), escape_name(name));
        let found = records.find(|record| record.text("id") == name || record.text("name") == escaped)?;
        Some(Reference::new(kind, found.text("id")))
    }

    /// References in a property of an object.
    pub(super) fn references(&self, of: &Reference, property: &str) -> Vec<Reference> {
        let value = self.get(of).and_then(|record| record.get(property));
        value.map(Reference::all_in).unwrap_or_default()
    }

    /// Object above this one. That of a machine in a vApp is the vApp.
    pub(super) fn parent(&self, of: &Reference) -> Option<Reference> {
        let up = |property| self.references(of, property).into_iter().next();
        up("parent").or_else(|| up("parentVApp"))
    }

    /// Nearest object of this kind at or above an object.
    pub(super) fn ancestor(&self, of: &Reference, kind: &str) -> Option<Reference> {
        self.chain(of).find(|object| is_a(&object.kind, kind))
    }

    /// An object and those above it.
    fn chain(&self, of: &Reference) -> impl Iterator<Item = Reference> {
        std::iter::successors(Some(of.clone()), |object| self.parent(object)).take(MAX_DEPTH)
    }

    /// What the user can do with an object. Permissions are inherited.
    pub(super) fn access(&self, object: &Reference) -> Access {
        if self.denied.is_empty() {
            return Access::Full;
        }
        self.chain(object).find_map(|object| self.denied.get(&object.id).copied()).unwrap_or_default()
    }

    pub(super) fn set_access(&mut self, object: &Reference, access: Access) {
        match access {
            Access::Full => self.denied.remove(&object.id),
            denied => self.denied.insert(object.id.clone(), denied),
        };
    }

    /// Removes an object that has no children.
    pub(super) fn remove(&mut self, reference: &Reference) -> Option<Record> {
        if let Some(parent) = self.parent(reference) {
            self.detach(&parent, reference);
        }
        self.index(&reference.id, Vec::new());
        self.records.of_mut(known(&reference.kind)?).remove(&reference.id)
    }

    /// Adds an object to the children of another one.
    pub(super) fn attach(&mut self, parent: &Reference, child: &Reference) {
        let (property, is_list) = child_property(parent, child);
        let Some(record) = self.get_mut(parent) else { return };
        match record.get_mut(property).and_then(Value::as_array_mut) {
            Some(list) => list.push(child.to_value()),
            None if is_list => record.set(property, json!([child.to_value()])),
            None => record.set(property, child.to_value()),
        }
    }

    /// Removes an object from the children of another one.
    pub(super) fn detach(&mut self, parent: &Reference, child: &Reference) {
        let (property, _) = child_property(parent, child);
        let (list, child) = (self.get_mut(parent).and_then(|record| record.get_mut(property)), child.to_value());
        list.and_then(Value::as_array_mut).into_iter().for_each(|list| list.retain(|item| *item != child));
    }

    /// Objects below a container that have one of these types; all if there are none.
    pub(super) fn below(&self, container: &Reference, kinds: &[String], recursive: bool) -> Vec<Reference> {
        let (mut found, mut seen, mut next) = (Vec::new(), HashSet::new(), self.children(container));
        while !next.is_empty() {
            next.retain(|child| seen.insert(child.id.clone()));
            let wanted = |child: &&Reference| kinds.is_empty() || kinds.iter().any(|kind| is_a(&child.kind, kind));
            found.extend(next.iter().filter(wanted).cloned());
            next = if recursive { next.iter().flat_map(|child| self.children(child)).collect() } else { Vec::new() };
        }
        found
    }

    /// Children that the user can find.
    fn children(&self, of: &Reference) -> Vec<Reference> {
        if of.kind == "VirtualMachine" {
            return Vec::new();
        }
        let children = CHILDREN.into_iter().flat_map(|property| self.references(of, property));
        children.filter(|child| self.access(child) != Access::NoView).collect()
    }
}

// ---- search

impl Inventory {
    /// Replaces the keys of a machine in the search index.
    pub(super) fn index(&mut self, id: &str, keys: Vec<Key>) {
        for key in self.keys.remove(id).unwrap_or_default() {
            if let Some(ids) = self.index.get_mut(&key) {
                ids.remove(id);
            }
        }
        for key in &keys {
            self.index.entry(key.clone()).or_default().insert(id.to_owned());
        }
        self.keys.insert(id.to_owned(), keys);
    }

    /// Machines with this key below a datacenter; in all of them if it is `None`.
    pub(super) fn search(&self, key: &Key, datacenter: Option<&Reference>) -> Vec<Reference> {
        let ids = self.index.get(key).into_iter().flatten();
        let found = ids.map(|id| Reference::new("VirtualMachine", id));
        let found = found.filter(|machine| self.get(machine).is_some() && self.access(machine) != Access::NoView);
        let is_below = |machine: &Reference| self.ancestor(machine, "Datacenter").as_ref() == datacenter;
        found.filter(|machine| datacenter.is_none() || is_below(machine)).collect()
    }
}

/// Name as vCenter returns it.
pub(super) fn escape_name(name: &str) -> String {
    name.replace('%', "%25").replace('/', "%2f").replace('\\', "%5c")
}

/// Kind with this name.
fn known(kind: &str) -> Option<&'static str> {
    KINDS.into_iter().map(|(known, _)| known).find(|known| *known == kind)
}

/// Property of the parent that refers to the child, and whether it is a list.
fn child_property(parent: &Reference, child: &Reference) -> (&'static str, bool) {
    match (parent.kind.as_str(), child.kind.as_str()) {
        ("Folder" | "Datacenter", _) => ("childEntity", true),
        (_, "HostSystem") => ("host", true),
        (_, "VirtualMachine") => ("vm", true),
        ("ClusterComputeResource", _) => ("resourcePool", false),
        _ => ("resourcePool", true),
    }
}
