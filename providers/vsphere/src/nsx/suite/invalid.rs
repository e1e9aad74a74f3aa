//! Services and configurations that are invalid in part: what exists is kept up to date.

use bowline_cloud::ErrorKind;
use bowline_core::testing::service_port;
use bowline_core::{Protocol, Service};
use serde_json::json;

use super::world::{World, balancers, node, of_class, web};
use crate::config::nsx::{AppProfile, LbService};

/// VS-111
#[tokio::test(start_paused = true)]
async fn a_service_of_an_invalid_class_or_with_an_impossible_port_keeps_its_nodes_up_to_date() {
    let mut bare = service_port(Protocol::Tcp, 443);
    bare.node_port = None;
    let with = |port| Service { ports: vec![service_port(Protocol::Tcp, 80), port], ..web() };
    let cases = [
        (of_class(web(), "gold"), ErrorKind::InvalidConfig, "invalid load balancer class gold"),
        (with(service_port(Protocol::Sctp, 132)), ErrorKind::Unsupported, "have no protocol SCTP (port 132)"),
        (with(bare), ErrorKind::Unsupported, "need a node port for port 443"),
    ];
    for (service, kind, message) in cases {
        let mut world = World::new();
        world.synced(&web()).await;
        world.nodes = vec![node("node-3", "10.1.0.3")];
        let error = world.sync(&service).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(message), "{error}");
        let members = world.only("lb-pools")["members"].clone();
        assert_eq!((members.as_array().unwrap().len(), &members[0]["ip_address"]), (1, &json!("10.1.0.3")));
        assert_eq!(world.counts(), [1; 5], "{message}");
        world.cloud.forget_calls();
        assert!(world.sync(&service).await.is_err(), "the error stays");
        assert_eq!(world.writes(), [""; 0]);
    }
}

#[tokio::test(start_paused = true)]
async fn while_a_port_is_impossible_nothing_is_deleted() {
    let world = World::new();
    world.synced(&web()).await;
    let sctp = Service { ports: vec![service_port(Protocol::Sctp, 80)], ..web() };
    assert_eq!(world.sync(&sctp).await.unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(world.counts(), [1; 5]);
}

#[tokio::test(start_paused = true)]
async fn no_address_is_allocated_without_a_profile_or_an_lb_service() {
    let mut world = World::new();
    let (mut profile, mut service) = (balancers(), balancers());
    profile.classes.get_mut("default").unwrap().tcp_profile = AppProfile::Name("gone".to_owned());
    service.service = LbService::Existing { id: "gone".to_owned(), tier1: None };
    for (config, message) in [(profile, "application profile named gone"), (service, "\"gone\" does not exist")] {
        world.restart(config);
        let error = world.sync(&web()).await.unwrap_err();
        assert!(error.to_string().contains(message), "{error}");
        assert_eq!(world.cloud.objects("ip-allocations").len(), 0, "{message}");
    }
}
