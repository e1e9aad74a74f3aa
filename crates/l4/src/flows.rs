//! The flows of a UDP listener by client, and in the order in which they fell silent.
//!
//! Datagrams pass at a great rate, so a flow is not moved in that order with each of them: it notes when it was heard, and
//! is put in its place when it turns out to be at the front without belonging there.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::Instant;

/// Something that falls silent.
pub(crate) trait Heard {
    /// When it was last heard; never goes back.
    fn last(&self) -> Instant;
}

/// Flows by client.
#[derive(Debug)]
pub(crate) struct Flows<F> {
    by_client: HashMap<SocketAddr, Entry<F>>,
    /// Where each one was at some time; never later than where it is now.
    by_silence: BTreeMap<Place, SocketAddr>,
    next: u64,
}

/// When a flow was heard, and its number, as two may be heard at once.
type Place = (Instant, u64);

#[derive(Debug)]
struct Entry<F> {
    flow: F,
    place: Place,
}

/// When something was last heard. Written from both directions of a flow.
#[derive(Debug)]
pub(crate) struct LastHeard {
    begin: Instant,
    nanoseconds: AtomicU64,
}

// === impl Flows ===

impl<F: Heard> Flows<F> {
    pub(crate) fn new() -> Flows<F> {
        Flows { by_client: HashMap::new(), by_silence: BTreeMap::new(), next: 0 }
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

    /// Takes the place of one that the client had.
    pub(crate) fn insert(&mut self, client: SocketAddr, flow: F) {
        self.remove(client);
        self.next += 1;
        let place = (flow.last(), self.next);
        self.by_silence.insert(place, client);
        self.by_client.insert(client, Entry { flow, place });
    }

    pub(crate) fn remove(&mut self, client: SocketAddr) -> Option<F> {
        let entry = self.by_client.remove(&client)?;
        self.by_silence.remove(&entry.place);
        Some(entry.flow)
    }

    /// The one that has been silent longest, and since when.
    pub(crate) fn longest_silent(&mut self) -> Option<(SocketAddr, Instant)> {
        loop {
            let (place, client) = self.by_silence.first_key_value().map(|(place, client)| (*place, *client))?;
            let entry = self.by_client.get_mut(&client)?;
            let heard = entry.flow.last();
            if heard <= place.0 {
                return Some((client, place.0));
            }
            self.by_silence.remove(&place);
            entry.place.0 = heard;
            self.by_silence.insert(entry.place, client);
        }
    }
}

// === impl LastHeard ===

impl LastHeard {
    pub(crate) fn new(now: Instant) -> LastHeard {
        LastHeard { begin: now, nanoseconds: AtomicU64::new(0) }
    }

    pub(crate) fn note(&self, now: Instant) {
        // Enough for 584 years.
        let since = now.saturating_duration_since(self.begin).as_nanos() as u64;
        self.nanoseconds.fetch_max(since, Ordering::Relaxed);
    }
}

impl Heard for LastHeard {
    fn last(&self) -> Instant {
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
    fn one_that_was_heard_again_is_not_the_longest_silent() {
        let (mut flows, start) = (Flows::new(), Instant::now());
        for n in 0..3 {
            flows.insert(client(n), LastHeard::new(start + Duration::from_secs(u64::from(n))));
        }
        flows.get_mut(client(0)).unwrap().note(start + Duration::from_secs(10));
        assert_eq!(flows.longest_silent(), Some((client(1), start + Duration::from_secs(1))));
        flows.remove(client(1));
        flows.remove(client(2));
        assert_eq!(flows.longest_silent(), Some((client(0), start + Duration::from_secs(10))));
    }

    #[test]
    fn what_was_heard_does_not_go_back() {
        let start = Instant::now();
        let heard = LastHeard::new(start);
        heard.note(start + Duration::from_secs(5));
        heard.note(start + Duration::from_secs(4));
        assert_eq!(heard.last(), start + Duration::from_secs(5));
    }

    proptest! {
        #[test]
        fn the_longest_silent_is_the_one_that_a_search_finds(
            steps in prop::collection::vec((0..6u16, 0..3u8, 0..5u64), 1..100)
        ) {
            let (mut flows, mut now) = (Flows::new(), Instant::now());
            for (n, what, later) in steps {
                now += Duration::from_secs(later);
                match what {
                    0 => flows.insert(client(n), LastHeard::new(now)),
                    1 => drop(flows.remove(client(n))),
                    _ => drop(flows.get_mut(client(n)).map(|flow| flow.note(now))),
                }
                let longest = flows.by_client.values().map(|entry| entry.flow.last()).min();
                prop_assert_eq!(flows.longest_silent().map(|(_, since)| since), longest);
                prop_assert_eq!(flows.by_silence.len(), flows.len());
            }
        }
    }
}
