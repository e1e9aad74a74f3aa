//! Simulates kube-proxy, the cloud's network and the containers: node ports and Pods that answer.
//!
//! ```text
//!  Services, Pods, machines, routes ──decide──► Listeners: socket ──► answer ──diff──► opened, changed, closed
//!                                                                                          │
//!           127.64.0.2:30080, 127.128.0.2:8080 ◄── load balancer, curl, nc ────────────────┘
//! ```
//!
//! There are no containers: the node itself answers with the name of the Pod that kube-proxy would have picked. Which nodes and
//! Pods answer follows the rules of kube-proxy. Traffic does not use the cloud's routes either, but a Pod without a route does not
//! answer.

mod answer;
mod decide;
mod listener;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use bowline_local::{Machine, RouteRecord};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::cache::Cache;
use decide::{Answer, Listeners, Socket, decide};
use listener::Listener;

const TICK: Duration = Duration::from_millis(100);

/// Pause before a socket that could not be bound is retried.
const RETRY: Duration = Duration::from_secs(5);

/// Maximum number of listeners: the usual open-files limit of a process is 1024, and other components need files, too. Listeners
/// beyond the limit are not opened.
const MAX_LISTENERS: usize = 400;

/// Maximum number of concurrent connections, for the same reason. Further ones wait in the accept queue.
const MAX_CONNECTIONS: usize = 200;

/// Open listeners, and those that could not be bound.
struct Proxy {
    open: BTreeMap<Socket, Listener>,
    failed: BTreeMap<Socket, Instant>,
    permits: Arc<Semaphore>,
    /// Shared by all nodes, so that Pods are picked in turn whichever node a load balancer picks.
    next_pod: Arc<AtomicUsize>,
}

/// Answers on the node ports of these machines and for Pods with a route.
pub(crate) async fn run(
    machines: impl Fn() -> Vec<Arc<Machine>>,
    routes: impl Fn() -> Vec<RouteRecord>,
    mut cache: Cache,
) {
    cache.synced().await;
    let mut proxy = Proxy::new();
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        cache.changed(&mut ticks).await;
        let mut services = cache.services();
        services.retain(|service| service.has_node_ports());
        let pods = cache.pods();
        let routed = if pods.iter().any(|pod| pod.has_ports()) { routes() } else { Vec::new() };
        let nothing = services.is_empty() && routed.is_empty();
        let desired = if nothing { Listeners::new() } else { decide(&services, &pods, &machines(), &routed) };
        proxy.reconcile(desired, Instant::now()).await;
    }
}

impl Proxy {
    fn new() -> Proxy {
        let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        Proxy { open: BTreeMap::new(), failed: BTreeMap::new(), permits, next_pod: Arc::default() }
    }

    /// Closes, updates and opens listeners to match `desired`. A socket that another process has bound is skipped and retried
    /// later.
    async fn reconcile(&mut self, mut desired: Listeners, now: Instant) {
        self.open.retain(|socket, listener| desired.remove(socket).map(|answer| listener.set_answer(answer)).is_some());
        self.failed.retain(|socket, _| desired.contains_key(socket));
        let free = MAX_LISTENERS.saturating_sub(self.open.len());
        let due = |socket: &Socket| self.failed.get(socket).is_none_or(|again| *again <= now);
        let new: Vec<_> = desired.into_iter().filter(|(socket, _)| due(socket)).take(free).collect();
        for (socket, answer) in new {
            self.open(socket, answer, now).await;
        }
    }

    async fn open(&mut self, socket: Socket, answer: Answer, now: Instant) {
        match Listener::open(socket, answer, self.permits.clone(), self.next_pod.clone()).await {
            Ok(listener) => {
                self.failed.remove(&socket);
                self.open.insert(socket, listener);
            }
            Err(error) => {
                if self.failed.insert(socket, now + RETRY).is_none() {
                    tracing::warn!(%error, %socket, "a simulated node cannot bind the socket; retrying");
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

    /// Returns a socket whose port was free a moment ago.
    fn free(transport: Transport) -> Socket {
        let probe = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        Socket { address: probe.local_addr().unwrap(), transport }
    }

    async fn connects(address: SocketAddr) -> bool {
        tokio::net::TcpStream::connect(address).await.is_ok()
    }

    #[tokio::test]
    async fn listeners_are_opened_and_closed_as_desired() {
        let (mut proxy, socket) = (Proxy::new(), free(Transport::Tcp));
        proxy.reconcile(Listeners::from([(socket, pods_of(&["a"]))]), Instant::now()).await;
        assert!(connects(socket.address).await);
        proxy.reconcile(Listeners::new(), Instant::now()).await;
        while connects(socket.address).await {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_port_in_use_does_not_affect_other_listeners_and_is_retried_later() {
        let (mut proxy, other) = (Proxy::new(), free(Transport::Tcp));
        let blocker = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let taken = Socket { address: blocker.local_addr().unwrap(), transport: Transport::Tcp };
        let desired = Listeners::from([(taken, pods_of(&["a"])), (other, pods_of(&["a"]))]);
        let now = Instant::now();
        proxy.reconcile(desired.clone(), now).await;
        assert!(proxy.open.contains_key(&other) && !proxy.open.contains_key(&taken));
        drop(blocker);
        proxy.reconcile(desired.clone(), now).await;
        assert!(!proxy.open.contains_key(&taken), "before the retry interval");
        proxy.reconcile(desired, now + RETRY).await;
        assert!(proxy.open.contains_key(&taken));
    }

    #[tokio::test]
    async fn the_number_of_listeners_is_limited() {
        let mut proxy = Proxy::new();
        let at = |number: usize| {
            let [.., high, low] = (number as u32).to_be_bytes();
            Socket { address: SocketAddr::from(([127, 63, high, low], 30_000)), transport: Transport::Udp }
        };
        let desired: Listeners = (1..=MAX_LISTENERS + 5).map(|number| (at(number), pods_of(&["a"]))).collect();
        proxy.reconcile(desired, Instant::now()).await;
        assert!(proxy.open.len() <= MAX_LISTENERS);
    }
}
