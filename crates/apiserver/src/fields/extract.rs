//! Extracts the field set of an object, and removes fields from objects.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::element;
use super::set::{FieldSet, Node};
use super::shape::{ListShape, ObjectShape, Shape};

/// Returns every leaf and every list item of `value`.
pub(super) fn fields_of(shape: Shape, value: &Value) -> FieldSet {
    node_of(shape, value).children
}

fn node_of(shape: Shape, value: &Value) -> Node {
    match shape {
        Shape::List(list) if !list.is_atomic() => Node { member: false, children: fields_of_items(list, value) },
        Shape::Object(object) if !object.atomic => Node { member: false, children: fields_of_members(object, value) },
        _ => Node { member: true, children: FieldSet::default() },
    }
}

fn fields_of_members(object: ObjectShape, value: &Value) -> FieldSet {
    let mut set = FieldSet::default();
    for (name, value) in value.as_object().into_iter().flatten() {
        let Some(shape) = object.member(name) else { continue };
        let mut node = node_of(shape, value);
        // A struct is owned through its fields; map entries and empty values are owned themselves.
        node.member |= is_null_or_empty(value) || !object.declares(name);
        set.attach(|| element::of_name(name), node);
    }
    set
}

pub(super) fn is_null_or_empty(value: &Value) -> bool {
    value.is_null() || value.as_object().is_some_and(Map::is_empty)
}

fn fields_of_items(list: ListShape, value: &Value) -> FieldSet {
    let items: Vec<(String, &Value)> = elements(list, value).collect();
    let mut count: HashMap<&str, usize> = HashMap::new();
    for (element, _) in &items {
        *count.entry(element).or_default() += 1;
    }
    let mut set = FieldSet::default();
    for (element, item) in &items {
        let unique = count.get(element.as_str()) == Some(&1);
        let children = if unique { node_of(list.item_shape(), item).children } else { FieldSet::default() };
        set.attach(|| element.clone(), Node { member: true, children });
    }
    set
}

/// Returns the items that have an identity, with their path elements.
pub(super) fn elements(list: ListShape, value: &Value) -> impl Iterator<Item = (String, &Value)> {
    let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
    items.iter().filter_map(move |item| list.element(item).ok().map(|element| (element, item)))
}

/// Adds the parent struct fields of members: `spec` if `spec.type` is a member. Pruning needs them, because a struct that
/// loses its last field is removed, too.
pub(super) fn with_parents(shape: Option<Shape>, set: &FieldSet) -> FieldSet {
    let mut full = set.clone();
    mark_parents(shape, &mut full);
    full
}

fn mark_parents(shape: Option<Shape>, set: &mut FieldSet) {
    for (element, node) in set.nodes_mut() {
        if node.children.is_empty() {
            continue;
        }
        node.member |= shape.is_some_and(|s| s.declares(element));
        mark_parents(shape.and_then(|s| s.child(element)), &mut node.children);
    }
}

/// Returns `value` without the fields of `set`. Values without any fields left become null.
pub(super) fn remove_fields(shape: Shape, value: &Value, set: &FieldSet) -> Value {
    match shape {
        Shape::Object(object) if !object.atomic => remove_from_members(object, value, set),
        Shape::List(list) if !list.is_atomic() => remove_from_items(list, value, set),
        Shape::Object(_) | Shape::List(_) => Value::Null,
        Shape::Scalar(_) | Shape::Untyped => value.clone(),
    }
}

fn remove_from_members(object: ObjectShape, value: &Value, set: &FieldSet) -> Value {
    let mut kept = Map::new();
    for (name, value) in value.as_object().into_iter().flatten() {
        match (set.get(&element::of_name(name)), object.member(name)) {
            (Some(node), _) if node.member => {}
            (Some(node), Some(shape)) => {
                kept.insert(name.clone(), remove_fields(shape, value, &node.children));
            }
            _ => {
                kept.insert(name.clone(), value.clone());
            }
        }
    }
    if kept.is_empty() { Value::Null } else { Value::Object(kept) }
}

fn remove_from_items(list: ListShape, value: &Value, set: &FieldSet) -> Value {
    let mut kept = Vec::new();
    for (element, item) in elements(list, value) {
        match set.get(&element) {
            Some(node) if node.member => {}
            Some(node) => kept.push(remove_fields(list.item_shape(), item, &node.children)),
            None => kept.push(item.clone()),
        }
    }
    if kept.is_empty() { Value::Null } else { Value::Array(kept) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::schema;
    use serde_json::json;

    fn shape(ty: &str) -> Shape {
        Shape::root(schema().id(ty))
    }

    #[test]
    fn structs_are_owned_by_field_and_list_items_as_items() {
        let svc = json!({"spec": {"selector": {"x": "y"}, "ports": [{"port": 80}], "sessionAffinityConfig": {}}});
        let expected = json!({"f:spec": {
            "f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}}},
            "f:selector": {},
            "f:sessionAffinityConfig": {},
        }});
        assert_eq!(fields_of(shape("core/v1.Service"), &svc).to_json(), expected);
    }

    #[test]
    fn empty_maps_and_nulls_are_owned_and_empty_keyed_lists_are_not() {
        let cm = json!({"data": {}, "binaryData": null, "metadata": {"finalizers": []}});
        let set = fields_of(shape("core/v1.ConfigMap"), &cm);
        assert_eq!(set.to_json(), json!({"f:binaryData": {}, "f:data": {}}));
    }

    #[test]
    fn removing_all_fields_leaves_null() {
        let cm = json!({"data": {"k": "v"}, "metadata": {"name": "a"}});
        let set = FieldSet::of_names(&[&["data", "k"]]);
        let rest = remove_fields(shape("core/v1.ConfigMap"), &cm, &set);
        assert_eq!(rest, json!({"data": null, "metadata": {"name": "a"}}));
    }

    #[test]
    fn parent_struct_fields_are_added() {
        let set = FieldSet::of_names(&[&["metadata", "labels", "a"]]);
        let full = with_parents(Some(shape("core/v1.ConfigMap")), &set);
        assert_eq!(full.to_json(), json!({"f:metadata": {".": {}, "f:labels": {".": {}, "f:a": {}}}}));
    }
}
