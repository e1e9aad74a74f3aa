//! Ancestors of objects in the inventory.

use std::collections::HashMap;

use super::datacenters::decoded;
use crate::soap::ManagedObject;
use crate::soap::properties::{ObjectContent, PropertySet};

/// Properties of every object in the tree.
pub(super) const ANCESTORS: PropertySet<'_> = PropertySet { kind: "ManagedEntity", paths: &["name", "parent"] };

/// Maximum depth of the inventory. A folder cannot be its own ancestor, but no loop must depend on that.
const MAX_DEPTH: usize = 100;

/// Names and parents of objects that were read. The root of the inventory has no parent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tree(HashMap<ManagedObject, Entry>);

/// Name and parent of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    name: String,
    parent: Option<ManagedObject>,
}

impl Entry {
    pub(super) fn of(content: &ObjectContent) -> (ManagedObject, Entry) {
        let parent = content.reference("parent").or_else(|| content.reference("parentVApp"));
        (content.object.clone(), Entry { name: decoded(content.text("name")), parent })
    }
}

impl Extend<(ManagedObject, Entry)> for Tree {
    fn extend<T: IntoIterator<Item = (ManagedObject, Entry)>>(&mut self, entries: T) {
        self.0.extend(entries);
    }
}

impl Tree {
    /// Returns whether an object could be read. One without permission has no name.
    pub(crate) fn has(&self, object: &ManagedObject) -> bool {
        self.0.get(object).is_some_and(|entry| !entry.name.is_empty())
    }

    /// Returns an object and its ancestors, the nearest first. Ends at the first one that could not be read.
    pub(crate) fn chain<'a>(&'a self, object: &'a ManagedObject) -> impl Iterator<Item = &'a ManagedObject> {
        let parent = |object: &&'a ManagedObject| self.0.get(*object).and_then(|entry| entry.parent.as_ref());
        std::iter::successors(Some(object), parent).take(MAX_DEPTH)
    }

    /// Returns the inventory path of an object, without the root.
    pub(super) fn path(&self, object: &ManagedObject) -> String {
        let entries = self.chain(object).filter_map(|object| self.0.get(object));
        let mut names: Vec<_> =
            entries.filter(|entry| entry.parent.is_some()).map(|entry| entry.name.as_str()).collect();
        names.push("");
        names.reverse();
        names.join("/")
    }

    /// Returns all objects of a type.
    pub(super) fn of_kind(&self, kind: &str) -> impl Iterator<Item = &ManagedObject> {
        self.0.keys().filter(move |object| object.kind == kind)
    }
}

#[cfg(test)]
impl Tree {
    /// Creates a tree from objects with their parents, both as `Type:id`.
    pub(crate) fn of(parents: &[(&str, &str)]) -> Tree {
        let object = |text: &str| text.split_once(':').map(|(kind, id)| ManagedObject::new(kind, id));
        let entries = parents.iter().filter_map(|(child, parent)| {
            Some((object(child)?, Entry { name: (*child).to_owned(), parent: object(parent) }))
        });
        Tree(entries.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_ends_at_the_root_or_at_the_first_unknown_object() {
        let tree =
            Tree::of(&[("VirtualMachine:vm-1", "Folder:f-1"), ("Folder:f-1", "Folder:root"), ("Folder:root", "")]);
        let ids = |id: &str| {
            let object = ManagedObject::new("VirtualMachine", id);
            tree.chain(&object).map(|object| object.id.clone()).collect::<Vec<_>>()
        };
        assert_eq!(ids("vm-1"), ["vm-1", "f-1", "root"]);
        assert_eq!(ids("vm-2"), ["vm-2"]);
    }

    #[test]
    fn a_loop_ends() {
        let tree = Tree::of(&[("Folder:a", "Folder:b"), ("Folder:b", "Folder:a")]);
        assert_eq!(tree.chain(&ManagedObject::new("Folder", "a")).count(), MAX_DEPTH);
    }
}
