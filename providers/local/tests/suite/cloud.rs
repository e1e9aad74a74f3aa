//! The cloud: management and user calls, in process and over HTTP.
use std::time::Duration;

use bowline_cloud::{CloudProvider, ErrorKind, Instances, PageToken, Retry};
use bowline_core::{InstanceRef, InstanceState, ProviderId};
use bowline_local::{
    CloudError, CloudOptions, Config, Fault, FaultSpec, LocalCloud, LocalProvider, MachineState, ManagementClient,
    NewMachine, serve,
};

fn cloud(options: CloudOptions) -> LocalCloud {
    LocalCloud::open(options).unwrap()
}

fn small(page_size: usize) -> LocalCloud {
    cloud(CloudOptions { page_size, ..CloudOptions::default() })
}

fn machine(name: &str) -> NewMachine {
    NewMachine { name: name.to_owned(), ..NewMachine::default() }
}

fn named(name: &str) -> InstanceRef {
    InstanceRef { node: name.into(), provider_id: None, system_uuid: None }
}

fn by_id(id: &str) -> InstanceRef {
    InstanceRef { node: "any".into(), provider_id: ProviderId::new(id), system_uuid: None }
}

fn provider(cloud: &LocalCloud) -> LocalProvider {
    LocalProvider::in_process(cloud.clone(), &Config::default())
}

/// Error of a lookup.
async fn failure(provider: &LocalProvider) -> (ErrorKind, Retry) {
    let error = provider.find(&[named("node-1")]).await.remove(0).unwrap_err();
    (error.kind(), error.retry_advice())
}

// ---- machines

#[test]
fn ids_are_generated_in_order_and_never_reused() {
    let cloud = small(100);
    let id = |name: &str| cloud.add(machine(name)).unwrap().spec.id;
    assert_eq!(id("a"), "i-0001");
    assert_eq!(id("b"), "i-0002");
    cloud.delete("i-0002").unwrap();
    assert_eq!(id("b"), "i-0003");
    cloud.add(NewMachine { id: "i-0009".to_owned(), ..machine("mine") }).unwrap();
    cloud.delete("i-0009").unwrap();
    assert_eq!(id("c"), "i-0010");
    // Not in the form of generated IDs: too many digits, and a letter.
    cloud.add(NewMachine { id: format!("i-{}", u64::MAX), ..machine("huge") }).unwrap();
    cloud.add(NewMachine { id: "i-12x".to_owned(), ..machine("odd") }).unwrap();
    assert_eq!(id("d"), "i-0011");
    cloud.add(NewMachine { id: "i-999999999999".to_owned(), ..machine("far") }).unwrap();
    assert_eq!(id("e"), "i-1000000000000");
    cloud.add(NewMachine { id: "i-1000000000001".to_owned(), ..machine("taken") }).unwrap();
    assert_eq!(id("f"), "i-1000000000002");
}

#[test]
fn invalid_machines_are_rejected() {
    let cloud = small(100);
    cloud.add(machine("a")).unwrap();
    assert!(matches!(cloud.add(machine("")), Err(CloudError::Invalid(_))));
    assert!(matches!(cloud.add(machine("tab\there")), Err(CloudError::Invalid(_))));
    for id in ["a/b", "a b", "..", "find", "ü", &"x".repeat(254)] {
        assert!(matches!(cloud.add(NewMachine { id: id.into(), ..machine("b") }), Err(CloudError::Invalid(_))), "{id}");
    }
    let twice = cloud.add(NewMachine { id: "i-0001".to_owned(), ..machine("b") });
    assert_eq!(twice, Err(CloudError::Exists("i-0001".to_owned())));
    assert_eq!(cloud.stop("i-0002"), Err(CloudError::NoSuchMachine("i-0002".to_owned())));
    assert!(matches!(cloud.change("i-0001", |spec| spec.id = "i-0002".to_owned()), Err(CloudError::Invalid(_))));
    assert_eq!(cloud.machines().len(), 1);
    assert!(LocalCloud::open(CloudOptions { page_size: 0, ..CloudOptions::default() }).is_err());
}

#[tokio::test]
async fn a_renamed_machine_is_found_by_its_new_name_only() {
    let cloud = small(100);
    let id = cloud.add(machine("old")).unwrap().spec.id;
    cloud.change(&id, |spec| spec.name = "new".to_owned()).unwrap();
    let answers = provider(&cloud).find(&[named("old"), named("new")]).await;
    assert!(matches!(answers[0], Ok(InstanceState::Gone)), "{answers:?}");
    assert!(matches!(&answers[1], Ok(InstanceState::Running(instance)) if instance.id == id), "{answers:?}");
}

#[tokio::test]
async fn many_machines_take_one_call_and_foreign_ids_none() {
    let cloud = small(100);
    let refs: Vec<_> =
        (0..100).map(|index| named(&cloud.add(machine(&format!("n{index}"))).unwrap().spec.name)).collect();
    let provider = provider(&cloud);
    assert!(provider.find(&refs).await.iter().all(Result::is_ok));
    provider.find(&[by_id("aws:///i-1"), by_id("local://"), by_id("nonsense")]).await;
    assert_eq!(cloud.calls().into_iter().collect::<Vec<_>>(), [("find".to_owned(), 1)]);
    cloud.reset_calls();
    assert!(cloud.calls().is_empty());
}

// ---- pages

async fn names(provider: &LocalProvider, mut between: impl FnMut()) -> Vec<String> {
    let (mut names, mut token) = (Vec::new(), None::<PageToken>);
    loop {
        let page = provider.list(token.as_ref()).await.unwrap();
        names.extend(page.instances.iter().filter_map(|state| state.instance()).map(|found| found.name.clone()));
        token = page.next;
        if token.is_none() {
            return names;
        }
        between();
    }
}

#[tokio::test]
async fn pages_have_every_remaining_machine_once_during_changes() {
    let cloud = small(3);
    for index in 0..20 {
        cloud.add(machine(&format!("stays-{index:02}"))).unwrap();
        cloud.add(machine(&format!("goes-{index:02}"))).unwrap();
    }
    let provider = provider(&cloud);
    let mut going: Vec<_> = cloud.machines().into_iter().filter(|found| found.spec.name.starts_with("goes")).collect();
    let listed = names(&provider, || {
        // One from the front and one from the back, so that the last machine of a page is among them.
        for gone in [going.pop(), (!going.is_empty()).then(|| going.remove(0))].into_iter().flatten() {
            cloud.delete(&gone.spec.id).unwrap();
        }
        cloud.add(machine("comes")).unwrap();
    });
    let stayed: Vec<_> = listed.await.into_iter().filter(|name| name.starts_with("stays")).collect();
    assert_eq!(stayed, (0..20).map(|index| format!("stays-{index:02}")).collect::<Vec<_>>());
}

#[tokio::test]
async fn the_last_page_has_no_next_token_even_if_it_is_full() {
    for count in [0, 1, 2, 3, 4, 6] {
        let cloud = small(2);
        for index in 0..count {
            cloud.add(machine(&format!("n{index}"))).unwrap();
        }
        assert_eq!(names(&provider(&cloud), || {}).await.len(), count);
        assert_eq!(cloud.calls()["list"], count.div_ceil(2).max(1) as u64);
    }
}

// ---- faults

#[tokio::test(start_paused = true)]
async fn each_fault_has_its_error_kind() {
    let cloud = small(100);
    cloud.add(machine("node-1")).unwrap();
    let provider = provider(&cloud);
    let second = Duration::from_millis(1500);
    let table = [
        (Fault::Throttled(Some(second)), ErrorKind::RateLimited, Retry::After(second)),
        (Fault::Throttled(None), ErrorKind::RateLimited, Retry::Backoff),
        (Fault::Failing(401), ErrorKind::Unauthenticated, Retry::Backoff),
        (Fault::Failing(403), ErrorKind::PermissionDenied, Retry::Backoff),
        (Fault::Failing(503), ErrorKind::Unavailable, Retry::Backoff),
        (Fault::Failing(7), ErrorKind::Unavailable, Retry::Backoff),
        (Fault::Hanging, ErrorKind::Unavailable, Retry::Backoff),
        (Fault::Empty, ErrorKind::Unexpected, Retry::Backoff),
        (Fault::Garbled, ErrorKind::Unexpected, Retry::Backoff),
    ];
    for (fault, kind, retry) in table {
        let number = cloud.inject(FaultSpec::always(fault.clone()));
        assert_eq!(cloud.faults(), [(number, fault.clone())]);
        assert_eq!(failure(&provider).await, (kind, retry), "{fault:?}");
        assert!(cloud.repair(number));
        assert!(provider.find(&[named("node-1")]).await[0].is_ok(), "repaired after {fault:?}");
    }
}

#[tokio::test]
async fn every_kind_of_invalid_response_is_an_error() {
    let cloud = small(100);
    cloud.add(machine("node-1")).unwrap();
    cloud.inject(FaultSpec::always(Fault::Garbled));
    let provider = provider(&cloud);
    for _ in 0..20 {
        assert_eq!(failure(&provider).await.0, ErrorKind::Unexpected);
        assert_eq!(provider.list(None).await.unwrap_err().kind(), ErrorKind::Unexpected);
        assert_eq!(provider.check().await.unwrap_err().kind(), ErrorKind::Unexpected);
    }
}

#[tokio::test]
async fn a_stale_cloud_returns_past_machines() {
    let cloud = small(100);
    let old = cloud.add(machine("old")).unwrap().spec.id;
    cloud.inject(FaultSpec::always(Fault::Stale));
    cloud.delete(&old).unwrap();
    cloud.add(machine("new")).unwrap();
    let provider = provider(&cloud);
    let answers = provider.find(&[named("old"), named("new")]).await;
    assert!(matches!(&answers[..], [Ok(InstanceState::Running(_)), Ok(InstanceState::Gone)]), "{answers:?}");
    assert_eq!(names(&provider, || {}).await, ["old"]);
    cloud.repair_all();
    assert_eq!(names(&provider, || {}).await, ["new"]);
}

#[tokio::test(start_paused = true)]
async fn delays_add_up_and_the_oldest_failure_wins() {
    let cloud = cloud(CloudOptions { latency: Duration::from_millis(20), ..CloudOptions::default() });
    cloud.inject(FaultSpec::always(Fault::Slow(Duration::from_secs(2))));
    cloud.inject(FaultSpec::always(Fault::Slow(Duration::from_secs(3))));
    cloud.inject(FaultSpec::always(Fault::Failing(403)).times(1));
    cloud.inject(FaultSpec::always(Fault::Failing(401)).times(1));
    let (provider, start) = (provider(&cloud), tokio::time::Instant::now());
    assert_eq!(failure(&provider).await.0, ErrorKind::PermissionDenied);
    assert_eq!(failure(&provider).await.0, ErrorKind::Unauthenticated);
    assert!(provider.find(&[named("node-1")]).await[0].is_ok());
    let elapsed = start.elapsed();
    // The paused clock advances in milliseconds.
    assert!((Duration::from_millis(15_060)..Duration::from_millis(15_070)).contains(&elapsed), "{elapsed:?}");
}

#[tokio::test]
async fn a_fault_affects_only_its_kind_of_call() {
    let cloud = small(100);
    cloud.inject(FaultSpec::always(Fault::Failing(500)).on("list"));
    let provider = provider(&cloud);
    assert!(provider.find(&[named("node-1")]).await[0].is_ok());
    assert!(provider.list(None).await.is_err());
}

/// Which of 64 calls fail.
async fn pattern(seed: u64, probability: f64) -> Vec<bool> {
    let cloud = cloud(CloudOptions { seed, ..CloudOptions::default() });
    cloud.inject(FaultSpec::always(Fault::Failing(500)).probability(probability));
    let provider = provider(&cloud);
    let mut failed = Vec::new();
    for _ in 0..64 {
        failed.push(provider.check().await.is_err());
    }
    failed
}

#[tokio::test]
async fn random_faults_are_repeatable_by_seed() {
    assert_eq!(pattern(7, 0.5).await, pattern(7, 0.5).await);
    assert_ne!(pattern(7, 0.5).await, pattern(8, 0.5).await);
    assert!(pattern(7, 0.0).await.iter().all(|failed| !failed));
    assert!(pattern(7, 1.0).await.iter().all(|failed| *failed));
}

#[tokio::test]
async fn a_fault_is_removed_after_its_limit() {
    let cloud = small(100);
    let number = cloud.inject(FaultSpec::always(Fault::Empty).times(2));
    let provider = provider(&cloud);
    assert_eq!(failure(&provider).await.0, ErrorKind::Unexpected);
    assert_eq!(failure(&provider).await.0, ErrorKind::Unexpected);
    assert!(provider.find(&[named("node-1")]).await[0].is_ok());
    assert!(cloud.faults().is_empty());
    assert!(!cloud.repair(number));
}

// ---- over HTTP

#[tokio::test]
async fn the_management_api_works_whatever_faults_are_injected() {
    let cloud = small(2);
    let server = serve(cloud.clone(), "127.0.0.1:0".parse().unwrap()).await.unwrap();
    let owner = ManagementClient::new(&format!("http://{}", server.address())).unwrap();
    let owner = owner.with_token(&server.owner_token().into()).unwrap();
    for fault in [Fault::Failing(500), Fault::Hanging, Fault::Garbled, Fault::Empty] {
        owner.inject(&FaultSpec::always(fault)).await.unwrap();
    }
    for name in ["a", "b", "c", "d", "e"] {
        owner.add(&machine(name)).await.unwrap();
    }
    owner.stop("i-0001").await.unwrap();
    owner.stop("i-0002").await.unwrap();
    owner.start("i-0002").await.unwrap();
    owner.delete("i-0003").await.unwrap();
    let patched = owner.patch("i-0004", &serde_json::json!({"zone": "z", "labels": {"k": "v"}})).await.unwrap();
    assert_eq!((patched.spec.zone.as_str(), patched.spec.name.as_str()), ("z", "d"));
    assert_eq!(owner.list().await.unwrap(), cloud.machines());
    assert_eq!(owner.get("i-0001").await.unwrap().state, MachineState::Stopped);
    assert_eq!(cloud.machines().len(), 4);
    assert_eq!(owner.faults().await.unwrap().len(), 4);
    owner.repair(Some(2)).await.unwrap();
    assert_eq!(owner.faults().await.unwrap().len(), 3);
    owner.repair(None).await.unwrap();
    assert!(owner.faults().await.unwrap().is_empty());
    assert!(owner.calls().await.unwrap().is_empty());
    owner.set_latency(Duration::from_millis(1)).await.unwrap();
    server.shutdown().await;
}
