//! The contract between Bowline and a cloud.
//!
//! A provider is a value that implements [`CloudProvider`]: it says what it is ([`ProviderInfo`]), what it can do
//! ([`Capabilities`], as data with numbers), and hands out [`Instances`], [`LoadBalancers`], [`Routes`] and
//! [loops](ProviderLoop) as far as it has them. It sees no Kubernetes client, no queue and no clock; it gets plain values of `bowline-core` and returns
//! plain values or an [`Error`].
//!
//! Everything that every provider needs is a layer, written once and wrapped around each in the same order, outermost
//! first:
//!
//! ```text
//!  controller
//!     │   Clouds       which provider a node belongs to; asks each about its own
//!     ▼
//!  start       fails until the cloud has started, with the cause
//!  observe     traces and metrics: every question, how long, how it ended
//!  capability  what the cloud cannot do is refused before any call
//!  dry run     writes are printed, not made
//!  cache       questions in flight are shared, answers reused within a bound; batches are cut to the provider's size
//!  batches     writes of routes are combined, and run one after the other where they share a lock
//!  places      no more operations at once than the provider's capabilities say
//!     ▼
//!  provider
//!     │
//!     ▼
//!  Calls       every HTTP call: pauses (Retry-After), rate, fence, timeout, back-off, metrics; each attempt takes a token
//! ```
//!
//! Nothing is global: a [`Registry`] is built by the program and passed in.

pub mod calls;
mod capabilities;
mod clouds;
mod error;
#[cfg(test)]
mod fake;
mod instances;
pub mod layers;
mod load_balancers;
mod locks;
mod loops;
mod paging;
mod provider;
mod registry;
mod reload;
mod routes;
mod secrets;
mod service_routing;
mod start;
mod sync_metrics;

pub use calls::{Call, CallPolicy, Calls, Effect};
pub use capabilities::{
    Absence, Capabilities, InstanceCapabilities, LoadBalancerCapabilities, LoadBalancerKind, RouteCapabilities,
};
pub use clouds::{Cloud, Clouds, Indexed, NoOwner, Ownership};
pub use error::{Error, ErrorKind, KnownState, Result, Retry};
pub use instances::{Freshness, Identity, InstancePage, Instances, PageToken, SingleLookup};
pub use load_balancers::{Applied, LoadBalancers, TypedLoadBalancers};
pub use locks::{Guard, Locks, Moment};
pub use loops::{ClusterSnapshot, LoopOutcome, ProviderLoop};
pub use paging::PageGuard;
pub use provider::{CloudProvider, Finding, ProviderInfo, Quota};
pub use registry::{Build, BuildContext, ConfigLocation, Factory, Reference, Registry, Surroundings};
pub use reload::Reloading;
pub use routes::{OneRoutePerCall, Routes};
pub use secrets::{SecretData, SecretRef};
pub use service_routing::{DefaultCloud, Routing, RoutingError};
pub use start::{Facts, Readiness};
pub use sync_metrics::{SyncMetricNames, SyncMetrics, SyncPurpose, share};

/// The provider in the page for authors who come from Go is a test.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/explanation/from-go.md")]
struct FromGo;
