//! Declaration of the configuration file.

use std::path::PathBuf;

use bowline_config::table::{Format, Item, Key, Kind, Section, Table, UnknownKeys, Value, keys};

use crate::group::beat::Role;

keys! {
    /// Configuration of an agent.
    #[derive(Debug, Clone, PartialEq)]
    pub(super) struct Keys {
        name: String = "name", "", "Name of the agent, unique in its group. Its certificate must have this name. Default: the host name.";
        role: RoleKey = "role", "member", "`member`: may hold the addresses of load balancers. `follower`: only copies the routes to its own host.";
        listen: String = "listen", "0.0.0.0:9470", "Address and port of the API, or `unix:/PATH` for a Unix socket that only the user of the agent can open.";
        state_file: PathBuf = "stateFile", "/var/lib/bowline-lb-agent/state.json", "File with the state: addresses, load balancers and routes.";
        clients: Vec<String> = "clients", "bowline", "Names in the certificates of clients that may use the API.";
        followers: Vec<String> = "followers", "", "Names in the certificates of followers, which may read the state.";
        interface: Option<String> = "interface", "", "Network interface of the service addresses. Default: none; the addresses must be local already.";
        pool: Vec<String> = "pool", "", "Addresses for load balancers: CIDRs, ranges (`192.0.2.210-192.0.2.220`) and single addresses. The same in the whole group.";
        internal_pool: Vec<String> = "internalPool", "", "Addresses for internal load balancers.";
        quorum: usize = "quorum", "0", "Number of agents that must reach each other so that one of them is active. 0: a majority of three and more agents, one of two.";
        metrics_listen: String = "metricsListen", "127.0.0.1:9471", "Address and port of metrics and health checks, without TLS; empty disables them.";
        ["tls"] tls: TlsKeys, "Certificates of the API, required unless it listens on a Unix socket. Changed files are loaded without a restart.";
        ["routes"] routes: RouteKeys, "Routes to pod CIDRs.";
    }
}

keys! {
    /// TLS files.
    #[derive(Debug, Clone, PartialEq)]
    pub(super) struct TlsKeys {
        certificate_file: PathBuf = "certificateFile", "", "Certificate of the agent and its intermediate certificates, in PEM, for its server and as a client of its peers. `{name}` stands for the name of the agent.";
        key_file: PathBuf = "keyFile", "", "Key of the certificate, in PEM. `{name}` stands for the name of the agent.";
        client_ca_file: PathBuf = "clientCaFile", "", "CA certificates of clients and peers, in PEM.";
    }
}

keys! {
    /// Routes.
    #[derive(Debug, Clone, PartialEq)]
    pub(super) struct RouteKeys {
        enabled: bool = "enabled", "true", "Add the routes of the group to the kernel of this host.";
    }
}

keys! {
    /// A peer.
    #[derive(Debug, Clone, PartialEq)]
    pub(super) struct PeerKeys {
        endpoint: String = "endpoint", "", "Endpoint of its API: `https://HOST:PORT`.";
    }
}

/// Section with the peers.
pub(super) const PEERS: &str = "peers";

const PEERS_DOC: &str = "The members of the group, each below its name. The entry of the agent itself has no effect, so that all hosts can have the same file.";

/// Role as a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct RoleKey(pub(super) Role);

impl Item for RoleKey {
    const KIND: Kind = Kind::OneOf(&["member", "follower"]);

    fn parse(text: &str) -> Option<RoleKey> {
        match text {
            "member" => Some(RoleKey(Role::Member)),
            "follower" => Some(RoleKey(Role::Follower)),
            _ => None,
        }
    }
}

impl Value for RoleKey {
    const KIND: Kind = <RoleKey as Item>::KIND;

    fn read(texts: &[Option<&str>]) -> Option<RoleKey> {
        RoleKey::parse((*texts.last()?)?)
    }
}

/// Schema of the file.
pub(super) fn table() -> Table {
    let mut sections = Section::document::<Keys>();
    sections.push(Section { named: true, ..Section::of::<PeerKeys>(PEERS, PEERS_DOC) });
    Table { format: Format::Yaml, unknown: UnknownKeys::Reject, sections }
}

/// Keys of the TLS files.
pub(super) fn tls_files(tls: &TlsKeys) -> [(Key, &PathBuf); 3] {
    [
        (TlsKeys::certificate_file, &tls.certificate_file),
        (TlsKeys::key_file, &tls.key_file),
        (TlsKeys::client_ca_file, &tls.client_ca_file),
    ]
}

/// Number of keys, for a test of the reference page.
#[cfg(test)]
pub(super) fn count() -> usize {
    use bowline_config::table::Keys as _;
    Keys::keys().len() + TlsKeys::keys().len() + RouteKeys::keys().len() + PeerKeys::keys().len()
}
