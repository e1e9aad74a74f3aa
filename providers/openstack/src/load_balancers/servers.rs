//! The servers that are the nodes behind a balancer.

use bowline_cloud::Result;
use bowline_core::{IpFamily, TargetNode};

use super::nodes;
use crate::Config;
use crate::instances::Ids;

/// A server behind a balancer, and where it is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Backend<'a> {
    pub(crate) server: String,
    pub(crate) address: &'a str,
}

/// Those of these nodes that take traffic. A node without an address of the family is passed over, and so is one of which nobody
/// has said yet which server it is; a provider ID that makes no sense is an error.
pub(crate) fn behind<'a>(
    config: &Config,
    targets: &'a [TargetNode],
    family: Option<IpFamily>,
) -> Result<Vec<Backend<'a>>> {
    let ids = Ids::new(&config.global.region, config.regional);
    let staying = targets.iter().filter(|target| !target.draining);
    let backend = |target: &'a TargetNode| {
        let (id, address) = target.provider_id.as_ref().zip(nodes::address(target, family))?;
        Some(ids.read(id).map(|server| Backend { server, address }))
    };
    staying.filter_map(backend).collect()
}
