//! YAML and JSON parser. Converts a document to the representation that all formats share.
//!
//! ```text
//!  key: value                 an entry of the section with an empty name
//!  section: {key: [a, b]}     two entries of a section
//!  section: {own: {key: a}}   an entry of the subsection own
//!  section: {map: {key: a}}   the entry map, a JSON object, if the section declares such a key
//!  section: {own: {group: {key: a}}}   the entry group.key, if the section declares such a key
//! ```

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

use super::declared::{Kind, Section, Table};
use super::document::{Entry, Part, Shape};
use crate::{ConfigErrors, ConfigFile};

/// Parses the whole text. Invalid YAML has no parts.
pub(super) fn parse(table: &Table, file: &ConfigFile) -> (Vec<Part>, ConfigErrors) {
    match file.yaml::<Mapping>() {
        Ok(document) => (Reader { table, text: file.text() }.document(document), ConfigErrors::new()),
        Err(errors) => (Vec::new(), errors),
    }
}

struct Mapping(Vec<(Spanned<String>, Spanned<Node>)>);

enum Node {
    Null,
    Text(String),
    /// A number or a boolean, as formatted by the parser. If it is used as a string, the text in the file counts: `007`.
    Other(String),
    List(Vec<Spanned<Node>>),
    Mapping(Mapping),
}

struct Reader<'a> {
    table: &'a Table,
    text: &'a str,
}

impl Reader<'_> {
    fn document(&self, document: Mapping) -> Vec<Part> {
        let mut parts = vec![part("", None, 1)];
        for (key, value) in document.0 {
            match value.value {
                Node::Mapping(section) => parts.extend(self.section(&key, section)),
                _ => parts[0].entries.extend(self.entries(&key, value)),
            }
        }
        // A document with sections only has no keys of its own.
        parts.retain(|part| !part.name.is_empty() || !part.entries.is_empty());
        parts
    }

    fn section(&self, name: &Spanned<String>, section: Mapping) -> Vec<Part> {
        let declared = self.table.section(&name.value);
        let is_map = |key: &str| {
            declared.and_then(|section| self.table.key(section, key)).is_some_and(|key| key.kind == Kind::Map)
        };
        let mut parts = vec![part(&name.value, None, line(name))];
        for (key, value) in section.0 {
            match value.value {
                Node::Mapping(map) if is_map(&key.value) => {
                    let (key, line, value) = (key.value.clone(), line(&key), self.json(&map));
                    parts[0].entries.push(Entry { key, value, line, shape: Shape::Mapping });
                }
                Node::Null if declared.is_some_and(|section| section.named) => {
                    parts.push(part(&name.value, Some(&key.value), line(&key)));
                }
                Node::Mapping(own) => {
                    let entries = own.0.into_iter().flat_map(|(key, value)| self.grouped(declared, key, value));
                    parts.push(Part { entries: entries.collect(), ..part(&name.value, Some(&key.value), line(&key)) });
                }
                _ => parts[0].entries.extend(self.entries(&key, value)),
            }
        }
        // A section with subsections only does not exist without a subsection name.
        if parts.len() > 1 && parts[0].entries.is_empty() {
            parts.remove(0);
        }
        parts
    }

    /// Returns the entry of a key, or the entries of a group of keys.
    fn grouped(&self, section: Option<&Section>, key: Spanned<String>, value: Spanned<Node>) -> Vec<Entry> {
        match value.value {
            Node::Mapping(group) if section.is_some_and(|section| self.table.is_group(section, &key.value)) => {
                let entries = group.0.into_iter().flat_map(|(inner, value)| self.entries(&inner, value));
                entries.map(|entry| Entry { key: format!("{}.{}", key.value, entry.key), ..entry }).collect()
            }
            _ => self.entries(&key, value),
        }
    }

    /// Returns the entry of a key, one per item for a list, or none for null.
    fn entries(&self, key: &Spanned<String>, value: Spanned<Node>) -> Vec<Entry> {
        let entry = |value, shape| Entry { key: key.value.clone(), value, line: line(key), shape };
        let raw = self.raw(&value);
        match value.value {
            Node::Null => Vec::new(),
            // Without quotes it may still be a boolean of YAML 1.1, such as yes.
            Node::Text(text) if raw.as_ref() == Some(&text) => vec![entry(Some(text), Shape::Plain)],
            Node::Text(text) => vec![entry(Some(text), Shape::Quoted)],
            Node::Other(shown) => vec![entry(Some(raw.unwrap_or(shown)), Shape::Plain)],
            Node::Mapping(_) => vec![entry(None, Shape::Mapping)],
            Node::List(items) if items.is_empty() => vec![entry(None, Shape::Item)],
            Node::List(items) => items.into_iter().map(|item| self.item(item, entry)).collect(),
        }
    }

    fn item(&self, item: Spanned<Node>, entry: impl Fn(Option<String>, Shape) -> Entry) -> Entry {
        let raw = self.raw(&item);
        match item.value {
            Node::Text(text) => entry(Some(text), Shape::Item),
            Node::Other(shown) => entry(Some(raw.unwrap_or(shown)), Shape::Item),
            Node::Null | Node::List(_) | Node::Mapping(_) => entry(None, Shape::Mapping),
        }
    }

    /// Returns a JSON object with the texts of a mapping; `None` if it has values of other types.
    fn json(&self, map: &Mapping) -> Option<String> {
        let text = |value: &Spanned<Node>| match &value.value {
            Node::Text(text) => Some(text.clone()),
            Node::Other(shown) => Some(self.raw(value).unwrap_or_else(|| shown.clone())),
            Node::Null => Some(String::new()),
            Node::List(_) | Node::Mapping(_) => None,
        };
        let pairs = map.0.iter().map(|(key, value)| Some((key.value.as_str(), text(value)?)));
        serde_json::to_string(&pairs.collect::<Option<BTreeMap<_, _>>>()?).ok()
    }

    /// Returns the text of a value in the file.
    fn raw(&self, value: &Spanned<Node>) -> Option<String> {
        let span = value.defined.span();
        let start = usize::try_from(span.byte_offset()?).ok()?;
        let length = usize::try_from(span.byte_len()?).ok().filter(|length| *length > 0)?;
        self.text.get(start..start + length).map(|raw| raw.trim().to_owned())
    }
}

fn part(name: &str, subsection: Option<&str>, line: usize) -> Part {
    Part { name: name.to_owned(), subsection: subsection.map(str::to_owned), line, entries: Vec::new() }
}

fn line(key: &Spanned<String>) -> usize {
    usize::try_from(key.referenced.line()).unwrap_or_default()
}

// ---- deserialisation

impl<'de> Deserialize<'de> for Mapping {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Mapping, D::Error> {
        struct Keys;
        impl<'de> Visitor<'de> for Keys {
            type Value = Mapping;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a mapping")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Mapping, A::Error> {
                mapping(map)
            }
        }
        deserializer.deserialize_map(Keys)
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Node, D::Error> {
        deserializer.deserialize_any(Nodes)
    }
}

struct Nodes;

impl<'de> Visitor<'de> for Nodes {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_str<E>(self, text: &str) -> Result<Node, E> {
        Ok(Node::Text(text.to_owned()))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Other(value.to_string()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Other(value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Other(value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
        Ok(Node::Other(value.to_string()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Node::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Node, A::Error> {
        mapping(map).map(Node::Mapping)
    }
}

fn mapping<'de, A: MapAccess<'de>>(mut map: A) -> Result<Mapping, A::Error> {
    let mut entries = Vec::new();
    while let Some(entry) = map.next_entry()? {
        entries.push(entry);
    }
    Ok(Mapping(entries))
}
