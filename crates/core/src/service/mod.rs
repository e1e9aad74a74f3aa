//! The part of a Service that load balancing needs, and all decisions about it.
//!
//! ```text
//!  Service ──► scope: does it need a load balancer, or is one to be cleaned up?  (SVC-2, SVC-3, SVC-16)
//!  Nodes   ──► targets: which Nodes are targets, which are leaving               (SVC-5, drain)
//!  Service, targets ──► desired ──► DesiredLoadBalancer, or the errors of the Service
//!  Node changes ──► node_changes: when the targets are updated
//!  own writes ──► own_writes: writes that the watch has not shown yet, and writes of other controllers
//!  Service, LoadBalancerStatus ──► change ──► ServiceChange ──► one patch        (W-6 to W-8)
//! ```

mod change;
mod condition;
mod desired;
mod excluded;
mod node_changes;
mod own_writes;
mod scope;
mod source_ranges;
mod targets;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::well_known::LOAD_BALANCER_CLEANUP;
use crate::{IpFamily, LoadBalancerStatus, Protocol, SessionAffinity, TrafficPolicy, is_paused};

pub use change::{ConditionChange, FinalizerChange, ServiceChange, status_equal};
pub use condition::{
    FAILED_PORTS_PERIOD, PORTS_FAILED, failed_ports, failed_ports_message, format_timestamp, not_ready_condition,
    ready_condition, unmanaged_condition,
};
pub use desired::{
    ParsedAnnotations, default_load_balancer_name, desired, desired_cleanup, desired_without_targets, health_check,
    read, wants_only_local_traffic,
};
pub use excluded::{ExcludedNodes, Exclusion};
pub use node_changes::{NodeChanges, UpdateDue};
pub use own_writes::{OwnWrites, StatusAction};
pub use scope::{Scope, needs_cleanup, needs_update, wants_load_balancer};
pub(crate) use source_ranges::parse_all as parse_ranges;
pub use source_ranges::{SourceRangeError, is_allow_all, source_ranges};
pub use targets::{
    Leaving, NodeSet, TargetRules, TargetSelection, is_excluded, leaving, may_change_targets, needs_target_update,
    targets,
};

/// A Service of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID, which distinguishes it from an earlier or later Service of the same name.
    pub uid: String,
    /// Resource version that this value was read from.
    pub resource_version: String,
    /// Creation time.
    pub created: Option<Timestamp>,
    /// Whether the Service has a deletion timestamp.
    pub deleting: bool,
    /// All annotations.
    pub annotations: Arc<BTreeMap<String, String>>,
    /// All finalizers, in their order.
    pub finalizers: Vec<String>,
    /// `spec.type`.
    pub kind: ServiceType,
    /// `spec.loadBalancerClass`.
    pub class: Option<String>,
    /// `spec.ports`.
    pub ports: Vec<ServicePort>,
    /// `spec.loadBalancerSourceRanges`, as written.
    pub source_ranges: Vec<String>,
    /// `spec.externalIPs`.
    pub external_ips: Vec<String>,
    /// `spec.loadBalancerIP`.
    pub load_balancer_ip: Option<String>,
    /// `spec.sessionAffinity` and its configuration.
    pub session_affinity: SessionAffinity,
    /// `spec.externalTrafficPolicy`.
    pub traffic_policy: TrafficPolicy,
    /// `spec.healthCheckNodePort`.
    pub health_check_node_port: Option<u16>,
    /// `spec.ipFamilies`.
    pub ip_families: Vec<IpFamily>,
    /// `status.loadBalancer`.
    pub status: LoadBalancerStatus,
    /// `status.conditions`, all of them.
    pub conditions: Vec<Condition>,
}

/// Namespace and name of a Service. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServiceKey {
    /// Namespace.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
}

/// `spec.type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum ServiceType {
    /// Reachable inside the cluster only. The default.
    #[default]
    ClusterIP,
    /// Reachable on a port of every Node.
    NodePort,
    /// Reachable through a load balancer.
    LoadBalancer,
    /// Alias of a DNS name.
    ExternalName,
}

/// One entry of `spec.ports`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServicePort {
    /// Name; may be empty.
    pub name: String,
    /// Transport protocol.
    pub protocol: Protocol,
    /// Port that clients connect to.
    pub port: u16,
    /// Node port; `None` if none is allocated.
    pub node_port: Option<u16>,
    /// Port of the Pods.
    pub target_port: TargetPort,
    /// Application protocol (`appProtocol`), if the user set one.
    pub app_protocol: Option<String>,
}

/// `targetPort`: the number 80 and the string "80" are different.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetPort {
    /// Port number.
    Number(i64),
    /// Name of a port of the Pods.
    Name(String),
}

/// One entry of `status.conditions`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Condition type.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Machine-readable reason, as one CamelCase word.
    pub reason: String,
    /// Human-readable message.
    pub message: String,
    /// Time of the last change of the status, kept as text so that it is written back unchanged.
    pub last_transition_time: String,
}

impl Service {
    /// Returns the namespace and name.
    pub fn key(&self) -> ServiceKey {
        ServiceKey { namespace: self.namespace.as_str().into(), name: self.name.as_str().into() }
    }

    /// Returns whether the Service has Bowline's finalizer.
    pub fn has_finalizer(&self) -> bool {
        self.finalizers.iter().any(|finalizer| finalizer == LOAD_BALANCER_CLEANUP)
    }

    /// Returns whether an operator has paused the Service with the annotation `bowline.dev/paused`.
    pub fn is_paused(&self) -> bool {
        is_paused(&self.annotations)
    }

    /// Returns the condition of this type.
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.kind == kind)
    }
}

/// Formats as `namespace/name`.
impl fmt::Display for ServiceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Parses `namespace/name` (WQ-4).
impl std::str::FromStr for ServiceKey {
    type Err = String;

    // upstream: the error message.
    fn from_str(text: &str) -> Result<ServiceKey, String> {
        match text.split('/').collect::<Vec<_>>().as_slice() {
            [namespace, name] => Ok(ServiceKey { namespace: (*namespace).into(), name: (*name).into() }),
            _ => Err(format!("unexpected key format: {text:?}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::service;

    #[test]
    fn s08_a_key_has_two_parts() {
        for text in ["invalid/key/string", "name", "", "a/b/"] {
            let error = text.parse::<ServiceKey>().unwrap_err();
            assert_eq!(error, format!("unexpected key format: {text:?}"), "S8");
        }
        let key: ServiceKey = "default/web".parse().unwrap();
        assert_eq!((key.to_string(), &key), ("default/web".to_owned(), &service("default/web").key()));
    }

    #[test]
    fn a_condition_is_serialised_as_in_kubernetes() {
        let text =
            r#"{"type":"A","status":"True","reason":"B","message":"c","lastTransitionTime":"2026-01-02T03:04:05Z"}"#;
        let condition: Condition = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&condition).unwrap(), text);
    }
}
