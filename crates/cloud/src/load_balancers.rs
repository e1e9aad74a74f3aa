//! Load balancers: observe, plan, apply.

use async_trait::async_trait;
use bowline_core::{ClusterName, LoadBalancerKey, LoadBalancerState, LoadBalancerWish, Plan, Step};

use crate::Result;

/// Balances load, in three moves of which only two touch the cloud.
///
/// ```text
///  observe(wish) ──► state ──► plan(wish, state) ──► Plan ──► apply(step) for each step, in order ──► observe again
/// ```
///
/// Nobody waits in here. A cloud that is still at work on an earlier change makes `plan` or `apply` fail with `InProgress`
/// and advice on when to look again; what follows is then planned from what is there.
///
/// Rules, each with a conformance case of the same name (they come with the first provider that has balancers):
/// - `plan_is_pure`: `plan` makes no call; the same wish and state give the same plan.
/// - `applied_plan_is_empty`: after all steps, and once the cloud is done with them, `observe` and `plan` give an empty plan.
/// - `apply_is_repeatable`: a step that was carried out already, or whose thing is gone already, succeeds. It may be cut
///   off at any time and come again.
/// - `in_progress_is_told`: while the cloud is at work, there is no plan and no empty plan but `InProgress`.
/// - `foreign_is_untouched`: a thing without our mark appears in no plan; if it stands in the way, `plan` fails with
///   `AlreadyExists` and names its owner.
#[async_trait]
pub trait LoadBalancers: Send + Sync {
    /// What the cloud has for these; `None` if nothing at all is left or was ever made. Half-built counts as something.
    ///
    /// The wish is there for what has to be looked up because of it: a network or flavour that an annotation names, the
    /// subnets of the machines. All that `plan` has to know is in the state.
    async fn observe(&self, wishes: &[LoadBalancerWish]) -> Vec<Result<Option<LoadBalancerState>>>;

    /// All keys of this cluster for which the cloud has anything with our mark.
    async fn list(&self, cluster: &ClusterName) -> Result<Vec<LoadBalancerKey>>;

    /// How to get from `state` to what is wished.
    fn plan(&self, wish: &LoadBalancerWish, state: Option<&LoadBalancerState>) -> Result<Plan>;

    /// Carries out one step: at most one writing call. A thing that an earlier step has made is found by its mark, because
    /// its ID was not known when the plan was made.
    async fn apply(&self, key: &LoadBalancerKey, step: &Step) -> Result<()>;
}
