//! Meaning of claims on the segment: beacons of peers, conflicts, unknown hosts. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use tokio::time::Instant;

use crate::network::{MacAddress, NetworkOptions, Seen, SeenKind};

/// Maximum number of unknown hosts between two calls of [`Watch::take`]. The number of the others is limited by that of the peers and
/// of the addresses.
const MAX_UNKNOWN: usize = 64;

/// Statement of a packet: a host uses an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) address: IpAddr,
    pub(super) by: MacAddress,
    /// Whether the packet announces the address to all. The kernel of a killed agent answers requests for a moment, and sends requests
    /// from the address, but it announces nothing.
    pub(super) is_announcement: bool,
}

/// Knowledge about the hosts of the segment.
pub(super) struct Watch {
    options: NetworkOptions,
    /// Link addresses of this host.
    pub(super) own: BTreeSet<MacAddress>,
    pub(super) peers: BTreeSet<MacAddress>,
    observations: BTreeMap<Subject, Seen>,
    /// Addresses that are probed for a duplicate, with the host that uses them.
    probed: BTreeMap<IpAddr, Option<MacAddress>>,
}

/// Subject of an observation, of which only the latest is kept: a flood of forged packets must not use memory without bound.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    /// Peer and family.
    Beacon(MacAddress, bool),
    Conflict(IpAddr),
    /// Unknown host and family.
    Foreign(MacAddress, bool),
}

impl Watch {
    pub(super) fn new(options: NetworkOptions) -> Watch {
        let (own, peers) = (BTreeSet::new(), BTreeSet::new());
        Watch { options, own, peers, observations: BTreeMap::new(), probed: BTreeMap::new() }
    }

    /// Records a claim. Returns whether another host uses an address that this agent holds.
    pub(super) fn see(&mut self, claim: Claim, is_held: bool, now: Instant) -> bool {
        if self.own.contains(&claim.by) {
            return false;
        }
        if let Some(user) = self.probed.get_mut(&claim.address) {
            *user = Some(claim.by);
        }
        let Some(kind) = self.judge(claim, is_held) else { return false };
        let Claim { address, by, .. } = claim;
        let subject = match kind {
            SeenKind::Beacon => Subject::Beacon(by, address.is_ipv4()),
            SeenKind::Conflict => Subject::Conflict(address),
            SeenKind::Foreign => Subject::Foreign(by, address.is_ipv4()),
        };
        if kind != SeenKind::Foreign || self.has_room_for(subject) {
            self.observations.insert(subject, Seen { kind, address, by, at: now });
        }
        kind == SeenKind::Conflict
    }

    fn has_room_for(&self, subject: Subject) -> bool {
        let unknown = self.observations.keys().filter(|subject| matches!(subject, Subject::Foreign(..)));
        self.observations.contains_key(&subject) || unknown.count() < MAX_UNKNOWN
    }

    fn judge(&self, claim: Claim, is_held: bool) -> Option<SeenKind> {
        if !is_held && !self.options.contains(claim.address) {
            return None;
        }
        match (self.peers.contains(&claim.by), is_held) {
            (true, _) => claim.is_announcement.then_some(SeenKind::Beacon),
            (false, true) => Some(SeenKind::Conflict),
            (false, false) => Some(SeenKind::Foreign),
        }
    }

    /// Returns and forgets the observations.
    pub(super) fn take(&mut self) -> Vec<Seen> {
        std::mem::take(&mut self.observations).into_values().collect()
    }

    /// Starts collecting the users of addresses.
    pub(super) fn begin_probe(&mut self, addresses: &[IpAddr]) {
        self.probed = addresses.iter().map(|address| (*address, None)).collect();
    }

    /// Returns the users of the probed addresses.
    pub(super) fn end_probe(&mut self) -> BTreeMap<IpAddr, MacAddress> {
        let probed = std::mem::take(&mut self.probed).into_iter();
        probed.filter_map(|(address, user)| Some((address, user?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const PEER: [u8; 6] = [2, 0, 0, 0, 0, 2];
    const STRANGER: [u8; 6] = [2, 0, 0, 0, 0, 3];

    fn watch() -> Watch {
        let pools = ["192.0.2.200/29", "2001:db8::100-2001:db8::1ff"].map(|text| text.parse().unwrap()).to_vec();
        let mut watch = Watch::new(NetworkOptions { interface: "eth1".to_owned(), pools });
        watch.own.insert(OWN.into());
        watch.peers.insert(PEER.into());
        watch
    }

    fn claim(address: &str, by: [u8; 6]) -> Claim {
        Claim { address: address.parse().unwrap(), by: by.into(), is_announcement: true }
    }

    #[test]
    fn claims_are_judged_by_host_and_address() {
        use SeenKind::{Beacon, Conflict, Foreign};
        let cases = [
            ("192.0.2.200", OWN, true, None),
            ("192.0.2.200", OWN, false, None),
            ("192.0.2.200", PEER, false, Some(Beacon)),
            ("192.0.2.200", PEER, true, Some(Beacon)),
            ("192.0.2.200", STRANGER, true, Some(Conflict)),
            ("192.0.2.207", STRANGER, false, Some(Foreign)),
            ("2001:db8::1ff", PEER, false, Some(Beacon)),
            ("2001:db8::1ff", STRANGER, true, Some(Conflict)),
            // Held, but no longer in the pool.
            ("203.0.113.1", STRANGER, true, Some(Conflict)),
            // The own address of a host.
            ("192.0.2.2", PEER, false, None),
            ("192.0.2.208", STRANGER, false, None),
            ("2001:db8::2", PEER, false, None),
        ];
        for (address, by, is_held, expected) in cases {
            let (mut watch, now) = (watch(), Instant::now());
            let claim = claim(address, by);
            let is_conflict = watch.see(claim, is_held, now);
            assert_eq!(is_conflict, expected == Some(Conflict), "{claim:?}");
            let seen = expected.map(|kind| Seen { kind, address: claim.address, by: claim.by, at: now });
            assert_eq!(watch.take(), Vec::from_iter(seen), "{claim:?}");
            assert_eq!(watch.take(), []);
        }
    }

    #[test]
    fn only_announcements_of_peers_are_beacons() {
        let now = Instant::now();
        for (by, expected) in [(PEER, None), (STRANGER, Some(SeenKind::Conflict))] {
            let mut watch = watch();
            watch.see(Claim { is_announcement: false, ..claim("192.0.2.200", by) }, true, now);
            assert_eq!(watch.take().first().map(|seen| seen.kind), expected);
        }
    }

    #[test]
    fn a_repeated_claim_is_one_observation() {
        let (mut watch, now) = (watch(), Instant::now());
        let later = now + std::time::Duration::from_millis(400);
        watch.see(claim("192.0.2.200", PEER), false, now);
        watch.see(claim("192.0.2.200", PEER), false, later);
        let seen = watch.take();
        assert_eq!((seen.len(), seen[0].at), (1, later));
    }

    #[test]
    fn observations_are_bounded() {
        let (mut watch, now) = (watch(), Instant::now());
        for number in 0..5_000_u16 {
            let [a, b] = number.to_be_bytes();
            watch.see(claim("192.0.2.200", [6, 0, 0, 0, a, b]), true, now);
            watch.see(claim("192.0.2.201", [6, 0, 0, 0, a, b]), false, now);
        }
        for address in ["192.0.2.200", "192.0.2.201", "2001:db8::100", "2001:db8::101"] {
            watch.see(claim(address, PEER), false, now);
        }
        let seen = watch.take();
        let count = |kind| seen.iter().filter(|seen| seen.kind == kind).count();
        assert_eq!([SeenKind::Beacon, SeenKind::Conflict, SeenKind::Foreign].map(count), [2, 1, MAX_UNKNOWN]);
    }

    #[test]
    fn a_probe_finds_the_user_of_an_address() {
        let (mut watch, now) = (watch(), Instant::now());
        let [first, second, third]: [IpAddr; 3] =
            ["192.0.2.200", "192.0.2.201", "192.0.2.202"].map(|text| text.parse().unwrap());
        watch.begin_probe(&[first, second]);
        watch.see(claim("192.0.2.200", OWN), false, now);
        watch.see(claim("192.0.2.201", STRANGER), false, now);
        watch.see(Claim { address: third, ..claim("192.0.2.200", STRANGER) }, false, now);
        assert_eq!(watch.end_probe(), BTreeMap::from([(second, STRANGER.into())]));
        watch.see(claim("192.0.2.200", STRANGER), false, now);
        assert_eq!(watch.end_probe(), BTreeMap::new());
    }
}
