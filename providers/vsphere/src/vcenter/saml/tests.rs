//! Tests of logins with a certificate against an in-process vCenter.

use std::io::Read as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bowline_cloud::{CallPolicy, Calls};
use bowline_http::{Client, RequestError};
use http::{Method, Request, Response};
use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use ring::digest::{SHA256, digest};
use ring::signature::{RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};

use super::*;

const KEY: &str = include_str!("testdata/key.pem");
const BASE: &str = "https://vc.example.com:443";

/// Assertion with a signature: every character must stay as it is.
const ASSERTION: &str = "<saml2:Assertion xmlns:saml2=\"urn:oasis:names:tc:SAML:2.0:assertion\" ID='_a-1'><saml2:Issuer>a &amp; \
    b</saml2:Issuer>\n <ds:Signature xmlns:ds=\"http://www.w3.org/2000/09/xmldsig#\"/></saml2:Assertion>";

fn certificate() -> String {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2120, 1, 1));
    params.self_signed(&KeyPair::from_pem(KEY).unwrap()).unwrap().pem()
}

fn identity(certificate: &str, key: &str, now: &str) -> std::result::Result<Identity, String> {
    Identity::from_pem(certificate, &key.into(), now.parse().unwrap()).map_err(|error| error.to_string())
}

fn token() -> Token {
    let identity = identity(&certificate(), KEY, "2026-01-01T00:00:00Z").unwrap();
    Token { identity, assertion: ASSERTION.into(), id: "_a-1".to_owned() }
}

// ---- in-process vCenter

type Answer = std::result::Result<(u16, String), RequestError>;

/// A vCenter that answers by URL, and its requests.
struct VcenterStub {
    requests: Arc<Mutex<Vec<(String, String, String)>>>,
    api: Api,
}

impl VcenterStub {
    fn new(answer: impl Fn(&str, &str) -> Answer + Send + Sync + 'static) -> VcenterStub {
        let requests = Arc::new(Mutex::new(Vec::new()));
        let recorded = requests.clone();
        let handler = move |request: Request<Bytes>| {
            let url = request.uri().to_string();
            let body = String::from_utf8(request.body().to_vec()).unwrap();
            let action = request.headers().get("soapaction").map_or("", |action| action.to_str().unwrap()).to_owned();
            let answer = answer(&url, &body);
            recorded.lock().unwrap().push((url, action, body));
            async move {
                let (status, body) = answer?;
                Ok(Response::builder().status(status).body(Bytes::from(body)).unwrap())
            }
        };
        let client = Client::in_process(Arc::new(handler), Duration::from_secs(5));
        let api = Api::new(client, &Calls::new(CallPolicy::default()), "vcenter").base(BASE).errors(soap::Faults);
        VcenterStub { requests, api }
    }

    async fn issue(&self) -> Result<Token> {
        issue(&self.api, BASE, &certificate(), &KEY.into()).await
    }

    /// Returns the distinct URLs in the order of their first request.
    fn urls(&self) -> Vec<String> {
        let mut urls: Vec<_> = self.requests.lock().unwrap().iter().map(|(url, ..)| url.clone()).collect();
        urls.dedup();
        urls
    }
}

fn envelope(body: &str) -> String {
    format!("<S:Envelope xmlns:S='http://schemas.xmlsoap.org/soap/envelope/'><S:Body>{body}</S:Body></S:Envelope>")
}

fn fault(code: &str, text: &str) -> Answer {
    let body = format!("<S:Fault><faultcode>ns0:{code}</faultcode><faultstring>{text}</faultstring></S:Fault>");
    Ok((500, envelope(&body)))
}

fn issued() -> Answer {
    let token = format!("<w:RequestedSecurityToken>{ASSERTION}</w:RequestedSecurityToken>");
    let response = format!("<w:RequestSecurityTokenResponse>{token}</w:RequestSecurityTokenResponse>");
    let collection = "RequestSecurityTokenResponseCollection";
    Ok((200, envelope(&format!("<w:{collection} xmlns:w='urn:w'>{response}</w:{collection}>"))))
}

/// Answer of the lookup service, with the STS at this URL.
fn lookup_service(body: &str, url: &str) -> Answer {
    let (name, value) = match body.contains("<RetrieveServiceContent ") {
        true => {
            let reference =
                "<serviceRegistration type='LookupServiceRegistration'>Registration-1</serviceRegistration>";
            ("RetrieveServiceContentResponse", format!("<returnval>{reference}</returnval>"))
        }
        false => {
            let endpoint = format!("<serviceEndpoints><url>{url}</url></serviceEndpoints>");
            ("ListResponse", format!("<returnval><serviceVersion>2.0</serviceVersion>{endpoint}</returnval>"))
        }
    };
    Ok((200, envelope(&format!("<{name} xmlns='urn:lookup'>{value}</{name}>"))))
}

// ---- signatures

/// Returns the first element of this full name, as it is written.
fn element<'a>(text: &'a str, name: &str) -> &'a str {
    let start = text.find(&format!("<{name} ")).or_else(|| text.find(&format!("<{name}>"))).unwrap();
    let end = format!("</{name}>");
    &text[start..start + text[start..].find(&end).unwrap() + end.len()]
}

/// Verifies both digests and the signature of a message.
fn verify(message: &str, public_key: &[u8]) {
    let info = element(message, "ds:SignedInfo");
    let parsed = Element::parse(info).unwrap();
    let references: Vec<_> = parsed.children("Reference").collect();
    assert_eq!(references.len(), 2);
    for (reference, name) in references.iter().zip(["wsu:Timestamp", "soapenv:Body"]) {
        let signed = element(message, name);
        let id = Element::parse(signed).unwrap().attribute_value("wsu:Id").unwrap().to_owned();
        assert_eq!(reference.attribute_value("URI").unwrap(), format!("#{id}"));
        assert_eq!(reference.child_text("DigestValue").unwrap(), STANDARD.encode(digest(&SHA256, signed.as_bytes())));
    }
    let value = Element::parse(element(message, "ds:SignatureValue")).unwrap();
    let value = STANDARD.decode(value.text()).unwrap();
    UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, public_key).verify(info.as_bytes(), &value).unwrap();
}

#[test]
fn the_login_message_has_the_token_unchanged_and_a_valid_signature() {
    let token = token();
    let message = token.login(&ManagedObject::new("SessionManager", "SessionManager")).unwrap();
    let message = std::str::from_utf8(&message).unwrap();
    verify(message, token.identity.public_key());
    assert_eq!(message.matches(ASSERTION).count(), 1);
    let envelope = Element::parse(message).unwrap();
    let login = envelope.child("Body").unwrap().child("LoginByToken").unwrap();
    assert_eq!((login.child_text("_this"), login.child_text("locale")), (Some("SessionManager"), Some("en_US")));
    let security = envelope.child("Header").unwrap().child("Security").unwrap();
    let key = security.child("Signature").unwrap().child("KeyInfo").unwrap().child("SecurityTokenReference").unwrap();
    assert_eq!(key.child_text("KeyIdentifier"), Some("_a-1"));
}

#[test]
fn the_header_of_the_rest_login_has_the_token_and_a_valid_signature() {
    let token = token();
    let sign = || token.rest_headers("https://VC.example.com:8443", &Method::POST, "/rest/session").unwrap();
    let [(_, host), (_, header)] = sign();
    assert_eq!(host, "VC.example.com:8443");
    assert!(header.is_sensitive());
    let text = header.to_str().unwrap().strip_prefix("SIGN ").unwrap();
    let value = |name: &str| {
        let start = text.find(&format!("{name}=\"")).unwrap() + name.len() + 2;
        text[start..].split('"').next().unwrap()
    };
    let decode = |name: &str| STANDARD.decode(value(name)).unwrap();
    let mut assertion = String::new();
    flate2::read::GzDecoder::new(&*decode("token")).read_to_string(&mut assertion).unwrap();
    assert_eq!(assertion, ASSERTION);
    let hash = digest(&SHA256, b"");
    assert_eq!(decode("bodyhash"), hash.as_ref());
    let lines = format!("{}\nPOST\n/rest/session\nvc.example.com\n8443\n", value("nonce"));
    let signed = [lines.as_bytes(), hash.as_ref(), b"\n"].concat();
    let key = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, token.identity.public_key());
    key.verify(&signed, &decode("signature")).unwrap();
    assert_ne!(sign()[1].1, header, "the nonce must change");
}

#[test]
fn debug_output_hides_the_token() {
    assert_eq!(format!("{:?}", token()), "Token(..)");
}

// ---- STS

/// VS-45
#[tokio::test(start_paused = true)]
async fn a_token_is_requested_from_the_sts_of_the_lookup_service() {
    const STS: &str = "https://psc.example.com/sts/STSService/vsphere.local";
    let vcenter = VcenterStub::new(|url, body| if url == STS { issued() } else { lookup_service(body, STS) });
    let token = vcenter.issue().await.unwrap();
    assert_eq!((token.assertion.reveal(), token.id.as_str()), (ASSERTION, "_a-1"));
    assert_eq!(vcenter.urls(), [&format!("{BASE}/lookupservice/sdk"), STS]);
    let requests = vcenter.requests.lock().unwrap();
    assert!(requests[1].2.contains("<_this type=\"LookupServiceRegistration\">Registration-1</_this>"));
    let (_, action, message) = requests.last().unwrap();
    assert_eq!(action, "http://docs.oasis-open.org/ws-sx/ws-trust/200512/RST/Issue");
    verify(message, token.identity.public_key());
}

#[tokio::test(start_paused = true)]
async fn the_request_for_a_token_names_its_signature_and_the_certificate() {
    let vcenter =
        VcenterStub::new(|url, _| if url.ends_with("/sts/STSService") { issued() } else { Ok((404, String::new())) });
    let token = vcenter.issue().await.unwrap();
    let requests = vcenter.requests.lock().unwrap();
    let envelope = Element::parse(&requests.last().unwrap().2).unwrap();
    let security = envelope.child("Header").unwrap().child("Security").unwrap();
    let (signature, certificate) =
        (security.child("Signature").unwrap(), security.child("BinarySecurityToken").unwrap());
    assert_eq!(certificate.text(), STANDARD.encode(&token.identity.certificate));
    let key = signature.child("KeyInfo").unwrap().child("SecurityTokenReference").unwrap().child("Reference").unwrap();
    let id = certificate.attribute_value("wsu:Id").unwrap();
    assert_eq!(key.attribute_value("URI").unwrap(), format!("#{id}"));
    let request = envelope.child("Body").unwrap().child("RequestSecurityToken").unwrap();
    assert_eq!(request.child("UseKey").unwrap().attribute_value("Sig"), signature.attribute_value("Id"));
    assert_eq!(request.child_text("Delegatable"), Some("true"));
    assert_eq!(request.child("Renewing").unwrap().attribute_value("Allow"), Some("false"));
    let lifetime = request.child("Lifetime").unwrap();
    let time = |name| lifetime.child_text(name).unwrap().parse::<Timestamp>().unwrap();
    assert_eq!((time("Expires") - time("Created")).total(jiff::Unit::Minute).unwrap(), 30.0);
}

#[tokio::test(start_paused = true)]
async fn without_a_lookup_service_the_default_path_is_used() {
    let vcenter =
        VcenterStub::new(
            |url, _| if url == format!("{BASE}/sts/STSService") { issued() } else { Ok((404, String::new())) },
        );
    vcenter.issue().await.unwrap();
    assert_eq!(vcenter.urls(), [format!("{BASE}/lookupservice/sdk"), format!("{BASE}/sts/STSService")]);
}

#[tokio::test(start_paused = true)]
async fn the_default_path_is_used_if_the_sts_of_the_lookup_service_is_unreachable() {
    const STS: &str = "https://unknown.example.com/sts/STSService/vsphere.local";
    let refused = || Err(RequestError::Connect("unknown.example.com: no such host".to_owned()));
    let vcenter = VcenterStub::new(move |url, body| match url {
        STS => refused(),
        url if url.ends_with("/sts/STSService") => issued(),
        _ => lookup_service(body, STS),
    });
    vcenter.issue().await.unwrap();
    let vcenter = VcenterStub::new(move |url, body| match url.contains("/sts/") {
        true => refused(),
        false => lookup_service(body, STS),
    });
    let error = vcenter.issue().await.unwrap_err();
    assert!(error.message().contains(STS), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_url_without_tls_from_the_lookup_service_is_not_used() {
    let vcenter = VcenterStub::new(|url, body| match url.contains("/sts/") {
        true => issued(),
        false => lookup_service(body, "http://psc.example.com/sts/STSService"),
    });
    vcenter.issue().await.unwrap();
    assert_eq!(vcenter.urls().last().unwrap(), &format!("{BASE}/sts/STSService"));
}

#[tokio::test(start_paused = true)]
async fn a_fault_of_the_sts_has_its_reason_and_advice() {
    let rejected = (ErrorKind::Unauthenticated, Some("InvalidLogin"));
    for (code, expected, advice) in [
        ("FailedAuthentication", rejected, "rejected the certificate"),
        ("InvalidSecurityToken", rejected, "rejected the certificate"),
        ("InvalidTimeRange", (ErrorKind::Unauthenticated, Some("InvalidTimeRange")), "compare the clock"),
        ("RequestFailed", (ErrorKind::Unexpected, Some("RequestFailed")), "rejected the request"),
    ] {
        let vcenter = VcenterStub::new(move |_, _| fault(code, "because"));
        let error = vcenter.issue().await.unwrap_err();
        assert_eq!((error.kind(), error.code()), expected, "{error}");
        assert!(error.message().contains(&format!("because ({code})")) && error.message().contains(advice), "{error}");
        let is_sts = |url: &&String| url.contains("/sts/");
        let requests = vcenter.requests.lock().unwrap();
        assert_eq!(requests.iter().map(|(url, ..)| url).filter(is_sts).count(), 1, "{code}: the account may be locked");
    }
}

/// The response may have a token in it.
#[tokio::test(start_paused = true)]
async fn a_response_without_a_usable_token_is_an_error_that_does_not_quote_it() {
    let element = "RequestedSecurityToken";
    for token in ["", "<a>secret</a>", "secret"] {
        let body = envelope(&format!("<w:{element}>{token}</w:{element}>"));
        let vcenter = VcenterStub::new(move |_, _| Ok((200, body.clone())));
        let error = vcenter.issue().await.unwrap_err();
        assert!(error.message().contains("token") && !error.message().contains("secret"), "{error}");
    }
}

// ---- certificate and key

#[test]
fn a_certificate_is_used_only_while_it_is_valid() {
    let check = |now: &str| identity(&certificate(), KEY, now).map(drop);
    assert_eq!(check("2020-01-02T00:00:00Z"), Ok(()));
    assert_eq!(check("2119-12-31T00:00:00Z"), Ok(()));
    let early = check("2019-12-31T00:00:00Z").unwrap_err();
    assert!(early.contains("valid only from 2020-01-01T00:00:00Z on"), "{early}");
    let late = check("2120-01-02T00:00:00Z").unwrap_err();
    assert!(late.contains("valid only until 2120-01-01T00:00:00Z"), "{late}");
}

/// VS-45
#[test]
fn an_unusable_certificate_or_key_is_an_error_that_quotes_neither() {
    let elliptic = KeyPair::generate().unwrap();
    let other = CertificateParams::new(Vec::new()).unwrap().self_signed(&elliptic).unwrap().pem();
    let broken = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n";
    let encrypted = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIB\n-----END ENCRYPTED PRIVATE KEY-----\n";
    for (certificate, key, reason) in [
        ("-----BEGIN CERTIFICATE-----\n", KEY, "not valid PEM"),
        (KEY, KEY, "something else"),
        (broken, KEY, "not valid X.509"),
        (&certificate(), "", "no private key found"),
        (&certificate(), encrypted, "without a pass phrase"),
        (&certificate(), &elliptic.serialize_pem(), "not an RSA key"),
        (&other, KEY, "another certificate"),
    ] {
        let error = identity(certificate, key, "2026-01-01T00:00:00Z").map(drop).unwrap_err();
        assert!(error.contains(reason) && !error.contains("MI"), "{error}");
    }
}
