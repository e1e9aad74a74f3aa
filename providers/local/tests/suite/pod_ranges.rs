//! Pod ranges that the cloud itself leads to machines: told, and assigned.
use bowline_cloud::{CloudProvider, Error, ErrorKind, Instances};
use bowline_core::{InstanceRef, ProviderId};
use bowline_local::{
    CloudError, CloudOptions, Config, Fault, FaultSpec, LocalCloud, LocalProvider, ManagementClient, NewMachine, serve,
};
use ipnet::IpNet;
use serde_json::json;

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn machine(name: &str, ranges: &[&str]) -> NewMachine {
    let pod_ranges = ranges.iter().copied().map(net).collect();
    NewMachine { name: name.to_owned(), pod_ranges, ..NewMachine::default() }
}

fn cloud(machines: &[NewMachine]) -> LocalCloud {
    let cloud = LocalCloud::open(CloudOptions::default()).unwrap();
    machines.iter().for_each(|machine| drop(cloud.add(machine.clone()).unwrap()));
    cloud
}

fn on() -> Config {
    Config { pod_ranges: true, ..Config::default() }
}

fn asked(node: &str, id: Option<&str>) -> InstanceRef {
    InstanceRef { node: node.into(), provider_id: id.and_then(ProviderId::new), system_uuid: None }
}

async fn told(provider: &LocalProvider, node: &str) -> Vec<IpNet> {
    let state = provider.find(&[asked(node, None)]).await.remove(0).unwrap();
    state.instance().unwrap().pod_ranges.clone()
}

async fn assign(provider: &LocalProvider, node: &str, range: &str) -> Result<(), Error> {
    provider.assign_pod_cidrs(&asked(node, None), net(range)).await
}

#[tokio::test]
async fn pod_ranges_are_told_in_their_order_if_they_are_asked_for() {
    let cloud = cloud(&[machine("a", &["fd00:1::7/64", "10.1.0.0/24"])]);
    let provider = LocalProvider::in_process(cloud.clone(), &on());
    assert_eq!(told(&provider, "a").await, [net("fd00:1::/64"), net("10.1.0.0/24")]);
    let claimed = provider.capabilities().instances.clone().unwrap();
    assert!(claimed.pod_ranges && claimed.assign_pod_ranges);
    let off = LocalProvider::in_process(cloud, &Config::default());
    assert_eq!(told(&off, "a").await, []);
    let claimed = off.capabilities().instances.clone().unwrap();
    assert!(!claimed.pod_ranges && !claimed.assign_pod_ranges);
    assert_eq!(assign(&off, "a", "10.2.0.0/24").await.unwrap_err().kind(), ErrorKind::Unsupported);
}

#[tokio::test]
async fn an_assigned_range_is_told_and_assigning_it_again_changes_nothing() {
    let cloud = cloud(&[machine("a", &[]), machine("b", &["10.2.0.0/24"])]);
    let server = serve(cloud.clone(), "127.0.0.1:0".parse().unwrap()).await.unwrap();
    let config = Config { endpoint: format!("http://{}", server.address()), ..on() };
    let http = LocalProvider::over_http(&config).unwrap();
    for provider in [&LocalProvider::in_process(cloud.clone(), &on()), &http] {
        assign(provider, "a", "10.1.0.9/24").await.unwrap();
        provider.assign_pod_cidrs(&asked("x", Some("local://i-0001")), net("fd00:1::/64")).await.unwrap();
        assert_eq!(told(provider, "a").await, [net("10.1.0.0/24"), net("fd00:1::/64")]);
    }
    assert_eq!((cloud.calls()["assign-pod-range"], cloud.writes()), (4, 4));
    server.shutdown().await;
}

#[tokio::test]
async fn a_range_that_cannot_be_assigned_is_refused_with_why() {
    let cloud = cloud(&[machine("a", &["10.1.0.0/24"]), machine("b", &[]), machine("twin", &[]), machine("twin", &[])]);
    let provider = LocalProvider::in_process(cloud.clone(), &on());
    let table = [
        ("b", "10.1.0.0/24", ErrorKind::AlreadyExists, r#"overlaps with 10.1.0.0/24, which the machine "i-0001" has"#),
        ("b", "10.0.0.0/8", ErrorKind::AlreadyExists, r#"overlaps with 10.1.0.0/24, which the machine "i-0001" has"#),
        ("a", "10.1.0.0/25", ErrorKind::InvalidConfig, "10.1.0.0/24 and 10.1.0.0/25"),
        ("nobody", "10.3.0.0/24", ErrorKind::NotFound, "there is no machine \"nobody\""),
        ("twin", "10.3.0.0/24", ErrorKind::InvalidConfig, "fits 2 machines"),
    ];
    for (node, range, kind, says) in table {
        let error = assign(&provider, node, range).await.unwrap_err();
        assert!(error.kind() == kind && error.to_string().contains(says), "{node} {range}: {error}");
    }
    let foreign = provider.assign_pod_cidrs(&asked("a", Some("aws:///i-1")), net("10.3.0.0/24")).await;
    assert_eq!(foreign.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(cloud.machines().iter().flat_map(|machine| &machine.spec.pod_ranges).count(), 1);
}

#[tokio::test]
async fn faults_strike_assignments_and_a_lost_answer_is_an_error_although_it_is_done() {
    let cloud = cloud(&[machine("a", &[])]);
    let provider = LocalProvider::in_process(cloud.clone(), &on());
    cloud.inject(FaultSpec::always(Fault::Failing(403)).on("assign-pod-range").times(1));
    assert_eq!(assign(&provider, "a", "10.1.0.0/24").await.unwrap_err().kind(), ErrorKind::PermissionDenied);
    assert_eq!(told(&provider, "a").await, []);
    cloud.inject(FaultSpec::always(Fault::AnswerLost).on("assign-pod-range").times(1));
    assert_eq!(assign(&provider, "a", "10.1.0.0/24").await.unwrap_err().kind(), ErrorKind::Unavailable);
    assign(&provider, "a", "10.1.0.0/24").await.unwrap();
    assert_eq!(told(&provider, "a").await, [net("10.1.0.0/24")]);
}

#[tokio::test]
async fn the_owner_gives_and_takes_ranges_and_none_twice() {
    let cloud = cloud(&[machine("a", &["10.1.0.0/24"])]);
    let taken = cloud.add(machine("b", &["10.1.0.0/16"])).unwrap_err();
    assert_eq!(taken, CloudError::PodRangeTaken(net("10.1.0.0/16"), net("10.1.0.0/24"), "i-0001".to_owned()));
    cloud.add(machine("b", &[])).unwrap();
    let server = serve(cloud.clone(), "127.0.0.1:0".parse().unwrap()).await.unwrap();
    let owner = ManagementClient::new(&format!("http://{}", server.address())).unwrap();
    let owner = owner.with_token(&server.owner_token().into()).unwrap();
    assert!(owner.patch("i-0002", &json!({"podRanges": ["10.1.0.0/24"]})).await.is_err());
    owner.patch("i-0001", &json!({"podRanges": null})).await.unwrap();
    let patched = owner.patch("i-0002", &json!({"podRanges": ["10.1.0.5/24"]})).await.unwrap();
    assert_eq!(patched.spec.pod_ranges, [net("10.1.0.0/24")]);
    cloud.delete("i-0002").unwrap();
    cloud.add(machine("c", &["10.1.0.0/24"])).unwrap();
    server.shutdown().await;
}
