//! `TypedLoadBalancers` trait: load balancers of the agents, or of the local cloud, which has the same API.
//!
//! ```text
//!  desired state ──► desired: name, addresses, settings, targets ──┐
//!  observe ──► Observation (observed resources) ───────────────────┴─► plan: steps, each with a Payload ──► apply: one call each
//! ```
//!
//! A Service has two kinds of resources: addresses, and a load balancer that listens on them. Creating them takes one call per
//! address and one for the load balancer; deleting takes the same calls in reverse order. The response to every write is the
//! complete observation of the Service, so no further read is needed.
//!
//! `observe` returns a state even if no resource carries the mark of the Service but another resource conflicts with it, because
//! the plan has to report the conflict.

mod desired;
mod plan;
mod targets;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bowline_cloud::{Applied, Error, ErrorKind, LoadBalancerKind, PageGuard, Result, Retry, TypedLoadBalancers};
use bowline_core::{
    ClusterName, DesiredLoadBalancer, Ingress, IpMode, LoadBalancerKey, LoadBalancerState, LoadBalancerStatus,
    Operation, Plan, PollInterval, PortStatus, Progress,
};
use bowline_http::Api;

use crate::calls::{Change, Query};
use crate::client;
use crate::errors::invalid_response;
use crate::messages::{ChangeRequest, FindBalancersRequest, OwnersRequest};
use crate::observation::{ListenerError, Observation};
use crate::records::{CloudAddress, Listener};

use targets::TargetPlans;

const OBSERVE: &str = "observe load balancers";
const LIST: &str = "list load balancers";
const PLAN: &str = "plan a load balancer";
const APPLY: &str = "change a load balancer";

/// Error in the status of a Service port whose listener failed.
const CANNOT_LISTEN: &str = "CannotListen";

/// Load balancers of a group of agents, or of a local cloud.
pub struct AgentLoadBalancers {
    api: Api,
    target_plans: TargetPlans,
}

/// Payload of a step.
#[derive(Debug, Clone, PartialEq)]
pub struct Payload {
    query: Query,
    change: Change,
    /// IP mode of the status, which the cloud does not store.
    ip_mode: IpMode,
}

type State = LoadBalancerState<Observation>;

#[async_trait]
impl TypedLoadBalancers for AgentLoadBalancers {
    type State = Observation;
    type Change = Payload;
    type Polled = ();

    fn kind(&self, desired: &DesiredLoadBalancer) -> Option<&'static str> {
        desired.settings.internal.then_some(LoadBalancerKind::INTERNAL)
    }

    async fn observe(&self, desired: &[DesiredLoadBalancer]) -> Vec<Result<Option<State>>> {
        if desired.is_empty() {
            return Vec::new();
        }
        let queries = desired.iter().map(|desired| desired::query(desired).map_err(|error| error.to_error(OBSERVE)));
        let queries: Vec<Result<Query>> = queries.collect();
        let request = FindBalancersRequest { asking: queries.iter().flatten().cloned().collect() };
        let found = self.found(&request).await;
        let mut found = found.map(Vec::into_iter);
        let state = |(desired, query): (&DesiredLoadBalancer, Result<Query>)| match (query, &mut found) {
            (Err(error), _) => Err(error),
            (Ok(_), Err(error)) => Err(error.clone()),
            (Ok(_), Ok(found)) => state_of(found.next(), desired),
        };
        desired.iter().zip(queries).map(state).collect()
    }

    async fn list(&self, cluster: &ClusterName) -> Result<Vec<LoadBalancerKey>> {
        let mut request = OwnersRequest { cluster: cluster.clone(), after: None, limit: None };
        let (mut owners, mut guard) = (Vec::new(), PageGuard::default());
        loop {
            let page = client::owners(&self.api, &request).await.map_err(|error| error.during(LIST))?;
            let next = page.owners.last().filter(|_| page.more).cloned();
            let new = page.owners.len();
            owners.extend(page.owners);
            let Some(last) = next else { return Ok(owners) };
            guard.check(&format!("{last:?}"), new).map_err(|why| invalid_response(LIST, &format!("the list {why}")))?;
            request.after = Some(last);
        }
    }

    fn plan(&self, desired: &DesiredLoadBalancer, state: Option<&Observation>) -> Result<Plan<Payload>> {
        let observed = state.cloned().unwrap_or_else(|| Observation::empty(desired.key.clone()));
        plan::plan(desired, observed, &self.target_plans)
    }

    async fn apply(&self, key: &LoadBalancerKey, payload: &Payload, _: Option<&()>) -> Result<Applied<Observation>> {
        if payload.query.key != *key {
            let message =
                format!("the step is for the Service {}/{}", payload.query.key.namespace, payload.query.key.service);
            return Err(Error::new(ErrorKind::Unexpected, APPLY, message));
        }
        let Payload { query, change, ip_mode } = payload.clone();
        let is_deletion = change.is_deletion();
        match client::change(&self.api, &ChangeRequest { asking: query, change }).await {
            Ok(observed) if observed.failed => Err(failed()),
            Ok(observed) => Ok(match pending(&observed) {
                Some(operation) => Applied::Started(operation),
                None => Applied::Observed(to_state(observed, ip_mode)),
            }),
            // Already deleted.
            Err(error) if error.is_not_found() && is_deletion => Ok(Applied::Done),
            // The resource existed when the plan was made.
            Err(error) if error.is_not_found() => Err(Error::new(ErrorKind::Conflict, APPLY, error.message())),
            Err(error) => Err(match (error.kind(), error.retry_advice()) {
                (ErrorKind::InProgress, advice @ Retry::After(rest)) => {
                    Error::pending(in_progress(key, rest), APPLY).retry(advice)
                }
                _ => error.during(APPLY),
            }),
        }
    }

    async fn poll(&self, key: &LoadBalancerKey, _: &Operation) -> Result<Progress<()>> {
        let desired =
            DesiredLoadBalancer { key: key.clone(), annotations: Arc::default(), settings: Arc::default(), spec: None };
        let query = desired::query(&desired).map_err(|error| error.to_error(OBSERVE))?;
        let found = self.found(&FindBalancersRequest { asking: vec![query] }).await?;
        if found.iter().any(|observed| observed.failed) {
            return Err(failed());
        }
        let is_busy = found.iter().any(|observed| observed.busy_millis.is_some());
        Ok(if is_busy { Progress::Running } else { Progress::Done(()) })
    }
}

fn failed() -> Error {
    Error::new(ErrorKind::Unavailable, APPLY, "the cloud accepted the change and failed to apply it")
}

/// Maximum pause between two polls.
const MAX_POLL_PAUSE: Duration = Duration::from_secs(10);
/// Deadline of a change.
const DEADLINE: Duration = Duration::from_secs(600);

/// Change in progress, polled after the time that the cloud reports.
fn pending(observed: &Observation) -> Option<Operation> {
    Some(in_progress(&observed.key, Duration::from_millis(observed.busy_millis?)))
}

/// Operation with this remaining time.
fn in_progress(key: &LoadBalancerKey, rest: Duration) -> Operation {
    Operation {
        id: format!("{}/{}", key.namespace, key.service),
        description: "an earlier change of this load balancer is still in progress".to_owned(),
        advice: String::new(),
        poll_interval: PollInterval::every(rest.min(MAX_POLL_PAUSE)),
        deadline: DEADLINE,
        observable: true,
    }
}

impl AgentLoadBalancers {
    /// Creates the load balancers behind an API, whose errors must be decoded with [`ApiErrors`](crate::ApiErrors).
    ///
    /// `id_prefix` is the prefix of the provider IDs of machines that the server knows, as a local cloud does; such a machine
    /// may be a target without addresses. `None` means that the server has no machines: Nodes without an address are then no
    /// targets, and the plan has a warning. With `drain`, the target of a leaving Node keeps its connections.
    pub fn new(api: Api, id_prefix: Option<&str>, drain: bool) -> AgentLoadBalancers {
        AgentLoadBalancers { api, target_plans: TargetPlans::new(id_prefix, drain) }
    }

    /// Reads the observations, one per query, in order.
    async fn found(&self, request: &FindBalancersRequest) -> Result<Vec<Observation>> {
        let mut found = Vec::new();
        // A response that would be too large has the first observations only.
        while let Some(rest) = request.asking.get(found.len()..).filter(|rest| !rest.is_empty()) {
            let request = FindBalancersRequest { asking: rest.to_vec() };
            let reply = client::find_balancers(&self.api, &request).await.map_err(|error| error.during(OBSERVE))?;
            let keys = rest.iter().map(|query| &query.key).take(reply.found.len().max(1));
            if !keys.eq(reply.found.iter().map(|found| &found.key)) {
                return Err(invalid_response(OBSERVE, "the observations do not match the request"));
            }
            found.extend(reply.found);
        }
        Ok(found)
    }
}

impl Change {
    /// Whether the change deletes or releases a resource, which may already be gone.
    fn is_deletion(&self) -> bool {
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
    let found = found.ok_or_else(|| invalid_response(OBSERVE, "an observation is missing"))?;
    Ok(to_state(found, ip_mode(desired)))
}

/// IP mode of the address. Default: [`IpMode::Proxy`], because load balancers of this cloud terminate connections, so traffic that
/// bypasses them would differ.
fn ip_mode(desired: &DesiredLoadBalancer) -> IpMode {
    desired.settings.ip_mode.unwrap_or(IpMode::Proxy)
}

fn to_state(observed: Observation, ip_mode: IpMode) -> Option<State> {
    if observed.is_empty() {
        return None;
    }
    let (status, errors) = (status(&observed, ip_mode), errors(&observed));
    let pending = pending(&observed);
    Some(LoadBalancerState { errors, pending, ..LoadBalancerState::new(status, observed) })
}

/// Status with an entry for each address of the load balancer, in order.
fn status(observed: &Observation, ip_mode: IpMode) -> LoadBalancerStatus {
    let Some(balancer) = &observed.balancer else { return LoadBalancerStatus::default() };
    let addresses =
        balancer.addresses.iter().filter_map(|id| observed.addresses.iter().find(|address| address.id == *id));
    let ingress = addresses.map(|address| Ingress {
        ip: Some(address.ip.to_string()),
        hostname: None,
        ip_mode: Some(ip_mode),
        ports: balancer.settings.listeners.iter().map(|listener| port_status(observed, address, listener)).collect(),
    });
    LoadBalancerStatus { ingress: ingress.collect() }
}

fn port_status(observed: &Observation, address: &CloudAddress, listener: &Listener) -> PortStatus {
    let Listener { protocol, port, .. } = *listener;
    let failed =
        observed.errors.iter().any(|error| (error.ip, error.protocol, error.port) == (address.ip, protocol, port));
    PortStatus { port, protocol, error: failed.then(|| CANNOT_LISTEN.to_owned()) }
}

/// Errors of the listeners.
fn errors(observed: &Observation) -> Vec<String> {
    let message =
        |error: &ListenerError| format!("port {}/{} of {}: {}", error.port, error.protocol, error.ip, error.message);
    observed.errors.iter().map(message).collect()
}
