//! Session affinity: the target of each client, kept while the client has connections and until a timeout after the last one.
//!
//! The number of entries is limited. At the limit, the client whose last connection ended longest ago is evicted; if all clients
//! have open connections, the one whose latest connection is oldest. There is no background task: expired entries are removed when
//! new ones are added.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::time::Instant;

/// Affinity entries of one listener.
#[derive(Debug)]
pub(crate) struct Affinity {
    timeout: Duration,
    limit: usize,
    clients: HashMap<IpAddr, Entry>,
    /// Clients in the order of eviction.
    order: BTreeMap<EvictionKey, IpAddr>,
    /// Logical clock that orders events and distinguishes successive entries of one client.
    clock: u64,
}

/// An open connection that counts for a client. Not `Clone`: a connection ends once.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    client: IpAddr,
    /// Time at which the entry was created. The client may have another entry by now, which this connection does not count for.
    since: u64,
}

/// Order of eviction: clients without connections first, then by last event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct EvictionKey {
    busy: bool,
    at: u64,
}

#[derive(Debug)]
struct Entry {
    target: SocketAddr,
    since: u64,
    open: u64,
    /// End of the last connection; unused while some are open.
    ended: Instant,
    eviction_key: EvictionKey,
}

// === impl Affinity ===

impl Affinity {
    pub(crate) fn new(timeout: Duration, limit: usize) -> Affinity {
        Affinity { timeout, limit, clients: HashMap::new(), order: BTreeMap::new(), clock: 0 }
    }

    /// Sets the timeout, also for existing entries.
    pub(crate) fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Returns the target of the client's next connection.
    pub(crate) fn target(&self, client: IpAddr, now: Instant) -> Option<SocketAddr> {
        let entry = self.clients.get(&client)?;
        (!self.is_expired(entry, now)).then_some(entry.target)
    }

    /// Records a connection of the client to this target, and makes it the client's target.
    pub(crate) fn begin(&mut self, client: IpAddr, target: SocketAddr, now: Instant) -> Ticket {
        let at = self.tick();
        self.expire(now);
        let kept = self.take(client).filter(|entry| entry.target == target);
        let (since, open) = kept.map_or((at, 0), |entry| (entry.since, entry.open));
        let eviction_key = EvictionKey { busy: true, at };
        self.put(client, Entry { target, since, open: open + 1, ended: now, eviction_key });
        self.evict();
        Ticket { client, since }
    }

    /// Records the end of a connection.
    pub(crate) fn end(&mut self, ticket: Ticket, now: Instant) {
        let at = self.tick();
        let Some(mut entry) = self.take(ticket.client) else { return };
        if entry.since == ticket.since {
            entry.open = entry.open.saturating_sub(1);
            entry.ended = now;
            entry.eviction_key =
                EvictionKey { busy: entry.open > 0, at: if entry.open > 0 { entry.eviction_key.at } else { at } };
        }
        self.put(ticket.client, entry);
    }

    fn is_expired(&self, entry: &Entry, now: Instant) -> bool {
        entry.open == 0 && now.saturating_duration_since(entry.ended) >= self.timeout
    }

    fn expire(&mut self, now: Instant) {
        while let Some(client) = self.next_to_evict() {
            if !self.clients.get(&client).is_some_and(|entry| self.is_expired(entry, now)) {
                return;
            }
            self.take(client);
        }
    }

    fn evict(&mut self) {
        while self.clients.len() > self.limit {
            let Some(client) = self.next_to_evict() else { return };
            self.take(client);
        }
    }

    fn next_to_evict(&self) -> Option<IpAddr> {
        self.order.first_key_value().map(|(_, client)| *client)
    }

    fn take(&mut self, client: IpAddr) -> Option<Entry> {
        let entry = self.clients.remove(&client)?;
        self.order.remove(&entry.eviction_key);
        Some(entry)
    }

    fn put(&mut self, client: IpAddr, entry: Entry) {
        self.order.insert(entry.eviction_key, client);
        self.clients.insert(client, entry);
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(10);

    fn client(n: u8) -> IpAddr {
        [192, 168, 0, n].into()
    }

    fn target(n: u8) -> SocketAddr {
        ([10, 0, 0, n], 80).into()
    }

    fn seconds(start: Instant, n: u64) -> Instant {
        start + Duration::from_secs(n)
    }

    #[test]
    fn the_timeout_starts_when_the_last_connection_ends() {
        let (mut affinity, start) = (Affinity::new(TIMEOUT, 10), Instant::now());
        let next_to_evict = affinity.begin(client(1), target(1), start);
        let second = affinity.begin(client(1), target(1), seconds(start, 5));
        affinity.end(next_to_evict, seconds(start, 6));
        assert_eq!(affinity.target(client(1), seconds(start, 1000)), Some(target(1)), "one is still open");
        affinity.end(second, seconds(start, 1000));
        assert_eq!(affinity.target(client(1), seconds(start, 1009)), Some(target(1)));
        assert_eq!(affinity.target(client(1), seconds(start, 1010)), None);
    }

    #[test]
    fn a_connection_to_the_previous_target_does_not_count_for_the_next_one() {
        let (mut affinity, start) = (Affinity::new(TIMEOUT, 10), Instant::now());
        let old = affinity.begin(client(1), target(1), start);
        let other = affinity.begin(client(1), target(2), start);
        let back = affinity.begin(client(1), target(1), start);
        affinity.end(old, start);
        affinity.end(other, start);
        assert_eq!(affinity.target(client(1), seconds(start, 1000)), Some(target(1)), "`back` is open");
        affinity.end(back, start);
        assert_eq!(affinity.target(client(1), seconds(start, 1000)), None);
    }

    #[test]
    fn the_client_idle_longest_is_evicted_before_connected_clients() {
        let (mut affinity, now) = (Affinity::new(TIMEOUT, 3), Instant::now());
        let _busy = affinity.begin(client(1), target(1), now);
        let second = affinity.begin(client(2), target(2), now);
        let third = affinity.begin(client(3), target(3), now);
        affinity.end(third, now);
        affinity.end(second, now);
        affinity.begin(client(4), target(4), now);
        let known: Vec<_> = (1..=4).filter(|n| affinity.target(client(*n), now).is_some()).collect();
        assert_eq!(known, [1, 2, 4]);
    }

    #[test]
    fn if_all_clients_are_connected_the_one_with_the_oldest_latest_connection_is_evicted() {
        let (mut affinity, now) = (Affinity::new(TIMEOUT, 2), Instant::now());
        let next_to_evict = affinity.begin(client(1), target(1), now);
        affinity.begin(client(2), target(2), now);
        affinity.begin(client(1), target(1), now);
        affinity.begin(client(3), target(3), now);
        assert_eq!(affinity.target(client(2), now), None);
        affinity.end(next_to_evict, now);
        assert_eq!(affinity.target(client(1), now), Some(target(1)));
    }

    #[test]
    fn expired_entries_are_removed_when_a_new_one_is_added() {
        let (mut affinity, start) = (Affinity::new(TIMEOUT, 1000), Instant::now());
        for n in 0..100 {
            let ticket = affinity.begin(client(n), target(n), start);
            affinity.end(ticket, start);
        }
        affinity.begin(client(200), target(1), seconds(start, 10));
        assert_eq!(affinity.clients.len(), 1);
    }

    proptest! {
        #[test]
        fn memory_is_bounded_and_both_indexes_agree(
            limit in 0..5usize, steps in prop::collection::vec((0..8u8, 0..3u8, any::<bool>(), 0..15u64), 1..60)
        ) {
            let (mut affinity, mut now) = (Affinity::new(TIMEOUT, limit), Instant::now());
            let mut tickets = Vec::new();
            for (n, to, begins, later) in steps {
                now += Duration::from_secs(later);
                if begins {
                    tickets.push(affinity.begin(client(n), target(to), now));
                } else if !tickets.is_empty() {
                    affinity.end(tickets.remove(usize::from(n) % tickets.len()), now);
                }
                prop_assert!(affinity.clients.len() <= limit);
                prop_assert_eq!(affinity.order.len(), affinity.clients.len());
                for (eviction_key, client) in &affinity.order {
                    prop_assert_eq!(affinity.clients[client].eviction_key, *eviction_key);
                    prop_assert_eq!(affinity.clients[client].open > 0, eviction_key.busy);
                }
            }
        }
    }
}
