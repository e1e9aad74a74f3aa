//! Minimal validator of JSON schemas: the keywords that the chart's schema uses. An unknown keyword fails the test.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// A schema.
pub(super) struct Schema {
    root: Value,
}

impl Schema {
    pub(super) fn new(text: &str) -> Schema {
        Schema { root: serde_json::from_str(text).unwrap() }
    }

    /// Returns an error for each violation: its path, and the keyword.
    pub(super) fn errors(&self, value: &Value) -> Vec<String> {
        let mut errors = Vec::new();
        self.check(&self.root, value, "", &mut errors);
        errors
    }

    fn holds(&self, schema: &Value, value: &Value) -> bool {
        let mut errors = Vec::new();
        self.check(schema, value, "", &mut errors);
        errors.is_empty()
    }

    fn check(&self, schema: &Value, value: &Value, path: &str, errors: &mut Vec<String>) {
        let Some(schema) = schema.as_object() else {
            assert_eq!(*schema, Value::Bool(false));
            return errors.push(format!("{path}: unknown property"));
        };
        for (keyword, rule) in schema {
            if !self.follows(keyword, rule, value) {
                errors.push(format!("{path}: {keyword}: {rule}"));
            }
        }
        for (name, below, value) in self.below(schema, value) {
            let path = if path.is_empty() { name } else { format!("{path}.{name}") };
            self.check(&below, value, &path, errors);
        }
        if let Some(reference) = schema.get("$ref") {
            let pointer = reference.as_str().unwrap().trim_start_matches('#');
            self.check(self.root.pointer(pointer).unwrap(), value, path, errors);
        }
    }

    /// Whether the value follows a rule, apart from the schemas of its members.
    fn follows(&self, keyword: &str, rule: &Value, value: &Value) -> bool {
        let all = |rule: &Value| rule.as_array().unwrap().clone();
        match keyword {
            "$schema" | "$comment" | "title" | "definitions" | "$ref" | "properties" | "items" => true,
            "type" => match rule {
                Value::Array(types) => types.iter().any(|name| is_of_type(name, value)),
                name => is_of_type(name, value),
            },
            "enum" => all(rule).contains(value),
            "pattern" => {
                value.as_str().is_none_or(|text| regex::Regex::new(rule.as_str().unwrap()).unwrap().is_match(text))
            }
            "minLength" => value.as_str().is_none_or(|text| text.len() as u64 >= rule.as_u64().unwrap()),
            "minimum" => value.as_i64().is_none_or(|number| number >= rule.as_i64().unwrap()),
            "maximum" => value.as_i64().is_none_or(|number| number <= rule.as_i64().unwrap()),
            "required" => all(rule).iter().all(|name| value.get(name.as_str().unwrap()).is_some()),
            // Checked as the schema of the unknown properties.
            "additionalProperties" => true,
            "not" => !self.holds(rule, value),
            "allOf" => all(rule).iter().all(|rule| self.holds(rule, value)),
            "anyOf" => all(rule).iter().any(|rule| self.holds(rule, value)),
            other => panic!("unknown keyword {other}"),
        }
    }

    /// Members of the value that have schemas of their own.
    fn below<'v>(&self, schema: &Map<String, Value>, value: &'v Value) -> Vec<(String, Value, &'v Value)> {
        let named: BTreeMap<_, _> = match value {
            Value::Object(map) => map.iter().map(|(name, value)| (name.clone(), value)).collect(),
            Value::Array(items) => items.iter().enumerate().map(|(at, value)| (at.to_string(), value)).collect(),
            _ => return Vec::new(),
        };
        let of = |name: &str| match value {
            Value::Array(_) => schema.get("items").cloned(),
            _ => {
                let own = schema.get("properties").and_then(|all| all.get(name));
                own.or(schema.get("additionalProperties")).cloned()
            }
        };
        named.into_iter().filter_map(|(name, value)| Some((name.clone(), of(&name)?, value))).collect()
    }
}

fn is_of_type(name: &Value, value: &Value) -> bool {
    match name.as_str().unwrap() {
        "null" => value.is_null(),
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        other => panic!("unknown type {other}"),
    }
}
