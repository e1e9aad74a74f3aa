//! Balancers of the cloud as the contract wants them.
//!
//! ```text
//!  wish ──► wanted: name, addresses, settings, targets ──┐
//!  observe ──► Observation (the state's resources) ──────┴─► plan: steps, each with a Payload ──► apply: one call each
//! ```
//!
//! A Service's balancer is two kinds of things: its addresses, and the balancer that listens there. Making it takes a call
//! for each address and one for the balancer; removing it the same in the opposite order. The answer to every writing call
//! is all that the cloud then has for the Service, so nobody need ask after it.
//!
//! `observe` has a state also if nothing carries the Service's mark, but something stands in the way of what it wants:
//! otherwise a plan could not know of that.

mod plan;
mod targets;
mod wanted;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bowline_cloud::{Applied, Error, ErrorKind, LoadBalancerKind, PageGuard, Result, Retry, TypedLoadBalancers};
use bowline_core::{
    ClusterName, DesiredLoadBalancer, Ingress, IpMode, LoadBalancerKey, LoadBalancerState, LoadBalancerStatus,
    Operation, Pacing, Plan, PortStatus, Progress,
};

use crate::LocalProvider;
use crate::api::{ChangeRequest, FindBalancersRequest, OwnersRequest};
use crate::balancers::{Asking, Change, CloudAddress, Listener, ListenerError, Observation};
use crate::error::garbled;

pub(crate) use targets::TargetPlans;

const OBSERVE: &str = "observe balancers";
const LIST: &str = "list balancers";
const PLAN: &str = "plan a balancer";
const APPLY: &str = "change a balancer";

/// Why a port does not work: the word in a Service's status for one that cannot be listened on.
const CANNOT_LISTEN: &str = "CannotListen";

/// What a step needs to be applied.
#[derive(Debug, Clone, PartialEq)]
pub struct Payload {
    asking: Asking,
    change: Change,
    /// What the status will say, which the cloud does not know.
    ip_mode: IpMode,
}

type State = LoadBalancerState<Observation>;

#[async_trait]
impl TypedLoadBalancers for LocalProvider {
    type State = Observation;
    type Change = Payload;
    type Polled = ();

    fn kind(&self, desired: &DesiredLoadBalancer) -> Option<&'static str> {
        desired.settings.internal.then_some(LoadBalancerKind::INTERNAL)
    }

    async fn observe(&self, wanted: &[DesiredLoadBalancer]) -> Vec<Result<Option<State>>> {
        if wanted.is_empty() {
            return Vec::new();
        }
        let asking = wanted.iter().map(|desired| wanted::asking(desired).map_err(|error| error.explain(OBSERVE)));
        let asking: Vec<Result<Asking>> = asking.collect();
        let request = FindBalancersRequest { asking: asking.iter().flatten().cloned().collect() };
        let found = self.found(&request).await;
        let mut found = found.map(Vec::into_iter);
        let answer = |(desired, asking): (&DesiredLoadBalancer, Result<Asking>)| match (asking, &mut found) {
            (Err(error), _) => Err(error),
            (Ok(_), Err(error)) => Err(error.clone()),
            (Ok(_), Ok(found)) => state_of(found.next(), desired),
        };
        wanted.iter().zip(asking).map(answer).collect()
    }

    async fn list(&self, cluster: &ClusterName) -> Result<Vec<LoadBalancerKey>> {
        let mut request = OwnersRequest { cluster: cluster.clone(), after: None, limit: None };
        let (mut owners, mut guard) = (Vec::new(), PageGuard::default());
        loop {
            let page = self.client.owners(&request).await.map_err(|error| error.during(LIST))?;
            let next = page.owners.last().filter(|_| page.more).cloned();
            let new = page.owners.len();
            owners.extend(page.owners);
            let Some(last) = next else { return Ok(owners) };
            guard.on(&format!("{last:?}"), new).map_err(|why| garbled(LIST, &format!("the list {why}")))?;
            request.after = Some(last);
        }
    }

    fn plan(&self, desired: &DesiredLoadBalancer, state: Option<&Observation>) -> Result<Plan<Payload>> {
        let seen = state.cloned().unwrap_or_else(|| Observation::nothing(desired.key.clone()));
        plan::plan(desired, seen, &self.target_plans)
    }

    async fn apply(&self, key: &LoadBalancerKey, payload: &Payload, _: Option<&()>) -> Result<Applied<Observation>> {
        if payload.asking.key != *key {
            let message =
                format!("the step is for the Service {}/{}", payload.asking.key.namespace, payload.asking.key.service);
            return Err(Error::new(ErrorKind::Unexpected, APPLY, message));
        }
        let Payload { asking, change, ip_mode } = payload.clone();
        let is_farewell = change.is_farewell();
        match self.client.change(&ChangeRequest { asking, change }).await {
            Ok(seen) if seen.failed => Err(failed()),
            Ok(seen) => Ok(match pending(&seen) {
                Some(operation) => Applied::Started(operation),
                None => Applied::Observed(described(seen, ip_mode)),
            }),
            // What is to go and is gone is done.
            Err(error) if error.is_not_found() && is_farewell => Ok(Applied::Done),
            // It was there when the plan was made.
            Err(error) if error.is_not_found() => Err(Error::new(ErrorKind::Conflict, APPLY, error.message())),
            Err(error) => Err(match (error.kind(), error.retry_advice()) {
                (ErrorKind::InProgress, advice @ Retry::After(rest)) => {
                    Error::pending(at_work(key, rest), APPLY).retry(advice)
                }
                _ => error.during(APPLY),
            }),
        }
    }

    async fn poll(&self, key: &LoadBalancerKey, _: &Operation) -> Result<Progress<()>> {
        let desired =
            DesiredLoadBalancer { key: key.clone(), annotations: Arc::default(), settings: Arc::default(), spec: None };
        let asking = wanted::asking(&desired).map_err(|error| error.explain(OBSERVE))?;
        let found = self.found(&FindBalancersRequest { asking: vec![asking] }).await?;
        if found.iter().any(|seen| seen.failed) {
            return Err(failed());
        }
        let is_busy = found.iter().any(|seen| seen.busy_millis.is_some());
        Ok(if is_busy { Progress::Running } else { Progress::Done(()) })
    }
}

fn failed() -> Error {
    Error::new(ErrorKind::Unavailable, APPLY, "the cloud accepted the change and failed to apply it")
}

/// The longest pause between two polls.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// A change that takes longer than this has got stuck.
const DEADLINE: Duration = Duration::from_secs(600);

/// What the cloud is at work on. It says how long that takes, and is polled then.
fn pending(seen: &Observation) -> Option<Operation> {
    Some(at_work(&seen.key, Duration::from_millis(seen.busy_millis?)))
}

/// An operation that takes so much longer.
fn at_work(key: &LoadBalancerKey, rest: Duration) -> Operation {
    Operation {
        id: format!("{}/{}", key.namespace, key.service),
        what: "the cloud is still at work on an earlier change of this balancer".to_owned(),
        advice: String::new(),
        pacing: Pacing::every(rest.min(LONGEST_PAUSE)),
        deadline: DEADLINE,
        observable: true,
    }
}

impl LocalProvider {
    /// The cloud's answers, one for each asker, in their order.
    async fn found(&self, request: &FindBalancersRequest) -> Result<Vec<Observation>> {
        let mut found = Vec::new();
        // An answer that would be too large is for the first askers only.
        while let Some(rest) = request.asking.get(found.len()..).filter(|rest| !rest.is_empty()) {
            let request = FindBalancersRequest { asking: rest.to_vec() };
            let reply = self.client.find_balancers(&request).await.map_err(|error| error.during(OBSERVE))?;
            let asked = rest.iter().map(|asking| &asking.key).take(reply.found.len().max(1));
            if !asked.eq(reply.found.iter().map(|found| &found.key)) {
                return Err(garbled(OBSERVE, "the answers are not for those who asked"));
            }
            found.extend(reply.found);
        }
        Ok(found)
    }
}

impl Change {
    /// It takes something away that may be gone already.
    fn is_farewell(&self) -> bool {
        matches!(
            self,
            Change::DeleteBalancer { .. }
                | Change::DeleteAddress { .. }
                | Change::ReleaseBalancer { .. }
                | Change::ReleaseAddress { .. }
        )
    }
}

fn state_of(found: Option<Observation>, desired: &DesiredLoadBalancer) -> Result<Option<State>> {
    let found = found.ok_or_else(|| garbled(OBSERVE, "an answer is left out"))?;
    Ok(described(found, ip_mode(desired)))
}

/// How nodes are to treat the address. The balancers of this cloud connect to the nodes themselves, so that traffic which
/// skips them would not be the same: without a word from the user it is [`IpMode::Proxy`].
fn ip_mode(desired: &DesiredLoadBalancer) -> IpMode {
    desired.settings.ip_mode.unwrap_or(IpMode::Proxy)
}

fn described(seen: Observation, ip_mode: IpMode) -> Option<State> {
    if seen.is_nothing() {
        return None;
    }
    let (status, errors) = (status(&seen, ip_mode), errors(&seen));
    let pending = pending(&seen);
    Some(LoadBalancerState { errors, pending, ..LoadBalancerState::new(status, seen) })
}

/// An entry for each address of the balancer, in its order.
fn status(seen: &Observation, ip_mode: IpMode) -> LoadBalancerStatus {
    let Some(balancer) = &seen.balancer else { return LoadBalancerStatus::default() };
    let addresses = balancer.addresses.iter().filter_map(|id| seen.addresses.iter().find(|there| there.id == *id));
    let ingress = addresses.map(|address| Ingress {
        ip: Some(address.ip.to_string()),
        hostname: None,
        ip_mode: Some(ip_mode),
        ports: balancer.settings.listeners.iter().map(|listener| port_status(seen, address, listener)).collect(),
    });
    LoadBalancerStatus { ingress: ingress.collect() }
}

fn port_status(seen: &Observation, address: &CloudAddress, listener: &Listener) -> PortStatus {
    let Listener { protocol, port, .. } = *listener;
    let failed = seen.errors.iter().any(|error| (error.ip, error.protocol, error.port) == (address.ip, protocol, port));
    PortStatus { port, protocol, error: failed.then(|| CANNOT_LISTEN.to_owned()) }
}

/// The causes of what the status has one word for.
fn errors(seen: &Observation) -> Vec<String> {
    let told =
        |error: &ListenerError| format!("port {}/{} of {}: {}", error.port, error.protocol, error.ip, error.message);
    seen.errors.iter().map(told).collect()
}
