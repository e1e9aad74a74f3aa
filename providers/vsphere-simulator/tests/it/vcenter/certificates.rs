//! Logins with a certificate.

use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bowline_vsphere_simulator::vcenter::Options;
use http::Request;

use crate::vcenter::client::{Answer, Client, envelope, fault, texts};

const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\nMIIB\nAAAA\n-----END CERTIFICATE-----\n";

async fn post(client: &Client, path: &str, body: String) -> Answer {
    client.send(Request::post(format!("https://vc.test/{path}")).body(body.into()).unwrap()).await
}

async fn issue(client: &Client, certificate: &str) -> Answer {
    let token = format!("<BinarySecurityToken>{certificate}</BinarySecurityToken><SignatureValue>x</SignatureValue>");
    let body = envelope("<RequestSecurityToken><KeyType>PublicKey</KeyType></RequestSecurityToken>", &token);
    post(client, "sts/STSService/vsphere.local", body).await
}

#[tokio::test]
async fn the_lookup_service_has_the_url_of_the_sts() {
    let client = Client::anonymous(Options::default());
    let content = post(&client, "lookupservice/sdk", envelope("<RetrieveServiceContent/>", "")).await;
    assert_eq!(texts(&content.1, "serviceRegistration"), ["ServiceRegistration"]);
    let (_, list) = post(&client, "lookupservice/sdk", envelope("<List/>", "")).await;
    assert_eq!(texts(&list, "url"), ["https://vc.test/sts/STSService/vsphere.local"]);
}

#[tokio::test]
async fn the_token_of_a_known_certificate_opens_sessions() {
    let client = Client::anonymous(Options { certificate: Some(CERTIFICATE.to_owned()), ..Options::default() });
    let (status, body) = issue(&client, "MIIBAAAA").await;
    assert_eq!(status, 200, "{body}");
    let assertion = texts(&body, "wst:RequestedSecurityToken")[0];
    let mut other = client.another();
    assert_eq!(other.log_in_with("LoginByToken", "", assertion).await.0, 200);
    let mut compressed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    compressed.write_all(assertion.as_bytes()).unwrap();
    let header = format!("SIGN token=\"{}\", nonce=\"1:2\"", STANDARD.encode(compressed.finish().unwrap()));
    let request = Request::post("https://vc.test/rest/com/vmware/cis/session").header("authorization", header);
    assert_eq!(client.send(request.body("".into()).unwrap()).await.0, 200);
    assert_eq!(client.vcenter.sessions(), (1, 1));
}

#[tokio::test]
async fn an_unknown_certificate_gets_no_token_and_an_unknown_token_no_session() {
    let mut client = Client::anonymous(Options { certificate: Some(CERTIFICATE.to_owned()), ..Options::default() });
    let (status, body) = issue(&client, "MIIBBBBB").await;
    assert_eq!((status, texts(&body, "faultcode")), (500, vec!["ns0:FailedAuthentication"]));
    let foreign = "<saml2:Assertion ID='_unknown'></saml2:Assertion>";
    assert_eq!(fault(&client.log_in_with("LoginByToken", "", foreign).await), "InvalidLogin");
    client.vcenter.configure(|options| options.certificate = None);
    assert_eq!(issue(&client, "MIIBAAAA").await.0, 500);
}
