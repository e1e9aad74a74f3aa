//! Targets of load balancers: Nodes without a usable provider ID, labels of Nodes, and cached instances.

use std::collections::BTreeMap;
use std::time::Duration;

use bowline_aws_simulator::parameters;
use bowline_cloud::{ErrorKind, LoadBalancers};
use bowline_core::TargetNode;
use bowline_core::annotations::LoadBalancerSettings;

use crate::world::{NLB, World, instance, node, target, web};

/// Instances of the only load balancer, sorted.
fn targets(world: &World) -> Vec<String> {
    let classic =
        world.cloud.classic_load_balancers().into_iter().flat_map(|one| list(&one["Instances"], "InstanceId"));
    let network = world.cloud.target_groups().into_iter().flat_map(|one| list(&one["_targets"], "Id"));
    let mut ids: Vec<_> = classic.chain(network).collect();
    ids.sort();
    ids
}

fn list(items: &serde_json::Value, field: &str) -> Vec<String> {
    items.as_array().unwrap().iter().map(|item| item[field].as_str().unwrap().to_owned()).collect()
}

fn instances(nodes: &[TargetNode]) -> Vec<String> {
    let mut ids: Vec<_> = nodes.iter().map(instance).collect();
    ids.sort();
    ids
}

#[tokio::test(start_paused = true)]
async fn aws_1_and_2_only_nodes_without_a_usable_id_are_left_out_until_they_have_one() {
    for kind in [None, Some(NLB)] {
        let world = World::new().await;
        let annotations: Vec<_> = kind.into_iter().collect();
        let mut service = world.kept(web(&annotations));
        let complete = node(&world.cloud, "node-3");
        for id in ["aws:///us-east-1a/vol-1", "eks-hybrid:///us-east-1/demo/mi-1", "aws:///", "kwok://node-0"] {
            service.nodes.push(target("odd", id));
        }
        service.nodes.push(TargetNode { provider_id: None, ..complete.clone() });
        world.synced(&mut service).await;
        assert_eq!(targets(&world), instances(&world.nodes), "{kind:?}");
        service.nodes.pop();
        service.nodes.push(complete.clone());
        world.cloud.forget_calls();
        world.synced(&mut service).await;
        assert_eq!(targets(&world), instances(&[&world.nodes[..], &[complete]].concat()));
        assert_eq!(world.writes().len(), 1, "one write");
    }
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_does_not_exist_is_left_out() {
    for kind in [None, Some(NLB)] {
        let world = World::new().await;
        let annotations: Vec<_> = kind.into_iter().collect();
        let mut service = world.kept(web(&annotations));
        service.nodes.push(target("gone", "aws:///us-east-1a/i-0aaaaaaaaaaaaaaaa"));
        service.nodes.push(target("kwok", "aws:///us-east-1a/i-kwok"));
        world.synced(&mut service).await;
        assert_eq!(targets(&world), instances(&world.nodes), "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn aws_24_and_25_labels_select_nodes_by_key_or_value() {
    let world = World::new().await;
    let labels: BTreeMap<_, _> = [("k1", "v1"), ("k2", "other")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    for (text, expected, case) in [
        ("k1=v1,k2", Some(true), "AWS-24"),
        ("k3=v3", Some(false), "AWS-25"),
        ("k1=v2", Some(false), "another value"),
        ("k1=v1,k3", Some(false), "all must match"),
        (" k1 = v1 , ", Some(true), "blanks"),
        ("", None, "no filter"),
        ("=v1,", None, "no filter without a key"),
    ] {
        let annotations = web(&[("target-node-labels", text)]).annotations;
        let settings = LoadBalancers::settings(&world.provider, &annotations, LoadBalancerSettings::default()).unwrap();
        assert_eq!(settings.target_nodes.map(|selector| selector.matches(&labels)), expected, "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn aws_29_only_missing_instances_are_read_and_all_after_ten_minutes() {
    let world = World::new().await;
    let mut service = world.create(&[]).await;
    let read = |world: &World| {
        let calls = world.cloud.journal().into_iter().filter(|entry| entry.template == "ec2 DescribeInstances");
        let ids = |entry| parameters(&entry).into_iter().filter(|(name, _)| name.starts_with("InstanceId."));
        let read: Vec<Vec<String>> = calls.map(|entry| ids(entry).map(|(_, id)| id).collect()).collect();
        world.cloud.forget_calls();
        read
    };
    world.synced(&mut service).await;
    assert_eq!(read(&world), Vec::<Vec<String>>::new(), "they are cached");
    let added = node(&world.cloud, "node-3");
    service.nodes.push(added.clone());
    world.synced(&mut service).await;
    assert_eq!(read(&world), [vec![instance(&added)]]);
    tokio::time::sleep(Duration::from_secs(601)).await;
    world.synced(&mut service).await;
    assert_eq!(read(&world), [instances(&service.nodes)], "once");
}

#[tokio::test(start_paused = true)]
async fn a_cached_instance_that_was_terminated_delays_the_others_by_one_attempt() {
    for (kind, code) in [(None, "InvalidInstance"), (Some(NLB), "InvalidTarget")] {
        let world = World::new().await;
        let annotations: Vec<_> = kind.into_iter().collect();
        world.create(&annotations).await;
        let mut service = world.kept(crate::world::other(&annotations));
        world.cloud.terminate(&instance(&world.nodes[0]));
        world.cloud.remove("instance", &instance(&world.nodes[0]));
        let error = world.sync(&mut service).await.unwrap_err();
        assert_eq!((error.code(), error.kind()), (Some(code), ErrorKind::NotFound), "{error}");
        world.synced(&mut service).await;
    }
}
