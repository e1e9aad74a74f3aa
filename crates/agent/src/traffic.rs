//! What the active agent does for traffic: addresses on the interface, and sockets.
//!
//! ```text
//!  role, state ──► sync ──► interface: hold these addresses, none as a standby
//!                       └─► sockets: set changed load balancers, remove the others
//! ```
//!
//! Level-triggered: every sync compares with what there is, so a missed change is corrected by the next one.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bowline_agent_client::{Balancer, ListenerError};
use bowline_l4::{LoadBalancerConfig, LoadBalancerStatus};
use bowline_runtime::Shutdown;
use tokio::time::{Instant, timeout};

use crate::data_plane::{Records, Sockets, load_balancer_config, target_host};
use crate::group::Group;
use crate::state::World;

/// Interval of syncs, in which the lifetimes of the addresses are renewed.
const INTERVAL: Duration = Duration::from_millis(500);

/// An address conflict is reported for this long after it was seen.
const CONFLICT_RETENTION: Duration = Duration::from_secs(60);

/// Drain timeout of connections at the end of the agent.
const DRAIN: Duration = Duration::from_secs(5);

/// Interface of the service addresses.
pub(crate) trait Interface: Send + Sync {
    /// Makes these the service addresses on the interface, for the next two seconds. With `takeover`, another host may still have
    /// them.
    fn hold<'a>(
        &'a self,
        addresses: &'a BTreeSet<IpAddr>,
        takeover: bool,
    ) -> Pin<Box<dyn Future<Output = Held> + Send + 'a>>;

    /// Link-layer address, which peers need to recognise announcements.
    fn link_address(&self) -> Option<String>;

    /// Whether the interface was up and had a carrier in the last [`hold`](Interface::hold).
    fn is_connected(&self) -> bool;

    /// Sets the link-layer addresses of the peers.
    fn set_peers(&self, link_addresses: &BTreeSet<String>);

    /// Announcements of other hosts since the last call.
    fn sightings(&self) -> Vec<Sighting>;
}

/// Result of [`Interface::hold`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Held {
    /// Number of addresses on the interface.
    pub(crate) addresses: usize,
    pub(crate) problems: BTreeSet<String>,
}

/// Announcement of another host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sighting {
    /// Whether this agent holds the address, and the host is no peer.
    pub(crate) is_conflict: bool,
    pub(crate) address: IpAddr,
    /// Link-layer address of the host.
    pub(crate) by: String,
    pub(crate) at: Instant,
}

/// Addresses and sockets of an agent.
pub(crate) struct Traffic {
    sockets: Sockets,
    records: Arc<GroupRecords>,
    interface: Option<Box<dyn Interface>>,
    applied: tokio::sync::Mutex<Applied>,
    held: AtomicUsize,
    conflicts: Mutex<BTreeMap<(IpAddr, String), Instant>>,
}

/// Result of the last sync.
#[derive(Default)]
struct Applied {
    was_active: bool,
    balancers: BTreeMap<String, Arc<Balancer>>,
}

/// Records of the group for the data plane: none unless this agent is active.
struct GroupRecords(Arc<Group>);

impl Records for GroupRecords {
    fn config(&self, id: &str) -> Option<LoadBalancerConfig> {
        let config = || self.0.read(|world| load_balancer_config(&world.balancers, id, target_host));
        self.0.is_active().then(config).flatten()
    }
}

impl Traffic {
    pub(crate) fn new(group: &Arc<Group>, sockets: Sockets, interface: Option<Box<dyn Interface>>) -> Traffic {
        group.inner().link_address = interface.as_ref().and_then(|interface| interface.link_address());
        Traffic {
            sockets,
            records: Arc::new(GroupRecords(group.clone())),
            interface,
            applied: tokio::sync::Mutex::default(),
            held: AtomicUsize::new(0),
            conflicts: Mutex::default(),
        }
    }

    /// Syncs after every change and periodically, until shutdown; then closes all sockets.
    pub(crate) async fn run(self: Arc<Self>, group: Arc<Group>, shutdown: Shutdown) {
        let mut changes = group.changes();
        while !shutdown.is_requested() {
            self.sync(&group).await;
            self.observe(&group);
            let _ = timeout(INTERVAL, shutdown.or(changes.changed())).await;
        }
        self.sync(&group).await;
        self.sockets.close(DRAIN).await;
    }

    /// Applies role and state. When it returns, the sockets are bound.
    pub(crate) async fn sync(&self, group: &Group) {
        let mut applied = self.applied.lock().await;
        let is_active = group.is_active();
        let desired = group.read(|world| match is_active {
            true => world.balancers.balancers().map(|balancer| (balancer.id.clone(), balancer.clone())).collect(),
            false => BTreeMap::new(),
        });
        self.hold(group, is_active && !applied.was_active).await;
        let is_same =
            |id: &String, balancer| applied.balancers.get(id).is_some_and(|known| Arc::ptr_eq(known, balancer));
        let changed = desired.iter().filter(|(id, balancer)| !is_same(id, balancer)).map(|(id, _)| id);
        let removed = applied.balancers.keys().filter(|id| !desired.contains_key(*id));
        let mut renewed = Instant::now();
        for id in changed.chain(removed) {
            // The addresses must not expire while the sockets of many load balancers are opened.
            if renewed.elapsed() >= INTERVAL {
                self.hold(group, false).await;
                renewed = Instant::now();
            }
            self.sockets.update_in_task(&self.records, id).await;
        }
        (applied.balancers, applied.was_active) = (desired, is_active);
    }

    /// Holds the addresses of the group while this agent is active, and none otherwise.
    async fn hold(&self, group: &Group, takeover: bool) {
        let addresses = if group.is_active() { group.read(World::held_addresses) } else { BTreeSet::new() };
        let Some(interface) = &self.interface else { return self.held.store(addresses.len(), Ordering::Relaxed) };
        let held = interface.hold(&addresses, takeover).await;
        self.held.store(held.addresses, Ordering::Relaxed);
        group.set_interface(interface.link_address(), interface.is_connected());
        group.problems.set("interface", held.problems);
    }

    /// Reads what other hosts announce.
    fn observe(&self, group: &Group) {
        let Some(interface) = &self.interface else { return };
        let peers = group.link_addresses();
        interface.set_peers(&peers.keys().cloned().collect());
        let mut conflicts = self.conflicts.lock().unwrap_or_else(PoisonError::into_inner);
        for Sighting { is_conflict, address, by, at } in interface.sightings() {
            match peers.get(&by) {
                Some(peer) => group.receive_beacon(peer, at),
                None if is_conflict && conflicts.insert((address, by), at).is_none() => {
                    group.metrics.conflicts.with_label_values(&["address"]).inc();
                }
                None => {}
            }
        }
        conflicts.retain(|_, at| at.elapsed() < CONFLICT_RETENTION);
        let text = |(address, by): &(IpAddr, String)| {
            let fix = "fix: change the address of that host, or remove the address from the pool";
            format!("the host with the link-layer address {by} also uses the service address {address}; {fix}")
        };
        group.problems.set("address conflicts", conflicts.keys().map(text).collect());
    }

    /// Failed listeners of a load balancer.
    pub(crate) fn errors(&self, balancer: &Balancer, addresses: impl Iterator<Item = IpAddr>) -> Vec<ListenerError> {
        self.sockets.errors(balancer, addresses)
    }

    /// Status of a load balancer in the data plane.
    pub(crate) fn status(&self, id: &str) -> Option<LoadBalancerStatus> {
        self.sockets.status(id)
    }

    /// Number of addresses that this agent holds.
    pub(crate) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use bowline_config::ConfigFile;
    use tokio::runtime::Handle;

    use super::*;
    use crate::config::Config;
    use crate::metrics::Metrics;
    use crate::state::StateFile;
    use crate::testing::Scratch;

    /// Interface that has lost its carrier, with a replaced network card.
    struct Unplugged;

    impl Interface for Unplugged {
        fn hold<'a>(&'a self, _: &'a BTreeSet<IpAddr>, _: bool) -> Pin<Box<dyn Future<Output = Held> + Send + 'a>> {
            Box::pin(std::future::ready(Held::default()))
        }

        fn link_address(&self) -> Option<String> {
            Some("02:00:5e:10:00:07".to_owned())
        }

        fn is_connected(&self) -> bool {
            false
        }

        fn set_peers(&self, _: &BTreeSet<String>) {}

        fn sightings(&self) -> Vec<Sighting> {
            Vec::new()
        }
    }

    #[tokio::test]
    async fn peers_learn_that_the_interface_is_not_connected() {
        let scratch = Scratch::new();
        let config = ConfigFile::from_text("agent.yaml", "name: lb-1\nlisten: unix:/run/agent.sock\n");
        let (file, state) = StateFile::open(&scratch.path().join("state.json")).unwrap();
        let group = Group::new(Config::read(&config).unwrap(), file, state, Metrics::new().unwrap());
        let group = Arc::new(group);
        let traffic = Traffic::new(&group, Sockets::new(Handle::current()), Some(Box::new(Unplugged)));
        assert!(group.beat().connected);
        traffic.sync(&group).await;
        let beat = group.beat();
        assert_eq!((beat.connected, beat.link_address.as_deref()), (false, Some("02:00:5e:10:00:07")));
    }
}
