//! One connection: its handshake, what is asked on it, and its limits.

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

use crate::answer::{self, Answer};
use crate::door::AccessControl;
use crate::room::ConnectionPermit;
use crate::site::{IncomingRequest, Router, finished};

/// How long a client may take for its TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// How long the head of a request may take, which is also how long an idle connection is kept.
const HEAD_TIME: Duration = Duration::from_secs(32);

/// How long the body of a request may take.
const BODY_TIME: Duration = Duration::from_secs(30);

/// The head of a request may be this large.
const HEAD: usize = 128 << 10;

/// What is sent with a request may be this large: an object, old and new, as the API server sends it to webhooks.
const BODY: usize = 8 << 20;

/// How many requests may be open on one HTTP/2 connection, unless somebody says otherwise.
const STREAMS: u32 = 250;

/// How often a silent HTTP/2 connection is asked whether anybody is there.
const PING: Duration = Duration::from_secs(30);

/// What a client gets that speaks HTTP without TLS; upstream's words, which people search for.
const NOT_TLS: &[u8] = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";

/// What is served, and to whom.
pub(crate) struct Served {
    pub(crate) site: Router,
    pub(crate) door: AccessControl,
}

/// What differs between servers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    streams: u32,
}

impl Limits {
    pub(crate) fn new(max_streams: u32) -> Limits {
        Limits { streams: if max_streams == 0 { STREAMS } else { max_streams } }
    }
}

/// The certificates that the client showed, its own first.
type Shown = Arc<[CertificateDer<'static>]>;

/// Serves a connection until it ends. How is the client's affair.
pub(crate) async fn run(
    stream: TcpStream,
    acceptor: Option<TlsAcceptor>,
    served: Arc<Served>,
    limits: Limits,
    watcher: Watcher,
    guest: Arc<ConnectionPermit>,
) {
    let _ = stream.set_nodelay(true);
    let Some(acceptor) = acceptor else {
        return converse(stream, (Arc::new([]), guest), false, served, limits, watcher).await;
    };
    match tokio::time::timeout(HANDSHAKE, handshake(stream, acceptor)).await {
        Ok(Ok(Some(stream))) => {
            let session = stream.get_ref().1;
            let shown: Shown =
                session.peer_certificates().unwrap_or_default().iter().map(|c| c.clone().into_owned()).collect();
            let http2 = session.alpn_protocol() == Some(b"h2");
            converse(stream, (shown, guest), http2, served, limits, watcher).await;
        }
        Ok(Ok(None)) => tracing::debug!("a client spoke HTTP without TLS"),
        Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
        Err(_) => tracing::debug!("TLS handshake took too long"),
    }
}

/// The encrypted stream; `None` if the client did not mean to encrypt, and has been told.
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

async fn converse<S>(
    stream: S,
    (shown, guest): (Shown, Arc<ConnectionPermit>),
    http2: bool,
    served: Arc<Served>,
    limits: Limits,
    watcher: Watcher,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request: Request<Incoming>| {
        let (served, shown, guest) = (served.clone(), shown.clone(), guest.clone());
        async move { Ok::<_, Infallible>(respond(&served, &shown, &guest, request).await) }
    });
    let builder = protocol(http2, limits);
    let serving = builder.serve_connection(TokioIo::new(stream), service).into_owned();
    if let Err(error) = watcher.watch(serving).await {
        tracing::debug!(error, "connection ended");
    }
}

/// The protocol is the one agreed on in the handshake. To guess it from the first bytes would let a client that sends
/// none wait for ever.
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

/// Who, may they, and what they asked for.
async fn respond(
    served: &Served,
    shown: &[CertificateDer<'static>],
    guest: &ConnectionPermit,
    request: Request<Incoming>,
) -> Answer {
    let busy = guest.busy();
    let (head, body) = request.into_parts();
    let is_head = head.method == Method::HEAD;
    let mut asked = IncomingRequest { headers: head.headers, ..IncomingRequest::new(head.method, &head.uri) };
    tracing::debug!(method = %asked.method, path = asked.path, "asked");
    match served.door.admit(&asked, &head.uri, shown).await {
        Ok(user) => asked.user = user,
        Err(refusal) => return finished(*refusal, is_head),
    }
    served.door.hide_who(&mut asked.headers);
    // Who sends slowly is as good as idle.
    drop(busy);
    let body = read(body).await;
    let _busy = guest.busy();
    match body {
        Ok(body) => served.site.answer(IncomingRequest { body, ..asked }).await,
        Err(refusal) => finished(*refusal, is_head),
    }
}

async fn read(body: Incoming) -> Result<Bytes, Box<Answer>> {
    let refusal = |status, message| Err(Box::new(answer::failure(status, message)));
    match tokio::time::timeout(BODY_TIME, Limited::new(body, BODY).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            refusal(StatusCode::PAYLOAD_TOO_LARGE, "the body of the request is too large")
        }
        Ok(Err(_)) => refusal(StatusCode::BAD_REQUEST, "the body of the request broke off"),
        Err(_) => refusal(StatusCode::REQUEST_TIMEOUT, "the body of the request took too long"),
    }
}
