//! Linux: netlink and packet sockets.

mod addresses;
mod arp;
mod capabilities;
mod conflicts;
mod diff;
mod explain;
mod filter;
mod link;
mod ndp;
mod packet_socket;
mod schedule;
mod segment;
mod sync;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use nix::net::if_::{if_nameindex, if_nametoindex};
use tokio::task::JoinSet;

use self::segment::Segment;
use self::sync::SyncState;
use super::{HoldReport, MacAddress, NetworkError, NetworkOptions, NetworkProblem, Seen};

/// Returns the addresses of this host that no agent added, not even an earlier process; `None` if they cannot be read. A kernel before
/// Linux 5.18 does not report who added an address: then all of them are returned.
pub async fn addresses_of_others() -> Option<BTreeSet<IpAddr>> {
    let (connection, kernel, _) = rtnetlink::new_connection().ok()?;
    // Ends with the last handle.
    tokio::spawn(connection);
    let found = addresses::dump(&kernel).await.ok()?;
    let others = found.into_iter().filter(|one| one.has_our_protocol != Some(true));
    Some(others.map(|one| one.address).collect())
}

/// Puts service addresses on an interface and announces them.
pub struct Network {
    segment: Arc<Segment>,
    /// Serializes syncs.
    sync: tokio::sync::Mutex<SyncState>,
    report: Mutex<Report>,
    _announcer: JoinSet<()>,
}

/// Result of the last sync.
#[derive(Default)]
struct Report {
    link_address: Option<MacAddress>,
    is_connected: bool,
    problems: BTreeSet<NetworkProblem>,
}

impl Network {
    /// Checks the interface and the privileges, and starts on the current runtime. Changes nothing yet.
    ///
    /// # Errors
    ///
    /// Fails if the interface does not exist, if a capability is missing, or if the kernel refuses a socket.
    pub fn open(options: NetworkOptions) -> Result<Network, NetworkError> {
        check_interface(&options.interface)?;
        if let Some(missing) = capabilities::missing() {
            let (interface, purpose) = (options.interface, missing.purpose);
            return Err(NetworkError::MissingCapability { interface, missing: missing.name, purpose });
        }
        let link_address = packet_socket::mac_address(&options.interface);
        let segment = Arc::new(Segment::new(options.clone()));
        let mut announcer = JoinSet::new();
        announcer.spawn(segment::announce(segment.clone()));
        Ok(Network {
            sync: tokio::sync::Mutex::new(SyncState::new(options, segment.clone())),
            segment,
            report: Mutex::new(Report { link_address, is_connected: true, problems: BTreeSet::new() }),
            _announcer: announcer,
        })
    }

    /// Makes the addresses of the interface equal to `addresses`: adds and announces new ones, renews the lifetimes of others, and
    /// removes addresses of this agent that are not among them. An empty set is right for a standby and before the end.
    ///
    /// A new address that another host uses is not added. With `takeover` that is not checked: the previous owner may still hold
    /// the addresses for a moment.
    pub async fn hold(&self, addresses: &BTreeSet<IpAddr>, takeover: bool) -> HoldReport {
        let mut sync = self.sync.lock().await;
        let report = sync.hold(addresses, takeover).await;
        let mut last = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        last.log(&report.problems);
        last.is_connected = sync.is_connected();
        if let Some(link) = sync.link() {
            last.link_address = link.mac;
        }
        report
    }

    /// Replaces the link addresses of peers. A peer that announces an address is a beacon, not a conflict.
    pub fn set_peers(&self, peers: BTreeSet<MacAddress>) {
        self.segment.set_peers(peers);
    }

    /// Link address of the interface; `None` if it has none, and is not announced on.
    #[must_use]
    pub fn link_address(&self) -> Option<MacAddress> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner).link_address
    }

    /// Whether the interface existed, was up and had a carrier in the last call of [`hold`](Network::hold); `true` before the first one.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.report.lock().unwrap_or_else(PoisonError::into_inner).is_connected
    }

    /// Observations since the last call: the latest of each peer and family, of each address in conflict, and of some unknown hosts.
    #[must_use]
    pub fn observations(&self) -> Vec<Seen> {
        self.segment.observations()
    }
}

impl Report {
    /// Logs new and resolved problems, but not repeated ones.
    fn log(&mut self, problems: &BTreeSet<NetworkProblem>) {
        for problem in problems.difference(&self.problems) {
            tracing::warn!(%problem, "cannot hold a service address; retrying");
        }
        for problem in self.problems.difference(problems) {
            tracing::info!(%problem, "problem of a service address resolved");
        }
        self.problems.clone_from(problems);
    }
}

fn check_interface(name: &str) -> Result<(), NetworkError> {
    if if_nametoindex(name).is_ok() {
        return Ok(());
    }
    let names = if_nameindex().map(|all| all.iter().map(|one| one.name().to_string_lossy().into_owned()).collect());
    let existing: Vec<String> = names.unwrap_or_default();
    Err(NetworkError::NoSuchInterface { name: name.to_owned(), existing: existing.join(", ") })
}
