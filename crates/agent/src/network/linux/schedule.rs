//! Times of announcements. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use tokio::time::Instant;

use crate::network::LIFETIME;

/// Announcements after an address is taken. The kernel of a killed owner answers ARP requests until the lifetime of the address is
/// over, and longer if it removes several addresses together. A client may ask just then, so the last announcement comes later.
const FIRST_ANNOUNCEMENTS: u8 = 8;

/// Interval of the first announcements, and of beacons.
const SHORT_INTERVAL: Duration = Duration::from_millis(400);

/// Interval of later announcements, each with a probe, and of announcements because of a conflict.
const LONG_INTERVAL: Duration = Duration::from_secs(10);

/// Maximum number of addresses that are due at once, so that announcements never fill a transmit queue.
const BATCH: usize = 64;

/// Addresses on the interface, and the times of their announcements.
#[derive(Default)]
pub(super) struct Schedule {
    addresses: BTreeMap<IpAddr, Entry>,
    next_beacon: Option<Instant>,
}

struct Entry {
    /// End of the lifetime on the interface.
    expires: Instant,
    announced: u8,
    next: Instant,
    /// Time from which a conflict leads to another announcement.
    next_defence: Instant,
}

/// Packets of an announcement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A single packet.
    Beacon,
    /// All packets that make other hosts update their caches.
    First,
    /// The same, and a probe: a host that uses the address as well answers it. By now, no killed peer has the address.
    Later,
}

/// Announcement that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Announcement {
    pub(super) address: IpAddr,
    pub(super) kind: Kind,
    /// The address must not be announced after this time: the kernel may have removed it.
    pub(super) expires: Instant,
}

impl Schedule {
    /// Replaces the held addresses, whose lifetimes were renewed at `renewed`. New and expired addresses are announced from the
    /// start.
    pub(super) fn hold(&mut self, held: &BTreeSet<IpAddr>, renewed: Instant, now: Instant) {
        self.addresses.retain(|address, entry| held.contains(address) && now < entry.expires);
        for address in held {
            let new = || Entry { expires: renewed, announced: 0, next: now, next_defence: now };
            self.addresses.entry(*address).or_insert_with(new).expires = renewed + LIFETIME;
        }
    }

    /// Announces all addresses from the start: packets were lost.
    pub(super) fn restart(&mut self, now: Instant) {
        for entry in self.addresses.values_mut() {
            (entry.announced, entry.next) = (0, now);
        }
    }

    pub(super) fn is_held(&self, address: IpAddr, now: Instant) -> bool {
        self.addresses.get(&address).is_some_and(|entry| now < entry.expires)
    }

    /// Announces an address because of a conflict. Returns whether that is due.
    pub(super) fn defend(&mut self, address: IpAddr, now: Instant) -> bool {
        match self.addresses.get_mut(&address) {
            Some(entry) if entry.next_defence <= now => {
                (entry.next, entry.next_defence) = (now, now + LONG_INTERVAL);
                true
            }
            _ => false,
        }
    }

    /// Returns the announcements that are due, and schedules the following ones.
    pub(super) fn due(&mut self, now: Instant) -> Vec<Announcement> {
        let mut due = self.due_beacons(now);
        let valid = self.addresses.iter_mut().filter(|(_, entry)| now < entry.expires && entry.next <= now);
        for (&address, entry) in valid.take(BATCH) {
            let kind = if entry.announced < FIRST_ANNOUNCEMENTS { Kind::First } else { Kind::Later };
            entry.announced = entry.announced.saturating_add(1);
            entry.next = now + if entry.announced < FIRST_ANNOUNCEMENTS { SHORT_INTERVAL } else { LONG_INTERVAL };
            due.retain(|beacon| beacon.address != address);
            due.push(Announcement { address, kind, expires: entry.expires });
        }
        due
    }

    /// Time of the next announcement; `None` if no address is held.
    pub(super) fn next(&self, now: Instant) -> Option<Instant> {
        let valid = self.addresses.values().filter(|entry| now < entry.expires);
        valid.map(|entry| entry.next).min().map(|next| self.next_beacon.map_or(next, |beacon| beacon.min(next)))
    }

    fn due_beacons(&mut self, now: Instant) -> Vec<Announcement> {
        if self.next_beacon.is_some_and(|next| now < next) {
            return Vec::new();
        }
        self.next_beacon = Some(now + SHORT_INTERVAL);
        let first = |is_family: fn(&IpAddr) -> bool| {
            let mut valid = self.addresses.iter().filter(|(_, entry)| now < entry.expires);
            let (&address, entry) = valid.find(|(address, _)| is_family(address))?;
            Some(Announcement { address, kind: Kind::Beacon, expires: entry.expires })
        };
        [first(IpAddr::is_ipv4), first(IpAddr::is_ipv6)].into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(addresses: &[&str]) -> BTreeSet<IpAddr> {
        addresses.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    /// Runs for a time with renewals every 500 ms; returns times and kinds by address.
    fn run(held: &BTreeSet<IpAddr>, time: Duration) -> BTreeMap<String, Vec<(u128, Kind)>> {
        let (mut schedule, start) = (Schedule::default(), Instant::now());
        let (mut now, mut next_hold, mut sent) = (start, start, BTreeMap::<_, Vec<_>>::new());
        while now <= start + time {
            if next_hold <= now {
                schedule.hold(held, now, now);
                next_hold = now + ms(500);
            }
            for Announcement { address, kind, .. } in schedule.due(now) {
                sent.entry(address.to_string()).or_default().push(((now - start).as_millis(), kind));
            }
            now = schedule.next(now).map_or(next_hold, |next| next.min(next_hold)).max(now + ms(1));
        }
        sent
    }

    #[test]
    fn an_address_is_announced_until_a_killed_owner_has_lost_it_and_then_every_ten_seconds() {
        let sent = run(&set(&["192.0.2.1", "192.0.2.2", "2001:db8::1"]), Duration::from_secs(21));
        let first = (0..8).map(|number| (number * 400, Kind::First));
        let whole: Vec<_> = first.chain([(12_800, Kind::Later)]).collect();
        assert!(Duration::from_millis(2_800) > LIFETIME, "the last of the first ones");
        assert_eq!(sent["192.0.2.2"], whole);
        for first_of_family in ["192.0.2.1", "2001:db8::1"] {
            let (beacons, announcements): (Vec<_>, Vec<_>) =
                sent[first_of_family].iter().copied().partition(|(_, kind)| *kind == Kind::Beacon);
            assert_eq!(announcements, whole);
            assert_eq!(beacons.len(), 21_000 / 400 + 1 - whole.len());
        }
    }

    #[test]
    fn a_packet_of_the_first_address_follows_every_400_ms() {
        let sent = run(&set(&["192.0.2.1", "192.0.2.2"]), Duration::from_secs(60));
        let times: Vec<_> = sent["192.0.2.1"].iter().map(|(time, _)| *time).collect();
        assert!(times.windows(2).all(|pair| pair[1] - pair[0] <= 401), "{times:?}");
    }

    #[test]
    fn an_expired_address_is_not_announced() {
        let (mut schedule, start) = (Schedule::default(), Instant::now());
        let held = set(&["192.0.2.1"]);
        schedule.hold(&held, start, start);
        assert_eq!(schedule.due(start).len(), 1);
        let last = start + LIFETIME - ms(1);
        assert!(schedule.is_held(*held.first().unwrap(), last));
        assert_eq!(schedule.due(last).len(), 1);
        let after = start + LIFETIME;
        assert_eq!((schedule.due(after + ms(400)), schedule.next(after)), (vec![], None));
        assert!(!schedule.is_held(*held.first().unwrap(), after));
        assert!(!schedule.defend("192.0.2.9".parse().unwrap(), after));
        // Held again: announced from the start.
        schedule.hold(&held, after + ms(1), after + ms(1));
        assert_eq!(schedule.due(after + ms(1))[0].kind, Kind::First);
        assert_eq!(schedule.next(after + ms(1)), Some(after + ms(401)));
    }

    #[test]
    fn a_removed_address_is_not_announced() {
        let (mut schedule, start) = (Schedule::default(), Instant::now());
        schedule.hold(&set(&["192.0.2.1"]), start, start);
        schedule.hold(&set(&[]), start, start);
        assert_eq!((schedule.due(start), schedule.next(start)), (vec![], None));
    }

    #[test]
    fn a_conflict_leads_to_one_announcement_in_ten_seconds() {
        let (mut schedule, start) = (Schedule::default(), Instant::now());
        let held = set(&["192.0.2.1", "192.0.2.2"]);
        let address = *held.last().unwrap();
        schedule.hold(&held, start, start);
        schedule.due(start);
        let defended: Vec<u64> = (0..20_000)
            .step_by(100)
            .filter(|time| {
                let now = start + ms(*time);
                schedule.hold(&held, now, now);
                schedule.defend(address, now)
            })
            .collect();
        assert_eq!(defended, [0, 10_000]);
    }

    #[test]
    fn announcements_are_spread() {
        let (mut schedule, start) = (Schedule::default(), Instant::now());
        let many: BTreeSet<IpAddr> = (0..200_u8).map(|last| IpAddr::from([192, 0, 2, last])).collect();
        schedule.hold(&many, start, start);
        let sizes: Vec<_> = (0..5).map(|wake| schedule.due(start + ms(10 * wake)).len()).collect();
        assert_eq!(sizes, [64, 64, 64, 8, 0]);
    }

    #[test]
    fn a_restart_announces_all_again() {
        let (mut schedule, start) = (Schedule::default(), Instant::now());
        schedule.hold(&set(&["192.0.2.1", "192.0.2.2"]), start, start);
        schedule.due(start);
        schedule.restart(start);
        assert_eq!(schedule.due(start).len(), 2);
    }
}
