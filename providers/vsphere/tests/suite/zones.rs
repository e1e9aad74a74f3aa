//! Zones and regions from tags.

use std::time::Duration;

use bowline_cloud::{ErrorKind, Instances as _, KnownState};
use bowline_core::InstanceState;
use bowline_vsphere_simulator::vcenter::Machine;
use bowline_vsphere_simulator::{Fault, FaultSpec};
use http::Method;
use tokio::time::{Instant, sleep};

use crate::world::{World, by_id};

const LABELS: &str = "[Labels]\nregion = k8s-region\nzone = k8s-zone\n";

/// Attaches tags, each `KIND NAME REGION-OR-ZONE TAG`.
fn tag(world: &World, tags: &[(&str, &str, &str, &str)]) {
    for (kind, name, category, tag) in tags {
        let object = world.vcenter().find(kind, name).unwrap();
        world.vcenter().tag(&format!("k8s-{category}"), tag, &object);
    }
}

async fn placement(world: &World) -> (String, String) {
    let found = world.found(&world.id_of("node-1")).await;
    (found.zone.clone(), found.region.clone())
}

fn zone_and_region(zone: &str, region: &str) -> (String, String) {
    (zone.to_owned(), region.to_owned())
}

#[tokio::test]
async fn vs_89_and_91_tags_are_found_on_any_ancestor_and_the_nearest_one_counts() {
    let world = World::with(LABELS);
    tag(&world, &[("Datacenter", "DC0", "region", "r1"), ("ClusterComputeResource", "DC0_C0", "zone", "z1")]);
    assert_eq!(placement(&world).await, zone_and_region("z1", "r1"));
    tag(&world, &[("HostSystem", "DC0_C0_H0", "zone", "near")]);
    assert_eq!(placement(&world).await, zone_and_region("near", "r1"));
    tag(&world, &[("ClusterComputeResource", "DC0_C0", "region", "near")]);
    assert_eq!(placement(&world).await, zone_and_region("near", "near"));
}

#[tokio::test]
async fn vs_90_the_resource_pool_and_then_the_folder_decide_if_the_host_has_no_tags() {
    let world = World::with(LABELS);
    let folder = world.vcenter().find("Folder", "nodes").unwrap();
    world.vcenter().change_machine("node-1", |machine| machine.folder = Some(folder.id.clone()));
    tag(&world, &[("Folder", "nodes", "zone", "folder"), ("Folder", "nodes", "region", "folder")]);
    assert_eq!(placement(&world).await, zone_and_region("folder", "folder"));
    let pool = world.vcenter().find("ResourcePool", "workers").unwrap();
    world.vcenter().change_machine("node-1", |machine| machine.pool = Some(pool.id.clone()));
    tag(&world, &[("ResourcePool", "workers", "zone", "pool"), ("ResourcePool", "workers", "region", "pool")]);
    assert_eq!(placement(&world).await, zone_and_region("pool", "pool"));
}

#[tokio::test]
async fn vs_90_both_tags_come_from_one_chain() {
    let world = World::with(LABELS);
    // The host has a zone and no region; the folder has both.
    let folder = world.vcenter().find("Folder", "nodes").unwrap();
    world.vcenter().change_machine("node-1", |machine| machine.folder = Some(folder.id.clone()));
    tag(&world, &[("HostSystem", "DC0_C0_H0", "zone", "host")]);
    tag(&world, &[("Folder", "nodes", "zone", "folder"), ("Folder", "nodes", "region", "folder")]);
    assert_eq!(placement(&world).await, zone_and_region("folder", "folder"));
}

#[tokio::test]
async fn vs_92_a_missing_tag_is_an_error_that_names_its_category() {
    let world = World::with(LABELS);
    let node_1 = world.id_of("node-1");
    let vm = world.vcenter().find("VirtualMachine", "node-1").unwrap();
    let error = world.error(&node_1).await;
    let text = format!("vSphere region category k8s-region does not match any tags for mo: VirtualMachine:{}", vm.id);
    assert_eq!((error.message(), error.known_state()), (text.as_str(), Some(KnownState::Running)));
    tag(&world, &[("Datacenter", "DC0", "region", "r1")]);
    let text = format!("vSphere zone category k8s-zone does not match any tags for mo: VirtualMachine:{}", vm.id);
    assert_eq!(world.error(&node_1).await.message(), text);
    let datacenter = world.vcenter().find("Datacenter", "DC0").unwrap();
    world.vcenter().tag("K8s-Zone", "z1", &datacenter);
    assert_eq!(world.error(&node_1).await.message(), text, "VS-88: the case of the category counts");
}

#[tokio::test]
async fn vs_88_without_both_categories_nothing_is_looked_up() {
    for config in ["", "[Labels]\nregion = k8s-region\n"] {
        let world = World::with(config);
        tag(&world, &[("Datacenter", "DC0", "region", "r1")]);
        assert_eq!(placement(&world).await, zone_and_region("", ""));
        assert!(world.vcenter().counts().keys().all(|call| !call.contains("tag")), "{:?}", world.vcenter().counts());
    }
}

#[tokio::test]
async fn the_host_must_be_readable_even_if_only_folders_have_tags() {
    let world = World::with(LABELS);
    tag(&world, &[("Datacenter", "DC0", "region", "r1"), ("Datacenter", "DC0", "zone", "z1")]);
    let host = world.vcenter().find("HostSystem", "DC0_C0_H0").unwrap();
    world.vcenter().hide(&host, true);
    let error = world.error(&world.id_of("node-1")).await;
    assert_eq!(
        (error.kind(), error.known_state()),
        (ErrorKind::PermissionDenied, Some(KnownState::Running)),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn vs_94_tags_are_listed_in_one_call_and_their_names_are_read_once_in_five_minutes() {
    let world = World::with(LABELS);
    tag(&world, &[("Datacenter", "DC0", "region", "r1"), ("ClusterComputeResource", "DC0_C0", "zone", "z1")]);
    let calls = async || {
        world.vcenter().forget_calls();
        placement(&world).await;
        let counts = world.vcenter().counts().into_iter().filter(|(call, _)| call.contains("tagging"));
        counts.map(|(_, count)| count).collect::<Vec<_>>()
    };
    assert_eq!(calls().await, [2, 2, 1], "categories, tags, attached tags");
    assert_eq!(calls().await, [1]);
    tokio::time::sleep(Duration::from_secs(301)).await;
    assert_eq!(calls().await, [2, 2, 1]);
    assert_eq!(world.vcenter().sessions().1, 1, "one REST session");
}

#[tokio::test]
async fn without_the_batch_form_tags_are_listed_object_by_object() {
    let world = World::with(LABELS);
    tag(&world, &[("Datacenter", "DC0", "region", "r1"), ("ClusterComputeResource", "DC0_C0", "zone", "z1")]);
    let unknown = Fault::Answer(404, "404 page not found".to_owned());
    world.vcenter().inject(FaultSpec::always(unknown).on(Method::POST, BATCH));
    for _ in 0..2 {
        assert_eq!(placement(&world).await, zone_and_region("z1", "r1"));
    }
    assert_eq!(world.vcenter().counts()[&format!("POST {BATCH}")], 1, "the batch form is tried once");
}

const BATCH: &str = "tagging/tag-association/list-attached-tags-on-objects";
const ONE: &str = "tagging/tag-association/list-attached-tags";

#[tokio::test]
async fn vs_93_a_failure_of_the_tagging_service_says_that_the_machine_exists() {
    let world = World::with(LABELS);
    world.vcenter().inject(FaultSpec::always(Fault::Answer(503, "busy".to_owned())).of("rest"));
    let error = world.error(&world.id_of("node-1")).await;
    assert_eq!((error.kind(), error.known_state()), (ErrorKind::Unavailable, Some(KnownState::Running)), "{error}");
}

#[tokio::test]
async fn a_tag_that_cannot_be_read_is_an_error_and_read_once_for_all_machines() {
    let world = World::with(LABELS);
    tag(&world, &[("Datacenter", "DC0", "region", "r1"), ("ClusterComputeResource", "DC0_C0", "zone", "z1")]);
    let broken = Fault::Answer(500, "{}".to_owned());
    world.vcenter().inject(FaultSpec::always(broken).on(Method::GET, "tagging/tag/{id}"));
    let (one, two) = (world.id_of("node-1"), world.id_of("node-2"));
    let results = bowline_cloud::Instances::find(&world.provider, &[one, two]).await;
    assert!(results.iter().all(Result::is_err));
    let reads = world.vcenter().counts()["GET tagging/tag/{id}"];
    assert!(reads <= 2, "{reads} reads of two tags");
}

#[tokio::test(start_paused = true)]
async fn a_tagging_service_that_hangs_does_not_affect_reads_of_machines() {
    let world = World::with(LABELS);
    let (node_1, missing) = (world.id_of("node-1"), by_id("vsphere://00000000-0000-0000-0000-0000000000ff"));
    world.vcenter().inject(FaultSpec::always(Fault::Hanging).of("rest"));
    for _ in 0..3 {
        let error = world.error(&node_1).await;
        assert_eq!((error.kind(), error.known_state()), (ErrorKind::Unavailable, Some(KnownState::Running)), "{error}");
        assert_eq!(world.find(&missing).await.unwrap(), InstanceState::Gone);
    }
}

#[tokio::test]
async fn vs_93_an_object_whose_tags_cannot_be_listed_ends_its_chain() {
    let world = World::with(LABELS);
    let folder = world.vcenter().find("Folder", "nodes").unwrap();
    world.vcenter().change_machine("node-1", |machine| machine.folder = Some(folder.id.clone()));
    for category in ["zone", "region"] {
        tag(&world, &[("Datacenter", "DC0", category, "far"), ("Folder", "nodes", category, "folder")]);
    }
    let denied =
        || FaultSpec::always(Fault::Answer(403, r#"{"type":"com.vmware.vapi.std.errors.unauthorized"}"#.to_owned()));
    world.vcenter().inject(denied().on(Method::POST, BATCH));
    assert_eq!(placement(&world).await, zone_and_region("far", "far"), "object by object");
    // The first object is the cluster, which is in the chains of the host and of the resource pool.
    world.vcenter().inject(denied().on(Method::POST, ONE).times(1));
    assert_eq!(placement(&world).await, zone_and_region("folder", "folder"));
    world.vcenter().inject(denied().on(Method::POST, ONE));
    let error = world.error(&world.id_of("node-1")).await;
    assert_eq!(
        (error.kind(), error.known_state()),
        (ErrorKind::PermissionDenied, Some(KnownState::Running)),
        "{error}"
    );
}

#[tokio::test]
async fn an_object_that_could_not_be_read_is_not_asked_for() {
    let world = World::with(LABELS);
    tag(&world, &[("Datacenter", "DC0", "region", "r1"), ("Datacenter", "DC0", "zone", "z1")]);
    let pool = world.vcenter().find("ResourcePool", "workers").unwrap();
    world.vcenter().change_machine("node-1", |machine| machine.pool = Some(pool.id.clone()));
    world.vcenter().hide(&pool, true);
    world.vcenter().forget_calls();
    assert_eq!(placement(&world).await, zone_and_region("z1", "r1"));
    let counts = world.vcenter().counts();
    assert_eq!((counts[&format!("POST {BATCH}")], counts.get(&format!("POST {ONE}"))), (1, None), "{counts:?}");
}

#[tokio::test(start_paused = true)]
async fn an_object_that_makes_the_batch_fail_is_left_out_for_five_minutes() {
    let world = World::with(LABELS);
    let folder = world.vcenter().find("Folder", "nodes").unwrap();
    world.vcenter().change_machine("node-1", |machine| machine.folder = Some(folder.id.clone()));
    for category in ["zone", "region"] {
        tag(&world, &[("Datacenter", "DC0", category, "far"), ("Folder", "nodes", category, "folder")]);
    }
    let denied = || {
        let answer = Fault::Answer(403, r#"{"type":"com.vmware.vapi.std.errors.unauthorized"}"#.to_owned());
        FaultSpec::always(answer).times(1)
    };
    // The first object is the cluster.
    world.vcenter().inject(denied().on(Method::POST, BATCH));
    world.vcenter().inject(denied().on(Method::POST, ONE));
    assert_eq!(placement(&world).await, zone_and_region("folder", "folder"));
    world.vcenter().forget_calls();
    assert_eq!(placement(&world).await, zone_and_region("folder", "folder"));
    let counts = world.vcenter().counts();
    assert_eq!((counts[&format!("POST {BATCH}")], counts.get(&format!("POST {ONE}"))), (1, None), "{counts:?}");
    sleep(Duration::from_secs(301)).await;
    assert_eq!(placement(&world).await, zone_and_region("far", "far"));
}

/// Number of calls of the tagging service since they were last forgotten.
fn tagging_calls(world: &World) -> u64 {
    world.vcenter().counts().iter().filter(|(call, _)| call.contains("tagging")).map(|(_, count)| count).sum()
}

#[tokio::test(start_paused = true)]
async fn vs_94_tags_of_other_categories_are_not_read_one_by_one() {
    let world = World::with(LABELS);
    tag(&world, &[("Folder", "nodes", "zone", "z1"), ("Folder", "nodes", "region", "r1")]);
    let folder = world.vcenter().find("Folder", "nodes").unwrap();
    let mut nodes = Vec::new();
    for number in 0..300 {
        let (name, uuid) = (format!("worker-{number}"), format!("00000000-0000-0000-0000-{number:012}"));
        let machine =
            Machine { uuid: uuid.clone(), folder: Some(folder.id.clone()), ..Machine::named(&name, "10.20.0.1") };
        let machine = world.vcenter().add_machine(machine).unwrap();
        world.vcenter().tag("backup", &name, &machine);
        nodes.push(by_id(&format!("vsphere://{uuid}")));
    }
    let calls = async || {
        world.vcenter().forget_calls();
        for state in world.provider.find(&nodes).await {
            assert_eq!(state.unwrap().instance().unwrap().zone, "z1");
        }
        tagging_calls(&world)
    };
    // Attached tags, list of categories, three categories, tags of two of them, two tags.
    assert_eq!(calls().await, 9);
    assert_eq!(calls().await, 1);
    sleep(Duration::from_secs(301)).await;
    assert_eq!(calls().await, 9);
    // A new tag is not in the cache, and used at once.
    tag(&world, &[("HostSystem", "DC0_C0_H0", "zone", "new"), ("HostSystem", "DC0_C0_H0", "region", "new")]);
    assert_eq!(world.found(&nodes[0]).await.zone, "new");
}

#[tokio::test(start_paused = true)]
async fn names_of_tags_are_used_for_longer_while_they_cannot_be_read() {
    let world = World::with(LABELS);
    tag(&world, &[("Datacenter", "DC0", "region", "r1"), ("ClusterComputeResource", "DC0_C0", "zone", "z1")]);
    assert_eq!(placement(&world).await, zone_and_region("z1", "r1"));
    sleep(Duration::from_secs(301)).await;
    for call in ["tagging/tag/{id}", "tagging/category/{id}"] {
        world.vcenter().inject(FaultSpec::always(Fault::Answer(503, "busy".to_owned())).on(Method::GET, call));
    }
    for _ in 0..10 {
        assert_eq!(placement(&world).await, zone_and_region("z1", "r1"));
        sleep(Duration::from_secs(60)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn vs_40_a_tagging_service_that_hangs_delays_machines_of_other_vcenters_by_five_seconds_at_most() {
    let world = World::of(2, LABELS);
    for vcenter in &world.vcenters {
        let datacenter = vcenter.find("Datacenter", "DC0").unwrap();
        for category in ["k8s-zone", "k8s-region"] {
            vcenter.tag(category, "here", &datacenter);
        }
    }
    let nodes = [world.id_of("node-1"), world.id_of("node-3")];
    world.vcenters[1].inject(FaultSpec::always(Fault::Hanging).of("rest"));
    for limit in [5, 5, 5, 5, 0] {
        let begun = Instant::now();
        let states = world.provider.find(&nodes).await;
        assert!(begun.elapsed() <= Duration::from_secs(limit), "{:?}", begun.elapsed());
        assert_eq!(states[0].as_ref().unwrap().instance().unwrap().zone, "here");
        let error = states[1].as_ref().unwrap_err();
        assert_eq!((error.kind(), error.known_state()), (ErrorKind::Unavailable, Some(KnownState::Running)), "{error}");
        assert_eq!(error.context_value("vcenter"), Some("vc-2"), "{error}");
    }
}
