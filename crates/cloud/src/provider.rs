//! `CloudProvider`, the root trait of a provider.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use bowline_core::ProviderId;

use crate::{
    Calls, Capabilities, Endpoint, Facts, Instances, LoadBalancers, ProviderLoop, Result, Routes, SecretData,
    SecretRef, SyncMetrics, Webhook,
};

/// Name and ID prefixes of a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderInfo {
    /// Provider name, as in `--cloud-provider`.
    pub name: String,
    /// Prefixes of the provider IDs that it owns: the part before `://`. It writes IDs with the first one.
    pub id_prefixes: Vec<String>,
}

/// Usage and limit of one resource in the cloud account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quota {
    /// Resource, in the cloud's own terms, with the location if there are several: `routes`, `load balancers in eu-1`.
    pub resource: String,
    /// Number in use.
    pub used: u64,
    /// Maximum number.
    pub limit: u64,
}

/// Result of one check of [`CloudProvider::diagnose`].
#[derive(Debug, Clone)]
pub struct CheckResult {
    /// Subject of the check, in a few words: `endpoint load-balancer`, `subnet-id in [LoadBalancer]`.
    pub subject: String,
    /// A sentence that confirms that the subject is valid, or the error with its fix.
    pub outcome: Result<String>,
}

impl CheckResult {
    /// Creates the result of a check.
    pub fn new(subject: impl Into<String>, outcome: Result<String>) -> CheckResult {
        CheckResult { subject: subject.into(), outcome }
    }
}

/// A cloud account or project: the root of a provider.
///
/// Rules, each with a conformance case of the same name:
/// - `capabilities_match_traits`: a group of [`Capabilities`] is `Some` if and only if the corresponding trait is.
/// - `prefix_is_owned`: the provider [owns](CloudProvider::owns) every provider ID that it returns.
/// - `start_is_repeatable`: [`start`](CloudProvider::start) can be called any number of times. It returns the same [`Facts`] each
///   time and writes nothing.
/// - `start_errors_have_a_kind`: rejected credentials, missing permissions and an unreachable cloud are errors of different
///   kinds.
/// - `facts_only_lower_capabilities`: [`Facts::capabilities`] never exceeds [`capabilities`](CloudProvider::capabilities): it adds
///   no group, no kind and no limit.
/// - `check_calls_the_cloud`: [`check`](CloudProvider::check) succeeds on a healthy cloud and fails if the cloud rejects the
///   credentials or a permission is missing.
/// - `foreign_404_is_no_answer`: a 404 whose body is not the cloud's own (from a proxy or a wrong endpoint) is an error in every
///   call. It does not prove that a resource is gone.
/// - `failed_calls_are_not_repeated`: the provider does not retry a call that failed or was throttled. The one exception is a new
///   login after the cloud rejected the credentials.
/// - `secrets_stay_secret`: no error, state, plan or warning contains a password, token or key.
/// - `secrets_are_declared`: [`secrets`](CloudProvider::secrets) returns each name once, and the same names on every call.
/// - `bad_secret_is_refused`: [`on_secret`](CloudProvider::on_secret) fails for a Secret that lacks the expected keys or has
///   invalid values. The error contains none of the values, and the last valid values stay in use.
/// - `rotated_secret_is_used`: calls after [`on_secret`](CloudProvider::on_secret) use the new values.
/// - `webhooks_are_declared`: the names of [`webhooks`](CloudProvider::webhooks) consist of lower-case letters, digits, `-` and `.`,
///   their paths start with `/`, both are unique, and neither changes.
/// - `empty_review_is_not_allowed`: a request without an object gets a denial or an error, with a message.
/// - `endpoints_are_declared`: the addresses of [`endpoints`](CloudProvider::endpoints) have the form `HOST:PORT`, are unique, and do
///   not change.
/// - `no_call_blocks_the_thread`: a waiting call does not block its thread.
#[async_trait]
pub trait CloudProvider: Send + Sync {
    /// Returns the name and the ID prefixes.
    fn info(&self) -> &ProviderInfo;

    /// Returns the capabilities with their limits, as far as the configuration determines them. This is an upper bound, which
    /// [`Facts::capabilities`] may lower.
    fn capabilities(&self) -> &Capabilities;

    /// Returns whether this provider ID belongs to the provider. Pure. The default compares the prefix; override it if the
    /// cloud's IDs have none, and override [`Instances::identify`] as well.
    fn owns(&self, id: &ProviderId) -> bool {
        id.prefix().is_some_and(|prefix| self.info().id_prefixes.iter().any(|own| own == prefix))
    }

    /// Returns the interface for machines, if the cloud has any.
    fn instances(&self) -> Option<&dyn Instances> {
        None
    }

    /// Returns the interface for load balancers, if the cloud has any.
    fn load_balancers(&self) -> Option<&dyn LoadBalancers> {
        None
    }

    /// Returns the interface for pod CIDR routes, if the cloud has any.
    fn routes(&self) -> Option<&dyn Routes> {
        None
    }

    /// Returns the background loops that the configuration enables. Cheap and pure: it is called before every run, so a loop with
    /// state must return the same `Arc` each time.
    fn loops(&self) -> Vec<Arc<dyn ProviderLoop>> {
        Vec::new()
    }

    /// Returns the admission webhooks. Cheap and pure: it is called for every request, so a webhook with state must return the same
    /// `Arc` each time.
    fn webhooks(&self) -> Vec<Arc<dyn Webhook>> {
        Vec::new()
    }

    /// Returns the plain HTTP endpoints that the configuration adds to the process. Pure.
    fn endpoints(&self) -> Vec<Endpoint> {
        Vec::new()
    }

    /// Returns the files besides the configuration file that the provider was built from: keys, tokens, certificates. When one of
    /// them changes, the provider is rebuilt.
    fn files(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Returns how many times the configuration or the credentials were replaced. After a change, the controllers retry at once
    /// what the cloud refused before, because it may succeed with the new credentials.
    fn revision(&self) -> u64 {
        0
    }

    /// Returns the Kubernetes Secrets that the configuration refers to. Cheap and pure. The manager watches each Secret by name and
    /// passes it to [`on_secret`](CloudProvider::on_secret) before the first call of [`start`](CloudProvider::start).
    fn secrets(&self) -> Vec<SecretRef> {
        Vec::new()
    }

    /// Takes over the contents of a Secret: once before the first start, and after every change. `data` is `None` if the Secret
    /// does not exist. Until this has succeeded once for each Secret, the cloud is not ready, with the error as the reason. Later
    /// errors are logged, and the last valid values stay in use. Makes no call to the cloud.
    async fn on_secret(&self, secret: &SecretRef, data: Option<&SecretData>) -> Result<()> {
        let _ = (secret, data);
        Ok(())
    }

    /// Returns metrics of the provider's own in which load balancer syncs are counted, in addition to those of the controller.
    fn sync_metrics(&self) -> Option<SyncMetrics> {
        None
    }

    /// Returns the source component of the Events that a plan's [warnings](bowline_core::Plan::warnings) become; `None` for the
    /// controller itself.
    fn event_component(&self) -> Option<&'static str> {
        None
    }

    /// Returns the [`Calls`] that all HTTP calls of the provider pass through, from
    /// [`BuildContext::calls`](crate::BuildContext::calls); `None` for a provider that makes no HTTP calls. The layers show its
    /// measurements on `/statusz` and as metrics.
    fn calls(&self) -> Option<Calls> {
        None
    }

    /// Reads from the cloud or its metadata service what the configuration does not contain. The layers retry it until it succeeds,
    /// and call no other method that reaches the cloud before. A failure ends neither the process nor the start of other clouds.
    /// Writes nothing.
    async fn start(&self) -> Result<Facts> {
        Ok(Facts::default())
    }

    /// Makes the smallest call that verifies endpoint, credentials and permissions.
    async fn check(&self) -> Result<()>;

    /// Checks everything that the configuration refers to, item by item, for `bowline check`. Writes nothing.
    async fn diagnose(&self) -> Vec<CheckResult> {
        let outcome = self.check().await.map(|()| "the cloud is reachable and accepts the credentials".to_owned());
        vec![CheckResult::new("cloud", outcome)]
    }

    /// Ends sessions in the cloud: at the end of the process, and after a new configuration has replaced the provider. Later calls
    /// still work, but may leave a session behind. The caller waits only a few seconds.
    async fn close(&self) {}

    /// Returns usage and limits of the account's quotas, as far as the cloud reports them.
    async fn quotas(&self) -> Result<Vec<Quota>> {
        Ok(Vec::new())
    }
}
