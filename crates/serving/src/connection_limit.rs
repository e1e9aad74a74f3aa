//! Limit on concurrent connections.
//!
//! Each connection costs memory, so their number is bounded. A client that opens many idle connections must not lock out others, above
//! all not the kubelet, which restarts a manager that fails its probe: at the limit, the connection that has been idle the longest is
//! closed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::Instant;

/// Semaphore for connections that evicts idle ones. Clones share the limit.
#[derive(Clone)]
pub(crate) struct ConnectionLimit(Arc<Inner>);

struct Inner {
    max: usize,
    connections: Mutex<Connections>,
    /// A connection was closed or became idle.
    changed: Notify,
}

#[derive(Default)]
struct Connections {
    next: u64,
    open: BTreeMap<u64, Connection>,
}

struct Connection {
    /// Requests in progress.
    requests: usize,
    idle_since: Instant,
    eviction: Arc<Notify>,
}

/// Permit of one connection. Dropping it releases the permit.
pub(crate) struct ConnectionPermit {
    number: u64,
    eviction: Arc<Notify>,
    limit: Arc<Inner>,
}

/// Guard of a request in progress: the connection is not idle while it exists.
pub(crate) struct RequestGuard<'a>(&'a ConnectionPermit);

impl ConnectionLimit {
    pub(crate) fn new(max: usize) -> ConnectionLimit {
        ConnectionLimit(Arc::new(Inner { max, connections: Mutex::default(), changed: Notify::new() }))
    }

    /// Acquires a permit. At the limit it evicts the connection that has been idle the longest, or waits until one is idle.
    pub(crate) async fn acquire(&self) -> ConnectionPermit {
        loop {
            let changed = self.0.changed.notified();
            if let Some(permit) = self.try_acquire() {
                return permit;
            }
            changed.await;
        }
    }

    fn try_acquire(&self) -> Option<ConnectionPermit> {
        let mut connections = self.0.connections();
        if connections.open.len() >= self.0.max {
            connections.evict()?;
        }
        let (number, eviction) = (connections.next, Arc::new(Notify::new()));
        connections.next += 1;
        let connection = Connection { requests: 0, idle_since: Instant::now(), eviction: eviction.clone() };
        connections.open.insert(number, connection);
        Some(ConnectionPermit { number, eviction, limit: self.0.clone() })
    }
}

impl Connections {
    /// Evicts the connection that has been idle the longest; `None` if none is idle.
    fn evict(&mut self) -> Option<()> {
        let idle = self.open.iter().filter(|(_, connection)| connection.requests == 0);
        let number = *idle.min_by_key(|(_, connection)| connection.idle_since)?.0;
        self.open.remove(&number)?.eviction.notify_one();
        tracing::debug!("too many connections; closing the one that has been idle the longest");
        Some(())
    }
}

impl Inner {
    fn connections(&self) -> MutexGuard<'_, Connections> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionPermit {
    /// Completes when the connection is evicted.
    pub(crate) async fn evicted(&self) {
        self.eviction.notified().await;
    }

    /// Marks a request as in progress.
    pub(crate) fn begin_request(&self) -> RequestGuard<'_> {
        if let Some(connection) = self.limit.connections().open.get_mut(&self.number) {
            connection.requests += 1;
        }
        RequestGuard(self)
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.limit.connections().open.remove(&self.number);
        self.limit.changed.notify_one();
    }
}

impl Drop for RequestGuard<'_> {
    fn drop(&mut self) {
        if let Some(connection) = self.0.limit.connections().open.get_mut(&self.0.number) {
            connection.requests = connection.requests.saturating_sub(1);
            connection.idle_since = Instant::now();
        }
        self.0.limit.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::FutureExt as _;
    use tokio::time::advance;

    use super::*;

    fn is_evicted(connection: &ConnectionPermit) -> bool {
        connection.evicted().now_or_never().is_some()
    }

    #[tokio::test(start_paused = true)]
    async fn who_was_idle_for_longest_makes_room() {
        let limit = ConnectionLimit::new(2);
        let first = limit.acquire().await;
        advance(Duration::from_secs(1)).await;
        let second = limit.acquire().await;
        advance(Duration::from_secs(1)).await;
        // The first connection has had a request since the second was opened.
        drop(first.begin_request());
        let third = limit.acquire().await;
        assert_eq!([&first, &second, &third].map(is_evicted), [false, true, false]);
        // An evicted connection that ends does not release another permit.
        drop(second.begin_request());
        drop(second);
        assert_eq!(limit.0.connections().open.len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_with_a_request_in_progress_is_not_evicted() {
        let limit = ConnectionLimit::new(1);
        let connection = limit.acquire().await;
        let busy = connection.begin_request();
        assert!(limit.acquire().now_or_never().is_none() && !is_evicted(&connection));
        let (next, ()) = tokio::join!(limit.acquire(), async {
            tokio::task::yield_now().await;
            drop(busy);
        });
        assert!(is_evicted(&connection) && !is_evicted(&next));
    }

    #[tokio::test]
    async fn dropping_a_permit_releases_it() {
        let limit = ConnectionLimit::new(1);
        for _ in 0..3 {
            let connection = limit.acquire().await;
            assert!(!is_evicted(&connection));
        }
    }
}
