//! The layers around every provider, one file each. The documentation of the crate shows their order.
//!
//! `observe` and `concurrency` apply to all operations; `capability`, `dry_run`, `cache`, `load_balancers` and `routes` to one
//! group of operations each. HTTP calls are limited, retried and measured below the provider, in [`calls`](crate::calls).

mod cache;
pub mod capability;
mod concurrency;
mod dry_run;
#[cfg(test)]
mod faulty_provider;
mod listing;
mod load_balancers;
mod loops;
pub(crate) mod observe;
mod operation;
mod operations;
mod pending_creates;
mod read;
mod routes;
#[cfg(test)]
mod tests;
mod webhooks;

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bowline_core::annotations::{FieldError, LoadBalancerSettings};
use bowline_core::{
    ClusterName, DesiredLoadBalancer, InstanceRef, InstanceState, LoadBalancerKey, LoadBalancerState, Opaque, Plan,
    Progress, ProviderId, Route, RouteSpec, Step,
};

use bowline_runtime::Component;
use ipnet::IpNet;
use serde_json::{Value, json};

pub use crate::layers::concurrency::LastResults;
pub use crate::layers::observe::METRICS;
pub use crate::layers::operations::Operations;
pub use crate::layers::pending_creates::{Attempt, PendingCreates};

use crate::layers::cache::Cache;
use crate::layers::concurrency::ConcurrencyLimits;
use crate::layers::dry_run::DryRun;
use crate::layers::load_balancers::Observer;
use crate::layers::observe::Metrics;
use crate::layers::operation::Operation;
use crate::layers::read::Reader;
use crate::layers::routes::RouteWriter;
use crate::start::Starter;
use crate::{
    Applied, CallBudget, Calls, Capabilities, CloudProvider, Error, ErrorKind, Facts, Freshness,
    LoadBalancerCapabilities, LoadBalancers, Locks, ProviderInfo, Result, RouteCapabilities, Routes, SecretData,
    SecretRef, SyncPurpose,
};

/// Options of the layers. Those of single calls are in [`CallPolicy`](crate::CallPolicy).
#[derive(Debug, Clone)]
pub struct LayerOptions {
    /// Writes are logged instead of made.
    pub dry_run: bool,
    /// Time for which a lookup, an observation or a route write waits for others to join its batch.
    pub batch_window: Duration,
    /// A cloud that does not mark this cluster's resources does not become ready.
    pub requires_cluster_id: bool,
}

impl Default for LayerOptions {
    fn default() -> LayerOptions {
        LayerOptions { dry_run: false, batch_window: Duration::from_millis(3), requires_cluster_id: false }
    }
}

/// A provider with all layers.
pub struct Layered {
    starter: Arc<Starter>,
    provider: Arc<dyn CloudProvider>,
    metrics: Arc<Metrics>,
    dry_run: DryRun,
    cache: Arc<Cache>,
    load_balancers: Arc<Observer>,
    routes: Arc<RouteWriter>,
    operations: Operations,
    creates: PendingCreates,
    locks: Locks,
    limits: Arc<ConcurrencyLimits>,
    calls: Calls,
}

impl Layered {
    /// Wraps `provider` in the layers. Registers their metrics under `name` in `registry`, which other providers may share.
    pub fn new(
        provider: Arc<dyn CloudProvider>,
        name: &str,
        options: &LayerOptions,
        registry: &prometheus::Registry,
    ) -> Layered {
        let metrics = Arc::new(Metrics::new(name, registry));
        let calls = provider.calls().unwrap_or_default();
        calls.register_metrics(name, registry);
        let limits = Arc::new(ConcurrencyLimits::new(provider.capabilities()));
        let reader = Reader::new(Arc::clone(&provider), Arc::clone(&limits));
        let cache = Cache::new(reader, options.batch_window, Arc::clone(&metrics));
        let load_balancers = Observer::new(Arc::clone(&provider), Arc::clone(&limits), options.batch_window);
        let locks = Locks::default();
        let routes = RouteWriter::new(Arc::clone(&provider), Arc::clone(&limits), locks.clone(), options.batch_window);
        let starter = Starter::new(name, Arc::clone(&provider), options.requires_cluster_id);
        Layered {
            starter,
            provider,
            metrics,
            dry_run: DryRun(options.dry_run),
            cache,
            load_balancers,
            routes,
            operations: Operations::default(),
            creates: PendingCreates::default(),
            locks,
            limits,
            calls,
        }
    }

    /// Returns the provider's name and ID prefixes.
    pub fn info(&self) -> &ProviderInfo {
        self.provider.info()
    }

    /// Returns whether the provider owns this ID.
    pub fn owns(&self, id: &ProviderId) -> bool {
        self.provider.owns(id)
    }

    /// Returns how many times the provider's configuration or credentials were replaced.
    pub fn revision(&self) -> u64 {
        self.provider.revision()
    }

    /// Returns the source component of the Events that a plan's warnings become; `None` for the controller itself.
    pub fn event_component(&self) -> Option<&'static str> {
        self.provider.event_component()
    }

    /// Records a finished load balancer sync in the provider's own metrics, if it declares any.
    pub fn record_sync(&self, purpose: SyncPurpose, took: Duration, failed: bool) {
        if let Some(metrics) = self.provider.sync_metrics() {
            metrics.record(purpose, took, failed);
        }
    }

    /// Returns the capabilities: those of the configuration, or those of the facts once the cloud has started.
    pub fn capabilities(&self) -> &Capabilities {
        let lowered = self.facts().and_then(|facts| facts.capabilities.as_ref());
        lowered.unwrap_or_else(|| self.provider.capabilities())
    }

    /// Returns the facts from the start of the cloud; `None` until it has started.
    pub fn facts(&self) -> Option<&Facts> {
        self.starter.facts()
    }

    /// Starts the provider, unless it has started.
    pub async fn start(&self) -> Result<()> {
        self.starter.start().await
    }

    /// Delivers the contents of a Secret, or the error of reading it, to the provider. Starts the provider if this was the last
    /// missing Secret.
    pub async fn deliver_secret(&self, secret: &SecretRef, data: Result<Option<SecretData>>) {
        self.starter.deliver(secret, data).await;
    }

    /// Returns the call layer.
    pub fn calls(&self) -> &Calls {
        &self.calls
    }

    /// Returns the time of the last success and of the last failure.
    pub fn last_results(&self) -> LastResults {
        self.limits.last_results()
    }

    pub(crate) fn starter(&self) -> &Arc<Starter> {
        &self.starter
    }

    /// Returns the locks on shared resources of this cloud.
    pub fn locks(&self) -> &Locks {
        &self.locks
    }

    /// Returns whether writes are only logged.
    pub fn is_dry_run(&self) -> bool {
        self.dry_run.0
    }

    /// Ends sessions in the cloud.
    pub async fn close(&self) {
        self.provider.close().await;
    }

    /// Verifies endpoint, credentials and permissions. Fails until the cloud has started.
    pub async fn check(&self) -> Result<()> {
        self.run(Operation::Check, self.limits.run(Operation::Check, self.provider.check())).await
    }

    async fn run<T>(&self, operation: Operation, work: impl Future<Output = Result<T>>) -> Result<T> {
        self.starter.ready().await?;
        self.metrics.observe(operation, work, |result| result.as_ref().err()).await
    }

    fn skips(&self, operation: Operation, what: &dyn std::fmt::Display) -> bool {
        self.dry_run.skips(self.metrics.provider(), operation, what)
    }
}

/// A cloud that has not started is not ready. A cloud that fails later is shown in the status and does not make this process
/// unhealthy: a restart would not help.
impl Component for Layered {
    fn status(&self) -> Value {
        let mut status = self.limits.status();
        status["kind"] = json!(self.info().name);
        status["callsUnderWay"] = json!(self.calls.in_progress());
        status["pausedForSeconds"] = json!(self.calls.paused_for().as_millis() as f64 / 1000.0);
        status["dryRun"] = json!(self.is_dry_run());
        for (service, CallBudget { limit, remaining, resets_in }) in self.calls.budgets() {
            status["callBudget"][service] = json!({
                "limit": limit, "remaining": remaining, "resetsInSeconds": resets_in.as_secs(),
            });
        }
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
    /// Looks up any number of machines. Returns one result each, in the same order.
    pub async fn find_instances(&self, refs: &[InstanceRef], freshness: Freshness) -> Vec<Result<InstanceState>> {
        if refs.is_empty() {
            return Vec::new();
        }
        if let Err(error) = self.starter.ready().await {
            return refs.iter().map(|_| Err(error.clone())).collect();
        }
        let lookup = self.cache.find(refs, freshness);
        self.metrics.observe(Operation::FindInstances, lookup, |results| first_error(results)).await
    }

    /// Assigns a pod CIDR to a machine, and invalidates the cache for it. Does nothing in a dry run.
    pub async fn assign_pod_cidrs(&self, machine: &InstanceRef, cidr: IpNet) -> Result<()> {
        const OPERATION: Operation = Operation::AssignPodCidr;
        let work = async {
            let can = self.capabilities().instances.as_ref().is_some_and(|limits| limits.assign_pod_cidrs);
            let instances = self.provider.instances().filter(|_| can);
            let missing = || unsupported(&*self.provider, OPERATION, "support for assigning pod CIDRs to machines");
            let instances = instances.ok_or_else(missing)?;
            if self.skips(OPERATION, &format_args!("pod CIDR {cidr} to {}", machine.node)) {
                return Ok(());
            }
            let assigned = self.limits.run(OPERATION, instances.assign_pod_cidrs(machine, cidr)).await;
            // Also after a failure, because the cloud may have executed the request.
            self.cache.invalidate(machine);
            assigned
        };
        self.run(OPERATION, work).await
    }
}

// ---- load balancers

impl Layered {
    /// Observes any number of load balancers. Returns one result each, in the same order.
    pub async fn observe_load_balancers(
        &self,
        desired: &[DesiredLoadBalancer],
    ) -> Vec<Result<Option<LoadBalancerState>>> {
        if let Err(error) = self.starter.ready().await {
            return desired.iter().map(|_| Err(error.clone())).collect();
        }
        let observation = self.load_balancers.observe_all(desired);
        self.metrics.observe(Operation::ObserveLoadBalancers, observation, |results| first_error(results)).await
    }

    /// Observes one load balancer, in one batch with observations that start within the batch window.
    pub async fn observe_load_balancer(&self, desired: &DesiredLoadBalancer) -> Result<Option<LoadBalancerState>> {
        self.run(Operation::ObserveLoadBalancers, self.load_balancers.observe(desired)).await
    }

    /// Returns the keys of this cluster for which the cloud has a resource.
    pub async fn list_load_balancers(&self, cluster: &ClusterName) -> Result<Vec<LoadBalancerKey>> {
        const OPERATION: Operation = Operation::ListLoadBalancers;
        let work = async {
            let (load_balancers, _) = self.load_balancers(OPERATION)?;
            self.limits.run(OPERATION, load_balancers.list(cluster)).await
        };
        self.run(OPERATION, work).await
    }

    /// Returns whether a listed key is that of this Service's load balancer. Makes no call.
    pub fn is_load_balancer_owner(&self, listed: &LoadBalancerKey, desired: &DesiredLoadBalancer) -> bool {
        let load_balancers = self.provider.load_balancers();
        load_balancers.is_some_and(|load_balancers| load_balancers.is_owner(listed, desired))
    }

    /// Returns the common settings of a Service with these annotations, including those that the cloud's own annotations determine.
    /// `common` are the settings from the common annotations. Makes no call.
    pub fn load_balancer_settings(
        &self,
        annotations: &BTreeMap<String, String>,
        common: LoadBalancerSettings,
    ) -> std::result::Result<LoadBalancerSettings, Vec<FieldError>> {
        match self.provider.load_balancers() {
            Some(load_balancers) => load_balancers.settings(annotations, common),
            None => Ok(common),
        }
    }

    /// Checks that the cloud supports everything that is desired, as far as possible without a call.
    pub fn check_load_balancer(&self, desired: &DesiredLoadBalancer) -> Result<()> {
        let (load_balancers, capabilities) = self.load_balancers(Operation::PlanLoadBalancer)?;
        let provider = &self.info().name;
        let kind = capability::requested_kind(provider, load_balancers, desired, capabilities)?;
        capability::check_load_balancer(provider, desired, kind)
    }

    /// Returns the maximum number of targets of a load balancer of the kind that this Service requests. Makes no call.
    pub fn max_targets(&self, desired: &DesiredLoadBalancer) -> Option<usize> {
        let (load_balancers, capabilities) = self.load_balancers(Operation::PlanLoadBalancer).ok()?;
        capabilities.kind(load_balancers.kind(desired))?.max_targets
    }

    /// Returns the steps from `state` to the desired state, or an `Unsupported` error that names everything that the cloud does not
    /// support. Makes no call.
    pub fn plan_load_balancer(&self, desired: &DesiredLoadBalancer, state: Option<&LoadBalancerState>) -> Result<Plan> {
        self.check_load_balancer(desired)?;
        let (load_balancers, _) = self.load_balancers(Operation::PlanLoadBalancer)?;
        if let Some(operation) = state.and_then(|state| state.pending.as_ref()) {
            return Err(self.operations.running(&desired.key, operation, &Operation::PlanLoadBalancer.to_string()));
        }
        let plan = self.operations.paced(&desired.key, load_balancers.plan(desired, state))?;
        self.creates.check_plan(desired, &plan)?;
        if !plan.is_empty() {
            self.dry_run.log(self.metrics.provider(), Operation::PlanLoadBalancer, &plan);
        }
        Ok(plan)
    }

    /// Applies one step. In a dry run, does nothing and returns [`Applied::Done`].
    pub async fn apply_load_balancer(
        &self,
        key: &LoadBalancerKey,
        step: &Step,
        polled: Option<&Opaque>,
    ) -> Result<Applied> {
        const OPERATION: Operation = Operation::ApplyLoadBalancer;
        let work = async {
            let (load_balancers, _) = self.load_balancers(OPERATION)?;
            if self.skips(OPERATION, step) {
                return Ok(Applied::Done);
            }
            let attempt = self.creates.begin(key, step)?;
            let applied = self.limits.run(OPERATION, load_balancers.apply(key, step, polled)).await;
            self.operations.paced(key, attempt.ended(applied))
        };
        self.run(OPERATION, work).await
    }

    /// Polls an operation that a step started. Returns the data for the next step once the operation has ended. Until then, fails
    /// with `InProgress` and the time of the next poll, and after the deadline with `Unavailable`.
    pub async fn poll_load_balancer(&self, key: &LoadBalancerKey, started: &bowline_core::Operation) -> Result<Opaque> {
        const OPERATION: Operation = Operation::PollLoadBalancer;
        let work = async {
            let (load_balancers, _) = self.load_balancers(OPERATION)?;
            let polled = self.limits.run(OPERATION, load_balancers.poll(key, started)).await;
            let ended = polled.and_then(|progress| match progress {
                Progress::Done(polled) => Ok(polled),
                Progress::Running => Err(Error::pending(started.clone(), OPERATION.to_string())),
            });
            self.operations.paced(key, ended)
        };
        self.run(OPERATION, work).await
    }

    fn load_balancers(&self, operation: Operation) -> Result<(&dyn LoadBalancers, &LoadBalancerCapabilities)> {
        let load_balancers = self.provider.load_balancers().zip(self.capabilities().load_balancers.as_ref());
        load_balancers.ok_or_else(|| unsupported(&*self.provider, operation, "load balancers"))
    }
}

// ---- routes

impl Layered {
    /// Returns all routes of this cluster.
    pub async fn list_routes(&self, cluster: &ClusterName) -> Result<Vec<Route>> {
        const OPERATION: Operation = Operation::ListRoutes;
        let work = async {
            let (routes, _) = self.routes(OPERATION)?;
            self.limits.run(OPERATION, routes.list(cluster)).await
        };
        self.run(OPERATION, work).await
    }

    /// Creates a route, in one batch with concurrent creations if the provider supports batches. In a dry run, does nothing and
    /// returns the route as it would be.
    pub async fn create_route(&self, cluster: &ClusterName, route: &RouteSpec) -> Result<Route> {
        const OPERATION: Operation = Operation::CreateRoute;
        let work = async {
            let (_, capabilities) = self.routes(OPERATION)?;
            capability::check_route(&self.info().name, route, capabilities)?;
            if self.skips(OPERATION, &format_args!("route {} to {}", route.destination, route.node)) {
                return Ok(Route::of(route));
            }
            self.routes.create(cluster, route).await
        };
        self.run(OPERATION, work).await
    }

    /// Deletes a route, exactly as it was listed, in one batch with concurrent deletions if the provider supports batches.
    pub async fn delete_route(&self, cluster: &ClusterName, route: &Route) -> Result<()> {
        const OPERATION: Operation = Operation::DeleteRoute;
        let work = async {
            self.routes(OPERATION)?;
            if self.skips(OPERATION, &format_args!("route {} ({})", route.destination, route.id)) {
                return Ok(());
            }
            self.routes.delete(cluster, route).await
        };
        self.run(OPERATION, work).await
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

fn first_error<T>(results: &[Result<T>]) -> Option<&Error> {
    results.iter().find_map(|result| result.as_ref().err())
}
