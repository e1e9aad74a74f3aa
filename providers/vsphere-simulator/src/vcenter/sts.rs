//! Login with a certificate: the lookup service, the token service (STS), and the tokens in REST requests.
//!
//! A token is issued to the holder of the certificate in the options. Signatures are not verified.

use std::io::Read as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bowline_simulator::{Call, Reply};
use flate2::read::GzDecoder;
use quick_xml::escape::escape;

use super::simulator::State;
use super::soap::envelope;
use super::xml::Element;

/// Maximum size of a token.
const LARGEST: u64 = 64 << 10;

/// Answers the lookup service: where the STS is.
pub(super) fn look_up(call: &Call) -> Reply {
    let request = std::str::from_utf8(&call.body).ok().and_then(Element::parse);
    let request = request.as_ref().and_then(|envelope| envelope.child("Body")?.children.first());
    let (name, returned) = match request.map(|request| request.name.as_str()) {
        Some("RetrieveServiceContent") => (
            "RetrieveServiceContent",
            "<lookupService type=\"LookupLookupService\">lookupService</lookupService>\
             <serviceRegistration type=\"LookupServiceRegistration\">ServiceRegistration</serviceRegistration>"
                .to_owned(),
        ),
        Some("List") => ("List", service(&format!("{}/sts/STSService/vsphere.local", call.origin))),
        _ => return Reply::xml(500, fault("ServerFaultCode", "unknown method")),
    };
    let response = format!("<{name}Response xmlns=\"urn:lookup\"><returnval>{returned}</returnval></{name}Response>");
    Reply::xml(200, envelope(&response))
}

fn service(url: &str) -> String {
    format!(
        "<serviceVersion>2.0</serviceVersion><serviceType><product>com.vmware.cis</product><type>cs.identity</type></serviceType>\
         <serviceEndpoints><url>{}</url><endpointType><protocol>wsTrust</protocol><type>com.vmware.cis.cs.identity.sso</type>\
         </endpointType></serviceEndpoints>",
        escape(url)
    )
}

/// Answers the STS: issues a token.
pub(super) fn issue(state: &mut State, call: &Call) -> Reply {
    let request = std::str::from_utf8(&call.body).ok().and_then(Element::parse);
    let Some(request) = request.filter(|request| request.find("RequestSecurityToken").is_some()) else {
        return Reply::xml(500, fault("ns0:InvalidRequest", "The request is not valid"));
    };
    let shown = request.find("BinarySecurityToken").map(Element::own_text).unwrap_or_default();
    let known = state.options.certificate.as_deref().unwrap_or_default();
    if shown.is_empty() || bare(shown) != bare(known) || request.find("SignatureValue").is_none() {
        return Reply::xml(500, fault("ns0:FailedAuthentication", "Invalid credentials"));
    }
    let (id, user, now) = (format!("_{}", state.ids.uuid()), state.options.user.clone(), state.now());
    let assertion = format!(
        "<saml2:Assertion xmlns:saml2=\"urn:oasis:names:tc:SAML:2.0:assertion\" ID=\"{id}\" IssueInstant=\"{now}\" Version=\"2.0\">\
         <saml2:Issuer>{}/websso/SAML2/Metadata/vsphere.local</saml2:Issuer>\
         <saml2:Subject><saml2:NameID>{}</saml2:NameID></saml2:Subject></saml2:Assertion>",
        escape(&call.origin),
        escape(&user)
    );
    state.tokens.insert(id, user);
    let trust = "http://docs.oasis-open.org/ws-sx/ws-trust/200512";
    Reply::xml(
        200,
        envelope(&format!(
            "<wst:RequestSecurityTokenResponseCollection xmlns:wst=\"{trust}\"><wst:RequestSecurityTokenResponse>\
             <wst:RequestedSecurityToken>{assertion}</wst:RequestedSecurityToken></wst:RequestSecurityTokenResponse>\
             </wst:RequestSecurityTokenResponseCollection>"
        )),
    )
}

/// Whether the header `Authorization` of a REST request has a token of the STS.
pub(super) fn accepts(state: &State, authorization: &str) -> bool {
    let token = || {
        let encoded = authorization.strip_prefix("SIGN ")?.split_once("token=\"")?.1.split('"').next()?;
        let compressed = STANDARD.decode(encoded).ok()?;
        let mut text = String::new();
        GzDecoder::new(compressed.as_slice()).take(LARGEST).read_to_string(&mut text).ok()?;
        Element::parse(&text)
    };
    token().is_some_and(|assertion| assertion.attribute("ID").is_some_and(|id| state.tokens.contains_key(id)))
}

/// Base64 of a certificate, without the lines of PEM.
fn bare(certificate: &str) -> String {
    certificate.lines().filter(|line| !line.starts_with('-')).flat_map(str::split_whitespace).collect()
}

fn fault(code: &str, text: &str) -> String {
    envelope(&format!(
        "<soapenv:Fault xmlns:ns0=\"http://docs.oasis-open.org/ws-sx/ws-trust/200512\"><faultcode>{code}</faultcode>\
         <faultstring>{text}</faultstring></soapenv:Fault>"
    ))
}
