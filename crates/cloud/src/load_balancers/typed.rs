//! Load balancers with the provider's own types, and the one place where those types are erased.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt::Debug;

use async_trait::async_trait;
use bowline_core::annotations::{LoadBalancerSettings, Mistake};
use bowline_core::{
    ClusterName, DesiredLoadBalancer, LoadBalancerKey, LoadBalancerState, Opaque, Operation, Plan, Progress, Step,
};

use super::{Applied, LoadBalancers};
use crate::{Error, ErrorKind, Result};

const PLAN: &str = "plan load balancer";
const APPLY: &str = "apply load balancer";

/// What a provider implements to have [`LoadBalancers`], whose rules are the rules of these methods: the same contract, in
/// which states and steps carry types of the provider.
#[async_trait]
pub trait TypedLoadBalancers: Send + Sync {
    /// The things that the cloud has for a load balancer, and all else that a plan has to know.
    type State: Any + Debug + Clone + PartialEq + Send + Sync;
    /// What a step needs to be applied.
    type Change: Any + Debug + Clone + PartialEq + Send + Sync;
    /// What a poll has read and the next step may use; `()` if that is nothing.
    type Polled: Any + Debug + Clone + PartialEq + Default + Send + Sync;

    /// See [`LoadBalancers::settings`].
    fn settings(
        &self,
        annotations: &BTreeMap<String, String>,
        common: LoadBalancerSettings,
    ) -> std::result::Result<LoadBalancerSettings, Vec<Mistake>> {
        let _ = annotations;
        Ok(common)
    }

    /// See [`LoadBalancers::kind`].
    fn kind(&self, desired: &DesiredLoadBalancer) -> Option<&'static str> {
        let _ = desired;
        None
    }

    /// See [`LoadBalancers::observe`].
    async fn observe(&self, wanted: &[DesiredLoadBalancer]) -> Vec<Result<Option<LoadBalancerState<Self::State>>>>;

    /// See [`LoadBalancers::list`].
    async fn list(&self, cluster: &ClusterName) -> Result<Vec<LoadBalancerKey>>;

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
    ) -> std::result::Result<LoadBalancerSettings, Vec<Mistake>> {
        TypedLoadBalancers::settings(self, annotations, common)
    }

    fn kind(&self, desired: &DesiredLoadBalancer) -> Option<&'static str> {
        TypedLoadBalancers::kind(self, desired)
    }

    async fn observe(&self, wanted: &[DesiredLoadBalancer]) -> Vec<Result<Option<LoadBalancerState>>> {
        let seen = TypedLoadBalancers::observe(self, wanted).await;
        seen.into_iter().map(|state| state.map(erased)).collect()
    }

    async fn list(&self, cluster: &ClusterName) -> Result<Vec<LoadBalancerKey>> {
        TypedLoadBalancers::list(self, cluster).await
    }

    fn plan(&self, desired: &DesiredLoadBalancer, state: Option<&LoadBalancerState>) -> Result<Plan> {
        if let Some(operation) = state.and_then(|state| state.pending.clone()) {
            return Err(Error::pending(operation, PLAN));
        }
        let state = state.map(|state| known(PLAN, &state.resources)).transpose()?;
        let Plan { steps, warnings, errors, locks } = TypedLoadBalancers::plan(self, desired, state)?;
        let steps = steps.into_iter().map(|step| step.map(Opaque::new)).collect();
        Ok(Plan { steps, warnings, errors, locks })
    }

    async fn apply(&self, key: &LoadBalancerKey, step: &Step, polled: Option<&Opaque>) -> Result<Applied> {
        let change = known(APPLY, &step.payload)?;
        let polled = polled.map(|polled| known(APPLY, polled)).transpose()?;
        Ok(match TypedLoadBalancers::apply(self, key, change, polled).await? {
            Applied::Done => Applied::Done,
            Applied::Observed(state) => Applied::Observed(erased(state)),
            Applied::Noted(annotations) => Applied::Noted(annotations),
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

fn erased<S: Any + Debug + PartialEq + Send + Sync>(state: Option<LoadBalancerState<S>>) -> Option<LoadBalancerState> {
    state.map(|state| state.map(Opaque::new))
}

/// The provider's own value. Another provider's state or step is an error, not a panic: it may come from a test, or from a
/// provider that a reload has replaced by one of another kind.
fn known<'a, T: Any>(operation: &str, value: &'a Opaque) -> Result<&'a T> {
    let foreign =
        || Error::new(ErrorKind::Unexpected, operation, format!("this was not made by this provider: {value:?}"));
    value.get().ok_or_else(foreign)
}
