//! Connections of clients that are idle, slow or do not read responses.

use std::sync::Arc;
use std::time::Duration;

use bowline_apiserver::{ApiServer, AuthorizationMode, ConnectionLimits, Options};
use bytes::Bytes;
use futures::StreamExt;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
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

use crate::Failure;

/// A long header value, below the limit of 1 MiB for all headers.
const LONG: usize = 700 << 10;

/// The CA certificate, client certificate and client key of a kubeconfig.
fn credentials(kubeconfig: &str) -> Result<[Vec<u8>; 3], Failure> {
    let decoded = |name: &str| {
        let lines = kubeconfig.lines().map(str::trim);
        let text =
            lines.filter_map(|line| line.strip_prefix(name)).next().ok_or("the kubeconfig has no credentials")?;
        Ok::<_, Failure>(base64::Engine::decode(&base64::prelude::BASE64_STANDARD, text)?)
    };
    let [authority, certificate, key] =
        ["certificate-authority-data: ", "client-certificate-data: ", "client-key-data: "].map(decoded);
    Ok([authority?, certificate?, key?])
}

/// A new connection of the administrator, without any request.
pub(crate) async fn connect(server: &ApiServer, protocol: &[u8]) -> Result<TlsStream<TcpStream>, Failure> {
    connect_as(server, protocol, &server.kubeconfig()).await
}

async fn connect_as(server: &ApiServer, protocol: &[u8], kubeconfig: &str) -> Result<TlsStream<TcpStream>, Failure> {
    let [authority, certificate, key] = credentials(kubeconfig)?;
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

type Http2 = hyper::client::conn::http2::SendRequest<Full<Bytes>>;

async fn http2(stream: TlsStream<TcpStream>) -> Result<Http2, Failure> {
    let stream = TokioIo::new(stream);
    let (sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await?;
    tokio::spawn(connection);
    Ok(sender)
}

async fn server_with(connections: ConnectionLimits) -> Result<ApiServer, Failure> {
    Ok(ApiServer::start(Options { connections, ..Options::default() }).await?)
}

/// Waits until the server has this number of open connections.
async fn until_open(server: &ApiServer, count: usize) {
    let closed = async {
        while server.connections() != count {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    assert!(
        tokio::time::timeout(Duration::from_secs(30), closed).await.is_ok(),
        "{} connections are open",
        server.connections()
    );
}

#[tokio::test]
async fn a_client_without_tls_gets_an_error_response() -> Result<(), Failure> {
    let server = ApiServer::start(Options::default()).await?;
    let mut stream = TcpStream::connect(server.address()).await?;
    stream.write_all(b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n").await?;
    let mut response = vec![0; 200];
    let length = stream.read(&mut response).await?;
    let response = String::from_utf8_lossy(&response[..length]);
    assert!(response.starts_with("HTTP/1.0 400 Bad Request"), "{response}");
    assert!(response.ends_with("Client sent an HTTP request to an HTTPS server.\n"), "{response}");
    Ok(())
}

#[tokio::test]
async fn large_headers_are_accepted_over_http_1() -> Result<(), Failure> {
    let server = ApiServer::start(Options::default()).await?;
    let mut stream = connect(&server, b"http/1.1").await?;
    let request = format!("GET /livez HTTP/1.1\r\nHost: x\r\nX-Long: {}\r\n\r\n", "a".repeat(LONG));
    stream.write_all(request.as_bytes()).await?;
    let mut response = [0; 15];
    stream.read_exact(&mut response).await?;
    assert_eq!(String::from_utf8_lossy(&response), "HTTP/1.1 200 OK");
    Ok(())
}

#[tokio::test]
async fn large_headers_are_accepted_over_http_2() -> Result<(), Failure> {
    let server = ApiServer::start(Options::default()).await?;
    let mut sender = http2(connect(&server, b"h2").await?).await?;
    let request = Request::get(format!("{}/livez", server.url())).header("x-long", "a".repeat(LONG));
    let response = sender.send_request(request.body(Full::default())?).await?;
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.into_body().collect().await?.to_bytes(), "ok");
    Ok(())
}

#[tokio::test]
async fn a_client_that_never_reads_its_watch_does_not_block_other_clients() -> Result<(), Failure> {
    const WRITES: usize = 300;
    let server = ApiServer::start(Options::default()).await?;
    let maps: Api<ConfigMap> = Api::namespaced(server.client().await?, "kube-public");
    let mut unread = connect(&server, b"http/1.1").await?;
    unread.write_all(b"GET /api/v1/configmaps?watch=1 HTTP/1.1\r\nHost: x\r\n\r\n").await?;
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

#[tokio::test]
async fn an_idle_connection_is_closed() -> Result<(), Failure> {
    let server =
        server_with(ConnectionLimits { idle_timeout: Duration::from_millis(300), ..Default::default() }).await?;
    let silent = [connect(&server, b"h2").await?, connect(&server, b"http/1.1").await?];
    let mut sender = http2(connect(&server, b"h2").await?).await?;
    let request = || Request::get(format!("{}/livez", server.url())).body(Full::default());
    assert_eq!(sender.send_request(request()?).await?.status(), StatusCode::OK);
    until_open(&server, 0).await;
    drop(silent);
    Ok(())
}

#[tokio::test]
async fn idle_connections_are_evicted_for_new_ones() -> Result<(), Failure> {
    const LIMIT: usize = 8;
    let server = server_with(ConnectionLimits { max_connections: LIMIT, ..Default::default() }).await?;
    let maps: Api<ConfigMap> = Api::namespaced(server.client().await?, "kube-public");
    let mut watch = maps.watch(&WatchParams::default(), "0").await?.boxed();
    let mut idle = Vec::new();
    for n in 0..5 * LIMIT {
        idle.push(connect(&server, [&b"h2"[..], b"http/1.1"][n % 2]).await?);
        assert!(server.connections() <= LIMIT);
    }
    let mut sender = http2(connect(&server, b"h2").await?).await?;
    let request = Request::get(format!("{}/livez", server.url())).body(Full::default())?;
    assert_eq!(sender.send_request(request).await?.status(), StatusCode::OK);
    // The connection with the open watch was not evicted.
    let map = serde_json::from_value(json!({"metadata": {"name": "still-there"}}))?;
    Api::<ConfigMap>::namespaced(server.in_process_client(), "kube-public")
        .create(&PostParams::default(), &map)
        .await?;
    let seen = async {
        while let Some(event) = watch.next().await {
            if matches!(event?, WatchEvent::Added(map) if map.name_any() == "still-there") {
                return Ok(());
            }
        }
        Err::<(), Failure>("the watch ended".into())
    };
    tokio::time::timeout(Duration::from_secs(30), seen).await?
}

/// A server with more data to watch than the socket buffers hold.
async fn server_with_large_objects() -> Result<ApiServer, Failure> {
    let server =
        server_with(ConnectionLimits { send_timeout: Duration::from_millis(300), ..Default::default() }).await?;
    let maps: Api<ConfigMap> = Api::namespaced(server.in_process_client(), "kube-public");
    for n in 0..20 {
        let map = json!({"metadata": {"name": format!("m{n}")}, "data": {"x": "x".repeat(900 << 10)}});
        maps.create(&PostParams::default(), &serde_json::from_value(map)?).await?;
    }
    Ok(server)
}

#[tokio::test]
async fn a_watch_that_is_never_read_ends_at_its_timeout() -> Result<(), Failure> {
    let server = server_with_large_objects().await?;
    let path = "/api/v1/configmaps?watch=1&resourceVersion=0&timeoutSeconds=1";
    let mut plain = connect(&server, b"http/1.1").await?;
    plain.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await?;
    let mut sender = http2(connect(&server, b"h2").await?).await?;
    let unread = sender.send_request(Request::get(format!("{}{path}", server.url())).body(Full::default())?).await?;
    assert_eq!((unread.status(), server.connections()), (StatusCode::OK, 2));
    until_open(&server, 0).await;
    Ok(())
}

#[tokio::test]
async fn a_list_that_is_never_read_is_closed() -> Result<(), Failure> {
    let server = server_with_large_objects().await?;
    let mut plain = connect(&server, b"http/1.1").await?;
    plain.write_all(b"GET /api/v1/configmaps HTTP/1.1\r\nHost: x\r\n\r\n").await?;
    until_open(&server, 1).await;
    until_open(&server, 0).await;
    Ok(())
}

/// Sends a body slowly and reads the response only afterwards. Returns the status code, or an error if the stream was reset.
async fn post_slowly(server: &ApiServer, kubeconfig: &str, parts: usize) -> Result<u16, Failure> {
    let part = Bytes::from_static(&[b' '; 8 << 10]);
    let (mut client, connection) = h2::client::handshake(connect_as(server, b"h2", kubeconfig).await?).await?;
    tokio::spawn(connection);
    let request = Request::post(format!("{}/api/v1/namespaces/default/configmaps", server.url()));
    let (response, mut body) =
        client.send_request(request.header("content-type", "application/json").body(())?, false)?;
    for _ in 0..parts {
        body.reserve_capacity(part.len());
        let capacity = std::future::poll_fn(|cx| body.poll_capacity(cx)).await;
        capacity.ok_or("the stream was reset while the body was sent")??;
        body.send_data(part.clone(), false)?;
    }
    body.send_data(Bytes::new(), true)?;
    Ok(response.await?.status().as_u16())
}

#[tokio::test]
async fn a_rejected_request_gets_a_response_after_its_body() -> Result<(), Failure> {
    let options = Options { authorization: AuthorizationMode::Rbac, ..Options::default() };
    let server = ApiServer::start(options).await?;
    let kubeconfig = server.kubeconfig_for("jane", &[])?;
    for parts in [1, 2, 40, 300] {
        let response = post_slowly(&server, &kubeconfig, parts).await;
        assert_eq!(response.map_err(|error| error.to_string()), Ok(403), "{parts} parts");
    }
    Ok(())
}

#[tokio::test]
async fn the_number_of_validation_errors_in_a_response_is_limited() -> Result<(), Failure> {
    let server = ApiServer::start(Options::default()).await?;
    let labels: serde_json::Map<_, _> = (0..40_000).map(|n| (format!("-bad/key/{n}"), json!(""))).collect();
    let body = Bytes::from(json!({"metadata": {"name": "a", "labels": labels}}).to_string());
    let mut sender = http2(connect(&server, b"h2").await?).await?;
    let post = || Request::post(format!("{}/api/v1/namespaces/default/configmaps", server.url()));
    let bad = (0..4).map(|_| post().body(Full::new(body.clone()))).collect::<Result<Vec<_>, _>>()?;
    let bad: Vec<_> = bad.into_iter().map(|request| sender.send_request(request)).collect();
    for response in futures::future::join_all(bad).await {
        let response = response?;
        assert_eq!(response.status(), StatusCode::UNPROCESSABLE_ENTITY);
        let text = response.into_body().collect().await?.to_bytes();
        let status: serde_json::Value = serde_json::from_slice(&text)?;
        assert!(status["message"].as_str().is_some_and(|message| message.ends_with("further errors are not listed]")));
        let causes = status["details"]["causes"].as_array().map_or(0, Vec::len);
        assert!((500..=1000).contains(&causes) && text.len() < 1 << 20, "{causes} causes, {} bytes", text.len());
    }
    Ok(())
}
