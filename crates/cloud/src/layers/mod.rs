//! The layers around every provider, one file each; the order is that of the crate's front page.
//!
//! `observe` and `places` are written once for all operations; `capability`, `dry_run`, `cache`, `balancers` and `routes` are
//! about one kind of operation each. Calls are limited, repeated and measured below the provider, in [`calls`](crate::calls).

#[cfg(test)]
mod adversity;
mod balancers;
mod cache;
pub mod capability;
mod dry_run;
mod listing;
mod loops;
pub(crate) mod observe;
mod operation;
mod operations;
mod outcome_unknown;
mod places;
mod read;
mod routes;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bowline_core::annotations::{LoadBalancerSettings, Mistake};
use bowline_core::{
    ClusterName, DesiredLoadBalancer, InstanceRef, InstanceState, LoadBalancerKey, LoadBalancerState, Opaque, Plan,
    Progress, ProviderId, Route, RouteSpec, Step,
};

use bowline_runtime::Part;
use ipnet::IpNet;
use serde_json::{Value, json};

pub use crate::layers::observe::METRICS;
pub use crate::layers::operations::Operations;
pub use crate::layers::outcome_unknown::{Attempt, PendingCreates};

use crate::layers::balancers::Observer;
use crate::layers::cache::Cache;
use crate::layers::dry_run::DryRun;
use crate::layers::observe::Metrics;
use crate::layers::operation::Operation;
use crate::layers::places::Places;
use crate::layers::read::Reader;
use crate::layers::routes::RouteWriter;
use crate::start::Starter;
use crate::{
    Applied, Calls, Capabilities, CloudProvider, Error, ErrorKind, Facts, Freshness, LoadBalancerCapabilities,
    LoadBalancers, Locks, ProviderInfo, Result, RouteCapabilities, Routes, SecretData, SecretRef, SyncPurpose,
};

/// How the layers are set. What concerns single calls is in [`CallPolicy`](crate::CallPolicy).
#[derive(Debug, Clone)]
pub struct LayerOptions {
    /// Writes are logged and not made.
    pub dry_run: bool,
    /// Time for which a question about a machine or a load balancer, or a write of a route, waits for others to join its batch.
    pub gather: Duration,
    /// A cloud that does not mark this cluster's resources does not become ready.
    pub requires_cluster_id: bool,
}

impl Default for LayerOptions {
    fn default() -> LayerOptions {
        LayerOptions { dry_run: false, gather: Duration::from_millis(3), requires_cluster_id: false }
    }
}

/// A provider with all layers around it.
pub struct Layered {
    starter: Arc<Starter>,
    provider: Arc<dyn CloudProvider>,
    metrics: Arc<Metrics>,
    dry_run: DryRun,
    cache: Arc<Cache>,
    balancers: Arc<Observer>,
    routes: Arc<RouteWriter>,
    operations: Operations,
    outcome_unknown: PendingCreates,
    locks: Locks,
    places: Arc<Places>,
    calls: Calls,
}

impl Layered {
    /// Puts the layers around `provider`; their metrics go to `registry`, which may be shared with other providers, under
    /// this name.
    pub fn new(
        provider: Arc<dyn CloudProvider>,
        name: &str,
        options: &LayerOptions,
        registry: &prometheus::Registry,
    ) -> Layered {
        let metrics = Arc::new(Metrics::new(name, registry));
        let calls = provider.calls().unwrap_or_default();
        calls.named(name, registry);
        let places = Arc::new(Places::new(provider.capabilities()));
        let reader = Reader::new(Arc::clone(&provider), Arc::clone(&places));
        let cache = Cache::new(reader, options.gather, Arc::clone(&metrics));
        let balancers = Observer::new(Arc::clone(&provider), Arc::clone(&places), options.gather);
        let locks = Locks::default();
        let routes = RouteWriter::new(Arc::clone(&provider), Arc::clone(&places), locks.clone(), options.gather);
        let starter = Starter::new(name, Arc::clone(&provider), options.requires_cluster_id);
        Layered {
            starter,
            provider,
            metrics,
            dry_run: DryRun(options.dry_run),
            cache,
            balancers,
            routes,
            operations: Operations::default(),
            outcome_unknown: PendingCreates::default(),
            locks,
            places,
            calls,
        }
    }

    /// What the provider is.
    pub fn info(&self) -> &ProviderInfo {
        self.provider.info()
    }

    /// This ID is one of the provider's.
    pub fn owns(&self, id: &ProviderId) -> bool {
        self.provider.owns(id)
    }

    /// Number of times that the provider's configuration or credentials were replaced.
    pub fn revision(&self) -> u64 {
        self.provider.revision()
    }

    /// Who speaks in the Events that a plan's notices become; `None` for the controller itself.
    pub fn event_component(&self) -> Option<&'static str> {
        self.provider.event_component()
    }

    /// Counts a sync of a load balancer that has ended, where the provider declares metrics for that.
    pub fn synced_load_balancer(&self, purpose: SyncPurpose, took: Duration, failed: bool) {
        if let Some(metrics) = self.provider.sync_metrics() {
            metrics.record(purpose, took, failed);
        }
    }

    /// What the provider can do, as far as is known: less is left once it has started, if the cloud says so.
    pub fn capabilities(&self) -> &Capabilities {
        let left = self.facts().and_then(|facts| facts.capabilities.as_ref());
        left.unwrap_or_else(|| self.provider.capabilities())
    }

    /// What the provider learned from its cloud; `None` until it has started.
    pub fn facts(&self) -> Option<&Facts> {
        self.starter.facts()
    }

    /// Starts the provider, unless it has started.
    pub async fn start(&self) -> Result<()> {
        self.starter.start().await
    }

    /// Gives the contents of a Secret, or the reason why it cannot be read, to the provider; starts the provider if it was waiting
    /// for this.
    pub async fn deliver_secret(&self, secret: &SecretRef, data: Result<Option<SecretData>>) {
        self.starter.deliver(secret, data).await;
    }

    pub(crate) fn starter(&self) -> &Arc<Starter> {
        &self.starter
    }

    /// Locks on things of this cloud that several objects share.
    pub fn locks(&self) -> &Locks {
        &self.locks
    }

    /// Writes are printed, not made.
    pub fn is_dry_run(&self) -> bool {
        self.dry_run.0
    }

    /// Asks the cloud for the least that shows that address, credentials and rights are right.
    pub async fn check(&self) -> Result<()> {
        let check = self.places.run(Operation::Check, self.provider.check());
        self.metrics.observe(Operation::Check, check, |answer| answer.as_ref().err()).await
    }

    async fn observed<T>(&self, operation: Operation, question: impl Future<Output = Result<T>>) -> Result<T> {
        self.starter.ready().await?;
        self.metrics.observe(operation, question, |answer| answer.as_ref().err()).await
    }

    fn skips(&self, operation: Operation, what: &dyn std::fmt::Display) -> bool {
        self.dry_run.skips(self.metrics.provider(), operation, what)
    }
}

/// A cloud that has not started is not ready. One that does not answer later is shown and is no fault of this process: a
/// restart would not help.
impl Part for Layered {
    fn status(&self) -> Value {
        let mut status = self.places.status();
        status["kind"] = json!(self.info().name);
        status["callsUnderWay"] = json!(self.calls.under_way());
        status["pausedForSeconds"] = json!(self.calls.paused_for().as_millis() as f64 / 1000.0);
        status["dryRun"] = json!(self.is_dry_run());
        if let (Value::Object(status), Value::Object(start)) = (&mut status, self.starter.status()) {
            status.extend(start);
        }
        status
    }

    fn health(&self) -> std::result::Result<(), String> {
        self.starter.check().map_err(|error| error.message().to_owned())
    }
}

// ---- machines

impl Layered {
    /// Asks about these machines, as many as there are; one answer per question, in the same order.
    pub async fn find_instances(&self, asked: &[InstanceRef], freshness: Freshness) -> Vec<Result<InstanceState>> {
        if asked.is_empty() {
            return Vec::new();
        }
        if let Err(error) = self.starter.ready().await {
            return asked.iter().map(|_| Err(error.clone())).collect();
        }
        let question = self.cache.find(asked, freshness);
        self.metrics.observe(Operation::FindInstances, question, |answers| first_error(answers)).await
    }

    /// Leads this pod range to the machine; what was known of it before is not told any more. In a dry run nothing is done.
    pub async fn assign_pod_cidrs(&self, asked: &InstanceRef, range: IpNet) -> Result<()> {
        const OPERATION: Operation = Operation::AssignPodRange;
        let desired = async {
            let can = self.capabilities().instances.as_ref().is_some_and(|limits| limits.assign_pod_ranges);
            let instances = self.provider.instances().filter(|_| can);
            let missing =
                || unsupported(&*self.provider, OPERATION, "way to be told which pod range to lead to a machine");
            let instances = instances.ok_or_else(missing)?;
            if self.skips(OPERATION, &format_args!("pod range {range} to {}", asked.node)) {
                return Ok(());
            }
            let assigned = self.places.run(OPERATION, instances.assign_pod_cidrs(asked, range)).await;
            // Even if it failed: it may have been carried out all the same.
            self.cache.outdate(asked);
            assigned
        };
        self.observed(OPERATION, desired).await
    }
}

// ---- load balancers

impl Layered {
    /// What the cloud has for these, as many as there are; one answer per wish, in the same order.
    pub async fn observe_load_balancers(
        &self,
        wanted: &[DesiredLoadBalancer],
    ) -> Vec<Result<Option<LoadBalancerState>>> {
        if let Err(error) = self.starter.ready().await {
            return wanted.iter().map(|_| Err(error.clone())).collect();
        }
        let question = self.balancers.observe_all(wanted);
        self.metrics.observe(Operation::ObserveLoadBalancers, question, |answers| first_error(answers)).await
    }

    /// What the cloud has for this one. Questions that come within a moment of each other are asked together.
    pub async fn observe_load_balancer(&self, desired: &DesiredLoadBalancer) -> Result<Option<LoadBalancerState>> {
        self.observed(Operation::ObserveLoadBalancers, self.balancers.observe(desired)).await
    }

    /// All keys of this cluster for which the cloud has anything.
    pub async fn list_load_balancers(&self, cluster: &ClusterName) -> Result<Vec<LoadBalancerKey>> {
        const OPERATION: Operation = Operation::ListLoadBalancers;
        let question = async {
            let (balancers, _) = self.load_balancers(OPERATION)?;
            self.places.run(OPERATION, balancers.list(cluster)).await
        };
        self.observed(OPERATION, question).await
    }

    /// What a Service with these annotations wishes in the words that every cloud shares, if the common ones of them say
    /// `common`. Makes no call.
    pub fn load_balancer_settings(
        &self,
        annotations: &BTreeMap<String, String>,
        common: LoadBalancerSettings,
    ) -> std::result::Result<LoadBalancerSettings, Vec<Mistake>> {
        match self.provider.load_balancers() {
            Some(balancers) => balancers.settings(annotations, common),
            None => Ok(common),
        }
    }

    /// Whether the cloud can do all that is wished, as far as that can be said without asking it.
    pub fn check_load_balancer(&self, desired: &DesiredLoadBalancer) -> Result<()> {
        let (balancers, capabilities) = self.load_balancers(Operation::PlanLoadBalancer)?;
        let provider = &self.info().name;
        let kind = capability::requested_kind(provider, balancers, desired, capabilities)?;
        capability::check_load_balancer(provider, desired, kind)
    }

    /// Maximum number of targets of a load balancer of the kind that this Service requests. Makes no call.
    pub fn max_targets(&self, desired: &DesiredLoadBalancer) -> Option<usize> {
        let (balancers, capabilities) = self.load_balancers(Operation::PlanLoadBalancer).ok()?;
        capabilities.kind(balancers.kind(desired))?.max_targets
    }

    /// How to get from `state` to what is wished. What the cloud cannot do is an error of the kind `Unsupported` that names
    /// all of it. Makes no call.
    pub fn plan_load_balancer(&self, desired: &DesiredLoadBalancer, state: Option<&LoadBalancerState>) -> Result<Plan> {
        self.check_load_balancer(desired)?;
        let (balancers, _) = self.load_balancers(Operation::PlanLoadBalancer)?;
        if let Some(operation) = state.and_then(|state| state.pending.as_ref()) {
            return Err(self.operations.running(&desired.key, operation, &Operation::PlanLoadBalancer.to_string()));
        }
        let plan = self.operations.paced(&desired.key, balancers.plan(desired, state))?;
        self.outcome_unknown.check_plan(desired, &plan)?;
        if !plan.is_empty() {
            self.dry_run.print(self.metrics.provider(), Operation::PlanLoadBalancer, &plan);
        }
        Ok(plan)
    }

    /// Carries out one step. In a dry run nothing is done, and nothing is known afterwards.
    pub async fn apply_load_balancer(
        &self,
        key: &LoadBalancerKey,
        step: &Step,
        polled: Option<&Opaque>,
    ) -> Result<Applied> {
        const OPERATION: Operation = Operation::ApplyLoadBalancer;
        let desired = async {
            let (balancers, _) = self.load_balancers(OPERATION)?;
            if self.skips(OPERATION, step) {
                return Ok(Applied::Done);
            }
            let attempt = self.outcome_unknown.begin(key, step)?;
            let applied = self.places.run(OPERATION, balancers.apply(key, step, polled)).await;
            self.operations.paced(key, attempt.ended(applied))
        };
        self.observed(OPERATION, desired).await
    }

    /// Succeeds if the operation that a step has started has ended, with what the poll has read for the next step. While it has
    /// not, that is an `InProgress` error that says when to poll again; after its deadline, an `Unavailable` one.
    pub async fn poll_load_balancer(&self, key: &LoadBalancerKey, started: &bowline_core::Operation) -> Result<Opaque> {
        const OPERATION: Operation = Operation::PollLoadBalancer;
        let question = async {
            let (balancers, _) = self.load_balancers(OPERATION)?;
            let polled = self.places.run(OPERATION, balancers.poll(key, started)).await;
            let ended = polled.and_then(|progress| match progress {
                Progress::Done(polled) => Ok(polled),
                Progress::Running => Err(Error::pending(started.clone(), OPERATION.to_string())),
            });
            self.operations.paced(key, ended)
        };
        self.observed(OPERATION, question).await
    }

    fn load_balancers(&self, operation: Operation) -> Result<(&dyn LoadBalancers, &LoadBalancerCapabilities)> {
        let balancers = self.provider.load_balancers().zip(self.capabilities().load_balancers.as_ref());
        balancers.ok_or_else(|| unsupported(&*self.provider, operation, "load balancers"))
    }
}

// ---- routes

impl Layered {
    /// All routes of this cluster.
    pub async fn list_routes(&self, cluster: &ClusterName) -> Result<Vec<Route>> {
        const OPERATION: Operation = Operation::ListRoutes;
        let question = async {
            let (routes, _) = self.routes(OPERATION)?;
            self.places.run(OPERATION, routes.list(cluster)).await
        };
        self.observed(OPERATION, question).await
    }

    /// Creates this route, in one batch with others that are created at about the same time if the provider takes batches. In
    /// a dry run nothing is done, and the answer is the route as it would be.
    pub async fn create_route(&self, cluster: &ClusterName, route: &RouteSpec) -> Result<Route> {
        const OPERATION: Operation = Operation::CreateRoute;
        let desired = async {
            let (_, capabilities) = self.routes(OPERATION)?;
            capability::check_route(&self.info().name, route, capabilities)?;
            if self.skips(OPERATION, &format_args!("route {} to {}", route.destination, route.node)) {
                return Ok(Route::of(route));
            }
            self.routes.create(cluster, route).await
        };
        self.observed(OPERATION, desired).await
    }

    /// Deletes this route, exactly as it was listed, in one batch with others that are deleted at about the same time.
    pub async fn delete_route(&self, cluster: &ClusterName, route: &Route) -> Result<()> {
        const OPERATION: Operation = Operation::DeleteRoute;
        let desired = async {
            self.routes(OPERATION)?;
            if self.skips(OPERATION, &format_args!("route {} ({})", route.destination, route.id)) {
                return Ok(());
            }
            self.routes.delete(cluster, route).await
        };
        self.observed(OPERATION, desired).await
    }

    fn routes(&self, operation: Operation) -> Result<(&dyn Routes, &RouteCapabilities)> {
        let routes = self.provider.routes().zip(self.capabilities().routes.as_ref());
        routes.ok_or_else(|| unsupported(&*self.provider, operation, "routes"))
    }
}

fn unsupported(provider: &dyn CloudProvider, operation: Operation, what: &str) -> Error {
    let message = format!("the provider {} has no {what}", provider.info().name);
    Error::new(ErrorKind::Unsupported, operation.to_string(), message)
}

fn first_error<T>(answers: &[Result<T>]) -> Option<&Error> {
    answers.iter().find_map(|answer| answer.as_ref().err())
}
