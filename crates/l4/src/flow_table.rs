//! Flow table of a UDP listener: flows by client, and in the order of their last activity.
//!
//! Datagrams arrive at a high rate, so the order is not updated for each of them: a flow only records the time, and is moved to its
//! position when it reaches the front without belonging there.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::Instant;

/// Something with a time of last activity.
pub(crate) trait LastActive {
    /// Returns the time of the last activity; never decreases.
    fn last_active(&self) -> Instant;
}

/// Flows by client address and port.
#[derive(Debug)]
pub(crate) struct FlowTable<F> {
    by_client: HashMap<SocketAddr, Entry<F>>,
    /// A past position of each flow; never later than its current one.
    by_activity: BTreeMap<Position, SocketAddr>,
    next: u64,
}

/// Time of the last activity, and the flow's number, because two flows may be active at the same instant.
type Position = (Instant, u64);

#[derive(Debug)]
struct Entry<F> {
    flow: F,
    position: Position,
}

/// Time of the last activity, updated from both directions of a flow.
#[derive(Debug)]
pub(crate) struct LastActivity {
    begin: Instant,
    nanoseconds: AtomicU64,
}

// === impl FlowTable ===

impl<F: LastActive> FlowTable<F> {
    pub(crate) fn new() -> FlowTable<F> {
        FlowTable { by_client: HashMap::new(), by_activity: BTreeMap::new(), next: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.by_client.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_client.is_empty()
    }

    pub(crate) fn get_mut(&mut self, client: SocketAddr) -> Option<&mut F> {
        self.by_client.get_mut(&client).map(|entry| &mut entry.flow)
    }

    /// Inserts a flow, replacing the client's previous one.
    pub(crate) fn insert(&mut self, client: SocketAddr, flow: F) {
        self.remove(client);
        self.next += 1;
        let position = (flow.last_active(), self.next);
        self.by_activity.insert(position, client);
        self.by_client.insert(client, Entry { flow, position });
    }

    pub(crate) fn remove(&mut self, client: SocketAddr) -> Option<F> {
        let entry = self.by_client.remove(&client)?;
        self.by_activity.remove(&entry.position);
        Some(entry.flow)
    }

    /// Returns the flow that has been idle longest, and since when.
    pub(crate) fn longest_idle(&mut self) -> Option<(SocketAddr, Instant)> {
        loop {
            let (position, client) =
                self.by_activity.first_key_value().map(|(position, client)| (*position, *client))?;
            let entry = self.by_client.get_mut(&client)?;
            let last_active = entry.flow.last_active();
            if last_active <= position.0 {
                return Some((client, position.0));
            }
            self.by_activity.remove(&position);
            entry.position.0 = last_active;
            self.by_activity.insert(entry.position, client);
        }
    }
}

// === impl LastActivity ===

impl LastActivity {
    pub(crate) fn new(now: Instant) -> LastActivity {
        LastActivity { begin: now, nanoseconds: AtomicU64::new(0) }
    }

    pub(crate) fn record(&self, now: Instant) {
        // 64 bits last for 584 years.
        let since = now.saturating_duration_since(self.begin).as_nanos() as u64;
        self.nanoseconds.fetch_max(since, Ordering::Relaxed);
    }
}

impl LastActive for LastActivity {
    fn last_active(&self) -> Instant {
        self.begin + std::time::Duration::from_nanos(self.nanoseconds.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn client(n: u16) -> SocketAddr {
        ([127, 0, 0, 1], n).into()
    }

    #[test]
    fn an_active_flow_is_not_the_longest_idle() {
        let (mut flows, start) = (FlowTable::new(), Instant::now());
        for n in 0..3 {
            flows.insert(client(n), LastActivity::new(start + Duration::from_secs(u64::from(n))));
        }
        flows.get_mut(client(0)).unwrap().record(start + Duration::from_secs(10));
        assert_eq!(flows.longest_idle(), Some((client(1), start + Duration::from_secs(1))));
        flows.remove(client(1));
        flows.remove(client(2));
        assert_eq!(flows.longest_idle(), Some((client(0), start + Duration::from_secs(10))));
    }

    #[test]
    fn the_time_of_the_last_activity_never_decreases() {
        let start = Instant::now();
        let last_active = LastActivity::new(start);
        last_active.record(start + Duration::from_secs(5));
        last_active.record(start + Duration::from_secs(4));
        assert_eq!(last_active.last_active(), start + Duration::from_secs(5));
    }

    proptest! {
        #[test]
        fn the_longest_idle_flow_agrees_with_a_linear_search(
            steps in prop::collection::vec((0..6u16, 0..3u8, 0..5u64), 1..100)
        ) {
            let (mut flows, mut now) = (FlowTable::new(), Instant::now());
            for (n, what, later) in steps {
                now += Duration::from_secs(later);
                match what {
                    0 => flows.insert(client(n), LastActivity::new(now)),
                    1 => drop(flows.remove(client(n))),
                    _ => drop(flows.get_mut(client(n)).map(|flow| flow.record(now))),
                }
                let longest = flows.by_client.values().map(|entry| entry.flow.last_active()).min();
                prop_assert_eq!(flows.longest_idle().map(|(_, since)| since), longest);
                prop_assert_eq!(flows.by_activity.len(), flows.len());
            }
        }
    }
}
