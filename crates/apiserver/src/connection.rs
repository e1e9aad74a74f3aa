//! Serves one connection: TLS handshake, HTTP version and limits.
//!
//! The limits are those of a real kube-apiserver, so that it and this server reject the same requests.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::connections::{Activity, Connection, Health};
use crate::http::{Peer, serve};
use crate::server::until_stopped;
use crate::state::State;

/// Timeout of the TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Timeout of an HTTP/1 connection that waits for the headers of its next request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(90);

/// Maximum size of the request line and headers in bytes.
const MAX_HEADER_BYTES: usize = 1 << 20;

/// Maximum number of concurrent requests, mostly watches, on one HTTP/2 connection.
const MAX_STREAMS: u32 = 250;

/// Response to a client that sends HTTP without TLS. This is upstream's message, which users search for.
const NOT_TLS: &[u8] = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";

/// Grace period for open requests when the server closes a connection.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

/// Interval of HTTP/2 keep-alive pings, and the timeout of their acknowledgement.
const PING_INTERVAL: Duration = Duration::from_secs(30);

/// Serves a connection until it ends.
pub(crate) async fn run(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    state: Arc<State>,
    connection: Connection,
    stopped: watch::Receiver<bool>,
) {
    // Small responses and watch events must not wait for each other.
    let _ = stream.set_nodelay(true);
    let outcome = tokio::select! {
        outcome = tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake(stream, acceptor)) => outcome,
        () = connection.activity.evicted() => return,
    };
    match outcome {
        Ok(Ok(Some(stream))) => serve_requests(stream, state, &connection.activity, stopped).await,
        Ok(Ok(None)) => tracing::debug!("client sent an HTTP request without TLS"),
        Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
        Err(_) => tracing::debug!("TLS handshake timed out"),
    }
}

/// Performs the TLS handshake. Returns `None` if the client sent plain HTTP, after sending it an error response.
async fn handshake(mut stream: TcpStream, acceptor: TlsAcceptor) -> std::io::Result<Option<TlsStream<TcpStream>>> {
    let mut first = [0];
    stream.peek(&mut first).await?;
    // A TLS record starts with a small type number, an HTTP request with an upper-case method.
    if first[0].is_ascii_uppercase() {
        stream.write_all(NOT_TLS).await?;
        stream.shutdown().await?;
        return Ok(None);
    }
    acceptor.accept(stream).await.map(Some)
}

async fn serve_requests(
    stream: TlsStream<TcpStream>,
    state: Arc<State>,
    activity: &Arc<Activity>,
    stopped: watch::Receiver<bool>,
) {
    let (socket, session) = stream.get_ref();
    let address = socket.peer_addr().ok().map(|address| address.ip());
    let certificate = session.peer_certificates().and_then(|chain| chain.first());
    let peer = Peer { certificate: certificate.map(|c| Arc::from(c.as_ref())), trusted: None, address };
    let builder = protocol(session.alpn_protocol() == Some(b"h2"));
    let service = service_fn(|request: Request<Incoming>| {
        let (active, serving) = (activity.begin(), serve(state.clone(), peer.clone(), request));
        async move { serving.await.map(|response| active.until_sent(response)) }
    });
    let mut serving = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
        end = until_closed(activity, stopped) => match end {
            End::Abort => return,
            End::Finish => {
                serving.as_mut().graceful_shutdown();
                tokio::time::timeout(SHUTDOWN_GRACE, serving).await.unwrap_or(Ok(()))
            }
        },
    };
    if let Err(error) = ended {
        tracing::debug!(error, "connection ended");
    }
}

/// Mode in which the server closes a connection.
enum End {
    /// Open requests may finish.
    Finish,
    /// Immediately, because the client does not read.
    Abort,
}

/// Waits until the server has to close the connection.
async fn until_closed(activity: &Activity, mut stopped: watch::Receiver<bool>) -> End {
    let mut checks = tokio::time::interval(activity.check_every());
    loop {
        tokio::select! {
            () = until_stopped(&mut stopped) => return End::Finish,
            () = activity.evicted() => return End::Finish,
            _ = checks.tick() => match activity.health() {
                Health::Healthy => {}
                Health::Idle => return End::Finish,
                Health::Stuck => {
                    tracing::debug!("client does not read its response");
                    return End::Abort;
                }
            },
        }
    }
}

/// Configures the HTTP version negotiated in the handshake. Detecting it from the first bytes would let a client that
/// sends none keep the connection open without a timeout.
fn protocol(http2: bool) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .keep_alive(true)
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(MAX_HEADER_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEADER_BYTES as u32);
    builder.http2().keep_alive_interval(PING_INTERVAL).keep_alive_timeout(PING_INTERVAL);
    if http2 { builder.http2_only() } else { builder.http1_only() }
}
