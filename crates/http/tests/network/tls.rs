//! Whom a client trusts, and as whom it appears.

use std::sync::Arc;

use bowline_http::{Client, ClientCertificate, Failure, Options, Proxies, Roots, Tls, TlsError, TlsFailure};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion};
use tokio_rustls::TlsAcceptor;

use super::server::Server;
use super::{PATIENCE, client, get};

type Authority = CertifiedIssuer<'static, KeyPair>;

/// A certificate and its key, as PEM.
pub(crate) struct Identity {
    pub(crate) chain: String,
    pub(crate) key: String,
}

pub(crate) fn authority() -> Authority {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(rcgen::DnType::CommonName, "an authority");
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

pub(crate) fn for_names(names: &[&str]) -> CertificateParams {
    CertificateParams::new(names.iter().map(ToString::to_string).collect::<Vec<_>>()).unwrap()
}

pub(crate) fn signed(params: CertificateParams, authority: &Authority) -> Identity {
    let key = KeyPair::generate().unwrap();
    Identity { chain: params.signed_by(&key, authority).unwrap().pem(), key: key.serialize_pem() }
}

fn self_signed(mut params: CertificateParams, is_authority: bool) -> Identity {
    params.is_ca = if is_authority { IsCa::Ca(BasicConstraints::Unconstrained) } else { IsCa::ExplicitNoCa };
    let key = KeyPair::generate().unwrap();
    Identity { chain: params.self_signed(&key).unwrap().pem(), key: key.serialize_pem() }
}

fn certificates(pem: &str) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem.as_bytes()).map(Result::unwrap).collect()
}

/// A server with this certificate, which takes clients of `clients` alone if that is given.
pub(crate) fn acceptor(identity: &Identity, clients: Option<&Authority>) -> TlsAcceptor {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions().unwrap();
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            roots.add(certificates(&authority.pem()).remove(0)).unwrap();
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

/// What comes of asking a server with this certificate under this name.
async fn asked(identity: &Identity, host: &str, tls: Tls) -> Result<String, Failure> {
    let server = Server::secure(acceptor(identity, None)).await;
    get(&client(tls, Proxies::default()), &server.at(host, "/")).await.map(|(_, body)| body)
}

#[tokio::test]
async fn a_server_that_a_given_authority_vouches_for_is_trusted_by_name_and_by_address() {
    let authority = authority();
    let identity = signed(for_names(&["localhost", "127.0.0.1"]), &authority);
    for host in ["localhost", "127.0.0.1"] {
        assert_eq!(asked(&identity, host, trusting(authority.pem())).await, Ok("GET / HTTP/1.1".to_owned()), "{host}");
    }
}

#[tokio::test]
async fn a_server_that_nobody_vouches_for_is_not_trusted() {
    let identity = signed(for_names(&["localhost"]), &authority());
    let failure = asked(&identity, "localhost", trusting(authority().pem())).await;
    assert_eq!(failure, Err(Failure::Tls(TlsFailure::UnknownIssuer)));
}

#[tokio::test]
async fn the_system_does_not_vouch_for_a_private_authority() {
    let failure = asked(&signed(for_names(&["localhost"]), &authority()), "localhost", Tls::default()).await;
    assert_eq!(failure, Err(Failure::Tls(TlsFailure::UnknownIssuer)));
}

#[tokio::test]
async fn a_certificate_for_another_name_is_told_apart() {
    let authority = authority();
    let identity = signed(for_names(&["keystone.example.com"]), &authority);
    let failure = asked(&identity, "localhost", trusting(authority.pem())).await;
    assert_eq!(failure, Err(Failure::Tls(TlsFailure::WrongName)));
}

#[tokio::test]
async fn a_certificate_out_of_its_time_is_told_apart() {
    let authority = authority();
    let mut old = for_names(&["localhost"]);
    (old.not_before, old.not_after) = (date_time_ymd(2001, 1, 1), date_time_ymd(2002, 1, 1));
    let failure = asked(&signed(old, &authority), "localhost", trusting(authority.pem())).await;
    assert_eq!(failure, Err(Failure::Tls(TlsFailure::Expired)));
    let mut new = for_names(&["localhost"]);
    (new.not_before, new.not_after) = (date_time_ymd(2901, 1, 1), date_time_ymd(2902, 1, 1));
    let failure = asked(&signed(new, &authority), "localhost", trusting(authority.pem())).await;
    assert_eq!(failure, Err(Failure::Tls(TlsFailure::NotYetValid)));
}

/// As `openssl req -x509` makes it, which says of itself that it is an authority, and as it should be.
#[tokio::test]
async fn a_certificate_that_vouches_for_itself_is_trusted_if_it_is_given() {
    for is_authority in [true, false] {
        let identity = self_signed(for_names(&["localhost"]), is_authority);
        let trusting = || trusting(identity.chain.clone());
        assert!(asked(&identity, "localhost", trusting()).await.is_ok(), "authority: {is_authority}");
        let wrong = asked(&identity, "127.0.0.1", trusting()).await;
        assert_eq!(wrong, Err(Failure::Tls(TlsFailure::WrongName)), "authority: {is_authority}");
        let other = self_signed(for_names(&["localhost"]), is_authority);
        assert!(asked(&other, "localhost", trusting()).await.is_err(), "authority: {is_authority}");
    }
}

#[tokio::test]
async fn a_certificate_that_vouches_for_itself_is_not_trusted_beyond_its_time() {
    let mut params = for_names(&["localhost"]);
    (params.not_before, params.not_after) = (date_time_ymd(2001, 1, 1), date_time_ymd(2002, 1, 1));
    let identity = self_signed(params, true);
    let failure = asked(&identity, "localhost", trusting(identity.chain.clone())).await;
    assert_eq!(failure, Err(Failure::Tls(TlsFailure::Expired)));
}

/// What the system trusts is the same for a whole process, so that there is another one for this.
#[tokio::test]
async fn a_certificate_that_vouches_for_itself_is_trusted_if_the_system_trusts_it() {
    const SHOWN: &str = "BOWLINE_TEST_SHOWN_CERTIFICATE";
    if let Ok(file) = std::env::var(SHOWN) {
        let (chain, key) = (std::fs::read_to_string(&file).unwrap(), std::fs::read_to_string(file + ".key").unwrap());
        let identity = Identity { chain, key };
        assert_eq!(asked(&identity, "localhost", Tls::default()).await, Ok("GET / HTTP/1.1".to_owned()));
        let wrong = asked(&identity, "127.0.0.1", Tls::default()).await;
        assert_eq!(wrong, Err(Failure::Tls(TlsFailure::WrongName)));
        return;
    }
    let Identity { chain, key } = self_signed(for_names(&["localhost"]), true);
    let file = std::env::temp_dir().join(format!("bowline-system-{}.pem", std::process::id()));
    std::fs::write(&file, chain).unwrap();
    std::fs::write(file.with_extension("pem.key"), key).unwrap();
    let mut again = std::process::Command::new(std::env::current_exe().unwrap());
    again.args(["tls::a_certificate_that_vouches_for_itself_is_trusted_if_the_system_trusts_it", "--exact"]);
    let output = again.env(SHOWN, &file).env("SSL_CERT_FILE", &file).env_remove("SSL_CERT_DIR").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    for file in [file.with_extension("pem.key"), file] {
        std::fs::remove_file(file).unwrap();
    }
}

#[tokio::test]
async fn who_is_told_to_check_nobody_checks_nobody() {
    let identity = signed(for_names(&["keystone.example.com"]), &authority());
    let insecure = Tls { insecure: true, ..Tls::default() };
    assert!(asked(&identity, "localhost", insecure).await.is_ok());
}

/// Of X.509 v1, as old tools make them.
#[tokio::test]
async fn who_is_told_to_check_nobody_takes_certificates_that_cannot_be_read() {
    let identity = signed(for_names(&["localhost"]), &authority());
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let server = Server::secure(acceptor_of_old(&identity, version)).await;
        let ask = async |tls| get(&client(tls, Proxies::default()), &server.at("localhost", "/")).await;
        assert!(ask(Tls { insecure: true, ..Tls::default() }).await.is_ok(), "{version:?}");
        assert!(matches!(ask(trusting(identity.chain.clone())).await, Err(Failure::Tls(_))), "{version:?}");
    }
}

/// A server that shows this certificate as one of X.509 v1.
fn acceptor_of_old(identity: &Identity, version: &'static SupportedProtocolVersion) -> TlsAcceptor {
    let (mut certificate, new) = (certificates(&identity.chain).remove(0).to_vec(), [0xa0, 3, 2, 1, 2]);
    let at = certificate.windows(new.len()).position(|part| part == new).unwrap();
    certificate[at + new.len() - 1] = 0;
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap();
    let key = rustls::crypto::ring::sign::any_supported_type(&key).unwrap();
    let shown = SingleCertAndKey::from(CertifiedKey::new(vec![certificate.into()], key));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_protocol_versions(&[version]).unwrap();
    TlsAcceptor::from(Arc::new(builder.with_no_client_auth().with_cert_resolver(Arc::new(shown))))
}

#[tokio::test]
async fn a_server_that_wants_a_certificate_gets_it() {
    let (authority, clients) = (authority(), authority());
    let server = Server::secure(acceptor(&signed(for_names(&["localhost"]), &authority), Some(&clients))).await;
    let Identity { chain, key } = signed(for_names(&["bowline"]), &clients);
    let shown = Some(ClientCertificate { chain, key: key.into() });
    let with = Tls { client: shown, ..trusting(authority.pem()) };
    assert!(get(&client(with, Proxies::default()), &server.at("localhost", "/")).await.is_ok());
    let without = client(trusting(authority.pem()), Proxies::default());
    let failure = get(&without, &server.at("localhost", "/")).await.unwrap_err();
    assert!(matches!(failure, Failure::Tls(TlsFailure::Refused(_))), "{failure:?}");
}

#[test]
fn certificates_that_cannot_be_used_are_told_at_once_and_no_key_is_quoted() {
    let made = |tls| Client::new(Options { tls, proxies: Proxies::default(), timeout: PATIENCE }).map(drop);
    for text in ["", "nothing", "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"] {
        assert!(matches!(made(trusting(text.to_owned())), Err(TlsError::Roots(_))), "{text:?}");
        let insecure = Tls { insecure: true, ..trusting(text.to_owned()) };
        assert!(matches!(made(insecure), Err(TlsError::Roots(_))), "{text:?}");
    }
    let authority = authority();
    let (one, other) = (signed(for_names(&["a"]), &authority), signed(for_names(&["b"]), &authority));
    let pairs = [(&one.chain, &other.key), (&one.chain, &one.chain), (&one.key, &one.key)];
    for (chain, key) in pairs {
        let client = Some(ClientCertificate { chain: chain.clone(), key: key.clone().into() });
        let error = made(Tls { client, ..Tls::default() }).unwrap_err();
        assert!(matches!(error, TlsError::Client(_)), "{error}");
        assert!(!error.to_string().contains("MI"), "{error}");
    }
}
