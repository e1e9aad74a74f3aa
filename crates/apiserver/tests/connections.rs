//! Connections of clients that are careless, slow or wordy.

use std::sync::Arc;
use std::time::Duration;

use bowline_apiserver::{ApiServer, Options};
use bytes::Bytes;
use futures::StreamExt;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{PostParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Long for a header field, and short of the mebibyte that a head may take.
const LONG: usize = 700 << 10;

/// The authority, the certificate and the key of a kubeconfig.
fn credentials(kubeconfig: &str) -> Result<[Vec<u8>; 3], Failure> {
    let decoded = |name: &str| {
        let lines = kubeconfig.lines().map(str::trim);
        let text =
            lines.filter_map(|line| line.strip_prefix(name)).next().ok_or("the kubeconfig lacks a credential")?;
        Ok::<_, Failure>(base64::Engine::decode(&base64::prelude::BASE64_STANDARD, text)?)
    };
    let [authority, certificate, key] =
        ["certificate-authority-data: ", "client-certificate-data: ", "client-key-data: "].map(decoded);
    Ok([authority?, certificate?, key?])
}

/// A connection of the administrator, on which nothing has been said yet.
async fn connect(server: &ApiServer, protocol: &[u8]) -> Result<TlsStream<TcpStream>, Failure> {
    let [authority, certificate, key] = credentials(&server.kubeconfig())?;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(&authority)?)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_client_auth_cert(
            vec![CertificateDer::from_pem_slice(&certificate)?],
            PrivateKeyDer::from_pem_slice(&key)?,
        )?;
    config.alpn_protocols = vec![protocol.to_vec()];
    let stream = TcpStream::connect(server.address()).await?;
    let name = ServerName::IpAddress(server.address().ip().into());
    Ok(TlsConnector::from(Arc::new(config)).connect(name, stream).await?)
}

#[tokio::test]
async fn a_client_that_forgets_tls_is_told() -> Result<(), Failure> {
    let server = ApiServer::start(Options::default()).await?;
    let mut stream = TcpStream::connect(server.address()).await?;
    stream.write_all(b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n").await?;
    let mut answer = vec![0; 200];
    let length = stream.read(&mut answer).await?;
    let answer = String::from_utf8_lossy(&answer[..length]);
    assert!(answer.starts_with("HTTP/1.0 400 Bad Request"), "{answer}");
    assert!(answer.ends_with("Client sent an HTTP request to an HTTPS server.\n"), "{answer}");
    Ok(())
}

#[tokio::test]
async fn a_large_head_is_read_over_http_1() -> Result<(), Failure> {
    let server = ApiServer::start(Options::default()).await?;
    let mut stream = connect(&server, b"http/1.1").await?;
    let request = format!("GET /livez HTTP/1.1\r\nHost: x\r\nX-Long: {}\r\n\r\n", "a".repeat(LONG));
    stream.write_all(request.as_bytes()).await?;
    let mut answer = [0; 15];
    stream.read_exact(&mut answer).await?;
    assert_eq!(String::from_utf8_lossy(&answer), "HTTP/1.1 200 OK");
    Ok(())
}

#[tokio::test]
async fn a_large_head_is_read_over_http_2() -> Result<(), Failure> {
    let server = ApiServer::start(Options::default()).await?;
    let stream = TokioIo::new(connect(&server, b"h2").await?);
    let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await?;
    tokio::spawn(connection);
    let request = Request::get(format!("{}/livez", server.url())).header("x-long", "a".repeat(LONG));
    let response = sender.send_request(request.body(Empty::<Bytes>::new())?).await?;
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.into_body().collect().await?.to_bytes(), "ok");
    Ok(())
}

#[tokio::test]
async fn a_client_that_never_reads_its_watch_holds_nobody_up() -> Result<(), Failure> {
    const WRITES: usize = 300;
    let server = ApiServer::start(Options::default()).await?;
    let maps: Api<ConfigMap> = Api::namespaced(server.client().await?, "kube-public");
    let mut idler = connect(&server, b"http/1.1").await?;
    idler.write_all(b"GET /api/v1/configmaps?watch=1 HTTP/1.1\r\nHost: x\r\n\r\n").await?;
    let mut reader = maps.watch(&WatchParams::default(), "0").await?.boxed();

    let data = "x".repeat(40 << 10);
    for n in 0..WRITES {
        let map = json!({"metadata": {"name": format!("m{n}")}, "data": {"x": data}});
        maps.create(&PostParams::default(), &serde_json::from_value(map)?).await?;
    }
    let mut seen = 0;
    while seen < WRITES {
        let event = tokio::time::timeout(Duration::from_secs(10), reader.next()).await?;
        let event = event.ok_or("the watch ended")??;
        if let WatchEvent::Added(map) = event {
            seen += usize::from(map.name_any().starts_with('m'));
        }
    }
    Ok(())
}
