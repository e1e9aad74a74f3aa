//! Load balancers: observe, plan, apply.

use async_trait::async_trait;
use bowline_core::{ClusterName, LoadBalancerKey, LoadBalancerState, LoadBalancerWish, Plan, Step};

use crate::Result;

/// What came of a step.
#[derive(Debug, Clone, PartialEq)]
pub enum Applied {
    /// It is done; what the cloud has now must be observed.
    Done,
    /// It is done, and this is all that the cloud has for the balancer now; `None` if that is nothing.
    Seen(Option<LoadBalancerState>),
}

/// Balances load, in three moves of which only two touch the cloud.
///
/// ```text
///  observe(wish) ──► state ──► plan(wish, state) ──► Plan ──► apply(step) for each step, in order ──► observe again
/// ```
///
/// Nobody waits in here. A cloud that is still at work on an earlier change makes `plan` or `apply` fail with `InProgress`
/// and advice on when to look again; what follows is then planned from what is there.
///
/// Rules, each with a conformance case of the same name:
/// - `plan_is_pure`: `plan` makes no call; the same wish and state give the same plan.
/// - `applied_plan_is_empty`: after all steps, and once the cloud is done with them, `observe` and `plan` give an empty plan.
/// - `apply_is_repeatable`: a step that was carried out already, or whose thing is gone already, succeeds. It may be cut
///   off at any time and come again.
/// - `in_progress_is_told`: while the cloud is at work, there is no plan and no empty plan but `InProgress`.
/// - `foreign_is_untouched`: a thing without our mark appears in no plan; if it stands in the way, `plan` fails with
///   `AlreadyExists` and names its owner.
/// - `only_adoption_takes_over`: an existing thing without an owner becomes ours only if `settings.adopt` names it; one that
///   carries another owner's mark never does.
/// - `retained_is_released`: with the policy `Retain`, a balancer that is to go loses our mark and nothing else.
/// - `a_leaving_node_is_not_taken_in`: a target that is draining is kept where the balancer has it, and not added where it
///   does not.
/// - `nothing_left_is_nothing_to_do`: for a wish without spec and a state of `None` the plan is empty.
#[async_trait]
pub trait LoadBalancers: Send + Sync {
    /// What the cloud has for these; `None` if nothing at all is left or was ever made. Half-built counts as something.
    ///
    /// The wish is there for what has to be looked up because of it: a network or flavour that an annotation names, the
    /// subnets of the machines. All that `plan` has to know is in the state. There are at most as many wishes as
    /// [`batch_observe`](crate::LoadBalancerCapabilities::batch_observe) says.
    async fn observe(&self, wishes: &[LoadBalancerWish]) -> Vec<Result<Option<LoadBalancerState>>>;

    /// All keys of this cluster for which the cloud has anything with our mark.
    async fn list(&self, cluster: &ClusterName) -> Result<Vec<LoadBalancerKey>>;

    /// How to get from `state` to what is wished.
    fn plan(&self, wish: &LoadBalancerWish, state: Option<&LoadBalancerState>) -> Result<Plan>;

    /// Carries out one step: at most one writing call. A thing that an earlier step has made is found by its mark, because
    /// its ID was not known when the plan was made.
    ///
    /// What the cloud has for this balancer afterwards, if its answer tells all of it: then nobody need ask. `None` if it
    /// does not.
    async fn apply(&self, key: &LoadBalancerKey, step: &Step) -> Result<Applied>;
}
