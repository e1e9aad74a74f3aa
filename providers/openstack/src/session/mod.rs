//! Who we are and where the services are.
//!
//! ```text
//!  api ──► Session::call ──► token there? ──no──► authenticate (one at a time) ──► token, catalog
//!                                │yes                                                 │
//!                                ▼                                                    ▼
//!                             endpoint of the service ──► send ──401──► authenticate once, send once more
//! ```

use std::time::Duration;

/// A service of the catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Service {
    /// Nova.
    Compute,
    /// Neutron.
    Network,
    /// Octavia.
    LoadBalancer,
    /// Barbican.
    KeyManager,
}

/// What went wrong with a call.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum CallError {
    /// The service answered that it did not.
    #[error("{method} {url}: HTTP {status}: {body}")]
    Status {
        method: String,
        url: String,
        status: u16,
        /// The fault, as the service words it.
        body: String,
        retry_after: Option<Duration>,
    },
    /// Nobody answered, or not in time.
    #[error("{method} {url}: {message}")]
    Unreachable { method: String, url: String, message: String },
    /// The answer makes no sense.
    #[error("{method} {url}: the answer is not understood: {message}")]
    Garbled { method: String, url: String, message: String },
    /// Keystone knows no such service here.
    #[error("{0}")]
    NoEndpoint(String),
    /// Keystone does not take the credentials.
    #[error("{0}")]
    Refused(String),
}
