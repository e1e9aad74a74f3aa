//! RBAC permissions of the manager, by service account.

use std::collections::BTreeMap;

use bowline_kube::{Cluster, Notes, Permission, WATCH_NODES, WATCH_SERVICES};

use crate::manager::ManagerOptions;
use crate::{node, node_ipam, node_lifecycle, provider_loops, route, service};

/// Permissions by client.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Permissions {
    /// Permissions of the process's own client.
    pub process: Vec<Permission>,
    /// Permissions by controller client, with `--use-service-account-credentials`.
    pub controllers: BTreeMap<&'static str, Vec<Permission>>,
}

impl Permissions {
    /// Permissions of the enabled controllers, regardless of what their clouds support: that may change with a cloud's
    /// configuration.
    pub fn of(options: &ManagerOptions) -> Permissions {
        let mut permissions = Permissions { process: vec![WATCH_NODES], ..Permissions::default() };
        if options.watches_services() {
            permissions.process.push(WATCH_SERVICES);
        }
        if options.node_lifecycle.is_some() {
            permissions.process.extend_from_slice(Notes::PERMISSIONS);
        }
        if options.route.is_some() {
            permissions.process.push(Cluster::READ_UID);
        }
        for (client, needed) in enabled(options) {
            permissions.controllers.entry(client).or_default().extend_from_slice(needed);
        }
        permissions
    }

    /// All permissions for the process's client, which is the only one without `--use-service-account-credentials`.
    pub fn of_one(&self) -> Vec<Permission> {
        self.process.iter().chain(self.controllers.values().flatten()).cloned().collect()
    }
}

fn enabled(options: &ManagerOptions) -> impl Iterator<Item = (&'static str, &'static [Permission])> {
    let all = [
        (options.node.is_some(), node::CLIENT, node::PERMISSIONS),
        (options.node_lifecycle.is_some(), node_lifecycle::CLIENT, node_lifecycle::PERMISSIONS),
        (options.node_ipam.is_some(), node_ipam::CLIENT, node_ipam::PERMISSIONS),
        (uses_cloud_allocator(options), node_ipam::CLIENT, node_ipam::PERMISSIONS_WITH_CLOUD),
        (options.route.is_some(), route::CLIENT, route::PERMISSIONS),
        (options.service.is_some(), service::CLIENT, service::PERMISSIONS),
        (options.provider_loops.is_some(), provider_loops::CLIENT, provider_loops::PERMISSIONS),
    ];
    all.into_iter().filter_map(|(is_on, client, permissions)| is_on.then_some((client, permissions)))
}

fn uses_cloud_allocator(options: &ManagerOptions) -> bool {
    options.node_ipam.as_ref().is_some_and(|options| options.allocator != node_ipam::AllocatorType::Range)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disabled_controller_needs_no_permission() {
        let options = ManagerOptions { service: None, node_lifecycle: None, ..ManagerOptions::default() };
        let permissions = Permissions::of(&options);
        assert_eq!(permissions.controllers.keys().collect::<Vec<_>>(), [&"node-controller"]);
        let needed = permissions.of_one();
        assert!(needed.iter().all(|permission| !permission.resource.starts_with("services")), "{needed:?}");
        assert!(needed.iter().all(|permission| !permission.verbs.contains(&"delete")), "{needed:?}");
    }

    #[test]
    fn only_leases_are_replaced_and_no_controller_needs_all_verbs() {
        let permissions = Permissions::of(&ManagerOptions::default()).of_one();
        let has = |permission: &Permission, verb| permission.verbs.contains(&verb);
        assert!(
            permissions.iter().all(|permission| permission.resource == "leases" || !has(permission, "update")),
            "{permissions:?}"
        );
        assert!(permissions.iter().all(|permission| !has(permission, "*")), "{permissions:?}");
    }
}
