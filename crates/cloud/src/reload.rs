//! A provider whose configuration, credentials above all, may change while it is in use.
//!
//! ```text
//!  --cloud-config and the files it names change ──► build anew ──► start() ──► the same cloud? ──► check() ──► in the place of
//!                                                    └──────────────┴──────────────┴──────────────────┴─ no: the old one stays
//! ```
//!
//! What the rest of the program has built on stays as it was: what the cloud is called, whose machines it owns and what it can
//! do. A configuration that changes any of that needs a restart, and is told so. Calls under way end on the provider that
//! they began with.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use bowline_config::ConfigErrors;
use bowline_core::annotations::{LoadBalancerSettings, Mistake};
use bowline_core::{
    ClusterName, DesiredLoadBalancer, InstanceRef, InstanceState, LoadBalancerKey, LoadBalancerState, Opaque,
    Operation, Plan, Progress, ProviderId, Route, RouteSpec, Step,
};
use bowline_runtime::{Fingerprint, Reloadable};
use futures::FutureExt;
use futures::future::BoxFuture;
use ipnet::IpNet;

use crate::{
    Applied, Calls, Capabilities, CloudProvider, Error, ErrorKind, Facts, Finding, Identity, InstancePage, Instances,
    LoadBalancers, PageToken, ProviderInfo, ProviderLoop, Quota, Result, Routes, SecretData, SecretRef, SyncMetrics,
};

/// How long a new configuration has to show that it works.
const CHECKED_WITHIN: Duration = Duration::from_secs(30);

/// Reads the configuration and makes the provider from it, as often as it is asked to.
type Rebuild = dyn Fn() -> std::result::Result<Arc<dyn CloudProvider>, ConfigErrors> + Send + Sync;

/// Stands for the provider of the latest configuration that works.
pub struct Reloading {
    info: ProviderInfo,
    capabilities: Capabilities,
    config: Option<PathBuf>,
    made_from: Fingerprint,
    current: RwLock<Arc<dyn CloudProvider>>,
    /// Of the first start that succeeded.
    facts: OnceLock<Facts>,
    /// Last contents of each Secret, for a provider that is rebuilt.
    secrets: Mutex<BTreeMap<SecretRef, Option<SecretData>>>,
    revision: AtomicU64,
    rebuild: Box<Rebuild>,
}

impl Reloading {
    /// The provider that `rebuild` makes, and makes anew when `config` or a file that it names has changed.
    pub fn new(
        config: Option<PathBuf>,
        rebuild: impl Fn() -> std::result::Result<Arc<dyn CloudProvider>, ConfigErrors> + Send + Sync + 'static,
    ) -> std::result::Result<Reloading, ConfigErrors> {
        // Which files there are is known only afterwards, so it is made once more after a look at them: what changes in
        // between is then noticed as a change.
        let made_from = Fingerprint::of(&files(&config, &*rebuild()?));
        let current = rebuild()?;
        Ok(Reloading {
            info: current.info().clone(),
            capabilities: current.capabilities().clone(),
            config,
            made_from,
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

    /// What has changed, if anything that others have built on.
    fn difference(&self, new: &dyn CloudProvider) -> Option<&'static str> {
        let (old, info) = (&self.info, new.info());
        match () {
            () if info.name != old.name => Some("its name"),
            () if info.id_prefixes != old.id_prefixes => Some("the prefix of its provider IDs"),
            () if *new.capabilities() != self.capabilities => Some("what it can do"),
            () if declared(new) != declared(&*self.current()) => Some("its background loops"),
            () if new.secrets() != self.current().secrets() => Some("the Secrets that it needs"),
            () => None,
        }
    }

    /// The same for what the cloud said; a provider that never started has said nothing yet.
    fn difference_in(&self, new: &Facts) -> Option<&'static str> {
        let old = self.facts.get()?;
        match () {
            () if new.region != old.region => Some("its region"),
            () if new.cluster_id != old.cluster_id => Some("what it marks its resources with"),
            () if new.capabilities != old.capabilities => Some("what it can do"),
            () => None,
        }
    }

    fn delivered(&self) -> BTreeMap<SecretRef, Option<SecretData>> {
        self.secrets.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn renewed(&self) -> std::result::Result<Arc<dyn CloudProvider>, String> {
        let new = (self.rebuild)().map_err(|errors| errors.to_string())?;
        let restart = |what| Err(format!("the configuration changes {what}; restart the manager to use it"));
        if let Some(what) = self.difference(&*new) {
            return restart(what);
        }
        let tried = async {
            let secrets = self.delivered();
            for (secret, data) in &secrets {
                new.on_secret(secret, data.as_ref()).await?;
            }
            let facts = new.start().await?;
            new.check().await.map(|()| facts)
        };
        match tokio::time::timeout(CHECKED_WITHIN, tried).await {
            Ok(Ok(facts)) => match self.difference_in(&facts) {
                Some(what) => restart(what),
                None => Ok(new),
            },
            Ok(Err(error)) => Err(format!("the cloud does not take it: {error}")),
            Err(_) => Err(format!("the cloud did not answer within {CHECKED_WITHIN:?}")),
        }
    }
}

/// Names and periods of the loops.
fn declared(provider: &dyn CloudProvider) -> Vec<(String, Duration)> {
    provider.loops().iter().map(|declared| (declared.name().to_owned(), declared.period())).collect()
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

    fn made_from(&self) -> Fingerprint {
        self.made_from
    }

    fn renew(&self) -> BoxFuture<'_, std::result::Result<(), String>> {
        async {
            let new = self.renewed().await?;
            *self.current.write().unwrap_or_else(PoisonError::into_inner) = new;
            self.revision.fetch_add(1, Ordering::SeqCst);
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

    async fn examine(&self) -> Vec<Finding> {
        self.current().examine().await
    }

    async fn quotas(&self) -> Result<Vec<Quota>> {
        self.current().quotas().await
    }
}

/// The provider says that it can, and has nothing to do it with: against the contract.
fn lacking(what: &'static str) -> Error {
    Error::new(ErrorKind::Unsupported, what, "the provider has nothing for this")
}

#[async_trait]
impl Instances for Reloading {
    async fn find(&self, asked: &[InstanceRef]) -> Vec<Result<InstanceState>> {
        match self.current().instances() {
            Some(instances) => instances.find(asked).await,
            None => asked.iter().map(|_| Err(lacking("find instances"))).collect(),
        }
    }

    async fn list(&self, page: Option<&PageToken>) -> Result<InstancePage> {
        self.current().instances().ok_or_else(|| lacking("list instances"))?.list(page).await
    }

    async fn describe(&self, brief: &[Opaque], asked: &[InstanceRef]) -> Vec<Result<InstanceState>> {
        match self.current().instances() {
            Some(instances) => instances.describe(brief, asked).await,
            None => (0..brief.len() + asked.len()).map(|_| Err(lacking("describe instances"))).collect(),
        }
    }

    async fn assign_pod_cidrs(&self, asked: &InstanceRef, range: IpNet) -> Result<()> {
        self.current().instances().ok_or_else(|| lacking("assign pod range"))?.assign_pod_cidrs(asked, range).await
    }

    fn identify(&self, asked: &InstanceRef) -> Result<Identity> {
        self.current().instances().ok_or_else(|| lacking("identify instances"))?.identify(asked)
    }
}

#[async_trait]
impl LoadBalancers for Reloading {
    fn settings(
        &self,
        annotations: &BTreeMap<String, String>,
        common: LoadBalancerSettings,
    ) -> std::result::Result<LoadBalancerSettings, Vec<Mistake>> {
        match self.current().load_balancers() {
            Some(balancers) => balancers.settings(annotations, common),
            None => Ok(common),
        }
    }

    fn kind(&self, desired: &DesiredLoadBalancer) -> Option<&'static str> {
        self.current().load_balancers()?.kind(desired)
    }

    async fn observe(&self, wanted: &[DesiredLoadBalancer]) -> Vec<Result<Option<LoadBalancerState>>> {
        match self.current().load_balancers() {
            Some(balancers) => balancers.observe(wanted).await,
            None => wanted.iter().map(|_| Err(lacking("observe load balancers"))).collect(),
        }
    }

    async fn list(&self, cluster: &ClusterName) -> Result<Vec<LoadBalancerKey>> {
        self.current().load_balancers().ok_or_else(|| lacking("list load balancers"))?.list(cluster).await
    }

    fn plan(&self, desired: &DesiredLoadBalancer, state: Option<&LoadBalancerState>) -> Result<Plan> {
        self.current().load_balancers().ok_or_else(|| lacking("plan a load balancer"))?.plan(desired, state)
    }

    async fn apply(&self, key: &LoadBalancerKey, step: &Step, polled: Option<&Opaque>) -> Result<Applied> {
        self.current().load_balancers().ok_or_else(|| lacking("change a load balancer"))?.apply(key, step, polled).await
    }

    async fn poll(&self, key: &LoadBalancerKey, operation: &Operation) -> Result<Progress> {
        self.current().load_balancers().ok_or_else(|| lacking("poll an operation"))?.poll(key, operation).await
    }
}

#[async_trait]
impl Routes for Reloading {
    async fn list(&self, cluster: &ClusterName) -> Result<Vec<Route>> {
        self.current().routes().ok_or_else(|| lacking("list routes"))?.list(cluster).await
    }

    async fn create(&self, cluster: &ClusterName, routes: &[RouteSpec]) -> Vec<Result<Route>> {
        match self.current().routes() {
            Some(current) => current.create(cluster, routes).await,
            None => routes.iter().map(|_| Err(lacking("create routes"))).collect(),
        }
    }

    async fn delete(&self, cluster: &ClusterName, routes: &[Route]) -> Vec<Result<()>> {
        match self.current().routes() {
            Some(current) => current.delete(cluster, routes).await,
            None => routes.iter().map(|_| Err(lacking("delete routes"))).collect(),
        }
    }

    fn lock(&self, cluster: &ClusterName) -> Option<String> {
        self.current().routes()?.lock(cluster)
    }
}

#[cfg(test)]
mod tests {
    use bowline_config::ConfigError;

    use super::*;
    use crate::fake::{Fake, named};

    /// What the configuration says: a provider, or what is wrong with it.
    type Configured = Arc<Mutex<std::result::Result<Arc<Fake>, &'static str>>>;

    fn reloading(first: Fake) -> (Reloading, Configured) {
        let configured: Configured = Arc::new(Mutex::new(Ok(Arc::new(first))));
        let source = configured.clone();
        let rebuild = move || match &*source.lock().unwrap() {
            Ok(fake) => Ok(fake.clone() as Arc<dyn CloudProvider>),
            Err(wrong) => Err(ConfigErrors::from(ConfigError::new(*wrong))),
        };
        (Reloading::new(None, rebuild).ok().unwrap(), configured)
    }

    async fn knows(provider: &Reloading, name: &str) -> bool {
        let answers = provider.instances().unwrap().find(&[named(name)]).await;
        matches!(&answers[..], [Ok(state)] if state.instance().is_some())
    }

    #[tokio::test(start_paused = true)]
    async fn a_configuration_that_works_takes_the_place_of_the_old() {
        let (provider, configured) = reloading(Fake::new("a").with(["old"]));
        *configured.lock().unwrap() = Ok(Arc::new(Fake::new("a").with(["new"])));
        assert!(knows(&provider, "old").await && !knows(&provider, "new").await, "not before it is renewed");
        assert_eq!(provider.revision(), 0);
        provider.renew().await.unwrap();
        assert!(!knows(&provider, "old").await && knows(&provider, "new").await);
        assert_eq!(provider.revision(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_configuration_that_the_cloud_refuses_leaves_the_old_one_in_use() {
        let (provider, configured) = reloading(Fake::new("a").with(["old"]));
        let refused = Fake::new("a").with(["new"]);
        refused.fail([Some(Error::new(ErrorKind::Unauthenticated, "check", "unknown key"))]);
        *configured.lock().unwrap() = Ok(Arc::new(refused));
        let error = provider.renew().await.unwrap_err();
        assert!(error.contains("does not take it") && error.contains("unknown key"), "{error}");
        *configured.lock().unwrap() = Err("config.yaml:3: zone: unknown");
        assert_eq!(provider.renew().await.unwrap_err(), "config.yaml:3: zone: unknown");
        assert!(knows(&provider, "old").await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_rebuilt_provider_starts_before_it_is_used_and_must_know_the_same() {
        let in_region = |region: &str| Facts { region: Some(region.to_owned()), ..Facts::default() };
        let (provider, configured) = reloading(Fake::new("a").with(["old"]).knowing(in_region("east")));
        provider.start().await.unwrap();
        *configured.lock().unwrap() = Ok(Arc::new(Fake::new("a").with(["new"]).knowing(in_region("west"))));
        let error = provider.renew().await.unwrap_err();
        assert!(error.contains("changes its region") && error.contains("restart"), "{error}");
        let refused = Fake::new("a").with(["new"]).knowing(in_region("east"));
        refused.fail_start([Err(Error::new(ErrorKind::Unauthenticated, "authenticate", "unknown key"))]);
        let refused = Arc::new(refused);
        *configured.lock().unwrap() = Ok(refused.clone());
        assert!(provider.renew().await.unwrap_err().contains("unknown key"));
        assert!(knows(&provider, "old").await && !knows(&provider, "new").await);
        provider.renew().await.unwrap();
        assert!(knows(&provider, "new").await && refused.starts() == 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_rebuilt_provider_gets_its_secrets_before_it_starts_and_must_name_the_same() {
        let (provider, configured) = reloading(Fake::new("a").needing("x/one"));
        let secret = SecretRef::parse("x/one").unwrap();
        for token in ["first", "second"] {
            let data = SecretData::from_iter([("token", token)]);
            provider.on_secret(&secret, Some(&data)).await.unwrap();
        }
        assert!(provider.on_secret(&secret, None).await.is_err(), "it is not remembered either");
        assert_eq!(provider.revision(), 2, "of the Secrets that were accepted");
        let new = Arc::new(Fake::new("a").needing("x/one"));
        *configured.lock().unwrap() = Ok(new.clone());
        provider.renew().await.unwrap();
        assert_eq!((new.tokens(), new.starts()), (vec!["second".to_owned()], 1));
        *configured.lock().unwrap() = Ok(Arc::new(Fake::new("a").needing("x/other")));
        assert!(provider.renew().await.unwrap_err().contains("changes the Secrets that it needs"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_configuration_of_another_cloud_needs_a_restart() {
        let (provider, configured) = reloading(Fake::new("a").with(["old"]));
        let mut less = Fake::new("a");
        less.capabilities.routes = None;
        let others =
            [(Fake::new("b"), "its name"), (Fake::new("a").prefix("c"), "the prefix"), (less, "what it can do")];
        for (other, what) in others {
            *configured.lock().unwrap() = Ok(Arc::new(other));
            let error = provider.renew().await.unwrap_err();
            assert!(error.contains(&format!("changes {what}")) && error.contains("restart"), "{error}");
        }
        assert!(knows(&provider, "old").await);
    }
}
