//! Tests of server certificates that are accepted by their fingerprint, and of lists of CA files.

use std::path::PathBuf;
use std::sync::Arc;

use bowline_http::{CaFileError, Fingerprint, Proxies, RequestError, Roots, Tls, TlsHandshakeError};
use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use ring::digest::{self, Algorithm, SHA1_FOR_LEGACY_USE_ONLY, SHA256};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use tokio_rustls::TlsAcceptor;

use super::server::Server;
use super::tls::{Identity, acceptor, certificates, for_names, new_ca, request_to, self_signed, signed, trusting};
use super::{client, get};

const OTHER: &str = "00:11:22:33:44:55:66:77:88:99:AA:BB:CC:DD:EE:FF:00:11:22:33";

/// Computes the fingerprint of the first certificate.
fn fingerprint_with(algorithm: &'static Algorithm, identity: &Identity) -> String {
    let digest = digest::digest(algorithm, &certificates(&identity.chain)[0]);
    digest.as_ref().iter().map(|byte| format!("{byte:02X}")).collect::<Vec<_>>().join(":")
}

fn with_fingerprint(text: &str, tls: Tls) -> Tls {
    Tls { fingerprint: Some(text.parse::<Fingerprint>().unwrap()), ..tls }
}

/// Trusts another CA, and the certificate with this fingerprint.
fn pinned(text: &str) -> Tls {
    with_fingerprint(text, trusting(new_ca().pem()))
}

fn in_years(from: i32, to: i32) -> CertificateParams {
    let mut params = for_names(&["localhost"]);
    (params.not_before, params.not_after) = (date_time_ymd(from, 1, 1), date_time_ymd(to, 1, 1));
    params
}

#[tokio::test]
async fn a_certificate_of_an_unknown_ca_is_accepted_by_its_fingerprint() {
    let identity = signed(for_names(&["localhost"]), &new_ca());
    for algorithm in [&SHA1_FOR_LEGACY_USE_ONLY, &SHA256] {
        let text = fingerprint_with(algorithm, &identity);
        for text in [text.to_lowercase(), text] {
            let response = request_to(&identity, "localhost", pinned(&text)).await;
            assert_eq!(response, Ok("GET / HTTP/1.1".to_owned()), "{text}");
        }
    }
}

#[tokio::test]
async fn a_self_signed_certificate_is_accepted_by_its_fingerprint() {
    for is_ca in [true, false] {
        let identity = self_signed(for_names(&["localhost"]), is_ca);
        let text = fingerprint_with(&SHA256, &identity);
        for roots in [Roots::System, Roots::None, Roots::Pem(new_ca().pem())] {
            let tls = with_fingerprint(&text, Tls { roots, ..Tls::default() });
            let response = request_to(&identity, "localhost", tls).await;
            assert_eq!(response, Ok("GET / HTTP/1.1".to_owned()), "ca: {is_ca}");
        }
    }
}

#[tokio::test]
async fn a_certificate_for_another_name_is_accepted_by_its_fingerprint() {
    let ca = new_ca();
    let identity = signed(for_names(&["vcenter.example.com"]), &ca);
    let text = fingerprint_with(&SHA256, &identity);
    for tls in [with_fingerprint(&text, trusting(ca.pem())), pinned(&text)] {
        assert!(request_to(&identity, "localhost", tls).await.is_ok());
    }
}

#[tokio::test]
async fn a_trusted_certificate_is_accepted_whatever_the_fingerprint() {
    let ca = new_ca();
    let identity = signed(for_names(&["localhost"]), &ca);
    assert!(request_to(&identity, "localhost", with_fingerprint(OTHER, trusting(ca.pem()))).await.is_ok());
}

#[tokio::test]
async fn the_fingerprint_of_another_certificate_is_an_error_with_both() {
    let ca = new_ca();
    let unknown = signed(for_names(&["localhost"]), &new_ca());
    let misnamed = signed(for_names(&["vcenter.example.com"]), &ca);
    for identity in [unknown, misnamed, self_signed(for_names(&["localhost"]), true)] {
        let server = Server::secure(acceptor(&identity, None)).await;
        let tls = with_fingerprint(OTHER, trusting(ca.pem()));
        let error = get(&client(tls, Proxies::default()), &server.at("localhost", "/")).await.unwrap_err();
        assert!(matches!(error, RequestError::Tls(TlsHandshakeError::WrongFingerprint(_))), "{error:?}");
        let expected = format!("TLS: host \"localhost:{}\" thumbprint does not match \"{OTHER}\"", server.port());
        let presented = fingerprint_with(&SHA256, &identity);
        let text = error.to_string();
        assert!(text.starts_with(&expected) && text.ends_with(&presented), "{text}");
    }
}

#[tokio::test]
async fn the_fingerprint_does_not_help_an_expired_or_future_certificate() {
    for (from, to, expected) in [(2001, 2002, TlsHandshakeError::Expired), (2901, 2902, TlsHandshakeError::NotYetValid)]
    {
        let by_ca = signed(in_years(from, to), &new_ca());
        for identity in [by_ca, self_signed(in_years(from, to), true), self_signed(in_years(from, to), false)] {
            let matching = fingerprint_with(&SHA256, &identity);
            let without_roots = with_fingerprint(&matching, Tls { roots: Roots::None, ..Tls::default() });
            for tls in [pinned(&matching), pinned(OTHER), without_roots] {
                let response = request_to(&identity, "localhost", tls).await;
                assert_eq!(response, Err(RequestError::Tls(expected.clone())));
            }
        }
    }
}

/// Someone who has recorded the certificate, but not its key.
#[tokio::test]
async fn a_server_without_the_key_of_the_certificate_is_rejected() {
    let identity = signed(for_names(&["localhost"]), &new_ca());
    let key = PrivateKeyDer::from_pem_slice(KeyPair::generate().unwrap().serialize_pem().as_bytes()).unwrap();
    let key = rustls::crypto::ring::sign::any_supported_type(&key).unwrap();
    let resolver = Arc::new(SingleCertAndKey::from(CertifiedKey::new(certificates(&identity.chain), key)));
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider).with_protocol_versions(&[version]).unwrap();
        let config = builder.with_no_client_auth().with_cert_resolver(resolver.clone());
        let server = Server::secure(TlsAcceptor::from(Arc::new(config))).await;
        let client = client(pinned(&fingerprint_with(&SHA256, &identity)), Proxies::default());
        let error = get(&client, &server.at("localhost", "/")).await.unwrap_err();
        assert_eq!(error, RequestError::Tls(TlsHandshakeError::UnknownIssuer), "{version:?}");
    }
}

#[tokio::test]
async fn insecure_ignores_the_fingerprint() {
    let identity = signed(for_names(&["localhost"]), &new_ca());
    let tls = Tls { insecure: true, ..pinned(OTHER) };
    assert!(request_to(&identity, "localhost", tls).await.is_ok());
}

/// A file that is removed when the test ends.
struct TemporaryFile(PathBuf);

impl TemporaryFile {
    fn new(name: &str, text: &str) -> TemporaryFile {
        let path = std::env::temp_dir().join(format!("bowline-{}-{name}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        TemporaryFile(path)
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[tokio::test]
async fn several_ca_files_are_trusted_together() {
    let (one, other) = (new_ca(), new_ca());
    let files = [
        TemporaryFile::new("ca-1.pem", one.pem().trim_end()),
        TemporaryFile::new("ca-2.pem", &format!("a comment\n{}", other.pem())),
    ];
    let roots = Roots::from_files(&files.each_ref().map(|file| file.0.clone())).unwrap();
    for ca in [one, other] {
        let tls = Tls { roots: roots.clone(), ..Tls::default() };
        assert!(request_to(&signed(for_names(&["localhost"]), &ca), "localhost", tls).await.is_ok());
    }
}

#[test]
fn each_invalid_ca_file_is_an_error() {
    let good = TemporaryFile::new("ca-3.pem", &new_ca().pem());
    let empty = TemporaryFile::new("ca-4.pem", "");
    let broken = TemporaryFile::new("ca-5.pem", "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n");
    let missing = std::env::temp_dir().join("bowline-no-such-file.pem");
    let files = [good.0.clone(), empty.0.clone(), broken.0.clone(), missing.clone()];
    let errors = Roots::from_files(&files).unwrap_err();
    let invalid = [&empty, &broken].map(|file| CaFileError::Invalid { path: file.0.clone() });
    assert_eq!(errors[..2], invalid);
    assert!(matches!(&errors[2], CaFileError::Unreadable { path, .. } if *path == missing), "{errors:?}");
    let text = format!("invalid certificate '{}', cannot be used as a trusted CA certificate", empty.0.display());
    assert_eq!(errors[0].to_string(), text);
}
