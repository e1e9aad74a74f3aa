//! Field sets: the tree that `fieldsV1` encodes as JSON, with set operations.
//!
//! ```text
//!  {"f:spec": {"f:ports": {".": {}, "k:{…}": {…}}, "f:type": {}}}
//!      │            │       └ ports itself is a member        └ a member without children
//!      │            └ path element
//!      └ path element, not a member
//! ```
//!
//! A parent and its children are members independently of each other. Only [`FieldSet::subtract_recursive`] removes the children
//! together with their parent.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::element;

/// A set of fields, relative to the object or a field of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct FieldSet {
    nodes: BTreeMap<Box<str>, Node>,
}

/// One element of the tree: whether it is a member, and its children.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) member: bool,
    pub(super) children: FieldSet,
}

impl Node {
    pub(super) fn is_empty(&self) -> bool {
        !self.member && self.children.is_empty()
    }
}

// === Construction and access ===

impl FieldSet {
    /// Creates a set from paths of field names.
    pub(super) fn of_names(paths: &[&[&str]]) -> FieldSet {
        let mut set = FieldSet::default();
        for path in paths {
            let Some((last, parents)) = path.split_last() else { continue };
            let parent = parents.iter().fold(&mut set, |at, name| &mut at.node(&element::of_name(name)).children);
            parent.node(&element::of_name(last)).member = true;
        }
        set
    }

    fn node(&mut self, element: &str) -> &mut Node {
        self.nodes.entry(element.into()).or_default()
    }

    /// Inserts a node, unless it is empty.
    pub(super) fn attach(&mut self, element: impl FnOnce() -> String, node: Node) {
        if !node.is_empty() {
            self.nodes.insert(element().into(), node);
        }
    }

    /// True if the set has no members. Empty branches are never stored.
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

    /// Returns the paths of all members in human-readable form.
    pub(super) fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        self.collect_paths("", &mut paths);
        paths
    }

    fn collect_paths(&self, prefix: &str, into: &mut Vec<String>) {
        for (element, node) in self.nodes() {
            let path = format!("{prefix}{}", element::format_element(element));
            if node.member {
                into.push(path.clone());
            }
            node.children.collect_paths(&path, into);
        }
    }
}

// === Set operations ===

impl FieldSet {
    /// Adds the members of `other`.
    pub(super) fn union_with(&mut self, other: &FieldSet) {
        for (element, other_node) in &other.nodes {
            match self.nodes.get_mut(element) {
                Some(node) => {
                    node.member |= other_node.member;
                    node.children.union_with(&other_node.children);
                }
                None => {
                    self.nodes.insert(element.clone(), other_node.clone());
                }
            }
        }
    }

    /// Removes the members of `other`. Children stay if only their parent is in `other`.
    pub(super) fn subtract(&mut self, other: &FieldSet) {
        self.remove_nodes(other, |node, other_node| {
            node.member &= !other_node.member;
            node.children.subtract(&other_node.children);
        });
    }

    /// Removes the members of `other` and all their descendants.
    pub(super) fn subtract_recursive(&mut self, other: &FieldSet) {
        self.remove_nodes(other, |node, other_node| match other_node.member {
            true => *node = Node::default(),
            false => node.children.subtract_recursive(&other_node.children),
        });
    }

    fn remove_nodes(&mut self, other: &FieldSet, reduce: impl Fn(&mut Node, &Node)) {
        for (element, other_node) in &other.nodes {
            let Some(node) = self.nodes.get_mut(element) else { continue };
            reduce(node, other_node);
            if node.is_empty() {
                self.nodes.remove(element);
            }
        }
    }

    /// Returns the members of both sets.
    pub(super) fn intersection(&self, other: &FieldSet) -> FieldSet {
        let mut both = FieldSet::default();
        for (element, node) in &self.nodes {
            let Some(other_node) = other.nodes.get(element) else { continue };
            let node = Node {
                member: node.member && other_node.member,
                children: node.children.intersection(&other_node.children),
            };
            both.attach(|| element.to_string(), node);
        }
        both
    }

    /// Returns this set without the members of `other`; see [`FieldSet::subtract`].
    pub(super) fn difference(&self, other: &FieldSet) -> FieldSet {
        let mut rest = self.clone();
        rest.subtract(other);
        rest
    }

    /// Returns the members of either set.
    pub(super) fn union(&self, other: &FieldSet) -> FieldSet {
        let mut all = self.clone();
        all.union_with(other);
        all
    }
}

// === JSON ===

impl FieldSet {
    /// Reads `fieldsV1` that this server wrote.
    pub(super) fn from_stored(fields: &Value) -> FieldSet {
        let mut set = FieldSet::default();
        for (element, children) in fields.as_object().into_iter().flatten().filter(|(e, _)| *e != ".") {
            let node = Node { member: is_member(children), children: FieldSet::from_stored(children) };
            set.nodes.insert(element.as_str().into(), node);
        }
        set
    }

    /// Parses `fieldsV1` of a client: validates it and converts its elements to canonical form.
    pub(super) fn parse(fields: &Value) -> Result<FieldSet, String> {
        let mut set = FieldSet::default();
        let fields = match fields {
            Value::Object(fields) => fields,
            Value::Null => return Ok(set),
            other => return Err(format!("expected an object, got {other}")),
        };
        for (text, children) in fields.iter().filter(|(e, _)| *e != ".") {
            let Some(element) = element::canonical(text)? else { continue };
            let node = set.node(&element);
            node.children = FieldSet::parse(children)?;
            node.member |= node.children.is_empty() || is_member(children);
        }
        Ok(set)
    }

    /// Converts the set to `fieldsV1`.
    pub(super) fn to_json(&self) -> Value {
        let mut fields = Map::new();
        for (element, node) in &self.nodes {
            let mut children = node.children.to_json();
            if let (true, false, Value::Object(inner)) = (node.member, node.children.is_empty(), &mut children) {
                inner.insert(".".to_owned(), Value::Object(Map::new()));
            }
            fields.insert(element.to_string(), children);
        }
        Value::Object(fields)
    }

    /// Whether any member is in `fieldsV1`. Avoids parsing all entries on every write.
    pub(super) fn intersects(&self, fields: &Value) -> bool {
        self.nodes.iter().any(|(element, node)| {
            fields
                .get(element.as_ref())
                .is_some_and(|children| (node.member && is_member(children)) || node.children.intersects(children))
        })
    }

    /// Whether all members are in `fieldsV1`.
    pub(super) fn is_subset_of(&self, fields: &Value) -> bool {
        self.nodes.iter().all(|(element, node)| {
            fields
                .get(element.as_ref())
                .is_some_and(|children| (!node.member || is_member(children)) && node.children.is_subset_of(children))
        })
    }
}

/// Whether an element with this value in `fieldsV1` is a member: it has a `.` entry or no children.
fn is_member(children: &Value) -> bool {
    children.as_object().is_none_or(|fields| fields.is_empty() || fields.contains_key("."))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    /// Generates small sets of few names, so that two of them often overlap.
    pub(in crate::fields) fn any_set() -> impl Strategy<Value = FieldSet> {
        let name = || prop_oneof![Just("a"), Just("b"), Just("c")];
        prop::collection::vec(prop::collection::vec(name(), 1..4), 0..6).prop_map(|paths| {
            let paths: Vec<&[&str]> = paths.iter().map(Vec::as_slice).collect();
            FieldSet::of_names(&paths)
        })
    }

    proptest! {
        #[test]
        fn json_round_trip_returns_the_same_set(set in any_set()) {
            prop_assert_eq!(&FieldSet::from_stored(&set.to_json()), &set);
            prop_assert_eq!(&FieldSet::parse(&set.to_json()).unwrap(), &set);
        }

        #[test]
        fn set_laws_hold(a in any_set(), b in any_set(), c in any_set()) {
            prop_assert_eq!(a.union(&b), b.union(&a));
            prop_assert_eq!(a.union(&b).union(&c), a.union(&b.union(&c)));
            prop_assert_eq!(a.union(&a), a.clone());
            prop_assert_eq!(a.intersection(&b), b.intersection(&a));
            prop_assert_eq!(a.intersection(&b.union(&c)), a.intersection(&b).union(&a.intersection(&c)));
            prop_assert_eq!(a.difference(&b.union(&c)), a.difference(&b).difference(&c));
            prop_assert_eq!(a.difference(&b).union(&a.intersection(&b)), a.clone());
            prop_assert!(a.difference(&a).is_empty());
            prop_assert!(a.difference(&b).intersection(&b).is_empty());
        }

        #[test]
        fn json_queries_match_the_set(a in any_set(), b in any_set()) {
            prop_assert_eq!(a.intersects(&b.to_json()), !a.intersection(&b).is_empty());
            prop_assert_eq!(a.is_subset_of(&b.to_json()), a.difference(&b).is_empty());
        }

        #[test]
        fn recursive_subtraction_leaves_no_descendants(a in any_set(), b in any_set()) {
            let mut rest = a.clone();
            rest.subtract_recursive(&b);
            prop_assert!(rest.intersection(&b).is_empty());
            prop_assert!(rest.difference(&a).is_empty());
            for removed in b.paths() {
                let inside = format!("{removed}.");
                prop_assert!(!rest.paths().iter().any(|p| p.starts_with(&inside)));
            }
        }
    }

    #[test]
    fn dot_marks_a_member_with_children() {
        let set = FieldSet::of_names(&[&["data"], &["data", "k"], &["spec", "type"]]);
        assert_eq!(set.to_json(), json!({"f:data": {".": {}, "f:k": {}}, "f:spec": {"f:type": {}}}));
        assert_eq!(set.paths(), [".data", ".data.k", ".spec.type"]);
    }

    #[test]
    fn subtracting_a_parent_keeps_its_children() {
        let mut set = FieldSet::of_names(&[&["data"], &["data", "k"]]);
        set.subtract(&FieldSet::of_names(&[&["data"]]));
        assert_eq!(set.to_json(), json!({"f:data": {"f:k": {}}}));
    }

    #[test]
    fn invalid_elements_are_rejected_and_unknown_kinds_are_ignored() {
        assert!(FieldSet::parse(&json!({"f:a": 5})).is_err());
        assert!(FieldSet::parse(&json!({"a": {}})).is_err());
        assert_eq!(FieldSet::parse(&json!({"x:a": {}, "f:b": {}})).unwrap(), FieldSet::of_names(&[&["b"]]));
    }
}
