//! Tracks all open connections: their number, their open requests, and which one to evict at the connection limit.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::Response;
use http_body_util::BodyExt as _;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::http::respond::Body;
use crate::options::ConnectionLimits;

/// Deadline of a long-running response, such as a watch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResponseDeadline(pub(crate) Instant);

/// All open connections.
pub(crate) struct Connections {
    limits: ConnectionLimits,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    last: u64,
    connections: HashMap<u64, Arc<Activity>>,
}

impl Connections {
    pub(crate) fn new(limits: ConnectionLimits) -> Connections {
        Connections { limits, open: Mutex::default() }
    }

    /// Number of open connections.
    pub(crate) fn count(&self) -> usize {
        self.lock().connections.len()
    }

    /// Admits a connection from `address`. At the connection limit, evicts the longest idle connection of the client with the most
    /// connections; returns `None` if all connections have open requests.
    pub(crate) fn admit(self: &Arc<Self>, address: IpAddr) -> Option<Connection> {
        let mut open = self.lock();
        if open.connections.len() >= self.limits.max_connections {
            let longest = longest_idle(&open.connections)?;
            // The evicted connection no longer counts: it has a grace period to close, and the new one must not wait for it.
            let ended = open.connections.remove(&longest)?;
            ended.close.notify_one();
        }
        open.last += 1;
        let number = open.last;
        let activity = Arc::new(Activity::new(address, self.limits));
        open.connections.insert(number, activity.clone());
        Some(Connection { number, activity, all: self.clone() })
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn longest_idle(connections: &HashMap<u64, Arc<Activity>>) -> Option<u64> {
    let mut by_client: HashMap<IpAddr, usize> = HashMap::new();
    for activity in connections.values() {
        *by_client.entry(activity.address).or_default() += 1;
    }
    let idle = connections.iter().filter_map(|(number, activity)| Some((*number, activity, activity.idle_since()?)));
    let most_of = |activity: &Activity| by_client.get(&activity.address).copied();
    idle.max_by_key(|(_, activity, since)| (most_of(activity), std::cmp::Reverse(*since))).map(|(number, ..)| number)
}

/// One open connection. It counts towards the limit until it is dropped.
pub(crate) struct Connection {
    number: u64,
    pub(crate) activity: Arc<Activity>,
    all: Arc<Connections>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.all.lock().connections.remove(&self.number);
    }
}

/// The open requests of a connection.
pub(crate) struct Activity {
    address: IpAddr,
    limits: ConnectionLimits,
    requests: Mutex<Requests>,
    close: Notify,
}

struct Requests {
    last: u64,
    /// Deadline for sending the response of each request, once it has one.
    open: BTreeMap<u64, Option<Instant>>,
    idle_since: Instant,
}

/// State of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Health {
    Healthy,
    /// No request for longer than the idle timeout.
    Idle,
    /// The client does not read its response.
    Stuck,
}

impl Activity {
    fn new(address: IpAddr, limits: ConnectionLimits) -> Activity {
        let requests = Requests { last: 0, open: BTreeMap::new(), idle_since: Instant::now() };
        Activity { address, limits, requests: Mutex::new(requests), close: Notify::new() }
    }

    /// Waits until the connection is evicted in favour of a new one.
    pub(crate) async fn evicted(&self) {
        self.close.notified().await;
    }

    /// Interval for checking [`Activity::health`].
    pub(crate) fn check_every(&self) -> Duration {
        (self.limits.idle_timeout.min(self.limits.send_timeout) / 8)
            .clamp(Duration::from_millis(10), Duration::from_secs(5))
    }

    pub(crate) fn health(&self) -> Health {
        let (now, requests) = (Instant::now(), self.lock());
        if requests.open.values().flatten().any(|end| *end < now) {
            return Health::Stuck;
        }
        match requests.open.is_empty() && requests.idle_since + self.limits.idle_timeout <= now {
            true => Health::Idle,
            false => Health::Healthy,
        }
    }

    /// Records the start of a request.
    pub(crate) fn begin(self: &Arc<Self>) -> ActiveRequest {
        let mut requests = self.lock();
        requests.last += 1;
        let number = requests.last;
        requests.open.insert(number, None);
        ActiveRequest { number, activity: self.clone() }
    }

    fn idle_since(&self) -> Option<Instant> {
        let requests = self.lock();
        requests.open.is_empty().then_some(requests.idle_since)
    }

    fn lock(&self) -> MutexGuard<'_, Requests> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request that is open until the last byte of its response is sent.
pub(crate) struct ActiveRequest {
    number: u64,
    activity: Arc<Activity>,
}

impl ActiveRequest {
    /// Returns the response with a body that keeps the request open until it is sent.
    pub(crate) fn until_sent(self, response: Response<Body>) -> Response<Body> {
        let limits = self.activity.limits;
        let end =
            response.extensions().get().map_or_else(Instant::now, |ResponseDeadline(end)| *end) + limits.send_timeout;
        self.activity.lock().open.insert(self.number, Some(end));
        response.map(|body| {
            let sent = move |frame| {
                let _ = &self;
                frame
            };
            body.map_frame(sent).boxed_unsync()
        })
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        let mut requests = self.activity.lock();
        requests.open.remove(&self.number);
        requests.idle_since = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::respond;

    const ONE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    fn connections(max_connections: usize) -> Arc<Connections> {
        Arc::new(Connections::new(ConnectionLimits { max_connections, ..ConnectionLimits::default() }))
    }

    fn is_evicted(connection: &Connection) -> bool {
        use futures::FutureExt as _;
        connection.activity.evicted().now_or_never().is_some()
    }

    #[tokio::test(start_paused = true)]
    async fn the_longest_idle_connection_of_the_client_with_most_connections_is_evicted() {
        let connections = connections(4);
        let mut open = Vec::new();
        for address in [OTHER, ONE, ONE, ONE] {
            open.push(connections.admit(address).unwrap());
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        let _active = open[1].activity.begin();
        let _new = connections.admit(OTHER).unwrap();
        assert_eq!(connections.count(), 4);
        assert_eq!(open.iter().map(is_evicted).collect::<Vec<_>>(), [false, false, true, false]);
    }

    #[tokio::test]
    async fn a_new_connection_is_rejected_if_all_are_active() {
        let connections = connections(2);
        let open = [connections.admit(ONE).unwrap(), connections.admit(ONE).unwrap()];
        let active = open.each_ref().map(|connection| connection.activity.begin());
        assert!(connections.admit(OTHER).is_none());
        drop(active);
        assert!(connections.admit(OTHER).is_some());
        drop(open);
        assert_eq!(connections.count(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_idle_without_requests_and_stuck_with_an_unread_response() {
        let connections = connections(2);
        let limits = ConnectionLimits::default();
        let activity = connections.admit(ONE).unwrap().activity.clone();
        let active = activity.begin();
        tokio::time::advance(2 * limits.idle_timeout).await;
        assert_eq!(activity.health(), Health::Healthy, "a request without a response has no send deadline");
        let response = active.until_sent(respond::response(http::StatusCode::OK, "text/plain"));
        assert_eq!(activity.health(), Health::Healthy);
        tokio::time::advance(limits.send_timeout + Duration::from_secs(1)).await;
        assert_eq!(activity.health(), Health::Stuck);
        drop(response);
        assert_eq!(activity.health(), Health::Healthy);
        tokio::time::advance(limits.idle_timeout).await;
        assert_eq!(activity.health(), Health::Idle);
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_may_last_until_its_timeout() {
        let (connections, limits) = (connections(2), ConnectionLimits::default());
        let activity = connections.admit(ONE).unwrap().activity.clone();
        let mut response = respond::response(http::StatusCode::OK, "application/json");
        let hour = Duration::from_secs(3600);
        response.extensions_mut().insert(ResponseDeadline(Instant::now() + hour));
        let _response = activity.begin().until_sent(response);
        tokio::time::advance(hour + limits.send_timeout).await;
        assert_eq!(activity.health(), Health::Healthy);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(activity.health(), Health::Stuck);
    }
}
