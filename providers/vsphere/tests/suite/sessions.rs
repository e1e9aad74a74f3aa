//! Sessions: opened once, renewed, kept alive and closed.

use std::time::Duration;

use bowline_cloud::{CloudProvider as _, ErrorKind, Instances as _};
use bowline_core::InstanceState;
use bowline_vsphere_simulator::vcenter::Machine;
use bowline_vsphere_simulator::{Fault, FaultSpec};
use futures::future::join_all;
use http::Method;
use tokio::time::{Instant, sleep};

use crate::folder::Folder;
use crate::world::{World, by_name};

const LABELS: &str = "[Labels]\nregion = k8s-region\nzone = k8s-zone\n";

fn logins(world: &World) -> u64 {
    world.vcenter().counts().get("POST Login").copied().unwrap_or_default()
}

#[tokio::test]
async fn vs_37_concurrent_lookups_share_one_login() {
    let world = World::new();
    let nodes: Vec<_> = (0..20).map(|_| world.id_of("node-1")).collect();
    let found = join_all(nodes.iter().map(|node| world.find(node))).await;
    assert!(found.into_iter().all(|state| state.is_ok()));
    assert_eq!((logins(&world), world.vcenter().sessions()), (1, (1, 0)));
}

#[tokio::test]
async fn vs_38_a_session_that_has_ended_is_renewed() {
    let world = World::with(LABELS);
    let datacenter = world.vcenter().find("Datacenter", "DC0").unwrap();
    world.vcenter().tag("k8s-region", "r1", &datacenter);
    world.vcenter().tag("k8s-zone", "z1", &datacenter);
    let node_1 = world.id_of("node-1");
    for _ in 0..3 {
        assert_eq!(world.found(&node_1).await.zone, "z1");
        world.vcenter().end_sessions();
    }
    assert_eq!(world.find(&by_name("missing")).await.unwrap(), InstanceState::Gone);
}

#[tokio::test]
async fn vs_38_a_listing_begins_again_if_the_session_ends_between_its_pages() {
    let world = World::new();
    world.vcenter().configure(|options| options.max_page = 10);
    for number in 3..30 {
        world.vcenter().add_machine(Machine::named(&format!("node-{number}"), "10.10.1.13")).unwrap();
    }
    let nodes: Vec<_> = (1..30).map(|number| world.id_of(&format!("node-{number}"))).collect();
    world.vcenter().end_sessions_before("ContinueRetrievePropertiesEx");
    for state in world.provider.find(&nodes).await {
        assert!(state.unwrap().instance().is_some());
    }
    assert_eq!(logins(&world), 2);
}

#[tokio::test(start_paused = true)]
async fn vs_39_rejected_credentials_are_not_tried_again_at_once() {
    let world = World::new();
    world.vcenter().configure(|options| options.password = "changed".to_owned());
    for _ in 0..10 {
        let error = world.error(&world.id_of("node-1")).await;
        assert_eq!(error.kind(), ErrorKind::Unauthenticated, "{error}");
        assert!(error.message().contains("rejected the login"), "{error}");
    }
    assert_eq!(logins(&world), 1);
    assert_eq!(world.provider.secrets(), [], "VS-36");
    world.vcenter().configure(|options| options.password = bowline_vsphere_simulator::vcenter::PASSWORD.to_owned());
    sleep(Duration::from_secs(181)).await;
    world.found(&world.id_of("node-1")).await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_session_is_kept_alive() {
    let world = World::new();
    world.found(&world.id_of("node-1")).await;
    sleep(Duration::from_secs(7200)).await;
    world.found(&world.id_of("node-1")).await;
    assert_eq!((logins(&world), world.vcenter().sessions().0), (1, 1));
}

#[tokio::test]
async fn vs_42_all_sessions_are_closed_at_the_end() {
    let world = World::of(2, LABELS);
    let datacenter = world.vcenter().find("Datacenter", "DC0").unwrap();
    world.vcenter().tag("k8s-region", "r1", &datacenter);
    world.vcenter().tag("k8s-zone", "z1", &datacenter);
    world.found(&world.id_of("node-1")).await;
    world.found(&world.id_of("node-1")).await;
    assert_eq!(world.vcenter().sessions(), (1, 1));
    world.provider.close().await;
    world.provider.close().await;
    assert_eq!(world.vcenters.iter().map(|vcenter| vcenter.sessions()).collect::<Vec<_>>(), [(0, 0), (0, 0)]);
}

#[tokio::test(start_paused = true)]
async fn vs_46_a_shared_session_serves_soap_and_rest_and_is_renewed_with_a_new_ticket() {
    let folder = Folder::new(
        "shared",
        &[
            ("vc-1.vc-session-manager-url", "https://vc-1/session-manager"),
            ("vc-1.vc-session-manager-token", "session-manager-token"),
        ],
    );
    let world = folder.world();
    for _ in 0..2 {
        assert_eq!(world.found(&world.id_of("node-1")).await.zone, "z1");
        let counts = world.vcenter().counts();
        assert!(!counts.contains_key("POST Login") && !counts.contains_key("POST session"), "{counts:?}");
        assert_eq!(world.vcenter().sessions(), (1, 0));
        world.vcenter().end_sessions();
    }
    world.found(&world.id_of("node-1")).await;
    world.provider.close().await;
    assert_eq!(world.vcenter().sessions(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn vs_41_a_vcenter_with_too_many_sessions_is_an_error() {
    let world = World::new();
    world.vcenter().configure(|options| options.session_limit = Some(0));
    let error = world.error(&world.id_of("node-1")).await;
    assert_eq!((error.kind(), error.status()), (ErrorKind::Unavailable, Some(503)), "{error}");
    world.vcenter().configure(|options| options.session_limit = Some(1));
    assert_eq!(world.error(&world.id_of("node-1")).await.status(), Some(503), "a back-off");
    assert_eq!(logins(&world), 1);
    sleep(Duration::from_secs(6)).await;
    world.found(&world.id_of("node-1")).await;
}

#[tokio::test(start_paused = true)]
async fn vs_42_a_login_in_progress_leaves_no_session_behind_when_the_provider_closes() {
    for login in ["Login", "session"] {
        let world = World::with(LABELS);
        let fault = FaultSpec::always(Fault::Slow(Duration::from_secs(1))).on(Method::POST, login);
        world.vcenter().inject(fault);
        let node_1 = world.id_of("node-1");
        let lookup = async { drop(world.find(&node_1).await) };
        let close = async {
            sleep(Duration::from_millis(500)).await;
            world.provider.close().await;
            assert_eq!(world.vcenter().sessions(), (0, 0), "{login}");
        };
        tokio::join!(lookup, close);
        assert_eq!(world.vcenter().sessions(), (0, 0), "{login}");
        assert_eq!(world.error(&node_1).await.kind(), ErrorKind::Unavailable);
        assert_eq!(world.vcenter().sessions(), (0, 0), "{login}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_vcenter_that_hangs_delays_closing_by_three_seconds() {
    let world = World::of(2, LABELS);
    for node in ["node-1", "node-3"] {
        let _ = world.find(&world.id_of(node)).await;
    }
    assert_eq!(world.vcenter().sessions(), (1, 1));
    world.vcenters.iter().for_each(|vcenter| _ = vcenter.inject(FaultSpec::always(Fault::Hanging)));
    let begun = Instant::now();
    world.provider.close().await;
    assert_eq!(begun.elapsed(), Duration::from_secs(3));
}
