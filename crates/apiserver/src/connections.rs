//! All open connections: how many there are, what each is busy with, and which one makes room for another.

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

/// When an answer has to be over, where that is known: a watch, which may last.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EndsBy(pub(crate) Instant);

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

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.lock().connections.len()
    }

    /// Makes room for a connection from `address`: if there are too many, the one that was idle longest ends, of the client
    /// that has most. `None` if all are busy.
    pub(crate) fn admit(self: &Arc<Self>, address: IpAddr) -> Option<Connection> {
        let mut open = self.lock();
        if open.connections.len() >= self.limits.most {
            let longest = longest_idle(&open.connections)?;
            // It counts no more from here on: it has a moment to end, and may not keep the new one waiting.
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

/// One open connection; it counts for as long as this lives.
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

/// What a connection is busy with.
pub(crate) struct Activity {
    address: IpAddr,
    limits: ConnectionLimits,
    requests: Mutex<Requests>,
    close: Notify,
}

struct Requests {
    last: u64,
    /// When the answer of each has to be sent, once there is one.
    open: BTreeMap<u64, Option<Instant>>,
    idle_since: Instant,
}

/// How a connection is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Health {
    Good,
    /// There was no request for too long.
    Idle,
    /// The client does not read an answer.
    Stuck,
}

impl Activity {
    fn new(address: IpAddr, limits: ConnectionLimits) -> Activity {
        let requests = Requests { last: 0, open: BTreeMap::new(), idle_since: Instant::now() };
        Activity { address, limits, requests: Mutex::new(requests), close: Notify::new() }
    }

    /// Waits until the connection has to make room for another.
    pub(crate) async fn displaced(&self) {
        self.close.notified().await;
    }

    /// How often to look at [`Activity::health`].
    pub(crate) fn check_every(&self) -> Duration {
        (self.limits.idle.min(self.limits.sending) / 8).clamp(Duration::from_millis(10), Duration::from_secs(5))
    }

    pub(crate) fn health(&self) -> Health {
        let (now, requests) = (Instant::now(), self.lock());
        if requests.open.values().flatten().any(|end| *end < now) {
            return Health::Stuck;
        }
        match requests.open.is_empty() && requests.idle_since + self.limits.idle <= now {
            true => Health::Idle,
            false => Health::Good,
        }
    }

    /// A request has begun.
    pub(crate) fn begin(self: &Arc<Self>) -> Busy {
        let mut requests = self.lock();
        requests.last += 1;
        let number = requests.last;
        requests.open.insert(number, None);
        Busy { number, activity: self.clone() }
    }

    fn idle_since(&self) -> Option<Instant> {
        let requests = self.lock();
        requests.open.is_empty().then_some(requests.idle_since)
    }

    fn lock(&self) -> MutexGuard<'_, Requests> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request in hand, up to the last byte of its answer.
pub(crate) struct Busy {
    number: u64,
    activity: Arc<Activity>,
}

impl Busy {
    /// The answer, with the request in hand until it is sent.
    pub(crate) fn until_sent(self, answer: Response<Body>) -> Response<Body> {
        let limits = self.activity.limits;
        let end = answer.extensions().get().map_or_else(Instant::now, |EndsBy(end)| *end) + limits.sending;
        self.activity.lock().open.insert(self.number, Some(end));
        answer.map(|body| {
            let sent = move |frame| {
                let _ = &self;
                frame
            };
            body.map_frame(sent).boxed_unsync()
        })
    }
}

impl Drop for Busy {
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

    fn connections(most: usize) -> Arc<Connections> {
        Arc::new(Connections::new(ConnectionLimits { most, ..ConnectionLimits::default() }))
    }

    fn is_displaced(connection: &Connection) -> bool {
        use futures::FutureExt as _;
        connection.activity.displaced().now_or_never().is_some()
    }

    #[tokio::test(start_paused = true)]
    async fn the_longest_idle_connection_of_the_client_with_most_makes_room() {
        let connections = connections(4);
        let mut open = Vec::new();
        for address in [OTHER, ONE, ONE, ONE] {
            open.push(connections.admit(address).unwrap());
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        let _busy = open[1].activity.begin();
        let _new = connections.admit(OTHER).unwrap();
        assert_eq!(connections.count(), 4);
        assert_eq!(open.iter().map(is_displaced).collect::<Vec<_>>(), [false, false, true, false]);
    }

    #[tokio::test]
    async fn where_all_are_busy_a_new_connection_is_refused() {
        let connections = connections(2);
        let open = [connections.admit(ONE).unwrap(), connections.admit(ONE).unwrap()];
        let busy = open.each_ref().map(|connection| connection.activity.begin());
        assert!(connections.admit(OTHER).is_none());
        drop(busy);
        assert!(connections.admit(OTHER).is_some());
        drop(open);
        assert_eq!(connections.count(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_idle_without_requests_and_stuck_with_an_unread_answer() {
        let connections = connections(2);
        let limits = ConnectionLimits::default();
        let activity = connections.admit(ONE).unwrap().activity.clone();
        let busy = activity.begin();
        tokio::time::advance(2 * limits.idle).await;
        assert_eq!(activity.health(), Health::Good, "whoever works on an answer sees to its time");
        let answer = busy.until_sent(respond::response(http::StatusCode::OK, "text/plain"));
        assert_eq!(activity.health(), Health::Good);
        tokio::time::advance(limits.sending + Duration::from_secs(1)).await;
        assert_eq!(activity.health(), Health::Stuck);
        drop(answer);
        assert_eq!(activity.health(), Health::Good);
        tokio::time::advance(limits.idle).await;
        assert_eq!(activity.health(), Health::Idle);
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_may_last_as_long_as_it_was_asked_to() {
        let (connections, limits) = (connections(2), ConnectionLimits::default());
        let activity = connections.admit(ONE).unwrap().activity.clone();
        let mut answer = respond::response(http::StatusCode::OK, "application/json");
        let hour = Duration::from_secs(3600);
        answer.extensions_mut().insert(EndsBy(Instant::now() + hour));
        let _answer = activity.begin().until_sent(answer);
        tokio::time::advance(hour + limits.sending).await;
        assert_eq!(activity.health(), Health::Good);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(activity.health(), Health::Stuck);
    }
}
