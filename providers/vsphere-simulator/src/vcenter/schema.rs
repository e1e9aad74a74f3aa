//! Types of the vim25 API, and values of these types in the XML of the wire format.
//!
//! Values are JSON: a data object is an object, a reference is a string such as `HostSystem:host-12`. The schema gives the order of
//! the elements and the type names.

use std::collections::HashMap;
use std::sync::LazyLock;

use bowline_simulator::Record;
use quick_xml::escape::escape;
use serde_json::Value;

/// All types by name.
static TYPES: LazyLock<HashMap<&str, Definition>> = LazyLock::new(|| parse(include_str!("schema.txt")));

/// Base of all references.
const MANAGED: &str = "ManagedObject";

/// A managed object or data object type.
struct Definition {
    base: Option<&'static str>,
    properties: Vec<(&'static str, Type)>,
}

/// Type of a property.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Type {
    pub(super) name: &'static str,
    pub(super) is_list: bool,
}

fn parse(text: &'static str) -> HashMap<&'static str, Definition> {
    let mut types: Vec<(&str, Definition)> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if let Some(properties) = line.strip_prefix("  ") {
            let properties = properties.split(' ').filter_map(|property| property.split_once(':'));
            let properties = properties.map(|(name, kind)| (name, Type::of(kind)));
            types.last_mut().into_iter().for_each(|(_, last)| last.properties.extend(properties.clone()));
        } else {
            let (name, base) = line.split_once(" < ").map_or((line, None), |(name, base)| (name, Some(base)));
            types.push((name, Definition { base, properties: Vec::new() }));
        }
    }
    types.into_iter().collect()
}

impl Type {
    /// Parses a type: `[]` marks a list.
    pub(super) fn of(text: &'static str) -> Type {
        Type { name: text.trim_end_matches("[]"), is_list: text.ends_with("[]") }
    }

    fn item(self) -> Type {
        Type { is_list: false, ..self }
    }

    /// Name in `xsi:type`.
    fn wire_name(self) -> String {
        let name = if is_a(self.name, MANAGED) { "ManagedObjectReference" } else { self.name };
        match (self.is_list, is_primitive(name)) {
            (true, _) => format!("ArrayOf{}{}", name[..1].to_uppercase(), &name[1..]),
            (false, true) => format!("xsd:{name}"),
            (false, false) => name.to_owned(),
        }
    }

    /// Name of the elements of a list that has no name of its own.
    fn item_name(self) -> String {
        self.item().wire_name().trim_start_matches("xsd:").to_owned()
    }
}

/// Whether the name is that of an XML schema type.
fn is_primitive(name: &str) -> bool {
    name.starts_with(char::is_lowercase)
}

/// Whether a type is this one, or derived from it.
pub(super) fn is_a(name: &str, base: &str) -> bool {
    name == base || TYPES.get(name).and_then(|known| known.base).is_some_and(|parent| is_a(parent, base))
}

/// Properties of a type, those of its base first.
fn properties(name: &str) -> Vec<(&'static str, Type)> {
    let Some(known) = TYPES.get(name) else { return Vec::new() };
    let mut all = known.base.map(properties).unwrap_or_default();
    all.extend(&known.properties);
    all
}

/// Names of the properties of a type.
pub(super) fn names(kind: &str) -> Vec<&'static str> {
    properties(kind).into_iter().map(|(name, _)| name).collect()
}

/// Type of a property.
fn property(kind: &str, name: &str) -> Option<Type> {
    let known = TYPES.get(kind)?;
    let own = known.properties.iter().find(|(known, _)| *known == name).map(|(_, property)| *property);
    own.or_else(|| property(known.base?, name))
}

/// Follows a property path such as `config.extraConfig["key"].value`. Returns the type of the property, and its value if it is set;
/// `None` if the type has no such property.
pub(super) fn lookup<'a>(kind: &str, record: &'a Record, path: &str) -> Option<(Type, Option<&'a Value>)> {
    let (first, rest) = split(path);
    let mut at = (property(kind, first)?, record.get(first));
    let mut rest = rest;
    while !rest.is_empty() {
        let (declared, value) = at;
        if let Some(keyed) = rest.strip_prefix("[\"") {
            let (key, behind) = keyed.split_once("\"]")?;
            property(declared.name, "key").filter(|_| declared.is_list)?;
            let mut items = value.and_then(Value::as_array).into_iter().flatten();
            at = (declared.item(), items.find(|item| item.get("key").and_then(Value::as_str) == Some(key)));
            rest = behind;
        } else {
            let (name, behind) = split(rest.strip_prefix('.').filter(|_| !declared.is_list)?);
            at = (property(declared.name, name)?, value.and_then(|value| value.get(name)));
            rest = behind;
        }
    }
    Some(at)
}

/// Splits a path after its first name.
fn split(path: &str) -> (&str, &str) {
    path.split_at(path.find(['.', '[']).unwrap_or(path.len()))
}

/// Writes a value as elements of this name. A list becomes an element for each item.
pub(super) fn write(out: &mut String, name: &str, declared: Type, value: &Value) {
    match value {
        Value::Array(items) if declared.is_list => {
            items.iter().for_each(|item| write_one(out, name, declared.item(), item, false));
        }
        value => write_one(out, name, declared, value, false),
    }
}

/// Writes a value as one element that declares its type.
pub(super) fn write_typed(out: &mut String, name: &str, declared: Type, value: &Value) {
    let Value::Array(items) = value else { return write_one(out, name, declared, value, true) };
    out.push_str(&format!("<{name} xsi:type=\"{}\">", declared.wire_name()));
    items.iter().for_each(|item| write_one(out, &declared.item_name(), declared.item(), item, true));
    out.push_str(&format!("</{name}>"));
}

fn write_one(out: &mut String, name: &str, declared: Type, value: &Value, typed: bool) {
    let actual = if declared.name == "anyType" { type_of(value) } else { declared };
    out.push_str(&format!("<{name}"));
    if typed || actual != declared {
        out.push_str(&format!(" xsi:type=\"{}\"", actual.wire_name()));
    }
    match value {
        Value::Object(fields) => {
            out.push('>');
            for (field, declared) in properties(actual.name) {
                fields.get(field).into_iter().for_each(|value| write(out, field, declared, value));
            }
        }
        Value::String(text) if is_a(actual.name, MANAGED) => {
            let (kind, id) = text.split_once(':').unwrap_or((actual.name, text));
            out.push_str(&format!(" type=\"{}\">{}", escape(kind), escape(id)));
        }
        Value::String(text) => out.push_str(&format!(">{}", escape(text.as_str()))),
        other => out.push_str(&format!(">{other}")),
    }
    out.push_str(&format!("</{name}>"));
}

/// Type of a value that is declared as `anyType`.
fn type_of(value: &Value) -> Type {
    Type::of(match value {
        Value::Bool(_) => "boolean",
        Value::Number(_) => "int",
        _ => "string",
    })
}
