//! What the server shows, and what it speaks.

use bowline_serving::{Server, TlsOptions};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::version::{TLS12, TLS13};

use crate::pki::{Authority, Pair, Scratch};
use crate::world::{Wanted, eventually};

fn der(pair: &Pair) -> Vec<u8> {
    CertificateDer::from_pem_slice(pair.certificate.as_bytes()).unwrap().to_vec()
}

/// The pair under these names, with the key first, as a careless writer would.
fn written(scratch: &Scratch, name: &str, pair: &Pair) -> (std::path::PathBuf, std::path::PathBuf) {
    let key = scratch.write(&format!("{name}.key"), &pair.key);
    (scratch.write(&format!("{name}.crt"), &pair.certificate), key)
}

#[tokio::test]
async fn a_certificate_is_replaced_while_connections_go_on_and_a_broken_one_is_not_used() {
    let (authority, scratch) = (Authority::new("ours"), Scratch::new());
    let (first, second) = (authority.server(&["localhost"]), authority.server(&["localhost"]));
    let files = Some(written(&scratch, "tls", &first));
    let running = Wanted::with_tls(TlsOptions { files, ..TlsOptions::default() }).start().await;
    let visitor = running.visitor();
    assert_eq!(visitor.gets("/healthz").await.certificate, der(&first));
    // A connection from before outlives the change.
    let kept = visitor.clone().speaking(b"http/1.1").connects().await.unwrap();
    scratch.write("tls.crt", "rubbish");
    tokio::time::sleep(std::time::Duration::from_millis(2500)).await;
    assert_eq!(visitor.gets("/healthz").await.certificate, der(&first));
    written(&scratch, "tls", &second);
    eventually("the new certificate is shown", || async { visitor.gets("/healthz").await.certificate == der(&second) })
        .await;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(hyper_util::rt::TokioIo::new(kept)).await.unwrap();
    tokio::spawn(connection);
    let request = http::Request::get("/healthz").header("host", "localhost").body(String::new()).unwrap();
    assert_eq!(sender.send_request(request).await.unwrap().status(), 200);
}

#[tokio::test]
async fn a_directory_that_is_swapped_by_a_symbolic_link_is_followed() {
    let (authority, scratch) = (Authority::new("ours"), Scratch::new());
    let (first, second) = (authority.server(&["localhost"]), authority.server(&["localhost"]));
    // As a kubelet lays out a Secret: data/tls.crt -> ..data/tls.crt, ..data -> a directory of its own.
    let lay_out = |name: &str, pair: &Pair| {
        std::fs::create_dir(scratch.path().join(name)).unwrap();
        written(&scratch, &format!("{name}/tls"), pair);
        std::os::unix::fs::symlink(name, scratch.path().join("..fresh")).unwrap();
        std::fs::rename(scratch.path().join("..fresh"), scratch.path().join("..data")).unwrap();
    };
    lay_out("..one", &first);
    for file in ["tls.crt", "tls.key"] {
        std::os::unix::fs::symlink(format!("..data/{file}"), scratch.path().join(file)).unwrap();
    }
    let files = Some((scratch.path().join("tls.crt"), scratch.path().join("tls.key")));
    let running = Wanted::with_tls(TlsOptions { files, ..TlsOptions::default() }).start().await;
    assert_eq!(running.visitor().gets("/healthz").await.certificate, der(&first));
    lay_out("..two", &second);
    eventually("the new certificate is shown", || async {
        running.visitor().gets("/healthz").await.certificate == der(&second)
    })
    .await;
}

#[tokio::test]
async fn the_name_asked_for_chooses_the_certificate() {
    let (authority, scratch) = (Authority::new("ours"), Scratch::new());
    let [main, own, given] = [
        authority.server(&["localhost"]),
        authority.server(&["*.example.com"]),
        authority.server(&["anything.example.org"]),
    ];
    let pair = |name: &str, pair: &Pair, names: &[&str]| {
        let (certificate, key) = written(&scratch, name, pair);
        (certificate, key, names.iter().map(|name| (*name).to_owned()).collect())
    };
    let tls = TlsOptions {
        files: Some(written(&scratch, "main", &main)),
        sni: vec![pair("own", &own, &[]), pair("given", &given, &["Given.example.net"])],
        ..TlsOptions::default()
    };
    let running = Wanted::with_tls(tls).start().await;
    let cases = [
        (Some("localhost"), &main),
        (None, &main),
        (Some("a.example.com"), &own),
        (Some("a.b.example.com"), &main),
        (Some("given.example.net"), &given),
        (Some("anything.example.org"), &main),
    ];
    for (name, expected) in cases {
        let told = running.visitor().named(name).gets("/healthz").await;
        assert_eq!((told.status, told.certificate == der(expected)), (200, true), "{name:?}");
    }
}

#[tokio::test]
async fn versions_and_protocols_are_those_that_are_wanted() {
    let running = Wanted::alone().start().await;
    let visitor = running.visitor();
    assert!(visitor.gets("/healthz").await.http2);
    assert!(!visitor.clone().speaking(b"http/1.1").gets("/healthz").await.http2);
    assert_eq!(visitor.clone().in_version(&TLS12).gets("/healthz").await.status, 200);

    let running = Wanted::with_tls(TlsOptions { only_tls13: true, ..TlsOptions::default() }).start().await;
    assert!(running.visitor().in_version(&TLS12).connects().await.is_err());
    assert_eq!(running.visitor().in_version(&TLS13).gets("/healthz").await.status, 200);

    let mut wanted = Wanted::alone();
    wanted.serving.http2 = false;
    let running = wanted.start().await;
    assert!(!running.visitor().gets("/healthz").await.http2);

    // Suites that cannot be offered leave TLS 1.3, of which there is nothing to choose.
    let cipher_suites = vec!["TLS_RSA_WITH_AES_128_CBC_SHA".to_owned()];
    let running = Wanted::with_tls(TlsOptions { cipher_suites, ..TlsOptions::default() }).start().await;
    assert!(running.visitor().in_version(&TLS12).connects().await.is_err());
    assert_eq!(running.visitor().gets("/healthz").await.status, 200);
}

#[tokio::test]
async fn what_cannot_be_served_is_said_before_anything_is() {
    let refused = |wanted: Wanted| Server::bind(&wanted.serving).map(drop).unwrap_err().to_string();
    let files = Some(("/nowhere/tls.crt".into(), "/nowhere/tls.key".into()));
    let missing = refused(Wanted::with_tls(TlsOptions { files, ..TlsOptions::default() }));
    assert!(missing.starts_with("/nowhere/tls.crt: cannot be read"), "{missing}");
    let cipher_suites = vec!["TLS_MOON".to_owned()];
    let unknown = refused(Wanted::with_tls(TlsOptions { cipher_suites, ..TlsOptions::default() }));
    assert_eq!(unknown, "Cipher suite TLS_MOON not supported or doesn't exist");
    let running = Wanted::alone().start().await;
    let mut taken = Wanted::alone();
    taken.serving.port = running.address.port();
    let taken = refused(taken);
    assert!(taken.contains(&running.address.to_string()) && taken.contains("in use"), "{taken}");
}
