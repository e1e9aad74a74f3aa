//! UDP flows: the datagrams from one client address and port are sent to one target, and the replies are sent from the listener's
//! address.
//!
//! ```text
//!  client ──► listener's socket ──► flow of this client? ──► its own socket, connected to the target ──► target
//!     ▲                                │ no: filter, pick                        │
//!     └────── listener's socket ◄──────┴──────────────── one task per flow ◄─────┘
//! ```
//!
//! * One task owns the listener and its flow table, without locks. Each flow has a task for the replies.
//! * A flow ends when its idle timeout expires, when it is evicted at the limit, when its target was removed and the drain timeout
//!   has expired, or with the listener. The client's next datagram starts a new flow.
//! * A flow stays with a draining target. It moves at its next datagram if the target is unhealthy and another one is available, or
//!   if the target is unreachable: with UDP, this breaks no connection.
//! * Nothing is queued: a datagram that does not fit into the socket buffer is dropped. The memory of a flow does not depend on the
//!   size of its datagrams, because replies use one buffer per thread.

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

use crate::flow_table::{FlowTable, LastActive, LastActivity};
use crate::frontend::Frontend;
use crate::open_files;
use crate::pool::Lease;
use replies::{EndReason, Ended, Replies, is_unreachable};

/// Maximum size of a datagram.
const MAX_DATAGRAM: usize = 65_536;

/// Maximum number of datagrams read from one socket before the task yields.
const BATCH: usize = 32;

/// Interval of the check for idle flows.
const SWEEP_INTERVAL: Duration = Duration::from_millis(250);

/// Forwards datagrams until `stop` is cancelled. When it returns, the socket is closed and all flows have ended.
pub(crate) async fn serve(socket: UdpSocket, frontend: Arc<Frontend>, flows: usize, stop: CancellationToken) {
    let mut listener = Listener::new(socket, frontend, flows);
    let mut sweep = interval(SWEEP_INTERVAL);
    sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Some(ended) = listener.replies.join_next() => listener.on_replies_ended(ended),
            _ = sweep.tick(), if !listener.flows.is_empty() => listener.sweep(Instant::now()),
            _ = listener.socket.readable() => listener.receive().await,
        }
    }
    // The reply tasks hold the socket, too.
    listener.replies.shutdown().await;
}

/// A UDP listener and its flows.
struct Listener {
    socket: Arc<UdpSocket>,
    frontend: Arc<Frontend>,
    limit: usize,
    flows: FlowTable<Flow>,
    replies: JoinSet<Ended>,
    /// Number of upstreams created so far, used to number them.
    upstreams: u64,
    buffer: Box<[u8]>,
}

/// Datagrams between one client and the listener.
struct Flow {
    last_activity: Arc<LastActivity>,
    upstream: Upstream,
    _open: OpenFlow,
}

/// Connected socket to the target of a flow.
struct Upstream {
    number: u64,
    lease: Lease,
    socket: Arc<UdpSocket>,
    /// The target has returned an ICMP unreachable error.
    unreachable: bool,
    replies: AbortHandle,
}

/// Counts a flow as open until dropped.
struct OpenFlow(Arc<Frontend>);

// === impl Listener ===

impl Listener {
    fn new(socket: UdpSocket, frontend: Arc<Frontend>, limit: usize) -> Listener {
        Listener {
            socket: Arc::new(socket),
            frontend,
            limit: limit.max(1),
            flows: FlowTable::new(),
            replies: JoinSet::new(),
            upstreams: 0,
            buffer: vec![0; MAX_DATAGRAM].into(),
        }
    }

    /// Receives and forwards pending datagrams.
    async fn receive(&mut self) {
        for _ in 0..BATCH {
            match self.socket.try_recv_from(&mut self.buffer) {
                Ok((length, client)) => self.forward(client, length),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => tracing::debug!(listener = %self.frontend.address, %error, "cannot receive a datagram"),
            }
        }
        yield_now().await;
    }

    /// Forwards the datagram in the buffer to the client's target. Never waits, because a slow flow would block all others.
    fn forward(&mut self, client: SocketAddr, length: usize) {
        let now = Instant::now();
        if !self.ensure_flow(client, now) {
            return;
        }
        // An ICMP error for an earlier datagram is reported in place of sending this one, which is then sent to another target.
        if !self.send(client, length) && self.move_flow(client, true) {
            self.send(client, length);
        }
    }

    /// Creates the client's flow, or moves it to another target if needed. Returns whether the datagram can be sent.
    fn ensure_flow(&mut self, client: SocketAddr, now: Instant) -> bool {
        let Some(flow) = self.flows.get_mut(client) else { return self.begin(client, now) };
        flow.last_activity.record(now);
        if flow.upstream.lease.closed().is_cancelled() {
            self.flows.remove(client);
            return self.begin(client, now);
        }
        let (unreachable, is_usable) = (flow.upstream.unreachable, flow.upstream.lease.is_usable());
        if unreachable || !is_usable {
            return self.move_flow(client, unreachable) || !unreachable;
        }
        true
    }

    fn begin(&mut self, client: SocketAddr, now: Instant) -> bool {
        if !self.frontend.filter().allows(client.ip()) {
            self.frontend.counters.denied.add(1);
            return false;
        }
        let Some((lease, socket)) = self.connect(client, &[]) else {
            self.frontend.counters.failed.add(1);
            return false;
        };
        self.evict_if_full();
        self.frontend.counters.accepted.add(1);
        let last_activity = Arc::new(LastActivity::new(now));
        let upstream = self.open(client, lease, socket, last_activity.clone());
        self.flows.insert(client, Flow { last_activity, upstream, _open: OpenFlow::new(self.frontend.clone()) });
        true
    }

    /// Moves a flow to another target; if `unreachable` and there is no other, reconnects to the same one.
    fn move_flow(&mut self, client: SocketAddr, unreachable: bool) -> bool {
        let Some(flow) = self.flows.get_mut(client) else { return false };
        let (before, last_activity) = (flow.upstream.lease.address(), flow.last_activity.clone());
        let mut found = self.connect(client, &[before]);
        if found.is_none() && unreachable {
            found = self.connect(client, &[]);
        }
        let Some((lease, socket)) = found else { return false };
        let upstream = self.open(client, lease, socket, last_activity);
        if let Some(flow) = self.flows.get_mut(client) {
            flow.upstream = upstream;
        }
        true
    }

    fn connect(&mut self, client: SocketAddr, exclude: &[SocketAddr]) -> Option<(Lease, UdpSocket)> {
        let mut tried = exclude.to_vec();
        loop {
            let lease = self.frontend.pool().pick(client.ip(), &tried)?;
            match connect_socket(lease.address()) {
                Ok(socket) => return Some((lease, socket)),
                // Not the fault of the target. Ends a flow, whose socket is free as soon as its reply task has ended.
                Err(error) if open_files::is_exhausted(&error) => {
                    self.end_longest_idle();
                    return None;
                }
                Err(error) => tracing::debug!(target = %lease.address(), %error, "cannot connect to target"),
            }
            tried.push(lease.address());
        }
    }

    /// Starts the reply task of a flow to this target.
    fn open(
        &mut self,
        client: SocketAddr,
        lease: Lease,
        socket: UdpSocket,
        last_activity: Arc<LastActivity>,
    ) -> Upstream {
        self.upstreams += 1;
        lease.established();
        let (number, socket) = (self.upstreams, Arc::new(socket));
        let (frontend, listener) = (self.frontend.clone(), self.socket.clone());
        let replies = Replies { client, upstream: socket.clone(), listener, frontend, last_activity };
        let replies = self.replies.spawn(replies.run(number, lease.closed().clone()));
        Upstream { number, lease, socket, unreachable: false, replies }
    }

    /// Sends the datagram in the buffer. Returns `false` only if the target is unreachable.
    fn send(&mut self, client: SocketAddr, length: usize) -> bool {
        let Some(flow) = self.flows.get_mut(client) else { return true };
        // Bypasses Tokio, which considers a new socket not writable until its reactor has polled it.
        match SockRef::from(&*flow.upstream.socket).send(self.buffer.get(..length).unwrap_or_default()) {
            Ok(sent) => self.frontend.counters.bytes_in.add(sent as u64),
            Err(error) if is_unreachable(&error) => {
                self.frontend.counters.failed.add(1);
                return false;
            }
            Err(error) => tracing::debug!(target = %flow.upstream.lease.address(), %error, "cannot send a datagram"),
        }
        true
    }

    fn evict_if_full(&mut self) {
        while self.flows.len() >= self.limit && self.end_longest_idle() {}
    }

    fn end_longest_idle(&mut self) -> bool {
        let longest = self.flows.longest_idle();
        longest.and_then(|(client, _)| self.flows.remove(client)).is_some()
    }

    fn sweep(&mut self, now: Instant) {
        let idle_timeout = self.frontend.idle_timeout();
        while let Some((client, since)) = self.flows.longest_idle() {
            if now.saturating_duration_since(since) < idle_timeout {
                return;
            }
            self.flows.remove(client);
            self.frontend.counters.idled.add(1);
        }
    }

    fn on_replies_ended(&mut self, ended: Result<Ended, JoinError>) {
        // The task of an upstream that was replaced or removed was cancelled.
        let Ok(ended) = ended else { return };
        let Some(flow) = self.flows.get_mut(ended.client).filter(|flow| flow.upstream.number == ended.upstream) else {
            return;
        };
        match ended.reason {
            EndReason::Unreachable => {
                flow.upstream.unreachable = true;
                self.frontend.counters.failed.add(1);
            }
            EndReason::Closed => drop(self.flows.remove(ended.client)),
        }
    }
}

/// Returns a socket connected to the target, which receives datagrams from it only.
fn connect_socket(target: SocketAddr) -> io::Result<UdpSocket> {
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

impl LastActive for Flow {
    fn last_active(&self) -> Instant {
        self.last_activity.last_active()
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.replies.abort();
    }
}

impl OpenFlow {
    fn new(frontend: Arc<Frontend>) -> OpenFlow {
        frontend.counters.open.add(1);
        OpenFlow(frontend)
    }
}

impl Drop for OpenFlow {
    fn drop(&mut self) {
        self.0.counters.open.sub(1);
    }
}
