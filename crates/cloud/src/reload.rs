//! A provider whose configuration, in particular its credentials, is reloaded while it is in use.
//!
//! ```text
//!  --cloud-config or a file it names changes ──► rebuild ──► start() ──► same cloud? ──► check() ──► replaces the old provider
//!                                                   └───────────┴────────────┴──────────────┴─ failure: the old one stays
//! ```
//!
//! The properties that the rest of the program depends on do not change: name, ID prefixes and capabilities. A configuration that
//! changes one of them is rejected with an error that asks for a restart. Calls in progress finish on the provider that they
//! started on.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use bowline_config::ConfigErrors;
use bowline_core::annotations::{FieldError, LoadBalancerSettings};
use bowline_core::{
    ClusterName, DesiredLoadBalancer, InstanceRef, InstanceState, LoadBalancerKey, LoadBalancerState, Opaque,
    Operation, Plan, Progress, ProviderId, Route, RouteSpec, Step,
};
use bowline_runtime::{Fingerprint, Reloadable};
use futures::FutureExt;
use futures::future::BoxFuture;
use ipnet::IpNet;
use tokio::time::{Instant, sleep};

use crate::{
    Applied, Calls, Capabilities, CheckResult, CloudProvider, Endpoint, Error, ErrorKind, Facts, Identity,
    InstancePage, Instances, LoadBalancers, LoopTriggers, PageToken, ProviderInfo, ProviderLoop, Quota, Result, Routes,
    SecretData, SecretRef, SyncMetrics, Webhook,
};

/// Timeout for starting and checking a provider with a new configuration.
const CHECK_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum time for which a replaced provider may finish calls in progress before it is closed, and the period of the check.
const MAX_CALL: Duration = Duration::from_secs(120);
const IDLE_CHECK: Duration = Duration::from_secs(1);

/// Reads the configuration and builds a provider from it.
type Rebuild = dyn Fn() -> std::result::Result<Arc<dyn CloudProvider>, ConfigErrors> + Send + Sync;

/// Delegates to the provider with the latest valid configuration.
pub struct Reloading {
    info: ProviderInfo,
    capabilities: Capabilities,
    config: Option<PathBuf>,
    fingerprint: Fingerprint,
    current: RwLock<Arc<dyn CloudProvider>>,
    /// Facts of the first successful start.
    facts: OnceLock<Facts>,
    /// Last contents of each Secret, for a provider that is rebuilt.
    secrets: Mutex<BTreeMap<SecretRef, Option<SecretData>>>,
    revision: AtomicU64,
    rebuild: Box<Rebuild>,
}

impl Reloading {
    /// Builds the provider with `rebuild`, and again whenever `config` or a file that it names changes.
    pub fn new(
        config: Option<PathBuf>,
        rebuild: impl Fn() -> std::result::Result<Arc<dyn CloudProvider>, ConfigErrors> + Send + Sync + 'static,
    ) -> std::result::Result<Reloading, ConfigErrors> {
        // The names of the files are known only after the first build. The second build comes after the fingerprint, so that a
        // change in between is detected as a change.
        let fingerprint = Fingerprint::of(&files(&config, &*rebuild()?));
        let current = rebuild()?;
        Ok(Reloading {
            info: current.info().clone(),
            capabilities: current.capabilities().clone(),
            config,
            fingerprint,
            current: RwLock::new(current),
            facts: OnceLock::new(),
            secrets: Mutex::default(),
            revision: AtomicU64::new(0),
            rebuild: Box::new(rebuild),
        })
    }

    fn current(&self) -> Arc<dyn CloudProvider> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the property of the provider that changed and needs a restart, if any.
    fn changed_property(&self, new: &dyn CloudProvider) -> Option<&'static str> {
        let (old, info) = (&self.info, new.info());
        match () {
            () if info.name != old.name => Some("its name"),
            () if info.id_prefixes != old.id_prefixes => Some("the prefix of its provider IDs"),
            () if *new.capabilities() != self.capabilities => Some("its capabilities"),
            () if loop_declarations(new) != loop_declarations(&*self.current()) => Some("its background loops"),
            () if webhook_declarations(new) != webhook_declarations(&*self.current()) => Some("its webhooks"),
            () if new.endpoints() != self.current().endpoints() => Some("its endpoints"),
            () if new.secrets() != self.current().secrets() => Some("the Secrets that it needs"),
            () => None,
        }
    }

    /// Returns the fact that changed and needs a restart, if any; none if the provider never started.
    fn changed_fact(&self, new: &Facts) -> Option<&'static str> {
        let old = self.facts.get()?;
        match () {
            () if new.region != old.region => Some("its region"),
            () if new.cluster_id != old.cluster_id => Some("its cluster ID"),
            () if new.capabilities != old.capabilities => Some("its capabilities"),
            () => None,
        }
    }

    fn secret_contents(&self) -> BTreeMap<SecretRef, Option<SecretData>> {
        self.secrets.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn rebuilt(&self) -> std::result::Result<Arc<dyn CloudProvider>, String> {
        let new = (self.rebuild)().map_err(|errors| errors.to_string())?;
        let restart = |what| Err(format!("the configuration changes {what}; restart the manager to use it"));
        if let Some(what) = self.changed_property(&*new) {
            return restart(what);
        }
        let checked = async {
            let secrets = self.secret_contents();
            for (secret, data) in &secrets {
                new.on_secret(secret, data.as_ref()).await?;
            }
            let facts = new.start().await?;
            new.check().await.map(|()| facts)
        };
        let rejected = match tokio::time::timeout(CHECK_TIMEOUT, checked).await {
            Ok(Ok(facts)) => match self.changed_fact(&facts) {
                Some(what) => restart(what),
                None => return Ok(new),
            },
            Ok(Err(error)) => Err(format!("the cloud rejects it: {error}")),
            Err(_) => Err(format!("the cloud did not answer within {CHECK_TIMEOUT:?}")),
        };
        tokio::spawn(close_when_idle(new));
        rejected
    }
}

/// Closes a provider that was replaced, after the calls in progress on it.
async fn close_when_idle(old: Arc<dyn CloudProvider>) {
    let begun = Instant::now();
    while Arc::strong_count(&old) > 1 && begun.elapsed() < MAX_CALL {
        sleep(IDLE_CHECK).await;
    }
    old.close().await;
}

/// Names, periods and triggers of the background loops.
fn loop_declarations(provider: &dyn CloudProvider) -> Vec<(String, Duration, LoopTriggers)> {
    provider.loops().iter().map(|one| (one.name().to_owned(), one.period(), one.triggers())).collect()
}

/// Names and paths of the webhooks.
fn webhook_declarations(provider: &dyn CloudProvider) -> Vec<(String, String)> {
    provider.webhooks().iter().map(|one| (one.name().to_owned(), one.path().to_owned())).collect()
}

fn files(config: &Option<PathBuf>, provider: &dyn CloudProvider) -> Vec<PathBuf> {
    config.iter().cloned().chain(provider.files()).collect()
}

impl Reloadable for Reloading {
    fn files(&self) -> Vec<PathBuf> {
        files(&self.config, &*self.current())
    }

    fn other_sources(&self) -> Vec<String> {
        self.current().secrets().iter().map(|secret| format!("Secret {secret}")).collect()
    }

    fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    fn reload(&self) -> BoxFuture<'_, std::result::Result<(), String>> {
        async {
            let new = self.rebuilt().await?;
            let old = std::mem::replace(&mut *self.current.write().unwrap_or_else(PoisonError::into_inner), new);
            self.revision.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(close_when_idle(old));
            Ok(())
        }
        .boxed()
    }
}

#[async_trait]
impl CloudProvider for Reloading {
    fn info(&self) -> &ProviderInfo {
        &self.info
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn owns(&self, id: &ProviderId) -> bool {
        self.current().owns(id)
    }

    fn instances(&self) -> Option<&dyn Instances> {
        self.capabilities.instances.as_ref().map(|_| self as &dyn Instances)
    }

    fn load_balancers(&self) -> Option<&dyn LoadBalancers> {
        self.capabilities.load_balancers.as_ref().map(|_| self as &dyn LoadBalancers)
    }

    fn routes(&self) -> Option<&dyn Routes> {
        self.capabilities.routes.as_ref().map(|_| self as &dyn Routes)
    }

    fn loops(&self) -> Vec<Arc<dyn ProviderLoop>> {
        self.current().loops()
    }

    fn webhooks(&self) -> Vec<Arc<dyn Webhook>> {
        self.current().webhooks()
    }

    fn endpoints(&self) -> Vec<Endpoint> {
        self.current().endpoints()
    }

    fn revision(&self) -> u64 {
        self.revision.load(Ordering::SeqCst)
    }

    fn secrets(&self) -> Vec<SecretRef> {
        self.current().secrets()
    }

    async fn on_secret(&self, secret: &SecretRef, data: Option<&SecretData>) -> Result<()> {
        self.current().on_secret(secret, data).await?;
        self.secrets.lock().unwrap_or_else(PoisonError::into_inner).insert(secret.clone(), data.cloned());
        self.revision.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn files(&self) -> Vec<PathBuf> {
        self.current().files()
    }

    fn sync_metrics(&self) -> Option<SyncMetrics> {
        self.current().sync_metrics()
    }

    fn event_component(&self) -> Option<&'static str> {
        self.current().event_component()
    }

    fn calls(&self) -> Option<Calls> {
        self.current().calls()
    }

    async fn start(&self) -> Result<Facts> {
        let facts = self.current().start().await?;
        Ok(self.facts.get_or_init(|| facts).clone())
    }

    async fn check(&self) -> Result<()> {
        self.current().check().await
    }

    async fn diagnose(&self) -> Vec<CheckResult> {
        self.current().diagnose().await
    }

    async fn close(&self) {
        self.current().close().await;
    }

    async fn quotas(&self) -> Result<Vec<Quota>> {
        self.current().quotas().await
    }
}

/// Error for a provider that claims a capability without implementing its trait, which violates the contract.
fn not_implemented(operation: &'static str) -> Error {
    Error::new(ErrorKind::Unsupported, operation, "the provider does not implement this operation")
}

#[async_trait]
impl Instances for Reloading {
    async fn find(&self, refs: &[InstanceRef]) -> Vec<Result<InstanceState>> {
        match self.current().instances() {
            Some(instances) => instances.find(refs).await,
            None => refs.iter().map(|_| Err(not_implemented("find instances"))).collect(),
        }
    }

    async fn list(&self, page: Option<&PageToken>) -> Result<InstancePage> {
        self.current().instances().ok_or_else(|| not_implemented("list instances"))?.list(page).await
    }

    async fn describe(&self, brief: &[Opaque], refs: &[InstanceRef]) -> Vec<Result<InstanceState>> {
        match self.current().instances() {
            Some(instances) => instances.describe(brief, refs).await,
            None => (0..brief.len() + refs.len()).map(|_| Err(not_implemented("describe instances"))).collect(),
        }
    }

    async fn assign_pod_cidrs(&self, machine: &InstanceRef, cidr: IpNet) -> Result<()> {
        self.current()
            .instances()
            .ok_or_else(|| not_implemented("assign pod CIDR"))?
            .assign_pod_cidrs(machine, cidr)
            .await
    }

    fn identify(&self, machine: &InstanceRef) -> Result<Identity> {
        self.current().instances().ok_or_else(|| not_implemented("identify instances"))?.identify(machine)
    }
}

#[async_trait]
impl LoadBalancers for Reloading {
    fn settings(
        &self,
        annotations: &BTreeMap<String, String>,
        common: LoadBalancerSettings,
    ) -> std::result::Result<LoadBalancerSettings, Vec<FieldError>> {
        match self.current().load_balancers() {
            Some(current) => current.settings(annotations, common),
            None => Ok(common),
        }
    }

    fn kind(&self, desired: &DesiredLoadBalancer) -> Option<&'static str> {
        self.current().load_balancers()?.kind(desired)
    }

    async fn observe(&self, desired: &[DesiredLoadBalancer]) -> Vec<Result<Option<LoadBalancerState>>> {
        match self.current().load_balancers() {
            Some(current) => current.observe(desired).await,
            None => desired.iter().map(|_| Err(not_implemented("observe load balancers"))).collect(),
        }
    }

    async fn list(&self, cluster: &ClusterName) -> Result<Vec<LoadBalancerKey>> {
        self.current().load_balancers().ok_or_else(|| not_implemented("list load balancers"))?.list(cluster).await
    }

    fn is_owner(&self, listed: &LoadBalancerKey, desired: &DesiredLoadBalancer) -> bool {
        let is_owner = |current: &dyn LoadBalancers| current.is_owner(listed, desired);
        self.current().load_balancers().map_or_else(|| listed.matches(&desired.key), is_owner)
    }

    fn plan(&self, desired: &DesiredLoadBalancer, state: Option<&LoadBalancerState>) -> Result<Plan> {
        self.current().load_balancers().ok_or_else(|| not_implemented("plan load balancer"))?.plan(desired, state)
    }

    async fn apply(&self, key: &LoadBalancerKey, step: &Step, polled: Option<&Opaque>) -> Result<Applied> {
        self.current()
            .load_balancers()
            .ok_or_else(|| not_implemented("apply load balancer"))?
            .apply(key, step, polled)
            .await
    }

    async fn poll(&self, key: &LoadBalancerKey, operation: &Operation) -> Result<Progress> {
        self.current().load_balancers().ok_or_else(|| not_implemented("poll load balancer"))?.poll(key, operation).await
    }
}

#[async_trait]
impl Routes for Reloading {
    async fn list(&self, cluster: &ClusterName) -> Result<Vec<Route>> {
        self.current().routes().ok_or_else(|| not_implemented("list routes"))?.list(cluster).await
    }

    async fn create(&self, cluster: &ClusterName, routes: &[RouteSpec]) -> Vec<Result<Route>> {
        match self.current().routes() {
            Some(current) => current.create(cluster, routes).await,
            None => routes.iter().map(|_| Err(not_implemented("create routes"))).collect(),
        }
    }

    async fn delete(&self, cluster: &ClusterName, routes: &[Route]) -> Vec<Result<()>> {
        match self.current().routes() {
            Some(current) => current.delete(cluster, routes).await,
            None => routes.iter().map(|_| Err(not_implemented("delete routes"))).collect(),
        }
    }

    fn lock(&self, cluster: &ClusterName) -> Option<String> {
        self.current().routes()?.lock(cluster)
    }
}

#[cfg(test)]
mod tests;
