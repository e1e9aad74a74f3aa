//! What stands in for kube-proxy, for the cloud's network and for the containers: node ports and Pods that answer.
//!
//! ```text
//!  Services, Pods, machines, routes ──decide──► Doors: socket ──► who answers ──diff──► opened, changed, closed
//!                                                                                          │
//!           127.64.0.2:30080, 127.128.0.2:8080 ◄── a balancer, curl, nc ───────────────────┘
//! ```
//!
//! Traffic does not travel on to a container, because there is none: the node speaks for the Pod that it would have chosen,
//! and says its name. Which Pods those are, and which nodes answer at all, is what kube-proxy would do. Nor does it travel
//! along the cloud's routes: but where none leads, nobody answers.

mod answer;
mod decide;
mod door;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use bowline_local::{Machine, RouteRecord};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::view::View;
use decide::{Answer, Doors, Socket, decide};
use door::AccessControl;

const TICK: Duration = Duration::from_millis(100);

/// Until a socket that could not be opened is tried again.
const RETRY: Duration = Duration::from_secs(5);

/// How many sockets there may be: the usual limit of a process is 1024 files, and others need some, too. With more Nodes
/// than that, those that come last do not answer.
const MOST_DOORS: usize = 400;

/// How many connections there may be at once, for the same reason. More wait to be accepted.
const MOST_CONNECTIONS: usize = 200;

/// All sockets that are open, and those that could not be.
struct Proxy {
    open: BTreeMap<Socket, AccessControl>,
    failed: BTreeMap<Socket, Instant>,
    places: Arc<Semaphore>,
    /// One for all nodes: whichever of them a balancer chooses, the Pods take turns.
    turn: Arc<AtomicUsize>,
}

/// Answers on the node ports of these machines and for the Pods that these routes lead to, for as long as it is polled.
pub(crate) async fn run(
    machines: impl Fn() -> Vec<Arc<Machine>>,
    routes: impl Fn() -> Vec<RouteRecord>,
    mut view: View,
) {
    view.synced().await;
    let mut proxy = Proxy::new();
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        view.changed(&mut ticks).await;
        let mut services = view.services();
        services.retain(|service| service.has_node_ports());
        let pods = view.pods();
        let led = if pods.iter().any(|pod| pod.has_ports()) { routes() } else { Vec::new() };
        let nothing = services.is_empty() && led.is_empty();
        let wanted = if nothing { Doors::new() } else { decide(&services, &pods, &machines(), &led) };
        proxy.become_like(wanted, Instant::now()).await;
    }
}

impl Proxy {
    fn new() -> Proxy {
        let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
        Proxy { open: BTreeMap::new(), failed: BTreeMap::new(), places, turn: Arc::default() }
    }

    /// Closes what is not wanted, changes what is open and opens the rest. A socket that cannot be opened is somebody
    /// else's; that node stays silent there, and the others do not suffer.
    async fn become_like(&mut self, mut wanted: Doors, now: Instant) {
        self.open.retain(|socket, door| wanted.remove(socket).map(|answer| door.answer_with(answer)).is_some());
        self.failed.retain(|socket, _| wanted.contains_key(socket));
        let room = MOST_DOORS.saturating_sub(self.open.len());
        let due = |socket: &Socket| self.failed.get(socket).is_none_or(|again| *again <= now);
        let new: Vec<_> = wanted.into_iter().filter(|(socket, _)| due(socket)).take(room).collect();
        for (socket, answer) in new {
            self.open(socket, answer, now).await;
        }
    }

    async fn open(&mut self, socket: Socket, answer: Answer, now: Instant) {
        match AccessControl::open(socket, answer, self.places.clone(), self.turn.clone()).await {
            Ok(door) => {
                self.failed.remove(&socket);
                self.open.insert(socket, door);
            }
            Err(error) => {
                if self.failed.insert(socket, now + RETRY).is_none() {
                    tracing::warn!(%error, %socket, "a simulated node cannot answer there; it is tried again");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use decide::{Transport, pods_of};
    use std::net::{Ipv4Addr, SocketAddr};

    /// A port of this machine that was free a moment ago.
    fn free(transport: Transport) -> Socket {
        let probe = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        Socket { address: probe.local_addr().unwrap(), transport }
    }

    async fn connects(address: SocketAddr) -> bool {
        tokio::net::TcpStream::connect(address).await.is_ok()
    }

    #[tokio::test]
    async fn sockets_come_and_go_with_what_is_wanted() {
        let (mut proxy, socket) = (Proxy::new(), free(Transport::Tcp));
        proxy.become_like(Doors::from([(socket, pods_of(&["a"]))]), Instant::now()).await;
        assert!(connects(socket.address).await);
        proxy.become_like(Doors::new(), Instant::now()).await;
        while connects(socket.address).await {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_port_that_is_taken_keeps_nobody_else_from_answering_and_is_tried_again_later() {
        let (mut proxy, other) = (Proxy::new(), free(Transport::Tcp));
        let stray = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let taken = Socket { address: stray.local_addr().unwrap(), transport: Transport::Tcp };
        let wanted = Doors::from([(taken, pods_of(&["a"])), (other, pods_of(&["a"]))]);
        let now = Instant::now();
        proxy.become_like(wanted.clone(), now).await;
        assert!(proxy.open.contains_key(&other) && !proxy.open.contains_key(&taken));
        drop(stray);
        proxy.become_like(wanted.clone(), now).await;
        assert!(!proxy.open.contains_key(&taken), "not at once");
        proxy.become_like(wanted, now + RETRY).await;
        assert!(proxy.open.contains_key(&taken));
    }

    #[tokio::test]
    async fn there_are_never_more_sockets_than_a_process_may_have() {
        let mut proxy = Proxy::new();
        let at = |number: usize| {
            let [.., high, low] = (number as u32).to_be_bytes();
            Socket { address: SocketAddr::from(([127, 63, high, low], 30_000)), transport: Transport::Udp }
        };
        let wanted: Doors = (1..=MOST_DOORS + 5).map(|number| (at(number), pods_of(&["a"]))).collect();
        proxy.become_like(wanted, Instant::now()).await;
        assert!(proxy.open.len() <= MOST_DOORS);
    }
}
