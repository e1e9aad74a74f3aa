//! Announcements and observations on the segment.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{self, Instant};

use super::conflicts::{Claim, Watch};
use super::packet_socket::PacketSocket;
use super::schedule::{Announcement, Kind, Schedule};
use super::{arp, filter, ndp};
use crate::Pool;
use crate::network::{MacAddress, NetworkOptions, Seen};

/// Packets that are processed between two pauses of [`RECEIVE_PAUSE`]. Together they limit the cost of a flood: the kernel drops
/// packets that do not fit into the receive buffer.
const RECEIVE_BATCH: usize = 64;

/// Pause after [`RECEIVE_BATCH`] packets.
const RECEIVE_PAUSE: Duration = Duration::from_millis(10);

/// Pause after an error of a socket, such as "network is down".
const ERROR_PAUSE: Duration = Duration::from_millis(200);

/// Pause between two batches of announcements.
const SEND_PAUSE: Duration = Duration::from_millis(5);

/// Longest packet of interest: an advertisement with a few options.
const MAX_FRAME: usize = 256;

/// Segment of the interface.
pub(super) struct Segment {
    state: Mutex<State>,
    /// The schedule has changed.
    changed: Notify,
}

struct State {
    schedule: Schedule,
    watch: Watch,
    /// `None` while the interface is unusable or has no ARP.
    sockets: Option<Arc<Sockets>>,
}

/// Packet sockets of one interface.
pub(super) struct Sockets {
    mac: MacAddress,
    arp: PacketSocket,
    ndp: PacketSocket,
}

impl Segment {
    pub(super) fn new(options: NetworkOptions) -> Segment {
        let state = State { schedule: Schedule::default(), watch: Watch::new(options), sockets: None };
        Segment { state: Mutex::new(state), changed: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the addresses that are announced.
    pub(super) fn hold(&self, held: &BTreeSet<IpAddr>, renewed: Instant) {
        self.state().schedule.hold(held, renewed, Instant::now());
        self.changed.notify_one();
    }

    /// Announces all addresses from the start.
    pub(super) fn announce_again(&self) {
        self.state().schedule.restart(Instant::now());
        self.changed.notify_one();
    }

    pub(super) fn set_peers(&self, peers: BTreeSet<MacAddress>) {
        self.state().watch.peers = peers;
    }

    pub(super) fn is_peer(&self, mac: MacAddress) -> bool {
        self.state().watch.peers.contains(&mac)
    }

    /// Starts to announce through sockets, on a host with these link addresses.
    pub(super) fn open(&self, own: BTreeSet<MacAddress>, sockets: Arc<Sockets>) {
        let mut state = self.state();
        state.watch.own = own;
        state.sockets = Some(sockets);
    }

    /// Stops announcing.
    pub(super) fn close(&self) {
        self.state().sockets = None;
    }

    pub(super) fn observations(&self) -> Vec<Seen> {
        self.state().watch.take()
    }

    pub(super) fn begin_probe(&self, addresses: &[IpAddr]) {
        self.state().watch.begin_probe(addresses);
    }

    pub(super) fn end_probe(&self) -> BTreeMap<IpAddr, MacAddress> {
        self.state().watch.end_probe()
    }

    /// Processes a claim of a host.
    fn see(&self, claim: Claim) {
        let now = Instant::now();
        let State { schedule, watch, .. } = &mut *self.state();
        let is_conflict = watch.see(claim, schedule.is_held(claim.address, now), now);
        if is_conflict && schedule.defend(claim.address, now) {
            self.changed.notify_one();
        }
    }

    /// Returns the announcements that are due, and the time of the next ones.
    fn due(&self) -> (Option<Arc<Sockets>>, Vec<Announcement>, Option<Instant>) {
        let now = Instant::now();
        let state = &mut *self.state();
        match &state.sockets {
            Some(sockets) => (Some(sockets.clone()), state.schedule.due(now), state.schedule.next(now)),
            None => (None, Vec::new(), None),
        }
    }
}

// ---- announcer

/// Announces addresses as scheduled.
pub(super) async fn announce(segment: Arc<Segment>) {
    loop {
        let (sockets, due, next) = segment.due();
        if let Some(sockets) = sockets {
            for announcement in due {
                // The process may have been suspended since the schedule was read.
                if Instant::now() < announcement.expires {
                    sockets.announce(announcement).await;
                }
            }
        }
        match next {
            Some(next) => {
                time::sleep(SEND_PAUSE).await;
                let _ = time::timeout_at(next, segment.changed.notified()).await;
            }
            None => segment.changed.notified().await,
        }
    }
}

impl Sockets {
    /// Opens the sockets of an interface. ARP packets whose sender is outside of the pools are not received.
    pub(super) fn open(interface: &str, mac: MacAddress, pools: &[Pool]) -> io::Result<Arc<Sockets>> {
        let arp = PacketSocket::open(interface, arp::ETHERTYPE, &filter::arp(pools))?;
        let ndp = PacketSocket::open(interface, ndp::ETHERTYPE, &filter::ndp())?;
        Ok(Arc::new(Sockets { mac, arp, ndp }))
    }

    /// Replaces the pools of [`Sockets::open`].
    pub(super) fn set_pools(&self, pools: &[Pool]) -> io::Result<()> {
        self.arp.set_filter(&filter::arp(pools))
    }

    /// Announces an address. An error means that the interface is down or its queue is full; later announcements make up for it.
    async fn announce(&self, announcement: Announcement) {
        let result = match announcement.address {
            IpAddr::V4(address) if announcement.kind == Kind::Beacon => {
                self.arp.send(&arp::announcement(self.mac, address)).await
            }
            IpAddr::V4(address) => match self.arp.send(&arp::announcement(self.mac, address)).await {
                Ok(()) => self.arp.send(&arp::gratuitous_reply(self.mac, address)).await,
                failed => failed,
            },
            IpAddr::V6(address) => self.ndp.send(&ndp::announcement(self.mac, address)).await,
        };
        if let Err(error) = result {
            tracing::debug!(address = %announcement.address, %error, "cannot announce an address; retrying");
        }
        if announcement.kind == Kind::Later {
            self.probe(announcement.address).await;
        }
    }

    /// Asks the segment whether a host uses an address.
    pub(super) async fn probe(&self, address: IpAddr) {
        let result = match address {
            IpAddr::V4(address) => self.arp.send(&arp::probe(self.mac, address)).await,
            IpAddr::V6(address) => self.ndp.send(&ndp::probe(self.mac, address)).await,
        };
        if let Err(error) = result {
            tracing::debug!(%address, %error, "cannot probe an address");
        }
    }
}

// ---- receivers

/// Starts the tasks that receive packets. They end when the set is dropped.
pub(super) fn receive(sockets: &Arc<Sockets>, segment: &Arc<Segment>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    let (one, two) = (sockets.clone(), sockets.clone());
    let (segment_one, segment_two) = (segment.clone(), segment.clone());
    tasks.spawn(async move { receive_all(&one.arp, arp::decode, &segment_one).await });
    tasks.spawn(async move { receive_all(&two.ndp, ndp::decode, &segment_two).await });
    tasks
}

async fn receive_all(socket: &PacketSocket, decode: fn(&[u8]) -> Option<Claim>, segment: &Segment) {
    let mut buffer = [0; MAX_FRAME];
    loop {
        for _ in 0..RECEIVE_BATCH {
            match socket.receive(&mut buffer).await {
                Ok(length) => {
                    if let Some(claim) = buffer.get(..length).and_then(decode) {
                        segment.see(claim);
                    }
                }
                Err(_) => time::sleep(ERROR_PAUSE).await,
            }
        }
        time::sleep(RECEIVE_PAUSE).await;
    }
}
