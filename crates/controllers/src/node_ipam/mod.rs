//! The node-ipam-controller (IPAM-1 to IPAM-12): pod ranges for every Node.

use bowline_core::ipam::{ClusterRange, Misfit};
use bowline_runtime::Shutdown;
use ipnet::IpNet;

use crate::Context;

/// The canonical name, in flags and health checks.
pub const NAME: &str = "node-ipam-controller";

/// How the controller is set.
#[derive(Debug, Clone)]
pub struct Options {
    /// `--cluster-cidr` with the masks of `--node-cidr-mask-size…`: one range, or one of each family, in the order given.
    pub ranges: Vec<ClusterRange>,
    /// `--service-cluster-ip-range`: addresses of Services, which no pod may have.
    pub services: Vec<IpNet>,
    /// `--cidr-allocator-type`: who decides.
    pub allocator: AllocatorType,
}

/// Who decides which range a Node gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AllocatorType {
    /// We do (`RangeAllocator`).
    #[default]
    Range,
    /// The cloud does, and we write it to the Node (`CloudAllocator`, `IPAMFromCloud`).
    FromCloud,
    /// We do, and tell the cloud (`IPAMFromCluster`).
    FromCluster,
}

/// Why no ranges can be handed out.
#[derive(Debug, thiserror::Error)]
pub enum IpamError {
    /// Nodes have ranges that they cannot have (IPAM-6).
    #[error("{}", misfits(.0))]
    Misfits(Vec<Misfit>),
}

fn misfits(misfits: &[Misfit]) -> String {
    let each: Vec<String> = misfits.iter().map(ToString::to_string).collect();
    format!(
        "pod ranges cannot be handed out safely: {}; set --cluster-cidr to cover them, or delete and re-register these nodes",
        each.join("; ")
    )
}

/// The controller.
pub struct NodeIpamController {
    _context: Context,
}

impl NodeIpamController {
    /// Listens to the Nodes from now on; works once it [runs](NodeIpamController::run).
    pub fn new(context: Context, options: Options) -> Result<NodeIpamController, prometheus::Error> {
        let _ = (context, options);
        todo!()
    }

    /// Runs until shutdown is requested, and then finishes the writes in hand. Ends early if Nodes have ranges with which
    /// none can be handed out safely.
    pub async fn run(self, shutdown: Shutdown) -> Result<(), IpamError> {
        let _ = shutdown;
        todo!()
    }
}
