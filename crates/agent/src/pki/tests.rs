use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::*;
use crate::testing::Scratch;

fn new(scratch: &Scratch, agents: &[(&str, &[&str])], clients: &[&str]) -> NewCertificates {
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let agents = agents.iter().map(|(name, addresses)| ((*name).to_owned(), owned(addresses))).collect();
    NewCertificates { directory: scratch.path().join("pki"), agents, clients: owned(clients), days: 30 }
}

/// Files of a group of two agents, and those of another CA.
fn two_agents(scratch: &Scratch) -> Vec<Issued> {
    let agents: [(&str, &[&str]); 2] = [("lb-1", &["192.0.2.11", "2001:db8::1", "lb-1.example"]), ("lb-2", &[])];
    create_certificates(&new(scratch, &agents, &["bowline"])).unwrap()
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn keys_are_private_and_existing_files_are_kept() {
    let scratch = Scratch::new();
    let first = two_agents(&scratch);
    let summary: Vec<_> = first.iter().map(|file| (file.usage, file.name.as_str(), file.is_new)).collect();
    let expected = [
        (Usage::Authority, "ca", true),
        (Usage::Agent, "lb-1", true),
        (Usage::Agent, "lb-2", true),
        (Usage::Client, "bowline", true),
    ];
    assert_eq!(summary, expected);
    assert_eq!(mode(&scratch.path().join("pki")), 0o700);
    for file in &first {
        assert_eq!((mode(&file.key), mode(&file.certificate)), (0o600, 0o644), "{}", file.name);
    }
    let text = |file: &Issued| (std::fs::read(&file.certificate).unwrap(), std::fs::read(&file.key).unwrap());
    let before: Vec<_> = first.iter().map(text).collect();

    let again = create_certificates(&new(&scratch, &[("lb-2", &[]), ("lb-3", &["192.0.2.13"])], &["bowline"])).unwrap();
    let created: Vec<_> = again.iter().map(|file| (file.name.as_str(), file.is_new)).collect();
    assert_eq!(created, [("ca", false), ("lb-2", false), ("lb-3", true), ("bowline", false)]);
    assert_eq!(first.iter().map(text).collect::<Vec<_>>(), before);
}

#[test]
fn the_validity_is_that_of_the_option_and_ends_with_the_ca() {
    let scratch = Scratch::new();
    let issued = create_certificates(&NewCertificates { days: 100_000, ..new(&scratch, &[("lb-1", &[])], &[]) });
    let [ca, agent] = &issued.unwrap()[..] else { panic!("two certificates") };
    assert_eq!(ca.expires, agent.expires);
    let days = |issued: &Issued| {
        let certificate = Certificate::parse(&std::fs::read_to_string(&issued.certificate).unwrap()).unwrap();
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        (certificate.not_after - now).as_secs().div_ceil(24 * 60 * 60)
    };
    assert_eq!(days(ca), 3650);
    let short = create_certificates(&new(&scratch, &[], &["spare"])).unwrap();
    assert_eq!(days(&short[1]), 30);
}

#[test]
fn existing_files_that_are_not_what_was_requested_are_errors() {
    let (scratch, other) = (Scratch::new(), Scratch::new());
    two_agents(&scratch);
    two_agents(&other);
    let pki = |scratch: &Scratch, name: &str| scratch.path().join("pki").join(name);
    let rejected = |agents: &[(&str, &[&str])], expected: &str| {
        let error = create_certificates(&new(&scratch, agents, &["unused"])).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert!(!pki(&scratch, "unused.crt").exists());
    };
    rejected(
        &[("lb-1", &["192.0.2.12"])],
        "lb-1.crt: exists with other names: lb-1, 192.0.2.11, 2001:db8::1, lb-1.example, not",
    );
    std::fs::remove_file(pki(&scratch, "lb-2.crt")).unwrap();
    rejected(&[("lb-2", &[])], "lb-2.key: exists, but");
    std::fs::copy(pki(&other, "lb-2.crt"), pki(&scratch, "lb-2.crt")).unwrap();
    rejected(&[("lb-2", &[])], "lb-2.crt: its key file has the key of another certificate");
    std::fs::copy(pki(&other, "lb-2.key"), pki(&scratch, "lb-2.key")).unwrap();
    rejected(&[("lb-2", &[])], "lb-2.crt: exists, but ca.crt does not verify it");
    std::fs::copy(pki(&other, "ca.key"), pki(&scratch, "ca.key")).unwrap();
    rejected(&[("lb-3", &[])], "cannot be used: ca.crt: its key file has the key of another certificate");
    std::fs::remove_file(pki(&scratch, "ca.key")).unwrap();
    rejected(&[("lb-3", &[])], "ca.key is missing; fix: copy it");
    std::fs::write(pki(&scratch, "ca.key"), "").unwrap();
    rejected(&[("lb-3", &[])], "its key file contains no PEM private key");
}

#[test]
fn the_key_of_the_ca_is_only_needed_to_sign() {
    let scratch = Scratch::new();
    two_agents(&scratch);
    std::fs::remove_file(scratch.path().join("pki/ca.key")).unwrap();
    let kept = create_certificates(&new(&scratch, &[("lb-2", &[])], &["bowline"])).unwrap();
    assert!(kept.iter().all(|file| !file.is_new));
}

#[test]
fn invalid_names_and_addresses_are_rejected() {
    let scratch = Scratch::new();
    for name in ["", "ca", "../lb", ".lb", "a b", "lb-1", "192.0.2.1"] {
        let error = create_certificates(&new(&scratch, &[("lb-1", &[]), (name, &[])], &[])).unwrap_err();
        assert!(matches!(error, PkiError::Name(..)), "{name}: {error}");
    }
    for address in ["", "0.0.0.0", "192.0.2.1:9470", "[2001:db8::1]", "https://lb-1", "*.example", "a b"] {
        let error = create_certificates(&new(&scratch, &[("lb-1", &[address])], &[])).unwrap_err();
        assert!(matches!(error, PkiError::Name(..)), "{address}: {error}");
    }
    assert!(!scratch.path().join("pki").exists());
}

#[test]
fn a_directory_that_cannot_be_written_is_named() {
    let scratch = Scratch::new();
    std::fs::write(scratch.path().join("pki"), "").unwrap();
    let error = create_certificates(&new(&scratch, &[("lb-1", &[])], &[])).unwrap_err();
    assert!(matches!(&error, PkiError::File(..)) && error.to_string().contains("/pki"), "{error}");
}

/// Chain and key of a name in the directory.
fn identity(scratch: &Scratch, name: &str) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
    let path = |ending: &str| scratch.path().join(format!("pki/{name}.{ending}"));
    let certificate = CertificateDer::from_pem_file(path("crt")).unwrap();
    (vec![certificate], PrivateKeyDer::from_pem_file(path("key")).unwrap())
}

fn roots(scratch: &Scratch) -> Arc<RootCertStore> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(scratch.path().join("pki/ca.crt")).unwrap()).unwrap();
    Arc::new(roots)
}

/// Connects a client to a server as the agents do. Each side is a name in a directory.
async fn connect(server: (&Scratch, &str), client: (&Scratch, &str), host: &str) -> Result<(), std::io::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(roots(server.0), provider.clone()).build().unwrap();
    let (chain, key) = identity(server.0, server.1);
    let builder = ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions().unwrap();
    let accepts = builder.with_client_cert_verifier(verifier).with_single_cert(chain, key).unwrap();
    let (chain, key) = identity(client.0, client.1);
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let connects = builder.with_root_certificates(roots(client.0)).with_client_auth_cert(chain, key).unwrap();
    let (near, far) = tokio::io::duplex(1 << 16);
    let serve = async {
        let mut stream = TlsAcceptor::from(Arc::new(accepts)).accept(far).await?;
        stream.write_all(b"hello").await?;
        stream.shutdown().await
    };
    let request = async {
        let name = ServerName::try_from(host.to_owned()).unwrap();
        let mut stream = TlsConnector::from(Arc::new(connects)).connect(name, near).await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await.map(|_| assert_eq!(text, "hello"))
    };
    tokio::try_join!(serve, request).map(drop)
}

#[tokio::test]
async fn agents_are_servers_and_clients_and_a_client_is_only_a_client() {
    let (scratch, other) = (Scratch::new(), Scratch::new());
    two_agents(&scratch);
    two_agents(&other);
    let [first, second, client] = ["lb-1", "lb-2", "bowline"].map(|name| (&scratch, name));
    for host in ["lb-1", "192.0.2.11", "2001:db8::1", "lb-1.example"] {
        connect(first, client, host).await.unwrap();
        connect(first, second, host).await.unwrap();
    }
    connect(second, first, "lb-2").await.unwrap();
    for (server, client, host) in [
        (first, client, "lb-2"),
        (first, client, "192.0.2.12"),
        (client, first, "bowline"),
        (first, (&other, "bowline"), "lb-1"),
        ((&other, "lb-1"), client, "lb-1"),
    ] {
        let result = connect(server, client, host).await;
        assert!(result.is_err(), "{} to {} as {host}", client.1, server.1);
    }
}
