//! Nodes from their registration to the deletion of their VMs.

use serde_json::json;

use crate::scene::{Scene, addresses, label, provider_id};
use crate::vcsim::text;

#[tokio::test(flavor = "multi_thread")]
async fn nodes_of_the_inventory_get_addresses_types_and_zones() {
    let Some(scene) = Scene::start("vcsim-inventory").await else { return };
    let manager = scene.manager("vcsim-inventory", "vsphere.yaml");
    let machines = scene.first.machines().await;
    // By the UUID of the firmware, whatever the Node is called; the second one by its name.
    for (node, vm) in [("one", "DC0_C0_RP0_VM0"), ("three", "DC0_C1_RP0_VM0"), ("five", "DC1_C0_RP0_VM0")] {
        scene.register_vm(node, &machines[vm]).await;
    }
    scene.register("node-7").await;
    for (name, vm, address, kind, zone, region) in [
        ("one", "DC0_C0_RP0_VM0", "10.10.1.11", "vsphere-vm.cpu-2.mem-2gb.os-ubuntu", "zone-a", "region-1"),
        ("three", "DC0_C1_RP0_VM0", "10.10.1.33", "vsphere-vm.cpu-1.mem-1gb.os-linux", "zone-b", "region-1"),
        ("five", "DC1_C0_RP0_VM0", "10.10.2.15", "vsphere-vm.cpu-2.mem-2gb.os-photon", "zone-c", "region-2"),
        ("node-7", "DC1_C1_RP0_VM0", "10.10.2.17", "vsphere-vm.cpu-1.mem-0gb.os-other", "zone-d", "region-2"),
    ] {
        let node = scene.initialised(&manager, name).await;
        assert_eq!(provider_id(&node), format!("vsphere://{}", text(&machines[vm]["uuid"])));
        let seen = addresses(&node);
        for expected in ["InternalIP", "ExternalIP"] {
            assert!(seen.contains(&(expected.to_owned(), address.to_owned())), "{name}: {seen:?}");
        }
        let labels =
            ["node.kubernetes.io/instance-type", "topology.kubernetes.io/zone", "topology.kubernetes.io/region"];
        assert_eq!(labels.map(|key| label(&node, key)), [kind, zone, region], "{name}");
    }
    let sessions = scene.first.sessions().await;
    assert_eq!(sessions["logins"], 1, "all lookups share one session");
    scene.end(manager).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_follows_its_vm_until_it_is_deleted() {
    let Some(scene) = Scene::start("vcsim-life").await else { return };
    let manager = scene.manager("vcsim-life", "vsphere.conf");
    let vm = scene.machine(&manager, "worker", 1).await;
    let name = text(&vm["name"]);
    // VMware Tools have stopped with the operating system (VS-63).
    scene.first.put_machine(&name, &json!({"power": "poweredOff", "hostName": "-", "nics": []})).await;
    scene.set_ready("worker", "Unknown").await;
    scene.shut_down(&manager, "worker", true).await;
    let back = json!({"power": "poweredOn", "hostName": "worker", "nics": [{"network": "n", "ips": ["10.10.9.1"]}]});
    scene.first.put_machine(&name, &back).await;
    scene.set_ready("worker", "True").await;
    scene.shut_down(&manager, "worker", false).await;

    scene.first.delete_machine(&name).await;
    scene.set_ready("worker", "Unknown").await;
    scene.node_deleted(&manager, "worker").await;
    scene.end(manager).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_zone_waits_until_its_vm_has_one() {
    let Some(scene) = Scene::start("vcsim-zones").await else { return };
    let manager = scene.manager("vcsim-zones", "vsphere.yaml");
    let machines = scene.second.machines().await;
    scene.register_vm("eight", &machines["DC0_C0_RP0_VM0"]).await;
    // The category has a tag, but no object above the VM has it (VS-92).
    scene.logged(&manager, "vSphere region category k8s-region does not match any tags for mo: VirtualMachine:").await;
    let node = scene.nodes().get("eight").await.unwrap();
    assert_eq!(provider_id(&node), "", "it is not initialised");
    scene.end(manager).await;
}
