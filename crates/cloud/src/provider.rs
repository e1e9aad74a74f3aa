//! The root of a provider.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use bowline_core::ProviderId;

use crate::{
    Calls, Capabilities, Facts, Instances, LoadBalancers, ProviderLoop, Result, Routes, SecretData, SecretRef,
    SyncMetrics,
};

/// What a provider is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderInfo {
    /// Its name, as in `--cloud-provider`.
    pub name: String,
    /// What the provider IDs that it owns start with, before `://`. The first is the one that it writes.
    pub id_prefixes: Vec<String>,
}

/// How much of something the cloud allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quota {
    /// What, in the words of the cloud, with the place if there are several: `routes`, `load balancers in eu-1`.
    pub what: String,
    /// How much there is.
    pub used: u64,
    /// How much there may be.
    pub limit: u64,
}

/// What was looked at, and what came of it.
#[derive(Debug, Clone)]
pub struct Finding {
    /// What, in a few words: `endpoint load-balancer`, `subnet-id in [LoadBalancer]`.
    pub what: String,
    /// That it is in order, in a sentence; or what is wrong with it, with what to do.
    pub outcome: Result<String>,
}

/// A cloud.
///
/// Rules, each with a conformance case of the same name:
/// - `capabilities_match_traits`: a group of [`Capabilities`] is there if and only if the trait is.
/// - `prefix_is_owned`: every provider ID that it hands out is one that it [owns](CloudProvider::owns).
/// - `start_may_come_again`: [`start`](CloudProvider::start) succeeds any number of times, with the same [`Facts`], and writes
///   nothing.
/// - `start_tells_why_it_fails`: refused credentials, refused permissions and a cloud that is down are errors of their own kinds.
/// - `facts_only_lower_capabilities`: nothing in [`Facts::capabilities`] goes beyond
///   [`capabilities`](CloudProvider::capabilities): no group, no kind, no limit.
/// - `check_asks_the_cloud`: [`check`](CloudProvider::check) passes on a sound cloud and fails if credentials or rights are
///   refused.
/// - `foreign_404_is_no_answer`: an answer 404 whose body is not the cloud's own (a proxy, a wrong endpoint) is an error in
///   every call: it does not prove that anything is gone.
/// - `failed_calls_are_not_repeated`: a call that failed, or was throttled, is not made again by the provider. Only a new login
///   after refused credentials is its own matter.
/// - `secrets_stay_secret`: no error, state, plan or notice shows a password, token or key.
/// - `secrets_are_declared`: [`secrets`](CloudProvider::secrets) has no name twice, and is the same each time.
/// - `bad_secret_is_refused`: a Secret without the expected keys, or with values that cannot be used, is an error of
///   [`on_secret`](CloudProvider::on_secret) that shows none of its values, and leaves the last good values in use.
/// - `rotated_secret_is_used`: calls after [`on_secret`](CloudProvider::on_secret) use the new values.
/// - `no_call_blocks_the_thread`: a call waits without keeping its thread.
#[async_trait]
pub trait CloudProvider: Send + Sync {
    /// What it is.
    fn info(&self) -> &ProviderInfo;

    /// What it can do, and how much of it, as far as the configuration says: an upper bound, which
    /// [`Facts::capabilities`] may lower.
    fn capabilities(&self) -> &Capabilities;

    /// Whether a machine with this ID would be one of its own. Pure. The default goes by the prefix, which is right unless
    /// the cloud's IDs have none; then override [`Instances::identify`] as well.
    fn owns(&self, id: &ProviderId) -> bool {
        id.prefix().is_some_and(|prefix| self.info().id_prefixes.iter().any(|own| own == prefix))
    }

    /// Tells what machines there are.
    fn instances(&self) -> Option<&dyn Instances> {
        None
    }

    /// Balances load.
    fn load_balancers(&self) -> Option<&dyn LoadBalancers> {
        None
    }

    /// Leads pod ranges to machines.
    fn routes(&self) -> Option<&dyn Routes> {
        None
    }

    /// Background loops, as far as the configuration asks for some. Cheap and pure: it is called before every run, and a loop with
    /// state hands out the same `Arc` each time.
    fn loops(&self) -> Vec<Arc<dyn ProviderLoop>> {
        Vec::new()
    }

    /// Files besides its configuration that it was made from: keys, tokens, certificates. When one of them changes, the
    /// provider is made anew.
    fn files(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Number of times that its configuration or credentials were replaced. What the cloud refused before may succeed with the new
    /// ones, so that it is tried again at once.
    fn revision(&self) -> u64 {
        0
    }

    /// Kubernetes Secrets that it needs beside its configuration, as far as the configuration names some. Cheap and pure. Each is
    /// watched by its name, and is given to [`on_secret`](CloudProvider::on_secret) before [`start`](CloudProvider::start) is
    /// first called.
    fn secrets(&self) -> Vec<SecretRef> {
        Vec::new()
    }

    /// Takes the contents of a Secret: once before the first start, and after every change. `None` is a Secret that does not
    /// exist. Until it has succeeded once for each Secret the cloud is not ready, with the error as the cause; an error after that
    /// is logged, and the last good values stay in use. It makes no call.
    async fn on_secret(&self, secret: &SecretRef, data: Option<&SecretData>) -> Result<()> {
        let _ = (secret, data);
        Ok(())
    }

    /// Metrics that syncs of its load balancers are counted in, beside those of the controller.
    fn sync_metrics(&self) -> Option<SyncMetrics> {
        None
    }

    /// Who speaks in the Events that a plan's [notices](bowline_core::Notice) become; `None` for the controller itself.
    fn event_component(&self) -> Option<&'static str> {
        None
    }

    /// The gate that its HTTP calls pass, which it got in [`BuildContext::calls`](crate::BuildContext::calls); `None` for a
    /// provider that makes no calls. The layers show on `/statusz` and in metrics what it measures.
    fn calls(&self) -> Option<Calls> {
        None
    }

    /// Asks the cloud or its metadata service for what the configuration does not say. Nothing else is asked of the provider
    /// before this has succeeded; it is retried until then, and a failure ends neither the process nor the start of other
    /// clouds. It writes nothing.
    async fn start(&self) -> Result<Facts> {
        Ok(Facts::default())
    }

    /// Asks the cloud for the least that shows that address, credentials and rights are right.
    async fn check(&self) -> Result<()>;

    /// Looks at all that the configuration names, one thing after the other, for a person who wants to know what is wrong.
    /// It changes nothing.
    async fn examine(&self) -> Vec<Finding> {
        let outcome = self.check().await.map(|()| "the cloud answers, and takes the credentials".to_owned());
        vec![Finding { what: "cloud".to_owned(), outcome }]
    }

    /// How much of what the cloud allows is used, as far as it tells.
    async fn quotas(&self) -> Result<Vec<Quota>> {
        Ok(Vec::new())
    }
}
