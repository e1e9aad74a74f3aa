//! Who may connect.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// The length of `::ffff:0:0/96`, in which IPv4 addresses appear on an IPv6 socket.
const MAPPED: u8 = 96;

/// Ranges of addresses that may connect. With none, everybody may.
///
/// An IPv4 client that comes in on an IPv6 socket (`::ffff:192.0.2.1`) is the IPv4 client that it is, so `::/0` alone lets no
/// IPv4 client in. Ranges written in that form count for IPv4 likewise.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct SourceFilter {
    open: bool,
    /// Apart from one another and in order, so that one search finds the only one that can contain an address.
    v4: Vec<Ipv4Net>,
    v6: Vec<Ipv6Net>,
}

// === impl SourceFilter ===

impl SourceFilter {
    pub(crate) fn new(allow: &[IpNet]) -> SourceFilter {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for range in allow {
            match unmapped(*range) {
                IpNet::V4(range) => v4.push(range.trunc()),
                IpNet::V6(range) => v6.push(range.trunc()),
            }
        }
        let (mut v4, mut v6) = (Ipv4Net::aggregate(&v4), Ipv6Net::aggregate(&v6));
        v4.sort_unstable_by_key(Ipv4Net::network);
        v6.sort_unstable_by_key(Ipv6Net::network);
        SourceFilter { open: allow.is_empty(), v4, v6 }
    }

    pub(crate) fn allows(&self, client: IpAddr) -> bool {
        self.open
            || match client.to_canonical() {
                IpAddr::V4(client) => self.allows_v4(client),
                IpAddr::V6(client) => self.allows_v6(client),
            }
    }

    fn allows_v4(&self, client: Ipv4Addr) -> bool {
        let after = self.v4.partition_point(|range| range.network() <= client);
        after.checked_sub(1).and_then(|at| self.v4.get(at)).is_some_and(|range| range.contains(&client))
    }

    fn allows_v6(&self, client: Ipv6Addr) -> bool {
        let after = self.v6.partition_point(|range| range.network() <= client);
        after.checked_sub(1).and_then(|at| self.v6.get(at)).is_some_and(|range| range.contains(&client))
    }
}

/// `::ffff:10.0.0.0/104` is `10.0.0.0/8`.
fn unmapped(range: IpNet) -> IpNet {
    let IpNet::V6(v6) = range else { return range };
    let v4 = v6.addr().to_ipv4_mapped().zip(v6.prefix_len().checked_sub(MAPPED));
    v4.and_then(|(address, length)| Ipv4Net::new(address, length).ok()).map_or(range, IpNet::V4)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn filter(ranges: &[&str]) -> SourceFilter {
        SourceFilter::new(&ranges.iter().map(|range| range.parse().unwrap()).collect::<Vec<_>>())
    }

    #[test]
    fn ranges_let_in_whom_they_contain() {
        let cases: &[(&[&str], &str, bool)] = &[
            (&[], "192.0.2.1", true),
            (&[], "2001:db8::1", true),
            (&["192.0.2.0/24"], "192.0.2.0", true),
            (&["192.0.2.0/24"], "192.0.2.255", true),
            (&["192.0.2.0/24"], "192.0.3.0", false),
            (&["192.0.2.0/24"], "192.0.1.255", false),
            (&["192.0.2.7/24"], "192.0.2.1", true),
            (&["192.0.2.7/32"], "192.0.2.7", true),
            (&["10.0.0.0/8", "10.1.0.0/16"], "10.200.0.1", true),
            (&["10.1.0.0/16", "10.0.0.0/8"], "10.2.0.1", true),
            (&["0.0.0.0/0"], "255.255.255.255", true),
            (&["0.0.0.0/0"], "2001:db8::1", false),
            (&["2001:db8::/32"], "2001:db8:ffff::1", true),
            (&["2001:db8::/32"], "2001:db9::", false),
            (&["2001:db8::/32"], "192.0.2.1", false),
        ];
        for (ranges, client, expected) in cases {
            assert_eq!(filter(ranges).allows(client.parse().unwrap()), *expected, "{client} in {ranges:?}");
        }
    }

    #[test]
    fn an_ipv4_client_is_one_on_an_ipv6_socket_too() {
        let cases: &[(&[&str], &str, bool)] = &[
            (&["192.0.2.0/24"], "::ffff:192.0.2.1", true),
            (&["192.0.2.0/24"], "::ffff:192.0.3.1", false),
            (&["::/0"], "::ffff:192.0.2.1", false),
            (&["::ffff:192.0.2.0/120"], "192.0.2.1", true),
            (&["::ffff:192.0.2.0/120"], "::ffff:192.0.2.1", true),
            (&["::ffff:192.0.2.0/120"], "192.0.3.1", false),
        ];
        for (ranges, client, expected) in cases {
            assert_eq!(filter(ranges).allows(client.parse().unwrap()), *expected, "{client} in {ranges:?}");
        }
    }

    fn any_range() -> impl Strategy<Value = IpNet> {
        // Few bits differ, so that ranges touch, overlap and contain each other.
        let v4 = (0..16u32, 24..=32u8).prop_map(|(n, length)| Ipv4Net::new((n * 16).into(), length).unwrap().into());
        let v6 = (0..16u128, 120..=128u8).prop_map(|(n, length)| Ipv6Net::new((n * 16).into(), length).unwrap().into());
        prop_oneof![v4, v6]
    }

    proptest! {
        #[test]
        fn it_says_what_asking_each_range_would(ranges in prop::collection::vec(any_range(), 1..30), n in 0..300u32) {
            let filter = SourceFilter::new(&ranges);
            for client in [IpAddr::V4(n.into()), IpAddr::V6(u128::from(n).into())] {
                prop_assert_eq!(filter.allows(client), ranges.iter().any(|range| range.contains(&client)));
            }
        }
    }
}
