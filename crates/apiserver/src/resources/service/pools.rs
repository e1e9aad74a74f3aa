//! Allocation pools of cluster IPs and node ports.
//!
//! A pool allocates a requested value (static) or any free one (dynamic). Dynamic allocation uses the low band of the
//! range only when the rest is full, so that well-known values stay free for static allocation.
//!
//! ```text
//!  first ──── dynamic_from ─────────────────────────── last
//!  [ static, dynamic last   ][ dynamic, from a random start  ]
//! ```
//!
//! A pool does not know Services. A `Claim` records what one write allocates and releases.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ipnet::IpNet;

use super::shape::Family;

/// Error of an allocation. The texts are upstream's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum AllocationError {
    #[error("provided IP is already allocated")]
    AddressAllocated,
    #[error("the provided network does not match the current range")]
    NetworkMismatch,
    /// Returned by dry runs, which check the range instead of the allocator.
    #[error("the provided IP ({ip}) is not in the valid range. The range of valid IPs is {range}")]
    AddressOutOfRange { ip: IpAddr, range: IpNet },
    #[error("provided port is already allocated")]
    PortAllocated,
    #[error("provided port is not in the valid range. The range of valid ports is {first}-{last}")]
    PortOutOfRange { first: u16, last: u16 },
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
    addresses: Allocator,
    node_ports: (u16, u16),
    ports: Allocator,
}

/// Allocator of a range of numbers.
struct Allocator {
    numbers: RangeInclusive<u128>,
    /// First number above the band reserved for static allocation.
    dynamic_from: u128,
    allocated: Mutex<HashSet<u128>>,
}

// === Pools ===

impl Pools {
    /// Creates empty pools for the cluster IPs in `range` and the node ports from the first to the last of `node_ports`.
    pub(crate) fn new(range: IpNet, node_ports: (u16, u16)) -> Pools {
        let range = range.trunc();
        let ports = u128::from(node_ports.0)..=u128::from(node_ports.1);
        let shared = Shared {
            range,
            addresses: Allocator::new(usable(range), address_band(range)),
            node_ports,
            ports: Allocator::new(ports.clone(), band(size(&ports), 32, 128)),
        };
        Pools { shared: Arc::new(shared) }
    }

    /// IP family of the cluster IP range.
    pub(super) fn family(&self) -> Family {
        Family::of(self.shared.range.addr())
    }

    /// Cluster IP range.
    pub(super) fn range(&self) -> IpNet {
        self.shared.range
    }

    /// Whether the pool contains the address, allocated or not.
    pub(super) fn covers(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        self.shared.range.contains(&ip) && self.shared.addresses.numbers.contains(&number(ip))
    }

    pub(super) fn allocate_address(&self, ip: IpAddr) -> Result<(), AllocationError> {
        if !self.covers(ip) {
            return Err(AllocationError::NetworkMismatch);
        }
        if self.shared.addresses.allocate(number(ip.to_canonical())) {
            Ok(())
        } else {
            Err(AllocationError::AddressAllocated)
        }
    }

    pub(super) fn allocate_next_address(&self) -> Result<IpAddr, AllocationError> {
        let allocated = self.shared.addresses.allocate_next().ok_or(AllocationError::Full)?;
        Ok(match self.shared.range {
            IpNet::V4(_) => {
                IpAddr::V4(Ipv4Addr::from_bits(u32::try_from(allocated).map_err(|_| AllocationError::Full)?))
            }
            IpNet::V6(_) => IpAddr::V6(Ipv6Addr::from_bits(allocated)),
        })
    }

    pub(super) fn release_address(&self, ip: IpAddr) {
        if self.covers(ip) {
            self.shared.addresses.release(number(ip.to_canonical()));
        }
    }

    pub(super) fn allocate_port(&self, port: i64) -> Result<(), AllocationError> {
        let (first, last) = self.shared.node_ports;
        if !(i64::from(first)..=i64::from(last)).contains(&port) {
            return Err(AllocationError::PortOutOfRange { first, last });
        }
        if self.shared.ports.allocate(slot(port)) { Ok(()) } else { Err(AllocationError::PortAllocated) }
    }

    pub(super) fn allocate_next_port(&self) -> Result<i64, AllocationError> {
        let allocated = self.shared.ports.allocate_next().ok_or(AllocationError::Full)?;
        i64::try_from(allocated).map_err(|_| AllocationError::Full)
    }

    pub(super) fn release_port(&self, port: i64) {
        self.shared.ports.release(slot(port));
    }

    pub(super) fn has_port(&self, port: i64) -> bool {
        self.shared.ports.has(slot(port))
    }

    /// Returns the number of allocated addresses and ports.
    #[cfg(test)]
    pub(super) fn in_use(&self) -> (usize, usize) {
        (self.shared.addresses.lock().len(), self.shared.ports.lock().len())
    }
}

/// Returns the range without the network address and, for IPv4, the broadcast address.
fn usable(range: IpNet) -> RangeInclusive<u128> {
    let first = number(range.network()).saturating_add(1);
    let last = match range {
        IpNet::V4(net) => number(net.broadcast().into()).saturating_sub(1),
        IpNet::V6(net) => number(net.broadcast().into()),
    };
    first..=last.min(first.saturating_add(u128::from(u64::MAX)))
}

/// Returns the size of the static band of an IP range. It includes the two addresses that [`usable`] excludes.
fn address_band(range: IpNet) -> u128 {
    let bits = range.max_prefix_len() - range.prefix_len();
    band(1_u128.checked_shl(u32::from(bits)).unwrap_or(u128::MAX), 16, 256)
}

/// Returns the size of the static band: a fraction of the range, between 16 and `max`. Ranges of up to 16 have none.
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

/// Maps negative ports to a number outside of every pool.
fn slot(port: i64) -> u128 {
    u128::try_from(port).unwrap_or(u128::MAX)
}

fn size(numbers: &RangeInclusive<u128>) -> u128 {
    if numbers.is_empty() { 0 } else { numbers.end() - numbers.start() + 1 }
}

// === Allocator ===

impl Allocator {
    fn new(numbers: RangeInclusive<u128>, band: u128) -> Allocator {
        let dynamic_from = numbers.start().saturating_add(band);
        Allocator { numbers, dynamic_from, allocated: Mutex::default() }
    }

    /// Allocates the number. Returns false if it is allocated already or out of range.
    fn allocate(&self, number: u128) -> bool {
        self.numbers.contains(&number) && self.lock().insert(number)
    }

    fn allocate_next(&self) -> Option<u128> {
        let mut allocated = self.lock();
        let high = self.dynamic_from..=*self.numbers.end();
        let low = *self.numbers.start()..=self.dynamic_from.saturating_sub(1).min(*self.numbers.end());
        let number = free_in(high, &allocated).or_else(|| free_in(low, &allocated))?;
        allocated.insert(number);
        Some(number)
    }

    fn release(&self, number: u128) {
        self.lock().remove(&number);
    }

    fn has(&self, number: u128) -> bool {
        self.lock().contains(&number)
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<u128>> {
        self.allocated.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the first free number from a random start, wrapping around at the end.
fn free_in(numbers: RangeInclusive<u128>, allocated: &HashSet<u128>) -> Option<u128> {
    let size = size(&numbers);
    let start = u128::from(random()).checked_rem(size)?;
    (0..size).map(|i| numbers.start() + (start + i) % size).find(|n| !allocated.contains(n))
}

/// Returns a random number from the keys of a hasher, which is random enough to spread allocations.
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
    fn allocated_values_are_rejected_until_released() {
        let pools = pools("10.96.0.0/16", (30_000, 32_767));
        assert_eq!(pools.allocate_address(ip("10.96.0.85")), Ok(()));
        assert_eq!(pools.allocate_address(ip("10.96.0.85")), Err(AllocationError::AddressAllocated));
        pools.release_address(ip("10.96.0.85"));
        assert_eq!(pools.allocate_address(ip("10.96.0.85")), Ok(()));

        assert_eq!(pools.allocate_port(30_080), Ok(()));
        assert_eq!(pools.allocate_port(30_080), Err(AllocationError::PortAllocated));
        assert!(pools.has_port(30_080));
        pools.release_port(30_080);
        assert_eq!(pools.allocate_port(30_080), Ok(()));
    }

    #[test]
    fn network_and_broadcast_addresses_are_not_allocated() {
        let pools = pools("10.96.0.0/16", (30_000, 32_767));
        for outside in ["10.96.0.0", "10.96.255.255", "10.97.0.1", "192.0.2.1", "fd00::1"] {
            assert_eq!(pools.allocate_address(ip(outside)), Err(AllocationError::NetworkMismatch), "{outside}");
        }
        assert_eq!(pools.allocate_address(ip("10.96.0.1")), Ok(()));
        assert_eq!(pools.allocate_address(ip("10.96.255.254")), Ok(()));
    }

    #[test]
    fn ipv6_range_has_no_broadcast_address() {
        let pools = pools("fd00::/120", (30_000, 32_767));
        assert_eq!(pools.allocate_address(ip("fd00::")), Err(AllocationError::NetworkMismatch));
        assert_eq!(pools.allocate_address(ip("fd00::ff")), Ok(()));
        assert_eq!(pools.allocate_address(ip("10.0.0.1")), Err(AllocationError::NetworkMismatch));
        assert!(pools.range().contains(&pools.allocate_next_address().unwrap()));
        assert_eq!(pools.family(), Family::V6);
    }

    #[test]
    fn large_ipv6_range_does_not_overflow() {
        for range in ["fd00::/64", "fd00::/8", "::/0"] {
            let allocated = pools(range, (30_000, 32_767)).allocate_next_address().unwrap();
            assert!(allocated.is_ipv6(), "{range}");
        }
    }

    #[test]
    fn dynamic_allocation_uses_the_static_band_last() {
        let pools = pools("10.0.0.0/27", (30_000, 30_031));
        let addresses: Vec<IpAddr> = (0..30).map(|_| pools.allocate_next_address().unwrap()).collect();
        let (high, low) = addresses.split_at(14);
        assert!(high.iter().all(|a| *a >= ip("10.0.0.17")), "{high:?}");
        assert!(low.iter().all(|a| *a < ip("10.0.0.17")), "{low:?}");
        assert_eq!(pools.allocate_next_address(), Err(AllocationError::Full));

        let ports: Vec<i64> = (0..32).map(|_| pools.allocate_next_port().unwrap()).collect();
        assert!(ports[..16].iter().all(|p| *p >= 30_016), "{ports:?}");
        assert_eq!(pools.allocate_next_port(), Err(AllocationError::Full));
    }

    #[test]
    fn static_band_is_a_fraction_of_the_range_within_limits() {
        assert_eq!(band(2768, 32, 128), 86);
        assert_eq!(band(10, 32, 128), 0);
        assert_eq!(band(100, 32, 128), 16);
        assert_eq!(band(60_000, 32, 128), 128);
        assert_eq!(address_band("10.96.0.0/16".parse().unwrap()), 256);
        assert_eq!(address_band("10.96.0.0/28".parse().unwrap()), 0);
        assert_eq!(address_band("::/0".parse().unwrap()), 256);
    }

    #[test]
    fn ranges_without_usable_values_are_full() {
        for range in ["10.0.0.0/31", "10.0.0.0/32", "fd00::1/128", "0.0.0.0/32", "255.255.255.255/32"] {
            assert_eq!(pools(range, (1, 1)).allocate_next_address(), Err(AllocationError::Full), "{range}");
        }
        assert_eq!(pools("10.0.0.0/24", (2, 1)).allocate_next_port(), Err(AllocationError::Full));
    }

    #[test]
    fn out_of_range_port_is_rejected_with_the_range() {
        let pools = pools("10.96.0.0/16", (30_000, 32_767));
        for port in [-1, 0, 80, 29_999, 32_768, 70_000] {
            let text = pools.allocate_port(port).unwrap_err().to_string();
            assert!(text.ends_with("The range of valid ports is 30000-32767"), "{port}: {text}");
        }
        pools.release_port(-1);
        assert!(!pools.has_port(-1));
    }
}
