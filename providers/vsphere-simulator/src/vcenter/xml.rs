//! XML of requests. Namespaces are ignored: an element is found by its local name.

use quick_xml::Reader;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::{BytesRef, BytesStart, Event};

use super::inventory::Reference;

/// Maximum depth of a request.
const MAX_DEPTH: usize = 64;

/// An element of a request.
#[derive(Debug, Default)]
pub(super) struct Element {
    pub(super) name: String,
    attributes: Vec<(String, String)>,
    text: String,
    pub(super) children: Vec<Element>,
}

impl Element {
    /// Parses a document; `None` if it is not well-formed.
    pub(super) fn parse(text: &str) -> Option<Element> {
        let mut reader = Reader::from_str(text);
        // The bottom of the stack is a parent for the root.
        let mut open = vec![Element::default()];
        loop {
            match reader.read_event().ok()? {
                Event::Start(_) if open.len() > MAX_DEPTH => return None,
                Event::Start(start) => open.push(Element::of(&start)),
                Event::Empty(start) => open.last_mut()?.children.push(Element::of(&start)),
                Event::End(_) => {
                    let closed = open.pop()?;
                    open.last_mut()?.children.push(closed);
                }
                Event::Text(text) => open.last_mut()?.text.push_str(&text.xml10_content()),
                Event::CData(text) => open.last_mut()?.text.push_str(&text.xml10_content()),
                Event::GeneralRef(reference) => open.last_mut()?.text.push_str(&resolve(&reference)?),
                Event::Eof => break,
                Event::Decl(_) | Event::Comment(_) | Event::PI(_) | Event::DocType(_) => {}
            }
        }
        open.pop().filter(|_| open.is_empty())?.children.pop()
    }

    fn of(start: &BytesStart<'_>) -> Element {
        let attributes = start.attributes().flatten().map(|attribute| {
            let value = attribute.normalized_value(quick_xml::XmlVersion::Explicit1_0).unwrap_or_default();
            (attribute.key.as_ref().to_owned(), value.into_owned())
        });
        Element {
            attributes: attributes.collect(),
            name: local(start.name().as_ref()).to_owned(),
            ..Element::default()
        }
    }

    /// First child with this name.
    pub(super) fn child(&self, name: &str) -> Option<&Element> {
        self.children.iter().find(|child| child.name == name)
    }

    /// All children with this name.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Element> {
        self.children.iter().filter(move |child| child.name == name)
    }

    /// First element with this name, at any depth.
    pub(super) fn find(&self, name: &str) -> Option<&Element> {
        self.child(name).or_else(|| self.children.iter().find_map(|child| child.find(name)))
    }

    /// Text of the element itself.
    pub(super) fn own_text(&self) -> &str {
        &self.text
    }

    /// Text of a child; empty if there is none.
    pub(super) fn text(&self, name: &str) -> &str {
        self.child(name).map(Element::own_text).unwrap_or_default()
    }

    /// Texts of all children with this name.
    pub(super) fn texts<'a>(&'a self, name: &'a str) -> Vec<&'a str> {
        self.all(name).map(Element::own_text).collect()
    }

    /// Whether a child is true.
    pub(super) fn flag(&self, name: &str) -> bool {
        ["true", "1"].contains(&self.text(name).trim())
    }

    /// Value of an attribute.
    pub(super) fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Reference that the element contains.
    pub(super) fn reference(&self) -> Option<Reference> {
        Some(Reference::new(local(self.attribute("type")?), self.own_text().trim()))
    }
}

fn resolve(reference: &BytesRef<'_>) -> Option<String> {
    if let Some(character) = reference.resolve_char_ref().ok()? {
        return Some(character.to_string());
    }
    resolve_predefined_entity(&reference.xml10_content()).map(str::to_owned)
}

/// Name of the first element within another one.
pub(super) fn first_in(text: &str, holder: &str) -> Option<String> {
    let (mut reader, mut is_inside) = (Reader::from_str(text), false);
    loop {
        match reader.read_event().ok()? {
            Event::Start(start) | Event::Empty(start) if is_inside => {
                return Some(start.local_name().as_ref().to_owned());
            }
            Event::Start(start) => is_inside = start.local_name().as_ref() == holder,
            Event::Eof => return None,
            _ => {}
        }
    }
}

/// Name without its namespace prefix.
fn local(name: &str) -> &str {
    name.rsplit_once(':').map_or(name, |(_, local)| local)
}
