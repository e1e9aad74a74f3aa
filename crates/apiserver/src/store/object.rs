//! A stored object: its serialised bytes and the fields that are read often.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};
use serde_json::Value;

use crate::resources::Resource;
use crate::value::Json;

/// Key of an object in its collection; cluster-scoped objects have an empty namespace.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) namespace: Box<str>,
    pub(crate) name: Box<str>,
}

impl Key {
    pub(crate) fn new(namespace: &str, name: &str) -> Key {
        Key { namespace: namespace.into(), name: name.into() }
    }
}

/// Keys are ordered as `NAMESPACE/NAME`, so `a-b/x` precedes `a/x`.
impl Ord for Key {
    fn cmp(&self, other: &Key) -> Ordering {
        if self.namespace == other.namespace {
            return self.name.cmp(&other.name);
        }
        let [own, others] = [self, other].map(|key| key.namespace.bytes().chain([b'/']));
        own.cmp(others).then_with(|| self.name.cmp(&other.name))
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Key) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Type of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Added,
    Modified,
    Deleted,
}

impl Verb {
    /// The `type` of a watch event.
    pub(crate) fn event_type(self) -> &'static str {
        match self {
            Verb::Added => "ADDED",
            Verb::Modified => "MODIFIED",
            Verb::Deleted => "DELETED",
        }
    }

    /// The start of a watch event's line.
    pub(crate) fn line_start(self) -> &'static str {
        match self {
            Verb::Added => "{\"type\":\"ADDED\",\"object\":",
            Verb::Modified => "{\"type\":\"MODIFIED\",\"object\":",
            Verb::Deleted => "{\"type\":\"DELETED\",\"object\":",
        }
    }
}

/// The end of a watch event's line.
pub(crate) const LINE_END: &str = "}\n";

/// An object in the store. Its bytes are stored as the line of its watch event.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) key: Key,
    pub(crate) revision: u64,
    pub(crate) uid: Box<str>,
    pub(crate) labels: BTreeMap<String, String>,
    /// The selectable fields of the kind with their values.
    pub(crate) fields: Box<[(&'static str, String)]>,
    /// The UIDs of its owners.
    pub(crate) owners: Box<[Box<str>]>,
    /// Whether it has a deletionTimestamp.
    pub(crate) deleting: bool,
    /// The event type in `line`.
    verb: Verb,
    line: Bytes,
    /// Position of the object in `line`.
    object: Range<usize>,
    /// Position of the revision's digits in `line`.
    digits: Range<usize>,
    /// The length of `{"kind":…,"apiVersion":…,`.
    type_prefix: usize,
}

impl Stored {
    /// The object as JSON.
    pub(crate) fn json(&self) -> Bytes {
        self.line.slice(self.object.clone())
    }

    /// The bytes after `{` for a list item, which omits `kind` and `apiVersion`.
    pub(crate) fn item_tail(&self) -> Bytes {
        self.line.slice(self.object.start + self.type_prefix..self.object.end)
    }

    /// The line of a watch event for this object; shared if the event type is that of the stored line.
    pub(crate) fn line_of(&self, verb: Verb) -> Bytes {
        if self.verb == verb {
            return self.line.clone();
        }
        let start = verb.line_start();
        let mut line = BytesMut::with_capacity(start.len() + self.object.len() + LINE_END.len());
        line.put(start.as_bytes());
        line.put(&self.line[self.object.clone()]);
        line.put(LINE_END.as_bytes());
        line.freeze()
    }

    /// Parses the object.
    pub(crate) fn value(&self) -> Value {
        serde_json::from_slice(&self.line[self.object.clone()]).unwrap_or_default()
    }

    pub(crate) fn size(&self) -> usize {
        self.line.len()
    }

    /// This state with the revision of its deletion.
    pub(super) fn tombstone(&self, revision: u64) -> Stored {
        self.at_revision(revision, Verb::Deleted)
    }

    /// This state with another revision and event type.
    pub(crate) fn at_revision(&self, revision: u64, verb: Verb) -> Stored {
        let draft = Draft {
            key: self.key.clone(),
            uid: self.uid.clone(),
            labels: self.labels.clone(),
            fields: self.fields.clone(),
            owners: self.owners.clone(),
            deleting: self.deleting,
            head: self.line[self.object.start..self.digits.start].to_vec(),
            tail: self.line[self.digits.end..self.object.end].to_vec(),
            type_prefix: self.type_prefix,
        };
        draft.finish(revision, verb)
    }
}

/// An object to store, serialised except for its revision.
#[derive(Debug)]
pub(crate) struct Draft {
    key: Key,
    uid: Box<str>,
    labels: BTreeMap<String, String>,
    fields: Box<[(&'static str, String)]>,
    owners: Box<[Box<str>]>,
    deleting: bool,
    head: Vec<u8>,
    tail: Vec<u8>,
    type_prefix: usize,
}

impl Draft {
    /// Serialises an object.
    pub(crate) fn new(resource: &Resource, object: &Value) -> Draft {
        let mut head = Vec::with_capacity(128);
        head.extend_from_slice(b"{\"kind\":");
        write_json(&mut head, &object["kind"]);
        head.extend_from_slice(b",\"apiVersion\":");
        write_json(&mut head, &object["apiVersion"]);
        head.push(b',');
        let type_prefix = head.len();
        head.extend_from_slice(b"\"metadata\":{\"resourceVersion\":\"");
        let mut tail = Vec::with_capacity(1024);
        tail.push(b'"');
        let metadata = object.map("metadata").into_iter().flatten();
        write_members(&mut tail, metadata.filter(|(key, _)| *key != "resourceVersion"));
        tail.push(b'}');
        let rest = object.as_object().into_iter().flatten();
        write_members(&mut tail, rest.filter(|(key, _)| !matches!(key.as_str(), "kind" | "apiVersion" | "metadata")));
        tail.push(b'}');
        Draft {
            key: Key::new(object.text("metadata.namespace"), object.text("metadata.name")),
            uid: object.text("metadata.uid").into(),
            labels: labels(object),
            fields: fields(resource, object),
            owners: object.list("metadata.ownerReferences").iter().map(|o| o.text("uid").into()).collect(),
            deleting: object.has("metadata.deletionTimestamp"),
            head,
            tail,
            type_prefix,
        }
    }

    pub(crate) fn key(&self) -> &Key {
        &self.key
    }

    /// Whether the object equals a stored one, ignoring the revision.
    pub(crate) fn equals(&self, stored: &Stored) -> bool {
        stored.line[stored.object.start..stored.digits.start] == self.head[..]
            && stored.line[stored.digits.end..stored.object.end] == self.tail[..]
    }

    pub(super) fn finish(self, revision: u64, verb: Verb) -> Stored {
        let digits = revision.to_string();
        let start = verb.line_start();
        let length = start.len() + self.head.len() + digits.len() + self.tail.len() + LINE_END.len();
        let mut line = BytesMut::with_capacity(length);
        line.put(start.as_bytes());
        line.put(&self.head[..]);
        let digits_start = line.len();
        line.put(digits.as_bytes());
        let digits_end = line.len();
        line.put(&self.tail[..]);
        let object_end = line.len();
        line.put(LINE_END.as_bytes());
        Stored {
            key: self.key,
            revision,
            uid: self.uid,
            labels: self.labels,
            fields: self.fields,
            owners: self.owners,
            deleting: self.deleting,
            verb,
            line: line.freeze(),
            object: start.len()..object_end,
            digits: digits_start..digits_end,
            type_prefix: self.type_prefix,
        }
    }
}

/// Writes `,"key":value` for each member.
fn write_members<'a>(out: &mut Vec<u8>, members: impl Iterator<Item = (&'a String, &'a Value)>) {
    for (key, value) in members {
        out.push(b',');
        write_json(out, key);
        out.push(b':');
        write_json(out, value);
    }
}

fn write_json<T: serde::Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    // Serialising a Value or a string to memory cannot fail.
    let _ = serde_json::to_writer(out, value);
}

fn labels(object: &Value) -> BTreeMap<String, String> {
    let labels = object.map("metadata.labels").into_iter().flatten();
    labels.filter_map(|(k, v)| Some((k.clone(), v.as_str()?.to_owned()))).collect()
}

fn fields(resource: &Resource, object: &Value) -> Box<[(&'static str, String)]> {
    let labels = resource.strategy.field_labels().unwrap_or_default();
    labels.iter().map(|label| (*label, resource.strategy.field_value(object, label))).collect()
}
