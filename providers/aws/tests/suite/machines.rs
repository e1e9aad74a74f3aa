//! Nodes: IDs and names, stopped and missing instances, and the number of calls for many of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use bowline_aws::Aws;
use bowline_aws_simulator::{Fault, FaultSpec, Fields as _, NewInstance, Options, Simulator, ec2_fault, parameters};
use bowline_cloud::layers::LayerOptions;
use bowline_cloud::{CloudProvider, Clouds, ErrorKind, Freshness, Instances as _, NoOwner, Ownership, Result};
use bowline_core::{InstanceRef, InstanceState, NodeName, ProviderId};

use crate::world::{CLUSTER_TAG, STATIC, World, counts, instance, provider};

/// Nodes that a whole cluster has in the tests of the number of calls.
const MANY: usize = 1000;

fn with_id(id: &str) -> InstanceRef {
    InstanceRef { node: NodeName::from("node"), provider_id: ProviderId::new(id), system_uuid: None }
}

fn named(node: &str) -> InstanceRef {
    InstanceRef { node: NodeName::from(node), provider_id: None, system_uuid: None }
}

async fn find(provider: &Aws, asked: InstanceRef) -> Result<InstanceState> {
    provider.find(&[asked]).await.pop().unwrap()
}

/// Finds a machine through all layers, as the controllers do.
async fn owner(provider: &Aws, asked: InstanceRef) -> Result<Ownership> {
    let provider: Arc<dyn CloudProvider> = Arc::new(provider.clone());
    let clouds = Clouds::with_layers([provider], &LayerOptions::default(), &prometheus::Registry::new());
    clouds.start().await;
    clouds.observe_all(&[asked], Freshness::Now).await.pop().unwrap()
}

fn private_name(cloud: &Simulator, id: &str) -> String {
    let instances = cloud.records("instance");
    instances.iter().find(|one| one.text("instanceId") == id).unwrap().text("privateDnsName").to_owned()
}

// ---- IDs and names

#[tokio::test(start_paused = true)]
async fn aws_1_and_38_a_malformed_id_is_an_error_for_its_node_only() {
    let world = World::new().await;
    let good = world.nodes[0].provider_id.clone().unwrap().to_string();
    let ids = ["aws:///us-east-1a/vol-1", &good, "aws:///us-east-1a/kwok-node-0", "aws:///", "aws:///a/i-%zz"];
    let found = world.provider.find(&ids.map(with_id)).await;
    for (id, found) in ids.iter().zip(&found) {
        match found {
            Ok(found) => assert!(*id == good && matches!(found, InstanceState::Running(_)), "{id}"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{id}: the Node is kept");
                let text = error.to_string();
                assert!(
                    text.starts_with("failed to map provider ID to AWS instance ID for node node: Invalid "),
                    "{text}"
                );
            }
        }
    }
    assert_eq!(counts(&world.cloud)["DescribeInstances"], 1);
}

#[tokio::test(start_paused = true)]
async fn aws_38_an_invented_well_formed_id_is_gone_and_one_that_aws_rejects_is_an_error() {
    let world = World::new().await;
    let unknown = find(&world.provider, with_id("aws:///us-east-1a/i-0aaaaaaaaaaaaaaaa")).await;
    assert_eq!(unknown.unwrap(), InstanceState::Gone);
    let error = find(&world.provider, with_id("aws:///us-east-1a/i-kwok")).await.unwrap_err();
    assert_eq!(error.code(), Some("InvalidInstanceID.Malformed"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn aws_3_a_resource_name_with_a_custom_domain_contains_the_instance_id() {
    let world = World::new().await;
    let id = instance(&world.nodes[0]);
    for name in [id.clone(), format!("{id}.example.org"), format!("{id}.eu-west-1.compute.internal")] {
        let InstanceState::Running(found) = find(&world.provider, named(&name)).await.unwrap() else { panic!() };
        assert_eq!(found.id, id, "{name}");
        assert_eq!(found.provider_id, world.nodes[0].provider_id, "{name}");
    }
    let ids =
        world.cloud.journal().iter().all(|entry| {
            entry.template != "ec2 DescribeInstances" || parameters(entry).get("InstanceId.1") == Some(&id)
        });
    assert!(ids, "it is looked up by ID");
}

#[tokio::test(start_paused = true)]
async fn aws_4_a_private_dns_name_in_upper_case_is_not_found() {
    let world = World::new().await;
    let name = private_name(&world.cloud, &instance(&world.nodes[0]));
    assert!(matches!(find(&world.provider, named(&name)).await.unwrap(), InstanceState::Running(_)));
    let upper = find(&world.provider, named(&name.to_uppercase())).await.unwrap();
    assert_eq!(upper, InstanceState::Gone);
    let owner = owner(&world.provider, named(&name.to_uppercase())).await.unwrap();
    assert_eq!(owner, Ownership::NoOwner(NoOwner::Unclaimed), "the Node is kept");
}

#[tokio::test(start_paused = true)]
async fn aws_39_a_node_without_provider_id_is_left_alone_if_no_instance_has_its_name() {
    let world = World::new().await;
    let id = instance(&world.nodes[0]);
    let name = private_name(&world.cloud, &id);
    world.cloud.terminate(&id);
    world.cloud.remove("instance", &id);
    for name in [name, "ip-10-9-9-9.ec2.internal".to_owned(), "node-1".to_owned(), format!("{id}.example.org")] {
        let owner = owner(&world.provider, named(&name)).await.unwrap();
        assert_eq!(owner, Ownership::NoOwner(NoOwner::Unclaimed), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn aws_37_a_hybrid_node_and_one_of_another_region_belong_to_no_instance() {
    let world = World::new().await;
    for id in ["eks-hybrid:///us-east-1/demo/mi-1", "gce://p/z/i-node", "aws:///eu-west-1a/i-0aaaaaaaaaaaaaaaa"] {
        assert_eq!(find(&world.provider, with_id(id)).await.unwrap(), InstanceState::NotMine, "{id}");
        assert_eq!(world.calls(), Vec::<String>::new(), "{id}");
        let owner = owner(&world.provider, with_id(id)).await.unwrap();
        assert!(matches!(owner, Ownership::NoOwner(_)), "{id}: {owner:?}");
        world.cloud.forget_calls();
    }
}

// ---- states

#[tokio::test(start_paused = true)]
async fn aws_36_only_a_stopped_instance_is_shut_down_and_only_a_terminated_one_is_gone() {
    let world = World::new().await;
    let (id, asked) = (instance(&world.nodes[0]), world.nodes[0].provider_id.clone().unwrap().to_string());
    for (state, expected) in [
        ("pending", "running"),
        ("running", "running"),
        ("stopping", "running"),
        ("stopped", "stopped"),
        ("shutting-down", "running"),
        ("terminated", "gone"),
    ] {
        world.cloud.set_state(&id, state);
        let shown = match find(&world.provider, with_id(&asked)).await.unwrap() {
            InstanceState::Running(_) => "running",
            InstanceState::Stopped(_) => "stopped",
            InstanceState::Gone => "gone",
            InstanceState::NotMine => "foreign",
        };
        assert_eq!(shown, expected, "{state}");
    }
}

#[tokio::test(start_paused = true)]
async fn two_instances_of_one_name_are_an_error_that_names_both() {
    let world = World::new().await;
    let name = "ip-10-0-0-4.ec2.internal".to_owned();
    for _ in 0..2 {
        let new = NewInstance { private_dns_name: name.clone(), ..NewInstance::named("twin") };
        world.cloud.add_instance(new.tagged(CLUSTER_TAG, "owned"));
    }
    let error = find(&world.provider, named(&name)).await.unwrap_err().to_string();
    assert!(error.contains(&format!("multiple instances found for name: {name}")), "{error}");
}

// ---- batches

#[tokio::test(start_paused = true)]
async fn aws_28_one_missing_id_in_a_batch_costs_one_more_call_and_the_others_are_answered() {
    let world = World::new().await;
    let ids: Vec<_> = world.nodes.iter().map(|node| node.provider_id.clone().unwrap().to_string()).collect();
    let missing = "aws:///us-east-1a/i-0aaaaaaaaaaaaaaaa";
    let asked = [ids[0].as_str(), missing, ids[1].as_str()].map(with_id);
    let found = world.provider.find(&asked).await;
    assert!(matches!(found[0], Ok(InstanceState::Running(_))) && matches!(found[2], Ok(InstanceState::Running(_))));
    assert_eq!(found[1].clone().unwrap(), InstanceState::Gone);
    assert_eq!(counts(&world.cloud)["DescribeInstances"], 2);
}

#[tokio::test(start_paused = true)]
async fn a_truncated_or_foreign_response_never_means_gone() {
    let world = World::new().await;
    let id = world.nodes[0].provider_id.clone().unwrap().to_string();
    for fault in [
        Fault::Garbled,
        Fault::Empty,
        Fault::Answer(404, "<html>not here</html>".to_owned()),
        Fault::Answer(200, "<Desc".to_owned()),
        ec2_fault(503, "Unavailable", "later"),
    ] {
        world.cloud.inject(FaultSpec::always(fault.clone()));
        assert!(find(&world.provider, with_id(&id)).await.is_err(), "{fault:?}");
        world.cloud.repair_all();
    }
}

/// Adds many instances, and returns how their Nodes are looked up: by ID, or by name.
fn add_many(cloud: &Simulator) -> (Vec<InstanceRef>, Vec<InstanceRef>) {
    let add = |at: usize| {
        let name = format!("ip-10-0-{}-{}.ec2.internal", at / 250, at % 250);
        let new = NewInstance { private_dns_name: name.clone(), ..NewInstance::named("node") };
        let id = cloud.add_instance(new.tagged(CLUSTER_TAG, "owned"));
        (with_id(&format!("aws:///us-east-1a/{id}")), named(&name))
    };
    (0..MANY).map(add).unzip()
}

/// Looks up Nodes with a new provider that caches nothing yet, and returns the number of its calls after the start.
async fn calls_for(cloud: &Simulator, asked: &[InstanceRef]) -> BTreeMap<String, u64> {
    let provider: Arc<dyn CloudProvider> = Arc::new(provider(cloud, &STATIC, ""));
    let clouds = Clouds::with_layers([provider], &LayerOptions::default(), &prometheus::Registry::new());
    clouds.start().await;
    cloud.forget_calls();
    let found = clouds.observe_all(asked, Freshness::Now).await;
    let is_running = |one: &Result<Ownership>| matches!(one, Ok(Ownership::Owned { state: InstanceState::Running(found), .. }) if !found.addresses.is_empty());
    assert_eq!(found.iter().filter(|one| is_running(one)).count(), asked.len());
    counts(cloud)
}

#[tokio::test(start_paused = true)]
async fn a_thousand_nodes_are_initialised_in_the_calls_of_the_guide() {
    let cloud = Simulator::new(Options::default());
    let (ids, names) = add_many(&cloud);
    let rows = [("initialise 1,000 Nodes with provider ID", ids), ("initialise 1,000 Nodes by name", names)];
    for (row, asked) in rows {
        let calls = calls_for(&cloud, &asked).await;
        assert_eq!(calls, crate::calls::of_guide(row), "{row}");
        assert!(calls.values().sum::<u64>() <= 10, "{row}: {calls:?}");
    }
}
