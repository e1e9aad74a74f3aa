//! Comparison of two objects: the field sets that a write added, modified and removed.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::set::{FieldSet, Node};
use super::shape::{ListShape, ObjectShape, Shape};

/// Difference between two objects.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Changes {
    pub(super) added: FieldSet,
    pub(super) modified: FieldSet,
    pub(super) removed: FieldSet,
}

impl Changes {
    pub(super) fn between(shape: Shape, old: &Value, new: &Value) -> Changes {
        let delta = compare(shape, Some(old), Some(new));
        Changes { added: delta.added.children, modified: delta.modified.children, removed: delta.removed.children }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.added.is_empty() && self.modified.is_empty() && self.removed.is_empty()
    }

    /// Removes the fields of `single`, and those of `recursive` with all their descendants.
    pub(super) fn ignore(&mut self, single: &FieldSet, recursive: &FieldSet) {
        for part in [&mut self.added, &mut self.modified, &mut self.removed] {
            part.subtract(single);
            part.subtract_recursive(recursive);
        }
    }

    /// Returns the fields with a new value, which the writer owns.
    pub(super) fn written(&self) -> FieldSet {
        self.added.union(&self.modified)
    }
}

/// Difference at one path: whether the field itself changed, and its children.
#[derive(Default)]
struct Delta {
    added: Node,
    modified: Node,
    removed: Node,
}

impl Delta {
    /// Attaches the difference of a child. The element is only formatted if there is one.
    fn attach(&mut self, element: impl Fn() -> String, child: Delta) {
        self.added.children.attach(&element, child.added);
        self.modified.children.attach(&element, child.modified);
        self.removed.children.attach(&element, child.removed);
    }

    /// Marks a container as added or removed.
    fn mark_presence(&mut self, old: Option<&Value>, new: Option<&Value>) {
        self.added.member |= old.is_none();
        self.removed.member |= new.is_none();
    }
}

fn compare(shape: Shape, old: Option<&Value>, new: Option<&Value>) -> Delta {
    match shape {
        Shape::List(list) if !list.is_atomic() && !both_empty(old, new) => compare_items(list, old, new),
        Shape::Object(object) if !object.atomic && !both_empty(old, new) => compare_members(object, old, new),
        Shape::List(_) | Shape::Object(_) if old.is_some() && new.is_some() && both_empty(old, new) => Delta::default(),
        _ => compare_leaf(old, new),
    }
}

fn compare_leaf(old: Option<&Value>, new: Option<&Value>) -> Delta {
    let mut delta = Delta::default();
    match (old, new) {
        (Some(old), Some(new)) => delta.modified.member = !same(old, new),
        _ => delta.mark_presence(old, new),
    }
    delta
}

fn compare_members(object: ObjectShape, old: Option<&Value>, new: Option<&Value>) -> Delta {
    let mut delta = Delta::default();
    let (old_map, new_map) = (entries(old), entries(new));
    let mut visit = |name: &str, old: Option<&Value>, new: Option<&Value>| {
        if let Some(shape) = object.member(name) {
            delta.attach(|| super::element::of_name(name), compare(shape, old, new));
        }
    };
    for (name, old) in old_map.into_iter().flatten() {
        match new_map.and_then(|map| map.get(name)) {
            Some(new) if same_scalar(old, new) => {}
            new => visit(name, Some(old), new),
        }
    }
    for (name, new) in new_map.into_iter().flatten() {
        if old_map.is_none_or(|map| !map.contains_key(name)) {
            visit(name, None, Some(new));
        }
    }
    delta.mark_presence(old, new);
    delta
}

fn compare_items(list: ListShape, old: Option<&Value>, new: Option<&Value>) -> Delta {
    let mut delta = Delta::default();
    if old == new {
        return delta;
    }
    let mut pairs: BTreeMap<String, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
    for item in items(old) {
        // An item without an identity cannot be owned.
        if let Ok(element) = list.element(item) {
            pairs.entry(element).or_default().0.push(item);
        }
    }
    for item in items(new) {
        if let Ok(element) = list.element(item) {
            pairs.entry(element).or_default().1.push(item);
        }
    }
    for (element, (old, new)) in pairs {
        delta.attach(|| element.clone(), compare_same_key(list.item_shape(), &old, &new));
    }
    delta.mark_presence(old, new);
    delta
}

/// Compares the items with one key. Several such items (two addresses of one type) are owned together as one field.
fn compare_same_key(shape: Shape, old: &[&Value], new: &[&Value]) -> Delta {
    match (old, new) {
        ([] | [_], [] | [_]) => compare(shape, old.first().copied(), new.first().copied()),
        ([_, _, ..], [_, _, ..]) => {
            let mut delta = Delta::default();
            delta.modified.member = old.len() != new.len() || old.iter().zip(new).any(|(a, b)| !same(a, b));
            delta
        }
        (_, [_, _, ..]) => {
            let mut delta = old.first().map(|item| compare(shape, Some(item), None)).unwrap_or_default();
            delta.added.member = true;
            delta
        }
        _ => {
            let mut delta = new.first().map(|item| compare(shape, None, Some(item))).unwrap_or_default();
            delta.removed.member = true;
            delta
        }
    }
}

fn entries(value: Option<&Value>) -> Option<&Map<String, Value>> {
    value.and_then(Value::as_object)
}

fn items(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn both_empty(old: Option<&Value>, new: Option<&Value>) -> bool {
    let empty = |value: Option<&Value>| match value {
        None | Some(Value::Null) => true,
        Some(Value::Array(items)) => items.is_empty(),
        Some(Value::Object(entries)) => entries.is_empty(),
        _ => false,
    };
    empty(old) && empty(new)
}

fn same_scalar(a: &Value, b: &Value) -> bool {
    !matches!(a, Value::Array(_) | Value::Object(_)) && a == b
}

/// Compares values; numbers are equal by value: 80 equals 80.0.
pub(super) fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(x), Value::Number(y)) if x.is_f64() || y.is_f64() => x.as_f64() == y.as_f64(),
        (Value::Array(x), Value::Array(y)) => x.len() == y.len() && x.iter().zip(y).all(|(x, y)| same(x, y)),
        (Value::Object(x), Value::Object(y)) => {
            x.len() == y.len() && x.iter().all(|(key, x)| y.get(key).is_some_and(|y| same(x, y)))
        }
        _ => a == b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::schema;
    use serde_json::json;

    fn changes(ty: &str, old: Value, new: Value) -> [Value; 3] {
        let changes = Changes::between(Shape::root(schema().id(ty)), &old, &new);
        [changes.added.to_json(), changes.modified.to_json(), changes.removed.to_json()]
    }

    #[test]
    fn added_container_includes_its_contents() {
        let new = json!({"data": {"k": "v"}, "metadata": {}});
        let [added, modified, removed] = changes("core/v1.ConfigMap", json!({"metadata": {}}), new);
        assert_eq!(added, json!({"f:data": {".": {}, "f:k": {}}}));
        assert_eq!((modified, removed), (json!({}), json!({})));
    }

    #[test]
    fn list_items_are_identified_by_their_keys() {
        let old = json!({"spec": {"ports": [{"port": 80, "protocol": "TCP"}, {"port": 81, "protocol": "TCP"}]}});
        let new = json!({"spec": {"ports": [{"port": 81, "protocol": "TCP", "name": "x"}]}});
        let [added, modified, removed] = changes("core/v1.Service", old, new);
        assert_eq!(added, json!({"f:spec": {"f:ports": {"k:{\"port\":81,\"protocol\":\"TCP\"}": {"f:name": {}}}}}));
        assert_eq!(modified, json!({}));
        let removed_port = json!({".": {}, "f:port": {}, "f:protocol": {}});
        assert_eq!(removed, json!({"f:spec": {"f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": removed_port}}}));
    }

    #[test]
    fn atomic_lists_and_maps_change_as_a_whole() {
        let old = json!({"spec": {"selector": {"a": "1"}, "externalIPs": ["1.1.1.1"]}});
        let new = json!({"spec": {"selector": {"b": "1"}, "externalIPs": ["1.1.1.2"]}});
        let [added, modified, removed] = changes("core/v1.Service", old, new);
        assert_eq!(modified, json!({"f:spec": {"f:externalIPs": {}, "f:selector": {}}}));
        assert_eq!((added, removed), (json!({}), json!({})));
    }

    #[test]
    fn items_with_the_same_key_are_one_field() {
        let address = |a: &str| json!({"type": "InternalIP", "address": a});
        let node = |list: Vec<Value>| json!({"status": {"addresses": list}});
        let key = "k:{\"type\":\"InternalIP\"}";
        let at = |children: Value| json!({"f:status": {"f:addresses": {key: children}}});
        let one = || node(vec![address("1")]);
        let two = || node(vec![address("1"), address("2")]);
        let fields = json!({"f:address": {}, "f:type": {}});
        let [added, modified, removed] = changes("core/v1.Node", one(), two());
        assert_eq!(
            (added, modified, removed),
            (at(json!({})), json!({}), at(json!({".": {}, "f:address": {}, "f:type": {}})))
        );
        let [added, _, removed] = changes("core/v1.Node", two(), one());
        assert_eq!(added["f:status"]["f:addresses"][key]["f:address"], fields["f:address"]);
        assert_eq!(removed, at(json!({})));
        let [_, modified, _] = changes("core/v1.Node", two(), node(vec![address("1"), address("3")]));
        assert_eq!(modified, at(json!({})));
    }

    #[test]
    fn null_and_empty_lists_are_equal() {
        let eps = |list: Value| json!({"endpoints": list, "ports": null});
        let [added, modified, removed] = changes("discovery/v1.EndpointSlice", eps(Value::Null), eps(json!([])));
        assert_eq!((added, modified, removed), (json!({}), json!({}), json!({})));
    }
}
