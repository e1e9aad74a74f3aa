//! HTTP server: plain HTTP, for the loopback interface. Other users and web pages can reach it, so `access_control` checks
//! every request.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};

use crate::access_control::AccessControl;
use crate::{LocalCloud, api};

/// Maximum size of a request body. A load balancer with 15,000 targets has some 2 MB, or 8 MB with the longest names.
const MAX_BODY: usize = 16 << 20;

/// Maximum time that a connection waits for the headers of the next request.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);

/// Grace period for calls in flight on shutdown. Calls that a fault keeps hanging never finish.
const SHUTDOWN_GRACE: Duration = Duration::from_millis(500);

/// Pause after a failed accept, most likely because too many files are open.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Running server. Dropping it without [`shutdown`](Server::shutdown) stops it and closes its connections.
pub struct Server {
    address: SocketAddr,
    access: Arc<AccessControl>,
    stop: oneshot::Sender<()>,
    running: JoinHandle<()>,
}

impl Server {
    /// Listen address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Token of the owner, required for every management call that changes something ([`ManagementClient::with_token`]).
    ///
    /// [`ManagementClient::with_token`]: crate::ManagementClient::with_token
    pub fn owner_token(&self) -> &str {
        self.access.token()
    }

    /// Stops the server after calls in flight have finished, unless they hang.
    pub async fn shutdown(self) {
        // An error means that the server has already stopped.
        let _ = self.stop.send(());
        let _ = self.running.await;
    }
}

/// Serves `cloud` at this address, with a new owner token. Port 0 selects a free port.
pub async fn serve(cloud: LocalCloud, listen: SocketAddr) -> std::io::Result<Server> {
    serve_for(cloud, listen, uuid::Uuid::new_v4().simple().to_string()).await
}

/// As [`serve`], with this owner token.
pub async fn serve_for(cloud: LocalCloud, listen: SocketAddr, owner_token: String) -> std::io::Result<Server> {
    let access = Arc::new(AccessControl::new(owner_token, cloud.has_kernel_routes()));
    let listener = TcpListener::bind(listen).await?;
    let address = listener.local_addr()?;
    let (stop, stopped) = oneshot::channel();
    let running = tokio::spawn(run(listener, access.clone(), cloud, stopped));
    Ok(Server { address, access, stop, running })
}

async fn run(listener: TcpListener, access: Arc<AccessControl>, cloud: LocalCloud, mut stopped: oneshot::Receiver<()>) {
    let graceful = GracefulShutdown::new();
    let mut connections = JoinSet::new();
    let graceful_stop = loop {
        tokio::select! {
            stop = &mut stopped => break stop.is_ok(),
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection(stream, access.clone(), cloud.clone(), graceful.watcher()));
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    };
    drop(listener);
    if graceful_stop {
        let _ = tokio::time::timeout(SHUTDOWN_GRACE, graceful.shutdown()).await;
    }
    connections.shutdown().await;
}

async fn connection(stream: TcpStream, access: Arc<AccessControl>, cloud: LocalCloud, watcher: Watcher) {
    // Small responses must not be delayed.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| respond(access.clone(), cloud.clone(), request));
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(IDLE_TIMEOUT);
    let serving = builder.serve_connection(TokioIo::new(stream), service);
    if let Err(error) = watcher.watch(serving).await {
        tracing::debug!(%error, "connection ended");
    }
}

async fn respond(
    access: Arc<AccessControl>,
    cloud: LocalCloud,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (parts, body) = request.into_parts();
    let reply = match Limited::new(body, MAX_BODY).collect().await {
        Ok(body) => api::respond_over_http(&access, &cloud, Request::from_parts(parts, body.to_bytes())).await,
        Err(error) if error.is::<LengthLimitError>() => api::too_large(MAX_BODY),
        Err(error) => api::truncated_body(&error.to_string()),
    };
    Ok(reply.map(Full::new))
}
