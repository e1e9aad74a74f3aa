//! Nodes whose VM is gone, unknown while a vCenter does not answer, ambiguous, or not ready yet.

use std::time::Duration;

use serde_json::json;

use crate::support::cluster::{UNINITIALISED, taints};
use crate::vsphere::scene::{Scene, add, machine};

/// VS-61, VS-62: a VM could be in each vCenter, so each must have answered.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_deleted_only_if_every_vcenter_answered() {
    let mut scene = Scene::new("vsphere-gone").await;
    scene.node(&scene.one, "node-3", "10.10.1.13").await;
    let mut manager = scene.manager("vsphere-gone");
    let uuid = add(&scene.one, machine("node-4", "10.10.1.14"));
    scene.register_vm("node-4", &uuid).await;
    scene.initialised(&manager, "node-4").await;

    scene.two.close();
    assert!(scene.one.delete_machine("node-3"));
    for name in ["node-2", "node-3"] {
        scene.set_ready(name, "Unknown").await;
    }
    // Nodes of the vCenter that is up are served meanwhile.
    let uuid = add(&scene.one, machine("node-5", "10.10.1.15"));
    scene.register_vm("node-5", &uuid).await;
    scene.initialised(&manager, "node-5").await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    for name in ["node-2", "node-3"] {
        assert!(scene.nodes().get_opt(name).await.unwrap().is_some(), "{name}: {}", manager.output());
    }

    scene.two.open().await;
    scene.node_deleted(&manager, "node-3").await;
    assert!(scene.nodes().get_opt("node-2").await.unwrap().is_some(), "its VM exists");
    scene.stop(&mut manager);
}

/// VS-68: Nodes of other clouds and of bare metal stay, whatever their state is.
#[tokio::test(flavor = "multi_thread")]
async fn foreign_nodes_are_left_alone() {
    let scene = Scene::new("vsphere-foreign").await;
    let uuid = "4222f3a0-0000-4000-8000-00000000dead";
    let ids = [("ec2", "aws:///us-east-1a/i-0123456789abcdef0".to_owned()), ("metal", format!("metal://{uuid}"))];
    for (name, id) in &ids {
        let unready = json!({"conditions": [{"type": "Ready", "status": "Unknown"}]});
        scene.create_node(json!({"metadata": {"name": name}, "spec": {"providerID": id}, "status": unready})).await;
    }
    scene.node(&scene.two, "node-3", "10.10.1.13").await;
    let mut manager = scene.manager("vsphere-foreign");
    assert!(scene.two.delete_machine("node-3"));
    scene.set_ready("node-3", "Unknown").await;
    scene.node_deleted(&manager, "node-3").await;
    for (name, _) in &ids {
        assert!(scene.nodes().get_opt(name).await.unwrap().is_some(), "{name}");
    }
    scene.stop(&mut manager);
}

/// VS-72: the Node waits for VMware Tools, with the reason in an Event.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_waits_until_vmware_tools_report_an_address() {
    let scene = Scene::without_nodes("tools").await;
    let ready = machine("node-1", "10.10.1.11");
    let mut starting = ready.clone();
    starting.host_name.clear();
    starting.nics.clear();
    let uuid = add(&scene.one, starting);
    scene.register_vm("node-1", &uuid).await;
    let mut manager = scene.manager_with("tools", &["--node-labels=example.com/rack=r1"]);
    let words = ["hostname is empty", "VMware Tools must run"];
    scene.warned(&manager, "node-1", "CloudUnavailable", &words).await;
    assert!(taints(&scene.nodes().get("node-1").await.unwrap()).contains(&UNINITIALISED.to_owned()));
    assert!(scene.one.change_machine("node-1", |vm| {
        vm.host_name = ready.host_name.clone();
        vm.nics = ready.nics.clone();
    }));
    scene.initialised(&manager, "node-1").await;
    let labels = scene.nodes().get("node-1").await.unwrap().metadata.labels.unwrap();
    assert_eq!(labels.get("example.com/rack").map(String::as_str), Some("r1"), "VS-73");
    scene.stop(&mut manager);
}

/// VS-52: a clone with the same UUID in another vCenter is an error that names both, and no Node is deleted.
#[tokio::test(flavor = "multi_thread")]
async fn two_machines_with_one_uuid_are_reported_and_kept() {
    let scene = Scene::without_nodes("twins").await;
    let uuid = add(&scene.one, machine("node-1", "10.10.1.11"));
    let mut clone = machine("clone-of-node-1", "10.10.1.99");
    clone.uuid = uuid.clone();
    add(&scene.two, clone);
    scene.register_vm("node-1", &uuid).await;
    let mut manager = scene.manager("twins");
    let words = ["Multiple VMs found", "node-1", "clone-of-node-1"];
    scene.warned(&manager, "node-1", "CloudUnavailable", &words).await;
    scene.set_ready("node-1", "Unknown").await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(scene.nodes().get_opt("node-1").await.unwrap().is_some());
    assert!(scene.two.delete_machine("clone-of-node-1"));
    scene.initialised(&manager, "node-1").await;
    scene.stop(&mut manager);
}
