//! Turns nodes into JSON: resolves words, follows aliases, merges, and makes keys text.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::nodes::{Content, Document, Node, NodeId};
use super::resolve::{self, Resolved};
use crate::go_text;
use crate::schema::{MAX_ISSUES, StrictIssue};

/// Below this many values a document may consist of aliases almost entirely; far above it, hardly.
const FEW_VALUES: f64 = 400_000.0;
const MANY_VALUES: f64 = 4_000_000.0;

/// All that aliases stand for may not be larger than a request body. A real server has no such limit: a few bytes for
/// each use of a long text can make it run out of memory.
const ALIASED_BYTES: usize = 3 << 20;

const TOO_MANY_ALIASES: &str = "yaml: document contains excessive aliasing";

/// The value of a document, and its duplicate keys.
pub(super) fn load(document: &Document) -> Result<(Value, Vec<StrictIssue>), String> {
    let mut loader =
        Loader { document, issues: Vec::new(), open: HashSet::new(), values: 0, aliased: 0, aliased_bytes: 0 };
    let value = match document.root {
        Some(root) => loader.value(root)?,
        None => Value::Null,
    };
    Ok((value, loader.issues))
}

struct Loader<'d> {
    document: &'d Document,
    issues: Vec<StrictIssue>,
    /// The aliases being followed.
    open: HashSet<NodeId>,
    values: u64,
    aliased: u64,
    aliased_bytes: usize,
}

impl<'d> Loader<'d> {
    /// Looks a node up and counts it, so that few bytes cannot stand for a great many values.
    fn visit(&mut self, id: NodeId) -> Result<&'d Node, String> {
        self.values += 1;
        self.aliased += u64::from(!self.open.is_empty());
        let (values, aliased) = (self.values as f64, self.aliased as f64);
        if self.aliased > 100 && self.values > 1000 && aliased / values > allowed_alias_share(values) {
            return Err(TOO_MANY_ALIASES.to_owned());
        }
        let node = self.document.node(id).ok_or_else(|| "yaml: unknown problem parsing YAML content".to_owned())?;
        if let Content::Scalar { text, .. } = &node.content
            && !self.open.is_empty()
        {
            self.aliased_bytes += text.len();
        }
        match self.aliased_bytes > ALIASED_BYTES {
            true => Err(TOO_MANY_ALIASES.to_owned()),
            false => Ok(node),
        }
    }

    fn value(&mut self, id: NodeId) -> Result<Value, String> {
        match &self.visit(id)?.content {
            Content::Scalar { text, plain, tag } => resolve::scalar(text, *plain, tag.as_deref())?.into_value(),
            Content::Alias { name, target } => {
                let target = *target;
                self.following(id, name, |loader| loader.value(target))
            }
            Content::Sequence(items) => items.iter().map(|item| self.value(*item)).collect(),
            Content::Mapping(pairs) => {
                let mut entries = Map::new();
                self.entries(pairs, &mut entries)?;
                Ok(Value::Object(entries))
            }
        }
    }

    fn following<T>(
        &mut self,
        id: NodeId,
        name: &str,
        work: impl FnOnce(&mut Self) -> Result<T, String>,
    ) -> Result<T, String> {
        if !self.open.insert(id) {
            return Err(format!("yaml: anchor '{name}' value contains itself"));
        }
        let result = work(self);
        self.open.remove(&id);
        result
    }

    /// Adds the entries of a mapping to those that are there.
    fn entries(&mut self, pairs: &[(NodeId, NodeId)], entries: &mut Map<String, Value>) -> Result<(), String> {
        for &(key, value) in pairs {
            if self.is_merge(key) {
                self.merge(value, entries)?;
                continue;
            }
            let key = self.key(key)?;
            let line = self.document.node(value).map_or(0, |node| node.line);
            let value = self.value(value)?;
            let name = key.name(&value)?;
            if entries.insert(name, value).is_some() && self.issues.len() < MAX_ISSUES {
                self.issues.push(StrictIssue::YamlDuplicate(line, key.printed()));
            }
        }
        Ok(())
    }

    fn is_merge(&self, key: NodeId) -> bool {
        match self.document.node(key).map(|node| &node.content) {
            Some(Content::Scalar { text, plain, tag }) => {
                text == "<<" && (*plain || tag.as_deref() == Some(resolve::MERGE_TAG))
            }
            _ => false,
        }
    }

    /// upstream: what is merged overrides the entries before it, and is overridden by those after it.
    fn merge(&mut self, id: NodeId, entries: &mut Map<String, Value>) -> Result<(), String> {
        match self.document.node(id).map(|node| &node.content) {
            // Of several maps the earlier ones win.
            Some(Content::Sequence(items)) => items.iter().rev().try_for_each(|item| self.merge_map(*item, entries)),
            _ => self.merge_map(id, entries),
        }
    }

    fn merge_map(&mut self, id: NodeId, entries: &mut Map<String, Value>) -> Result<(), String> {
        match &self.visit(id)?.content {
            Content::Mapping(pairs) => self.entries(pairs, entries),
            Content::Alias { name, target } if self.is_mapping(*target) => {
                let target = *target;
                self.following(id, name, |loader| loader.merge_map(target, entries))
            }
            _ => Err("yaml: map merge requires map or sequence of maps as the value".to_owned()),
        }
    }

    fn is_mapping(&self, id: NodeId) -> bool {
        matches!(self.document.node(id), Some(Node { content: Content::Mapping(_), .. }))
    }

    fn key(&mut self, id: NodeId) -> Result<Key, String> {
        match &self.visit(id)?.content {
            Content::Scalar { text, plain, tag } => resolve::scalar(text, *plain, tag.as_deref()).map(Key),
            Content::Alias { name, target } => {
                let target = *target;
                self.following(id, name, |loader| loader.key(target))
            }
            _ => Err(format!("yaml: invalid map key: {}", go_syntax(&self.value(id)?))),
        }
    }
}

fn allowed_alias_share(values: f64) -> f64 {
    let progress = (values - FEW_VALUES) / (MANY_VALUES - FEW_VALUES);
    0.99 - 0.89 * progress.clamp(0.0, 1.0)
}

/// A key before it becomes text.
struct Key(Resolved);

impl Key {
    fn name(&self, value: &Value) -> Result<String, String> {
        match &self.0 {
            Resolved::Text(text) => Ok(text.clone()),
            Resolved::Int(number) => Ok(number.to_string()),
            Resolved::Bool(flag) => Ok(flag.to_string()),
            Resolved::Float(number) => Ok(resolve::short_float(*number)),
            Resolved::Null => {
                Err(format!("unsupported map key of type: %!s(<nil>), key: <nil>, value: {}", go_syntax(value)))
            }
            Resolved::Uint(number) => {
                Err(format!("unsupported map key of type: uint64, key: {number:#x}, value: {}", go_syntax(value)))
            }
        }
    }

    /// As Go prints it in messages.
    fn printed(&self) -> String {
        match &self.0 {
            Resolved::Text(text) => go_text::quote(text),
            Resolved::Int(number) => number.to_string(),
            Resolved::Uint(number) => format!("{number:#x}"),
            Resolved::Bool(flag) => flag.to_string(),
            Resolved::Float(number) => resolve::go_float(*number),
            Resolved::Null => "<nil>".to_owned(),
        }
    }
}

/// A value as Go source, which is how a few messages show it.
fn go_syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::String(text) => go_text::quote(text),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(go_syntax).collect();
            format!("[]interface {{}}{{{}}}", items.join(", "))
        }
        Value::Object(entries) => {
            let entries: Vec<String> =
                entries.iter().map(|(key, value)| format!("{}:{}", go_text::quote(key), go_syntax(value))).collect();
            format!("map[interface {{}}]interface {{}}{{{}}}", entries.join(", "))
        }
        other => other.to_string(),
    }
}
