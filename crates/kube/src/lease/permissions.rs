//! What holding a Lease takes.

use std::borrow::Cow;

use super::LeaseOptions;
use crate::permissions::{Permission, Scope};

impl LeaseOptions {
    /// To take this Lease and to keep it. RBAC cannot bind creation to a name, as there is none yet when it is asked.
    pub fn permissions(&self) -> Vec<Permission> {
        let (namespace, name): (Cow<'static, str>, _) = (self.namespace.clone().into(), Cow::from(self.name.clone()));
        let group = "coordination.k8s.io";
        let lease = |verbs, scope, why| Permission { group, resource: "leases", verbs, scope, why, without: None };
        let create = Scope::Namespace(namespace.clone());
        vec![
            lease(&["create"], create, "to make the Lease if there is none yet"),
            lease(
                &["get", "update"],
                Scope::Named(namespace.clone(), name.clone()),
                "to take the Lease, and to keep it",
            ),
            lease(&["watch"], Scope::Named(namespace.clone(), name), "to hear at once when the Lease is free")
                .without("whether the Lease is free is asked every --leader-elect-retry-period"),
            Permission {
                group: "",
                resource: "events",
                verbs: &["create"],
                scope: Scope::Namespace(namespace),
                why: "to say who leads",
                without: None,
            },
        ]
    }
}
