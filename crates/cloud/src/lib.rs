//! The contract between Bowline and a cloud.
//!
//! A provider implements [`CloudProvider`]. It declares its name ([`ProviderInfo`]) and its limits ([`Capabilities`]), and
//! returns [`Instances`], [`LoadBalancers`], [`Routes`], [background loops](ProviderLoop), admission
//! [webhooks](Webhook) and plain [endpoints](Endpoint) as far as the cloud has them. It has
//! no access to a Kubernetes client, a work queue or a clock: it takes plain values of `bowline-core`, and returns plain values
//! or an [`Error`].
//!
//! Everything else that providers have in common is a layer, written once and wrapped around every provider in the same order.
//! Outermost first:
//!
//! ```text
//!  controller
//!     │   Clouds       finds the provider that owns a Node, and routes lookups to it
//!     ▼
//!  start        fails with the reason until the cloud has started
//!  observe      traces and metrics of every operation
//!  capability   rejects unsupported requests before any call
//!  dry run      logs writes instead of making them
//!  cache        shares lookups in flight, reuses results up to a maximum age, splits batches to the provider's size
//!  batches      combines route writes, and serialises those with the same lock
//!  concurrency  limits concurrent operations to the provider's capabilities
//!     ▼
//!  provider
//!     │
//!     ▼
//!  Calls        every HTTP call: Retry-After, rate limit, fence, timeout, back-off, metrics; each attempt takes a token
//! ```
//!
//! There is no global state: the program builds a [`Registry`] and passes it in.

mod admission;
pub mod calls;
mod capabilities;
mod clouds;
mod endpoint;
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
mod provider_flags;
mod registry;
mod reload;
mod routes;
mod secrets;
mod service_routing;
mod start;
mod sync_metrics;
mod timed_counter;

pub use admission::{AdmissionOperation, AdmissionRequest, AdmissionResponse, DecodeError, Webhook};
pub use calls::{Call, CallActivity, CallBudget, CallInterval, CallPolicy, Calls, Effect, FinishedCall};
pub use capabilities::{
    Absence, Capabilities, InstanceCapabilities, LoadBalancerCapabilities, LoadBalancerKind, RouteCapabilities,
};
pub use clouds::{Cloud, Clouds, Indexed, NoOwner, Ownership};
pub use endpoint::{Endpoint, EndpointPurpose};
pub use error::{Error, ErrorKind, KnownState, Result, Retry};
pub use instances::{Freshness, Identity, InstancePage, Instances, PageToken, SingleLookup};
pub use load_balancers::{Applied, LoadBalancers, TypedLoadBalancers};
pub use locks::{Guard, Locks, Moment};
pub use loops::{ClusterSnapshot, LabelValues, LoopOutcome, LoopPlan, LoopTriggers, ProviderLoop, TypedProviderLoop};
pub use paging::PageGuard;
pub use provider::{CheckResult, CloudProvider, ProviderInfo, Quota};
pub use provider_flags::{FlagSyntax, FlagValues, ProviderFlag};
pub use registry::{
    Build, BuildContext, BuildInputs, ConfigLocation, EnvironmentVariable, Factory, Reference, Registry, SecretKey,
};
pub use reload::Reloading;
pub use routes::{OneRoutePerCall, Routes};
pub use secrets::{SecretData, SecretRef};
pub use service_routing::{DefaultCloud, Routing, RoutingError};
pub use start::{Facts, Readiness};
pub use sync_metrics::{SyncMetricNames, SyncMetrics, SyncPurpose, register_or_replace};
pub use timed_counter::TimedCounter;

/// Compiles the examples of the page that compares the provider contract with Go.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/explanation/from-go.md")]
struct FromGo;
