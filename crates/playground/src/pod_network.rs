//! Where the Pods of a playground live.
//!
//! ```text
//!  --cluster-cidr, or the subnet's own ──cut──► a block for each Node ──► spec.podCIDRs ──► an address for each Pod
//! ```
//!
//! The range of the subnet itself is on the loopback network, so that a Pod can be reached at its own address. Any other one
//! is only shown: addresses are given out of it, and nothing answers there.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bowline_core::ipam::{ClusterCidr, ClusterCidrError};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// What a Node gets as a rule.
// upstream: the defaults of --node-cidr-mask-size-ipv4 and -ipv6.
const USUAL_MASK: (u8, u8) = (24, 64);

/// The smallest block that still has addresses for Pods: four, of which a network has two for itself.
const SMALLEST: u8 = 2;

/// Ranges of IPv6 have no more blocks than 2 to the power of this.
const MOST_BITS: u8 = 16;

/// The network that is always there, with its addresses for this machine itself.
const LOOPBACK: IpNet = IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(127, 0, 0, 0), 8));
const LOOPBACK_V6: IpNet = IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::LOCALHOST, 128));

/// What can be done with the addresses of Pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodNetwork {
    /// Pods answer there.
    Reachable,
    /// They are only shown.
    Shown,
}

/// Why Pods cannot live there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PodNetworkProblem {
    /// Not one range, nor one of each family.
    #[error("Pods live in one range, or in one of each family, such as 10.244.0.0/16,fd00:10:244::/56")]
    Families,
    /// A range of this machine's own loopback network.
    #[error(
        "{0} is in the loopback network, of which a playground takes a free part if nothing is said; leave the range out, \
         or give one elsewhere, such as 10.244.0.0/16"
    )]
    Loopback(IpNet),
    /// There is no room.
    #[error("{range} is too small for {nodes} Nodes, each with a range of its own; give a larger one, such as {hint}")]
    TooSmall {
        /// The range.
        range: IpNet,
        /// How many Nodes there are at the start.
        nodes: usize,
        /// One that is large enough for any playground.
        hint: &'static str,
    },
    /// The addresses of Services leave nothing.
    #[error(
        "all of {range} belongs to Services, whose addresses are in {services}; give another one, such as 10.244.0.0/16"
    )]
    Taken {
        /// The range.
        range: IpNet,
        /// The range of Services.
        services: IpNet,
    },
    /// It cannot be cut.
    #[error(transparent)]
    Cut(#[from] ClusterCidrError),
}

/// Checks the ranges that somebody asked for, as far as that can be done without knowing the cluster.
pub fn check_cluster_cidrs(ranges: &[IpNet]) -> Result<(), PodNetworkProblem> {
    let families = ranges.iter().filter(|range| matches!(range, IpNet::V4(_))).count();
    if ranges.is_empty() || ranges.len() > 2 || (ranges.len() == 2 && families != 1) {
        return Err(PodNetworkProblem::Families);
    }
    let overlaps =
        |range: &&IpNet| [LOOPBACK, LOOPBACK_V6].iter().any(|own| own.contains(*range) || range.contains(own));
    ranges.iter().find(overlaps).map_or(Ok(()), |range| Err(PodNetworkProblem::Loopback(*range)))
}

/// Cuts the ranges so that there are blocks for this many Nodes and for some more that come later.
pub(crate) fn cut(ranges: &[IpNet], nodes: usize, services: IpNet) -> Result<Vec<ClusterCidr>, PodNetworkProblem> {
    let cut = |range: &IpNet| {
        if services.contains(range) {
            return Err(PodNetworkProblem::Taken { range: *range, services });
        }
        let hint = if matches!(range, IpNet::V4(_)) { "10.244.0.0/16" } else { "fd00:10:244::/48" };
        let mask = node_mask(range, nodes).ok_or(PodNetworkProblem::TooSmall { range: *range, nodes, hint })?;
        Ok(ClusterCidr::new(*range, mask)?)
    };
    ranges.iter().map(cut).collect()
}

/// The usual size of a block, or a smaller one if there are many Nodes; `None` if there are too many.
fn node_mask(range: &IpNet, nodes: usize) -> Option<u8> {
    let usual = if matches!(range, IpNet::V4(_)) { USUAL_MASK.0 } else { USUAL_MASK.1 };
    let blocks = nodes.saturating_add(nodes / 2).saturating_add(8);
    let bits = u8::try_from(blocks.next_power_of_two().ilog2()).ok()?;
    let most = if matches!(range, IpNet::V4(_)) { u8::MAX } else { range.prefix_len() + MOST_BITS };
    let mask = range.prefix_len().checked_add(bits)?.max(usual).min(most);
    (bits <= MOST_BITS && mask + SMALLEST <= range.max_prefix_len()).then_some(mask)
}

/// The addresses that Pods of a Node with these ranges can have, one of each family at a time.
///
/// The first address of a range is the node's own in it, as network plugins have it.
pub(crate) fn free_addresses(ranges: &[String], is_taken: impl Fn(IpAddr) -> bool) -> Option<Vec<IpAddr>> {
    let first_free = |range: &String| {
        let range: IpNet = range.parse().ok()?;
        // The network's own address is a host to IPv6, but nobody's here.
        range.hosts().filter(|address| *address != range.network()).skip(1).find(|address| !is_taken(*address))
    };
    let addresses: Option<Vec<IpAddr>> = ranges.iter().map(first_free).collect();
    addresses.filter(|addresses| !addresses.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nets(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn ranges_are_one_of_each_family_and_not_this_machines_own() {
        assert_eq!(check_cluster_cidrs(&nets(&["10.244.0.0/16"])), Ok(()));
        assert_eq!(check_cluster_cidrs(&nets(&["fd00::/48", "10.244.0.0/16"])), Ok(()));
        let families = [&[][..], &["10.1.0.0/16", "10.2.0.0/16"], &["fd00::/48", "fd01::/48"]];
        for texts in families {
            assert_eq!(check_cluster_cidrs(&nets(texts)), Err(PodNetworkProblem::Families), "{texts:?}");
        }
        let three = nets(&["10.1.0.0/16", "fd00::/48", "10.2.0.0/16"]);
        assert_eq!(check_cluster_cidrs(&three), Err(PodNetworkProblem::Families));
        for text in ["127.128.0.0/16", "0.0.0.0/0", "::/64"] {
            let problem = check_cluster_cidrs(&nets(&[text]));
            assert!(matches!(problem, Err(PodNetworkProblem::Loopback(_))), "{text}: {problem:?}");
        }
    }

    #[test]
    fn blocks_have_the_usual_size_until_there_are_too_many_nodes_for_it() {
        let cases = [
            ("10.244.0.0/16", 3, Some(24)),
            ("10.244.0.0/16", 160, Some(24)),
            ("10.244.0.0/16", 1_000, Some(27)),
            ("10.244.0.0/16", 10_000, Some(30)),
            ("10.0.0.0/8", 3, Some(24)),
            ("10.244.0.0/26", 3, Some(30)),
            ("10.244.0.0/27", 3, None),
            ("10.244.0.0/20", 10_000, None),
            ("fd00::/48", 3, Some(64)),
            ("fd00::/56", 3, Some(64)),
            ("fd00::/32", 3, Some(48)),
            ("fd00::/120", 3, Some(124)),
            ("fd00::/124", 3, None),
        ];
        for (range, nodes, mask) in cases {
            assert_eq!(node_mask(&range.parse().unwrap(), nodes), mask, "{range} for {nodes} Nodes");
        }
    }

    #[test]
    fn a_range_without_room_is_refused_with_one_that_has() {
        let services = nets(&["10.96.0.0/16"])[0];
        let problem = |range: &str| cut(&nets(&[range]), 3, services).unwrap_err().to_string();
        assert_eq!(
            problem("10.1.0.0/29"),
            "10.1.0.0/29 is too small for 3 Nodes, each with a range of its own; give a larger one, such as 10.244.0.0/16"
        );
        assert_eq!(
            problem("10.96.4.0/22"),
            "all of 10.96.4.0/22 belongs to Services, whose addresses are in 10.96.0.0/16; give another one, such as \
             10.244.0.0/16"
        );
    }

    #[test]
    fn a_pod_gets_the_first_address_of_each_range_that_nobody_has() {
        let ranges = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let first = |texts: &[&str], taken: &[&str]| {
            let found = free_addresses(&ranges(texts), |address| taken.contains(&&*address.to_string()));
            found.map(|addresses| addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(first(&["127.128.1.0/24"], &[]).as_deref(), Some("127.128.1.2"));
        assert_eq!(first(&["127.128.1.0/24"], &["127.128.1.2"]).as_deref(), Some("127.128.1.3"));
        assert_eq!(first(&["10.244.1.0/24", "fd00:1::/64"], &[]).as_deref(), Some("10.244.1.2 fd00:1::2"));
        assert_eq!(first(&["10.244.1.0/30"], &["10.244.1.2"]), None, "full");
        assert_eq!(first(&[], &[]), None, "no range yet");
        assert_eq!(first(&["nonsense"], &[]), None);
    }
}
