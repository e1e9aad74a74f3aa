//! Fields of the objects that clients may write: types, required fields and defaults.
//!
//! `schema.json` describes a value by the name of its type, by its allowed texts separated with `|`, by a list with the description of
//! its items, or by an object with those of its fields. `text:255` limits the length, `any` allows everything, and `!` marks a required
//! field.

use std::net::IpAddr;
use std::sync::LazyLock;

use bowline_simulator::{Fields, Record, Reply, object};
use ipnet::IpNet;
use serde_json::{Value, json};

use super::wire::{invalid, require, unrecognized};

static SCHEMA: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(include_str!("schema.json")).unwrap_or_default());

/// Resource type that clients may write.
pub(crate) struct Schema {
    pub(crate) resource_type: &'static str,
    body: &'static Value,
}

impl Schema {
    /// Type of the objects in this collection; `None` if clients cannot write them.
    pub(crate) fn of(collection: &str) -> Option<Schema> {
        let types = SCHEMA["types"].as_object()?;
        let (resource_type, body) = types.iter().find(|(_, body)| body["collection"] == collection)?;
        Some(Schema { resource_type, body })
    }

    /// Removes the fields that only the server sets.
    pub(crate) fn strip(record: &mut Record) {
        record.retain(|field, _| !is_read_only(field));
    }

    /// Rejects unknown and missing fields, and values of another type.
    pub(crate) fn check(&self, record: &Record) -> Result<(), Reply> {
        let required = self.body["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
        for field in required {
            require(!is_empty(record.get(field)), format!("required property {field} is missing"))?;
        }
        let resource_type = record.text("resource_type");
        let is_ours = resource_type.is_empty() || resource_type == self.resource_type;
        require(is_ours, format!("resource_type {resource_type} is not {}", self.resource_type))?;
        for (field, value) in record {
            let known = SCHEMA["common"].get(field).or_else(|| self.body["fields"].get(field));
            let known = known.ok_or_else(|| unrecognized(field))?;
            check_value(field, value, known)?;
        }
        Ok(())
    }

    /// Adds the defaults of missing fields.
    pub(crate) fn complete(&self, record: &mut Record) {
        let mut value = Value::Object(std::mem::take(record));
        fill(&mut value, &self.body["defaults"]);
        *record = object(value);
        record.set("resource_type", self.resource_type);
    }
}

fn is_read_only(field: &str) -> bool {
    SCHEMA["read_only"].as_array().is_some_and(|fields| fields.contains(&json!(field)))
}

/// Whether a value is missing or has no content. The server leaves such values out.
pub(crate) fn is_empty(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(Value::Array(items)) => items.is_empty(),
        Some(_) => false,
    }
}

/// Adds missing fields, also to each item of a list.
fn fill(value: &mut Value, defaults: &Value) {
    match (value, defaults) {
        (Value::Object(fields), Value::Object(defaults)) => {
            for (field, default) in defaults {
                match fields.get_mut(field) {
                    Some(value) => fill(value, default),
                    None if default.is_array() => {}
                    None => drop(fields.insert(field.clone(), default.clone())),
                }
            }
        }
        (Value::Array(items), Value::Array(defaults)) => {
            items.iter_mut().for_each(|item| defaults.iter().for_each(|default| fill(item, default)));
        }
        _ => {}
    }
}

fn check_value(name: &str, value: &Value, known: &Value) -> Result<(), Reply> {
    match (value, known) {
        (Value::Array(items), Value::Array(known)) => {
            items.iter().try_for_each(|item| known.iter().try_for_each(|known| check_value(name, item, known)))
        }
        (Value::Object(fields), Value::Object(known)) => check_fields(name, fields, known),
        (value, Value::String(kind)) if is_of(value, kind.trim_end_matches('!')) => Ok(()),
        _ => Err(invalid(format!("property {name} has the invalid value {value}"))),
    }
}

fn check_fields(name: &str, fields: &Record, known: &Record) -> Result<(), Reply> {
    for (field, value) in fields {
        let known = known.get(field).ok_or_else(|| unrecognized(field))?;
        check_value(field, value, known)?;
    }
    let is_required = |known: &Value| known.as_str().is_some_and(|kind| kind.ends_with('!'));
    let missing = known.iter().find(|(field, known)| is_required(known) && !fields.contains_key(*field));
    require(missing.is_none(), format!("required property of {name} is missing"))
}

fn is_of(value: &Value, kind: &str) -> bool {
    let text = value.as_str();
    match kind {
        "any" => true,
        "text" | "path" => text.is_some(),
        "flag" => value.is_boolean(),
        "number" => value.is_u64(),
        "port" => value.as_u64().is_some_and(|port| (1..=65535).contains(&port)),
        "port_text" => text.is_some_and(is_port_range),
        "ip" => text.is_some_and(|text| text.parse::<IpAddr>().is_ok()),
        "cidr" => text.is_some_and(|text| text.parse::<IpNet>().is_ok()),
        _ => match kind.strip_prefix("text:").and_then(|longest| longest.parse().ok()) {
            Some(longest) => text.is_some_and(|text| text.chars().count() <= longest),
            None => text.is_some_and(|text| kind.split('|').any(|allowed| allowed == text)),
        },
    }
}

/// Whether the text is a port, or a range such as `8000-8010`.
fn is_port_range(text: &str) -> bool {
    let port = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0);
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    matches!((port(first), port(last)), (Some(first), Some(last)) if first <= last)
}
