//! The server: an address, and the connections to it.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bowline_runtime::Shutdown;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::ServingOptions;
use crate::connection::{self, Limits, Served};
use crate::door::AccessControl;
use crate::files::EVERY;
use crate::listen::{ListenError, listen};
use crate::room::{ConnectionLimit, ConnectionPermit};
use crate::site::Router;
use crate::tls::{self, Certificates, TlsError};

/// More connections than this there are not at a time.
const CONNECTIONS: usize = 1024;

/// The pause after a connection could not be taken, which is when there are too many.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long requests in flight may take to end when the server does.
const DRAIN: Duration = Duration::from_secs(2);

/// Why a server cannot be.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The address could not be taken.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// Certificates or their options are of no use.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// An address that is taken. Connections wait until it is served.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    /// None for plain HTTP.
    tls: Option<(TlsAcceptor, Arc<Certificates>)>,
    limits: Limits,
}

impl Server {
    /// Takes the address, and reads or makes the certificates. Needs a runtime around it.
    pub fn bind(options: &ServingOptions) -> Result<Server, BindError> {
        let (config, certificates) = tls::set_up(&options.tls, options.bind_address, options.http2)?;
        let tls = Some((TlsAcceptor::from(config), certificates));
        Server::on(options, tls)
    }

    /// Takes the address for plain HTTP: for this machine, or for tests.
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
        let wanted = SocketAddr::new(options.bind_address, options.port);
        let failed = |error| BindError::Listen(ListenError::Other(wanted, error));
        let address = listener.local_addr().map_err(failed)?;
        let listener = TcpListener::from_std(listener).map_err(failed)?;
        Ok(Server { listener, address, tls, limits: Limits::new(options.max_streams) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves the site to those who get in, until shutdown is requested; then requests in flight may end.
    pub async fn serve(self, site: Router, door: AccessControl, shutdown: Shutdown) -> Result<(), Infallible> {
        let certificates = self.tls.as_ref().map(|(_, certificates)| certificates.clone());
        let served = Arc::new(Served { site, door });
        let watching = served.clone();
        let ((), _, ()) = tokio::join!(
            self.accept(served, shutdown.clone()),
            shutdown.or(keep_fresh(certificates)),
            watching.door.keep_fresh(shutdown.clone()),
        );
        Ok(())
    }

    async fn accept(self, served: Arc<Served>, shutdown: Shutdown) {
        let (graceful, room) = (GracefulShutdown::new(), ConnectionLimit::new(CONNECTIONS));
        while let Some((stream, guest)) = shutdown.or(self.next(&room)).await {
            let (served, limits, watcher, guest) = (served.clone(), self.limits, graceful.watcher(), Arc::new(guest));
            let acceptor = self.tls.as_ref().map(|(acceptor, _)| acceptor.clone());
            tokio::spawn(async move {
                tokio::select! {
                    () = connection::run(stream, acceptor, served, limits, watcher, guest.clone()) => {}
                    () = guest.must_leave() => {}
                }
            });
        }
        drop(self.listener);
        let _ = tokio::time::timeout(DRAIN, graceful.shutdown()).await;
    }

    /// The next connection, once there is room for it.
    async fn next(&self, room: &ConnectionLimit) -> (TcpStream, ConnectionPermit) {
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => return (stream, room.enter().await),
                Err(error) => {
                    tracing::warn!(%error, "cannot take a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

async fn keep_fresh(certificates: Option<Arc<Certificates>>) {
    let Some(certificates) = certificates else { return };
    loop {
        tokio::time::sleep(EVERY).await;
        let certificates = certificates.clone();
        // Files can be slow. One that panics is looked at again.
        let _ = tokio::task::spawn_blocking(move || certificates.refresh()).await;
    }
}
