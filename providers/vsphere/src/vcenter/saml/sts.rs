//! STS, the service of vCenter that issues SAML tokens: where it is, and the request for a token.

use bowline_cloud::{Effect, Error, ErrorKind, Result};
use bowline_http::{Api, ErrorDecoder, ErrorResponse};
use http::{HeaderValue, Method, Uri};
use jiff::{SignedDuration, Timestamp};
use quick_xml::Reader;
use quick_xml::events::Event;

use super::identity::Identity;
use super::message::{self, KeyReference, RSA_SHA256};
use super::{LOG_IN, signing_failed};
use crate::soap::{self, Element, code};
use crate::vcenter::SOAP_ACTION;

const TRUST: &str = "http://docs.oasis-open.org/ws-sx/ws-trust/200512";
const SAML2: &str = "urn:oasis:names:tc:SAML:2.0:assertion";

/// The action without quotes: vCenter accepts it with and without them, older simulators only without.
const ISSUE: HeaderValue = HeaderValue::from_static("http://docs.oasis-open.org/ws-sx/ws-trust/200512/RST/Issue");

const LOOKUP: HeaderValue = HeaderValue::from_static("urn:lookup/2.0");

/// Lifetime of a token. It is used at once, and the session does not end with it.
const LIFETIME: SignedDuration = SignedDuration::from_mins(30);

/// URL of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Endpoint {
    base: String,
    path: Vec<String>,
}

/// Decodes faults of the STS.
struct Faults;

/// Requests a token, and returns the assertion as the STS wrote it.
pub(super) async fn issue(api: &Api, base: &str, identity: &Identity) -> Result<String> {
    let default = Endpoint { base: base.to_owned(), path: vec!["sts".to_owned(), "STSService".to_owned()] };
    let mut unreachable = None;
    for endpoint in find(api).await.into_iter().filter(|found| *found != default).chain([default.clone()]) {
        match request(api, &endpoint, identity).await {
            // The name of the vCenter in its lookup service may be unknown here, if an address is configured.
            Err(error) if error.status().is_none() => unreachable = unreachable.or(Some(error)),
            outcome => return outcome,
        }
    }
    Err(unreachable.unwrap_or_else(|| Error::new(ErrorKind::Unexpected, LOG_IN, "no STS")))
}

// ---- lookup service

/// Finds the STS with the lookup service. Without an answer, the default is used.
async fn find(api: &Api) -> Option<Endpoint> {
    match look_up(api).await {
        Ok(endpoint) => endpoint,
        Err(error) => {
            tracing::debug!(%error, "no STS found with the lookup service; the default path on the vCenter is used");
            None
        }
    }
}

async fn look_up(api: &Api) -> Result<Option<Endpoint>> {
    let this = Element::leaf("_this", "ServiceInstance").attribute("type", "LookupServiceInstance");
    let content = call_lookup_service(api, "RetrieveServiceContent", vec![this]).await?;
    let registration = content.child("returnval").and_then(|content| content.child("serviceRegistration"));
    let Some(registration) = registration.and_then(soap::ManagedObject::of) else { return Ok(None) };
    let typed = |name: &str, fields: [(&str, &str); 2]| {
        Element::new(name).with_all(fields.map(|(name, value)| Element::leaf(name, value)))
    };
    let filter = Element::new("filterCriteria")
        .with(typed("serviceType", [("product", "com.vmware.cis"), ("type", "cs.identity")]))
        .with(typed("endpointType", [("protocol", "wsTrust"), ("type", "com.vmware.cis.cs.identity.sso")]));
    let list = call_lookup_service(api, "List", vec![registration.to_element("_this"), filter]).await?;
    let mut endpoints = list.children("returnval").flat_map(|service| service.children("serviceEndpoints"));
    Ok(endpoints.find_map(|endpoint| Endpoint::parse(endpoint.child_text("url")?)))
}

async fn call_lookup_service(api: &Api, name: &'static str, arguments: Vec<Element>) -> Result<Element> {
    let body = Element::new(name).attribute("xmlns", "urn:lookup").with_all(arguments);
    let call = api.call(name, Method::POST, &["lookupservice", "sdk"]).effect(Effect::Read);
    let call = call.header(SOAP_ACTION, LOOKUP).body(soap::CONTENT_TYPE, soap::envelope(None, body));
    soap::response(name, &call.send().await?)
}

impl Endpoint {
    fn parse(url: &str) -> Option<Endpoint> {
        let uri: Uri = url.trim().parse().ok().filter(|uri: &Uri| uri.scheme_str() == Some("https"))?;
        let path = uri.path().split('/').filter(|segment| !segment.is_empty()).map(str::to_owned).collect();
        Some(Endpoint { base: format!("https://{}", uri.authority()?), path })
    }
}

// ---- token

async fn request(api: &Api, endpoint: &Endpoint, identity: &Identity) -> Result<String> {
    const NAME: &str = "IssueToken";
    let signature = message::new_id();
    let body = request_body(&signature, Timestamp::now());
    let message = message::signed(identity, &KeyReference::Certificate, body, Some(&signature));
    let api = api.clone().base(&endpoint.base).errors(Faults);
    let path: Vec<_> = endpoint.path.iter().map(String::as_str).collect();
    let call = api.call(NAME, Method::POST, &path).effect(Effect::Read).header(SOAP_ACTION, ISSUE);
    let response = call.body(soap::CONTENT_TYPE, message.map_err(signing_failed)?).send().await?;
    let assertion = inner_xml(response.text()?, "RequestedSecurityToken");
    // The error must not quote the response, which could have a token in it.
    assertion.ok_or_else(|| Error::new(ErrorKind::Unexpected, NAME, "the response of the STS has no token"))
}

/// Returns the request for a token that can be used only with the key of the signature.
fn request_body(signature: &str, now: Timestamp) -> Element {
    let end = now.saturating_add(LIFETIME).unwrap_or(now);
    let lifetime = Element::new("Lifetime")
        .with(Element::leaf("wsu:Created", message::time(now)))
        .with(Element::leaf("wsu:Expires", message::time(end)));
    Element::new("RequestSecurityToken")
        .attribute("xmlns", TRUST)
        .with(Element::leaf("TokenType", SAML2))
        .with(Element::leaf("RequestType", format!("{TRUST}/Issue")))
        .with(lifetime)
        .with(Element::new("Renewing").attribute("Allow", "false").attribute("OK", "false"))
        .with(Element::leaf("Delegatable", "true"))
        .with(Element::leaf("KeyType", format!("{TRUST}/PublicKey")))
        .with(Element::leaf("SignatureAlgorithm", RSA_SHA256))
        .with(Element::new("UseKey").attribute("Sig", signature))
}

/// Returns the content of the first element of this local name, unchanged: a signature in it must stay valid.
fn inner_xml(text: &str, name: &str) -> Option<String> {
    let mut reader = Reader::from_str(text);
    loop {
        match reader.read_event().ok()? {
            Event::Start(start) if start.local_name().as_ref() == name => {
                let content = reader.read_text(start.name()).ok()?.into_inner();
                return Some(content.trim().to_owned()).filter(|content| !content.is_empty());
            }
            Event::Eof => return None,
            _ => {}
        }
    }
}

// ---- faults

impl ErrorDecoder for Faults {
    fn decode(&self, response: &ErrorResponse<'_>) -> Error {
        let envelope = response.body().and_then(|body| Element::parse(body).ok());
        let fault = envelope.as_ref().and_then(|envelope| envelope.child("Body")?.child("Fault"));
        let Some(fault) = fault else { return soap::Faults.decode(response) };
        let name = fault.child_text("faultcode").unwrap_or_default().trim();
        let name = name.rsplit_once(':').map_or(name, |(_, local)| local);
        let text = fault.child_text("faultstring").unwrap_or_default().trim();
        let error = |kind, message: String| response.to_error_with(kind, message).outcome_known();
        match name {
            // A login with other credentials may succeed.
            "FailedAuthentication"
            | "InvalidSecurityToken"
            | "FailedCheck"
            | "InvalidSecurity"
            | "UnsupportedSecurityToken" => {
                error(ErrorKind::Unauthenticated, format!("the STS rejected the certificate: {text} ({name})"))
                    .with_code(code::INVALID_LOGIN)
            }
            "InvalidTimeRange" | "ExpiredData" | "MessageExpired" => {
                let advice = "compare the clock of this machine with that of vCenter";
                error(ErrorKind::Unauthenticated, format!("the STS rejected the request: {text} ({name}); {advice}"))
                    .with_code(name)
            }
            _ => error(ErrorKind::Unexpected, format!("the STS rejected the request: {text} ({name})")).with_code(name),
        }
    }

    fn tls_advice(&self) -> &'static str {
        soap::Faults.tls_advice()
    }
}
