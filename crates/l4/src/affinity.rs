//! Which target a client had, for as long as it counts: while it has a connection, and for a set time after the last one.
//!
//! There is a limit to how many clients are remembered. When it is reached, the client whose last connection ended longest
//! ago makes room; if all have connections, the one that made its last one longest ago. Nothing runs in the background:
//! those whose time is up are dropped as others come.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::time::Instant;

/// The clients of one listener, and their targets.
#[derive(Debug)]
pub(crate) struct Affinity {
    timeout: Duration,
    limit: usize,
    clients: HashMap<IpAddr, Entry>,
    /// The clients in the order in which they make room.
    order: BTreeMap<Place, IpAddr>,
    /// Counts what happens, to tell earlier from later and one entry of a client from the next.
    clock: u64,
}

/// Proof of a connection that counts for a client. Cannot be copied: a connection ends once.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    client: IpAddr,
    /// When the client got this target. It may have got another one since, with which this connection has nothing to do.
    since: u64,
}

/// When a client makes room: those without connections first, then by when something happened last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    busy: bool,
    at: u64,
}

#[derive(Debug)]
struct Entry {
    target: SocketAddr,
    since: u64,
    open: u64,
    /// When the last connection ended; means nothing while some are open.
    ended: Instant,
    place: Place,
}

// === impl Affinity ===

impl Affinity {
    pub(crate) fn new(timeout: Duration, limit: usize) -> Affinity {
        Affinity { timeout, limit, clients: HashMap::new(), order: BTreeMap::new(), clock: 0 }
    }

    /// Counts for those that are remembered as well.
    pub(crate) fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Where the client's next connection should go.
    pub(crate) fn target(&self, client: IpAddr, now: Instant) -> Option<SocketAddr> {
        let entry = self.clients.get(&client)?;
        (!self.is_over(entry, now)).then_some(entry.target)
    }

    /// A connection of the client goes to this target, from now on its own.
    pub(crate) fn begin(&mut self, client: IpAddr, target: SocketAddr, now: Instant) -> Ticket {
        let at = self.tick();
        self.forget_old(now);
        let kept = self.take(client).filter(|entry| entry.target == target);
        let (since, open) = kept.map_or((at, 0), |entry| (entry.since, entry.open));
        let place = Place { busy: true, at };
        self.put(client, Entry { target, since, open: open + 1, ended: now, place });
        self.make_room();
        Ticket { client, since }
    }

    /// The connection of this ticket is over.
    pub(crate) fn end(&mut self, ticket: Ticket, now: Instant) {
        let at = self.tick();
        let Some(mut entry) = self.take(ticket.client) else { return };
        if entry.since == ticket.since {
            entry.open = entry.open.saturating_sub(1);
            entry.ended = now;
            entry.place = Place { busy: entry.open > 0, at: if entry.open > 0 { entry.place.at } else { at } };
        }
        self.put(ticket.client, entry);
    }

    fn is_over(&self, entry: &Entry, now: Instant) -> bool {
        entry.open == 0 && now.saturating_duration_since(entry.ended) >= self.timeout
    }

    fn forget_old(&mut self, now: Instant) {
        while let Some(client) = self.first() {
            if !self.clients.get(&client).is_some_and(|entry| self.is_over(entry, now)) {
                return;
            }
            self.take(client);
        }
    }

    fn make_room(&mut self) {
        while self.clients.len() > self.limit {
            let Some(client) = self.first() else { return };
            self.take(client);
        }
    }

    fn first(&self) -> Option<IpAddr> {
        self.order.first_key_value().map(|(_, client)| *client)
    }

    fn take(&mut self, client: IpAddr) -> Option<Entry> {
        let entry = self.clients.remove(&client)?;
        self.order.remove(&entry.place);
        Some(entry)
    }

    fn put(&mut self, client: IpAddr, entry: Entry) {
        self.order.insert(entry.place, client);
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
    fn the_time_runs_from_the_end_of_the_last_connection() {
        let (mut affinity, start) = (Affinity::new(TIMEOUT, 10), Instant::now());
        let first = affinity.begin(client(1), target(1), start);
        let second = affinity.begin(client(1), target(1), seconds(start, 5));
        affinity.end(first, seconds(start, 6));
        assert_eq!(affinity.target(client(1), seconds(start, 1000)), Some(target(1)), "one is still open");
        affinity.end(second, seconds(start, 1000));
        assert_eq!(affinity.target(client(1), seconds(start, 1009)), Some(target(1)));
        assert_eq!(affinity.target(client(1), seconds(start, 1010)), None);
    }

    #[test]
    fn a_connection_to_the_target_before_does_not_count_for_the_one_after() {
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
    fn whoever_ended_longest_ago_makes_room_and_whoever_is_connected_does_not() {
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
    fn with_all_connected_the_longest_without_a_new_one_makes_room() {
        let (mut affinity, now) = (Affinity::new(TIMEOUT, 2), Instant::now());
        let first = affinity.begin(client(1), target(1), now);
        affinity.begin(client(2), target(2), now);
        affinity.begin(client(1), target(1), now);
        affinity.begin(client(3), target(3), now);
        assert_eq!(affinity.target(client(2), now), None);
        affinity.end(first, now);
        assert_eq!(affinity.target(client(1), now), Some(target(1)));
    }

    #[test]
    fn those_whose_time_is_up_go_when_others_come() {
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
        fn memory_is_bounded_and_both_views_agree(
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
                for (place, client) in &affinity.order {
                    prop_assert_eq!(affinity.clients[client].place, *place);
                    prop_assert_eq!(affinity.clients[client].open > 0, place.busy);
                }
            }
        }
    }
}
