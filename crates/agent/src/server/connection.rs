//! Connections: TLS, limits, HTTP/1.1.

use std::convert::Infallible;
use std::fs::Permissions;
use std::io;
#[cfg(target_os = "linux")]
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bowline_runtime::Shutdown;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
#[cfg(target_os = "linux")]
use socket2::{Domain, SockAddr, Socket, Type};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::access::Caller;
use super::credentials::Credentials;
use super::error_reply;
use super::router::Api;
use crate::certificate_names::names_in;
use crate::config::Listen;
use crate::error::AgentError;

/// Maximum number of concurrent connections with a valid certificate.
const CONNECTIONS: usize = 512;

/// Maximum number of concurrent TLS handshakes: clients without a certificate must not use up the connections.
const HANDSHAKES: usize = 64;

/// Timeout of the TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// Timeout of the request head, and therefore of an idle connection.
const HEAD_TIME: Duration = Duration::from_secs(60);

/// Timeout of the request body.
const BODY_TIME: Duration = Duration::from_secs(30);

/// Maximum size of the request head.
const HEAD: usize = 64 << 10;

/// Maximum size of the request body: the complete state of a large group.
const BODY: usize = 256 << 20;

/// Maximum size of the request body of calls other than those of peers.
const CLIENT_BODY: usize = 16 << 20;

/// Mode of a Unix socket.
const SOCKET_MODE: u32 = 0o600;

/// Connections that wait for `accept` of a Unix socket.
#[cfg(target_os = "linux")]
const BACKLOG: i32 = 128;

/// Pause after `accept` failed, usually because the process has too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A bound listener of the API.
pub(crate) enum Listener {
    /// TLS with client certificates.
    Tls(TcpListener, Arc<Credentials>),
    /// A Unix socket, which is removed on drop.
    Unix(UnixListener, PathBuf),
}

impl Listener {
    /// Binds the address.
    pub(crate) async fn bind(listen: &Listen, credentials: Option<Arc<Credentials>>) -> io::Result<Listener> {
        match (listen, credentials) {
            (Listen::Tcp(address), Some(credentials)) => {
                Ok(Listener::Tls(TcpListener::bind(address).await?, credentials))
            }
            (Listen::Tcp(_), None) => Err(io::Error::other("the API needs certificates")),
            (Listen::Unix(path), _) => {
                remove_socket(path)?;
                Ok(Listener::Unix(bind_unix(path)?, path.clone()))
            }
        }
    }
}

impl Listener {
    /// Address of the TCP listener.
    pub(crate) fn address(&self) -> Option<std::net::SocketAddr> {
        match self {
            Listener::Tls(listener, _) => listener.local_addr().ok(),
            Listener::Unix(..) => None,
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Listener::Unix(_, path) = self {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Binds a Unix socket that only the user of this process can open. Connections are refused until its mode is set.
#[cfg(target_os = "linux")]
fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.bind(&SockAddr::unix(path)?)?;
    std::fs::set_permissions(path, Permissions::from_mode(SOCKET_MODE))?;
    socket.listen(BACKLOG)?;
    UnixListener::from_std(OwnedFd::from(socket).into())
}

/// Binds a Unix socket that only the user of this process can open.
#[cfg(not(target_os = "linux"))]
fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, Permissions::from_mode(SOCKET_MODE))?;
    Ok(listener)
}

/// Removes the socket of an earlier process, but no other file and no socket that is in use.
fn remove_socket(path: &PathBuf) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => match std::os::unix::net::UnixStream::connect(path) {
            Ok(_) => Err(io::Error::new(io::ErrorKind::AddrInUse, "another process listens there")),
            Err(_) => std::fs::remove_file(path),
        },
        _ => Ok(()),
    }
}

/// Serves until shutdown is requested.
pub(crate) async fn serve(listener: Listener, api: Arc<Api>, shutdown: Shutdown) {
    let (connections, handshakes) = (Arc::new(Semaphore::new(CONNECTIONS)), Arc::new(Semaphore::new(HANDSHAKES)));
    while !shutdown.is_requested() {
        let accepted = match &listener {
            Listener::Tls(listener, credentials) => {
                let Some(accepted) = shutdown.or(listener.accept()).await else { return };
                accepted.map(|(stream, _)| {
                    let acceptor = TlsAcceptor::from(credentials.server());
                    let limits = (connections.clone(), handshakes.clone());
                    spawn(shutdown.clone(), serve_tls(stream, acceptor, api.clone(), limits));
                })
            }
            Listener::Unix(listener, _) => {
                let Some(accepted) = shutdown.or(listener.accept()).await else { return };
                accepted.map(|(stream, _)| {
                    let (api, connections) = (api.clone(), connections.clone());
                    spawn(shutdown.clone(), async move {
                        let Ok(_permit) = connections.acquire_owned().await else { return };
                        serve_requests(stream, Caller::Local, api).await;
                    });
                })
            }
        };
        if let Err(error) = accepted {
            tracing::warn!(%error, "cannot accept a connection");
            tokio::time::sleep(ACCEPT_PAUSE).await;
        }
    }
}

/// Spawns a connection, which ends at shutdown.
fn spawn(shutdown: Shutdown, connection: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(async move { _ = shutdown.or(connection).await });
}

async fn serve_tls(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    api: Arc<Api>,
    (connections, handshakes): (Arc<Semaphore>, Arc<Semaphore>),
) {
    let _ = stream.set_nodelay(true);
    let Ok(handshake) = handshakes.try_acquire_owned() else {
        return tracing::warn!("too many TLS handshakes; a connection was closed");
    };
    let stream = match timeout(HANDSHAKE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%error, "TLS handshake failed"),
        Err(_) => return tracing::debug!("TLS handshake timed out"),
    };
    let Ok(_permit) = connections.acquire_owned().await else { return };
    drop(handshake);
    let leaf = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let names = leaf.map(|leaf| names_in(leaf)).unwrap_or_default();
    serve_requests(stream, Caller::Certificate(names), api).await;
}

async fn serve_requests<S>(stream: S, caller: Caller, api: Arc<Api>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request: Request<Incoming>| {
        let (api, caller) = (api.clone(), caller.clone());
        async move { Ok::<_, Infallible>(respond(&api, &caller, request).await) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME).max_buf_size(HEAD);
    if let Err(error) = builder.serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!(%error, "connection ended");
    }
}

async fn respond(api: &Arc<Api>, caller: &Caller, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let (head, body) = request.into_parts();
    // Before the body is read: only peers may send large bodies.
    let access = match api.admit(caller, &head) {
        Ok(access) => access,
        Err(error) => return error_reply(&error).map(Full::new),
    };
    let limit = if access.is_peer() { BODY } else { CLIENT_BODY };
    let reply = match timeout(BODY_TIME, Limited::new(body, limit).collect()).await {
        Ok(Ok(body)) => api.respond(&access, Request::from_parts(head, body.to_bytes())).await,
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            error_reply(&AgentError::TooLarge(format!("the body is larger than {limit} bytes")))
        }
        Ok(Err(error)) => error_reply(&AgentError::Invalid(format!("cannot read the body: {error}"))),
        Err(_) => error_reply(&AgentError::Invalid("the body did not arrive in time".to_owned())),
    };
    reply.map(Full::new)
}
