//! Pod network of a playground.
//!
//! ```text
//!  --cluster-cidr, or that of the subnet ──split──► a pod CIDR for each Node ──► spec.podCIDRs ──► an address for each Pod
//! ```
//!
//! The cluster CIDR of the subnet is in the loopback network, so that Pods are reachable at their addresses. With any other cluster
//! CIDR, Pods get addresses, but nothing answers there.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bowline_core::ipam::{ClusterCidr, ClusterCidrError};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// Default prefix lengths of pod CIDRs, for IPv4 and IPv6.
// upstream: the defaults of --node-cidr-mask-size-ipv4 and -ipv6.
const DEFAULT_MASK: (u8, u8) = (24, 64);

/// Minimum number of host bits of a pod CIDR: four addresses, two of which are not usable for Pods.
const MIN_HOST_BITS: u8 = 2;

/// Maximum number of pod CIDRs of an IPv6 cluster CIDR, as a power of 2.
const MAX_BLOCK_BITS: u8 = 16;

/// Loopback networks of this machine.
const LOOPBACK: IpNet = IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(127, 0, 0, 0), 8));
const LOOPBACK_V6: IpNet = IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::LOCALHOST, 128));

/// Reachability of Pods at their addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodNetwork {
    /// Pods answer at their addresses.
    Reachable,
    /// Pods have addresses, but do not answer there.
    Unreachable,
}

/// An invalid cluster CIDR.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PodNetworkError {
    /// Neither one CIDR nor one of each family.
    #[error("expected one CIDR, or one of each family, such as 10.244.0.0/16,fd00:10:244::/56")]
    Families,
    /// In the loopback network of this machine.
    #[error(
        "{0} is in the loopback network; remove the flag to use a free part of that network, or use another CIDR, such as \
         10.244.0.0/16"
    )]
    Loopback(IpNet),
    /// Too small.
    #[error("{range} is too small for the pod CIDRs of {nodes} Nodes; use a larger one, such as {hint}")]
    TooSmall {
        /// Cluster CIDR.
        range: IpNet,
        /// Number of Nodes at the start.
        nodes: usize,
        /// A cluster CIDR that is large enough for any playground.
        hint: &'static str,
    },
    /// Within the service CIDR.
    #[error("{range} belongs to the service CIDR {services}; use another one, such as 10.244.0.0/16")]
    Taken {
        /// Cluster CIDR.
        range: IpNet,
        /// Service CIDR.
        services: IpNet,
    },
    /// Cannot be split into pod CIDRs.
    #[error(transparent)]
    Split(#[from] ClusterCidrError),
}

/// Checks cluster CIDRs, as far as possible without the number of Nodes.
pub fn check_cluster_cidrs(ranges: &[IpNet]) -> Result<(), PodNetworkError> {
    let families = ranges.iter().filter(|range| matches!(range, IpNet::V4(_))).count();
    if ranges.is_empty() || ranges.len() > 2 || (ranges.len() == 2 && families != 1) {
        return Err(PodNetworkError::Families);
    }
    let overlaps =
        |range: &&IpNet| [LOOPBACK, LOOPBACK_V6].iter().any(|own| own.contains(*range) || range.contains(own));
    ranges.iter().find(overlaps).map_or(Ok(()), |range| Err(PodNetworkError::Loopback(*range)))
}

/// Splits the cluster CIDRs into pod CIDRs for this number of Nodes and some more that are added later.
pub(crate) fn split(ranges: &[IpNet], nodes: usize, services: IpNet) -> Result<Vec<ClusterCidr>, PodNetworkError> {
    let split = |range: &IpNet| {
        if services.contains(range) {
            return Err(PodNetworkError::Taken { range: *range, services });
        }
        let hint = if matches!(range, IpNet::V4(_)) { "10.244.0.0/16" } else { "fd00:10:244::/48" };
        let mask = node_mask(range, nodes).ok_or(PodNetworkError::TooSmall { range: *range, nodes, hint })?;
        Ok(ClusterCidr::new(*range, mask)?)
    };
    ranges.iter().map(split).collect()
}

/// Returns the prefix length of pod CIDRs: the default, or a longer one for many Nodes; `None` if there are too many.
fn node_mask(range: &IpNet, nodes: usize) -> Option<u8> {
    let usual = if matches!(range, IpNet::V4(_)) { DEFAULT_MASK.0 } else { DEFAULT_MASK.1 };
    let blocks = nodes.saturating_add(nodes / 2).saturating_add(8);
    let bits = u8::try_from(blocks.next_power_of_two().ilog2()).ok()?;
    let most = if matches!(range, IpNet::V4(_)) { u8::MAX } else { range.prefix_len() + MAX_BLOCK_BITS };
    let mask = range.prefix_len().checked_add(bits)?.max(usual).min(most);
    (bits <= MAX_BLOCK_BITS && mask + MIN_HOST_BITS <= range.max_prefix_len()).then_some(mask)
}

/// Returns free addresses for a Pod of a Node with these pod CIDRs, one of each family.
///
/// The first address of a pod CIDR belongs to the node, as with network plugins.
pub(crate) fn free_addresses(ranges: &[String], is_taken: impl Fn(IpAddr) -> bool) -> Option<Vec<IpAddr>> {
    let first_free = |range: &String| {
        let range: IpNet = range.parse().ok()?;
        // `hosts` includes the network address of an IPv6 network, which is not used here.
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
    fn cluster_cidrs_are_one_of_each_family_and_not_loopback() {
        assert_eq!(check_cluster_cidrs(&nets(&["10.244.0.0/16"])), Ok(()));
        assert_eq!(check_cluster_cidrs(&nets(&["fd00::/48", "10.244.0.0/16"])), Ok(()));
        let families = [&[][..], &["10.1.0.0/16", "10.2.0.0/16"], &["fd00::/48", "fd01::/48"]];
        for texts in families {
            assert_eq!(check_cluster_cidrs(&nets(texts)), Err(PodNetworkError::Families), "{texts:?}");
        }
        let three = nets(&["10.1.0.0/16", "fd00::/48", "10.2.0.0/16"]);
        assert_eq!(check_cluster_cidrs(&three), Err(PodNetworkError::Families));
        for text in ["127.128.0.0/16", "0.0.0.0/0", "::/64"] {
            let error = check_cluster_cidrs(&nets(&[text]));
            assert!(matches!(error, Err(PodNetworkError::Loopback(_))), "{text}: {error:?}");
        }
    }

    #[test]
    fn pod_cidrs_have_the_default_size_unless_there_are_too_many_nodes() {
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
    fn a_cluster_cidr_that_is_too_small_is_rejected_with_a_hint() {
        let services = nets(&["10.96.0.0/16"])[0];
        let error = |range: &str| split(&nets(&[range]), 3, services).unwrap_err().to_string();
        assert_eq!(
            error("10.1.0.0/29"),
            "10.1.0.0/29 is too small for the pod CIDRs of 3 Nodes; use a larger one, such as 10.244.0.0/16"
        );
        assert_eq!(
            error("10.96.4.0/22"),
            "10.96.4.0/22 belongs to the service CIDR 10.96.0.0/16; use another one, such as 10.244.0.0/16"
        );
    }

    #[test]
    fn a_pod_gets_the_first_free_address_of_each_pod_cidr() {
        let ranges = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let first = |texts: &[&str], taken: &[&str]| {
            let found = free_addresses(&ranges(texts), |address| taken.contains(&&*address.to_string()));
            found.map(|addresses| addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(first(&["127.128.1.0/24"], &[]).as_deref(), Some("127.128.1.2"));
        assert_eq!(first(&["127.128.1.0/24"], &["127.128.1.2"]).as_deref(), Some("127.128.1.3"));
        assert_eq!(first(&["10.244.1.0/24", "fd00:1::/64"], &[]).as_deref(), Some("10.244.1.2 fd00:1::2"));
        assert_eq!(first(&["10.244.1.0/30"], &["10.244.1.2"]), None, "full");
        assert_eq!(first(&[], &[]), None, "no pod CIDR yet");
        assert_eq!(first(&["nonsense"], &[]), None);
    }
}
