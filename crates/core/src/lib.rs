//! Bowline's vocabulary and its decisions: plain values and pure functions.
//!
//! Nothing here knows a Kubernetes client, HTTP or a runtime. Controllers observe (through `bowline-kube` and
//! `bowline-cloud`), hand what they saw to a function of this crate, and apply the value it returns:
//!
//! ```text
//!  Node, InstanceState ──► initialize::decide ──► NodeChange ──► one patch
//!  Node, InstanceState ──► addresses::decide  ──► Option<Vec<Address>> ──► one status patch
//!  Service, Nodes ──► service::wish ──► LoadBalancerWish ──► (a provider's plan) ──► Plan
//!  Nodes, Table of routes ──► routes::decide ──► NodePlan ──► routes made and removed, one status patch
//!  Node, Allocator ──► Allocator::allocate ──► pod ranges ──► one patch
//!  Nodes, Answers, Memory, now ──► lifecycle::decide, then ::conclude ──► Verdict, Conclusion ──► taints, deletions
//! ```
//!
//! That makes every rule testable as a table, and a dry run a matter of printing the value.

mod address_policy;
pub mod addresses;
pub mod annotations;
mod boolean;
mod causes;
mod cidr;
mod duration;
mod error_kind;
pub mod initialize;
mod instance;
pub mod ipam;
mod label;
pub mod lifecycle;
mod load_balancer;
mod merge;
mod names;
mod nearest;
mod node;
pub mod node_annotations;
mod opaque;
mod operation;
mod pause;
mod plan;
mod route;
pub mod routes;
pub mod service;
mod target_set;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod well_known;

pub use address_policy::AddressPolicy;
pub use boolean::parse_bool;
pub use causes::with_causes;
pub use cidr::{canonical_cidr, parse_cidr};
pub use duration::{format_duration, parse_duration};
pub use error_kind::{ErrorKind, Retry};
pub use instance::{Instance, InstanceRef, InstanceState};
pub use label::{is_label_value, label_value};
pub use load_balancer::{
    DesiredLoadBalancer, HealthCheck, Ingress, IpFamily, IpMode, LoadBalancerKey, LoadBalancerSpec, LoadBalancerState,
    LoadBalancerStatus, PortSpec, PortStatus, Protocol, SessionAffinity, TargetNode, TrafficPolicy,
};
pub use merge::{Merged, merge_sorted};
pub use names::{ClusterName, NodeName, ProviderId};
pub use nearest::nearest;
pub use node::{Address, AddressType, NetworkCondition, Node, Ready, Taint};
pub use opaque::Opaque;
pub use operation::{Operation, Pacing, Progress};
pub use pause::{invalid_pause, is_paused};
pub use plan::{FieldChange, Plan, PlanError, Step, Verb, Warning};
pub use route::{Route, RouteSpec};
pub use service::{Service, ServiceKey, ServiceType};
pub use target_set::{TargetChanges, TargetSet};
