//! HTTP server for a simulated cloud, for use on the loopback interface.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use crate::service::Service;
use crate::simulator::{Lost, Simulator};

/// Maximum size of a request body.
const LARGEST: usize = 4 << 20;

/// Pause after a failed accept.
const PAUSE: Duration = Duration::from_millis(50);

/// A running HTTP server; it stops when it is dropped.
pub struct Server {
    address: SocketAddr,
    running: JoinHandle<()>,
}

impl Server {
    /// Address that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Base URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
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
        let listener = TcpListener::bind(listen).await?;
        let address = listener.local_addr()?;
        Ok(Server { address, running: tokio::spawn(run(listener, self.clone())) })
    }
}

async fn run<S: Service>(listener: TcpListener, simulator: Simulator<S>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => drop(connections.spawn(connection(stream, simulator.clone()))),
                Err(_) => tokio::time::sleep(PAUSE).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connection<S: Service>(stream: TcpStream, simulator: Simulator<S>) {
    // Small responses must not wait for each other.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| respond(simulator.clone(), request));
    // An injected fault ends the connection with an error.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

async fn respond<S: Service>(
    simulator: Simulator<S>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Lost> {
    let (parts, body) = request.into_parts();
    let body = Limited::new(body, LARGEST).collect().await.map_err(|_| Lost)?.to_bytes();
    let mut response = simulator.answer(Request::from_parts(parts, body)).await?;
    if simulator.closes_connections() {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(response.map(Full::new))
}
