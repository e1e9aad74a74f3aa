//! The behaviour suite that every provider runs.
//!
//! A case is named after a rule of the contract. Whether it runs is decided by the provider's capabilities; a case that
//! does not run is reported as skipped, with the capability that it lacks, and the skips must be exactly those that the
//! capabilities call for.
//!
//! A provider's `tests/conformance.rs` builds its simulator, wraps it in a [`Bench`] and hands it to [`run`]:
//!
//! ```text
//!  for each case:  new bench ──► needs met? ──no──► skipped: no listing
//!                                   │yes
//!                                   ▼
//!                     add, stop, break, ask ──► passed, or failed: why
//!  at the end:     Report ──► complaints: failures, unexpected skips, capabilities that no case proved
//! ```

mod balancing;
mod bench;
mod capability;
mod cases;
mod probes;
mod report;
mod routing;
mod run;
mod scene;

pub use bench::{
    Bench, BenchResult, ForeignLoadBalancer, ForeignRoute, InducedFault, LoadBalancerBench, LoopBench, RouteBench,
    SecretBench, SeenHealthCheck, SeenListener, SeenLoadBalancer, SeenResource, SeenRoute, SeenTarget, WantedMachine,
};
pub use capability::{Capability, Group, Need};
pub use cases::{Case, cases};
pub use report::{Outcome, Report, Violation};
pub use run::{run, run_one};
pub use scene::{CaseFailure, CaseResult, Scene};
