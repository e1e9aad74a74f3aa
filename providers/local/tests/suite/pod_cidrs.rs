//! Pod CIDRs that the cloud itself routes to machines: reported and assigned.
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

fn machine(name: &str, cidrs: &[&str]) -> NewMachine {
    let pod_ranges = cidrs.iter().copied().map(net).collect();
    NewMachine { name: name.to_owned(), pod_ranges, ..NewMachine::default() }
}

fn cloud(machines: &[NewMachine]) -> LocalCloud {
    let cloud = LocalCloud::open(CloudOptions::default()).unwrap();
    machines.iter().for_each(|machine| drop(cloud.add(machine.clone()).unwrap()));
    cloud
}

fn enabled() -> Config {
    Config { pod_ranges: true, ..Config::default() }
}

fn instance(node: &str, id: Option<&str>) -> InstanceRef {
    InstanceRef { node: node.into(), provider_id: id.and_then(ProviderId::new), system_uuid: None }
}

async fn reported(provider: &LocalProvider, node: &str) -> Vec<IpNet> {
    let state = provider.find(&[instance(node, None)]).await.remove(0).unwrap();
    state.instance().unwrap().pod_cidrs.clone()
}

async fn assign(provider: &LocalProvider, node: &str, cidr: &str) -> Result<(), Error> {
    provider.assign_pod_cidrs(&instance(node, None), net(cidr)).await
}

#[tokio::test]
async fn pod_cidrs_are_reported_in_order_if_enabled() {
    let cloud = cloud(&[machine("a", &["fd00:1::7/64", "10.1.0.0/24"])]);
    let provider = LocalProvider::in_process(cloud.clone(), &enabled());
    assert_eq!(reported(&provider, "a").await, [net("fd00:1::/64"), net("10.1.0.0/24")]);
    let capabilities = provider.capabilities().instances.clone().unwrap();
    assert!(capabilities.pod_cidrs && capabilities.assign_pod_cidrs);
    let off = LocalProvider::in_process(cloud, &Config::default());
    assert_eq!(reported(&off, "a").await, []);
    let capabilities = off.capabilities().instances.clone().unwrap();
    assert!(!capabilities.pod_cidrs && !capabilities.assign_pod_cidrs);
    assert_eq!(assign(&off, "a", "10.2.0.0/24").await.unwrap_err().kind(), ErrorKind::Unsupported);
}

#[tokio::test]
async fn an_assigned_pod_cidr_is_reported_and_assignment_is_idempotent() {
    let cloud = cloud(&[machine("a", &[]), machine("b", &["10.2.0.0/24"])]);
    let server = serve(cloud.clone(), "127.0.0.1:0".parse().unwrap()).await.unwrap();
    let config = Config { endpoint: format!("http://{}", server.address()), ..enabled() };
    let http = LocalProvider::over_http(&config).unwrap();
    for provider in [&LocalProvider::in_process(cloud.clone(), &enabled()), &http] {
        assign(provider, "a", "10.1.0.9/24").await.unwrap();
        provider.assign_pod_cidrs(&instance("x", Some("local://i-0001")), net("fd00:1::/64")).await.unwrap();
        assert_eq!(reported(provider, "a").await, [net("10.1.0.0/24"), net("fd00:1::/64")]);
    }
    assert_eq!((cloud.calls()["assign-pod-range"], cloud.writes()), (4, 4));
    server.shutdown().await;
}

#[tokio::test]
async fn an_invalid_assignment_is_rejected_with_the_reason() {
    let cloud = cloud(&[machine("a", &["10.1.0.0/24"]), machine("b", &[]), machine("twin", &[]), machine("twin", &[])]);
    let provider = LocalProvider::in_process(cloud.clone(), &enabled());
    let table = [
        ("b", "10.1.0.0/24", ErrorKind::AlreadyExists, r#"overlaps with 10.1.0.0/24 of the machine "i-0001""#),
        ("b", "10.0.0.0/8", ErrorKind::AlreadyExists, r#"overlaps with 10.1.0.0/24 of the machine "i-0001""#),
        ("a", "10.1.0.0/25", ErrorKind::InvalidConfig, "10.1.0.0/24 and 10.1.0.0/25"),
        ("missing", "10.3.0.0/24", ErrorKind::NotFound, "there is no machine \"missing\""),
        ("twin", "10.3.0.0/24", ErrorKind::InvalidConfig, "matches 2 machines"),
    ];
    for (node, cidr, kind, expected) in table {
        let error = assign(&provider, node, cidr).await.unwrap_err();
        assert!(error.kind() == kind && error.to_string().contains(expected), "{node} {cidr}: {error}");
    }
    let foreign = provider.assign_pod_cidrs(&instance("a", Some("aws:///i-1")), net("10.3.0.0/24")).await;
    assert_eq!(foreign.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(cloud.machines().iter().flat_map(|machine| &machine.spec.pod_ranges).count(), 1);
}

#[tokio::test]
async fn faults_affect_assignments_and_a_lost_answer_is_an_error_although_it_is_applied() {
    let cloud = cloud(&[machine("a", &[])]);
    let provider = LocalProvider::in_process(cloud.clone(), &enabled());
    cloud.inject(FaultSpec::always(Fault::Failing(403)).on("assign-pod-range").times(1));
    assert_eq!(assign(&provider, "a", "10.1.0.0/24").await.unwrap_err().kind(), ErrorKind::PermissionDenied);
    assert_eq!(reported(&provider, "a").await, []);
    cloud.inject(FaultSpec::always(Fault::AnswerLost).on("assign-pod-range").times(1));
    assert_eq!(assign(&provider, "a", "10.1.0.0/24").await.unwrap_err().kind(), ErrorKind::Unavailable);
    assign(&provider, "a", "10.1.0.0/24").await.unwrap();
    assert_eq!(reported(&provider, "a").await, [net("10.1.0.0/24")]);
}

#[tokio::test]
async fn the_owner_sets_and_removes_pod_cidrs_without_overlaps() {
    let cloud = cloud(&[machine("a", &["10.1.0.0/24"])]);
    let taken = cloud.add(machine("b", &["10.1.0.0/16"])).unwrap_err();
    assert_eq!(taken, CloudError::PodCidrTaken(net("10.1.0.0/16"), net("10.1.0.0/24"), "i-0001".to_owned()));
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
