//! What holding a Lease takes.

use super::LeaseOptions;
use crate::rights::{Right, Scope};

impl LeaseOptions {
    /// To take this Lease and to keep it. RBAC cannot bind creation to a name, as there is none yet when it is asked.
    pub fn rights(&self) -> Vec<Right> {
        let (namespace, name) = (self.namespace.clone().into(), self.name.clone().into());
        let lease = |verbs, scope, why| Right { group: "coordination.k8s.io", resource: "leases", verbs, scope, why };
        let create = Scope::Namespace(self.namespace.clone().into());
        vec![
            lease(&["create"], create, "to make the Lease if there is none yet"),
            lease(&["get", "update"], Scope::Named(namespace, name), "to take the Lease that leads, and to keep it"),
        ]
    }
}
