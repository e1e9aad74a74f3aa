//! A cluster CIDR, divided into blocks of equal size (IPAM-3, IPAM-5).

use std::net::{IpAddr, Ipv6Addr};
use std::ops::Range;

use ipnet::IpNet;

/// Maximum number of bits of block numbers for IPv6.
const MAX_BLOCK_BITS_V6: u8 = 16;

/// A cluster CIDR and the prefix length of its blocks, which become pod CIDRs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClusterCidr {
    cluster: IpNet,
    node_mask: u8,
}

/// Invalid combination of a cluster CIDR and a node mask size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClusterCidrError {
    /// A block would be larger than the cluster CIDR.
    #[error("blocks of /{node_mask} are larger than the cluster CIDR {cluster}")]
    BlockTooLarge {
        /// Cluster CIDR.
        cluster: IpNet,
        /// Node mask size.
        node_mask: u8,
    },
    /// The mask size exceeds the length of an address.
    #[error("a mask of /{node_mask} is longer than the addresses of {cluster}")]
    NoSuchMask {
        /// Cluster CIDR.
        cluster: IpNet,
        /// Node mask size.
        node_mask: u8,
    },
    /// An IPv6 cluster CIDR would have too many blocks.
    // upstream: rejects more than 16 bits of blocks for IPv6, "the node CIDR size is too big".
    #[error("New CIDR set failed; the node CIDR size is too big: {cluster} has more than 65536 blocks of /{node_mask}")]
    TooManyBlocks {
        /// Cluster CIDR.
        cluster: IpNet,
        /// Node mask size.
        node_mask: u8,
    },
}

impl ClusterCidr {
    /// Divides a cluster CIDR into blocks with prefix length `node_mask`. Host bits are cleared.
    pub fn new(cluster: IpNet, node_mask: u8) -> Result<ClusterCidr, ClusterCidrError> {
        let cluster = cluster.trunc();
        if node_mask > cluster.max_prefix_len() {
            return Err(ClusterCidrError::NoSuchMask { cluster, node_mask });
        }
        let Some(bits) = node_mask.checked_sub(cluster.prefix_len()) else {
            return Err(ClusterCidrError::BlockTooLarge { cluster, node_mask });
        };
        if bits > MAX_BLOCK_BITS_V6 && matches!(cluster, IpNet::V6(_)) {
            return Err(ClusterCidrError::TooManyBlocks { cluster, node_mask });
        }
        Ok(ClusterCidr { cluster, node_mask })
    }

    /// Returns the cluster CIDR.
    pub fn cluster(&self) -> IpNet {
        self.cluster
    }

    /// Returns the prefix length of the blocks.
    pub fn node_mask(&self) -> u8 {
        self.node_mask
    }

    /// Returns the number of blocks.
    pub fn blocks(&self) -> u64 {
        // `new` guarantees at most 32 bits.
        1 << (self.node_mask - self.cluster.prefix_len())
    }

    /// Returns the block with this number.
    pub fn block(&self, number: u64) -> Option<IpNet> {
        if number >= self.blocks() {
            return None;
        }
        // A shift by all 128 bits happens only for a single block, whose number is 0.
        let offset = u128::from(number).checked_shl(self.block_bits()).unwrap_or(0);
        let address = address_at(self.cluster, bits_of(self.cluster.network()) + offset)?;
        IpNet::new(address, self.node_mask).ok()
    }

    /// Returns the numbers of the blocks that a CIDR overlaps. It may be inside one block, or cover several or all blocks. `None`
    /// if it overlaps none.
    pub(super) fn numbers(&self, range: IpNet) -> Option<Range<u64>> {
        if self.cluster.contains(&range) {
            Some(self.number(range.network()).min(self.last())..self.number(range.broadcast()).min(self.last()) + 1)
        } else {
            range.contains(&self.cluster).then(|| 0..self.blocks())
        }
    }

    /// Returns the number of the block that contains an address.
    fn number(&self, address: IpAddr) -> u64 {
        let offset = bits_of(address).saturating_sub(bits_of(self.cluster.network()));
        u64::try_from(offset.checked_shr(self.block_bits()).unwrap_or(0)).unwrap_or(u64::MAX)
    }

    fn last(&self) -> u64 {
        self.blocks() - 1
    }

    /// Returns the number of host bits of a block.
    fn block_bits(&self) -> u32 {
        u32::from(self.cluster.max_prefix_len() - self.node_mask)
    }
}

fn bits_of(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address),
    }
}

/// Returns the address with these bits, in the family of `range`.
fn address_at(range: IpNet, bits: u128) -> Option<IpAddr> {
    match range {
        IpNet::V4(_) => Some(IpAddr::V4(u32::try_from(bits).ok()?.into())),
        IpNet::V6(_) => Some(IpAddr::V6(Ipv6Addr::from(bits))),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn range(cluster: &str, node_mask: u8) -> ClusterCidr {
        ClusterCidr::new(cluster.parse().unwrap(), node_mask).unwrap()
    }

    #[test]
    fn i15_i16_blocks_are_numbered_from_the_start_of_the_cluster_cidr() {
        let cases = [
            ("I15", "127.123.0.0/16", 24, 15, "127.123.15.0/24"),
            ("I15", "192.168.5.219/28", 32, 5, "192.168.5.213/32"),
            ("I16", "2001:db8:1234:ff00::/56", 72, 15, "2001:db8:1234:ff00:f00::/72"),
            ("first", "10.0.0.0/8", 24, 0, "10.0.0.0/24"),
            ("last", "10.0.0.0/8", 24, 65535, "10.255.255.0/24"),
            ("all of IPv4", "0.0.0.0/0", 32, u64::from(u32::MAX), "255.255.255.255/32"),
            ("one block of everything", "::/0", 0, 0, "::/0"),
            ("one block of everything", "0.0.0.0/0", 0, 0, "0.0.0.0/0"),
        ];
        for (case, cluster, node_mask, number, expected) in cases {
            let range = range(cluster, node_mask);
            assert_eq!(range.block(number), Some(expected.parse().unwrap()), "{case}");
            assert_eq!(range.block(range.blocks()), None, "{case}: no block after the last");
        }
    }

    #[test]
    fn i12_an_invalid_node_mask_size_is_rejected_with_the_reason() {
        let cases = [
            ("I12", "2001:db8::/32", 49, "the node CIDR size is too big"),
            (
                "shorter than the cluster CIDR",
                "10.0.0.0/16",
                15,
                "blocks of /15 are larger than the cluster CIDR 10.0.0.0/16",
            ),
            ("shorter than the cluster CIDR", "2001:db8::/64", 63, "larger than the cluster CIDR"),
            ("too long for IPv4", "10.0.0.0/8", 33, "longer than the addresses"),
            ("too long for IPv6", "2001:db8::/120", 129, "longer than the addresses"),
        ];
        for (case, cluster, node_mask, expected) in cases {
            let error = ClusterCidr::new(cluster.parse().unwrap(), node_mask).unwrap_err();
            assert!(error.to_string().contains(expected), "{case}: {error}");
        }
        assert_eq!(range("2001:db8::/32", 48).blocks(), 65536, "I12: 16 bits are allowed");
        assert_eq!(range("0.0.0.0/0", 32).blocks(), 1 << 32, "IPv4 has no such limit");
    }

    #[test]
    fn i10_i18_i19_a_cidr_overlaps_these_blocks() {
        let cases = [
            ("I18", "127.0.0.0/7", 16, "127.0.0.0/15", Some(256..258)),
            ("I19", "10.10.0.0/16", 24, "10.0.0.0/8", Some(0..256)),
            ("I19, the same CIDR", "10.10.0.0/16", 24, "10.10.0.0/16", Some(0..256)),
            ("one block", "10.10.0.0/16", 24, "10.10.3.0/24", Some(3..4)),
            ("inside a block", "10.10.0.0/16", 24, "10.10.3.128/30", Some(3..4)),
            ("I10, larger than the cluster", "a00::/86", 102, "a00::/86", Some(0..65536)),
            ("outside", "10.10.0.0/16", 24, "172.10.0.0/24", None),
            ("the other family", "10.10.0.0/16", 24, "a00::/86", None),
            ("everything", "::/0", 16, "::/0", Some(0..65536)),
            ("the last of everything", "0.0.0.0/0", 32, "255.255.255.255/32", Some(4_294_967_295..4_294_967_296)),
        ];
        for (case, cluster, node_mask, part, expected) in cases {
            assert_eq!(range(cluster, node_mask).numbers(part.parse().unwrap()), expected, "{case}");
        }
    }

    proptest! {
        #[test]
        fn a_block_overlaps_only_itself(
            address in any::<u32>(), mask in 0..=32_u8, more in 0..=32_u8, number in any::<u64>(),
        ) {
            let cluster = IpNet::new(IpAddr::V4(address.into()), mask).unwrap();
            let range = ClusterCidr::new(cluster, (mask + more).min(32)).unwrap();
            let number = number % range.blocks();
            let block = range.block(number).unwrap();
            prop_assert!(range.cluster().contains(&block));
            prop_assert_eq!(range.numbers(block), Some(number..number + 1));
        }
    }
}
