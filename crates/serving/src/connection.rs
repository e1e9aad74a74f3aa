//! Serves one connection: TLS handshake, requests, limits.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::Watcher;
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::access_control::AccessControl;
use crate::answer::{self, Answer};
use crate::connection_limit::ConnectionPermit;
use crate::router::{IncomingRequest, Router, finished};

/// Timeout of the TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Timeout of the request head, and therefore of an idle connection.
const HEAD_TIME: Duration = Duration::from_secs(32);

/// Timeout of the request body.
const BODY_TIME: Duration = Duration::from_secs(30);

/// Maximum size of the request head.
const HEAD: usize = 128 << 10;

/// Maximum size of the request body: an old and a new object, as the API server sends them to webhooks.
const BODY: usize = 8 << 20;

/// Default for the maximum number of concurrent streams of an HTTP/2 connection.
const STREAMS: u32 = 250;

/// Interval of HTTP/2 keepalive pings.
const PING: Duration = Duration::from_secs(30);

/// Response to plain HTTP. upstream: this wording, which operators search for.
const NOT_TLS: &[u8] = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";

/// Router and access control of a server.
pub(crate) struct Served {
    pub(crate) router: Router,
    pub(crate) access: AccessControl,
}

/// Limits that are configured per server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    streams: u32,
}

impl Limits {
    pub(crate) fn new(max_streams: u32) -> Limits {
        Limits { streams: if max_streams == 0 { STREAMS } else { max_streams } }
    }
}

/// Certificate chain of the client, leaf first.
type ClientCertificates = Arc<[CertificateDer<'static>]>;

/// Serves a connection until it closes. Errors of the client are logged at debug level only.
pub(crate) async fn run(
    stream: TcpStream,
    acceptor: Option<TlsAcceptor>,
    served: Arc<Served>,
    limits: Limits,
    watcher: Watcher,
    permit: Arc<ConnectionPermit>,
) {
    let _ = stream.set_nodelay(true);
    let Some(acceptor) = acceptor else {
        return serve_requests(stream, (Arc::new([]), permit), false, served, limits, watcher).await;
    };
    match tokio::time::timeout(HANDSHAKE, handshake(stream, acceptor)).await {
        Ok(Ok(Some(stream))) => {
            let session = stream.get_ref().1;
            let certificates: ClientCertificates =
                session.peer_certificates().unwrap_or_default().iter().map(|c| c.clone().into_owned()).collect();
            let http2 = session.alpn_protocol() == Some(b"h2");
            serve_requests(stream, (certificates, permit), http2, served, limits, watcher).await;
        }
        Ok(Ok(None)) => tracing::debug!("a client sent plain HTTP to the HTTPS port"),
        Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
        Err(_) => tracing::debug!("TLS handshake timed out"),
    }
}

/// Accepts the TLS connection. Returns `None` after responding to a client that sent plain HTTP.
async fn handshake(mut stream: TcpStream, acceptor: TlsAcceptor) -> std::io::Result<Option<TlsStream<TcpStream>>> {
    let mut first = [0];
    stream.peek(&mut first).await?;
    // A TLS record starts with its type, a small number; HTTP with the name of a method.
    if first[0].is_ascii_uppercase() {
        stream.write_all(NOT_TLS).await?;
        stream.shutdown().await?;
        return Ok(None);
    }
    acceptor.accept(stream).await.map(Some)
}

async fn serve_requests<S>(
    stream: S,
    (certificates, permit): (ClientCertificates, Arc<ConnectionPermit>),
    http2: bool,
    served: Arc<Served>,
    limits: Limits,
    watcher: Watcher,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request: Request<Incoming>| {
        let (served, certificates, permit) = (served.clone(), certificates.clone(), permit.clone());
        async move { Ok::<_, Infallible>(respond(&served, &certificates, &permit, request).await) }
    });
    let builder = protocol(http2, limits);
    let serving = builder.serve_connection(TokioIo::new(stream), service).into_owned();
    if let Err(error) = watcher.watch(serving).await {
        tracing::debug!(error, "connection ended");
    }
}

/// Configures the protocol negotiated in the handshake. Detecting it from the first bytes would let a client that sends none keep
/// the connection open forever.
fn protocol(http2: bool, limits: Limits) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).keep_alive(true).header_read_timeout(HEAD_TIME).max_buf_size(HEAD);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.streams)
        .max_header_list_size(HEAD as u32)
        .keep_alive_interval(PING);
    if http2 { builder.http2_only() } else { builder.http1_only() }
}

/// Authenticates, authorizes and routes a request.
async fn respond(
    served: &Served,
    certificates: &[CertificateDer<'static>],
    permit: &ConnectionPermit,
    request: Request<Incoming>,
) -> Answer {
    let in_progress = permit.begin_request();
    let (head, body) = request.into_parts();
    let is_head = head.method == Method::HEAD;
    let mut incoming = IncomingRequest { headers: head.headers, ..IncomingRequest::new(head.method, &head.uri) };
    tracing::debug!(method = %incoming.method, path = incoming.path, "request");
    match served.access.admit(&incoming, &head.uri, certificates).await {
        Ok(user) => incoming.user = user,
        Err(response) => return finished(*response, is_head),
    }
    served.access.remove_credentials(&mut incoming.headers);
    // A connection whose client sends its body slowly counts as idle.
    drop(in_progress);
    let body = read(body, &served.router).await;
    let _in_progress = permit.begin_request();
    match body {
        Ok(body) => served.router.answer(IncomingRequest { body, ..incoming }).await,
        Err(response) => finished(*response, is_head),
    }
}

async fn read(body: Incoming, router: &Router) -> Result<Bytes, Box<Answer>> {
    let failure = |status, message| Err(Box::new(answer::failure(status, message)));
    match tokio::time::timeout(BODY_TIME, Limited::new(body, BODY).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Box::new(router.answer_oversized())),
        Ok(Err(_)) => failure(StatusCode::BAD_REQUEST, "the request body is incomplete"),
        Err(_) => failure(StatusCode::REQUEST_TIMEOUT, "timeout while reading the request body"),
    }
}
