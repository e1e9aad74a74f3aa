//! Server options.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ipnet::IpNet;

/// Authorization mode.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AuthorizationMode {
    /// Every authenticated request is allowed; anonymous requests get status 401, as from a real server in this mode.
    #[default]
    AlwaysAllow,
    /// The stored RBAC objects decide.
    Rbac,
}

/// Limits of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Maximum number of concurrent connections. At the limit the longest idle connection is closed; if all have open
    /// requests, the new connection is rejected.
    pub max_connections: usize,
    /// Timeout of a connection without requests.
    pub idle_timeout: Duration,
    /// Timeout for the client to read a response, or the rest of a watch that has ended.
    pub send_timeout: Duration,
}

impl Default for ConnectionLimits {
    fn default() -> ConnectionLimits {
        // The common limit is 1024 open files per process, and the process needs some for other purposes.
        ConnectionLimits {
            max_connections: 900,
            idle_timeout: Duration::from_secs(90),
            send_timeout: Duration::from_secs(60),
        }
    }
}

/// Options of the server. [`Options::default`] suits tests: a random port and `AlwaysAllow`.
#[derive(Debug, Clone)]
pub struct Options {
    /// Listen address; port 0 selects a free port.
    pub listen: SocketAddr,
    /// Authorization mode.
    pub authorization: AuthorizationMode,
    /// Allow a non-loopback listen address with [`AuthorizationMode::AlwaysAllow`], which grants every client with
    /// credentials full access.
    pub allow_remote_clients: bool,
    /// Run the built-in controllers: namespace deletion, garbage collection, default service accounts, endpoint slices, expiry.
    pub built_in_controllers: bool,
    /// Serve the debug endpoints under `/debug/`.
    pub debug_endpoints: bool,
    /// CIDR of cluster IPs.
    pub service_cidr: IpNet,
    /// First and last node port.
    pub node_ports: (u16, u16),
    /// Issuer of service account tokens.
    pub issuer: String,
    /// Allow loopback addresses in endpoint slices and as the target of `pods/proxy`, which a real server rejects: for a
    /// cluster whose Pods run on this machine.
    pub loopback_endpoints: bool,
    /// Limits of connections.
    pub connections: ConnectionLimits,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            authorization: AuthorizationMode::default(),
            allow_remote_clients: false,
            built_in_controllers: true,
            debug_endpoints: false,
            service_cidr: IpNet::from(ipnet::Ipv4Net::new_assert([10, 96, 0, 0].into(), 16)),
            node_ports: (30_000, 32_767),
            issuer: "https://kubernetes.default.svc".to_owned(),
            loopback_endpoints: false,
            connections: ConnectionLimits::default(),
        }
    }
}

impl Options {
    /// Validates the options.
    pub(crate) fn check(&self) -> Result<(), String> {
        let unrestricted = self.authorization == AuthorizationMode::AlwaysAllow && !self.allow_remote_clients;
        if unrestricted && !self.listen.ip().is_loopback() {
            return Err(format!(
                "listen address {} is not a loopback address, and AlwaysAllow grants full access to every client with a certificate \
                 or a token: listen on a loopback address, use RBAC, or allow remote clients (--allow-remote-clients)",
                self.listen
            ));
        }
        let (first, last) = self.node_ports;
        if first == 0 || first > last {
            return Err(format!("the node port range {first}-{last} is empty: set FIRST-LAST with 1 <= FIRST <= LAST"));
        }
        let bits = self.service_cidr.max_prefix_len() - self.service_cidr.prefix_len();
        if bits < 3 {
            return Err(format!("the service CIDR {} is too small: it needs at least 8 addresses", self.service_cidr));
        }
        Ok(())
    }

    /// Cluster IP of the `kubernetes` Service: the first address of the service CIDR after that of the network itself, which
    /// `hosts` leaves out for IPv4 only.
    pub(crate) fn kubernetes_address(&self) -> IpAddr {
        let network = self.service_cidr.network();
        self.service_cidr.hosts().find(|address| *address != network).unwrap_or(network)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remote_clients_need_rbac_or_an_explicit_option() {
        let allowed = |listen: &str, authorization, allow_remote_clients| {
            let listen = listen.parse().unwrap();
            Options { listen, authorization, allow_remote_clients, ..Options::default() }.check().is_ok()
        };
        for listen in ["0.0.0.0:1", "[::]:1", "192.0.2.1:1", "[::ffff:192.0.2.1]:1"] {
            assert!(!allowed(listen, AuthorizationMode::AlwaysAllow, false), "{listen}");
            assert!(allowed(listen, AuthorizationMode::AlwaysAllow, true), "{listen}");
            assert!(allowed(listen, AuthorizationMode::Rbac, false), "{listen}");
        }
        for listen in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1"] {
            assert!(allowed(listen, AuthorizationMode::AlwaysAllow, false), "{listen}");
        }
    }

    #[test]
    fn the_kubernetes_service_has_the_second_address_of_the_service_network() {
        for (network, expected) in [("10.96.0.0/16", "10.96.0.1"), ("fd00:96::/112", "fd00:96::1")] {
            let options = Options { service_cidr: network.parse().unwrap(), ..Options::default() };
            assert_eq!(options.kubernetes_address(), expected.parse::<IpAddr>().unwrap(), "{network}");
        }
    }
}
