//! The cluster IPs and node ports that all Services share.
//!
//! A pool hands out what is asked for by name, or anything that is free. The low end of a range is left to
//! those who ask by name until the rest is used up, so that well-known numbers stay free.
//!
//! ```text
//!  first ──── dynamic_from ─────────────────────────── last
//!  [ by name, the rest last ][ anything, from a random start ]
//! ```
//!
//! A pool knows nothing of Services; what one write takes and gives back is kept in a `Claim`.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ipnet::IpNet;

use super::shape::Family;

/// Why a pool does not give.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    #[error("provided IP is already allocated")]
    AddressTaken,
    #[error("the provided network does not match the current range")]
    AddressOutside,
    /// A dry run asks the range itself and so hears which one it is.
    #[error("the provided IP ({ip}) is not in the valid range. The range of valid IPs is {range}")]
    AddressNotInRange { ip: IpAddr, range: IpNet },
    #[error("provided port is already allocated")]
    PortTaken,
    #[error("provided port is not in the valid range. The range of valid ports is {first}-{last}")]
    PortOutside { first: u16, last: u16 },
    #[error("range is full")]
    Full,
}

/// The shared pools. Clones are handles to the same pools.
#[derive(Clone)]
pub(crate) struct Pools {
    shared: Arc<Shared>,
}

struct Shared {
    range: IpNet,
    addresses: Slots,
    node_ports: (u16, u16),
    ports: Slots,
}

/// A run of numbers, some of them taken.
struct Slots {
    numbers: RangeInclusive<u128>,
    /// The first number outside of the band for those who ask by name.
    dynamic_from: u128,
    taken: Mutex<HashSet<u128>>,
}

// === Pools ===

impl Pools {
    /// `range` for cluster IPs, the first and last of `node_ports`.
    pub(crate) fn new(range: IpNet, node_ports: (u16, u16)) -> Pools {
        let range = range.trunc();
        let ports = u128::from(node_ports.0)..=u128::from(node_ports.1);
        let shared = Shared {
            range,
            addresses: Slots::new(usable(range), address_band(range)),
            node_ports,
            ports: Slots::new(ports.clone(), band(size(&ports), 32, 128)),
        };
        Pools { shared: Arc::new(shared) }
    }

    /// The family of the addresses.
    pub(super) fn family(&self) -> Family {
        Family::of(self.shared.range.addr())
    }

    /// The range addresses come from.
    pub(super) fn range(&self) -> IpNet {
        self.shared.range
    }

    /// Whether the address is one of the pool, taken or not.
    pub(super) fn covers(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        self.shared.range.contains(&ip) && self.shared.addresses.numbers.contains(&number(ip))
    }

    pub(super) fn take_address(&self, ip: IpAddr) -> Result<(), Refusal> {
        if !self.covers(ip) {
            return Err(Refusal::AddressOutside);
        }
        if self.shared.addresses.take(number(ip.to_canonical())) { Ok(()) } else { Err(Refusal::AddressTaken) }
    }

    pub(super) fn take_any_address(&self) -> Result<IpAddr, Refusal> {
        let taken = self.shared.addresses.take_any().ok_or(Refusal::Full)?;
        Ok(match self.shared.range {
            IpNet::V4(_) => IpAddr::V4(Ipv4Addr::from_bits(u32::try_from(taken).map_err(|_| Refusal::Full)?)),
            IpNet::V6(_) => IpAddr::V6(Ipv6Addr::from_bits(taken)),
        })
    }

    pub(super) fn release_address(&self, ip: IpAddr) {
        if self.covers(ip) {
            self.shared.addresses.release(number(ip.to_canonical()));
        }
    }

    pub(super) fn take_port(&self, port: i64) -> Result<(), Refusal> {
        let (first, last) = self.shared.node_ports;
        if !(i64::from(first)..=i64::from(last)).contains(&port) {
            return Err(Refusal::PortOutside { first, last });
        }
        if self.shared.ports.take(slot(port)) { Ok(()) } else { Err(Refusal::PortTaken) }
    }

    pub(super) fn take_any_port(&self) -> Result<i64, Refusal> {
        let taken = self.shared.ports.take_any().ok_or(Refusal::Full)?;
        i64::try_from(taken).map_err(|_| Refusal::Full)
    }

    pub(super) fn release_port(&self, port: i64) {
        self.shared.ports.release(slot(port));
    }

    pub(super) fn has_port(&self, port: i64) -> bool {
        self.shared.ports.has(slot(port))
    }

    /// How many addresses and ports are taken.
    #[cfg(test)]
    pub(super) fn in_use(&self) -> (usize, usize) {
        (self.shared.addresses.lock().len(), self.shared.ports.lock().len())
    }
}

/// Without the network's own address and, for IPv4, its broadcast address.
fn usable(range: IpNet) -> RangeInclusive<u128> {
    let first = number(range.network()).saturating_add(1);
    let last = match range {
        IpNet::V4(net) => number(net.broadcast().into()).saturating_sub(1),
        IpNet::V6(net) => number(net.broadcast().into()),
    };
    first..=last.min(first.saturating_add(u128::from(u64::MAX)))
}

/// The size of the band counts the two addresses that [`usable`] leaves out.
fn address_band(range: IpNet) -> u128 {
    let bits = range.max_prefix_len() - range.prefix_len();
    band(1_u128.checked_shl(u32::from(bits)).unwrap_or(u128::MAX), 16, 256)
}

/// A fraction of the range, within limits; ranges too small to share have no band.
fn band(size: u128, step: u128, max: u128) -> u128 {
    const MIN: u128 = 16;
    if size <= MIN { 0 } else { (size / step).clamp(MIN, max) }
}

fn number(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => u128::from(ip.to_bits()),
        IpAddr::V6(ip) => ip.to_bits(),
    }
}

/// No negative number is ever in a pool, so all of them may stand for one that is not.
fn slot(port: i64) -> u128 {
    u128::try_from(port).unwrap_or(u128::MAX)
}

fn size(numbers: &RangeInclusive<u128>) -> u128 {
    if numbers.is_empty() { 0 } else { numbers.end() - numbers.start() + 1 }
}

// === Slots ===

impl Slots {
    fn new(numbers: RangeInclusive<u128>, band: u128) -> Slots {
        let dynamic_from = numbers.start().saturating_add(band);
        Slots { numbers, dynamic_from, taken: Mutex::default() }
    }

    /// Whether the number was free.
    fn take(&self, number: u128) -> bool {
        self.numbers.contains(&number) && self.lock().insert(number)
    }

    fn take_any(&self) -> Option<u128> {
        let mut taken = self.lock();
        let high = self.dynamic_from..=*self.numbers.end();
        let low = *self.numbers.start()..=self.dynamic_from.saturating_sub(1).min(*self.numbers.end());
        let number = free_in(high, &taken).or_else(|| free_in(low, &taken))?;
        taken.insert(number);
        Some(number)
    }

    fn release(&self, number: u128) {
        self.lock().remove(&number);
    }

    fn has(&self, number: u128) -> bool {
        self.lock().contains(&number)
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<u128>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The first free number from a random start, around the end.
fn free_in(numbers: RangeInclusive<u128>, taken: &HashSet<u128>) -> Option<u128> {
    let size = size(&numbers);
    let start = u128::from(random()).checked_rem(size)?;
    (0..size).map(|i| numbers.start() + (start + i) % size).find(|n| !taken.contains(n))
}

/// The hasher's keys are random; spreading addresses needs no more than that.
fn random() -> u64 {
    RandomState::new().hash_one(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pools(range: &str, ports: (u16, u16)) -> Pools {
        Pools::new(range.parse().unwrap(), ports)
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn what_is_taken_is_refused_until_it_is_released() {
        let pools = pools("10.96.0.0/16", (30_000, 32_767));
        assert_eq!(pools.take_address(ip("10.96.0.85")), Ok(()));
        assert_eq!(pools.take_address(ip("10.96.0.85")), Err(Refusal::AddressTaken));
        pools.release_address(ip("10.96.0.85"));
        assert_eq!(pools.take_address(ip("10.96.0.85")), Ok(()));

        assert_eq!(pools.take_port(30_080), Ok(()));
        assert_eq!(pools.take_port(30_080), Err(Refusal::PortTaken));
        assert!(pools.has_port(30_080));
        pools.release_port(30_080);
        assert_eq!(pools.take_port(30_080), Ok(()));
    }

    #[test]
    fn network_and_broadcast_addresses_are_not_for_services() {
        let pools = pools("10.96.0.0/16", (30_000, 32_767));
        for outside in ["10.96.0.0", "10.96.255.255", "10.97.0.1", "192.0.2.1", "fd00::1"] {
            assert_eq!(pools.take_address(ip(outside)), Err(Refusal::AddressOutside), "{outside}");
        }
        assert_eq!(pools.take_address(ip("10.96.0.1")), Ok(()));
        assert_eq!(pools.take_address(ip("10.96.255.254")), Ok(()));
    }

    #[test]
    fn an_ipv6_range_has_no_broadcast_address() {
        let pools = pools("fd00::/120", (30_000, 32_767));
        assert_eq!(pools.take_address(ip("fd00::")), Err(Refusal::AddressOutside));
        assert_eq!(pools.take_address(ip("fd00::ff")), Ok(()));
        assert_eq!(pools.take_address(ip("10.0.0.1")), Err(Refusal::AddressOutside));
        assert!(pools.range().contains(&pools.take_any_address().unwrap()));
        assert_eq!(pools.family(), Family::V6);
    }

    #[test]
    fn a_huge_ipv6_range_is_searched_without_overflow() {
        for range in ["fd00::/64", "fd00::/8", "::/0"] {
            let taken = pools(range, (30_000, 32_767)).take_any_address().unwrap();
            assert!(taken.is_ipv6(), "{range}");
        }
    }

    #[test]
    fn dynamic_picks_leave_the_low_band_for_last() {
        let pools = pools("10.0.0.0/27", (30_000, 30_031));
        let addresses: Vec<IpAddr> = (0..30).map(|_| pools.take_any_address().unwrap()).collect();
        let (high, low) = addresses.split_at(14);
        assert!(high.iter().all(|a| *a >= ip("10.0.0.17")), "{high:?}");
        assert!(low.iter().all(|a| *a < ip("10.0.0.17")), "{low:?}");
        assert_eq!(pools.take_any_address(), Err(Refusal::Full));

        let ports: Vec<i64> = (0..32).map(|_| pools.take_any_port().unwrap()).collect();
        assert!(ports[..16].iter().all(|p| *p >= 30_016), "{ports:?}");
        assert_eq!(pools.take_any_port(), Err(Refusal::Full));
    }

    #[test]
    fn bands_are_a_fraction_of_the_range_within_limits() {
        assert_eq!(band(2768, 32, 128), 86);
        assert_eq!(band(10, 32, 128), 0);
        assert_eq!(band(100, 32, 128), 16);
        assert_eq!(band(60_000, 32, 128), 128);
        assert_eq!(address_band("10.96.0.0/16".parse().unwrap()), 256);
        assert_eq!(address_band("10.96.0.0/28".parse().unwrap()), 0);
        assert_eq!(address_band("::/0".parse().unwrap()), 256);
    }

    #[test]
    fn ranges_without_room_are_full_and_not_a_fault() {
        for range in ["10.0.0.0/31", "10.0.0.0/32", "fd00::1/128", "0.0.0.0/32", "255.255.255.255/32"] {
            assert_eq!(pools(range, (1, 1)).take_any_address(), Err(Refusal::Full), "{range}");
        }
        assert_eq!(pools("10.0.0.0/24", (2, 1)).take_any_port(), Err(Refusal::Full));
    }

    #[test]
    fn ports_outside_of_the_range_are_refused_with_the_range() {
        let pools = pools("10.96.0.0/16", (30_000, 32_767));
        for port in [-1, 0, 80, 29_999, 32_768, 70_000] {
            let text = pools.take_port(port).unwrap_err().to_string();
            assert!(text.ends_with("The range of valid ports is 30000-32767"), "{port}: {text}");
        }
        pools.release_port(-1);
        assert!(!pools.has_port(-1));
    }
}
