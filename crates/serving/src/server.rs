//! The server: binds an address and accepts connections.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bowline_runtime::Shutdown;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::ServingOptions;
use crate::access_control::AccessControl;
use crate::connection::{self, Limits, Served};
use crate::connection_limit::{ConnectionLimit, ConnectionPermit};
use crate::files::RELOAD_INTERVAL;
use crate::listen::{ListenError, listen};
use crate::router::Router;
use crate::tls::{self, Certificates, TlsError};

/// Maximum number of concurrent connections.
const CONNECTIONS: usize = 1024;

/// Pause after `accept` failed, usually because the process has too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Default grace period for requests in flight at shutdown.
const DRAIN: Duration = Duration::from_secs(2);

/// A failure to bind the server.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The address cannot be bound.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// Certificates or TLS options are invalid.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// A bound server. Connections wait in the accept queue until [`serve`](Server::serve) is called.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    /// `None` for plain HTTP.
    tls: Option<(TlsAcceptor, Arc<Certificates>)>,
    limits: Limits,
    drain: Duration,
}

impl Server {
    /// Binds the address, and loads or creates the certificates. Must be called in a Tokio runtime.
    pub fn bind(options: &ServingOptions) -> Result<Server, BindError> {
        let (config, certificates) = tls::set_up(&options.tls, options.bind_address, options.http2)?;
        let tls = Some((TlsAcceptor::from(config), certificates));
        Server::on(options, tls)
    }

    /// Binds the address for plain HTTP.
    pub fn bind_plain(address: SocketAddr) -> Result<Server, BindError> {
        let options = ServingOptions {
            bind_address: address.ip(),
            port: address.port(),
            http2: false,
            ..ServingOptions::default()
        };
        Server::on(&options, None)
    }

    fn on(options: &ServingOptions, tls: Option<(TlsAcceptor, Arc<Certificates>)>) -> Result<Server, BindError> {
        let listener = listen(options)?;
        let address = SocketAddr::new(options.bind_address, options.port);
        let failed = |error| BindError::Listen(ListenError::Other(address, error));
        let address = listener.local_addr().map_err(failed)?;
        let listener = TcpListener::from_std(listener).map_err(failed)?;
        Ok(Server { listener, address, tls, limits: Limits::new(options.max_streams), drain: DRAIN })
    }

    /// Sets the grace period for requests in flight at shutdown. Default: 2 s.
    pub fn drain(self, drain: Duration) -> Server {
        Server { drain, ..self }
    }

    /// Returns the address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves admitted requests until shutdown is requested, then waits for requests in flight.
    pub async fn serve(self, router: Router, access: AccessControl, shutdown: Shutdown) -> Result<(), Infallible> {
        let certificates = self.tls.as_ref().map(|(_, certificates)| certificates.clone());
        let served = Arc::new(Served { router, access });
        let watching = served.clone();
        let ((), _, ()) = tokio::join!(
            self.accept(served, shutdown.clone()),
            shutdown.or(reload(certificates)),
            watching.access.keep_up_to_date(shutdown.clone()),
        );
        Ok(())
    }

    async fn accept(self, served: Arc<Served>, shutdown: Shutdown) {
        let (graceful, limit) = (GracefulShutdown::new(), ConnectionLimit::new(CONNECTIONS));
        while let Some((stream, permit)) = shutdown.or(self.next(&limit)).await {
            let (served, limits, watcher, permit) = (served.clone(), self.limits, graceful.watcher(), Arc::new(permit));
            let acceptor = self.tls.as_ref().map(|(acceptor, _)| acceptor.clone());
            tokio::spawn(async move {
                tokio::select! {
                    () = connection::run(stream, acceptor, served, limits, watcher, permit.clone()) => {}
                    () = permit.evicted() => {}
                }
            });
        }
        drop(self.listener);
        let _ = tokio::time::timeout(self.drain, graceful.shutdown()).await;
    }

    /// Accepts the next connection and acquires its permit.
    async fn next(&self, limit: &ConnectionLimit) -> (TcpStream, ConnectionPermit) {
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => return (stream, limit.acquire().await),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

async fn reload(certificates: Option<Arc<Certificates>>) {
    let Some(certificates) = certificates else { return };
    loop {
        tokio::time::sleep(RELOAD_INTERVAL).await;
        let certificates = certificates.clone();
        // Reading files may block. After a panic the next iteration tries again.
        let _ = tokio::task::spawn_blocking(move || certificates.refresh()).await;
    }
}
