//! Source filter: client networks that may connect.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// Prefix length of `::ffff:0:0/96`, the IPv4-mapped addresses on an IPv6 socket.
const MAPPED_PREFIX: u8 = 96;

/// Networks whose clients may connect. An empty list allows all clients.
///
/// An IPv4 client on an IPv6 socket (`::ffff:192.0.2.1`) counts as IPv4, so `::/0` alone allows no IPv4 client. Networks in
/// IPv4-mapped form count as IPv4 as well.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct SourceFilter {
    open: bool,
    /// Disjoint and sorted, so that a binary search finds the only network that can contain an address.
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

/// Converts an IPv4-mapped network: `::ffff:10.0.0.0/104` is `10.0.0.0/8`.
fn unmapped(range: IpNet) -> IpNet {
    let IpNet::V6(v6) = range else { return range };
    let v4 = v6.addr().to_ipv4_mapped().zip(v6.prefix_len().checked_sub(MAPPED_PREFIX));
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
    fn a_client_is_allowed_if_a_network_contains_it() {
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
    fn an_ipv4_mapped_client_counts_as_ipv4() {
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
        // Few bits differ, so that networks touch, overlap and contain each other.
        let v4 = (0..16u32, 24..=32u8).prop_map(|(n, length)| Ipv4Net::new((n * 16).into(), length).unwrap().into());
        let v6 = (0..16u128, 120..=128u8).prop_map(|(n, length)| Ipv6Net::new((n * 16).into(), length).unwrap().into());
        prop_oneof![v4, v6]
    }

    proptest! {
        #[test]
        fn the_filter_agrees_with_a_linear_search(ranges in prop::collection::vec(any_range(), 1..30), n in 0..300u32) {
            let filter = SourceFilter::new(&ranges);
            for client in [IpAddr::V4(n.into()), IpAddr::V6(u128::from(n).into())] {
                prop_assert_eq!(filter.allows(client), ranges.iter().any(|range| range.contains(&client)));
            }
        }
    }
}
