//! Flows of datagrams: what a client sends from one address and port goes to one target, and the answers come back from the
//! listener's address.
//!
//! ```text
//!  client ──► listener's socket ──► flow of this client? ──► its own socket, connected to the target ──► target
//!     ▲                                │ no: filter, pick                        │
//!     └────── listener's socket ◄──────┴──────────────── one task per flow ◄─────┘
//! ```
//!
//! * One task has the listener and its flows; nothing is locked. Each flow has a task for the answers.
//! * A flow ends when nothing was heard from either side for the idle timeout, when it has to make room for another one, when
//!   its target was removed and the drain time is up, or with the listener. The client's next datagram begins another one.
//! * A flow stays with a target that drains. It moves at its next datagram if the target has become unhealthy and another is
//!   to be had, or if nothing listens there any more: datagrams have no connection that this would cut.
//! * Nothing is queued. A datagram that the kernel has no room for is lost, as on any wire. The memory of a flow does not
//!   depend on the size of its datagrams: answers pass through one buffer per thread.

mod replies;
#[cfg(test)]
mod tests;

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use socket2::SockRef;
use tokio::net::UdpSocket;
use tokio::task::{AbortHandle, JoinError, JoinSet, yield_now};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::flows::{Flows, Heard, LastHeard};
use crate::frontend::Frontend;
use crate::open_files;
use crate::pool::Lease;
use replies::{Ended, Replies, Why, is_dead};

/// No datagram is longer.
const LONGEST: usize = 65_536;

/// So many datagrams are taken from one socket before others have their turn.
const BATCH: usize = 32;

/// How often is looked for flows that fell silent.
const SWEEP: Duration = Duration::from_millis(250);

/// Carries datagrams until `stop` is cancelled. When it returns, the socket is closed and all flows have ended.
pub(crate) async fn serve(socket: UdpSocket, frontend: Arc<Frontend>, flows: usize, stop: CancellationToken) {
    let mut listener = Listener::new(socket, frontend, flows);
    let mut sweep = interval(SWEEP);
    sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Some(ended) = listener.replies.join_next() => listener.note_end(ended),
            _ = sweep.tick(), if !listener.flows.is_empty() => listener.sweep(Instant::now()),
            _ = listener.socket.readable() => listener.take().await,
        }
    }
    // Their tasks hold the socket too.
    listener.replies.shutdown().await;
}

/// A UDP listener and its flows.
struct Listener {
    socket: Arc<UdpSocket>,
    frontend: Arc<Frontend>,
    limit: usize,
    flows: Flows<Flow>,
    replies: JoinSet<Ended>,
    /// How many routes there were, to tell them apart.
    routes: u64,
    buffer: Box<[u8]>,
}

/// The datagrams between one client and the listener.
struct Flow {
    heard: Arc<LastHeard>,
    route: Route,
    _open: Open,
}

/// The way to a target.
struct Route {
    number: u64,
    lease: Lease,
    upstream: Arc<UdpSocket>,
    /// Nothing listens there.
    dead: bool,
    replies: AbortHandle,
}

/// Counts as an open flow for as long as it lives.
struct Open(Arc<Frontend>);

// === impl Listener ===

impl Listener {
    fn new(socket: UdpSocket, frontend: Arc<Frontend>, limit: usize) -> Listener {
        Listener {
            socket: Arc::new(socket),
            frontend,
            limit: limit.max(1),
            flows: Flows::new(),
            replies: JoinSet::new(),
            routes: 0,
            buffer: vec![0; LONGEST].into(),
        }
    }

    /// Takes what has arrived.
    async fn take(&mut self) {
        for _ in 0..BATCH {
            match self.socket.try_recv_from(&mut self.buffer) {
                Ok((length, client)) => self.carry(client, length),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => tracing::debug!(listener = %self.frontend.address, %error, "a datagram was not received"),
            }
        }
        yield_now().await;
    }

    /// Carries the datagram in the buffer to the client's target. Waits for nothing: a slow flow would hold up all others.
    fn carry(&mut self, client: SocketAddr, length: usize) {
        let now = Instant::now();
        if !self.route(client, now) {
            return;
        }
        // The kernel tells of an ICMP message instead of sending the next datagram, which therefore goes to another target.
        if !self.send(client, length) && self.reroute(client, true) {
            self.send(client, length);
        }
    }

    /// Sees to it that the client has a flow, and that it leads somewhere, if that is possible.
    fn route(&mut self, client: SocketAddr, now: Instant) -> bool {
        let Some(flow) = self.flows.get_mut(client) else { return self.begin(client, now) };
        flow.heard.note(now);
        if flow.route.lease.closed().is_cancelled() {
            self.flows.remove(client);
            return self.begin(client, now);
        }
        let (dead, usable) = (flow.route.dead, flow.route.lease.usable());
        if dead || !usable {
            return self.reroute(client, dead) || !dead;
        }
        true
    }

    fn begin(&mut self, client: SocketAddr, now: Instant) -> bool {
        if !self.frontend.filter().allows(client.ip()) {
            self.frontend.counters.denied.add(1);
            return false;
        }
        let Some((lease, upstream)) = self.connect(client, &[]) else {
            self.frontend.counters.failed.add(1);
            return false;
        };
        self.make_room();
        self.frontend.counters.accepted.add(1);
        let heard = Arc::new(LastHeard::new(now));
        let route = self.open(client, lease, upstream, heard.clone());
        self.flows.insert(client, Flow { heard, route, _open: Open::new(self.frontend.clone()) });
        true
    }

    /// Leads a flow to another target; to the same one again if `dead` and there is no other.
    fn reroute(&mut self, client: SocketAddr, dead: bool) -> bool {
        let Some(flow) = self.flows.get_mut(client) else { return false };
        let (before, heard) = (flow.route.lease.address(), flow.heard.clone());
        let mut found = self.connect(client, &[before]);
        if found.is_none() && dead {
            found = self.connect(client, &[]);
        }
        let Some((lease, upstream)) = found else { return false };
        let route = self.open(client, lease, upstream, heard);
        if let Some(flow) = self.flows.get_mut(client) {
            flow.route = route;
        }
        true
    }

    fn connect(&mut self, client: SocketAddr, except: &[SocketAddr]) -> Option<(Lease, UdpSocket)> {
        let mut tried = except.to_vec();
        loop {
            let lease = self.frontend.pool().pick(client.ip(), &tried)?;
            match connected(lease.address()) {
                Ok(upstream) => return Some((lease, upstream)),
                // No target's fault. One flow less is room for this one, as soon as its task has let go of its socket.
                Err(error) if open_files::are_too_many(&error) => {
                    self.end_longest_silent();
                    return None;
                }
                Err(error) => tracing::debug!(target = %lease.address(), %error, "cannot send to target"),
            }
            tried.push(lease.address());
        }
    }

    /// From now on answers of this target go to the client.
    fn open(&mut self, client: SocketAddr, lease: Lease, upstream: UdpSocket, heard: Arc<LastHeard>) -> Route {
        self.routes += 1;
        lease.established();
        let (number, upstream) = (self.routes, Arc::new(upstream));
        let (frontend, socket) = (self.frontend.clone(), self.socket.clone());
        let replies = Replies { client, upstream: upstream.clone(), socket, frontend, heard };
        let replies = self.replies.spawn(replies.run(number, lease.closed().clone()));
        Route { number, lease, upstream, dead: false, replies }
    }

    /// Whether the target may have got it: anything but that nothing listens there.
    fn send(&mut self, client: SocketAddr, length: usize) -> bool {
        let Some(flow) = self.flows.get_mut(client) else { return true };
        // Not by tokio, which takes a new socket for unwritable until its reactor has polled it.
        match SockRef::from(&*flow.route.upstream).send(self.buffer.get(..length).unwrap_or_default()) {
            Ok(sent) => self.frontend.counters.bytes_in.add(sent as u64),
            Err(error) if is_dead(&error) => {
                self.frontend.counters.failed.add(1);
                return false;
            }
            Err(error) => tracing::debug!(target = %flow.route.lease.address(), %error, "a datagram was not sent"),
        }
        true
    }

    fn make_room(&mut self) {
        while self.flows.len() >= self.limit && self.end_longest_silent() {}
    }

    fn end_longest_silent(&mut self) -> bool {
        let longest = self.flows.longest_silent();
        longest.and_then(|(client, _)| self.flows.remove(client)).is_some()
    }

    fn sweep(&mut self, now: Instant) {
        let idle = self.frontend.idle();
        while let Some((client, since)) = self.flows.longest_silent() {
            if now.saturating_duration_since(since) < idle {
                return;
            }
            self.flows.remove(client);
            self.frontend.counters.idled.add(1);
        }
    }

    fn note_end(&mut self, ended: Result<Ended, JoinError>) {
        // The task of a route that was replaced or removed was cancelled: nothing to do.
        let Ok(ended) = ended else { return };
        let Some(flow) = self.flows.get_mut(ended.client).filter(|flow| flow.route.number == ended.route) else {
            return;
        };
        match ended.why {
            Why::Dead => {
                flow.route.dead = true;
                self.frontend.counters.failed.add(1);
            }
            Why::Closed => drop(self.flows.remove(ended.client)),
        }
    }
}

/// A socket that sends to this target only, and takes from it only.
fn connected(target: SocketAddr) -> io::Result<UdpSocket> {
    let any: SocketAddr = match target {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = std::net::UdpSocket::bind(any)?;
    socket.connect(target)?;
    socket.set_nonblocking(true)?;
    UdpSocket::from_std(socket)
}

// === impl Flow ===

impl Heard for Flow {
    fn last(&self) -> Instant {
        self.heard.last()
    }
}

impl Drop for Route {
    fn drop(&mut self) {
        self.replies.abort();
    }
}

impl Open {
    fn new(frontend: Arc<Frontend>) -> Open {
        frontend.counters.open.add(1);
        Open(frontend)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.counters.open.sub(1);
    }
}
