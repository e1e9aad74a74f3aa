//! Several vCenters: each fails on its own.

use std::time::Duration;

use bowline_cloud::{CloudProvider as _, ErrorKind, Instances as _};
use bowline_core::InstanceState;
use bowline_vsphere_simulator::vcenter::{Machine, soap_fault};
use bowline_vsphere_simulator::{Fault, FaultSpec};
use http::Method;
use tokio::time::{Instant, advance, sleep};

use crate::world::{UUID, World, by_id, by_name, by_uuid, provider};

#[tokio::test]
async fn machines_are_found_in_all_vcenters() {
    let world = World::of(3, "");
    let refs = [world.id_of("node-1"), by_name("node-3"), world.id_of("node-3"), by_name("node-2")];
    for result in world.provider.find(&refs).await {
        assert!(matches!(result.unwrap(), InstanceState::Running(_)));
    }
    world.vcenters[1].delete_machine("node-3");
    assert_eq!(world.find(&refs[2]).await.unwrap(), InstanceState::Gone);
}

#[tokio::test(start_paused = true)]
async fn vs_40_a_vcenter_that_hangs_delays_nodes_of_others_by_a_second_at_most() {
    let world = World::of(2, "");
    let node_1 = world.id_of("node-1");
    world.vcenters[1].inject(FaultSpec::always(Fault::Hanging));
    for _ in 0..3 {
        let begun = Instant::now();
        world.found(&node_1).await;
        assert!(begun.elapsed() <= Duration::from_secs(1), "{:?}", begun.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn vs_62_a_node_that_is_nowhere_else_is_an_error_while_a_vcenter_hangs() {
    let world = World::of(2, "");
    let (node_3, missing) = (world.id_of("node-3"), by_id("vsphere://00000000-0000-0000-0000-0000000000ff"));
    world.vcenters[1].inject(FaultSpec::always(Fault::Hanging));
    for node in [&node_3, &missing, &by_name("node-3")] {
        let error = world.error(node).await;
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert_eq!(error.context_value("vcenter"), Some("vc-2"), "{error}");
    }
    world.vcenters[1].repair_all();
    sleep(Duration::from_secs(61)).await;
    world.found(&node_3).await;
    assert_eq!(world.find(&missing).await.unwrap(), InstanceState::Gone);
}

#[tokio::test(start_paused = true)]
async fn vs_40_a_vcenter_that_hangs_is_left_alone_for_a_while() {
    let world = World::of(2, "");
    let refs = [world.id_of("node-1"), world.id_of("node-3")];
    world.provider.find(&refs).await;
    world.vcenters[1].inject(FaultSpec::always(Fault::Hanging));
    let find = async || {
        let begun = Instant::now();
        let results = world.provider.find(&refs).await;
        assert!(results[0].is_ok() && results[1].is_err());
        begun.elapsed()
    };
    assert_eq!(find().await, Duration::from_secs(20), "the time limit, once");
    let calls = world.vcenters[1].calls();
    assert_eq!(find().await, Duration::ZERO);
    assert_eq!(world.vcenters[1].calls(), calls);
    advance(Duration::from_secs(5)).await;
    assert_eq!(find().await, Duration::from_secs(3), "a probe");
}

#[tokio::test]
async fn vs_62_a_vcenter_that_rejects_the_login_affects_only_its_own_nodes() {
    let world = World::of(2, "password = wrong\nuser = someone\n");
    world.found(&world.id_of("node-1")).await;
    for node in [world.id_of("node-3"), by_id("vsphere://00000000-0000-0000-0000-0000000000ff")] {
        let error = world.error(&node).await;
        assert_eq!(error.kind(), ErrorKind::Unauthenticated, "{error}");
    }
    assert!(world.provider.check().await.is_err());
}

#[tokio::test]
async fn vs_52_one_uuid_in_two_vcenters_is_an_error() {
    let world = World::of(2, "");
    let copy = Machine { uuid: UUID.to_owned(), ..Machine::named("copy", "10.10.1.99") };
    world.vcenters[1].add_machine(copy).unwrap();
    let error = world.error(&by_id(&format!("vsphere://{UUID}"))).await;
    assert!(error.message().contains("Multiple VMs found"), "{error}");
}

#[tokio::test]
async fn a_node_with_a_known_machine_needs_only_its_own_vcenter() {
    let world = World::of(2, "");
    let node_1 = world.id_of("node-1");
    world.found(&node_1).await;
    let calls = world.vcenters[1].calls();
    world.found(&node_1).await;
    assert_eq!(world.vcenters[1].calls(), calls);
}

#[tokio::test(start_paused = true)]
async fn a_machine_by_its_name_does_not_win_while_another_vcenter_may_have_its_uuid() {
    let uuid = "00000000-0000-0000-0000-0000000000ff";
    let world = World::of(2, "");
    world.vcenters[0].add_machine(Machine::named("node-9", "10.10.1.18")).unwrap();
    let wanted = Machine { uuid: uuid.to_owned(), ..Machine::named("vm-9", "10.10.1.19") };
    world.vcenters[1].add_machine(wanted).unwrap();
    let node_9 = by_uuid("node-9", uuid);
    for is_listed in [false, true] {
        let world = World { vcenters: world.vcenters.clone(), provider: world.restarted("") };
        if is_listed {
            // The search index is asked next.
            world.found(&world.id_of("node-1")).await;
        }
        world.vcenters[1].inject(FaultSpec::always(Fault::Hanging));
        let error = world.error(&node_9).await;
        assert_eq!((error.kind(), error.context_value("vcenter")), (ErrorKind::Unavailable, Some("vc-2")), "{error}");
        world.vcenters[1].repair_all();
        world.vcenters[1].inject(FaultSpec::always(Fault::Slow(Duration::from_secs(2))));
        sleep(Duration::from_secs(61)).await;
        assert_eq!(world.found(&node_9).await.id, uuid, "{is_listed}");
        world.vcenters[1].repair_all();
    }
}

#[tokio::test]
async fn two_entries_of_one_vcenter_are_one_server_also_while_one_cannot_log_in() {
    let world = World::of(1, "");
    let twin = World::of(1, "").vcenters.remove(0);
    let vcenters = vec![world.vcenter().clone(), twin];
    let provider = provider(&vcenters, "");
    let world = World { vcenters, provider };
    let node_1 = world.id_of("node-1");
    world.found(&node_1).await;
    world.vcenters[1].inject(FaultSpec::always(soap_fault("InvalidLogin")).on(Method::POST, "Login"));
    world.vcenters[1].end_sessions_before("FindAllByUuid");
    let missing = by_id("vsphere://00000000-0000-0000-0000-0000000000ff");
    let results = world.provider.find(&[node_1, missing]).await;
    assert!(results[0].as_ref().unwrap().instance().is_some());
    assert_eq!(results[1].as_ref().unwrap_err().kind(), ErrorKind::Unauthenticated);
}
