//! SOAP messages of the vim25 API: requests, responses and faults.
//!
//! ```text
//!  method(name, object, arguments) ──► envelope ──► HTTP ──► response: the element NAMEResponse
//!                                                       └──► Fault ──► Error, with the name of the fault as its code
//! ```

mod element;
mod fault;
pub(crate) mod properties;

use std::fmt;

use bowline_cloud::Result;
use bowline_http::ApiResponse;
use bytes::Bytes;

pub(crate) use element::Element;
pub(crate) use fault::{Faults, code, is_fault};

/// Content type of requests.
pub(crate) const CONTENT_TYPE: &str = "text/xml; charset=\"utf-8\"";

/// Version of the API that requests ask for. Every vCenter from 6.5 on accepts it.
pub(crate) const ACTION: &str = "urn:vim25/6.5";

/// Reference to a managed object.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ManagedObject {
    /// Type, such as `VirtualMachine`.
    pub kind: String,
    /// ID within the vCenter, such as `vm-42`.
    pub id: String,
}

impl ManagedObject {
    pub(crate) fn new(kind: &str, id: &str) -> ManagedObject {
        ManagedObject { kind: kind.to_owned(), id: id.to_owned() }
    }

    /// Reads a reference from an element; `None` if it is empty.
    pub(crate) fn of(element: &Element) -> Option<ManagedObject> {
        let kind = element.attribute_value("type")?;
        Some(ManagedObject::new(kind, element.text())).filter(|object| !object.id.is_empty())
    }

    /// Returns the reference as an element of this name.
    pub(crate) fn to_element(&self, name: &str) -> Element {
        Element::leaf(name, self.id.as_str()).attribute("type", &self.kind)
    }
}

impl fmt::Display for ManagedObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind, self.id)
    }
}

/// Returns the call of a method.
pub(crate) fn method(name: &str, this: &ManagedObject, arguments: impl IntoIterator<Item = Element>) -> Element {
    Element::new(name).attribute("xmlns", "urn:vim25").with(this.to_element("_this")).with_all(arguments)
}

/// Returns the envelope of a message.
pub(crate) fn envelope(header: Option<Element>, body: Element) -> Bytes {
    let envelope = Element::new("soapenv:Envelope")
        .attribute("xmlns:soapenv", "http://schemas.xmlsoap.org/soap/envelope/")
        .attribute("xmlns:xsi", "http://www.w3.org/2001/XMLSchema-instance")
        .attribute("xmlns:xsd", "http://www.w3.org/2001/XMLSchema")
        .with_all(header.map(|header| Element::new("soapenv:Header").with(header)))
        .with(Element::new("soapenv:Body").with(body));
    Bytes::from(format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>{envelope}"))
}

/// Returns the element `METHODResponse` of a response.
pub(crate) fn response(method: &str, response: &ApiResponse) -> Result<Element> {
    let envelope = response.decoded(Element::parse(response.text()?))?;
    result_of(method, envelope, response)
}

/// Does the same with a page of objects, and passes each object to `take`: a page may have many megabytes.
pub(crate) fn page(method: &str, response: &ApiResponse, take: impl FnMut(Element)) -> Result<Element> {
    let envelope = Element::parse_in_parts(response.text()?, ["returnval", "objects"], take);
    result_of(method, response.decoded(envelope)?, response)
}

fn result_of(method: &str, envelope: Element, response: &ApiResponse) -> Result<Element> {
    let name = format!("{method}Response");
    let found = envelope.into_child("Body").and_then(|body| body.into_child(&name));
    response.decoded(found.ok_or_else(|| format!("no element {name}")))
}
