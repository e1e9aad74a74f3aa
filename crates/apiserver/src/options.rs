//! How a server is set up.

use std::net::SocketAddr;
use std::time::Duration;

use ipnet::IpNet;

/// Who may do what.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AuthorizationMode {
    /// Every authenticated request is allowed; an anonymous one gets a 401, as from a real server in this mode.
    #[default]
    AlwaysAllow,
    /// The stored RBAC objects decide.
    Rbac,
}

/// What connections may take up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// How many there may be at a time. Beyond it the one that was idle longest makes room; where all are busy, a new one is
    /// refused.
    pub most: usize,
    /// How long one may stay open without a request.
    pub idle: Duration,
    /// How long a client may take to read an answer, or the rest of a watch that is over, before it is cut off.
    pub sending: Duration,
}

impl Default for ConnectionLimits {
    fn default() -> ConnectionLimits {
        // A process may often open 1024 files only, and has others than connections.
        ConnectionLimits { most: 900, idle: Duration::from_secs(90), sending: Duration::from_secs(60) }
    }
}

/// How a server is set up. [`Options::default`] suits tests: a random port, everything allowed.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where to listen; port 0 picks a free one.
    pub listen: SocketAddr,
    /// Who may do what.
    pub authorization: AuthorizationMode,
    /// Listen on an address that other machines reach although [`AuthorizationMode::AlwaysAllow`] lets every client with
    /// credentials do everything.
    pub allow_remote_clients: bool,
    /// Namespace purge, garbage collection, default service accounts, endpoint slices.
    pub built_in_controllers: bool,
    /// Serve `/debug/`.
    pub debug_endpoints: bool,
    /// The range of cluster IPs.
    pub service_cidr: IpNet,
    /// The first and last node port.
    pub node_ports: (u16, u16),
    /// The issuer of service-account tokens.
    pub issuer: String,
    /// Let the addresses in endpoint slices be in the loopback range, which a real server refuses: for a cluster whose Pods
    /// live on this machine.
    pub loopback_endpoints: bool,
    /// What connections may take up.
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
    /// Says what cannot be meant.
    pub(crate) fn check(&self) -> Result<(), String> {
        let everything = self.authorization == AuthorizationMode::AlwaysAllow && !self.allow_remote_clients;
        if everything && !self.listen.ip().is_loopback() {
            return Err(format!(
                "other machines can reach {}, and AlwaysAllow lets every client with a certificate or a token do everything: \
                 listen on a loopback address, let RBAC decide, or allow remote clients (--allow-remote-clients)",
                self.listen
            ));
        }
        let (first, last) = self.node_ports;
        if first == 0 || first > last {
            return Err(format!(
                "the node port range {first}-{last} is empty: give FIRST-LAST with FIRST <= LAST, from 1"
            ));
        }
        let bits = self.service_cidr.max_prefix_len() - self.service_cidr.prefix_len();
        if bits < 3 {
            return Err(format!("the service range {} is too small: give at least eight addresses", self.service_cidr));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_machines_are_let_in_only_where_rules_decide_or_it_is_allowed() {
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
}
