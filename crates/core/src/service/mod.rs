//! A Service as far as balancing load cares, and every decision about it.
//!
//! ```text
//!  Service ──► scope: is a balancer wanted, or is one to be cleaned up?        (SVC-2, SVC-3, SVC-16)
//!  Nodes   ──► targets: who is behind it, who is leaving                       (SVC-5, drain)
//!  Service, targets ──► wish ──► LoadBalancerWish, or what is wrong with the Service
//!  changes of Nodes ──► node_changes: when the targets are updated
//!  own writes ──► own_writes: what the watch does not show yet, and what others wrote
//!  Service, LoadBalancerStatus ──► change ──► ServiceChange ──► one patch      (W-6 to W-8)
//! ```

mod change;
mod condition;
mod desired;
mod left_out;
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
    FAILED_PORTS_PERIOD, PORTS_FAILED, failed_ports, failed_ports_message, in_seconds, not_ready_condition,
    ready_condition,
};
pub use desired::{
    Reading, default_load_balancer_name, desired, desired_cleanup, health_check, read, wants_only_local_traffic,
};
pub use left_out::{Exclusion, LeftOut};
pub use node_changes::{NodeChanges, UpdateDue};
pub use own_writes::{OwnWrites, StatusAction};
pub use scope::{Scope, needs_cleanup, needs_update, wants_load_balancer};
pub(crate) use source_ranges::parse_all as parse_ranges;
pub use source_ranges::{SourceRangeError, is_allow_all, source_ranges};
pub use targets::{Choice, Leaving, NodeSet, TargetRules, is_excluded, leaving, may_change_targets, targets, triggers};

/// What we know of a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Tells it from an earlier or later Service of the same name.
    pub uid: String,
    /// The state that the rest of this value was read from.
    pub resource_version: String,
    /// When it was made.
    pub created: Option<Timestamp>,
    /// Somebody asked for its deletion.
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

/// Which Service: its namespace and name. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServiceKey {
    /// The namespace.
    pub namespace: Arc<str>,
    /// The name.
    pub name: Arc<str>,
}

/// `spec.type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum ServiceType {
    /// Reached inside the cluster; also what a missing type means.
    #[default]
    ClusterIP,
    /// Reached on a port of every node.
    NodePort,
    /// Reached through a balancer.
    LoadBalancer,
    /// An alias of a name.
    ExternalName,
}

/// One entry of `spec.ports`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServicePort {
    /// Its name; may be empty.
    pub name: String,
    /// What is spoken.
    pub protocol: Protocol,
    /// Where clients connect.
    pub port: u16,
    /// Where it is reached on a node; `None` if none is allotted.
    pub node_port: Option<u16>,
    /// Where it goes in the pod.
    pub target_port: TargetPort,
    /// What is spoken above, if the user said so.
    pub app_protocol: Option<String>,
}

/// `targetPort`: the number 80 and the text "80" are not the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetPort {
    /// A number.
    Number(i64),
    /// The name of a port of the pod.
    Name(String),
}

/// One entry of `status.conditions`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What it is about.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// A CamelCase word for programs.
    pub reason: String,
    /// For people.
    pub message: String,
    /// When the status last changed, as Kubernetes writes times; kept as text, so that writing it back changes nothing.
    pub last_transition_time: String,
}

impl Service {
    /// Which one it is.
    pub fn key(&self) -> ServiceKey {
        ServiceKey { namespace: self.namespace.as_str().into(), name: self.name.as_str().into() }
    }

    /// It has our finalizer.
    pub fn has_finalizer(&self) -> bool {
        self.finalizers.iter().any(|finalizer| finalizer == LOAD_BALANCER_CLEANUP)
    }

    /// An operator wants no controller to touch it for now.
    pub fn is_paused(&self) -> bool {
        is_paused(&self.annotations)
    }

    /// The condition of this type.
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.kind == kind)
    }
}

/// `namespace/name`, as the store has it.
impl fmt::Display for ServiceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// From `namespace/name` (WQ-4).
impl std::str::FromStr for ServiceKey {
    type Err = String;

    // upstream: the words of the error.
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
    fn a_condition_is_written_as_kubernetes_has_it() {
        let text =
            r#"{"type":"A","status":"True","reason":"B","message":"c","lastTransitionTime":"2026-01-02T03:04:05Z"}"#;
        let condition: Condition = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&condition).unwrap(), text);
    }
}
