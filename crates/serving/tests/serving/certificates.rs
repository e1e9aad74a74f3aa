//! Server certificates and protocols.

use bowline_serving::{Server, TlsOptions};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::version::{TLS12, TLS13};

use crate::pki::{Authority, Pair, Scratch};
use crate::world::{ServerSpec, eventually};

fn der(pair: &Pair) -> Vec<u8> {
    CertificateDer::from_pem_slice(pair.certificate.as_bytes()).unwrap().to_vec()
}

/// Writes the pair, the key first, so that the two files do not match for a moment.
fn write_pair(scratch: &Scratch, name: &str, pair: &Pair) -> (std::path::PathBuf, std::path::PathBuf) {
    let key = scratch.write(&format!("{name}.key"), &pair.key);
    (scratch.write(&format!("{name}.crt"), &pair.certificate), key)
}

#[tokio::test]
async fn a_certificate_is_reloaded_without_closing_connections_and_an_invalid_one_is_ignored() {
    let (authority, scratch) = (Authority::new("ours"), Scratch::new());
    let (first, second) = (authority.server(&["localhost"]), authority.server(&["localhost"]));
    let files = Some(write_pair(&scratch, "tls", &first));
    let running = ServerSpec::with_tls(TlsOptions { files, ..TlsOptions::default() }).start().await;
    let client = running.client();
    assert_eq!(client.get("/healthz").await.certificate, der(&first));
    // An existing connection outlives the change.
    let kept = client.clone().with_alpn(b"http/1.1").connect().await.unwrap();
    scratch.write("tls.crt", "rubbish");
    tokio::time::sleep(std::time::Duration::from_millis(2500)).await;
    assert_eq!(client.get("/healthz").await.certificate, der(&first));
    write_pair(&scratch, "tls", &second);
    eventually("the new certificate is served", || async { client.get("/healthz").await.certificate == der(&second) })
        .await;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(hyper_util::rt::TokioIo::new(kept)).await.unwrap();
    tokio::spawn(connection);
    let request = http::Request::get("/healthz").header("host", "localhost").body(String::new()).unwrap();
    assert_eq!(sender.send_request(request).await.unwrap().status(), 200);
}

#[tokio::test]
async fn a_directory_swapped_by_a_symbolic_link_is_reloaded() {
    let (authority, scratch) = (Authority::new("ours"), Scratch::new());
    let (first, second) = (authority.server(&["localhost"]), authority.server(&["localhost"]));
    // As a kubelet lays out a Secret: data/tls.crt -> ..data/tls.crt, ..data -> a directory of its own.
    let mount_secret = |name: &str, pair: &Pair| {
        std::fs::create_dir(scratch.path().join(name)).unwrap();
        write_pair(&scratch, &format!("{name}/tls"), pair);
        std::os::unix::fs::symlink(name, scratch.path().join("..temporary")).unwrap();
        std::fs::rename(scratch.path().join("..temporary"), scratch.path().join("..data")).unwrap();
    };
    mount_secret("..one", &first);
    for file in ["tls.crt", "tls.key"] {
        std::os::unix::fs::symlink(format!("..data/{file}"), scratch.path().join(file)).unwrap();
    }
    let files = Some((scratch.path().join("tls.crt"), scratch.path().join("tls.key")));
    let running = ServerSpec::with_tls(TlsOptions { files, ..TlsOptions::default() }).start().await;
    assert_eq!(running.client().get("/healthz").await.certificate, der(&first));
    mount_secret("..two", &second);
    eventually("the new certificate is served", || async {
        running.client().get("/healthz").await.certificate == der(&second)
    })
    .await;
}

#[tokio::test]
async fn sni_selects_the_certificate() {
    let (authority, scratch) = (Authority::new("ours"), Scratch::new());
    let [main, own, given] = [
        authority.server(&["localhost"]),
        authority.server(&["*.example.com"]),
        authority.server(&["anything.example.org"]),
    ];
    let pair = |name: &str, pair: &Pair, names: &[&str]| {
        let (certificate, key) = write_pair(&scratch, name, pair);
        (certificate, key, names.iter().map(|name| (*name).to_owned()).collect())
    };
    let tls = TlsOptions {
        files: Some(write_pair(&scratch, "main", &main)),
        sni: vec![pair("own", &own, &[]), pair("given", &given, &["Given.example.net"])],
        ..TlsOptions::default()
    };
    let running = ServerSpec::with_tls(tls).start().await;
    let cases = [
        (Some("localhost"), &main),
        (None, &main),
        (Some("a.example.com"), &own),
        (Some("a.b.example.com"), &main),
        (Some("given.example.net"), &given),
        (Some("anything.example.org"), &main),
    ];
    for (name, expected) in cases {
        let response = running.client().with_server_name(name).get("/healthz").await;
        assert_eq!((response.status, response.certificate == der(expected)), (200, true), "{name:?}");
    }
}

#[tokio::test]
async fn tls_versions_and_protocols_follow_the_options() {
    let running = ServerSpec::without_reviews().start().await;
    let client = running.client();
    assert!(client.get("/healthz").await.http2);
    assert!(!client.clone().with_alpn(b"http/1.1").get("/healthz").await.http2);
    assert_eq!(client.clone().with_tls_version(&TLS12).get("/healthz").await.status, 200);

    let running = ServerSpec::with_tls(TlsOptions { only_tls13: true, ..TlsOptions::default() }).start().await;
    assert!(running.client().with_tls_version(&TLS12).connect().await.is_err());
    assert_eq!(running.client().with_tls_version(&TLS13).get("/healthz").await.status, 200);

    let mut spec = ServerSpec::without_reviews();
    spec.serving.http2 = false;
    let running = spec.start().await;
    assert!(!running.client().get("/healthz").await.http2);

    // With only unsupported cipher suites TLS 1.3 remains, whose suites cannot be selected.
    let cipher_suites = vec!["TLS_RSA_WITH_AES_128_CBC_SHA".to_owned()];
    let running = ServerSpec::with_tls(TlsOptions { cipher_suites, ..TlsOptions::default() }).start().await;
    assert!(running.client().with_tls_version(&TLS12).connect().await.is_err());
    assert_eq!(running.client().get("/healthz").await.status, 200);
}

#[tokio::test]
async fn invalid_options_fail_before_anything_is_served() {
    let refused = |spec: ServerSpec| Server::bind(&spec.serving).map(drop).unwrap_err().to_string();
    let files = Some(("/nowhere/tls.crt".into(), "/nowhere/tls.key".into()));
    let missing = refused(ServerSpec::with_tls(TlsOptions { files, ..TlsOptions::default() }));
    assert!(missing.starts_with("/nowhere/tls.crt: cannot be read"), "{missing}");
    let cipher_suites = vec!["TLS_MOON".to_owned()];
    let unknown = refused(ServerSpec::with_tls(TlsOptions { cipher_suites, ..TlsOptions::default() }));
    assert_eq!(unknown, "Cipher suite TLS_MOON not supported or doesn't exist");
    let running = ServerSpec::without_reviews().start().await;
    let mut taken = ServerSpec::without_reviews();
    taken.serving.port = running.address.port();
    let taken = refused(taken);
    assert!(taken.contains(&running.address.to_string()) && taken.contains("in use"), "{taken}");
}
