//! The life of a cluster, from its first Node to its last Service.

use k8s_openapi::api::core::v1::Node;
use serde_json::json;

use crate::support::Program;
use crate::support::cluster::taints;
use crate::vsphere::scene::{Scene, add, machine};

/// Checks everything that initialisation writes.
async fn check_node(scene: &Scene, node: &Node, (uuid, address, region): (&str, &str, &str)) {
    let name = node.metadata.name.clone().unwrap();
    assert_eq!(node.spec.as_ref().unwrap().provider_id, Some(format!("vsphere://{uuid}")), "VS-49");
    let expected = [("Hostname", name.as_str()), ("InternalIP", address), ("ExternalIP", address)];
    assert_eq!(scene.node_addresses(&name).await, expected.map(|(kind, text)| (kind.to_owned(), text.to_owned())));
    let labels = node.metadata.labels.as_ref().unwrap();
    for (label, value) in [
        ("node.kubernetes.io/instance-type", "vsphere-vm.cpu-2.mem-4gb.os-ubuntu"),
        ("beta.kubernetes.io/instance-type", "vsphere-vm.cpu-2.mem-4gb.os-ubuntu"),
        ("topology.kubernetes.io/region", region),
        ("failure-domain.beta.kubernetes.io/region", region),
        ("topology.kubernetes.io/zone", "zone-DC0_C0"),
        ("failure-domain.beta.kubernetes.io/zone", "zone-DC0_C0"),
    ] {
        assert_eq!(labels.get(label).map(String::as_str), Some(value), "{label}: {labels:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_from_its_first_node_to_its_last_service() {
    let scene = Scene::without_nodes("vsphere").await;
    let uuids = [add(&scene.one, machine("node-1", "10.10.1.11")), add(&scene.two, machine("node-2", "10.10.1.12"))];
    for (name, uuid) in ["node-1", "node-2"].into_iter().zip(&uuids) {
        scene.register_vm(name, uuid).await;
    }
    let mut manager = scene.manager("vsphere");
    let [one, two] = &uuids;
    check_node(&scene, &scene.initialised(&manager, "node-1").await, (one, "10.10.1.11", "region-1")).await;
    check_node(&scene, &scene.initialised(&manager, "node-2").await, (two, "10.10.1.12", "region-2")).await;

    scene.create("web").await;
    assert_eq!(scene.address(&manager, "web").await, "203.0.113.10", "the first address of the pool");
    has_members(&scene, &manager, &["10.10.1.11", "10.10.1.12"]).await;
    joins(&scene, &manager).await;
    stops_and_is_deleted(&scene, &manager).await;

    scene.delete(&manager, "web").await;
    assert_eq!(scene.nsx_objects(), Vec::<String>::new());
    assert_eq!(scene.warnings("web").await, []);
    scene.stop(&mut manager);
}

/// Waits until the pool has exactly these members.
async fn has_members(scene: &Scene, manager: &Program, expected: &[&str]) {
    let has_them = || async { (scene.members() == expected).then_some(()) };
    scene.eventually(manager, &format!("members {expected:?}"), has_them).await;
}

/// A Node joins the pool with a single write.
async fn joins(scene: &Scene, manager: &Program) {
    let uuid = add(&scene.two, machine("node-3", "10.10.1.13"));
    scene.nsx.forget_calls();
    scene.register_vm("node-3", &uuid).await;
    scene.initialised(manager, "node-3").await;
    has_members(scene, manager, &["10.10.1.11", "10.10.1.12", "10.10.1.13"]).await;
    let writes: Vec<_> = scene.nsx.writes().into_iter().map(|entry| entry.template).collect();
    assert_eq!(writes.len(), 1, "{writes:?}");
}

/// A VM is powered off, which taints its Node, and deleted, which deletes the Node.
async fn stops_and_is_deleted(scene: &Scene, manager: &Program) {
    assert!(scene.two.change_machine("node-3", |vm| {
        vm.power = "poweredOff".to_owned();
        vm.host_name.clear();
        vm.nics.clear();
    }));
    scene.set_ready("node-3", "False").await;
    let shut_down = || async {
        let taints = taints(&scene.nodes().get("node-3").await.unwrap());
        taints.contains(&"node.cloudprovider.kubernetes.io/shutdown".to_owned()).then_some(())
    };
    // VS-63: VMware Tools report nothing while the VM is off.
    scene.eventually(manager, "the shutdown taint", shut_down).await;
    assert!(scene.two.delete_machine("node-3"));
    scene.node_deleted(manager, "node-3").await;
    has_members(scene, manager, &["10.10.1.11", "10.10.1.12"]).await;
}

/// VS-124: another manager with the same cluster name takes over without a write.
#[tokio::test(flavor = "multi_thread")]
async fn a_restart_and_a_moved_port_keep_the_address() {
    let scene = Scene::new("restart").await;
    let mut manager = scene.manager("restart");
    scene.create("web").await;
    let address = scene.address(&manager, "web").await;
    scene.stop(&mut manager);

    scene.nsx.forget_calls();
    let mut manager = scene.manager("restart");
    let listed = || async { scene.nsx.counts().keys().any(|call| call.contains("lb-pools")).then_some(()) };
    scene.eventually(&manager, "lists of NSX", listed).await;
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    assert_eq!(scene.nsx.writes(), [], "VS-106");

    // VS-108
    scene.patch("web", json!({"spec": {"ports": [{"port": 8080}]}})).await;
    let moved = || async {
        (scene.nsx.objects("lb-virtual-servers").iter().all(|one| one["ports"] == json!(["8080"]))).then_some(())
    };
    scene.eventually(&manager, "the new port", moved).await;
    assert_eq!(scene.address(&manager, "web").await, address);
    scene.delete(&manager, "web").await;
    assert_eq!(scene.nsx_objects(), Vec::<String>::new());
    scene.stop(&mut manager);
}
