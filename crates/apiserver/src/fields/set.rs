//! Sets of fields: the tree that `fieldsV1` spells out in JSON, and its algebra.
//!
//! ```text
//!  {"f:spec": {"f:ports": {".": {}, "k:{…}": {…}}, "f:type": {}}}
//!      │            │       └ ports itself is in the set      └ in the set, nothing below
//!      │            └ on the way
//!      └ on the way, not in the set
//! ```
//!
//! A parent and its children are in a set or out of it independently of each other; only
//! [`FieldSet::subtract_whole`] takes a parent's children along.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::element;

/// A set of fields below some point of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct FieldSet {
    nodes: BTreeMap<Box<str>, Node>,
}

/// One element of the tree: itself in the set or not, and what is in the set below it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) member: bool,
    pub(super) below: FieldSet,
}

impl Node {
    pub(super) fn is_empty(&self) -> bool {
        !self.member && self.below.is_empty()
    }
}

// === Building and asking ===

impl FieldSet {
    /// A set of fields, each given as names from the root.
    pub(super) fn of_names(paths: &[&[&str]]) -> FieldSet {
        let mut set = FieldSet::default();
        for path in paths {
            let Some((last, parents)) = path.split_last() else { continue };
            let parent = parents.iter().fold(&mut set, |at, name| &mut at.node(&element::of_name(name)).below);
            parent.node(&element::of_name(last)).member = true;
        }
        set
    }

    fn node(&mut self, element: &str) -> &mut Node {
        self.nodes.entry(element.into()).or_default()
    }

    /// Puts a node in, unless there is nothing in it.
    pub(super) fn attach(&mut self, element: impl FnOnce() -> String, node: Node) {
        if !node.is_empty() {
            self.nodes.insert(element().into(), node);
        }
    }

    /// There is nothing in the set. (Empty branches are never kept.)
    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    pub(super) fn get(&self, element: &str) -> Option<&Node> {
        self.nodes.get(element)
    }

    pub(super) fn nodes(&self) -> impl Iterator<Item = (&str, &Node)> {
        self.nodes.iter().map(|(element, node)| (element.as_ref(), node))
    }

    pub(super) fn nodes_mut(&mut self) -> impl Iterator<Item = (&str, &mut Node)> {
        self.nodes.iter_mut().map(|(element, node)| (element.as_ref(), node))
    }

    /// Every field in the set, as people read paths.
    pub(super) fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        self.collect_paths("", &mut paths);
        paths
    }

    fn collect_paths(&self, prefix: &str, into: &mut Vec<String>) {
        for (element, node) in self.nodes() {
            let path = format!("{prefix}{}", element::shown(element));
            if node.member {
                into.push(path.clone());
            }
            node.below.collect_paths(&path, into);
        }
    }
}

// === Algebra ===

impl FieldSet {
    /// Adds what is in `other`.
    pub(super) fn unite(&mut self, other: &FieldSet) {
        for (element, theirs) in &other.nodes {
            match self.nodes.get_mut(element) {
                Some(ours) => {
                    ours.member |= theirs.member;
                    ours.below.unite(&theirs.below);
                }
                None => {
                    self.nodes.insert(element.clone(), theirs.clone());
                }
            }
        }
    }

    /// Takes out what is in `other`, field by field: children stay when only their parent is in `other`.
    pub(super) fn subtract(&mut self, other: &FieldSet) {
        self.remove_nodes(other, |ours, theirs| {
            ours.member &= !theirs.member;
            ours.below.subtract(&theirs.below);
        });
    }

    /// Takes out what is in `other` and everything below it.
    pub(super) fn subtract_whole(&mut self, other: &FieldSet) {
        self.remove_nodes(other, |ours, theirs| match theirs.member {
            true => *ours = Node::default(),
            false => ours.below.subtract_whole(&theirs.below),
        });
    }

    fn remove_nodes(&mut self, other: &FieldSet, reduce: impl Fn(&mut Node, &Node)) {
        for (element, theirs) in &other.nodes {
            let Some(ours) = self.nodes.get_mut(element) else { continue };
            reduce(ours, theirs);
            if ours.is_empty() {
                self.nodes.remove(element);
            }
        }
    }

    /// What is in both.
    pub(super) fn intersection(&self, other: &FieldSet) -> FieldSet {
        let mut both = FieldSet::default();
        for (element, ours) in &self.nodes {
            let Some(theirs) = other.nodes.get(element) else { continue };
            let node = Node { member: ours.member && theirs.member, below: ours.below.intersection(&theirs.below) };
            both.attach(|| element.to_string(), node);
        }
        both
    }

    /// What is in this set but not in `other`; see [`FieldSet::subtract`].
    pub(super) fn without(&self, other: &FieldSet) -> FieldSet {
        let mut rest = self.clone();
        rest.subtract(other);
        rest
    }

    /// What is in either.
    pub(super) fn with(&self, other: &FieldSet) -> FieldSet {
        let mut all = self.clone();
        all.unite(other);
        all
    }
}

// === JSON ===

impl FieldSet {
    /// Reads `fieldsV1` that this server wrote itself.
    pub(super) fn from_stored(fields: &Value) -> FieldSet {
        let mut set = FieldSet::default();
        for (element, below) in fields.as_object().into_iter().flatten().filter(|(e, _)| *e != ".") {
            let node = Node { member: is_member(below), below: FieldSet::from_stored(below) };
            set.nodes.insert(element.as_str().into(), node);
        }
        set
    }

    /// Reads `fieldsV1` of a client: checks it and brings its elements into canonical form.
    pub(super) fn parse(fields: &Value) -> Result<FieldSet, String> {
        let mut set = FieldSet::default();
        let fields = match fields {
            Value::Object(fields) => fields,
            Value::Null => return Ok(set),
            other => return Err(format!("expected an object, got {other}")),
        };
        for (text, below) in fields.iter().filter(|(e, _)| *e != ".") {
            let Some(element) = element::canonical(text)? else { continue };
            let node = set.node(&element);
            node.below = FieldSet::parse(below)?;
            node.member |= node.below.is_empty() || is_member(below);
        }
        Ok(set)
    }

    /// Writes `fieldsV1`.
    pub(super) fn to_json(&self) -> Value {
        let mut fields = Map::new();
        for (element, node) in &self.nodes {
            let mut below = node.below.to_json();
            if let (true, false, Value::Object(inner)) = (node.member, node.below.is_empty(), &mut below) {
                inner.insert(".".to_owned(), Value::Object(Map::new()));
            }
            fields.insert(element.to_string(), below);
        }
        Value::Object(fields)
    }

    /// Whether any of this set is in `fieldsV1`. Spares reading the whole of it on every write.
    pub(super) fn touches(&self, fields: &Value) -> bool {
        self.nodes.iter().any(|(element, node)| {
            fields
                .get(element.as_ref())
                .is_some_and(|below| (node.member && is_member(below)) || node.below.touches(below))
        })
    }

    /// Whether all of this set is in `fieldsV1`.
    pub(super) fn is_within(&self, fields: &Value) -> bool {
        self.nodes.iter().all(|(element, node)| {
            fields
                .get(element.as_ref())
                .is_some_and(|below| (!node.member || is_member(below)) && node.below.is_within(below))
        })
    }
}

/// What stands under an element says whether the element is in the set: it says so, or nothing is below.
fn is_member(below: &Value) -> bool {
    below.as_object().is_none_or(|fields| fields.is_empty() || fields.contains_key("."))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    /// Small sets over few names, so that two of them overlap often.
    pub(in crate::fields) fn any_set() -> impl Strategy<Value = FieldSet> {
        let name = || prop_oneof![Just("a"), Just("b"), Just("c")];
        prop::collection::vec(prop::collection::vec(name(), 1..4), 0..6).prop_map(|paths| {
            let paths: Vec<&[&str]> = paths.iter().map(Vec::as_slice).collect();
            FieldSet::of_names(&paths)
        })
    }

    proptest! {
        #[test]
        fn printing_and_reading_gives_the_same_set(set in any_set()) {
            prop_assert_eq!(&FieldSet::from_stored(&set.to_json()), &set);
            prop_assert_eq!(&FieldSet::parse(&set.to_json()).unwrap(), &set);
        }

        #[test]
        fn the_laws_of_sets_hold(a in any_set(), b in any_set(), c in any_set()) {
            prop_assert_eq!(a.with(&b), b.with(&a));
            prop_assert_eq!(a.with(&b).with(&c), a.with(&b.with(&c)));
            prop_assert_eq!(a.with(&a), a.clone());
            prop_assert_eq!(a.intersection(&b), b.intersection(&a));
            prop_assert_eq!(a.intersection(&b.with(&c)), a.intersection(&b).with(&a.intersection(&c)));
            prop_assert_eq!(a.without(&b.with(&c)), a.without(&b).without(&c));
            prop_assert_eq!(a.without(&b).with(&a.intersection(&b)), a.clone());
            prop_assert!(a.without(&a).is_empty());
            prop_assert!(a.without(&b).intersection(&b).is_empty());
        }

        #[test]
        fn asking_the_json_is_asking_the_set(a in any_set(), b in any_set()) {
            prop_assert_eq!(a.touches(&b.to_json()), !a.intersection(&b).is_empty());
            prop_assert_eq!(a.is_within(&b.to_json()), a.without(&b).is_empty());
        }

        #[test]
        fn subtracting_whole_leaves_nothing_below(a in any_set(), b in any_set()) {
            let mut rest = a.clone();
            rest.subtract_whole(&b);
            prop_assert!(rest.intersection(&b).is_empty());
            prop_assert!(rest.without(&a).is_empty());
            for gone in b.paths() {
                let inside = format!("{gone}.");
                prop_assert!(!rest.paths().iter().any(|p| p.starts_with(&inside)));
            }
        }
    }

    #[test]
    fn a_dot_tells_a_member_with_children_from_a_mere_way() {
        let set = FieldSet::of_names(&[&["data"], &["data", "k"], &["spec", "type"]]);
        assert_eq!(set.to_json(), json!({"f:data": {".": {}, "f:k": {}}, "f:spec": {"f:type": {}}}));
        assert_eq!(set.paths(), [".data", ".data.k", ".spec.type"]);
    }

    #[test]
    fn a_parent_taken_out_leaves_its_children() {
        let mut set = FieldSet::of_names(&[&["data"], &["data", "k"]]);
        set.subtract(&FieldSet::of_names(&[&["data"]]));
        assert_eq!(set.to_json(), json!({"f:data": {"f:k": {}}}));
    }

    #[test]
    fn nonsense_of_clients_is_an_error_and_unknown_sorts_are_passed_over() {
        assert!(FieldSet::parse(&json!({"f:a": 5})).is_err());
        assert!(FieldSet::parse(&json!({"a": {}})).is_err());
        assert_eq!(FieldSet::parse(&json!({"x:a": {}, "f:b": {}})).unwrap(), FieldSet::of_names(&[&["b"]]));
    }
}
