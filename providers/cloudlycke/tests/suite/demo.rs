//! The table of the demonstration, and its quirks (CL-35 to CL-46).

use bowline_cloud::{CloudProvider, Instances};

use crate::host::{by_id, by_name, find, look_up, provider};

const MASTER: &str = "running master-c2-1 cloudlycke://m-c2-1 vbox.vm.512mb.1cpu InternalIP=192.168.20.10 ExternalIP=192.168.20.10 Hostname=master-c2-1";
const NODE: &str = "stopped node-c2-1 cloudlycke://n-c2-1 vbox.vm.1g.2cpu InternalIP=192.168.20.11 ExternalIP=192.168.20.11 Hostname=node-c2-1";

// CL-36, CL-37, CL-40, CL-44, CL-45
#[tokio::test]
async fn the_two_machines_are_known_by_name_and_by_id() {
    let provider = provider("{}");
    for asked in [by_name("master-c2-1"), by_id("cloudlycke://m-c2-1")] {
        assert_eq!(look_up(&provider, &asked).await, MASTER);
    }
    for asked in [by_name("node-c2-1"), by_id("cloudlycke://n-c2-1")] {
        assert_eq!(look_up(&provider, &asked).await, NODE, "this machine is always stopped");
    }
    let state = find(&provider, &by_name("master-c2-1")).await.unwrap();
    let instance = state.instance().unwrap();
    assert_eq!((instance.zone.as_str(), instance.region.as_str()), ("virtualbox", "virtualbox"));
}

// CL-38: an unknown name has a zone, no addresses, no type, and the empty ID.
#[tokio::test]
async fn an_unknown_name_is_initialised_without_addresses() {
    let state = find(&provider("{}"), &by_name("node-c1-1")).await.unwrap();
    let instance = state.instance().unwrap();
    assert_eq!((instance.zone.as_str(), instance.region.as_str()), ("virtualbox", "virtualbox"));
    assert_eq!(crate::host::text(&state), "running node-c1-1 cloudlycke:// ");
}

// CL-39, CL-43: IDs are compared as whole texts. One with a foreign prefix is left alone: the contract demands it.
#[tokio::test]
async fn an_unknown_id_does_not_exist() {
    let provider = provider("{}");
    let unknown = [
        "cloudlycke://x",
        "m-c2-1",
        "cloudlycke://",
        "cloudlycke://M-c2-1",
        "cloudlycke://cloudlycke://m-c2-1",
        "cloudlycke://master-c2-1",
    ];
    for id in unknown {
        assert_eq!(look_up(&provider, &by_id(id)).await, "gone", "{id}");
        assert!(provider.owns(by_id(id).provider_id.as_ref().unwrap()), "{id}");
    }
    let keys = ["m-c2-1", "cloudlycke://m-c2-1"].map(|id| provider.identify(&by_id(id)).unwrap());
    assert_ne!(keys[0], keys[1], "the layers must not combine these lookups");
    assert!(!provider.owns(by_id("aws:///a/i-1").provider_id.as_ref().unwrap()));
}

// CL-46: a Node with the ID of another machine is that machine.
#[tokio::test]
async fn the_id_counts_and_not_the_name() {
    let asked = bowline_core::InstanceRef { node: "node-c2-1".into(), ..by_id("cloudlycke://m-c2-1") };
    assert_eq!(look_up(&provider("{}"), &asked).await, MASTER);
}

// CL-41
#[tokio::test]
async fn there_are_no_load_balancers_and_no_routes() {
    let provider = provider("{}");
    assert!(provider.load_balancers().is_none() && provider.routes().is_none());
    assert!(provider.check().await.is_ok());
    assert_eq!(provider.list(None).await.unwrap().instances.len(), 2);
}

#[tokio::test]
async fn machines_of_the_configuration_are_added_and_replace_those_of_the_table() {
    let provider = provider(
        "instances:\n  node-c2-1: {addresses: [192.168.20.11], memoryMiB: 1024, cpus: 2}\n  node-c2-2: {addresses: [192.168.20.12]}\n",
    );
    let running = NODE.replace("stopped", "running");
    assert_eq!(look_up(&provider, &by_id("cloudlycke://n-c2-1")).await, running);
    assert!(look_up(&provider, &by_name("node-c2-2")).await.starts_with("running node-c2-2 cloudlycke://n-c2-2 "));
    assert_eq!(look_up(&provider, &by_name("master-c2-1")).await, MASTER);
}
