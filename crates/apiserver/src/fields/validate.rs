//! Checks an applied object against the schema, in the words of the real server.
//!
//! Unlike other bodies, an applied one is not decoded into a type first, so what is unknown or of the wrong type is
//! found here, and every such thing is an error whatever `fieldValidation` says.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::element;
use super::shape::{ListShape, ObjectShape, Scalar, Shape};
use crate::patch::go_values::{self, Numbers};

/// What is wrong with the object, all of it in one text.
pub(super) fn validate(shape: Shape, value: &Value) -> Result<(), String> {
    let mut issues = Issues::default();
    check(shape, value, &mut issues);
    match issues.found.as_slice() {
        [] => Ok(()),
        [one] => Err(one.clone()),
        many => Err(format!("errors:\n  {}", many.join("\n  "))),
    }
}

/// What was found, and where the search is.
#[derive(Default)]
struct Issues {
    path: Vec<String>,
    found: Vec<String>,
}

impl Issues {
    fn report(&mut self, what: impl std::fmt::Display) {
        match self.path.concat() {
            path if path.is_empty() => self.found.push(what.to_string()),
            path => self.found.push(format!("{path}: {what}")),
        }
    }

    fn within(&mut self, step: String, work: impl FnOnce(&mut Issues)) {
        self.path.push(step);
        work(self);
        self.path.pop();
    }
}

fn check(shape: Shape, value: &Value, issues: &mut Issues) {
    match (shape, value) {
        // Null stands for any type: it is an absent value.
        (_, Value::Null) | (Shape::Untyped, _) => {}
        (Shape::Object(object), Value::Object(entries)) => check_members(object, entries, issues),
        (Shape::Object(_), other) => issues.report(format!("expected map, got {}", printed(other))),
        (Shape::List(list), Value::Array(items)) => check_items(list, items, issues),
        (Shape::List(_), other) => issues.report(format!("expected list, got {}", printed(other))),
        (Shape::Scalar(scalar), value) => {
            if let Some(complaint) = scalar_complaint(scalar, value) {
                issues.report(complaint);
            }
        }
    }
}

fn check_members(object: ObjectShape, entries: &Map<String, Value>, issues: &mut Issues) {
    for (name, value) in entries {
        let step = element::shown(&element::of_name(name));
        let Some(shape) = object.member(name) else {
            // upstream: the first undeclared field ends the search in this object.
            return issues.within(step, |issues| issues.report("field not declared in schema"));
        };
        issues.within(step, |issues| check(shape, value, issues));
    }
}

fn check_items(list: ListShape, items: &[Value], issues: &mut Issues) {
    let mut seen = HashSet::new();
    for (index, item) in items.iter().enumerate() {
        let step = if list.is_atomic() {
            format!("[{index}]")
        } else {
            match list.element(item) {
                Ok(element) => {
                    let step = element::shown(&element);
                    if !seen.insert(element) {
                        issues.report(format!("duplicate entries for key {step}"));
                    }
                    step
                }
                // upstream: an item without identity ends the search in this list.
                Err(why) => return issues.report(format!("element {index}: {why}")),
            }
        };
        issues.within(step, |issues| check(list.item_shape(), item, issues));
    }
}

fn scalar_complaint(scalar: Scalar, value: &Value) -> Option<String> {
    let is_text_like = matches!(value, Value::String(_) | Value::Number(_) | Value::Bool(_));
    match scalar {
        Scalar::String if !value.is_string() => {
            let shown = go_values::syntax(value, Numbers::AsFloats);
            Some(format!("expected string, got &value.valueUnstructured{{Value:{shown}}}"))
        }
        Scalar::Number if !value.is_number() => {
            Some(format!("expected numeric (int or float), got {}", go_values::type_name(value)))
        }
        Scalar::Bool if !value.is_boolean() => Some(format!("expected boolean, got {}", printed(value))),
        Scalar::Any if !is_text_like => Some(format!("expected any scalar, got {}", printed(value))),
        _ => None,
    }
}

/// A value inside the wrapper that the real server prints along with it.
fn printed(value: &Value) -> String {
    format!("&{{{}}}", go_values::plain(value, Numbers::AsFloats))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::schema;
    use serde_json::json;

    fn complaint(ty: &str, value: Value) -> String {
        validate(Shape::root(schema().id(ty)), &value).err().unwrap_or_default()
    }

    #[test]
    fn complaints_name_the_place_and_show_the_value() {
        let service = |spec: Value| complaint("core/v1.Service", json!({"kind": "Service", "spec": spec}));
        let cases = [
            (json!({"bogus": 1}), ".spec.bogus: field not declared in schema"),
            (json!({"ports": "x"}), ".spec.ports: expected list, got &{x}"),
            (json!("x"), ".spec: expected map, got &{x}"),
            (
                json!({"ports": [{"port": "x"}]}),
                ".spec.ports[port=\"x\",protocol=\"TCP\"].port: expected numeric (int or float), got string",
            ),
            (json!({"publishNotReadyAddresses": 1}), ".spec.publishNotReadyAddresses: expected boolean, got &{1}"),
            (
                json!({"ports": [null]}),
                ".spec.ports: element 0: associative list with keys may not have a null element",
            ),
            (
                json!({"ports": [{"port": 80, "targetPort": {}}]}),
                ".spec.ports[port=80,protocol=\"TCP\"].targetPort: expected any scalar, got &{map[]}",
            ),
            (
                json!({"externalIPs": [1]}),
                ".spec.externalIPs[0]: expected string, got &value.valueUnstructured{Value:1}",
            ),
        ];
        for (spec, expected) in cases {
            assert_eq!(service(spec), expected);
        }
    }

    #[test]
    fn items_may_not_share_a_key() {
        let ports = json!([{"port": 80, "protocol": "TCP"}, {"port": 80}]);
        assert_eq!(
            complaint("core/v1.Service", json!({"spec": {"ports": ports}})),
            ".spec.ports: duplicate entries for key [port=80,protocol=\"TCP\"]"
        );
        assert_eq!(
            complaint("core/v1.ConfigMap", json!({"metadata": {"finalizers": ["a", "a"]}})),
            ".metadata.finalizers: duplicate entries for key [=\"a\"]"
        );
    }

    #[test]
    fn several_complaints_are_listed() {
        assert_eq!(
            complaint("core/v1.ConfigMap", json!({"data": {"a": 1, "b": null, "c": true}})),
            "errors:\n  .data.a: expected string, got &value.valueUnstructured{Value:1}\n  \
             .data.c: expected string, got &value.valueUnstructured{Value:true}"
        );
    }
}
