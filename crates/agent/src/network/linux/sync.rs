//! One sync of the addresses on the interface.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use rtnetlink::{Error, Handle};
use tokio::task::JoinSet;
use tokio::time::{self, Instant};

use super::addresses::{self, PIPELINE, Put};
use super::diff::{Plan, Scope, diff};
use super::explain;
use super::link::{self, Link};
use super::segment::{self, Segment, Sockets};
use crate::Pool;
use crate::network::{HoldReport, LIFETIME, MacAddress, NetworkOptions, NetworkProblem};

/// Number of probes for a duplicate of a new address, and the pause after each.
const PROBES: u8 = 3;
const PROBE_PAUSE: Duration = Duration::from_millis(100);

/// Time after which an address that another host used is probed again.
const REFUSED: Duration = Duration::from_secs(10);

/// The same for an address of a peer, which releases it or loses it soon.
const REFUSED_BY_PEER: Duration = Duration::from_secs(1);

/// Maximum time from the start of a sync, and so from the decision of the group, to a change. A process that was suspended in
/// between must not take addresses that another agent holds by now.
const MAX_AGE: Duration = Duration::from_secs(1);

/// State between syncs.
pub(super) struct SyncState {
    options: NetworkOptions,
    segment: Arc<Segment>,
    kernel: Option<Handle>,
    link: Option<Link>,
    /// Whether the interface existed, was up and had a carrier when it was read last.
    is_connected: bool,
    receivers: Option<Receivers>,
    /// Addresses that this process added.
    added: BTreeSet<IpAddr>,
    /// Addresses that another host used, with the time of the next probe.
    refused: BTreeMap<IpAddr, (MacAddress, Instant)>,
}

/// Open sockets, and the interface and pools they were opened for.
struct Receivers {
    link: u32,
    mac: MacAddress,
    pools: Vec<Pool>,
    sockets: Arc<Sockets>,
    _tasks: JoinSet<()>,
}

impl SyncState {
    pub(super) fn new(options: NetworkOptions, segment: Arc<Segment>) -> SyncState {
        let (added, refused) = (BTreeSet::new(), BTreeMap::new());
        SyncState { options, segment, kernel: None, link: None, is_connected: true, receivers: None, added, refused }
    }

    /// Interface in the last sync, if it existed.
    pub(super) fn link(&self) -> Option<Link> {
        self.link
    }

    /// Whether the interface existed, was up and had a carrier when it was read last.
    pub(super) fn is_connected(&self) -> bool {
        self.is_connected
    }

    /// Syncs the addresses, and announces them.
    pub(super) async fn hold(&mut self, desired: &BTreeSet<IpAddr>, takeover: bool) -> HoldReport {
        let started = Instant::now();
        let mut report = HoldReport::default();
        let failed = match time::timeout(LIFETIME, self.sync(desired, takeover, started, &mut report)).await {
            Ok(result) => result.err(),
            Err(_) => {
                self.kernel = None;
                Some("the kernel did not respond in time".to_owned())
            }
        };
        if let Some(message) = failed {
            self.report(&mut report, None, message);
        }
        // The lifetimes began later than this.
        self.segment.hold(&report.held, started);
        report
    }

    /// An error concerns all addresses; those of the report stay held.
    async fn sync(
        &mut self,
        desired: &BTreeSet<IpAddr>,
        takeover: bool,
        started: Instant,
        report: &mut HoldReport,
    ) -> Result<(), String> {
        let kernel = self.connect()?;
        let link = self.find_link(&kernel).await?;
        if !link.has_carrier {
            self.report(report, None, "no carrier; fix: connect the cable, or the virtual network".to_owned());
        }
        let plan = self.plan(&kernel, link, desired).await?;
        self.remove(&kernel, link, &plan.remove, report).await;
        self.put(&kernel, link, &plan.renew, (Put::Renew, started), report).await?;
        self.open_sockets(&kernel, link, desired).await?;
        self.report_foreign(&plan, report);
        let add = if takeover { plan.add } else { self.without_duplicates(plan.add, report).await };
        self.put(&kernel, link, &add, (Put::Add, started), report).await
    }

    async fn remove(&mut self, kernel: &Handle, link: Link, addresses: &[IpAddr], report: &mut HoldReport) {
        for some in addresses.chunks(PIPELINE) {
            let results = addresses::remove(kernel, link.index, some).await;
            self.record(results, report, |state, _, address| _ = state.added.remove(&address));
        }
    }

    async fn put(
        &mut self,
        kernel: &Handle,
        link: Link,
        addresses: &[IpAddr],
        (put, started): (Put, Instant),
        report: &mut HoldReport,
    ) -> Result<(), String> {
        for some in addresses.chunks(PIPELINE) {
            if started.elapsed() > MAX_AGE {
                return Err(
                    "this process was suspended, or had no CPU time, for a second; fix: reduce the load of this host"
                        .to_owned(),
                );
            }
            let results = addresses::put(kernel, link.index, some, put).await;
            self.record(results, report, |state, report, address| {
                state.added.insert(address);
                state.refused.remove(&address);
                report.held.insert(address);
            });
        }
        Ok(())
    }

    /// Records the results of requests.
    fn record(
        &mut self,
        results: Vec<(IpAddr, Result<(), Error>)>,
        report: &mut HoldReport,
        succeeded: impl Fn(&mut SyncState, &mut HoldReport, IpAddr),
    ) {
        for (address, result) in results {
            match result {
                Ok(()) => succeeded(self, report, address),
                Err(error) => {
                    let message = explain::address(&error, &self.options.interface, address);
                    self.forget_broken_connection(&error);
                    self.report(report, Some(address), message);
                }
            }
        }
    }

    fn report(&self, report: &mut HoldReport, address: Option<IpAddr>, message: String) {
        let interface = self.options.interface.clone();
        report.problems.insert(NetworkProblem { interface, address, message });
    }
}

// ---- the kernel

impl SyncState {
    fn connect(&mut self) -> Result<Handle, String> {
        if let Some(kernel) = &self.kernel {
            return Ok(kernel.clone());
        }
        let (connection, kernel, _) =
            rtnetlink::new_connection().map_err(|error| format!("cannot open a netlink socket: {error}"))?;
        // Ends with the last handle.
        tokio::spawn(connection);
        Ok(self.kernel.insert(kernel).clone())
    }

    /// A request that did not reach the kernel means that the socket was closed.
    fn forget_broken_connection(&mut self, error: &Error) {
        if explain::errno(error).is_none() {
            self.kernel = None;
        }
    }

    fn failed(&mut self, error: Error) -> String {
        self.forget_broken_connection(&error);
        explain::request(&error)
    }

    /// Returns the interface if it is up.
    async fn find_link(&mut self, kernel: &Handle) -> Result<Link, String> {
        let name = self.options.interface.clone();
        let before = self.link;
        self.link = link::find(kernel, &name).await.map_err(|error| self.failed(error))?;
        self.is_connected = self.link.is_some_and(|link| link.is_up && link.has_carrier);
        let Some(link) = self.link else {
            self.close_sockets();
            return Err("does not exist any more; fix: create it again, or correct `interface`".to_owned());
        };
        if !link.is_up {
            return Err(format!("is down; fix: `ip link set dev {name} up`"));
        }
        if link.has_carrier && before.is_some_and(|before| !before.has_carrier) {
            self.segment.announce_again();
        }
        Ok(link)
    }

    async fn plan(&mut self, kernel: &Handle, link: Link, desired: &BTreeSet<IpAddr>) -> Result<Plan, String> {
        let found = addresses::dump(kernel).await.map_err(|error| self.failed(error))?;
        // An expired address may be added by another program.
        self.added.retain(|address| found.iter().any(|one| one.address == *address));
        let in_pool = |address| self.options.contains(address);
        Ok(diff(desired, &found, &Scope { link: link.index, added: &self.added, in_pool: &in_pool }))
    }

    fn report_foreign(&self, plan: &Plan, report: &mut HoldReport) {
        for (address, link) in &plan.foreign {
            let place = match self.link {
                Some(own) if own.index == *link => "this interface".to_owned(),
                _ => format!("the interface with index {link}"),
            };
            let message = format!("another program has added it to {place}; fix: remove it there, or from `pool`");
            self.report(report, Some(*address), message);
        }
    }
}

// ---- the segment

impl SyncState {
    /// Opens the sockets, if they are not open for this interface and these addresses.
    async fn open_sockets(&mut self, kernel: &Handle, link: Link, desired: &BTreeSet<IpAddr>) -> Result<(), String> {
        let Some(mac) = link.mac else {
            self.close_sockets();
            return Ok(());
        };
        let pools = self.observed_pools(desired);
        match &mut self.receivers {
            Some(receivers) if (receivers.link, receivers.mac) == (link.index, mac) => {
                if receivers.pools != pools {
                    receivers.sockets.set_pools(&pools).map_err(|error| explain::packet_socket(&error))?;
                    receivers.pools = pools;
                }
                return Ok(());
            }
            _ => self.close_sockets(),
        }
        let mut own = link::addresses_of_host(kernel).await.map_err(|error| self.failed(error))?;
        own.insert(mac);
        let sockets = Sockets::open(&self.options.interface, mac, &pools);
        let sockets = sockets.map_err(|error| explain::packet_socket(&error))?;
        let tasks = segment::receive(&sockets, &self.segment);
        self.segment.open(own, sockets.clone());
        self.receivers = Some(Receivers { link: link.index, mac, pools, sockets, _tasks: tasks });
        Ok(())
    }

    fn close_sockets(&mut self) {
        self.receivers = None;
        self.segment.close();
    }

    /// Returns the addresses that packets of other hosts are observed for.
    fn observed_pools(&self, desired: &BTreeSet<IpAddr>) -> Vec<Pool> {
        let outside = desired.iter().filter(|address| !self.options.contains(**address));
        self.options.pools.iter().copied().chain(outside.map(|address| IpNet::from(*address).into())).collect()
    }

    /// Returns the addresses that no other host uses.
    async fn without_duplicates(&mut self, mut addresses: Vec<IpAddr>, report: &mut HoldReport) -> Vec<IpAddr> {
        let now = Instant::now();
        self.refused.retain(|_, (_, next_probe)| now < *next_probe);
        let probed: Vec<_> = addresses.iter().copied().filter(|address| !self.refused.contains_key(address)).collect();
        for (address, by) in self.probe(&probed).await {
            let pause = if self.segment.is_peer(by) { REFUSED_BY_PEER } else { REFUSED };
            self.refused.insert(address, (by, now + pause));
        }
        for address in &addresses {
            if let Some((by, _)) = self.refused.get(address) {
                let message = match self.segment.is_peer(*by) {
                    true => format!("the peer {by} still holds it; retrying"),
                    false => {
                        format!("host {by} on this network uses it; fix: remove it from that host, or from `pool`")
                    }
                };
                self.report(report, Some(*address), message);
            }
        }
        addresses.retain(|address| !self.refused.contains_key(address));
        addresses
    }

    /// Returns the users of addresses among the hosts of the segment.
    async fn probe(&self, addresses: &[IpAddr]) -> BTreeMap<IpAddr, MacAddress> {
        let (Some(receivers), false) = (&self.receivers, addresses.is_empty()) else { return BTreeMap::new() };
        self.segment.begin_probe(addresses);
        for _ in 0..PROBES {
            for address in addresses {
                receivers.sockets.probe(*address).await;
            }
            time::sleep(PROBE_PAUSE).await;
        }
        self.segment.end_probe()
    }
}
