//! Load balancers: observe, plan, apply.

use async_trait::async_trait;
use bowline_core::{LoadBalancerKey, LoadBalancerSpec, LoadBalancerState, Plan, Step};

use crate::Result;

/// Balances load, in three moves of which only two touch the cloud.
///
/// ```text
///  observe(key) ──► state ──► plan(spec, state) ──► Plan ──► apply(step) for each step, in order ──► observe again
/// ```
///
/// Rules, each with a conformance case of the same name (they come with the first provider that has balancers):
/// - `plan_is_pure`: `plan` makes no call; the same spec and state give the same plan.
/// - `applied_plan_is_empty`: after all steps, `observe` and `plan` give an empty plan.
/// - `apply_is_repeatable`: a step that was carried out already, or whose thing is gone already, succeeds.
/// - `foreign_is_untouched`: a thing without our mark appears in no plan; if it stands in the way, `plan` fails with
///   `AlreadyExists` and names its owner.
#[async_trait]
pub trait LoadBalancers: Send + Sync {
    /// What the cloud has for these; `None` if nothing at all is left or was ever made. Half-built counts as something.
    async fn observe(&self, keys: &[LoadBalancerKey]) -> Vec<Result<Option<LoadBalancerState>>>;

    /// All keys of this cluster for which the cloud has anything.
    async fn list(&self, cluster: &bowline_core::ClusterName) -> Result<Vec<LoadBalancerKey>>;

    /// How to get from `state` to `spec`; `spec` is `None` if nothing is wanted any more.
    fn plan(
        &self,
        key: &LoadBalancerKey,
        spec: Option<&LoadBalancerSpec>,
        state: Option<&LoadBalancerState>,
    ) -> Result<Plan>;

    /// Carries out one step: at most one writing call, and whatever waiting it takes.
    async fn apply(&self, key: &LoadBalancerKey, step: &Step) -> Result<()>;
}
