//! Starting a cloud: what only the cloud or its metadata service knows is asked for before anything else.
//!
//! ```text
//!  Starting ──► Ready, with its Facts
//!      └──────► Failed, with the cause ── 1 s, 2 s, … 60 s ──► Ready, or Failed again
//! ```
//!
//! Each cloud starts by itself: a start that fails or hangs is retried for as long as it takes, shows on `/readyz` and
//! `/statusz`, and does not affect other clouds. A provider that needs [Secrets](crate::SecretRef) gets them first. Until the start
//! has succeeded, every operation on this cloud fails with `Unavailable` and the cause.

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

/// Time limit of one attempt.
const ATTEMPT: Duration = Duration::from_secs(30);

/// Pause after the first failed attempt; it doubles each time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// How long an operation waits for the first attempt. A cloud that takes longer must not occupy workers that others need.
const FIRST_WAIT: Duration = Duration::from_secs(2);

/// What a provider learns from its cloud at [start](crate::CloudProvider::start).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Facts {
    /// Region it works in, if it has one.
    pub region: Option<String>,
    /// Mark of this cluster's resources, if it marks them.
    // upstream: HasClusterID; without one, --allow-untagged-cloud decides.
    pub cluster_id: Option<String>,
    /// Capabilities that the account or the version of the cloud leaves of those that the configuration claims; `None` for all.
    /// They may be lower, never higher.
    pub capabilities: Option<Capabilities>,
    /// Whatever else operators want to see: project, VPC, version of the API. No secrets; shown on `/statusz`.
    pub details: BTreeMap<&'static str, String>,
}

/// How far a cloud has started.
#[derive(Debug, Clone)]
pub enum Readiness {
    /// The first attempt is under way, or has not begun.
    Starting,
    /// The last attempt failed.
    Failed {
        /// Why.
        error: Error,
        /// When the next attempt is due.
        retry_at: Instant,
    },
    /// It serves.
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
    /// Answers of the API server about the Secrets that the provider needs.
    secrets: watch::Sender<Deliveries>,
    /// Held by the task that follows them.
    followed: Mutex<()>,
    /// Held by the attempt under way.
    attempt: Mutex<()>,
    /// Held by the task that retries.
    retries: Mutex<()>,
}

impl Starter {
    pub(crate) fn new(name: &str, provider: Arc<dyn CloudProvider>, requires_cluster_id: bool) -> Arc<Starter> {
        Arc::new(Starter {
            name: name.into(),
            secrets: watch::channel(Deliveries::of(provider.secrets())).0,
            followed: Mutex::default(),
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

    /// Facts, once it has started.
    pub(crate) fn facts(&self) -> Option<&Facts> {
        self.facts.get()
    }

    pub(crate) fn readiness(&self) -> watch::Receiver<Readiness> {
        self.state.subscribe()
    }

    /// Fails unless the cloud has started. The first to ask begins the first attempt and waits for it, for a moment.
    pub(crate) async fn ready(self: &Arc<Starter>) -> Result<()> {
        if self.facts.get().is_some() {
            return Ok(());
        }
        self.begin();
        let mut state = self.state.subscribe();
        let _ = timeout(FIRST_WAIT, state.wait_for(|state| !matches!(state, Readiness::Starting))).await;
        self.check()
    }

    /// Attempts to start once, unless it has started.
    pub(crate) async fn start(&self) -> Result<()> {
        self.has_begun.store(true, Ordering::SeqCst);
        let _attempt = self.attempt.lock().await;
        if self.facts.get().is_some() {
            return Ok(());
        }
        if let Err(error) = self.secrets_delivered().await {
            self.settle(Err(error));
            return self.check();
        }
        let start = timeout(ATTEMPT, AssertUnwindSafe(self.provider.start()).catch_unwind());
        let started = match start.await {
            Ok(Ok(started)) => started.and_then(|facts| self.vetted(facts)),
            Ok(Err(_)) => Err(Error::new(ErrorKind::Unexpected, "start", "the provider panicked; the log has more")),
            Err(_) => {
                let message = format!("the cloud did not answer within {} s", ATTEMPT.as_secs());
                Err(Error::new(ErrorKind::Unavailable, "start", message))
            }
        };
        self.settle(started);
        self.check()
    }

    /// Secrets that the provider needs.
    pub(crate) fn secrets(&self) -> Vec<SecretRef> {
        self.provider.secrets()
    }

    /// Fails unless each Secret was delivered. An API server that has not answered yet is waited for as long as a cloud is.
    async fn secrets_delivered(&self) -> Result<()> {
        let mut secrets = self.secrets.subscribe();
        let _ = timeout(ATTEMPT, secrets.wait_for(Deliveries::are_answered)).await;
        self.secrets.borrow().check()
    }

    /// Gives the contents of a Secret, or the reason why it cannot be read, to the provider; and starts the provider if it was
    /// waiting for this.
    pub(crate) async fn deliver(&self, secret: &SecretRef, data: Result<Option<SecretData>>) {
        let answer = match &data {
            Err(error) => Err(error.clone()),
            Ok(data) => {
                let taken = AssertUnwindSafe(self.provider.on_secret(secret, data.as_ref())).catch_unwind().await;
                let panicked =
                    |_| Error::new(ErrorKind::Unexpected, "read the Secret", "the provider panicked; the log has more");
                taken.map_err(panicked).flatten()
            }
        };
        let (mut is_news, outcome) = (false, answer.clone());
        self.secrets.send_modify(|deliveries| is_news = deliveries.record(secret, answer));
        match outcome {
            Ok(()) => tracing::info!(cloud = &*self.name, %secret, "the Secret was read"),
            Err(error) if is_news => tracing::warn!(cloud = &*self.name, %secret, %error, "the Secret cannot be used"),
            Err(_) => {}
        }
        if self.facts.get().is_none() && self.secrets.borrow().check().is_ok() {
            let _ = self.start().await;
        }
    }

    /// Waits until no other task follows the Secrets of this provider.
    pub(crate) async fn follow_secrets(&self) -> MutexGuard<'_, ()> {
        self.followed.lock().await
    }

    /// Attempts until it has started. Of several callers, one does.
    pub(crate) async fn start_with_retries(self: &Arc<Starter>) {
        let _retries = self.retries.lock().await;
        self.begin();
        let mut state = self.state.subscribe();
        while let Some(retry_at) = failed(&mut state).await {
            sleep_until(retry_at).await;
            let _ = self.start().await;
        }
    }

    pub(crate) fn status(&self) -> Value {
        let secrets = self.secrets.borrow().status();
        let Some(facts) = self.facts.get() else {
            let why = self.check().err().map(|error| error.message().to_owned());
            return json!({"ready": false, "reason": why, "secrets": secrets});
        };
        let (region, details) = (&facts.region, &facts.details);
        json!({"ready": true, "region": region, "clusterId": facts.cluster_id, "details": details, "secrets": secrets})
    }

    /// Fails unless the cloud has started, with the cause and the time until the next attempt.
    pub(crate) fn check(&self) -> Result<()> {
        let not_ready = |why: &str| format!("the cloud {} is not ready: {why}", self.name);
        match &*self.state.borrow() {
            Readiness::Ready => Ok(()),
            Readiness::Starting => {
                let message = not_ready("it has not answered yet");
                Err(Error::new(ErrorKind::Unavailable, "start", message).retry(Retry::After(FIRST_WAIT)))
            }
            Readiness::Failed { error, retry_at } => {
                let message = not_ready(&format!("{error}. {}", error.kind().advice()));
                let wait = retry_at.saturating_duration_since(Instant::now()) + FIRST_WAIT;
                Err(Error::new(ErrorKind::Unavailable, "start", message.trim_end()).retry(Retry::After(wait)))
            }
        }
    }

    fn begin(self: &Arc<Starter>) {
        if !self.has_begun.swap(true, Ordering::SeqCst) {
            let starter = Arc::clone(self);
            tokio::spawn(async move { starter.start().await });
        }
    }

    fn settle(&self, started: Result<Facts>) {
        match started {
            Ok(facts) => {
                tracing::info!(cloud = &*self.name, region = facts.region, "the cloud is ready");
                let _ = self.facts.set(facts);
                self.state.send_replace(Readiness::Ready);
            }
            Err(error) => {
                let failures = self.failures.fetch_add(1, Ordering::SeqCst);
                let pause = pause(failures, error.retry_advice());
                let advice = error.kind().advice();
                tracing::warn!(cloud = &*self.name, %error, advice, retry_in = ?pause, "the cloud cannot be used yet");
                self.state.send_replace(Readiness::Failed { error, retry_at: Instant::now() + pause });
            }
        }
    }

    /// Refuses facts that the rest of the program cannot work with.
    // upstream: the first words about the ClusterID, where it ends the process.
    fn vetted(&self, facts: Facts) -> Result<Facts> {
        if self.requires_cluster_id && facts.cluster_id.is_none() {
            let message = "no ClusterID found. The provider marks nothing as this cluster's; give the cluster a name in the \
                           provider's configuration, or set --allow-untagged-cloud=true";
            return Err(Error::new(ErrorKind::InvalidConfig, "start", message));
        }
        let claimed = self.provider.capabilities();
        if let Some(path) = facts.capabilities.as_ref().and_then(|left| left.beyond(claimed)) {
            let message = format!(
                "the provider reports a capability that goes beyond what its configuration allows: {path}. This is a bug of the \
                 provider"
            );
            return Err(Error::new(ErrorKind::Unexpected, "start", message));
        }
        Ok(facts)
    }
}

/// Waits for the end of the first attempt; returns when the next one is due if the last one failed.
async fn failed(state: &mut watch::Receiver<Readiness>) -> Option<Instant> {
    match &*state.wait_for(|state| !matches!(state, Readiness::Starting)).await.ok()? {
        Readiness::Failed { retry_at, .. } => Some(*retry_at),
        _ => None,
    }
}

/// Pause before the next attempt, after this many that failed before.
fn pause(failures: u32, advice: Retry) -> Duration {
    let own = FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(failures)).min(LONGEST_PAUSE);
    match advice {
        Retry::After(wanted) => own.max(wanted.min(LONGEST_PAUSE)),
        Retry::Backoff | Retry::Never => own,
    }
}

#[cfg(test)]
mod tests {
    use bowline_runtime::Part as _;

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

    async fn found(layered: &Layered) -> Result<bool> {
        let [answer] = &layered.find_instances(&[named("n")], Freshness::Now).await[..] else { panic!("one answer") };
        answer.as_ref().map(|state| state.instance().is_some()).map_err(Clone::clone)
    }

    #[tokio::test(start_paused = true)]
    async fn until_a_cloud_has_started_every_question_fails_with_the_cause() {
        let fake = Fake::new("a").with(["n"]);
        fake.fail_start([Err(unauthenticated())]);
        let layered = layered(fake, false);
        for _ in 0..3 {
            let error = found(&layered).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            assert!(
                error.message().starts_with("the cloud harbour is not ready: authenticate: unknown key"),
                "{error}"
            );
            assert_eq!(error.retry_advice(), Retry::After(FIRST_PAUSE + FIRST_WAIT), "the next attempt");
        }
        assert_eq!(layered.list_routes(&"k".into()).await.unwrap_err().kind(), ErrorKind::Unavailable);
        assert!(layered.health().is_err() && layered.status()["ready"] == json!(false));
        layered.start().await.unwrap();
        assert!(found(&layered).await.unwrap());
        assert!(layered.health().is_ok() && layered.status()["ready"] == json!(true));
    }

    #[tokio::test(start_paused = true)]
    async fn a_cloud_starts_at_once_when_the_last_of_its_secrets_is_there_and_not_before() {
        let fake = Arc::new(Fake::new("a").needing("x/one").needing("x/two"));
        let clouds = Clouds::around([fake.clone() as _], &LayerOptions::default(), &prometheus::Registry::new());
        let cloud = clouds.iter().next().unwrap().clone();
        let starting = tokio::spawn({
            let cloud = cloud.clone();
            async move { cloud.start_with_retries().await }
        });
        let [one, two] = ["x/one", "x/two"].map(|name| SecretRef::parse(name).unwrap());
        let good = || Ok(Some(SecretData::from_iter([("token", "swordfish")])));
        cloud.deliver_secret(&one, good()).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(matches!(&*cloud.readiness().borrow(), Readiness::Starting), "the API server has not answered");
        cloud.deliver_secret(&two, Ok(None)).await;
        tokio::time::sleep(Duration::from_secs(100)).await;
        let health = cloud.part().health().unwrap_err();
        assert!(health.contains("x/two") && health.contains("does not exist"), "{health}");
        assert_eq!(fake.starts(), 0);
        let begin = Instant::now();
        cloud.deliver_secret(&two, good()).await;
        assert!(cloud.part().health().is_ok() && begin.elapsed().is_zero() && fake.starts() == 1);
        starting.await.unwrap();
        cloud.deliver_secret(&two, Ok(None)).await;
        assert!(cloud.part().health().is_ok(), "the last good values stay in use");
        assert!(!cloud.part().status().to_string().contains("swordfish"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_start_is_retried_with_longer_and_longer_pauses_until_it_succeeds() {
        let fake = Arc::new(Fake::new("a").with(["n"]));
        fake.fail_start((0..8).map(|_| Err(unauthenticated())));
        let clouds = Clouds::around([fake.clone() as _], &LayerOptions::default(), &prometheus::Registry::new());
        let begin = Instant::now();
        clouds.iter().next().unwrap().start_with_retries().await;
        assert_eq!(begin.elapsed().as_secs(), 1 + 2 + 4 + 8 + 16 + 32 + 60 + 60);
        assert_eq!(fake.starts(), 9);
    }

    #[tokio::test(start_paused = true)]
    async fn a_start_that_hangs_is_given_up_and_holds_no_question_up() {
        let fake = Fake::new("a").with(["n"]);
        fake.fail_start([Ok(Duration::from_secs(3600))]);
        let (layered, begin) = (layered(fake, false), Instant::now());
        assert!(found(&layered).await.unwrap_err().message().contains("it has not answered yet"));
        assert_eq!(begin.elapsed(), FIRST_WAIT);
        assert!(layered.start().await.is_ok(), "the attempt under way was given up, and the next one serves");
        assert_eq!(begin.elapsed(), ATTEMPT);
    }

    #[tokio::test(start_paused = true)]
    async fn a_cloud_that_marks_nothing_is_not_ready_where_a_mark_is_required() {
        let error = found(&layered(Fake::new("raft").with(["n"]), true)).await.unwrap_err();
        assert!(error.message().contains("no ClusterID found"), "{error}");
        assert!(error.message().contains("--allow-untagged-cloud=true"), "{error}");
        assert!(found(&layered(Fake::new("raft").with(["n"]), false)).await.unwrap());
        let marked = Facts { cluster_id: Some("kubernetes".to_owned()), ..Facts::default() };
        assert!(found(&layered(Fake::new("quay").with(["n"]).knowing(marked), true)).await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn facts_lower_capabilities_and_never_raise_them() {
        let mut less = Fake::new("a").capabilities.clone();
        less.routes = None;
        let lower = Facts { capabilities: Some(less), ..Facts::default() };
        let layered_cloud = layered(Fake::new("a").knowing(lower), false);
        assert!(layered_cloud.capabilities().routes.is_some(), "claimed by configuration");
        assert_eq!(layered_cloud.list_routes(&"k".into()).await.unwrap_err().kind(), ErrorKind::Unsupported);
        let mut fake = Fake::new("a");
        let higher = Facts { capabilities: Some(fake.capabilities.clone()), ..Facts::default() };
        fake.capabilities.routes = None;
        let error = layered(fake.knowing(higher), false).start().await.unwrap_err();
        assert!(error.message().contains("goes beyond what its configuration allows: routes"), "{error}");
    }
}
