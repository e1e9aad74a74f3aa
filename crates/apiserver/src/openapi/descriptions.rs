//! Descriptions of types and fields, for `kubectl explain`.
//!
//! `descriptions.txt` has short descriptions for authors of manifests, not upstream's full text. Fields without a line
//! there have no description.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::schema::Field;

/// One line of the table.
struct Entry {
    text: &'static str,
    /// The allowed values of an enumerated field.
    values: Option<Vec<&'static str>>,
}

/// Keyed by type name, or by type name and field name joined with a colon.
static ENTRIES: LazyLock<HashMap<String, Entry>> = LazyLock::new(|| parse(include_str!("descriptions.txt")));

/// The description of a type.
pub(super) fn of_type(name: &str) -> Option<&'static str> {
    ENTRIES.get(name).map(|entry| entry.text)
}

/// The description of a field.
pub(super) fn of_field(type_name: &str, field: &Field) -> Option<&'static str> {
    field_entry(type_name, field).or_else(|| field_entry("*", field)).map(|entry| entry.text)
}

/// The allowed values of a field.
pub(super) fn values_of_field(type_name: &str, field: &Field) -> Option<&'static [&'static str]> {
    field_entry(type_name, field)?.values.as_deref()
}

fn field_entry(type_name: &str, field: &Field) -> Option<&'static Entry> {
    ENTRIES.get(&format!("{type_name}:{}", field.name))
}

fn parse(text: &'static str) -> HashMap<String, Entry> {
    let mut entries = HashMap::new();
    let mut current = "";
    for line in text.lines().filter(|l| !l.starts_with('#') && !l.trim().is_empty()) {
        let (head, text) = line.trim_start().split_once(": ").unwrap_or((line, ""));
        let (name, values) = match head.split_once(" = ") {
            Some((name, values)) => (name, Some(values.split(" | ").collect())),
            None => (head, None),
        };
        let key = match line.starts_with(' ') {
            true => format!("{current}:{name}"),
            false => {
                current = name;
                current.to_owned()
            }
        };
        if !text.is_empty() {
            entries.insert(key, Entry { text, values });
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::RESOURCES;
    use crate::schema::schema;

    #[test]
    fn every_line_describes_an_existing_type_or_field() {
        for key in ENTRIES.keys().filter(|key| !key.starts_with('*')) {
            let (name, field) = key.split_once(':').unwrap_or((key, ""));
            let id = schema().find(name).unwrap_or_else(|| panic!("no type {name}"));
            assert!(field.is_empty() || schema().get(id).field(field).is_some(), "no field {key}");
        }
    }

    #[test]
    fn every_kind_is_described() {
        for resource in RESOURCES {
            assert!(of_type(resource.type_name).is_some(), "{}", resource.type_name);
        }
    }

    #[test]
    fn every_description_ends_with_a_full_stop() {
        for (key, entry) in ENTRIES.iter() {
            assert!(entry.text.ends_with('.'), "{key}: {}", entry.text);
        }
    }
}
