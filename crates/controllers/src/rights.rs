//! What the manager asks of the API server, and under whose name.

use std::collections::BTreeMap;

use bowline_kube::{Cluster, Notes, Right, WATCH_NODES, WATCH_SERVICES};

use crate::manager::ManagerOptions;
use crate::{node, node_ipam, node_lifecycle, provider_loops, route, service};

/// What is asked, by who asks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rights {
    /// Under the name of the process.
    pub process: Vec<Right>,
    /// Under the name of a controller's client, where each has an identity of its own.
    pub controllers: BTreeMap<&'static str, Vec<Right>>,
}

impl Rights {
    /// Of the controllers that are switched on here. Whether their clouds can do anything does not count: that may change
    /// with the cloud's configuration.
    pub fn of(options: &ManagerOptions) -> Rights {
        let mut rights = Rights { process: vec![WATCH_NODES], ..Rights::default() };
        if options.watches_services() {
            rights.process.push(WATCH_SERVICES);
        }
        if options.node_lifecycle.is_some() {
            rights.process.extend_from_slice(Notes::RIGHTS);
        }
        if options.route.is_some() {
            rights.process.push(Cluster::READ_UID);
        }
        for (client, asked) in switched_on(options) {
            rights.controllers.entry(client).or_default().extend_from_slice(asked);
        }
        rights
    }

    /// All of it under the name of the process: there is no other without `--use-service-account-credentials`.
    pub fn of_one(&self) -> Vec<Right> {
        self.process.iter().chain(self.controllers.values().flatten()).cloned().collect()
    }
}

fn switched_on(options: &ManagerOptions) -> impl Iterator<Item = (&'static str, &'static [Right])> {
    let all = [
        (options.node.is_some(), node::CLIENT, node::RIGHTS),
        (options.node_lifecycle.is_some(), node_lifecycle::CLIENT, node_lifecycle::RIGHTS),
        (options.node_ipam.is_some(), node_ipam::CLIENT, node_ipam::RIGHTS),
        (ranges_are_the_clouds(options), node_ipam::CLIENT, node_ipam::RIGHTS_WITH_CLOUD),
        (options.route.is_some(), route::CLIENT, route::RIGHTS),
        (options.service.is_some(), service::CLIENT, service::RIGHTS),
        (options.provider_loops.is_some(), provider_loops::CLIENT, provider_loops::RIGHTS),
    ];
    all.into_iter().filter_map(|(is_on, client, rights)| is_on.then_some((client, rights)))
}

fn ranges_are_the_clouds(options: &ManagerOptions) -> bool {
    options.node_ipam.as_ref().is_some_and(|options| options.allocator != node_ipam::AllocatorType::Range)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_switched_off_asks_for_nothing() {
        let options = ManagerOptions { service: None, node_lifecycle: None, ..ManagerOptions::default() };
        let rights = Rights::of(&options);
        assert_eq!(rights.controllers.keys().collect::<Vec<_>>(), [&"node-controller"]);
        let asked = rights.of_one();
        assert!(asked.iter().all(|right| !right.resource.starts_with("services")), "{asked:?}");
        assert!(asked.iter().all(|right| !right.verbs.contains(&"delete")), "{asked:?}");
    }

    #[test]
    fn only_leases_are_replaced_and_no_controller_needs_all_verbs() {
        let rights = Rights::of(&ManagerOptions::default()).of_one();
        let has = |right: &Right, verb| right.verbs.contains(&verb);
        assert!(rights.iter().all(|right| right.resource == "leases" || !has(right, "update")), "{rights:?}");
        assert!(rights.iter().all(|right| !has(right, "*")), "{rights:?}");
    }
}
