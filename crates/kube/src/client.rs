//! Connecting to the API server.

use std::path::PathBuf;

/// How to reach the API server, and how hard.
#[derive(Debug, Clone, Default)]
pub struct ClientOptions {
    /// `--kubeconfig`; without it and `master`, the pod's own service account, else the usual kubeconfig.
    pub kubeconfig: Option<PathBuf>,
    /// `--master`: overrides the server's address.
    pub master: Option<String>,
    /// `--kube-api-qps` and `--kube-api-burst`; `None` leaves flow control to the server.
    pub rate: Option<(f64, u32)>,
    /// The end of the user agent: which controller this is.
    pub user: String,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The kubeconfig cannot be used.
    #[error("{0}")]
    Config(String),
    /// The client cannot be built.
    #[error("cannot build a client for the API server: {0}")]
    Client(#[source] kube::Error),
}

/// A client for the API server. Connects when it is first used.
pub async fn connect(options: &ClientOptions) -> Result<kube::Client, ConnectError> {
    let _ = options;
    todo!()
}
