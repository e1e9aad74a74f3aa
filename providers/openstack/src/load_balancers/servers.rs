//! Nova servers of the nodes behind a load balancer.

use bowline_cloud::Result;
use bowline_core::{IpFamily, TargetNode, TargetSet};

use crate::Config;
use crate::instances::Ids;

/// A server behind a load balancer, and its address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Backend<'a> {
    pub(crate) server: String,
    pub(crate) address: &'a str,
}

/// Returns the servers of the nodes that take traffic. A node is skipped if it has no address of the family, no provider ID yet, or a
/// server in another region, which has no ports here. An invalid provider ID is an error.
pub(crate) fn behind<'a>(
    config: &Config,
    targets: &'a TargetSet,
    family: Option<IpFamily>,
) -> Result<Vec<Backend<'a>>> {
    let ids = Ids::new(&config.global.region, config.regional);
    let staying = targets.iter().filter(|target| !target.draining);
    let backend = |target: &'a TargetNode| {
        let id = target.provider_id.as_ref().filter(|id| !ids.is_elsewhere(id))?;
        let address = target.address(family)?;
        Some(ids.read(id).map(|server| Backend { server, address }))
    };
    staying.filter_map(backend).collect()
}

#[cfg(test)]
mod tests {
    use bowline_core::ProviderId;

    use super::super::testing::node;
    use super::*;

    /// Servers of nodes with these provider IDs.
    fn servers(ids: &[&str]) -> Result<Vec<String>> {
        let mut config = Config::default();
        config.global.region = "R1".to_owned();
        let named = |(number, id): (usize, &&str)| TargetNode {
            provider_id: ProviderId::new(id),
            ..node(&format!("n{number}"), "I10.0.0.5")
        };
        let targets: TargetSet = ids.iter().enumerate().map(named).collect();
        Ok(behind(&config, &targets, None)?.into_iter().map(|backend| backend.server).collect())
    }

    #[test]
    fn ids_are_lowercased_and_servers_of_other_regions_are_skipped() {
        let ids = ["openstack:///8F2C", "openstack://R2/abc", "openstack://R1/abc"];
        assert_eq!(servers(&ids).unwrap(), ["8f2c", "abc"]);
        assert!(servers(&["openstack:///a/b"]).is_err(), "invalid provider ID");
    }
}
