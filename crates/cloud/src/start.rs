//! Start of a cloud: reads what only the cloud or its metadata service knows, before any other operation.
//!
//! ```text
//!  Starting ──► Ready, with its Facts
//!      └──────► Failed, with the cause ── 1 s, 2 s, … 60 s ──► Ready, or Failed again
//! ```
//!
//! Each cloud starts independently. A start that fails or hangs is retried until it succeeds, is reported on `/readyz` and
//! `/statusz`, and does not affect other clouds. A provider that needs [Secrets](crate::SecretRef) gets them first. Until the start
//! has succeeded, every operation of the cloud fails with `Unavailable` and the reason.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::FutureExt as _;
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard, watch};
use tokio::time::{Instant, sleep_until, timeout};

use crate::secrets::Deliveries;
use crate::{Capabilities, CloudProvider, Error, ErrorKind, Result, Retry, SecretData, SecretRef};

/// Timeout of one attempt.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(30);

/// Back-off after the first failed attempt; it doubles with each further one.
const FIRST_BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_secs(60);

/// Maximum time for which an operation waits for the first attempt. A slow cloud must not occupy workers that other clouds need.
const START_WAIT: Duration = Duration::from_secs(2);

/// Facts that a provider reads from its cloud at [start](crate::CloudProvider::start).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Facts {
    /// Region that the provider works in, if the cloud has regions.
    pub region: Option<String>,
    /// Mark of this cluster's resources in the cloud, if the provider marks them.
    // upstream: HasClusterID; without one, --allow-untagged-cloud decides.
    pub cluster_id: Option<String>,
    /// Capabilities that the account or the version of the cloud supports, if they are lower than those of the configuration;
    /// `None` for all. They must not be higher.
    pub capabilities: Option<Capabilities>,
    /// Further information for operators, shown on `/statusz`: project, VPC, API version. No secrets.
    pub details: BTreeMap<&'static str, String>,
}

/// Start state of a cloud.
#[derive(Debug, Clone)]
pub enum Readiness {
    /// The first attempt is in progress or has not begun.
    Starting,
    /// The last attempt failed.
    Failed {
        /// Error of that attempt.
        error: Error,
        /// Time of the next attempt.
        retry_at: Instant,
    },
    /// The cloud has started.
    Ready,
}

/// Starts one provider.
pub(crate) struct Starter {
    name: Arc<str>,
    provider: Arc<dyn CloudProvider>,
    requires_cluster_id: bool,
    facts: OnceLock<Facts>,
    state: watch::Sender<Readiness>,
    has_begun: AtomicBool,
    failures: AtomicU32,
    /// Delivery state of the Secrets that the provider needs.
    secrets: watch::Sender<Deliveries>,
    /// Held by the task that watches the Secrets.
    secrets_watch: Mutex<()>,
    /// Held by the attempt in progress.
    attempt: Mutex<()>,
    /// Held by the task that retries.
    retries: Mutex<()>,
}

impl Starter {
    pub(crate) fn new(name: &str, provider: Arc<dyn CloudProvider>, requires_cluster_id: bool) -> Arc<Starter> {
        Arc::new(Starter {
            name: name.into(),
            secrets: watch::channel(Deliveries::of(provider.secrets())).0,
            secrets_watch: Mutex::default(),
            provider,
            requires_cluster_id,
            facts: OnceLock::new(),
            state: watch::channel(Readiness::Starting).0,
            has_begun: AtomicBool::new(false),
            failures: AtomicU32::new(0),
            attempt: Mutex::default(),
            retries: Mutex::default(),
        })
    }

    /// Returns the facts, once the cloud has started.
    pub(crate) fn facts(&self) -> Option<&Facts> {
        self.facts.get()
    }

    pub(crate) fn readiness(&self) -> watch::Receiver<Readiness> {
        self.state.subscribe()
    }

    /// Fails unless the cloud has started. The first caller begins the first attempt, and callers wait for it for [`START_WAIT`].
    pub(crate) async fn ready(self: &Arc<Starter>) -> Result<()> {
        if self.facts.get().is_some() {
            return Ok(());
        }
        self.begin();
        let mut state = self.state.subscribe();
        let _ = timeout(START_WAIT, state.wait_for(|state| !matches!(state, Readiness::Starting))).await;
        self.check()
    }

    /// Makes one attempt to start the cloud, unless it has started.
    pub(crate) async fn start(&self) -> Result<()> {
        self.has_begun.store(true, Ordering::SeqCst);
        let _attempt = self.attempt.lock().await;
        if self.facts.get().is_some() {
            return Ok(());
        }
        if let Err(error) = self.wait_for_secrets().await {
            self.record(Err(error));
            return self.check();
        }
        let start = timeout(ATTEMPT_TIMEOUT, AssertUnwindSafe(self.provider.start()).catch_unwind());
        let started = match start.await {
            Ok(Ok(started)) => started.and_then(|facts| self.validate(facts)),
            Ok(Err(_)) => Err(Error::new(ErrorKind::Unexpected, "start", "the provider panicked; see the log")),
            Err(_) => {
                let message = format!("the cloud did not answer within {} s", ATTEMPT_TIMEOUT.as_secs());
                Err(Error::new(ErrorKind::Unavailable, "start", message))
            }
        };
        self.record(started);
        self.check()
    }

    /// Returns the Secrets that the provider needs.
    pub(crate) fn secrets(&self) -> Vec<SecretRef> {
        self.provider.secrets()
    }

    /// Fails unless each Secret was delivered. Waits for the API server's first response as long as for the cloud's.
    async fn wait_for_secrets(&self) -> Result<()> {
        let mut secrets = self.secrets.subscribe();
        let _ = timeout(ATTEMPT_TIMEOUT, secrets.wait_for(Deliveries::are_attempted)).await;
        self.secrets.borrow().check()
    }

    /// Delivers the contents of a Secret, or the error of reading it, to the provider. Starts the provider if this was the last
    /// missing Secret.
    pub(crate) async fn deliver(&self, secret: &SecretRef, data: Result<Option<SecretData>>) {
        let delivered = match &data {
            Err(error) => Err(error.clone()),
            Ok(data) => {
                let accepted = AssertUnwindSafe(self.provider.on_secret(secret, data.as_ref())).catch_unwind().await;
                let panicked =
                    |_| Error::new(ErrorKind::Unexpected, "read the Secret", "the provider panicked; see the log");
                accepted.map_err(panicked).flatten()
            }
        };
        let (mut is_new, outcome) = (false, delivered.clone());
        self.secrets.send_modify(|deliveries| is_new = deliveries.record(secret, delivered));
        match outcome {
            Ok(()) => tracing::info!(cloud = &*self.name, %secret, "the Secret was read"),
            Err(error) if is_new => tracing::warn!(cloud = &*self.name, %secret, %error, "the Secret cannot be used"),
            Err(_) => {}
        }
        if self.facts.get().is_none() && self.secrets.borrow().check().is_ok() {
            let _ = self.start().await;
        }
    }

    /// Waits until no other task watches the Secrets of this provider.
    pub(crate) async fn follow_secrets(&self) -> MutexGuard<'_, ()> {
        self.secrets_watch.lock().await
    }

    /// Retries until the cloud has started. Of several callers, only one retries.
    pub(crate) async fn start_with_retries(self: &Arc<Starter>) {
        let _retries = self.retries.lock().await;
        self.begin();
        let mut state = self.state.subscribe();
        while let Some(retry_at) = next_attempt(&mut state).await {
            sleep_until(retry_at).await;
            let _ = self.start().await;
        }
    }

    pub(crate) fn status(&self) -> Value {
        let secrets = self.secrets.borrow().status();
        let Some(facts) = self.facts.get() else {
            let reason = self.check().err().map(|error| error.message().to_owned());
            return json!({"ready": false, "reason": reason, "secrets": secrets});
        };
        let (region, details) = (&facts.region, &facts.details);
        json!({"ready": true, "region": region, "clusterId": facts.cluster_id, "details": details, "secrets": secrets})
    }

    /// Fails unless the cloud has started, with the reason and the time until the next attempt.
    pub(crate) fn check(&self) -> Result<()> {
        let not_ready = |reason: &str| format!("the cloud {} is not ready: {reason}", self.name);
        match &*self.state.borrow() {
            Readiness::Ready => Ok(()),
            Readiness::Starting => {
                let message = not_ready("it has not responded yet");
                Err(Error::new(ErrorKind::Unavailable, "start", message).retry(Retry::After(START_WAIT)))
            }
            Readiness::Failed { error, retry_at } => {
                let message = not_ready(&error.kind().with_advice(&error.to_string()));
                let wait = retry_at.saturating_duration_since(Instant::now()) + START_WAIT;
                Err(Error::new(ErrorKind::Unavailable, "start", message).retry(Retry::After(wait)))
            }
        }
    }

    fn begin(self: &Arc<Starter>) {
        if !self.has_begun.swap(true, Ordering::SeqCst) {
            let starter = Arc::clone(self);
            tokio::spawn(async move { starter.start().await });
        }
    }

    fn record(&self, started: Result<Facts>) {
        match started {
            Ok(facts) => {
                tracing::info!(cloud = &*self.name, region = facts.region, "the cloud is ready");
                let _ = self.facts.set(facts);
                self.state.send_replace(Readiness::Ready);
            }
            Err(error) => {
                let failures = self.failures.fetch_add(1, Ordering::SeqCst);
                let pause = backoff(failures, error.retry_advice());
                let advice = error.kind().advice();
                tracing::warn!(cloud = &*self.name, %error, advice, retry_in = ?pause, "the cloud cannot be used yet");
                self.state.send_replace(Readiness::Failed { error, retry_at: Instant::now() + pause });
            }
        }
    }

    /// Rejects facts that violate the contract or the configuration.
    // upstream: "no ClusterID found" is upstream's message, where it ends the process.
    fn validate(&self, facts: Facts) -> Result<Facts> {
        if self.requires_cluster_id && facts.cluster_id.is_none() {
            let message = "no ClusterID found. The provider does not mark this cluster's resources; set a cluster name in the \
                           provider's configuration, or set --allow-untagged-cloud=true";
            return Err(Error::new(ErrorKind::InvalidConfig, "start", message));
        }
        let claimed = self.provider.capabilities();
        if let Some(path) = facts.capabilities.as_ref().and_then(|left| left.exceeds(claimed)) {
            let message = format!(
                "the provider reports a capability that exceeds what its configuration allows: {path}. This is a bug in the \
                 provider"
            );
            return Err(Error::new(ErrorKind::Unexpected, "start", message));
        }
        Ok(facts)
    }
}

/// Waits for the end of the first attempt. Returns the time of the next one if the last one failed.
async fn next_attempt(state: &mut watch::Receiver<Readiness>) -> Option<Instant> {
    match &*state.wait_for(|state| !matches!(state, Readiness::Starting)).await.ok()? {
        Readiness::Failed { retry_at, .. } => Some(*retry_at),
        _ => None,
    }
}

/// Back-off before the next attempt, after this number of earlier failures.
fn backoff(failures: u32, advice: Retry) -> Duration {
    let own = FIRST_BACKOFF.saturating_mul(2_u32.saturating_pow(failures)).min(MAX_BACKOFF);
    match advice {
        Retry::After(requested) => own.max(requested.min(MAX_BACKOFF)),
        Retry::Backoff | Retry::Never => own,
    }
}

#[cfg(test)]
mod tests {
    use bowline_runtime::Component as _;

    use super::*;
    use crate::fake::{Fake, named};
    use crate::layers::{LayerOptions, Layered};
    use crate::{Clouds, Freshness};

    fn unauthenticated() -> Error {
        Error::new(ErrorKind::Unauthenticated, "authenticate", "unknown key")
    }

    fn layered(fake: Fake, requires_cluster_id: bool) -> Layered {
        let options = LayerOptions { requires_cluster_id, ..LayerOptions::default() };
        Layered::new(Arc::new(fake), "harbour", &options, &prometheus::Registry::new())
    }

    async fn exists(layered: &Layered) -> Result<bool> {
        let [result] = &layered.find_instances(&[named("n")], Freshness::Now).await[..] else { panic!("one result") };
        result.as_ref().map(|state| state.instance().is_some()).map_err(Clone::clone)
    }

    #[tokio::test(start_paused = true)]
    async fn operations_fail_with_the_reason_until_the_cloud_has_started() {
        let fake = Fake::new("a").with(["n"]);
        fake.fail_start([Err(unauthenticated())]);
        let layered = layered(fake, false);
        for _ in 0..3 {
            let error = exists(&layered).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            assert!(
                error.message().starts_with("the cloud harbour is not ready: authenticate: unknown key"),
                "{error}"
            );
            assert_eq!(error.retry_advice(), Retry::After(FIRST_BACKOFF + START_WAIT), "the next attempt");
        }
        assert_eq!(layered.list_routes(&"k".into()).await.unwrap_err().kind(), ErrorKind::Unavailable);
        assert!(layered.health().is_err() && layered.status()["ready"] == json!(false));
        layered.start().await.unwrap();
        assert!(exists(&layered).await.unwrap());
        assert!(layered.health().is_ok() && layered.status()["ready"] == json!(true));
    }

    #[tokio::test(start_paused = true)]
    async fn a_cloud_starts_as_soon_as_all_its_secrets_are_delivered() {
        let fake = Arc::new(Fake::new("a").with_secret("x/one").with_secret("x/two"));
        let clouds = Clouds::with_layers([fake.clone() as _], &LayerOptions::default(), &prometheus::Registry::new());
        let cloud = clouds.iter().next().unwrap().clone();
        let starting = tokio::spawn({
            let cloud = cloud.clone();
            async move { cloud.start_with_retries().await }
        });
        let [one, two] = ["x/one", "x/two"].map(|name| SecretRef::parse(name).unwrap());
        let good = || Ok(Some(SecretData::from_iter([("token", "swordfish")])));
        cloud.deliver_secret(&one, good()).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(matches!(&*cloud.readiness().borrow(), Readiness::Starting), "the API server has not responded");
        cloud.deliver_secret(&two, Ok(None)).await;
        tokio::time::sleep(Duration::from_secs(100)).await;
        let health = cloud.component().health().unwrap_err();
        assert!(health.contains("x/two") && health.contains("does not exist"), "{health}");
        assert_eq!(fake.starts(), 0);
        let begin = Instant::now();
        cloud.deliver_secret(&two, good()).await;
        assert!(cloud.component().health().is_ok() && begin.elapsed().is_zero() && fake.starts() == 1);
        starting.await.unwrap();
        cloud.deliver_secret(&two, Ok(None)).await;
        assert!(cloud.component().health().is_ok(), "the last good values stay in use");
        assert!(!cloud.component().status().to_string().contains("swordfish"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_start_is_retried_with_exponential_backoff() {
        let fake = Arc::new(Fake::new("a").with(["n"]));
        fake.fail_start((0..8).map(|_| Err(unauthenticated())));
        let clouds = Clouds::with_layers([fake.clone() as _], &LayerOptions::default(), &prometheus::Registry::new());
        let begin = Instant::now();
        clouds.iter().next().unwrap().start_with_retries().await;
        assert_eq!(begin.elapsed().as_secs(), 1 + 2 + 4 + 8 + 16 + 32 + 60 + 60);
        assert_eq!(fake.starts(), 9);
    }

    #[tokio::test(start_paused = true)]
    async fn a_hanging_start_times_out_and_does_not_block_operations() {
        let fake = Fake::new("a").with(["n"]);
        fake.fail_start([Ok(Duration::from_secs(3600))]);
        let (layered, begin) = (layered(fake, false), Instant::now());
        assert!(exists(&layered).await.unwrap_err().message().contains("it has not responded yet"));
        assert_eq!(begin.elapsed(), START_WAIT);
        assert!(layered.start().await.is_ok(), "the attempt in progress timed out, and the next one succeeds");
        assert_eq!(begin.elapsed(), ATTEMPT_TIMEOUT);
    }

    #[tokio::test(start_paused = true)]
    async fn a_cloud_without_cluster_id_is_not_ready_if_one_is_required() {
        let error = exists(&layered(Fake::new("raft").with(["n"]), true)).await.unwrap_err();
        assert!(error.message().contains("no ClusterID found"), "{error}");
        assert!(error.message().contains("--allow-untagged-cloud=true"), "{error}");
        assert!(exists(&layered(Fake::new("raft").with(["n"]), false)).await.unwrap());
        let marked = Facts { cluster_id: Some("kubernetes".to_owned()), ..Facts::default() };
        assert!(exists(&layered(Fake::new("quay").with(["n"]).with_facts(marked), true)).await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn facts_lower_capabilities_and_never_raise_them() {
        let mut less = Fake::new("a").capabilities.clone();
        less.routes = None;
        let lower = Facts { capabilities: Some(less), ..Facts::default() };
        let layered_cloud = layered(Fake::new("a").with_facts(lower), false);
        assert!(layered_cloud.capabilities().routes.is_some(), "claimed by configuration");
        assert_eq!(layered_cloud.list_routes(&"k".into()).await.unwrap_err().kind(), ErrorKind::Unsupported);
        let mut fake = Fake::new("a");
        let higher = Facts { capabilities: Some(fake.capabilities.clone()), ..Facts::default() };
        fake.capabilities.routes = None;
        let error = layered(fake.with_facts(higher), false).start().await.unwrap_err();
        assert!(error.message().contains("exceeds what its configuration allows: routes"), "{error}");
    }
}
