//! Tests of server verification and client certificates.

use std::sync::Arc;

use bowline_http::{
    Client, ClientCertificate, Options, Proxies, RequestError, Roots, Tls, TlsError, TlsHandshakeError,
};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion};
use tokio_rustls::TlsAcceptor;

use super::server::Server;
use super::{TIMEOUT, client, get};

type CertificateAuthority = CertifiedIssuer<'static, KeyPair>;

/// Certificate chain and key, as PEM.
pub(crate) struct Identity {
    pub(crate) chain: String,
    pub(crate) key: String,
}

pub(crate) fn new_ca() -> CertificateAuthority {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(rcgen::DnType::CommonName, "test CA");
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

pub(crate) fn for_names(names: &[&str]) -> CertificateParams {
    CertificateParams::new(names.iter().map(ToString::to_string).collect::<Vec<_>>()).unwrap()
}

pub(crate) fn signed(params: CertificateParams, ca: &CertificateAuthority) -> Identity {
    let key = KeyPair::generate().unwrap();
    Identity { chain: params.signed_by(&key, ca).unwrap().pem(), key: key.serialize_pem() }
}

pub(crate) fn self_signed(mut params: CertificateParams, is_ca: bool) -> Identity {
    params.is_ca = if is_ca { IsCa::Ca(BasicConstraints::Unconstrained) } else { IsCa::ExplicitNoCa };
    let key = KeyPair::generate().unwrap();
    Identity { chain: params.self_signed(&key).unwrap().pem(), key: key.serialize_pem() }
}

pub(crate) fn certificates(pem: &str) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem.as_bytes()).map(Result::unwrap).collect()
}

/// Creates an acceptor with this certificate, which requires client certificates of `clients` if given.
pub(crate) fn acceptor(identity: &Identity, clients: Option<&CertificateAuthority>) -> TlsAcceptor {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions().unwrap();
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(ca) => {
            let mut roots = RootCertStore::empty();
            roots.add(certificates(&ca.pem()).remove(0)).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
            builder.with_client_cert_verifier(verifier)
        }
    };
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap();
    TlsAcceptor::from(Arc::new(builder.with_single_cert(certificates(&identity.chain), key).unwrap()))
}

pub(crate) fn trusting(pem: String) -> Tls {
    Tls { roots: Roots::Pem(pem), ..Tls::default() }
}

/// Sends a request to a server with this certificate under this name.
pub(crate) async fn request_to(identity: &Identity, host: &str, tls: Tls) -> Result<String, RequestError> {
    let server = Server::secure(acceptor(identity, None)).await;
    get(&client(tls, Proxies::default()), &server.at(host, "/")).await.map(|(_, body)| body)
}

#[tokio::test]
async fn a_server_certificate_of_a_trusted_ca_is_accepted_by_name_and_address() {
    let ca = new_ca();
    let identity = signed(for_names(&["localhost", "127.0.0.1"]), &ca);
    for host in ["localhost", "127.0.0.1"] {
        assert_eq!(request_to(&identity, host, trusting(ca.pem())).await, Ok("GET / HTTP/1.1".to_owned()), "{host}");
    }
}

#[tokio::test]
async fn a_server_certificate_of_another_ca_is_rejected() {
    let identity = signed(for_names(&["localhost"]), &new_ca());
    let error = request_to(&identity, "localhost", trusting(new_ca().pem())).await;
    assert_eq!(error, Err(RequestError::Tls(TlsHandshakeError::UnknownIssuer)));
}

#[tokio::test]
async fn the_system_does_not_trust_a_private_ca() {
    let error = request_to(&signed(for_names(&["localhost"]), &new_ca()), "localhost", Tls::default()).await;
    assert_eq!(error, Err(RequestError::Tls(TlsHandshakeError::UnknownIssuer)));
}

#[tokio::test]
async fn a_certificate_for_another_name_is_rejected() {
    let ca = new_ca();
    let identity = signed(for_names(&["keystone.example.com"]), &ca);
    let error = request_to(&identity, "localhost", trusting(ca.pem())).await;
    assert_eq!(error, Err(RequestError::Tls(TlsHandshakeError::WrongName)));
}

#[tokio::test]
async fn an_expired_or_future_certificate_is_rejected() {
    let ca = new_ca();
    let mut old = for_names(&["localhost"]);
    (old.not_before, old.not_after) = (date_time_ymd(2001, 1, 1), date_time_ymd(2002, 1, 1));
    let error = request_to(&signed(old, &ca), "localhost", trusting(ca.pem())).await;
    assert_eq!(error, Err(RequestError::Tls(TlsHandshakeError::Expired)));
    let mut new = for_names(&["localhost"]);
    (new.not_before, new.not_after) = (date_time_ymd(2901, 1, 1), date_time_ymd(2902, 1, 1));
    let error = request_to(&signed(new, &ca), "localhost", trusting(ca.pem())).await;
    assert_eq!(error, Err(RequestError::Tls(TlsHandshakeError::NotYetValid)));
}

/// As `openssl req -x509` creates it, which marks it as a CA, and without that mark.
#[tokio::test]
async fn a_self_signed_certificate_is_accepted_if_it_is_trusted() {
    for is_ca in [true, false] {
        let identity = self_signed(for_names(&["localhost"]), is_ca);
        let trusting = || trusting(identity.chain.clone());
        assert!(request_to(&identity, "localhost", trusting()).await.is_ok(), "ca: {is_ca}");
        let wrong = request_to(&identity, "127.0.0.1", trusting()).await;
        assert_eq!(wrong, Err(RequestError::Tls(TlsHandshakeError::WrongName)), "ca: {is_ca}");
        let other = self_signed(for_names(&["localhost"]), is_ca);
        assert!(request_to(&other, "localhost", trusting()).await.is_err(), "ca: {is_ca}");
    }
}

#[tokio::test]
async fn an_expired_self_signed_certificate_is_rejected() {
    let mut params = for_names(&["localhost"]);
    (params.not_before, params.not_after) = (date_time_ymd(2001, 1, 1), date_time_ymd(2002, 1, 1));
    let identity = self_signed(params, true);
    let error = request_to(&identity, "localhost", trusting(identity.chain.clone())).await;
    assert_eq!(error, Err(RequestError::Tls(TlsHandshakeError::Expired)));
}

/// The system's CA certificates are read from the environment of the process, so this needs a child process.
#[tokio::test]
async fn a_self_signed_certificate_is_accepted_if_the_system_trusts_it() {
    const CERTIFICATE: &str = "BOWLINE_TEST_SHOWN_CERTIFICATE";
    if let Ok(file) = std::env::var(CERTIFICATE) {
        let (chain, key) = (std::fs::read_to_string(&file).unwrap(), std::fs::read_to_string(file + ".key").unwrap());
        let identity = Identity { chain, key };
        assert_eq!(request_to(&identity, "localhost", Tls::default()).await, Ok("GET / HTTP/1.1".to_owned()));
        let wrong = request_to(&identity, "127.0.0.1", Tls::default()).await;
        assert_eq!(wrong, Err(RequestError::Tls(TlsHandshakeError::WrongName)));
        return;
    }
    let Identity { chain, key } = self_signed(for_names(&["localhost"]), true);
    let file = std::env::temp_dir().join(format!("bowline-system-{}.pem", std::process::id()));
    std::fs::write(&file, chain).unwrap();
    std::fs::write(file.with_extension("pem.key"), key).unwrap();
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    child.args(["tls::a_self_signed_certificate_is_accepted_if_the_system_trusts_it", "--exact"]);
    let output = child.env(CERTIFICATE, &file).env("SSL_CERT_FILE", &file).env_remove("SSL_CERT_DIR").output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && stdout.contains("1 passed"), "{stdout}");
    for file in [file.with_extension("pem.key"), file] {
        std::fs::remove_file(file).unwrap();
    }
}

#[tokio::test]
async fn insecure_accepts_any_certificate() {
    let identity = signed(for_names(&["keystone.example.com"]), &new_ca());
    let insecure = Tls { insecure: true, ..Tls::default() };
    assert!(request_to(&identity, "localhost", insecure).await.is_ok());
}

/// X.509 v1 certificates, as old tools create them.
#[tokio::test]
async fn insecure_accepts_certificates_that_cannot_be_parsed() {
    let identity = signed(for_names(&["localhost"]), &new_ca());
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let server = Server::secure(acceptor_with_v1(&identity, version)).await;
        let send = async |tls| get(&client(tls, Proxies::default()), &server.at("localhost", "/")).await;
        assert!(send(Tls { insecure: true, ..Tls::default() }).await.is_ok(), "{version:?}");
        assert!(matches!(send(trusting(identity.chain.clone())).await, Err(RequestError::Tls(_))), "{version:?}");
    }
}

/// Creates an acceptor that presents this certificate as X.509 v1.
fn acceptor_with_v1(identity: &Identity, version: &'static SupportedProtocolVersion) -> TlsAcceptor {
    let (mut certificate, new) = (certificates(&identity.chain).remove(0).to_vec(), [0xa0, 3, 2, 1, 2]);
    let at = certificate.windows(new.len()).position(|part| part == new).unwrap();
    certificate[at + new.len() - 1] = 0;
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap();
    let key = rustls::crypto::ring::sign::any_supported_type(&key).unwrap();
    let resolver = SingleCertAndKey::from(CertifiedKey::new(vec![certificate.into()], key));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_protocol_versions(&[version]).unwrap();
    TlsAcceptor::from(Arc::new(builder.with_no_client_auth().with_cert_resolver(Arc::new(resolver))))
}

#[tokio::test]
async fn a_client_certificate_is_sent_if_the_server_requires_it() {
    let (ca, clients) = (new_ca(), new_ca());
    let server = Server::secure(acceptor(&signed(for_names(&["localhost"]), &ca), Some(&clients))).await;
    let Identity { chain, key } = signed(for_names(&["bowline"]), &clients);
    let certificate = Some(ClientCertificate { chain, key: key.into() });
    let with = Tls { client: certificate, ..trusting(ca.pem()) };
    assert!(get(&client(with, Proxies::default()), &server.at("localhost", "/")).await.is_ok());
    let without = client(trusting(ca.pem()), Proxies::default());
    let error = get(&without, &server.at("localhost", "/")).await.unwrap_err();
    assert!(matches!(error, RequestError::Tls(TlsHandshakeError::Refused(_))), "{error:?}");
}

#[test]
fn invalid_certificates_are_rejected_at_creation_without_quoting_keys() {
    let create = |tls| Client::new(Options { tls, proxies: Proxies::default(), timeout: TIMEOUT }).map(drop);
    for text in ["", "nothing", "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"] {
        assert!(matches!(create(trusting(text.to_owned())), Err(TlsError::Roots(_))), "{text:?}");
        let insecure = Tls { insecure: true, ..trusting(text.to_owned()) };
        assert!(matches!(create(insecure), Err(TlsError::Roots(_))), "{text:?}");
    }
    let ca = new_ca();
    let (one, other) = (signed(for_names(&["a"]), &ca), signed(for_names(&["b"]), &ca));
    let pairs = [(&one.chain, &other.key), (&one.chain, &one.chain), (&one.key, &one.key)];
    for (chain, key) in pairs {
        let client = Some(ClientCertificate { chain: chain.clone(), key: key.clone().into() });
        let error = create(Tls { client, ..Tls::default() }).unwrap_err();
        assert!(matches!(error, TlsError::Client(_)), "{error}");
        assert!(!error.to_string().contains("MI"), "{error}");
    }
}
