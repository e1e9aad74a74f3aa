//! Tests of reloading.

use std::collections::VecDeque;

use bowline_config::ConfigError;

use super::*;
use crate::fake::{Fake, named};

/// Result of reading the configuration: a provider, or an error.
type Configured = Arc<Mutex<std::result::Result<Arc<Fake>, &'static str>>>;

fn reloading(first: Fake) -> (Reloading, Configured) {
    let configured: Configured = Arc::new(Mutex::new(Ok(Arc::new(first))));
    let source = configured.clone();
    let rebuild = move || match &*source.lock().unwrap() {
        Ok(fake) => Ok(fake.clone() as Arc<dyn CloudProvider>),
        Err(error) => Err(ConfigErrors::from(ConfigError::new(*error))),
    };
    (Reloading::new(None, rebuild).ok().unwrap(), configured)
}

async fn has_machine(provider: &Reloading, name: &str) -> bool {
    let results = provider.instances().unwrap().find(&[named(name)]).await;
    matches!(&results[..], [Ok(state)] if state.instance().is_some())
}

#[tokio::test(start_paused = true)]
async fn a_valid_configuration_replaces_the_old_one() {
    let (provider, configured) = reloading(Fake::new("a").with(["old"]));
    *configured.lock().unwrap() = Ok(Arc::new(Fake::new("a").with(["new"])));
    assert!(has_machine(&provider, "old").await && !has_machine(&provider, "new").await, "before the reload");
    assert_eq!(provider.revision(), 0);
    provider.reload().await.unwrap();
    assert!(!has_machine(&provider, "old").await && has_machine(&provider, "new").await);
    assert_eq!(provider.revision(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_replaced_provider_is_closed_after_its_calls_and_a_rejected_one_at_once() {
    let mut old = Fake::new("a").with(["old"]);
    old.latency = Duration::from_secs(20);
    let refused = Fake::new("a");
    refused.fail([Some(Error::new(ErrorKind::Unauthenticated, "check", "unknown key"))]);
    let (old_closes, refused_closes) = (old.closes.clone(), refused.closes.clone());
    // The first one is built only for the names of its files.
    let builds = Mutex::new(VecDeque::from([Fake::new("a"), old, refused, Fake::new("a").with(["new"])]));
    let rebuild = move || Ok(Arc::new(builds.lock().unwrap().pop_front().unwrap()) as Arc<dyn CloudProvider>);
    let provider = Arc::new(Reloading::new(None, rebuild).ok().unwrap());
    let closes = || (old_closes.load(Ordering::SeqCst), refused_closes.load(Ordering::SeqCst));
    assert!(provider.reload().await.is_err());
    sleep(Duration::from_secs(5)).await;
    assert_eq!(closes(), (0, 1), "the rejected one");
    let caller = provider.clone();
    let call = tokio::spawn(async move { has_machine(&caller, "old").await });
    tokio::task::yield_now().await;
    provider.reload().await.unwrap();
    sleep(Duration::from_secs(10)).await;
    assert_eq!(closes().0, 0, "a call is in progress");
    assert!(call.await.unwrap());
    sleep(Duration::from_secs(60)).await;
    assert_eq!(closes().0, 1);
}

#[tokio::test(start_paused = true)]
async fn a_configuration_that_the_cloud_rejects_leaves_the_old_one_in_use() {
    let (provider, configured) = reloading(Fake::new("a").with(["old"]));
    let refused = Fake::new("a").with(["new"]);
    refused.fail([Some(Error::new(ErrorKind::Unauthenticated, "check", "unknown key"))]);
    *configured.lock().unwrap() = Ok(Arc::new(refused));
    let error = provider.reload().await.unwrap_err();
    assert!(error.contains("the cloud rejects it") && error.contains("unknown key"), "{error}");
    *configured.lock().unwrap() = Err("config.yaml:3: zone: unknown");
    assert_eq!(provider.reload().await.unwrap_err(), "config.yaml:3: zone: unknown");
    assert!(has_machine(&provider, "old").await);
}

#[tokio::test(start_paused = true)]
async fn a_rebuilt_provider_is_started_before_use_and_must_have_the_same_facts() {
    let in_region = |region: &str| Facts { region: Some(region.to_owned()), ..Facts::default() };
    let (provider, configured) = reloading(Fake::new("a").with(["old"]).with_facts(in_region("east")));
    provider.start().await.unwrap();
    *configured.lock().unwrap() = Ok(Arc::new(Fake::new("a").with(["new"]).with_facts(in_region("west"))));
    let error = provider.reload().await.unwrap_err();
    assert!(error.contains("changes its region") && error.contains("restart"), "{error}");
    let refused = Fake::new("a").with(["new"]).with_facts(in_region("east"));
    refused.fail_start([Err(Error::new(ErrorKind::Unauthenticated, "authenticate", "unknown key"))]);
    let refused = Arc::new(refused);
    *configured.lock().unwrap() = Ok(refused.clone());
    assert!(provider.reload().await.unwrap_err().contains("unknown key"));
    assert!(has_machine(&provider, "old").await && !has_machine(&provider, "new").await);
    provider.reload().await.unwrap();
    assert!(has_machine(&provider, "new").await && refused.starts() == 2);
}

#[tokio::test(start_paused = true)]
async fn a_rebuilt_provider_gets_its_secrets_before_the_start_and_must_need_the_same() {
    let (provider, configured) = reloading(Fake::new("a").with_secret("x/one"));
    let secret = SecretRef::parse("x/one").unwrap();
    for token in ["first", "second"] {
        let data = SecretData::from_iter([("token", token)]);
        provider.on_secret(&secret, Some(&data)).await.unwrap();
    }
    assert!(provider.on_secret(&secret, None).await.is_err(), "a rejected Secret is not kept");
    assert_eq!(provider.revision(), 2, "one for each accepted Secret");
    let new = Arc::new(Fake::new("a").with_secret("x/one"));
    *configured.lock().unwrap() = Ok(new.clone());
    provider.reload().await.unwrap();
    assert_eq!((new.tokens(), new.starts()), (vec!["second".to_owned()], 1));
    *configured.lock().unwrap() = Ok(Arc::new(Fake::new("a").with_secret("x/other")));
    assert!(provider.reload().await.unwrap_err().contains("changes the Secrets that it needs"));
}

#[tokio::test(start_paused = true)]
async fn a_configuration_of_another_cloud_requires_a_restart() {
    let (provider, configured) = reloading(Fake::new("a").with(["old"]));
    let mut less = Fake::new("a");
    less.capabilities.routes = None;
    let others = [(Fake::new("b"), "its name"), (Fake::new("a").prefix("c"), "the prefix"), (less, "its capabilities")];
    for (other, what) in others {
        *configured.lock().unwrap() = Ok(Arc::new(other));
        let error = provider.reload().await.unwrap_err();
        assert!(error.contains(&format!("changes {what}")) && error.contains("restart"), "{error}");
    }
    assert!(has_machine(&provider, "old").await);
}

/// Denies every request, with its own message.
struct Denying(&'static str, &'static str);

#[async_trait]
impl Webhook for Denying {
    fn name(&self) -> &str {
        "services"
    }

    fn path(&self) -> &str {
        self.0
    }

    async fn review(&self, _: crate::AdmissionRequest) -> crate::AdmissionResponse {
        crate::AdmissionResponse::deny(self.1)
    }
}

#[tokio::test(start_paused = true)]
async fn the_webhooks_of_a_rebuilt_provider_are_used_and_must_have_the_same_paths() {
    let with = |path, message| {
        let mut fake = Fake::new("a");
        fake.webhooks = vec![Arc::new(Denying(path, message))];
        fake
    };
    let (provider, configured) = reloading(with("/services", "old"));
    *configured.lock().unwrap() = Ok(Arc::new(with("/other", "new")));
    let error = provider.reload().await.unwrap_err();
    assert!(error.contains("changes its webhooks"), "{error}");
    *configured.lock().unwrap() = Ok(Arc::new(with("/services", "new")));
    provider.reload().await.unwrap();
    let response = provider.webhooks().first().unwrap().review(Default::default()).await;
    assert_eq!(response, crate::AdmissionResponse::deny("new"));
}

#[tokio::test(start_paused = true)]
async fn a_changed_endpoint_needs_a_restart() {
    let at = |address: &str| {
        let endpoint = Endpoint { address: address.to_owned(), purpose: crate::EndpointPurpose::Metrics };
        let mut fake = Fake::new("a");
        fake.endpoints = vec![endpoint];
        fake
    };
    let (provider, configured) = reloading(at(":9000"));
    *configured.lock().unwrap() = Ok(Arc::new(at(":9001")));
    let error = provider.reload().await.unwrap_err();
    assert!(error.contains("changes its endpoints"), "{error}");
    assert_eq!(provider.endpoints(), at(":9000").endpoints);
}
