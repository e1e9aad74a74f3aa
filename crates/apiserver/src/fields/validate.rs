//! Validates an applied object against the schema, with the error messages of kube-apiserver.
//!
//! Unlike other bodies, an applied object is not decoded into a type first. Unknown fields and wrong types are always
//! errors here, regardless of `fieldValidation`.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::element;
use super::shape::{ListShape, ObjectShape, Scalar, Shape};
use crate::patch::go_values::{self, Numbers};

/// Validates the object. The error contains all issues.
pub(super) fn validate(shape: Shape, value: &Value) -> Result<(), String> {
    let mut issues = Issues::default();
    check(shape, value, &mut issues);
    match issues.messages.as_slice() {
        [] => Ok(()),
        [one] => Err(one.clone()),
        many => Err(format!("errors:\n  {}", many.join("\n  "))),
    }
}

/// Issues found so far, and the current path.
#[derive(Default)]
struct Issues {
    path: Vec<String>,
    messages: Vec<String>,
}

impl Issues {
    fn report(&mut self, what: impl std::fmt::Display) {
        match self.path.concat() {
            path if path.is_empty() => self.messages.push(what.to_string()),
            path => self.messages.push(format!("{path}: {what}")),
        }
    }

    fn at_element(&mut self, step: String, work: impl FnOnce(&mut Issues)) {
        self.path.push(step);
        work(self);
        self.path.pop();
    }
}

fn check(shape: Shape, value: &Value, issues: &mut Issues) {
    match (shape, value) {
        // Null is valid for any type and equals an absent value.
        (_, Value::Null) | (Shape::Untyped, _) => {}
        (Shape::Object(object), Value::Object(entries)) => check_members(object, entries, issues),
        (Shape::Object(_), other) => issues.report(format!("expected map, got {}", format_value(other))),
        (Shape::List(list), Value::Array(items)) => check_items(list, items, issues),
        (Shape::List(_), other) => issues.report(format!("expected list, got {}", format_value(other))),
        (Shape::Scalar(scalar), value) => {
            if let Some(message) = scalar_error(scalar, value) {
                issues.report(message);
            }
        }
    }
}

fn check_members(object: ObjectShape, entries: &Map<String, Value>, issues: &mut Issues) {
    for (name, value) in entries {
        let step = element::format_element(&element::of_name(name));
        let Some(shape) = object.member(name) else {
            // upstream: the first undeclared field ends the validation of this object.
            return issues.at_element(step, |issues| issues.report("field not declared in schema"));
        };
        issues.at_element(step, |issues| check(shape, value, issues));
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
                    let step = element::format_element(&element);
                    if !seen.insert(element) {
                        issues.report(format!("duplicate entries for key {step}"));
                    }
                    step
                }
                // upstream: an item without an identity ends the validation of this list.
                Err(why) => return issues.report(format!("element {index}: {why}")),
            }
        };
        issues.at_element(step, |issues| check(list.item_shape(), item, issues));
    }
}

fn scalar_error(scalar: Scalar, value: &Value) -> Option<String> {
    let is_scalar = matches!(value, Value::String(_) | Value::Number(_) | Value::Bool(_));
    match scalar {
        Scalar::String if !value.is_string() => {
            let shown = go_values::syntax(value, Numbers::AsFloats);
            Some(format!("expected string, got &value.valueUnstructured{{Value:{shown}}}"))
        }
        Scalar::Number if !value.is_number() => {
            Some(format!("expected numeric (int or float), got {}", go_values::type_name(value)))
        }
        Scalar::Bool if !value.is_boolean() => Some(format!("expected boolean, got {}", format_value(value))),
        Scalar::Any if !is_scalar => Some(format!("expected any scalar, got {}", format_value(value))),
        _ => None,
    }
}

/// Formats a value. upstream: the message includes the wrapper type of the value.
fn format_value(value: &Value) -> String {
    format!("&{{{}}}", go_values::plain(value, Numbers::AsFloats))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::schema;
    use serde_json::json;

    fn error_message(ty: &str, value: Value) -> String {
        validate(Shape::root(schema().id(ty)), &value).err().unwrap_or_default()
    }

    #[test]
    fn errors_have_the_path_and_the_value() {
        let service = |spec: Value| error_message("core/v1.Service", json!({"kind": "Service", "spec": spec}));
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
    fn duplicate_keys_are_rejected() {
        let ports = json!([{"port": 80, "protocol": "TCP"}, {"port": 80}]);
        assert_eq!(
            error_message("core/v1.Service", json!({"spec": {"ports": ports}})),
            ".spec.ports: duplicate entries for key [port=80,protocol=\"TCP\"]"
        );
        assert_eq!(
            error_message("core/v1.ConfigMap", json!({"metadata": {"finalizers": ["a", "a"]}})),
            ".metadata.finalizers: duplicate entries for key [=\"a\"]"
        );
    }

    #[test]
    fn multiple_errors_are_listed() {
        assert_eq!(
            error_message("core/v1.ConfigMap", json!({"data": {"a": 1, "b": null, "c": true}})),
            "errors:\n  .data.a: expected string, got &value.valueUnstructured{Value:1}\n  \
             .data.c: expected string, got &value.valueUnstructured{Value:true}"
        );
    }
}
