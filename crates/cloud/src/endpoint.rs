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

impl Endpoint {
    /// Returns the endpoints whose addresses are set.
    pub fn configured<'a>(addresses: impl IntoIterator<Item = (&'a String, EndpointPurpose)>) -> Vec<Endpoint> {
        let set = addresses.into_iter().filter(|(address, _)| !address.is_empty());
        set.map(|(address, purpose)| Endpoint { address: address.clone(), purpose }).collect()
    }

    /// Whether the text is an address to listen on: host and port, with an IPv6 address in brackets.
    pub fn is_address(text: &str) -> bool {
        text.rsplit_once(':').is_some_and(|(host, port)| {
            port.parse::<u16>().is_ok() && (!host.contains(':') || (host.starts_with('[') && host.ends_with(']')))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_host_and_a_port() {
        assert!([":80", "127.0.0.1:80", "[::1]:80", "localhost:0"].into_iter().all(Endpoint::is_address));
        assert!(!["", "80", "localhost", "::1:80", "a:b", "a:70000"].into_iter().any(Endpoint::is_address));
    }

    #[test]
    fn an_empty_address_is_no_endpoint() {
        let (health, metrics) = (String::new(), ":9091".to_owned());
        let endpoints =
            Endpoint::configured([(&health, EndpointPurpose::Health), (&metrics, EndpointPurpose::Metrics)]);
        assert_eq!(endpoints, [Endpoint { address: metrics, purpose: EndpointPurpose::Metrics }]);
    }
}
