//! One connection: its TLS handshake, the protocol spoken on it, and its limits.
//!
//! The limits are those of a real server, so that a request that is too large or too slow there is so here.

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

/// How long a client may take for its TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// How long an HTTP/1 connection may wait for the head of its next request.
const IDLE: Duration = Duration::from_secs(90);

/// The head of a request may be this large: its address and its header fields.
const HEAD: usize = 1 << 20;

/// How many requests, watches for the most part, may be open on one HTTP/2 connection.
const STREAMS: u32 = 250;

/// What a client gets that speaks HTTP without TLS; upstream's words, which people search for.
const NOT_TLS: &[u8] = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";

/// How long the requests in hand have to end, once a connection may not go on.
const FAREWELL: Duration = Duration::from_secs(5);

/// Whether a dead client is still there is asked this often; its answer has to come within the same time.
const PING: Duration = Duration::from_secs(30);

/// Serves a connection until it ends.
pub(crate) async fn run(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    state: Arc<State>,
    connection: Connection,
    stopped: watch::Receiver<bool>,
) {
    // Small answers and watch events must not wait for each other.
    let _ = stream.set_nodelay(true);
    let shaken = tokio::select! {
        shaken = tokio::time::timeout(HANDSHAKE, handshake(stream, acceptor)) => shaken,
        () = connection.activity.displaced() => return,
    };
    match shaken {
        Ok(Ok(Some(stream))) => serve_requests(stream, state, &connection.activity, stopped).await,
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

async fn serve_requests(
    stream: TlsStream<TcpStream>,
    state: Arc<State>,
    activity: &Arc<Activity>,
    stopped: watch::Receiver<bool>,
) {
    let session = stream.get_ref().1;
    let certificate = session.peer_certificates().and_then(|chain| chain.first());
    let peer = Peer { certificate: certificate.map(|c| Arc::from(c.as_ref())), trusted: None };
    let builder = protocol(session.alpn_protocol() == Some(b"h2"));
    let service = service_fn(|request: Request<Incoming>| {
        let (busy, serving) = (activity.begin(), serve(state.clone(), peer.clone(), request));
        async move { serving.await.map(|answer| busy.until_sent(answer)) }
    });
    let mut serving = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
        end = until_over(activity, stopped) => match end {
            End::Cut => return,
            End::Finish => {
                serving.as_mut().graceful_shutdown();
                tokio::time::timeout(FAREWELL, serving).await.unwrap_or(Ok(()))
            }
        },
    };
    if let Err(error) = ended {
        tracing::debug!(error, "connection ended");
    }
}

/// How a connection ends that the client does not end.
enum End {
    /// What is in hand is finished.
    Finish,
    /// At once: the client does not read.
    Cut,
}

/// Waits until the connection has to end.
async fn until_over(activity: &Activity, mut stopped: watch::Receiver<bool>) -> End {
    let mut checks = tokio::time::interval(activity.check_every());
    loop {
        tokio::select! {
            () = until_stopped(&mut stopped) => return End::Finish,
            () = activity.displaced() => return End::Finish,
            _ = checks.tick() => match activity.health() {
                Health::Good => {}
                Health::Idle => return End::Finish,
                Health::Stuck => {
                    tracing::debug!("a client does not read its answer");
                    return End::Cut;
                }
            },
        }
    }
}

/// The protocol is the one agreed on in the handshake. To guess it from the first bytes would let a client that sends
/// none wait for ever.
fn protocol(http2: bool) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).keep_alive(true).header_read_timeout(IDLE).max_buf_size(HEAD);
    builder.http2().timer(TokioTimer::new()).max_concurrent_streams(STREAMS).max_header_list_size(HEAD as u32);
    builder.http2().keep_alive_interval(PING).keep_alive_timeout(PING);
    if http2 { builder.http2_only() } else { builder.http1_only() }
}
