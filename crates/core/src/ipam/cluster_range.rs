//! A range of the cluster, cut into blocks of one size (IPAM-3, IPAM-5).

use ipnet::IpNet;

/// A range, and the size of the blocks that it is cut into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClusterRange {
    cluster: IpNet,
    node_mask: u8,
}

/// Why a range cannot be cut like that.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RangeProblem {
    /// A block would be larger than the range.
    #[error("blocks of /{node_mask} are larger than the range {cluster}")]
    BlockTooLarge {
        /// The range.
        cluster: IpNet,
        /// The mask.
        node_mask: u8,
    },
    /// The mask is longer than an address.
    #[error("a mask of /{node_mask} is longer than the addresses of {cluster}")]
    NoSuchMask {
        /// The range.
        cluster: IpNet,
        /// The mask.
        node_mask: u8,
    },
    /// Too many blocks, for IPv6.
    // upstream: more than 16 bits of blocks are refused for IPv6, "the node CIDR size is too big".
    #[error("New CIDR set failed; the node CIDR size is too big: {cluster} has more than 65536 blocks of /{node_mask}")]
    TooManyBlocks {
        /// The range.
        cluster: IpNet,
        /// The mask.
        node_mask: u8,
    },
}

impl ClusterRange {
    /// This range in blocks of this size; host bits are cleared.
    pub fn new(cluster: IpNet, node_mask: u8) -> Result<ClusterRange, RangeProblem> {
        let _ = (cluster, node_mask);
        todo!()
    }

    /// The range.
    pub fn cluster(&self) -> IpNet {
        self.cluster
    }

    /// The size of its blocks.
    pub fn node_mask(&self) -> u8 {
        self.node_mask
    }

    /// How many blocks it has.
    pub fn blocks(&self) -> u64 {
        todo!()
    }

    /// The block of this number.
    pub fn block(&self, number: u64) -> Option<IpNet> {
        let _ = number;
        todo!()
    }
}
