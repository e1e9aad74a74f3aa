//! The fields an object mentions, and objects without some of their fields.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::element;
use super::set::{FieldSet, Node};
use super::shape::{ListShape, ObjectShape, Shape};

/// Every leaf and every list item that `value` mentions.
pub(super) fn fields_of(shape: Shape, value: &Value) -> FieldSet {
    node_of(shape, value).below
}

fn node_of(shape: Shape, value: &Value) -> Node {
    match shape {
        Shape::List(list) if !list.is_atomic() => Node { member: false, below: fields_of_items(list, value) },
        Shape::Object(object) if !object.atomic => Node { member: false, below: fields_of_members(object, value) },
        _ => Node { member: true, below: FieldSet::default() },
    }
}

fn fields_of_members(object: ObjectShape, value: &Value) -> FieldSet {
    let mut set = FieldSet::default();
    for (name, value) in value.as_object().into_iter().flatten() {
        let Some(shape) = object.member(name) else { continue };
        let mut node = node_of(shape, value);
        // A struct is owned through its fields; entries of maps, and what is empty, are owned themselves.
        node.member |= is_void(value) || !object.declares(name);
        set.attach(|| element::of_name(name), node);
    }
    set
}

fn is_void(value: &Value) -> bool {
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
        let below = if unique { node_of(list.item_shape(), item).below } else { FieldSet::default() };
        set.attach(|| element.clone(), Node { member: true, below });
    }
    set
}

/// The items that have an identity, with it.
fn elements(list: ListShape, value: &Value) -> impl Iterator<Item = (String, &Value)> {
    let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
    items.iter().filter_map(move |item| list.element(item).ok().map(|element| (element, item)))
}

/// Adds the struct fields on the way to members: `spec` where `spec.type` is a member. Pruning needs them, because a
/// struct that loses its last field goes too.
pub(super) fn with_parents(shape: Option<Shape>, set: &FieldSet) -> FieldSet {
    let mut full = set.clone();
    mark_parents(shape, &mut full);
    full
}

fn mark_parents(shape: Option<Shape>, set: &mut FieldSet) {
    for (element, node) in set.nodes_mut() {
        if node.below.is_empty() {
            continue;
        }
        node.member |= shape.is_some_and(|s| s.declares(element));
        mark_parents(shape.and_then(|s| s.below(element)), &mut node.below);
    }
}

/// `value` without the fields of `set`. What has nothing left becomes null.
pub(super) fn without(shape: Shape, value: &Value, set: &FieldSet) -> Value {
    match shape {
        Shape::Object(object) if !object.atomic => without_members(object, value, set),
        Shape::List(list) if !list.is_atomic() => without_items(list, value, set),
        Shape::Object(_) | Shape::List(_) => Value::Null,
        Shape::Scalar(_) | Shape::Untyped => value.clone(),
    }
}

fn without_members(object: ObjectShape, value: &Value, set: &FieldSet) -> Value {
    let mut kept = Map::new();
    for (name, value) in value.as_object().into_iter().flatten() {
        match (set.get(&element::of_name(name)), object.member(name)) {
            (Some(node), _) if node.member => {}
            (Some(node), Some(shape)) => {
                kept.insert(name.clone(), without(shape, value, &node.below));
            }
            _ => {
                kept.insert(name.clone(), value.clone());
            }
        }
    }
    if kept.is_empty() { Value::Null } else { Value::Object(kept) }
}

fn without_items(list: ListShape, value: &Value, set: &FieldSet) -> Value {
    let mut kept = Vec::new();
    for (element, item) in elements(list, value) {
        match set.get(&element) {
            Some(node) if node.member => {}
            Some(node) => kept.push(without(list.item_shape(), item, &node.below)),
            None => kept.push(item.clone()),
        }
    }
    if kept.is_empty() { Value::Null } else { Value::Array(kept) }
}

/// `live` with `config` laid over it: leaves of `config` win, nothing is removed.
pub(super) fn merge(shape: Shape, live: Option<&Value>, config: Option<&Value>) -> Option<Value> {
    match shape {
        Shape::Object(object) if !object.atomic && !(is_bare(live) && is_bare(config)) => {
            merge_members(object, live, config)
        }
        Shape::List(list) if !list.is_atomic() && !(is_bare(live) && is_bare(config)) => {
            merge_items(list, live, config)
        }
        _ => config.or(live).cloned(),
    }
}

fn is_bare(value: Option<&Value>) -> bool {
    value.is_none_or(|v| is_void(v) || v.as_array().is_some_and(Vec::is_empty))
}

fn merge_members(object: ObjectShape, live: Option<&Value>, config: Option<&Value>) -> Option<Value> {
    let (live, config) = (live.and_then(Value::as_object), config.and_then(Value::as_object));
    let names: HashSet<&String> = live.into_iter().chain(config).flat_map(Map::keys).collect();
    let mut merged = Map::new();
    for name in names {
        let (live, config) = (live.and_then(|m| m.get(name)), config.and_then(|m| m.get(name)));
        let value = match object.member(name) {
            Some(shape) => merge(shape, live, config),
            None => config.or(live).cloned(),
        };
        merged.extend(value.map(|v| (name.clone(), v)));
    }
    (!merged.is_empty()).then_some(Value::Object(merged))
}

/// Merges two lists by identity. Items of `config` keep their order; items only `live` has come as early as their
/// neighbours allow; new items stand right before the item that follows them in `config` and that both have.
fn merge_items(list: ListShape, live: Option<&Value>, config: Option<&Value>) -> Option<Value> {
    let live: Vec<(String, &Value)> = live.into_iter().flat_map(|v| elements(list, v)).collect();
    let config: Vec<(String, &Value)> = config.into_iter().flat_map(|v| elements(list, v)).collect();
    let in_config: HashSet<&str> = config.iter().map(|(element, _)| element.as_str()).collect();
    let live_items = unique_items(&live);
    let mut shared = config.iter().map(|(e, _)| e.as_str()).filter(|e| live_items.contains_key(e)).peekable();
    let mut rest = live.iter().peekable();
    let mut merged = Vec::with_capacity(live.len().max(config.len()));
    for (element, item) in &config {
        while let Some((next, live_item)) = rest.peek() {
            match (in_config.contains(next.as_str()), shared.peek()) {
                (false, _) => merged.push((*live_item).clone()),
                (true, Some(wanted)) if wanted == next => break,
                (true, Some(_)) => {}
                (true, None) => {
                    rest.next();
                    break;
                }
            }
            rest.next();
        }
        merged.extend(merge(list.item_shape(), live_items.get(element.as_str()).copied(), Some(item)));
        if shared.next_if_eq(&element.as_str()).is_some() {
            rest.next_if(|(next, _)| next == element);
        }
    }
    merged.extend(rest.filter(|(e, _)| !in_config.contains(e.as_str())).map(|(_, item)| (*item).clone()));
    (!merged.is_empty()).then_some(Value::Array(merged))
}

/// The items by identity. Of several with the same one none is merged with anything: null stands for them.
fn unique_items<'a>(items: &'a [(String, &'a Value)]) -> HashMap<&'a str, &'a Value> {
    let mut map = HashMap::with_capacity(items.len());
    for (element, item) in items {
        map.entry(element.as_str()).and_modify(|first| *first = &Value::Null).or_insert(*item);
    }
    map
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::schema;
    use serde_json::json;

    fn shape(ty: &str) -> Shape {
        Shape::root(schema().id(ty))
    }

    fn service(ports: &[u16]) -> Value {
        let ports: Vec<Value> = ports.iter().map(|p| json!({"port": p})).collect();
        json!({"spec": {"ports": ports}})
    }

    fn merged_ports(live: &[u16], config: &[u16]) -> Vec<i64> {
        let merged = merge(shape("core/v1.Service"), Some(&service(live)), Some(&service(config))).unwrap();
        merged["spec"]["ports"].as_array().unwrap().iter().filter_map(|p| p["port"].as_i64()).collect()
    }

    #[test]
    fn structs_are_owned_through_their_fields_and_list_items_themselves() {
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
    fn merging_lists_keeps_the_order_of_config_and_the_neighbours_of_live() {
        assert_eq!(merged_ports(&[1, 2, 3], &[2]), [1, 2, 3]);
        assert_eq!(merged_ports(&[1, 2, 3], &[9, 2]), [1, 9, 2, 3]);
        assert_eq!(merged_ports(&[1, 2, 3], &[2, 9]), [1, 2, 3, 9]);
        assert_eq!(merged_ports(&[1, 2, 3], &[2, 1, 9]), [2, 3, 1, 9]);
        assert_eq!(merged_ports(&[1], &[2]), [1, 2]);
        assert_eq!(merged_ports(&[], &[2, 1]), [2, 1]);
        assert_eq!(merged_ports(&[2, 1], &[]), [2, 1]);
    }

    #[test]
    fn taking_fields_out_leaves_null_where_nothing_is_left() {
        let cm = json!({"data": {"k": "v"}, "metadata": {"name": "a"}});
        let set = FieldSet::of_names(&[&["data", "k"]]);
        let rest = without(shape("core/v1.ConfigMap"), &cm, &set);
        assert_eq!(rest, json!({"data": null, "metadata": {"name": "a"}}));
    }

    #[test]
    fn parents_are_marked_where_they_are_struct_fields() {
        let set = FieldSet::of_names(&[&["metadata", "labels", "a"]]);
        let full = with_parents(Some(shape("core/v1.ConfigMap")), &set);
        assert_eq!(full.to_json(), json!({"f:metadata": {".": {}, "f:labels": {".": {}, "f:a": {}}}}));
    }
}
