//! Domain types and decision functions of Bowline: plain values and pure functions.
//!
//! This crate depends on no Kubernetes client, HTTP library or async runtime. Controllers observe the cluster and the cloud
//! (through `bowline-kube` and `bowline-cloud`), pass the observed state to a function of this crate, and apply the value that it
//! returns:
//!
//! ```text
//!  Node, Instance ──► initialize::decide ──► NodeChange ──► one patch
//!  Node, Instance ──► addresses::decide  ──► Option<Vec<Address>> ──► one status patch
//!  Service, Nodes ──► service::desired ──► DesiredLoadBalancer ──► (the provider's plan function) ──► Plan
//!  Nodes, RouteTable ──► routes::decide ──► NodePlan ──► routes created and deleted, one status patch
//!  Node, Allocator ──► Allocator::allocate ──► pod CIDRs ──► one patch
//!  Fleet, lookup results, Memory, now ──► lifecycle::decide, then ::conclude ──► Decision, Conclusion ──► taints, deletions
//! ```
//!
//! Every rule can therefore be tested as a table of cases, and a dry run only prints the returned value.

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
mod keywords;
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
pub mod wire;

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
pub use operation::{Operation, PollInterval, Progress};
pub use pause::{invalid_pause, is_paused};
pub use plan::{FieldChange, FieldChanges, Plan, PlanError, Step, Verb, Warning};
pub use route::{Route, RouteSpec};
pub use service::{Service, ServiceKey, ServiceType};
pub use target_set::{TargetChanges, TargetSet};
