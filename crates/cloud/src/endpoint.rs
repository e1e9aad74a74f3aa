//! Plain HTTP endpoints that a provider's configuration adds to the process.

/// A plain HTTP server with one path, for as long as the process runs. Use it only where existing clusters scrape such an endpoint;
/// the manager serves health checks and metrics on its HTTPS port in any case. A server that cannot listen is only logged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Address to listen on, as in the configuration: `HOST:PORT`. The host may be empty (all interfaces), a name, or an IPv6
    /// address in brackets.
    pub address: String,
    /// Content of the endpoint.
    pub purpose: EndpointPurpose,
}

/// Content of an [`Endpoint`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndpointPurpose {
    /// `/healthz`: 200 if [`CloudProvider::check`](crate::CloudProvider::check) succeeds within 15 s, otherwise 500 with the error.
    Health,
    /// `/metrics`: the metrics of the whole process.
    Metrics,
}
