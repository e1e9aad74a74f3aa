//! SOAP messages with a signature: WS-Security 1.0 with XML signatures over the body and a time stamp.
//!
//! A signature covers the canonical form of an element (exclusive XML canonicalization). Every signed element here is written in that
//! form, so no canonicalizer is needed:
//!
//! * it declares the namespaces of its own prefixes itself, whatever its parents declare, and its children declare none of them again;
//! * declarations come before attributes, both in alphabetical order; no element is written as an empty tag;
//! * no text or attribute has a character that must be escaped: they are IDs, times, Base64, and URLs without parameters.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bowline_http::sign::SignError;
use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use ring::digest::{SHA256, digest};
use uuid::Uuid;

use super::identity::Identity;
use crate::soap::Element;

const SOAP: &str = "http://schemas.xmlsoap.org/soap/envelope/";
const WSSE: &str = "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-wssecurity-secext-1.0.xsd";
const WSSE11: &str = "http://docs.oasis-open.org/wss/oasis-wss-wssecurity-secext-1.1.xsd";
const WSU: &str = "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-wssecurity-utility-1.0.xsd";
const DSIG: &str = "http://www.w3.org/2000/09/xmldsig#";
const EXCLUSIVE: &str = "http://www.w3.org/2001/10/xml-exc-c14n#";
pub(super) const RSA_SHA256: &str = "http://www.w3.org/2001/04/xmldsig-more#rsa-sha256";
const DIGEST_SHA256: &str = "http://www.w3.org/2001/04/xmlenc#sha256";
const BASE64: &str = "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-soap-message-security-1.0#Base64Binary";
const X509: &str = "http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-x509-token-profile-1.0#X509v3";
const SAML2: &str = "http://docs.oasis-open.org/wss/oasis-wss-saml-token-profile-1.1#SAMLV2.0";
const SAML_ID: &str = "http://docs.oasis-open.org/wss/oasis-wss-saml-token-profile-1.1#SAMLID";

/// Time for which a message is valid. The STS tolerates clocks that differ by some minutes more.
const VALIDITY: SignedDuration = SignedDuration::from_mins(5);

/// Token in the message that names the key of the signature.
pub(super) enum KeyReference<'a> {
    /// The certificate itself.
    Certificate,
    /// A SAML assertion.
    Assertion { id: &'a str, token: &'a str },
}

/// Returns a message with the body, signed now. `signature` is the ID of the signature, if the body refers to it.
pub(super) fn signed(
    identity: &Identity,
    key: &KeyReference<'_>,
    body: Element,
    signature: Option<&str>,
) -> Result<Bytes, SignError> {
    let (stamp_id, body_id) = (new_id(), new_id());
    let stamp = time_stamp(&stamp_id, Timestamp::now()).to_string();
    let body = Element::new("soapenv:Body")
        .attribute("xmlns:soapenv", SOAP)
        .attribute("xmlns:wsu", WSU)
        .attribute("wsu:Id", &body_id)
        .with(body)
        .to_string();
    let (token, key_info) = token_and_key_info(identity, key);
    let info = signed_info([(&stamp_id, &stamp), (&body_id, &body)]).to_string();
    let value = Element::leaf("ds:SignatureValue", STANDARD.encode(identity.sign(info.as_bytes())?));
    let id = signature.map(|id| format!(" Id=\"{id}\"")).unwrap_or_default();
    let signature = format!("<ds:Signature xmlns:ds=\"{DSIG}\"{id}>{info}{value}{key_info}</ds:Signature>");
    Ok(Bytes::from(format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?><soapenv:Envelope xmlns:soapenv=\"{SOAP}\"><soapenv:Header>\
         <wsse:Security xmlns:wsse=\"{WSSE}\" xmlns:wsu=\"{WSU}\">{stamp}{token}{signature}</wsse:Security>\
         </soapenv:Header>{body}</soapenv:Envelope>"
    )))
}

/// Returns a new ID. The STS requires that it begins with an underscore.
pub(super) fn new_id() -> String {
    format!("_{}", Uuid::new_v4())
}

/// Formats a time as the STS does.
pub(super) fn time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}

fn time_stamp(id: &str, now: Timestamp) -> Element {
    Element::new("wsu:Timestamp")
        .attribute("xmlns:wsu", WSU)
        .attribute("wsu:Id", id)
        .with(Element::leaf("wsu:Created", time(now)))
        .with(Element::leaf("wsu:Expires", time(now.saturating_add(VALIDITY).unwrap_or(now))))
}

/// Returns the token as XML, and the element that names it as the key of the signature.
fn token_and_key_info(identity: &Identity, key: &KeyReference<'_>) -> (String, Element) {
    let reference = Element::new("wsse:SecurityTokenReference");
    let (token, reference) = match key {
        KeyReference::Certificate => {
            let id = new_id();
            let token = Element::leaf("wsse:BinarySecurityToken", STANDARD.encode(&identity.certificate))
                .attribute("EncodingType", BASE64)
                .attribute("ValueType", X509)
                .attribute("wsu:Id", &id);
            let target = Element::new("wsse:Reference").attribute("URI", &format!("#{id}"));
            (token.to_string(), reference.with(target.attribute("ValueType", X509)))
        }
        KeyReference::Assertion { id, token } => {
            let target = Element::leaf("wsse:KeyIdentifier", *id).attribute("ValueType", SAML_ID);
            let reference = reference.attribute("xmlns:wsse11", WSSE11).attribute("wsse11:TokenType", SAML2);
            ((*token).to_owned(), reference.with(target))
        }
    };
    (token, Element::new("ds:KeyInfo").with(reference))
}

/// Returns the signed part of a signature, with the digests of these elements.
fn signed_info<'a>(elements: impl IntoIterator<Item = (&'a String, &'a String)>) -> Element {
    let references = elements.into_iter().map(|(id, canonical)| {
        let transform = Element::new("ds:Transform").attribute("Algorithm", EXCLUSIVE);
        Element::new("ds:Reference")
            .attribute("URI", &format!("#{id}"))
            .with(Element::new("ds:Transforms").with(transform))
            .with(Element::new("ds:DigestMethod").attribute("Algorithm", DIGEST_SHA256))
            .with(Element::leaf("ds:DigestValue", STANDARD.encode(digest(&SHA256, canonical.as_bytes()))))
    });
    Element::new("ds:SignedInfo")
        .attribute("xmlns:ds", DSIG)
        .with(Element::new("ds:CanonicalizationMethod").attribute("Algorithm", EXCLUSIVE))
        .with(Element::new("ds:SignatureMethod").attribute("Algorithm", RSA_SHA256))
        .with_all(references)
}
