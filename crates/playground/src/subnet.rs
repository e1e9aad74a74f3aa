//! The part of this machine's loopback network that a playground has to itself.
//!
//! ```text
//!  127.64.0.0/16 ── 127.64.0.0/17     one address for each machine; node ports answer there
//!                ├─ 127.64.200.0/24   the pool that the cloud takes balancers' addresses from
//!                └─ 127.64.201.0/24   the same for internal ones
//!  127.128.0.0/16                      the range that Pods live in, of which each Node has a block
//! ```
//!
//! Linux answers for all of 127.0.0.0/8 without being told, so every machine, balancer and Pod can have an address of its
//! own, with all ports free, and nobody needs to be root. A second playground, or one of another user, takes the next /16
//! of both kinds: each holds a name that the kernel gives only once.

use std::io;
use std::net::{IpAddr, Ipv4Addr, TcpListener, UdpSocket};
use std::ops::RangeInclusive;

use ipnet::Ipv4Net;

/// The second bytes of the /16s to choose from: away from 127.0, where other programs are.
const CHOICE: RangeInclusive<u8> = 64..=127;

/// The third bytes of the balancers' pools; machines never come that far.
const BALANCERS: u8 = 200;
const INTERNAL: u8 = 201;

/// How far the /16 of the Pods is from that of the machines: just behind all that there are to choose from.
const PODS: u8 = 64;

/// Machines per third byte.
const ROW: usize = 250;

/// Where the machines and the balancers of a playground are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subnet {
    /// In 127.N.0.0/16, where they can be reached.
    Loopback(u8),
    /// At addresses that only look like some: this system gives no loopback addresses but one, and no traffic flows.
    Nowhere,
}

/// A subnet that nobody else has while this lives.
pub(crate) struct Held {
    pub(crate) subnet: Subnet,
    _name: Option<Name>,
}

impl Subnet {
    /// The address of the machine of this number, from 1.
    pub fn machine(self, number: usize) -> Ipv4Addr {
        // Both remainders are below 256.
        let (high, low) = ((number / ROW % 128) as u8, (number % ROW) as u8 + 1);
        match self {
            Subnet::Loopback(second) => Ipv4Addr::new(127, second, high, low),
            Subnet::Nowhere => Ipv4Addr::new(10, 240, high, low),
        }
    }

    /// Where the cloud takes the addresses of its balancers from: first those that everybody reaches, then internal ones.
    pub fn balancers(self) -> [Ipv4Net; 2] {
        [BALANCERS, INTERNAL].map(|third| {
            let start = match self {
                Subnet::Loopback(second) => Ipv4Addr::new(127, second, third, 0),
                Subnet::Nowhere => Ipv4Addr::new(10, 240, third, 0),
            };
            Ipv4Net::new_assert(start, 24)
        })
    }

    /// The range that Pods live in.
    pub fn pods(self) -> Ipv4Net {
        let start = match self {
            Subnet::Loopback(second) => Ipv4Addr::new(127, second.saturating_add(PODS), 0, 0),
            Subnet::Nowhere => Ipv4Addr::new(10, 244, 0, 0),
        };
        Ipv4Net::new_assert(start, 16)
    }

    /// Whether traffic can flow.
    pub fn is_reachable(self) -> bool {
        matches!(self, Subnet::Loopback(_))
    }
}

/// Takes the first subnet that is free.
pub(crate) fn take() -> Held {
    let taken = CHOICE.filter_map(|second| try_take(Subnet::Loopback(second)).ok()).next();
    taken.unwrap_or_else(|| {
        tracing::warn!("no address in 127.64.0.0/10 is free here; Services get no balancers that could be reached");
        Held { subnet: Subnet::Nowhere, _name: None }
    })
}

fn try_take(subnet: Subnet) -> io::Result<Held> {
    let name = Name::take(subnet)?;
    let balancers = subnet.balancers().into_iter().flat_map(|pool| pool.hosts().next());
    let others = [Some(subnet.machine(1)), subnet.pods().hosts().next()].into_iter().flatten();
    balancers.chain(others).try_for_each(|address| probe(address.into()))?;
    Ok(Held { subnet, _name: Some(name) })
}

/// Sees whether this system lets us listen there at all.
fn probe(address: IpAddr) -> io::Result<()> {
    TcpListener::bind((address, 0))?;
    UdpSocket::bind((address, 0)).map(drop)
}

/// A name that only one process at a time can have, and that goes with it.
#[cfg(target_os = "linux")]
struct Name {
    _socket: std::os::unix::net::UnixListener,
}

#[cfg(target_os = "linux")]
impl Name {
    /// An abstract socket: no file that could be left behind, no port that could be somebody else's, and each network
    /// namespace has its own, just as it has its own loopback addresses.
    fn take(subnet: Subnet) -> io::Result<Name> {
        use std::os::linux::net::SocketAddrExt as _;
        use std::os::unix::net::{SocketAddr, UnixListener};
        let name = SocketAddr::from_abstract_name(format!("bowline-playground-{}", subnet.machine(0)))?;
        Ok(Name { _socket: UnixListener::bind_addr(&name)? })
    }
}

#[cfg(not(target_os = "linux"))]
struct Name;

#[cfg(not(target_os = "linux"))]
impl Name {
    /// Other systems answer for 127.0.0.1 alone until an administrator says otherwise.
    fn take(_: Subnet) -> io::Result<Name> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_balancer_has_the_address_of_a_machine() {
        let [outer, inner] = Subnet::Loopback(64).balancers();
        assert_eq!([outer, inner].map(|pool| pool.to_string()), ["127.64.200.0/24", "127.64.201.0/24"]);
        let machines = (1..=20_000).map(|number| Subnet::Loopback(64).machine(number));
        assert_eq!(machines.filter(|address| outer.contains(address) || inner.contains(address)).count(), 0);
    }

    #[test]
    fn no_playground_has_its_pods_where_another_one_has_anything() {
        let pods: Vec<_> = CHOICE.map(|second| Subnet::Loopback(second).pods()).collect();
        assert_eq!(pods[0].to_string(), "127.128.0.0/16");
        let machines = CHOICE.map(|second| Subnet::Loopback(second).machine(1));
        assert_eq!(machines.filter(|machine| pods.iter().any(|range| range.contains(machine))).count(), 0);
        let distinct: std::collections::BTreeSet<_> = pods.iter().collect();
        assert_eq!(distinct.len(), pods.len());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn two_playgrounds_do_not_share_a_subnet_and_one_that_ends_makes_room() {
        // Not by `take`: other tests take subnets, too, at the same time.
        let subnet = Subnet::Loopback(*CHOICE.end());
        let held = try_take(subnet).map(|held| held.subnet);
        assert_eq!(held.ok(), Some(subnet));
        let (first, second) = (try_take(subnet), try_take(subnet));
        assert!(first.is_ok());
        assert_eq!(second.err().map(|error| error.kind()), Some(io::ErrorKind::AddrInUse));
        assert_ne!(take().subnet, subnet);
    }
}
