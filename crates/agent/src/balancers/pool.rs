//! Address pool: a CIDR, a range of addresses, or a single address.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use bowline_agent_client::family_of;
use bowline_core::IpFamily;
use ipnet::{IpAddrRange, IpNet, Ipv4AddrRange, Ipv6AddrRange};
use serde::{Deserialize, Serialize};

/// Addresses that load balancers may have: `192.0.2.200/29`, `192.0.2.210-192.0.2.220` or `192.0.2.230`.
///
/// Load balancers get neither the network address and the broadcast address of an IPv4 CIDR, nor the subnet-router anycast address
/// of an IPv6 CIDR, unless a Service requests that address. A range has no such addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Pool(Shape);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Shape {
    Cidr(IpNet),
    /// First and last address, of the same family.
    Range(IpAddr, IpAddr),
}

/// Text that is not a pool.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} {why}; expected a CIDR such as 192.0.2.200/29, a range such as 192.0.2.210-192.0.2.220, or an address"
)]
pub struct PoolError {
    text: String,
    why: &'static str,
}

impl Pool {
    /// Creates a pool from the first and the last address of a range.
    pub fn range(first: IpAddr, last: IpAddr) -> Result<Pool, PoolError> {
        let invalid = |why| Err(PoolError { text: format!("{first}-{last}"), why });
        match (first.is_ipv4() == last.is_ipv4(), first <= last) {
            (false, _) => invalid("has addresses of two families"),
            (true, false) => invalid("has a last address below the first one"),
            (true, true) => Ok(Pool(Shape::Range(first, last))),
        }
    }

    /// IP family of the addresses.
    pub fn family(&self) -> IpFamily {
        family_of(&self.first())
    }

    /// First address, including a network address.
    pub fn first(&self) -> IpAddr {
        match self.0 {
            Shape::Cidr(net) => net.network(),
            Shape::Range(first, _) => first,
        }
    }

    /// Last address, including a broadcast address.
    pub fn last(&self) -> IpAddr {
        match self.0 {
            Shape::Cidr(net) => net.broadcast(),
            Shape::Range(_, last) => last,
        }
    }

    /// Whether the address is in the pool, including network and broadcast addresses.
    pub fn contains(&self, ip: &IpAddr) -> bool {
        ip.is_ipv4() == self.first().is_ipv4() && (self.first()..=self.last()).contains(ip)
    }

    /// Whether both pools have an address in common.
    pub fn overlaps(&self, other: &Pool) -> bool {
        self.family() == other.family() && self.first() <= other.last() && other.first() <= self.last()
    }

    /// Addresses in ascending order, generated on demand: without network, broadcast and anycast addresses of a CIDR.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> + use<> {
        let (addresses, anycast) = match self.0 {
            Shape::Cidr(net) => (net.hosts(), is_anycast(&net).then(|| net.network())),
            Shape::Range(first, last) => (between(first, last), None),
        };
        addresses.filter(move |ip| Some(*ip) != anycast)
    }

    /// Number of addresses that [`addresses`](Pool::addresses) returns, at most `u64::MAX`.
    pub fn size(&self) -> u64 {
        let number = |ip| match ip {
            IpAddr::V4(ip) => u128::from(u32::from(ip)),
            IpAddr::V6(ip) => u128::from(ip),
        };
        let all = (number(self.last()) - number(self.first())).saturating_add(1);
        let reserved = match self.0 {
            Shape::Cidr(net) if is_anycast(&net) => {
                if net.addr().is_ipv4() {
                    2
                } else {
                    1
                }
            }
            Shape::Cidr(_) | Shape::Range(..) => 0,
        };
        u64::try_from(all.saturating_sub(reserved)).unwrap_or(u64::MAX)
    }
}

/// Whether the first address is a network address or the subnet-router anycast address: not if the CIDR has only two addresses.
fn is_anycast(net: &IpNet) -> bool {
    net.max_prefix_len() - net.prefix_len() >= 2
}

fn between(first: IpAddr, last: IpAddr) -> IpAddrRange {
    match (first, last) {
        (IpAddr::V4(first), IpAddr::V4(last)) => Ipv4AddrRange::new(first, last).into(),
        (first, last) => Ipv6AddrRange::new(to_ipv6(first), to_ipv6(last)).into(),
    }
}

fn to_ipv6(ip: IpAddr) -> std::net::Ipv6Addr {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    }
}

impl From<IpNet> for Pool {
    fn from(net: IpNet) -> Pool {
        Pool(Shape::Cidr(net.trunc()))
    }
}

impl FromStr for Pool {
    type Err = PoolError;

    fn from_str(text: &str) -> Result<Pool, PoolError> {
        let invalid = |why| PoolError { text: text.to_owned(), why };
        let address =
            |part: &str| part.trim().parse().map_err(|_| invalid("has no IP address on both sides of the dash"));
        if let Some((first, last)) = text.split_once('-') {
            return Pool::range(address(first)?, address(last)?);
        }
        let net = match text.contains('/') {
            true => text.trim().parse().ok(),
            false => text.trim().parse::<IpAddr>().ok().map(IpNet::from),
        };
        net.map(Pool::from).ok_or_else(|| invalid("is not an address pool"))
    }
}

impl TryFrom<String> for Pool {
    type Error = PoolError;

    fn try_from(text: String) -> Result<Pool, PoolError> {
        text.parse()
    }
}

impl From<Pool> for String {
    fn from(pool: Pool) -> String {
        pool.to_string()
    }
}

impl fmt::Display for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Shape::Cidr(net) => net.fmt(f),
            Shape::Range(first, last) => write!(f, "{first}-{last}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(text: &str) -> Pool {
        text.parse().unwrap()
    }

    fn addresses(text: &str) -> Vec<String> {
        pool(text).addresses().map(|ip| ip.to_string()).collect()
    }

    #[test]
    fn load_balancers_get_neither_network_nor_broadcast_addresses_of_a_cidr() {
        let table: [(&str, &[&str]); 9] = [
            ("192.0.2.8/30", &["192.0.2.9", "192.0.2.10"]),
            ("192.0.2.8/31", &["192.0.2.8", "192.0.2.9"]),
            ("192.0.2.8/32", &["192.0.2.8"]),
            ("192.0.2.8", &["192.0.2.8"]),
            ("192.0.2.254-192.0.3.1", &["192.0.2.254", "192.0.2.255", "192.0.3.0", "192.0.3.1"]),
            ("255.255.255.254-255.255.255.255", &["255.255.255.254", "255.255.255.255"]),
            ("2001:db8::8/126", &["2001:db8::9", "2001:db8::a", "2001:db8::b"]),
            ("2001:db8::8/127", &["2001:db8::8", "2001:db8::9"]),
            ("2001:db8::ffff-2001:db8::1:1", &["2001:db8::ffff", "2001:db8::1:0", "2001:db8::1:1"]),
        ];
        for (text, expected) in table {
            assert_eq!(addresses(text), expected, "{text}");
            assert_eq!(pool(text).size(), expected.len() as u64, "{text}");
            assert!(pool(text).addresses().all(|ip| pool(text).contains(&ip)), "{text}");
        }
        // A large pool is not expanded.
        assert_eq!(pool("::/0").addresses().next().unwrap().to_string(), "::1");
        assert_eq!(
            [pool("::/0").size(), pool("::-ffff::").size(), pool("0.0.0.0/0").size()],
            [u64::MAX, u64::MAX, 4294967294]
        );
    }

    #[test]
    fn a_requested_address_may_be_a_network_address() {
        for (text, inside, outside) in [
            ("192.0.2.9/29", ["192.0.2.8", "192.0.2.15"], ["192.0.2.7", "192.0.2.16"]),
            ("192.0.2.9-192.0.2.20", ["192.0.2.9", "192.0.2.20"], ["192.0.2.8", "192.0.2.21"]),
            ("2001:db8::/120", ["2001:db8::", "2001:db8::ff"], ["2001:db8::100", "192.0.2.8"]),
        ] {
            assert!(inside.iter().all(|ip| pool(text).contains(&ip.parse().unwrap())), "{text}");
            assert!(!outside.iter().any(|ip| pool(text).contains(&ip.parse().unwrap())), "{text}");
        }
    }

    #[test]
    fn pools_that_share_an_address_overlap() {
        let table = [
            ("192.0.2.0/29", "192.0.2.7-192.0.2.9", true),
            ("192.0.2.0/29", "192.0.2.8-192.0.2.9", false),
            ("192.0.2.0-192.0.2.20", "192.0.2.8/30", true),
            ("192.0.2.0-192.0.2.20", "192.0.2.20", true),
            ("2001:db8::/64", "2001:db8::1-2001:db8::2", true),
            ("::/0", "0.0.0.0/0", false),
        ];
        for (one, other, expected) in table {
            let (one, other) = (pool(one), pool(other));
            assert_eq!((one.overlaps(&other), other.overlaps(&one)), (expected, expected), "{one} {other}");
        }
    }

    #[test]
    fn texts_survive_a_round_trip_and_invalid_ones_are_explained() {
        let texts = [
            ("192.0.2.200/29", "192.0.2.200/29"),
            ("192.0.2.203/29", "192.0.2.200/29"),
            ("192.0.2.1", "192.0.2.1/32"),
            ("192.0.2.1 - 192.0.2.9", "192.0.2.1-192.0.2.9"),
            ("2001:DB8::1-2001:db8::2", "2001:db8::1-2001:db8::2"),
        ];
        for (text, normal) in texts {
            assert_eq!(pool(text).to_string(), normal);
            let json = serde_json::to_string(&pool(text)).unwrap();
            assert_eq!((json.as_str(), serde_json::from_str(&json).ok()), (&*format!("{normal:?}"), Some(pool(text))));
        }
        for (text, why) in [
            ("", "is not an address pool"),
            ("lb", "is not an address pool"),
            ("192.0.2.0/33", "is not an address pool"),
            ("192.0.2.0-", "no IP address on both sides"),
            ("192.0.2.0/29-192.0.2.9", "no IP address on both sides"),
            ("192.0.2.9-192.0.2.8", "a last address below the first one"),
            ("192.0.2.9-2001:db8::1", "two families"),
        ] {
            let error = text.parse::<Pool>().unwrap_err().to_string();
            assert!(error.contains(why) && error.contains("192.0.2.210-192.0.2.220"), "{error}");
        }
    }
}
