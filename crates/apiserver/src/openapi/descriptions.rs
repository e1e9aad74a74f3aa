//! What the types and fields mean, for `kubectl explain`.
//!
//! The words stand in `descriptions.txt`, in our own short form: they say what a reader of a manifest needs, not all
//! that can be said. Fields without a line there have no description.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::schema::Field;

/// What one line of the table says.
struct Entry {
    text: &'static str,
    /// The values a field can have, if only certain ones make sense.
    values: Option<Vec<&'static str>>,
}

/// By type name, or by type name and field name joined with a colon.
static ENTRIES: LazyLock<HashMap<String, Entry>> = LazyLock::new(|| parse(include_str!("descriptions.txt")));

/// What the type is.
pub(super) fn of_type(name: &str) -> Option<&'static str> {
    ENTRIES.get(name).map(|entry| entry.text)
}

/// What the field is for.
pub(super) fn of_field(type_name: &str, field: &Field) -> Option<&'static str> {
    field_entry(type_name, field).or_else(|| field_entry("*", field)).map(|entry| entry.text)
}

/// The values the field can have.
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
    fn every_line_is_about_something_that_exists() {
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
    fn every_line_has_words_and_ends_in_a_full_stop() {
        for (key, entry) in ENTRIES.iter() {
            assert!(entry.text.ends_with('.'), "{key}: {}", entry.text);
        }
    }
}
