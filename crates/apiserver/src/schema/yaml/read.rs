//! Converts YAML to JSON values: resolves scalars, expands aliases and merges, and converts keys to strings.

use std::collections::HashMap;

use serde_json::{Map, Value};
use serde_saphyr::granit_parser::{ErrorKind, Event, Options, Parser, ScalarStyle, ScanError, Span, Tag};

use super::resolve::{self, Scalar};
use crate::go_text;
use crate::schema::{MAX_ISSUES, StrictIssue};

/// Maximum total size of expanded aliases: that of a request body. kube-apiserver has no such limit, so a few bytes for each
/// alias of a long string can exhaust its memory.
const MAX_ALIASED_BYTES: usize = 3 << 20;

/// Memory of a value besides its text, for the limit on aliases.
const VALUE_BYTES: usize = 8;

/// Reads the first document. Returns its value and its duplicate keys.
pub(super) fn read(text: &str) -> Result<(Value, Vec<StrictIssue>), String> {
    let mut options = Options::default();
    options.set_emit_comments(false);
    options.emit_anchor_events = true;
    options.emit_unresolved_aliases = true;
    let mut reader = Reader {
        text,
        events: Parser::new_from_str_with_options(text, options),
        anchors: HashMap::new(),
        aliased: 0,
        issues: Vec::new(),
    };
    let value = reader.document()?;
    Ok((value, reader.issues))
}

/// A node of the document.
enum Node {
    Scalar(Scalar),
    Collection(Value),
}

impl Node {
    fn into_value(self) -> Result<Value, String> {
        match self {
            Node::Scalar(scalar) => scalar.into_value(),
            Node::Collection(value) => Ok(value),
        }
    }
}

/// An anchored value and the number of bytes that each alias of it adds.
struct Anchor {
    value: Value,
    bytes: usize,
}

struct Reader<'t, E> {
    text: &'t str,
    events: E,
    anchors: HashMap<usize, Anchor>,
    aliased: usize,
    issues: Vec<StrictIssue>,
}

impl<'t, E: Iterator<Item = Result<(Event<'t>, Span), ScanError>>> Reader<'t, E> {
    fn next(&mut self) -> Result<(Event<'t>, u64), String> {
        match self.events.next() {
            Some(Ok((event, span))) => Ok((event, span.start.line() as u64)),
            Some(Err(error)) => Err(describe(self.text, &error)),
            None => Ok((Event::StreamEnd, 0)),
        }
    }

    fn document(&mut self) -> Result<Value, String> {
        loop {
            match self.next()?.0 {
                Event::StreamStart | Event::DocumentStart(..) => {}
                Event::StreamEnd | Event::DocumentEnd => return Ok(Value::Null),
                event => {
                    let value = self.node(event)?.map_or(Ok(Value::Null), Node::into_value)?;
                    // The text after the root may still be invalid.
                    self.next()?;
                    return Ok(value);
                }
            }
        }
    }

    /// Reads the node that an event starts; `None` if the event ends a collection instead.
    fn node(&mut self, event: Event<'t>) -> Result<Option<Node>, String> {
        Ok(Some(match event {
            Event::Scalar(text, style, anchor, tag) => {
                let is_plain = style == ScalarStyle::Plain;
                let scalar = resolve::scalar(&text, is_plain, tag.as_deref().map(long_tag).as_deref());
                let id = self.anchor_id(anchor)?;
                if let Some(id) = id {
                    self.define(id, scalar.clone().into_value()?);
                }
                Node::Scalar(scalar)
            }
            Event::SequenceStart(_, anchor, _) => {
                let id = self.anchor_id(anchor)?;
                let value = self.sequence()?;
                self.collection(id, value)
            }
            Event::MappingStart(_, anchor, _) => {
                let id = self.anchor_id(anchor)?;
                let value = self.mapping()?;
                self.collection(id, value)
            }
            Event::Alias(anchor) => Node::Collection(self.alias(anchor)?),
            Event::UnresolvedAlias(name) => return Err(format!("yaml: unknown anchor '{name}' referenced")),
            _ => return Ok(None),
        }))
    }

    /// Consumes the event that names the anchor of a node.
    fn anchor_id(&mut self, anchor: usize) -> Result<Option<usize>, String> {
        if anchor == 0 {
            return Ok(None);
        }
        self.next()?;
        Ok(Some(anchor))
    }

    fn define(&mut self, id: usize, value: Value) {
        let bytes = size(&value);
        self.anchors.insert(id, Anchor { value, bytes });
    }

    fn collection(&mut self, anchor: Option<usize>, value: Value) -> Node {
        if let Some(id) = anchor {
            self.define(id, value.clone());
        }
        Node::Collection(value)
    }

    fn alias(&mut self, id: usize) -> Result<Value, String> {
        let Some(anchor) = self.anchors.get(&id) else {
            return Err("yaml: anchor value contains itself".to_owned());
        };
        self.aliased = self.aliased.saturating_add(anchor.bytes);
        match self.aliased > MAX_ALIASED_BYTES {
            true => Err("yaml: document contains excessive aliasing".to_owned()),
            false => Ok(anchor.value.clone()),
        }
    }

    fn sequence(&mut self) -> Result<Value, String> {
        let mut items = Vec::new();
        loop {
            let (event, _) = self.next()?;
            match self.node(event)? {
                Some(item) => items.push(item.into_value()?),
                None => return Ok(Value::Array(items)),
            }
        }
    }

    fn mapping(&mut self) -> Result<Value, String> {
        let mut entries = Map::new();
        loop {
            let (event, _) = self.next()?;
            let is_merge = matches!(&event, Event::Scalar(text, ScalarStyle::Plain, _, None) if text == "<<");
            let Some(key) = self.node(event)? else { return Ok(Value::Object(entries)) };
            let (event, line) = self.next()?;
            let value = self.node(event)?.map_or(Ok(Value::Null), Node::into_value)?;
            if is_merge {
                merge(value, &mut entries)?;
                continue;
            }
            let (name, printed) = key_text(key)?;
            if entries.insert(name, value).is_some() && self.issues.len() < MAX_ISSUES {
                self.issues.push(StrictIssue::YamlDuplicate(line, printed));
            }
        }
    }
}

/// Merges a map, or a list of maps of which earlier ones take precedence.
///
/// upstream: a merge overrides the entries before it and is overridden by the entries after it.
fn merge(value: Value, entries: &mut Map<String, Value>) -> Result<(), String> {
    let maps = match value {
        Value::Array(items) => items,
        value => vec![value],
    };
    for map in maps.into_iter().rev() {
        let Value::Object(map) = map else {
            return Err("yaml: map merge requires map or sequence of maps as the value".to_owned());
        };
        entries.extend(map);
    }
    Ok(())
}

/// A key as a string, and as messages print it.
fn key_text(key: Node) -> Result<(String, String), String> {
    match key.into_value()? {
        Value::String(text) => {
            let printed = go_text::quote(&text);
            Ok((text, printed))
        }
        Value::Null => Err("yaml: a map key may not be null".to_owned()),
        Value::Array(_) | Value::Object(_) => Err("yaml: a map key may not be a list or a map".to_owned()),
        scalar => Ok((scalar.to_string(), scalar.to_string())),
    }
}

/// Approximate size of a copy of the value in bytes.
fn size(value: &Value) -> usize {
    let content = match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(size).sum(),
        Value::Object(entries) => entries.iter().map(|(key, value)| key.len() + size(value)).sum(),
        _ => 0,
    };
    content + VALUE_BYTES
}

fn long_tag(tag: &Tag) -> String {
    format!("{}{}", tag.handle(), tag.suffix())
}

/// The message for a syntax error: the parser's own, except for an unclosed bracket.
fn describe(text: &str, error: &ScanError) -> String {
    match error.kind() {
        ErrorKind::UnclosedFlowCollection { .. } => {
            format!("yaml: line {}: did not find expected node content", text.lines().count())
        }
        kind => format!("yaml: line {}: {kind}", error.marker().line()),
    }
}
