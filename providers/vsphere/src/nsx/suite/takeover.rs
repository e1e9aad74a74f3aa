//! Objects that the Go manager created, as it wrote them.

use bowline_core::testing::service_port;
use bowline_core::{Protocol, Service};
use bowline_vsphere_simulator::nsx::Simulator;
use serde_json::{Value, json};

use super::world::{TIER1, World, balancers, of_class, web};
use crate::config::nsx::LbService;

const APP: &str = "vsphere-cloud-controller-manager";

pub(super) fn tags(more: &[(&str, &str)]) -> Value {
    let own = [("cluster", "kubernetes"), ("owner", APP)];
    let mut all = [own.as_slice(), more].concat();
    all.sort_unstable();
    all.into_iter().map(|(scope, tag)| json!({"scope": scope, "tag": tag})).collect()
}

/// Creates the objects of `default/web`, TCP port 80, with random IDs and the address 10.0.8.1.
pub(super) fn put_web(cloud: &Simulator, pool: &str, class: &str) {
    let (service, port) = (("service", "default/web"), ("port", "TCP/80"));
    let of_port = tags(&[service, port]);
    cloud.put(&format!("/infra/ip-pools/{pool}/ip-allocations/0a"), json!({"tags": tags(&[service])}));
    cloud.put(
        "/infra/lb-services/0b",
        json!({"display_name": "cluster:kubernetes", "tags": tags(&[]), "size": "SMALL", "enabled": true,
            "description": format!("virtual server pool for cluster kubernetes created by {APP}"), "connectivity_path": TIER1}),
    );
    cloud.put(
        "/infra/lb-monitor-profiles/0c",
        json!({"resource_type": "LBTcpMonitorProfile", "display_name": "cluster:kubernetes:default/web:30080",
            "description": format!("tcp monitor for cluster kubernetes, service default/web, port 30080 created by {APP}"),
            "tags": of_port, "monitor_port": 30080}),
    );
    let member = |node: &str, ip: &str| json!({"admin_state": "ENABLED", "display_name": format!("kubernetes:{node}"), "ip_address": ip});
    cloud.put(
        "/infra/lb-pools/0d",
        json!({"display_name": "cluster:kubernetes:default/web", "tags": of_port,
            "description": format!("pool for cluster kubernetes, service default/web created by {APP}"),
            "snat_translation": {"type": "LBSnatAutoMap"}, "active_monitor_paths": ["/infra/lb-monitor-profiles/0c"],
            "members": [member("node-2", "10.1.0.2"), member("node-1", "10.1.0.1")]}),
    );
    cloud.put(
        "/infra/lb-virtual-servers/0e",
        json!({"display_name": "cluster:kubernetes:default/web", "enabled": true, "ip_address": "10.0.8.1", "ports": ["80"],
            "description": format!("virtual server for cluster kubernetes, service default/web created by {APP}"),
            "tags": tags(&[service, port, ("ippoolid", pool), ("lbclass", class)]), "default_pool_member_ports": ["30080"],
            "application_profile_path": "/infra/lb-app-profiles/default-tcp-lb-app-profile",
            "pool_path": "/infra/lb-pools/0d", "lb_service_path": "/infra/lb-services/0b"}),
    );
    cloud.forget_calls();
}

/// VS-106, VS-124
#[tokio::test(start_paused = true)]
async fn a_load_balancer_of_the_go_manager_is_taken_over_with_four_lists_per_pool_and_no_write() {
    let world = World::new();
    put_web(&world.cloud, "vips", "default");
    assert_eq!(world.synced(&web()).await, "10.0.8.1");
    assert_eq!(
        world.calls(),
        [
            "GET infra/lb-virtual-servers",
            "GET infra/lb-pools",
            "GET infra/lb-monitor-profiles",
            "GET infra/ip-pools/{id}/ip-allocations",
            "GET infra/ip-pools/{id}/ip-allocations",
        ]
    );
}

/// VS-105
#[tokio::test(start_paused = true)]
async fn new_objects_are_sent_as_the_go_manager_sends_them() {
    let world = World::new();
    assert_eq!(world.synced(&web()).await, "10.0.8.1");
    let sent = world.cloud.writes();
    let [allocation, monitor, pool, service, server] = sent.as_slice() else { panic!("{sent:?}") };
    let paths = [monitor, pool, service]
        .map(|entry| entry.path.strip_prefix("infra").map(|path| format!("/infra{path}")).unwrap());
    let service_tag = ("service", "default/web");
    let port_tags = [service_tag, ("port", "TCP/80")];
    let member = |node: &str, ip: &str| json!({"admin_state": "ENABLED", "display_name": format!("kubernetes:{node}"), "ip_address": ip});
    assert_eq!(allocation.body, json!({"tags": tags(&[service_tag])}));
    assert_eq!(
        monitor.body,
        json!({"resource_type": "LBTcpMonitorProfile", "display_name": "cluster:kubernetes:default/web:30080",
            "description": format!("tcp monitor for cluster kubernetes, service default/web, port 30080 created by {APP}"),
            "tags": tags(&port_tags), "monitor_port": 30080})
    );
    assert_eq!(
        pool.body,
        json!({"display_name": "cluster:kubernetes:default/web", "tags": tags(&port_tags),
            "description": format!("pool for cluster kubernetes, service default/web created by {APP}"),
            "snat_translation": {"type": "LBSnatAutoMap"}, "active_monitor_paths": [paths[0]],
            "members": [member("node-1", "10.1.0.1"), member("node-2", "10.1.0.2")]})
    );
    assert_eq!(
        service.body,
        json!({"display_name": "cluster:kubernetes", "tags": tags(&[]), "size": "SMALL", "enabled": true,
            "description": format!("virtual server pool for cluster kubernetes created by {APP}"), "connectivity_path": TIER1})
    );
    let server_tags = tags(&[port_tags.as_slice(), &[("ippoolid", "vips"), ("lbclass", "default")]].concat());
    assert_eq!(
        server.body,
        json!({"display_name": "cluster:kubernetes:default/web", "enabled": true, "ip_address": "10.0.8.1", "ports": ["80"],
            "description": format!("virtual server for cluster kubernetes, service default/web created by {APP}"),
            "tags": server_tags, "default_pool_member_ports": ["30080"],
            "application_profile_path": "/infra/lb-app-profiles/default-tcp-lb-app-profile",
            "pool_path": paths[1], "lb_service_path": paths[2]})
    );
}

#[tokio::test(start_paused = true)]
async fn without_snat_clients_keep_their_addresses() {
    let mut config = balancers();
    config.snat_disabled = true;
    let world = World::with(config);
    world.synced(&web()).await;
    assert_eq!(world.only("lb-pools")["snat_translation"]["type"], "LBSnatDisabled");
}

#[tokio::test(start_paused = true)]
async fn a_load_balancer_of_the_go_manager_is_deleted_without_a_rest() {
    let world = World::new();
    put_web(&world.cloud, "vips", "default");
    world.delete(&web()).await.unwrap();
    assert_eq!(
        world.writes(),
        [
            "DELETE infra/lb-virtual-servers/{id}",
            "DELETE infra/lb-services/{id}",
            "DELETE infra/lb-pools/{id}",
            "DELETE infra/lb-monitor-profiles/{id}",
            "DELETE infra/ip-pools/{id}/ip-allocations/{id}",
        ]
    );
    assert_eq!(world.counts(), [0; 5]);
}

/// VS-110
#[tokio::test(start_paused = true)]
async fn members_and_fields_that_users_changed_survive_an_update() {
    let mut world = World::new();
    put_web(&world.cloud, "vips", "default");
    world.cloud.edit("/infra/lb-pools/0d", |pool| {
        pool["members"][0]["admin_state"] = json!("GRACEFUL_DISABLED");
        pool["members"][0]["weight"] = json!(7);
        pool.insert("algorithm".to_owned(), json!("IP_HASH"));
    });
    world.nodes.push(super::world::node("node-3", "10.1.0.3"));
    world.synced(&web()).await;
    let pool = world.only("lb-pools");
    let members = pool["members"].as_array().unwrap();
    let shown: Vec<_> = members.iter().map(|one| (&one["display_name"], &one["admin_state"], &one["weight"])).collect();
    let expected = [("node-2", "GRACEFUL_DISABLED", 7), ("node-1", "ENABLED", 1), ("node-3", "ENABLED", 1)];
    let expected =
        expected.map(|(node, state, weight)| (json!(format!("kubernetes:{node}")), json!(state), json!(weight)));
    assert_eq!(shown, expected.iter().map(|(node, state, weight)| (node, state, weight)).collect::<Vec<_>>());
    assert_eq!((&pool["algorithm"], &pool["_revision"]), (&json!("IP_HASH"), &json!(1)));
    assert_eq!(world.writes(), ["PUT infra/lb-pools/{id}"]);
}

/// VS-112
#[tokio::test(start_paused = true)]
async fn a_new_port_joins_the_address_class_and_lb_service_of_the_existing_one() {
    let world = World::new();
    put_web(&world.cloud, "vips", "default");
    let ports = vec![service_port(Protocol::Tcp, 80), service_port(Protocol::Udp, 80)];
    // The class of the annotation has another pool.
    let service = of_class(Service { ports, ..web() }, "public");
    assert_eq!(world.synced(&service).await, "10.0.8.1");
    assert_eq!(world.counts(), [1, 1, 1, 2, 2]);
    let servers = world.cloud.objects("lb-virtual-servers");
    let udp = servers.iter().find(|one| one["id"] != "0e").unwrap();
    assert_eq!((&udp["ip_address"], &udp["lb_service_path"]), (&json!("10.0.8.1"), &json!("/infra/lb-services/0b")));
    let service_and_port = [("service", "default/web"), ("port", "UDP/80")];
    assert_eq!(
        udp["tags"],
        tags(&[service_and_port.as_slice(), &[("ippoolid", "vips"), ("lbclass", "default")]].concat())
    );
    let warnings = world.plan(&service).await.unwrap().warnings;
    assert!(warnings.iter().any(|one| one.message.contains("keeps the address of class default")), "{warnings:?}");
    world.delete(&service).await.unwrap();
    assert_eq!(world.counts(), [0; 5]);
}

/// VS-113
#[tokio::test(start_paused = true)]
async fn objects_of_another_owner_tag_are_foreign() {
    let mut world = World::new();
    put_web(&world.cloud, "vips", "default");
    let mut config = balancers();
    config.tags =
        [("owner", "shoot--a"), ("team", "edge")].map(|(scope, tag)| (scope.to_owned(), tag.to_owned())).into();
    world.restart(config);
    assert_eq!(world.synced(&web()).await, "10.0.8.2");
    assert_eq!(world.counts(), [2, 1, 2, 2, 2], "the LB service of the gateway is shared");
    let servers = world.cloud.objects("lb-virtual-servers");
    let own = servers.iter().find(|one| one["id"] != "0e").unwrap();
    let expected = ["cluster", "ippoolid", "lbclass", "owner", "port", "service", "team"];
    assert_eq!(
        own["tags"].as_array().unwrap().iter().map(|tag| tag["scope"].as_str().unwrap()).collect::<Vec<_>>(),
        expected
    );
    assert_eq!(own["tags"][3]["tag"], "shoot--a");
    world.delete(&web()).await.unwrap();
    assert_eq!(world.counts(), [1; 5], "the LB service of the other owner stays");
}

/// VS-120, VS-121
#[tokio::test(start_paused = true)]
async fn an_lb_service_of_a_user_is_used_and_never_deleted() {
    let mut world = World::new();
    world
        .cloud
        .put("/infra/lb-services/by-hand", json!({"size": "LARGE", "enabled": true, "connectivity_path": TIER1}));
    for service in [
        LbService::Managed { tier1: TIER1.to_owned() },
        LbService::Existing { id: "by-hand".to_owned(), tier1: None },
        LbService::Existing { id: "by-hand".to_owned(), tier1: Some(TIER1.to_owned()) },
    ] {
        let mut config = balancers();
        config.service = service;
        world.restart(config);
        assert_eq!(world.synced(&web()).await, "10.0.8.1");
        assert_eq!(world.only("lb-virtual-servers")["lb_service_path"], "/infra/lb-services/by-hand");
        world.delete(&web()).await.unwrap();
        assert_eq!(world.counts(), [0, 1, 0, 0, 0]);
    }
}
