//! What is applied, laid over what there is.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::extract::{elements, is_void};
use super::shape::{ListShape, ObjectShape, Shape};

/// `live` with `config` laid over it: leaves of `config` win, nothing is removed.
pub(super) fn merge(shape: Shape, live: Option<&Value>, config: Option<&Value>) -> Option<Value> {
    let is_leaf = is_bare(live) && is_bare(config);
    match shape {
        Shape::Object(object) if !object.atomic && !is_leaf => merge_members(object, live, config),
        Shape::List(list) if !list.is_atomic() && !is_leaf => merge_items(list, live, config),
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
    fn merging_lists_keeps_the_order_of_config_and_the_neighbours_of_live() {
        assert_eq!(merged_ports(&[1, 2, 3], &[2]), [1, 2, 3]);
        assert_eq!(merged_ports(&[1, 2, 3], &[9, 2]), [1, 9, 2, 3]);
        assert_eq!(merged_ports(&[1, 2, 3], &[2, 9]), [1, 2, 3, 9]);
        assert_eq!(merged_ports(&[1, 2, 3], &[2, 1, 9]), [2, 3, 1, 9]);
        assert_eq!(merged_ports(&[1], &[2]), [1, 2]);
        assert_eq!(merged_ports(&[], &[2, 1]), [2, 1]);
        assert_eq!(merged_ports(&[2, 1], &[]), [2, 1]);
    }
}
