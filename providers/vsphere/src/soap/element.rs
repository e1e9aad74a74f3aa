//! XML elements of SOAP messages, without namespaces: an element is found by its local name.

use std::fmt;

use quick_xml::Reader;
use quick_xml::escape::{escape, resolve_predefined_entity};
use quick_xml::events::{BytesRef, BytesStart, Event};

/// Maximum depth of a response. The deepest one of vCenter has about ten levels.
const MAX_DEPTH: usize = 64;

/// An element: a subtree of a request or a response.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Element {
    name: String,
    attributes: Vec<(String, String)>,
    text: String,
    children: Vec<Element>,
}

/// A response that is not well-formed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum XmlError {
    #[error("{0}")]
    Syntax(#[from] quick_xml::Error),
    #[error("unknown entity &{0};")]
    Entity(String),
    #[error("more than {MAX_DEPTH} nested elements")]
    TooDeep,
    #[error("the document ends within an element")]
    Incomplete,
}

impl Element {
    /// Creates an empty element.
    pub(crate) fn new(name: &str) -> Element {
        Element { name: name.to_owned(), ..Element::default() }
    }

    /// Creates an element that contains only text.
    pub(crate) fn leaf(name: &str, text: impl Into<String>) -> Element {
        Element { text: text.into(), ..Element::new(name) }
    }

    /// Adds a child.
    pub(crate) fn with(self, child: Element) -> Element {
        self.with_all([child])
    }

    /// Adds children, in order.
    pub(crate) fn with_all(mut self, children: impl IntoIterator<Item = Element>) -> Element {
        self.children.extend(children);
        self
    }

    /// Adds an attribute.
    pub(crate) fn attribute(mut self, name: &str, value: &str) -> Element {
        self.attributes.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Parses a document and returns its root.
    pub(crate) fn parse(text: &str) -> Result<Element, XmlError> {
        Element::parse_in_parts(text, ["", ""], |_| ())
    }

    /// Parses a document, and passes each element with this path (parent and name) to `take` instead of keeping it.
    pub(crate) fn parse_in_parts(
        text: &str,
        path: [&str; 2],
        mut take: impl FnMut(Element),
    ) -> Result<Element, XmlError> {
        let mut add = |open: &mut [Element], child: Element| match open.last_mut() {
            Some(parent) if [&*parent.name, &*child.name] == path => take(child),
            Some(parent) => parent.children.push(child),
            None => {}
        };
        let mut reader = Reader::from_str(text);
        // The bottom of the stack is a parent for the root.
        let mut open = vec![Element::default()];
        loop {
            match reader.read_event()? {
                Event::Start(_) if open.len() > MAX_DEPTH => return Err(XmlError::TooDeep),
                Event::Start(start) => open.push(element_of(&start)),
                Event::Empty(start) => add(&mut open, element_of(&start)),
                Event::End(_) => {
                    let closed = open.pop().ok_or(XmlError::Incomplete)?;
                    add(&mut open, closed);
                }
                Event::Text(text) => append_text(&mut open, &text.xml10_content()),
                Event::CData(text) => append_text(&mut open, &text.xml10_content()),
                Event::GeneralRef(reference) => append_text(&mut open, &resolve(&reference)?),
                Event::Eof => break,
                Event::Decl(_) | Event::Comment(_) | Event::PI(_) | Event::DocType(_) => {}
            }
        }
        let complete = open.pop().filter(|_| open.is_empty());
        complete.and_then(|mut parent| parent.children.pop()).ok_or(XmlError::Incomplete)
    }

    /// Returns the local name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the text, without that of children.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the first child of this name.
    pub(crate) fn child(&self, name: &str) -> Option<&Element> {
        self.children.iter().find(|child| child.name == name)
    }

    /// Returns all children of this name.
    pub(crate) fn children<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Element> {
        self.children.iter().filter(move |child| child.name == name)
    }

    /// Returns the first child of this name, without the rest.
    pub(crate) fn into_child(self, name: &str) -> Option<Element> {
        self.into_children().find(|child| child.name == name)
    }

    /// Returns all children, without the rest.
    pub(crate) fn into_children(self) -> impl Iterator<Item = Element> {
        self.children.into_iter()
    }

    /// Returns all children.
    pub(crate) fn all(&self) -> &[Element] {
        &self.children
    }

    /// Returns the text of the first child of this name; `None` if there is no such child.
    pub(crate) fn child_text(&self, name: &str) -> Option<&str> {
        self.child(name).map(Element::text)
    }

    /// Returns the value of an attribute, by its full name.
    pub(crate) fn attribute_value(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Returns the type of a value whose declared type is a base type (`xsi:type`), without prefix; empty if it is not given.
    pub(crate) fn type_name(&self) -> &str {
        let given = self.attributes.iter().find(|(name, _)| name.ends_with(":type"));
        given.map(|(_, value)| local(value)).unwrap_or_default()
    }
}

/// Formats the element as XML.
impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{}", self.name)?;
        for (name, value) in &self.attributes {
            write!(f, " {name}=\"{}\"", escape(value.as_str()))?;
        }
        write!(f, ">{}", escape(self.text.as_str()))?;
        self.children.iter().try_for_each(|child| child.fmt(f))?;
        write!(f, "</{}>", self.name)
    }
}

fn element_of(start: &BytesStart<'_>) -> Element {
    let attributes = start.attributes().flatten().map(|attribute| {
        let value = attribute.normalized_value(quick_xml::XmlVersion::Explicit1_0).unwrap_or_default();
        (attribute.key.as_ref().to_owned(), value.into_owned())
    });
    Element { attributes: attributes.collect(), ..Element::new(local(start.name().as_ref())) }
}

fn append_text(open: &mut [Element], text: &str) {
    if let Some(parent) = open.last_mut() {
        parent.text.push_str(text);
    }
}

fn resolve(reference: &BytesRef<'_>) -> Result<String, XmlError> {
    if let Some(character) = reference.resolve_char_ref()? {
        return Ok(character.to_string());
    }
    let name = reference.xml10_content();
    resolve_predefined_entity(&name).map(str::to_owned).ok_or_else(|| XmlError::Entity(name.into_owned()))
}

/// Returns a name without its namespace prefix.
fn local(name: &str) -> &str {
    name.rsplit_once(':').map_or(name, |(_, local)| local)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_found_by_their_local_names() {
        let text = "<?xml version=\"1.0\"?><s:Envelope xmlns:s=\"x\"><s:Body><a xsi:type=\"vim:Folder\">1 &lt; &#50;<![CDATA[ & 3]]></a><a/></s:Body></s:Envelope>";
        let envelope = Element::parse(text).unwrap();
        let body = envelope.child("Body").unwrap();
        assert_eq!((envelope.name(), body.children("a").count()), ("Envelope", 2));
        let first = body.child("a").unwrap();
        assert_eq!((first.text(), first.type_name()), ("1 < 2 & 3", "Folder"));
        assert_eq!((body.child_text("a"), body.child_text("b")), (Some("1 < 2 & 3"), None));
    }

    #[test]
    fn the_objects_of_a_page_are_passed_on_one_by_one_and_not_kept() {
        let text =
            "<a><returnval><token>1</token><objects><objects>x</objects></objects><objects/></returnval><objects/></a>";
        let mut taken = Vec::new();
        let rest = Element::parse_in_parts(text, ["returnval", "objects"], |object| taken.push(object)).unwrap();
        assert_eq!(rest.to_string(), "<a><returnval><token>1</token></returnval><objects></objects></a>");
        assert_eq!(taken.iter().map(|object| object.all().len()).collect::<Vec<_>>(), [1, 0]);
    }

    #[test]
    fn special_characters_survive_a_round_trip() {
        let element = Element::leaf("password", "a<b>&\"c'\u{e9}").attribute("xsi:type", "<\"&");
        assert_eq!(Element::parse(&element.to_string()).unwrap(), element);
    }

    #[test]
    fn what_is_not_a_document_is_an_error() {
        let deep = "<a>".repeat(100);
        for text in ["", "text", "<a>", "<a></b>", "<a>&secret;</a>", "<html><br></html>", deep.as_str()] {
            assert!(Element::parse(text).is_err(), "{text:.40}");
        }
    }
}
