//! Starts and stops a server, and creates clients for it.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use http::{Request, Response};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use crate::auth::User;
use crate::faults::Faults;
use crate::http::respond::Body;
use crate::http::{Peer, serve};
use crate::metrics::RequestKind;
use crate::options::Options;
use crate::state::State;
use crate::tls::{self, Authority, TlsError};
use crate::{bootstrap, connection, controllers};

/// Maximum time that shutdown waits for in-flight requests.
const DRAIN: Duration = Duration::from_secs(5);

/// The administrator in kubeconfig files, with full access.
const ADMIN: (&str, &[&str]) = ("kubernetes-admin", &["system:masters"]);

/// Error when starting a server or creating a client.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The server cannot listen on the address.
    #[error("cannot listen on {address}: {source}; is another server running there?")]
    Listen {
        /// The requested address.
        address: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The certificates could not be created.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The options are invalid.
    #[error("{0}")]
    Options(String),
    /// The initial objects of the cluster could not be created.
    #[error("cannot create the initial objects: {0}")]
    Bootstrap(String),
    /// The client library rejected the kubeconfig.
    #[error("cannot create a client: {0}")]
    Client(String),
}

/// A running server. Dropping it aborts it; [`ApiServer::shutdown`] stops it gracefully.
///
/// ```
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use bowline_apiserver::{ApiServer, Options};
///
/// let server = ApiServer::start(Options::default()).await?;
/// let client: kube::Client = server.client().await?;
/// std::fs::write("kubeconfig", server.kubeconfig())?;
/// server.shutdown().await;
/// # Ok(())
/// # }
/// ```
pub struct ApiServer {
    state: Arc<State>,
    address: SocketAddr,
    authority: Authority,
    admin: String,
    stop: watch::Sender<bool>,
    accepting: JoinHandle<()>,
    controllers: JoinHandle<()>,
}

impl ApiServer {
    /// Starts a server and returns once it accepts requests.
    pub async fn start(options: Options) -> Result<ApiServer, StartError> {
        options.check().map_err(StartError::Options)?;
        let listen = options.listen;
        let listen_error = |source| StartError::Listen { address: listen, source };
        let listener = TcpListener::bind(listen).await.map_err(listen_error)?;
        let address = listener.local_addr().map_err(listen_error)?;
        let authority = Authority::new()?;
        let config = authority.server_config(address.ip(), options.kubernetes_address())?;
        let admin_identity = authority.client(ADMIN.0, ADMIN.1)?;
        let admin = tls::kubeconfig(&url(address), &authority, ADMIN.0, &admin_identity);

        let state = Arc::new(State::new(options, address.to_string()));
        bootstrap::run(&state, &authority.pem()).map_err(|e| StartError::Bootstrap(e.message))?;
        let (stop, stopped) = watch::channel(false);
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let accepting = tokio::spawn(accept(listener, acceptor, state.clone(), stopped.clone()));
        let controllers = tokio::spawn(controllers::run(state.clone(), stopped, authority.pem()));
        Ok(ApiServer { state, address, authority, admin, stop, accepting, controllers })
    }

    /// The listen address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `https://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        url(self.address)
    }

    /// A kubeconfig for an administrator in `system:masters`.
    pub fn kubeconfig(&self) -> String {
        self.admin.clone()
    }

    /// A kubeconfig for another user, with a client certificate.
    pub fn kubeconfig_for(&self, user: &str, groups: &[&str]) -> Result<String, StartError> {
        let identity = self.authority.client(user, groups)?;
        Ok(tls::kubeconfig(&self.url(), &self.authority, user, &identity))
    }

    /// A client for the administrator, over TLS.
    pub async fn client(&self) -> Result<kube::Client, StartError> {
        client_from(&self.admin).await
    }

    /// A client for another user, over TLS.
    pub async fn client_for(&self, user: &str, groups: &[&str]) -> Result<kube::Client, StartError> {
        client_from(&self.kubeconfig_for(user, groups)?).await
    }

    /// A client for the administrator that calls the server in-process: without sockets, so it works with paused time.
    pub fn in_process_client(&self) -> kube::Client {
        self.in_process_client_for(ADMIN.0, ADMIN.1)
    }

    /// A client for another user that calls the server in-process and needs no credentials.
    pub fn in_process_client_for(&self, user: &str, groups: &[&str]) -> kube::Client {
        kube::Client::new(InProcess::new(self.state.clone(), user, groups), "default")
    }

    /// Counters of resource requests since the start. A watch is counted when it begins. Requests that a fault rule ended without
    /// a response are not counted.
    pub fn requests(&self) -> BTreeMap<RequestKind, u64> {
        self.state.requests.counts()
    }

    /// Number of open connections.
    pub fn connections(&self) -> usize {
        self.state.connections.count()
    }

    /// Compacts the watch history: requests with older resource versions get status 410.
    pub fn compact(&self) {
        self.state.store.compact();
    }

    /// Closes all watches gracefully.
    pub fn cut_watches(&self) {
        self.state.cut_watches();
    }

    /// Adds a static bearer token for a user. It is valid until the server stops.
    pub fn add_token(&self, token: &str, user: &str, groups: &[&str]) {
        let groups = groups.iter().map(|g| (*g).to_owned()).collect();
        self.state.auth.add_token(token, User { name: user.to_owned(), groups, ..User::default() });
    }

    #[cfg(test)]
    pub(crate) fn state_for_tests(&self) -> Arc<State> {
        self.state.clone()
    }

    /// The active fault rules.
    pub fn faults(&self) -> &Faults {
        &self.state.faults
    }

    /// Closes all watches, waits for in-flight requests, and stops the server.
    pub async fn shutdown(mut self) {
        self.stop.send_replace(true);
        self.state.cut_watches();
        // Either task may have ended already; its result does not matter.
        let _ = tokio::time::timeout(DRAIN, &mut self.accepting).await;
        let _ = tokio::time::timeout(DRAIN, &mut self.controllers).await;
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        self.state.cut_watches();
        self.accepting.abort();
        self.controllers.abort();
    }
}

fn url(address: SocketAddr) -> String {
    format!("https://{address}")
}

async fn client_from(kubeconfig: &str) -> Result<kube::Client, StartError> {
    let to_error = |e: &dyn std::fmt::Display| StartError::Client(e.to_string());
    let kubeconfig = kube::config::Kubeconfig::from_yaml(kubeconfig).map_err(|e| to_error(&e))?;
    let config =
        kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await.map_err(|e| to_error(&e))?;
    kube::Client::try_from(config).map_err(|e| to_error(&e))
}

// === Connections ===

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, state: Arc<State>, mut stopped: watch::Receiver<bool>) {
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            () = until_stopped(&mut stopped) => break,
            Some(_) = tasks.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, client)) => match state.connections.admit(client.ip()) {
                    Some(connection) => {
                        let (acceptor, state, stopped) = (acceptor.clone(), state.clone(), stopped.clone());
                        tasks.spawn(connection::run(stream, acceptor, state, connection, stopped));
                    }
                    None => tracing::debug!(%client, "rejected a connection: connection limit reached and all connections have open requests"),
                },
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            },
        }
    }
    drop(listener);
    while tasks.join_next().await.is_some() {}
}

/// Waits for the stop signal; a dropped sender also counts as one.
pub(crate) async fn until_stopped(stopped: &mut watch::Receiver<bool>) {
    let _ = stopped.wait_for(|stop| *stop).await.is_ok();
}

// === In-process clients ===

/// The server as a tower service, for clients in the same process.
#[derive(Clone)]
struct InProcess {
    state: Arc<State>,
    peer: Peer,
}

impl InProcess {
    fn new(state: Arc<State>, user: &str, groups: &[&str]) -> InProcess {
        let groups = groups.iter().copied().chain(["system:authenticated"]).map(str::to_owned).collect();
        let user = User { name: user.to_owned(), groups, ..User::default() };
        InProcess { state, peer: Peer { trusted: Some(Arc::new(user)), ..Peer::default() } }
    }
}

impl tower::Service<Request<kube::client::Body>> for InProcess {
    type Response = Response<Body>;
    type Error = io::Error;
    type Future = BoxFuture<'static, Result<Response<Body>, io::Error>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), io::Error>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        Box::pin(serve(self.state.clone(), self.peer.clone(), request))
    }
}
