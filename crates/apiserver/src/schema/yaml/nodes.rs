//! A document as a tree of nodes, before words are resolved and aliases followed.

use std::collections::HashMap;

use serde_saphyr::granit_parser::{Event, Options, Parser, ScalarStyle, ScanError, Span, Tag};

use super::problem;

/// A node's place in its [`Document`].
pub(super) type NodeId = usize;

/// The first document of a text.
pub(super) struct Document {
    nodes: Vec<Node>,
    /// `None` if the text holds no document.
    pub(super) root: Option<NodeId>,
}

pub(super) struct Node {
    /// Counted from one.
    pub(super) line: u64,
    pub(super) content: Content,
}

pub(super) enum Content {
    Scalar {
        text: String,
        /// Written without quotes, so that it may mean something else than text.
        plain: bool,
        /// In the long form, `tag:yaml.org,2002:str`.
        tag: Option<String>,
    },
    Sequence(Vec<NodeId>),
    Mapping(Vec<(NodeId, NodeId)>),
    Alias {
        name: String,
        target: NodeId,
    },
}

impl Document {
    pub(super) fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id)
    }
}

/// Reads the first document of a text.
pub(super) fn read(text: &str) -> Result<Document, String> {
    let mut options = Options::default();
    options.set_emit_comments(false);
    options.emit_anchor_events = true;
    options.emit_unresolved_aliases = true;
    let mut composer = Composer {
        text,
        events: Parser::new_from_str_with_options(text, options),
        nodes: Vec::new(),
        anchors: HashMap::new(),
    };
    let root = composer.document()?;
    Ok(Document { nodes: composer.nodes, root })
}

struct Composer<'t, E> {
    text: &'t str,
    events: E,
    nodes: Vec<Node>,
    anchors: HashMap<usize, (String, NodeId)>,
}

impl<'t, E: Iterator<Item = Result<(Event<'t>, Span), ScanError>>> Composer<'t, E> {
    fn next(&mut self) -> Result<(Event<'t>, u64), String> {
        match self.events.next() {
            Some(Ok((event, span))) => Ok((event, span.start.line() as u64)),
            Some(Err(error)) => Err(problem::describe(self.text, &error)),
            None => Ok((Event::StreamEnd, 0)),
        }
    }

    fn document(&mut self) -> Result<Option<NodeId>, String> {
        loop {
            match self.next()? {
                (Event::StreamStart | Event::DocumentStart(..), _) => {}
                (Event::StreamEnd | Event::DocumentEnd, _) => return Ok(None),
                (event, line) => {
                    let root = self.node(event, line)?;
                    // What follows the root may still be broken.
                    self.next()?;
                    return Ok(root);
                }
            }
        }
    }

    /// The node an event starts; `None` if the event ends something instead.
    fn node(&mut self, event: Event<'t>, line: u64) -> Result<Option<NodeId>, String> {
        let content = match event {
            Event::Scalar(text, style, anchor, tag) => {
                let tag = tag.as_deref().map(long_tag).filter(|tag| tag != "!");
                let plain = style == ScalarStyle::Plain && tag.is_none();
                let id = self.add(line, Content::Scalar { text: text.into_owned(), plain, tag });
                return self.anchored(anchor, id).map(Some);
            }
            Event::SequenceStart(_, anchor, _) => {
                let id = self.add(line, Content::Sequence(Vec::new()));
                self.anchored(anchor, id)?;
                let items = self.items()?;
                return Ok(Some(self.fill(id, Content::Sequence(items))));
            }
            Event::MappingStart(_, anchor, _) => {
                let id = self.add(line, Content::Mapping(Vec::new()));
                self.anchored(anchor, id)?;
                let items = self.items()?;
                let pairs = items.chunks_exact(2).filter_map(|pair| Some((*pair.first()?, *pair.last()?))).collect();
                return Ok(Some(self.fill(id, Content::Mapping(pairs))));
            }
            Event::Alias(anchor) => match self.anchors.get(&anchor) {
                Some((name, target)) => Content::Alias { name: name.clone(), target: *target },
                None => return Err("yaml: unknown anchor referenced".to_owned()),
            },
            Event::UnresolvedAlias(name) => return Err(format!("yaml: unknown anchor '{name}' referenced")),
            _ => return Ok(None),
        };
        Ok(Some(self.add(line, content)))
    }

    /// The nodes up to the end of the collection.
    fn items(&mut self) -> Result<Vec<NodeId>, String> {
        let mut items = Vec::new();
        loop {
            let (event, line) = self.next()?;
            match self.node(event, line)? {
                Some(id) => items.push(id),
                None => return Ok(items),
            }
        }
    }

    fn add(&mut self, line: u64, content: Content) -> NodeId {
        self.nodes.push(Node { line, content });
        self.nodes.len() - 1
    }

    fn fill(&mut self, id: NodeId, content: Content) -> NodeId {
        if let Some(node) = self.nodes.get_mut(id) {
            node.content = content;
        }
        id
    }

    /// Takes the event that names the anchor of the node just read.
    fn anchored(&mut self, anchor: usize, id: NodeId) -> Result<NodeId, String> {
        if anchor != 0
            && let (Event::Anchor(anchor, name), _) = self.next()?
        {
            self.anchors.insert(anchor, (name.into_owned(), id));
        }
        Ok(id)
    }
}

fn long_tag(tag: &Tag) -> String {
    format!("{}{}", tag.handle(), tag.suffix())
}
