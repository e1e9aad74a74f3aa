//! HTTP server for a simulated cloud, for use on the loopback interface.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::uri::{Authority, Scheme};
use http::{HeaderValue, Request, Response, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use crate::service::Service;
use crate::simulator::{Lost, Simulator};
use crate::tls::Certificate;

/// Maximum size of a request body.
const LARGEST: usize = 4 << 20;

/// Pause after a failed accept.
const PAUSE: Duration = Duration::from_millis(50);

/// A running HTTP server; it stops when it is dropped.
pub struct Server {
    address: SocketAddr,
    scheme: Scheme,
    running: JoinHandle<()>,
}

impl Server {
    /// Address that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Base URL.
    pub fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.running.abort();
    }
}

impl<S: Service> Simulator<S> {
    /// Serves this cloud at this address; port 0 picks a free one.
    pub async fn serve(&self, listen: SocketAddr) -> std::io::Result<Server> {
        self.listen(listen, None).await
    }

    /// Serves this cloud over TLS.
    pub async fn serve_tls(&self, listen: SocketAddr, certificate: &Certificate) -> std::io::Result<Server> {
        self.listen(listen, Some(certificate.acceptor())).await
    }

    async fn listen(&self, listen: SocketAddr, tls: Option<TlsAcceptor>) -> std::io::Result<Server> {
        let listener = TcpListener::bind(listen).await?;
        let (address, scheme) = (listener.local_addr()?, if tls.is_some() { Scheme::HTTPS } else { Scheme::HTTP });
        Ok(Server { address, scheme, running: tokio::spawn(run(listener, tls, self.clone())) })
    }
}

async fn run<S: Service>(listener: TcpListener, tls: Option<TlsAcceptor>, simulator: Simulator<S>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => drop(connections.spawn(connection(stream, tls.clone(), simulator.clone()))),
                Err(_) => tokio::time::sleep(PAUSE).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connection<S: Service>(stream: TcpStream, tls: Option<TlsAcceptor>, simulator: Simulator<S>) {
    // Small responses must not wait for each other.
    let _ = stream.set_nodelay(true);
    match tls {
        None => respond_all(stream, simulator, Scheme::HTTP).await,
        // A client that rejects the certificate ends the connection.
        Some(tls) => {
            if let Ok(stream) = tls.accept(stream).await {
                respond_all(stream, simulator, Scheme::HTTPS).await;
            }
        }
    }
}

async fn respond_all<S: Service>(stream: impl AsyncRead + AsyncWrite + Unpin, simulator: Simulator<S>, scheme: Scheme) {
    let service = service_fn(move |request| respond(simulator.clone(), request, scheme.clone()));
    // An injected fault ends the connection with an error.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

async fn respond<S: Service>(
    simulator: Simulator<S>,
    request: Request<Incoming>,
    scheme: Scheme,
) -> Result<Response<Full<Bytes>>, Lost> {
    let (mut parts, body) = request.into_parts();
    parts.uri = absolute(&parts, scheme).unwrap_or(parts.uri);
    let body = Limited::new(body, LARGEST).collect().await.map_err(|_| Lost)?.to_bytes();
    let mut response = simulator.answer(Request::from_parts(parts, body)).await?;
    if simulator.closes_connections() {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(response.map(Full::new))
}

/// URL of a request, of which a server receives only the path. Some clouds return URLs of their own services.
fn absolute(parts: &Parts, scheme: Scheme) -> Option<Uri> {
    let host: Authority = parts.headers.get(header::HOST)?.to_str().ok()?.parse().ok()?;
    let mut uri = parts.uri.clone().into_parts();
    (uri.scheme, uri.authority) = (Some(scheme), Some(host));
    Uri::from_parts(uri).ok()
}
