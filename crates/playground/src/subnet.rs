//! Part of the loopback network that is reserved for one playground.
//!
//! ```text
//!  127.64.0.0/16 ── 127.64.0.0/17     one address for each machine, with its node ports
//!                ├─ 127.64.200.0/24   address pool of load balancers
//!                └─ 127.64.201.0/24   address pool of internal load balancers
//!  127.128.0.0/16                      cluster CIDR, split into the pod CIDRs of the Nodes
//! ```
//!
//! Linux answers for all of 127.0.0.0/8 without configuration, so every machine, load balancer and Pod can have its own address
//! with all ports free, without root. A second playground, or one of another user, takes the next /16 of both kinds: each reserves
//! a name that the kernel grants only once.

use std::io;
use std::net::{IpAddr, Ipv4Addr, TcpListener, UdpSocket};
use std::ops::RangeInclusive;

use ipnet::Ipv4Net;

/// Second bytes of the candidate /16 networks; not 127.0, which other programs use.
const CANDIDATES: RangeInclusive<u8> = 64..=127;

/// Third bytes of the address pools of load balancers; machine addresses never reach them.
const LOAD_BALANCERS: u8 = 200;
const INTERNAL_LOAD_BALANCERS: u8 = 201;

/// Offset between the second bytes of the machines' and the Pods' /16 networks: right after all candidates.
const POD_OFFSET: u8 = 64;

/// Number of machines per third byte.
const MACHINES_PER_ROW: usize = 250;

/// Network of the machines and load balancers of a playground.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subnet {
    /// 127.N.0.0/16, which is reachable on this machine.
    Loopback(u8),
    /// Addresses without traffic, for systems that have only one loopback address.
    Unreachable,
}

/// A subnet that is reserved until this is dropped.
pub(crate) struct ReservedSubnet {
    pub(crate) subnet: Subnet,
    _reservation: Option<Reservation>,
}

impl Subnet {
    /// Returns the address of the machine of this number, from 1.
    pub fn machine(self, number: usize) -> Ipv4Addr {
        // Both remainders are below 256.
        let (high, low) = ((number / MACHINES_PER_ROW % 128) as u8, (number % MACHINES_PER_ROW) as u8 + 1);
        match self {
            Subnet::Loopback(second) => Ipv4Addr::new(127, second, high, low),
            Subnet::Unreachable => Ipv4Addr::new(10, 240, high, low),
        }
    }

    /// Returns the address pools of load balancers: external, then internal.
    pub fn load_balancer_pools(self) -> [Ipv4Net; 2] {
        [LOAD_BALANCERS, INTERNAL_LOAD_BALANCERS].map(|third| {
            let start = match self {
                Subnet::Loopback(second) => Ipv4Addr::new(127, second, third, 0),
                Subnet::Unreachable => Ipv4Addr::new(10, 240, third, 0),
            };
            Ipv4Net::new_assert(start, 24)
        })
    }

    /// Returns the cluster CIDR.
    pub fn pods(self) -> Ipv4Net {
        let start = match self {
            Subnet::Loopback(second) => Ipv4Addr::new(127, second.saturating_add(POD_OFFSET), 0, 0),
            Subnet::Unreachable => Ipv4Addr::new(10, 244, 0, 0),
        };
        Ipv4Net::new_assert(start, 16)
    }

    /// Returns whether the addresses are reachable.
    pub fn is_reachable(self) -> bool {
        matches!(self, Subnet::Loopback(_))
    }
}

/// Reserves the first free subnet.
pub(crate) fn reserve() -> ReservedSubnet {
    let reserved = CANDIDATES.filter_map(|second| try_reserve(Subnet::Loopback(second)).ok()).next();
    reserved.unwrap_or_else(|| {
        tracing::warn!("no subnet of 127.64.0.0/10 is free; load balancers of Services are not reachable");
        ReservedSubnet { subnet: Subnet::Unreachable, _reservation: None }
    })
}

fn try_reserve(subnet: Subnet) -> io::Result<ReservedSubnet> {
    let name = Reservation::reserve(subnet)?;
    let load_balancer_pools = subnet.load_balancer_pools().into_iter().flat_map(|pool| pool.hosts().next());
    let others = [Some(subnet.machine(1)), subnet.pods().hosts().next()].into_iter().flatten();
    load_balancer_pools.chain(others).try_for_each(|address| probe(address.into()))?;
    Ok(ReservedSubnet { subnet, _reservation: Some(name) })
}

/// Checks that this system allows sockets on the address.
fn probe(address: IpAddr) -> io::Result<()> {
    TcpListener::bind((address, 0))?;
    UdpSocket::bind((address, 0)).map(drop)
}

/// A name that only one process can hold at a time, released when the process ends.
#[cfg(target_os = "linux")]
struct Reservation {
    _socket: std::os::unix::net::UnixListener,
}

#[cfg(target_os = "linux")]
impl Reservation {
    /// Binds an abstract Unix socket: it leaves no file behind, conflicts with no port of another program, and is scoped to the
    /// network namespace, like the loopback addresses.
    fn reserve(subnet: Subnet) -> io::Result<Reservation> {
        use std::os::linux::net::SocketAddrExt as _;
        use std::os::unix::net::{SocketAddr, UnixListener};
        let name = SocketAddr::from_abstract_name(format!("bowline-playground-{}", subnet.machine(0)))?;
        Ok(Reservation { _socket: UnixListener::bind_addr(&name)? })
    }
}

#[cfg(not(target_os = "linux"))]
struct Reservation;

#[cfg(not(target_os = "linux"))]
impl Reservation {
    /// Other systems have only 127.0.0.1 by default.
    fn reserve(_: Subnet) -> io::Result<Reservation> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_balancers_and_machines_have_different_addresses() {
        let [outer, inner] = Subnet::Loopback(64).load_balancer_pools();
        assert_eq!([outer, inner].map(|pool| pool.to_string()), ["127.64.200.0/24", "127.64.201.0/24"]);
        let machines = (1..=20_000).map(|number| Subnet::Loopback(64).machine(number));
        assert_eq!(machines.filter(|address| outer.contains(address) || inner.contains(address)).count(), 0);
    }

    #[test]
    fn networks_of_playgrounds_do_not_overlap() {
        let pods: Vec<_> = CANDIDATES.map(|second| Subnet::Loopback(second).pods()).collect();
        assert_eq!(pods[0].to_string(), "127.128.0.0/16");
        let machines = CANDIDATES.map(|second| Subnet::Loopback(second).machine(1));
        assert_eq!(machines.filter(|machine| pods.iter().any(|range| range.contains(machine))).count(), 0);
        let distinct: std::collections::BTreeSet<_> = pods.iter().collect();
        assert_eq!(distinct.len(), pods.len());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_subnet_is_reserved_by_one_playground_at_a_time() {
        // Not with `reserve`, because other tests reserve subnets at the same time.
        let subnet = Subnet::Loopback(*CANDIDATES.end());
        let reserved = try_reserve(subnet).map(|reserved| reserved.subnet);
        assert_eq!(reserved.ok(), Some(subnet));
        let (first, second) = (try_reserve(subnet), try_reserve(subnet));
        assert!(first.is_ok());
        assert_eq!(second.err().map(|error| error.kind()), Some(io::ErrorKind::AddrInUse));
        assert_ne!(reserve().subnet, subnet);
    }
}
