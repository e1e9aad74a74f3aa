//! Conformance suite that every provider runs.
//!
//! Each case has the name of a rule of the provider contract. The provider's capabilities decide whether it runs. A case that does
//! not run is reported as skipped, with the missing capability, and the skipped cases must be exactly those that the capabilities
//! imply.
//!
//! A provider's `tests/conformance.rs` builds a simulator, wraps it in a [`Bench`] and passes it to [`run`]:
//!
//! ```text
//!  for each case:  new bench ──► needs met? ──no──► skipped: no listing
//!                                   │yes
//!                                   ▼
//!                     prepare the cloud, call the provider ──► passed, or failed with a reason
//!  at the end:     Report ──► violations: failures, unexpected skips, capabilities without a passed or failed case
//! ```

#[cfg(feature = "agent-records")]
pub mod agent_records;
mod bench;
mod capability;
mod cases;
mod context;
mod load_balancer_fixture;
mod probes;
mod report;
mod route_fixture;
mod run;

pub use bench::{
    Bench, BenchResult, ForeignLoadBalancer, ForeignRoute, InducedFault, LoadBalancerBench, LoopBench, RouteBench,
    SecretBench, SeenHealthCheck, SeenListener, SeenLoadBalancer, SeenResource, SeenRoute, SeenTarget, WantedMachine,
};
pub use capability::{Capability, Group, Need};
pub use cases::{Case, cases};
pub use context::{CaseContext, CaseFailure, CaseResult};
pub use report::{Outcome, Report, Violation};
pub use run::{run, run_one};
