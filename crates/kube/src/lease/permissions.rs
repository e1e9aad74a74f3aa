//! Permissions for leader election.

use std::borrow::Cow;

use super::LeaseOptions;
use crate::permissions::{Permission, Scope};

impl LeaseOptions {
    /// Permissions to acquire and renew this Lease. RBAC cannot restrict `create` by name: authorization happens before the name is
    /// known.
    pub fn permissions(&self) -> Vec<Permission> {
        let (namespace, name): (Cow<'static, str>, _) = (self.namespace.clone().into(), Cow::from(self.name.clone()));
        let group = "coordination.k8s.io";
        let lease = |verbs, scope, why| Permission { group, resource: "leases", verbs, scope, why, without: None };
        let create = Scope::Namespace(namespace.clone());
        vec![
            lease(&["create"], create, "create the Lease if it does not exist"),
            lease(&["get", "update"], Scope::Named(namespace.clone(), name.clone()), "acquire and renew the Lease"),
            lease(&["watch"], Scope::Named(namespace.clone(), name), "acquire the Lease as soon as it is released")
                .without("the Lease is polled every --leader-elect-retry-period"),
            Permission {
                group: "",
                resource: "events",
                verbs: &["create"],
                scope: Scope::Namespace(namespace),
                why: "record changes of the leader as Events",
                without: None,
            },
        ]
    }
}
