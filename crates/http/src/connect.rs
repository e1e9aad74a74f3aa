//! Connector: opens connections for URLs, with proxies and TLS.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::dns::GaiResolver;
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::client::proxy::matcher::Intercept;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio_rustls::TlsConnector;
use tower::Service;

use crate::client::with_causes;
use crate::{FingerprintMismatch, Proxies, RequestError, TlsHandshakeError};

/// Maximum size of the response head of a proxy.
const MAX_PROXY_HEAD: usize = 16 << 10;

/// Maximum connect timeout: enough for four SYN packets of the kernel.
const MAX_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Opens connections.
#[derive(Clone)]
pub(crate) struct Connector {
    tcp: HttpConnector,
    tls: Arc<ClientConfig>,
    proxies: Arc<Proxies>,
}

/// A connection over any transport.
pub(crate) struct Stream {
    io: TokioIo<Box<dyn Io>>,
    /// Requests contain the whole URL, because a proxy reads them.
    is_proxied: bool,
}

/// Byte stream of a connection.
trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

impl Connector {
    /// Creates a connector for requests with this overall timeout.
    pub(crate) fn new(tls: Arc<ClientConfig>, proxies: Arc<Proxies>, timeout: Duration) -> Connector {
        Connector { tcp: tcp(GaiResolver::new(), timeout), tls, proxies }
    }

    async fn connect(self, uri: Uri) -> Result<Stream, RequestError> {
        let is_secure = uri.scheme_str() == Some("https");
        let Some(proxy) = self.proxies.of(&uri) else {
            let io = self.tcp(&uri).await?;
            let io = if is_secure { self.handshake(io, &uri).await? } else { io };
            return Ok(Stream { io: TokioIo::new(io), is_proxied: false });
        };
        let io = self.to_proxy(&proxy).await?;
        if !is_secure {
            return Ok(Stream { io: TokioIo::new(io), is_proxied: true });
        }
        let io = tunnel(io, &proxy, &uri).await?;
        Ok(Stream { io: TokioIo::new(self.handshake(io, &uri).await?), is_proxied: false })
    }

    async fn tcp(&self, uri: &Uri) -> Result<Box<dyn Io>, RequestError> {
        let stream = self.tcp.clone().call(uri.clone()).await;
        let stream = stream
            .map_err(|error| RequestError::Connect(format!("{}: {}", host_and_port(uri), with_causes(&error))))?;
        Ok(Box::new(stream.into_inner()))
    }

    async fn to_proxy(&self, proxy: &Intercept) -> Result<Box<dyn Io>, RequestError> {
        let wrapped = |error: RequestError| match error {
            RequestError::Connect(cause) => RequestError::Connect(format!("proxy {cause}")),
            other => RequestError::Connect(format!("proxy {}: {other}", host_and_port(proxy.uri()))),
        };
        let io = self.tcp(proxy.uri()).await.map_err(wrapped)?;
        if proxy.uri().scheme_str() == Some("https") {
            return self.handshake(io, proxy.uri()).await.map_err(wrapped);
        }
        Ok(io)
    }

    async fn handshake(&self, io: Box<dyn Io>, uri: &Uri) -> Result<Box<dyn Io>, RequestError> {
        let host = host(uri);
        let name = ServerName::try_from(host.to_owned());
        let name =
            name.map_err(|error| RequestError::Request(format!("{host:?} is not a valid server name: {error}")))?;
        let stream = TlsConnector::from(self.tls.clone()).connect(name, io).await;
        let failed = |error: std::io::Error| match crate::tls::handshake_error(&error) {
            // The verifier does not know the port.
            Some(TlsHandshakeError::WrongFingerprint(mismatch)) => {
                let mismatch = FingerprintMismatch { host: host_and_port(uri), ..mismatch };
                RequestError::Tls(TlsHandshakeError::WrongFingerprint(mismatch))
            }
            known => RequestError::Tls(known.unwrap_or_else(|| TlsHandshakeError::Other(error.to_string()))),
        };
        Ok(Box::new(stream.map_err(failed)?))
    }
}

/// Creates the TCP connector. The addresses of a name share the connect timeout; without it, a dead first address would use up the
/// whole timeout of the request.
fn tcp<R>(resolver: R, timeout: Duration) -> HttpConnector<R> {
    let mut tcp = HttpConnector::new_with_resolver(resolver);
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some((timeout / 2).min(MAX_CONNECT_TIMEOUT)));
    tcp
}

/// Opens a tunnel through the proxy with CONNECT.
async fn tunnel(mut io: Box<dyn Io>, proxy: &Intercept, uri: &Uri) -> Result<Box<dyn Io>, RequestError> {
    let failed =
        |why: &dyn std::fmt::Display| RequestError::Connect(format!("proxy {}: {why}", host_and_port(proxy.uri())));
    let target = host_and_port(uri);
    let mut head = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n").into_bytes();
    if let Some(credentials) = proxy.basic_auth() {
        head.extend_from_slice(b"Proxy-Authorization: ");
        head.extend_from_slice(credentials.as_bytes());
        head.extend_from_slice(b"\r\n");
    }
    head.extend_from_slice(b"\r\n");
    io.write_all(&head).await.map_err(|error| failed(&error))?;
    let mut response = Vec::new();
    while !response.ends_with(b"\r\n\r\n") {
        // Byte by byte, because the bytes behind the head belong to the tunnel. The head is small.
        let byte = io.read_u8().await.map_err(|error| failed(&error))?;
        response.push(byte);
        if response.len() > MAX_PROXY_HEAD {
            return Err(failed(&"the response head is too large"));
        }
    }
    let status = String::from_utf8_lossy(&response);
    let status = status.lines().next().unwrap_or_default().trim();
    match status.split_ascii_whitespace().nth(1) {
        Some("200") => Ok(io),
        _ => Err(failed(&format!("CONNECT {target} failed: {status}"))),
    }
}

/// Returns the host, without the brackets of an IPv6 address.
fn host(uri: &Uri) -> &str {
    uri.host().unwrap_or_default().trim_matches(['[', ']'])
}

/// Returns `HOST:PORT`.
pub(crate) fn host_and_port(uri: &Uri) -> String {
    format!("{}:{}", uri.host().unwrap_or_default(), port(uri))
}

pub(crate) fn port(uri: &Uri) -> u16 {
    uri.port_u16().unwrap_or(if uri.scheme_str() == Some("https") { 443 } else { 80 })
}

impl Service<Uri> for Connector {
    type Response = Stream;
    type Error = RequestError;
    type Future = Pin<Box<dyn Future<Output = Result<Stream, RequestError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), RequestError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        Box::pin(self.clone().connect(uri))
    }
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        Connected::new().proxy(self.is_proxied)
    }
}

impl Read for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_read(context, buffer)
    }
}

impl Write for Stream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::{Ready, ready};
    use std::net::SocketAddr;

    use hyper_util::client::legacy::connect::dns::Name;
    use tokio::net::{TcpListener, TcpSocket, TcpStream};

    use super::*;

    /// Resolves every name to these addresses.
    #[derive(Clone)]
    struct Addresses(Vec<SocketAddr>);

    impl Service<Name> for Addresses {
        type Response = std::vec::IntoIter<SocketAddr>;
        type Error = Infallible;
        type Future = Ready<Result<Self::Response, Infallible>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Name) -> Self::Future {
            ready(Ok(self.0.clone().into_iter()))
        }
    }

    /// A listener whose backlog is full, so that the kernel accepts no connection. The connections must be kept open.
    async fn unresponsive() -> (TcpListener, Vec<TcpStream>) {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(1).unwrap();
        let (address, mut waiting) = (listener.local_addr().unwrap(), Vec::new());
        let connect = || tokio::time::timeout(Duration::from_millis(200), TcpStream::connect(address));
        while let Ok(stream) = connect().await {
            waiting.push(stream.unwrap());
        }
        (listener, waiting)
    }

    #[tokio::test]
    async fn an_unresponsive_address_leaves_time_for_the_next_one() {
        let ((dead, _waiting), alive) = (unresponsive().await, TcpListener::bind("127.0.0.1:0").await.unwrap());
        let addresses = Addresses([&dead, &alive].map(|listener| listener.local_addr().unwrap()).to_vec());
        let timeout = Duration::from_secs(2);
        let connecting = tcp(addresses, timeout).call(Uri::from_static("http://keystone.example.com"));
        let stream = tokio::time::timeout(timeout, connecting).await.unwrap().unwrap();
        assert_eq!(stream.inner().peer_addr().unwrap(), alive.local_addr().unwrap());
    }
}
