//! Merges an applied configuration into the live object.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::extract::{elements, is_null_or_empty};
use super::shape::{ListShape, ObjectShape, Shape};

/// Merges `config` into `live`: leaves of `config` take precedence, nothing is removed.
pub(super) fn merge(shape: Shape, live: Option<&Value>, config: Option<&Value>) -> Option<Value> {
    let is_leaf = is_empty(live) && is_empty(config);
    match shape {
        Shape::Object(object) if !object.atomic && !is_leaf => merge_members(object, live, config),
        Shape::List(list) if !list.is_atomic() && !is_leaf => merge_items(list, live, config),
        _ => config.or(live).cloned(),
    }
}

fn is_empty(value: Option<&Value>) -> bool {
    value.is_none_or(|v| is_null_or_empty(v) || v.as_array().is_some_and(Vec::is_empty))
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

/// Merges two lists by identity. Items of `config` keep their order. Items that only `live` has come as early as their
/// neighbours allow. New items precede the next item of `config` that both lists have.
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
                (true, Some(shared_next)) if shared_next == next => break,
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

/// Returns the items by identity. Items with the same identity are not merged and map to null.
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

    fn service(ports: &[u16]) -> Value {
        let ports: Vec<Value> = ports.iter().map(|p| json!({"port": p})).collect();
        json!({"spec": {"ports": ports}})
    }

    fn merged_ports(live: &[u16], config: &[u16]) -> Vec<i64> {
        let merged =
            merge(Shape::root(schema().id("core/v1.Service")), Some(&service(live)), Some(&service(config))).unwrap();
        merged["spec"]["ports"].as_array().unwrap().iter().filter_map(|p| p["port"].as_i64()).collect()
    }

    #[test]
    fn merged_lists_keep_the_order_of_config_and_the_neighbours_of_live() {
        assert_eq!(merged_ports(&[1, 2, 3], &[2]), [1, 2, 3]);
        assert_eq!(merged_ports(&[1, 2, 3], &[9, 2]), [1, 9, 2, 3]);
        assert_eq!(merged_ports(&[1, 2, 3], &[2, 9]), [1, 2, 3, 9]);
        assert_eq!(merged_ports(&[1, 2, 3], &[2, 1, 9]), [2, 3, 1, 9]);
        assert_eq!(merged_ports(&[1], &[2]), [1, 2]);
        assert_eq!(merged_ports(&[], &[2, 1]), [2, 1]);
        assert_eq!(merged_ports(&[2, 1], &[]), [2, 1]);
    }
}
