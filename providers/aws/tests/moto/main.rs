//! The provider on moto, an emulator of AWS by other authors, behind a proxy that checks signatures and parameters with Amazon's own
//! client library, as `tests/aws/up` starts them.
//!
//! These tests run if `BOWLINE_AWS` is the folder that it has filled, and are skipped otherwise. The cases of the conformance suite
//! share one account, which is reset before each of them, so they run one after the other; `BOWLINE_CASE` selects some by parts of
//! their names.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod bench;
mod load_balancers;
#[allow(dead_code, reason = "stories of the manager use the rest")]
mod moto;
mod provider;
mod routes;
mod signing;
mod suite;

use std::io::Write as _;
use std::sync::LazyLock;

use bowline_conformance::{Bench, ForeignLoadBalancer, ForeignRoute, LoadBalancerBench, RouteBench, WantedMachine};
use bowline_core::{Address, AddressType, ClusterName, LoadBalancerKey, ProviderId};
use serde_json::json;
use tokio::sync::Mutex;

use bench::{CLUSTER, MotoBench};
use load_balancers::name_of;
use moto::{Moto, list, text};

/// Lets one test at a time use the account.
static ACCOUNT: LazyLock<Mutex<()>> = LazyLock::new(Mutex::default);

/// Reports a skip past the test runner's capture, in the form that the CI counts.
fn skip(why: &str) {
    std::io::stderr().write_all(format!("\nSKIPPED: {why}\n1 skipped\n").as_bytes()).unwrap();
}

/// Opens moto; `None` and a report if there is none.
fn open() -> Option<Moto> {
    let moto = Moto::open();
    if moto.is_none() {
        skip("no moto, BOWLINE_AWS is not set");
    }
    moto
}

#[tokio::test]
async fn a_reset_leaves_the_resources_of_a_cluster_without_instances() {
    let Some(moto) = open() else { return };
    let _account = ACCOUNT.lock().await;
    let ids = moto.reset(json!({"cluster": "conformance", "instances": false})).await;
    let vpc = json!({"Filters": [{"Name": "vpc-id", "Values": [ids["vpc"]]}]});
    let subnets = moto.call("ec2", "describe_subnets", vpc).await;
    assert_eq!(list(&subnets["Subnets"]).len(), 8);
    let instances = moto.call("ec2", "describe_instances", json!({})).await;
    assert_eq!(list(&instances["Reservations"]).len(), 0);
    assert_eq!(moto.totals().await, (0, 0), "calls of the test are not counted");
}

#[tokio::test]
async fn an_instance_gets_the_requested_name_addresses_and_state() {
    let Some(moto) = open() else { return };
    let _account = ACCOUNT.lock().await;
    let ids = moto.reset(json!({"cluster": "conformance", "instances": false})).await;
    let id = moto.run_instance(&ids, "subnet-private-a", "conformance").await;
    let change = json!({"private_dns_name": "node-1", "ipv4": ["10.0.0.20", "10.0.0.3"], "ipv6": ["fd00::7"], "state": "stopping"});
    moto.change_instance(&id, change).await;
    let instance = moto.instance(&id).await;
    assert_eq!(
        (text(&instance["PrivateDnsName"]), text(&instance["State"]["Name"])),
        ("node-1".into(), "stopping".into())
    );
    let interface = &instance["NetworkInterfaces"][0];
    assert_eq!(interface["PrivateIpAddresses"][1]["PrivateIpAddress"], "10.0.0.3");
    assert_eq!(interface["Ipv6Addresses"][0]["Ipv6Address"], "fd00::7");
}

#[tokio::test]
async fn a_request_without_signature_is_rejected_and_stands_in_the_journal() {
    let Some(moto) = open() else { return };
    let _account = ACCOUNT.lock().await;
    moto.reset(json!({"instances": false})).await;
    let (status, body) = moto.unsigned("Action=DescribeVpcs&Version=2016-11-15").await;
    assert_eq!(status, 403, "{body}");
    assert!(body.contains("<Code>MissingAuthenticationToken</Code>"), "{body}");
    let journal = moto.journal().await;
    assert_eq!(
        (text(&journal[0]["action"]), text(&journal[0]["code"])),
        ("DescribeVpcs".into(), "MissingAuthenticationToken".into())
    );
    assert_eq!(moto.counts().await, json!({"ec2.DescribeVpcs": 1}));
}

#[tokio::test]
async fn a_fault_lasts_until_it_is_deleted() {
    let Some(moto) = open() else { return };
    let _account = ACCOUNT.lock().await;
    moto.reset(json!({"instances": false})).await;
    moto.set_faults(json!([{"count": null, "status": 503, "body": "no server is available"}])).await;
    for _ in 0..2 {
        assert_eq!(moto.unsigned("Action=DescribeVpcs").await, (503, "no server is available".to_owned()));
    }
    moto.clear_faults().await;
    assert_ne!(moto.unsigned("Action=DescribeVpcs").await.0, 503);
}

// ---- the bench

async fn bench(moto: Moto) -> MotoBench {
    MotoBench::new(moto).await
}

fn key(cluster: &str, uid: &str) -> LoadBalancerKey {
    LoadBalancerKey {
        cluster: cluster.into(),
        namespace: "default".to_owned(),
        service: "web".to_owned(),
        uid: uid.to_owned(),
    }
}

#[tokio::test]
async fn the_bench_shows_machines_as_a_provider_should() {
    let Some(moto) = open() else { return };
    let _account = ACCOUNT.lock().await;
    let bench = bench(moto).await;
    let addresses = ["10.0.0.20", "10.0.0.3", "fd00::7"].map(|ip| Address::new(AddressType::InternalIP, ip)).into();
    let machine = WantedMachine { name: "node-1".to_owned(), addresses, ..WantedMachine::default() };
    let instance = bench.add(&machine).await;
    assert_eq!(instance.provider_id, Some(ProviderId::of("aws", &format!("/eu-west-1a/{}", instance.id))));
    let shown: Vec<_> = instance.addresses.iter().map(|one| one.address.as_str()).collect();
    assert_eq!(shown, ["10.0.0.20", "10.0.0.3", "node-1", "node-1", "fd00::7"]);
    assert!(!instance.labels["topology.k8s.aws/zone-id"].is_empty());
    bench.stop(&instance).await;
    assert_eq!(bench.moto.instance(&instance.id).await["State"]["Name"], "stopped");
    bench.start(&instance).await;
    bench.delete(&instance).await;
    assert_eq!(bench.moto.instance(&instance.id).await["State"]["Name"], "terminated");
}

#[tokio::test]
async fn the_bench_shows_load_balancers_of_both_types_with_their_owners() {
    let Some(moto) = open() else { return };
    let _account = ACCOUNT.lock().await;
    let bench = bench(moto).await;
    let uid = "12345678-1234-1234-1234-123456789abc";
    let other = "22345678-1234-1234-1234-123456789abc";
    for (kind, owner) in [("classic-internal", key(CLUSTER, uid)), ("network", key("other-cluster", other))] {
        let (name, kind) = (name_of(&owner), Some(kind));
        let foreign = ForeignLoadBalancer { name, kind, owner: Some(owner.clone()), address: None };
        let created = LoadBalancerBench::put_foreign(&bench, &foreign).await.unwrap();
        assert_eq!(created.owners[0].cluster, owner.cluster, "{created:?}");
    }
    let seen = bench.load_balancer(&key(CLUSTER, uid)).await.unwrap();
    assert_eq!((seen.internal, seen.listeners[0].port, seen.listeners[0].node_port), (Some(true), 443, Some(30443)));
    assert!(seen.idle_timeout.is_some() && seen.health_check.is_none(), "{seen:?}");
    assert!(bench.load_balancer(&key("other-cluster", other)).await.is_some());
    assert!(bench.load_balancer(&key(CLUSTER, other)).await.is_none(), "it has the tag of another cluster");
    assert_eq!(bench.resources().await.len(), 2);
}

#[tokio::test]
async fn the_bench_shows_routes() {
    let Some(moto) = open() else { return };
    let _account = ACCOUNT.lock().await;
    let bench = bench(moto).await;
    let machine = bench.add(&WantedMachine { name: "node-1".to_owned(), ..WantedMachine::default() }).await.id;
    let foreign = ForeignRoute { destination: "10.244.1.0/24".parse().unwrap(), machine: machine.clone() };
    let cluster = ClusterName::from(CLUSTER);
    let route = RouteBench::put_foreign(&bench, &cluster, &foreign).await.unwrap();
    assert_eq!(route.machine, Some(machine));
    assert_eq!(RouteBench::routes(&bench, &cluster).await, [route]);
}

#[tokio::test]
async fn the_bench_loses_responses_and_calls_of_a_crashed_manager() {
    let Some(moto) = open() else { return };
    let _account = ACCOUNT.lock().await;
    let bench = bench(moto).await;
    bench.crash_after(Some(2)).await;
    let mut received = Vec::new();
    for _ in 0..4 {
        received.push(bench.moto.try_unsigned("Action=DescribeVpcs&Version=2016-11-15").await.is_ok());
    }
    assert_eq!(received, [true, false, false, false]);
    assert_eq!(bench.calls().await, Some(4));
    bench.crash_after(None).await;
    assert!(bench.moto.try_unsigned("Action=DescribeVpcs&Version=2016-11-15").await.is_ok());
}
