//! The HTTP API: plain HTTP, meant for the loopback interface, which other users and web pages reach, too (`door`).

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

use crate::door::Door;
use crate::{LocalCloud, api};

/// Maximum size of a request body. A load balancer with 15,000 targets has some 2 MB, or 8 MB with the longest names.
const LARGEST: usize = 16 << 20;

/// How long a connection may wait for the head of its next request.
const IDLE: Duration = Duration::from_secs(90);

/// How long calls under way are waited for at the end. Those that a fault keeps hanging would never come.
const FAREWELL: Duration = Duration::from_millis(500);

/// The pause after a connection could not be accepted: most likely there are too many files open, and at once there
/// would still be.
const PAUSE: Duration = Duration::from_millis(50);

/// A cloud that listens. Dropped without [`shutdown`](Server::shutdown) it ends, too, and cuts its connections.
pub struct Server {
    address: SocketAddr,
    door: Arc<Door>,
    stop: oneshot::Sender<()>,
    running: JoinHandle<()>,
}

impl Server {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What the owner shows for every call that changes something ([`ManagementClient::with_token`]).
    ///
    /// [`ManagementClient::with_token`]: crate::ManagementClient::with_token
    pub fn owner_token(&self) -> &str {
        self.door.token()
    }

    /// Ends it: what is under way is answered, unless it hangs.
    pub async fn shutdown(self) {
        // An error says that it has ended already.
        let _ = self.stop.send(());
        let _ = self.running.await;
    }
}

/// Serves `cloud` at this address; port 0 picks a free one. The owner has a new token.
pub async fn serve(cloud: LocalCloud, listen: SocketAddr) -> std::io::Result<Server> {
    serve_for(cloud, listen, uuid::Uuid::new_v4().simple().to_string()).await
}

/// As [`serve`], for an owner with this token.
pub async fn serve_for(cloud: LocalCloud, listen: SocketAddr, owner_token: String) -> std::io::Result<Server> {
    let door = Arc::new(Door::new(owner_token, cloud.has_kernel_routes()));
    let listener = TcpListener::bind(listen).await?;
    let address = listener.local_addr()?;
    let (stop, stopped) = oneshot::channel();
    let running = tokio::spawn(run(listener, door.clone(), cloud, stopped));
    Ok(Server { address, door, stop, running })
}

async fn run(listener: TcpListener, door: Arc<Door>, cloud: LocalCloud, mut stopped: oneshot::Receiver<()>) {
    let graceful = GracefulShutdown::new();
    let mut connections = JoinSet::new();
    let told = loop {
        tokio::select! {
            told = &mut stopped => break told.is_ok(),
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection(stream, door.clone(), cloud.clone(), graceful.watcher()));
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(PAUSE).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    };
    drop(listener);
    if told {
        let _ = tokio::time::timeout(FAREWELL, graceful.shutdown()).await;
    }
    connections.shutdown().await;
}

async fn connection(stream: TcpStream, door: Arc<Door>, cloud: LocalCloud, watcher: Watcher) {
    // Small answers must not wait for each other.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| respond(door.clone(), cloud.clone(), request));
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(IDLE);
    let serving = builder.serve_connection(TokioIo::new(stream), service);
    if let Err(error) = watcher.watch(serving).await {
        tracing::debug!(%error, "connection ended");
    }
}

async fn respond(
    door: Arc<Door>,
    cloud: LocalCloud,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (parts, body) = request.into_parts();
    let reply = match Limited::new(body, LARGEST).collect().await {
        Ok(body) => api::answer_at(&door, &cloud, Request::from_parts(parts, body.to_bytes())).await,
        Err(error) if error.is::<LengthLimitError>() => api::too_large(LARGEST),
        Err(error) => api::broken_body(&error.to_string()),
    };
    Ok(reply.map(Full::new))
}
