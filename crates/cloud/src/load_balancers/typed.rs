//! Load balancers with the provider's own types. The types are erased here and nowhere else.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt::Debug;

use async_trait::async_trait;
use bowline_core::annotations::{FieldError, LoadBalancerSettings};
use bowline_core::{
    ClusterName, DesiredLoadBalancer, LoadBalancerKey, LoadBalancerState, Opaque, Operation, Plan, Progress, Step,
};

use super::{Applied, LoadBalancers};
use crate::{Error, ErrorKind, Result};

const PLAN: &str = "plan load balancer";
const APPLY: &str = "apply load balancer";

/// The form of [`LoadBalancers`] that a provider implements: the same methods and the same rules, with the provider's own types in
/// states and steps.
#[async_trait]
pub trait TypedLoadBalancers: Send + Sync {
    /// Resources of a load balancer in the cloud, and everything else that `plan` needs.
    type State: Any + Debug + Clone + PartialEq + Send + Sync;
    /// Payload of a step: everything that `apply` needs.
    type Change: Any + Debug + Clone + PartialEq + Send + Sync;
    /// Result of a poll that the next step may use; `()` if there is none.
    type Polled: Any + Debug + Clone + PartialEq + Default + Send + Sync;

    /// See [`LoadBalancers::settings`].
    fn settings(
        &self,
        annotations: &BTreeMap<String, String>,
        common: LoadBalancerSettings,
    ) -> std::result::Result<LoadBalancerSettings, Vec<FieldError>> {
        let _ = annotations;
        Ok(common)
    }

    /// See [`LoadBalancers::kind`].
    fn kind(&self, desired: &DesiredLoadBalancer) -> Option<&'static str> {
        let _ = desired;
        None
    }

    /// See [`LoadBalancers::observe`].
    async fn observe(&self, desired: &[DesiredLoadBalancer]) -> Vec<Result<Option<LoadBalancerState<Self::State>>>>;

    /// See [`LoadBalancers::list`].
    async fn list(&self, cluster: &ClusterName) -> Result<Vec<LoadBalancerKey>>;

    /// See [`LoadBalancers::is_owner`].
    fn is_owner(&self, listed: &LoadBalancerKey, desired: &DesiredLoadBalancer) -> bool {
        listed.matches(&desired.key)
    }

    /// See [`LoadBalancers::plan`].
    fn plan(&self, desired: &DesiredLoadBalancer, state: Option<&Self::State>) -> Result<Plan<Self::Change>>;

    /// See [`LoadBalancers::apply`].
    async fn apply(
        &self,
        key: &LoadBalancerKey,
        change: &Self::Change,
        polled: Option<&Self::Polled>,
    ) -> Result<Applied<Self::State>>;

    /// See [`LoadBalancers::poll`].
    async fn poll(&self, key: &LoadBalancerKey, operation: &Operation) -> Result<Progress<Self::Polled>> {
        let _ = (key, operation);
        Ok(Progress::Done(Self::Polled::default()))
    }
}

#[async_trait]
impl<T: TypedLoadBalancers> LoadBalancers for T {
    fn settings(
        &self,
        annotations: &BTreeMap<String, String>,
        common: LoadBalancerSettings,
    ) -> std::result::Result<LoadBalancerSettings, Vec<FieldError>> {
        TypedLoadBalancers::settings(self, annotations, common)
    }

    fn kind(&self, desired: &DesiredLoadBalancer) -> Option<&'static str> {
        TypedLoadBalancers::kind(self, desired)
    }

    async fn observe(&self, desired: &[DesiredLoadBalancer]) -> Vec<Result<Option<LoadBalancerState>>> {
        let observed = TypedLoadBalancers::observe(self, desired).await;
        observed.into_iter().map(|state| state.map(erase)).collect()
    }

    async fn list(&self, cluster: &ClusterName) -> Result<Vec<LoadBalancerKey>> {
        TypedLoadBalancers::list(self, cluster).await
    }

    fn is_owner(&self, listed: &LoadBalancerKey, desired: &DesiredLoadBalancer) -> bool {
        TypedLoadBalancers::is_owner(self, listed, desired)
    }

    fn plan(&self, desired: &DesiredLoadBalancer, state: Option<&LoadBalancerState>) -> Result<Plan> {
        if let Some(operation) = state.and_then(|state| state.pending.clone()) {
            return Err(Error::pending(operation, PLAN));
        }
        let state = state.map(|state| downcast(PLAN, &state.resources)).transpose()?;
        Ok(TypedLoadBalancers::plan(self, desired, state)?.map(Opaque::new))
    }

    async fn apply(&self, key: &LoadBalancerKey, step: &Step, polled: Option<&Opaque>) -> Result<Applied> {
        let change = downcast(APPLY, &step.payload)?;
        let polled = polled.map(|polled| downcast(APPLY, polled)).transpose()?;
        Ok(match TypedLoadBalancers::apply(self, key, change, polled).await? {
            Applied::Done => Applied::Done,
            Applied::Observed(state) => Applied::Observed(erase(state)),
            Applied::Annotated(annotations) => Applied::Annotated(annotations),
            Applied::Started(operation) => Applied::Started(operation),
        })
    }

    async fn poll(&self, key: &LoadBalancerKey, operation: &Operation) -> Result<Progress> {
        Ok(match TypedLoadBalancers::poll(self, key, operation).await? {
            Progress::Running => Progress::Running,
            Progress::Done(polled) => Progress::Done(Opaque::new(polled)),
        })
    }
}

fn erase<S: Any + Debug + PartialEq + Send + Sync>(state: Option<LoadBalancerState<S>>) -> Option<LoadBalancerState> {
    state.map(|state| state.map(Opaque::new))
}

/// Returns the provider's own value. A state or step of another provider is an error, not a panic: it may come from a test, or from
/// a provider that a reload replaced by one of another kind.
pub(crate) fn downcast<'a, T: Any>(operation: &str, value: &'a Opaque) -> Result<&'a T> {
    let foreign =
        || Error::new(ErrorKind::Unexpected, operation, format!("the value is not of this provider: {value:?}"));
    value.get().ok_or_else(foreign)
}
