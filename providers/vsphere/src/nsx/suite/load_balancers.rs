//! Load balancers in special cases: failures of NSX, leftovers, configuration errors.

use bowline_cloud::{CloudProvider as _, ErrorKind};
use bowline_core::testing::service_port;
use bowline_core::{ClusterName, DesiredLoadBalancer, Protocol, Service, SessionAffinity, TrafficPolicy};
use bowline_vsphere_simulator::nsx::{FaultSpec, Options, Work, error_fault};
use http::Method;
use serde_json::json;

use super::takeover::{put_web, tags};
use super::world::{World, balancers, node, of_class, provider, simulator, texts, web};
use crate::config::nsx::{AppProfile, IpPool, LbService};

fn ports(ports: &[(Protocol, u16)]) -> Service {
    Service { ports: ports.iter().map(|(protocol, port)| service_port(*protocol, *port)).collect(), ..web() }
}

#[tokio::test(start_paused = true)]
async fn many_services_are_observed_with_as_many_lists_as_one() {
    let world = World::new();
    let services: Vec<_> = (0..5).map(|number| Service { name: format!("web-{number}"), ..web() }).collect();
    for service in &services {
        world.synced(service).await;
    }
    world.cloud.forget_calls();
    let desired: Vec<_> = services.iter().map(|service| world.desired(service)).collect();
    let states = world.provider.load_balancers().unwrap().observe(&desired).await;
    assert!(states.iter().all(|state| state.as_ref().is_ok_and(Option::is_some)));
    assert_eq!(world.calls().len(), 5, "virtual servers, pools, monitors, allocations in two pools");
}

/// VS-108
#[tokio::test(start_paused = true)]
async fn a_changed_port_keeps_the_address_and_is_served_before_the_old_one_is_deleted() {
    let world = World::new();
    let address = world.synced(&web()).await;
    world.cloud.forget_calls();
    let mut changed = ports(&[(Protocol::Tcp, 8080)]);
    changed.ports[0].node_port = Some(30080);
    assert_eq!(world.synced(&changed).await, address);
    assert_eq!(
        world.writes(),
        [
            "PUT infra/lb-monitor-profiles/{id}",
            "PUT infra/lb-pools/{id}",
            "PUT infra/lb-virtual-servers/{id}",
            "DELETE infra/lb-virtual-servers/{id}",
            "DELETE infra/lb-pools/{id}",
            "DELETE infra/lb-monitor-profiles/{id}",
        ]
    );
    assert_eq!(world.counts(), [1; 5]);
}

/// VS-109
#[tokio::test(start_paused = true)]
async fn a_changed_node_port_changes_monitor_and_virtual_server_in_place() {
    let world = World::new();
    put_web(&world.cloud, "vips", "default");
    let mut changed = web();
    changed.ports[0].node_port = Some(31000);
    world.synced(&changed).await;
    assert_eq!(world.writes(), ["PUT infra/lb-monitor-profiles/{id}", "PUT infra/lb-virtual-servers/{id}"]);
    let monitor = world.only("lb-monitor-profiles");
    assert_eq!(
        (&monitor["monitor_port"], &monitor["display_name"]),
        (&json!(31000), &json!("cluster:kubernetes:default/web:30080"))
    );
    assert_eq!(texts(&world.only("lb-virtual-servers")["default_pool_member_ports"]), ["31000"]);
}

/// VS-107
#[tokio::test(start_paused = true)]
async fn one_port_number_of_two_protocols_has_one_address_and_one_monitor() {
    let world = World::new();
    world.synced(&ports(&[(Protocol::Tcp, 53), (Protocol::Udp, 53)])).await;
    assert_eq!(world.counts(), [1, 1, 1, 2, 2]);
}

/// VS-110
#[tokio::test(start_paused = true)]
async fn nodes_without_an_internal_address_are_left_out() {
    let mut world = World::new();
    let mut bare = node("node-3", "10.1.0.3");
    bare.addresses.retain(|address| address.kind != bowline_core::AddressType::InternalIP);
    world.nodes = vec![bare];
    world.synced(&web()).await;
    assert_eq!(world.only("lb-pools").get("members"), None);
    assert!(world.plan(&web()).await.unwrap().is_empty());
}

// ---- allocations

/// VS-118
#[tokio::test(start_paused = true)]
async fn an_exhausted_pool_is_reported_with_its_alarm_and_the_next_sync_tries_again() {
    let world = World::new();
    world.cloud.add_ip_pool("vips", "10.0.8.1");
    world.synced(&Service { name: "other".to_owned(), ..web() }).await;
    for _ in 0..3 {
        let error = world.sync(&web()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::QuotaExceeded);
        assert!(error.to_string().contains("Insufficient free IP addresses."), "{error}");
    }
    assert_eq!(world.cloud.objects("ip-allocations").len(), 2, "the failed allocation is replaced");
    world.delete(&Service { name: "other".to_owned(), ..web() }).await.unwrap();
    assert_eq!(world.synced(&web()).await, "10.0.8.1");
    assert_eq!(world.counts(), [1; 5]);
}

/// VS-118
#[tokio::test(start_paused = true)]
async fn the_address_of_a_refused_virtual_server_is_kept_for_the_next_attempt_or_released_with_the_service() {
    for is_repaired in [true, false] {
        let world = World::new();
        let refused = error_fault(400, 500_012, "The path is invalid.");
        let fault = FaultSpec::always(refused).on(Method::PUT, "infra/lb-virtual-servers/{id}");
        let number = world.cloud.inject(fault);
        for _ in 0..3 {
            world.sync(&web()).await.unwrap_err();
            assert_eq!(world.counts()[0], 1, "one allocation");
        }
        if is_repaired {
            world.cloud.repair(number);
            assert_eq!(world.synced(&web()).await, "10.0.8.1");
        }
        world.delete(&web()).await.unwrap();
        assert_eq!(world.counts(), [0; 5]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_allocation_that_is_never_realised_blocks_the_sync_but_not_the_deletion() {
    let world = World::new();
    world.cloud.configure(|options| options.realization = Work::Manual);
    let pending = world.driver();
    let (_, plan) = pending.plan(&mut world.desired(&web())).await.unwrap();
    pending.apply(&mut world.desired(&web()), &plan.steps[0]).await.unwrap();
    let balancers = world.provider.load_balancers().unwrap();
    let state = balancers.observe(&[world.desired(&web())]).await.remove(0).unwrap().unwrap();
    assert!(state.pending.is_some());
    world.delete(&web()).await.unwrap();
    assert_eq!(world.counts(), [0; 5]);
}

/// VS-114
#[tokio::test(start_paused = true)]
async fn a_second_allocation_and_an_address_of_its_own_are_merged_into_the_first() {
    let world = World::new();
    world.synced(&ports(&[(Protocol::Tcp, 80), (Protocol::Tcp, 443)])).await;
    let service = ("service", "default/web");
    world.cloud.put("/infra/ip-pools/public-vips/ip-allocations/extra", json!({"tags": tags(&[service])}));
    let servers = world.cloud.objects("lb-virtual-servers");
    let mut ids: Vec<_> = servers.iter().map(|one| one["path"].as_str().unwrap().to_owned()).collect();
    ids.sort();
    world.cloud.edit(&ids[1], |server| drop(server.insert("ip_address".to_owned(), json!("198.51.100.1"))));
    assert_eq!(world.synced(&ports(&[(Protocol::Tcp, 80), (Protocol::Tcp, 443)])).await, "10.0.8.1");
    let addresses: Vec<_> =
        world.cloud.objects("lb-virtual-servers").iter().map(|one| one["ip_address"].clone()).collect();
    assert_eq!(addresses, ["10.0.8.1", "10.0.8.1"]);
    assert_eq!(world.only("ip-allocations")["parent_path"], "/infra/ip-pools/vips");
}

#[tokio::test(start_paused = true)]
async fn an_address_in_the_pool_of_a_removed_class_is_released() {
    let mut world = World::new();
    world.synced(&of_class(web(), "public")).await;
    let mut config = balancers();
    config.classes.remove("public");
    world.restart(config);
    world.delete(&of_class(web(), "public")).await.unwrap();
    assert_eq!(world.counts(), [0; 5]);
}

/// VS-119
#[tokio::test(start_paused = true)]
async fn no_address_is_released_while_a_virtual_server_cannot_be_deleted() {
    let world = World::new();
    world.synced(&web()).await;
    let fault = error_fault(400, 500_030, "The object is referenced");
    world.cloud.inject(FaultSpec::always(fault).on(Method::DELETE, "infra/lb-virtual-servers/{id}"));
    let error = world.delete(&web()).await.unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::Conflict, Some("500030")));
    assert!(error.to_string().ends_with("; remove that reference; the address stays until then"), "{error}");
    assert_eq!(world.counts(), [1; 5]);
}

// ---- LB service

/// VS-121
#[tokio::test(start_paused = true)]
async fn the_lb_service_is_deleted_after_the_last_service_and_created_again() {
    let world = World::new();
    let other = Service { name: "other".to_owned(), ..web() };
    world.synced(&web()).await;
    world.synced(&other).await;
    world.delete(&web()).await.unwrap();
    assert_eq!(world.counts(), [1; 5]);
    world.delete(&other).await.unwrap();
    assert_eq!(world.counts(), [0; 5]);
    world.synced(&web()).await;
    assert_eq!(world.counts(), [1; 5]);
}

/// VS-120
#[tokio::test(start_paused = true)]
async fn an_lb_service_at_another_router_is_an_error_with_both_routers() {
    let mut world = World::new();
    world.cloud.put("/infra/lb-services/s", json!({"size": "LARGE", "connectivity_path": "/infra/tier-1s/edge"}));
    for (id, tier1, expected) in [
        (
            "s",
            Some("/infra/tier-1s/x"),
            "load balancer service \"s\" is configured for router \"/infra/tier-1s/edge\" not \"/infra/tier-1s/x\"",
        ),
        ("t", None, "load balancer service \"t\" does not exist"),
    ] {
        let mut config = balancers();
        config.service = LbService::Existing { id: id.to_owned(), tier1: tier1.map(str::to_owned) };
        world.restart(config);
        let error = world.sync(&web()).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(world.cloud.objects("lb-virtual-servers").len(), 0);
    }
}

// ---- classes, pools and profiles by name

/// VS-111
#[tokio::test(start_paused = true)]
async fn an_unknown_class_is_an_error_and_does_not_block_the_deletion() {
    let world = World::new();
    world.synced(&web()).await;
    let unknown = of_class(web(), " gold ");
    let error = world.sync(&unknown).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig);
    assert!(error.to_string().contains("invalid load balancer class gold"), "{error}");
    world.delete(&unknown).await.unwrap();
    assert_eq!(world.counts(), [0; 5]);
}

/// VS-114
#[tokio::test(start_paused = true)]
async fn pools_and_profiles_are_found_by_name_and_type_and_must_be_unique() {
    let mut world = World::new();
    let profile = |kind: &str| json!({"display_name": "fast", "resource_type": kind});
    world.cloud.put("/infra/lb-app-profiles/a", profile("LBFastTcpProfile"));
    world.cloud.put("/infra/lb-app-profiles/b", profile("LBFastUdpProfile"));
    let mut config = balancers();
    let class = config.classes.get_mut("default").unwrap();
    (class.pool, class.tcp_profile) = (IpPool::Name("vips".to_owned()), AppProfile::Name("fast".to_owned()));
    world.restart(config.clone());
    world.synced(&web()).await;
    assert_eq!(world.only("lb-virtual-servers")["application_profile_path"], "/infra/lb-app-profiles/a");
    world.cloud.put("/infra/lb-app-profiles/c", profile("LBFastTcpProfile"));
    let error = world.sync(&web()).await.unwrap_err();
    assert!(
        error.to_string().contains(
            "profile name fast for resource type LBFastTcpProfile is not unique; set tcpAppProfilePath or udpAppProfilePath"
        ),
        "{error}"
    );
    world.delete(&web()).await.unwrap();
    config.classes.get_mut("default").unwrap().pool = IpPool::Name("none".to_owned());
    config.classes.get_mut("default").unwrap().tcp_profile = AppProfile::Name("slow".to_owned());
    world.restart(config);
    let plan = world.plan(&web()).await.unwrap();
    let errors: Vec<_> = plan.errors.iter().map(|error| error.message.as_str()).collect();
    let expected = [
        "load balancer IP pool named none not found; correct ipPoolName or ipPoolId",
        "application profile named slow of type LBFastTcpProfile not found; correct tcpAppProfileName or udpAppProfileName",
    ];
    assert_eq!(errors.len(), 2, "{errors:?}");
    assert!(errors.iter().zip(expected).all(|(error, expected)| error.starts_with(expected)), "{errors:?}");
}

// ---- fields that NSX load balancers do not have

/// VS-107
#[tokio::test(start_paused = true)]
async fn ignored_fields_are_warnings_and_impossible_ones_errors() {
    let world = World::new();
    let plain = world.plan(&web()).await.unwrap();
    assert_eq!(plain.warnings, []);
    let rich = Service {
        source_ranges: vec!["192.0.2.0/24".to_owned()],
        session_affinity: SessionAffinity::ClientIp { timeout_seconds: 60 },
        traffic_policy: TrafficPolicy::Local,
        load_balancer_ip: Some("10.0.8.7".to_owned()),
        ..web()
    };
    let warnings = world.plan(&rich).await.unwrap().warnings;
    assert_eq!(warnings.len(), 4, "{warnings:?}");
    let misspelled = bowline_core::testing::annotated(web(), &[("loadbalancer.vmware.io/clas", "public")]);
    assert_eq!(world.plan(&misspelled).await.unwrap().warnings.len(), 1);
    let mut bare = web();
    bare.ports[0].node_port = None;
    for impossible in [ports(&[(Protocol::Sctp, 80)]), bare] {
        assert_eq!(world.plan(&impossible).await.unwrap_err().kind(), ErrorKind::Unsupported);
    }
}

// ---- concurrent changes

/// VS-116
#[tokio::test(start_paused = true)]
async fn a_stale_revision_is_read_again_and_written_once_more() {
    for stale in [(412, 604), (409, 604), (400, 500_087), (404, 500_090)] {
        let mut world = World::new();
        world.cloud.configure(|options| options.stale_error = stale);
        world.synced(&web()).await;
        world.nodes.push(node("node-3", "10.1.0.3"));
        let (_, plan) = world.driver().plan(&mut world.desired(&web())).await.unwrap();
        let path = world.only("lb-pools")["path"].as_str().unwrap().to_owned();
        world.cloud.edit(&path, |pool| {
            pool["members"][0]["admin_state"] = json!("DISABLED");
            pool["_revision"] = json!(5);
        });
        world.cloud.forget_calls();
        world.driver().apply_all(&mut world.desired(&web()), &plan).await.unwrap();
        assert_eq!(world.calls(), ["PUT infra/lb-pools/{id}", "GET infra/lb-pools/{id}", "PUT infra/lb-pools/{id}"]);
        let pool = world.only("lb-pools");
        assert_eq!(
            (pool["members"].as_array().unwrap().len(), &pool["members"][0]["admin_state"]),
            (3, &json!("DISABLED"))
        );
    }
}

/// VS-117
#[tokio::test(start_paused = true)]
async fn an_object_that_another_client_deletes_first_is_no_error() {
    let world = World::new();
    put_web(&world.cloud, "vips", "default");
    for path in ["lb-virtual-servers/0e", "lb-pools/0d", "ip-pools/vips/ip-allocations/0a"] {
        world.cloud.vanish_on_delete(&format!("/infra/{path}"));
    }
    world.delete(&web()).await.unwrap();
    assert_eq!(world.counts(), [0; 5]);
}

/// NSX keeps the ID of a deleted object for minutes.
#[tokio::test(start_paused = true)]
async fn a_service_that_returns_while_nsx_still_deletes_gets_new_objects_at_once() {
    let world = World::new();
    world.cloud.configure(|options| options.purge = Work::Manual);
    let balancers = world.provider.load_balancers().unwrap();
    let mut ids = std::collections::BTreeSet::new();
    for round in 1..=3 {
        assert_eq!(world.synced(&web()).await, "10.0.8.1");
        ids.insert(world.only("lb-pools")["id"].to_string());
        assert_eq!(ids.len(), round);
        world.delete(&web()).await.unwrap();
        assert_eq!(world.counts(), [0; 5]);
        assert_eq!(
            balancers.list(&ClusterName::from("kubernetes")).await.unwrap(),
            [],
            "deleted objects have no owner"
        );
    }
    world.cloud.finish_work();
    world.synced(&web()).await;
    assert!(ids.contains(&world.only("lb-pools")["id"].to_string()), "the first ID is free again");
}

// ---- listing

/// VS-123
#[tokio::test(start_paused = true)]
async fn leftovers_of_every_kind_are_listed_and_can_be_deleted() {
    let cloud = simulator(Options::default());
    let provider = provider(&cloud, balancers());
    let of = |name: &str| tags(&[("service", &format!("default/{name}")), ("port", "TCP/80")]);
    cloud.put("/infra/ip-pools/public-vips/ip-allocations/1", json!({"tags": of("a")}));
    cloud.put("/infra/lb-pools/1", json!({"tags": of("b")}));
    cloud.put("/infra/lb-monitor-profiles/1", json!({"resource_type": "LBTcpMonitorProfile", "tags": of("c")}));
    // Not of a Service: no slash, no tag, a tag without its fields, another cluster.
    cloud.put("/infra/lb-pools/2", json!({"tags": tags(&[("service", "odd")])}));
    cloud.put("/infra/lb-pools/3", json!({"tags": tags(&[])}));
    cloud.put("/infra/lb-pools/4", json!({"tags": [{}, {"scope": "service"}, {"tag": "x"}]}));
    cloud.put(
        "/infra/lb-pools/5",
        json!({"tags": [{"scope": "cluster", "tag": "other"}, {"scope": "service", "tag": "default/d"}]}),
    );
    let balancers = provider.load_balancers().unwrap();
    let listed = balancers.list(&ClusterName::from("kubernetes")).await.unwrap();
    let names: Vec<_> = listed.iter().map(|key| format!("{}/{}", key.namespace, key.service)).collect();
    assert_eq!(names, ["default/a", "default/b", "default/c"]);
    for key in listed {
        let mut desired =
            DesiredLoadBalancer { key, annotations: Default::default(), settings: Default::default(), spec: None };
        bowline_simulator::drive::Driver::new(balancers).settle(&mut desired).await.unwrap();
    }
    let left = ["ip-allocations", "lb-pools", "lb-monitor-profiles"].map(|collection| cloud.objects(collection).len());
    assert_eq!(left, [0, 4, 0]);
}

// ---- check

#[tokio::test(start_paused = true)]
async fn the_check_names_what_is_missing() {
    let mut world = World::new();
    let outcomes = |results: Vec<bowline_cloud::CheckResult>| -> Vec<String> {
        results.into_iter().filter_map(|result| result.outcome.err().map(|error| error.to_string())).collect()
    };
    assert_eq!(outcomes(world.provider.diagnose().await), [""; 0]);
    let mut config = balancers();
    config.service = LbService::Managed { tier1: "/infra/tier-1s/gone".to_owned() };
    let class = config.classes.get_mut("public").unwrap();
    (class.pool, class.udp_profile) = (IpPool::Name("gone".to_owned()), AppProfile::Name("gone".to_owned()));
    world.restart(config);
    let missing = outcomes(world.provider.diagnose().await);
    let expected = [
        "check the configuration: /infra/tier-1s/gone not found; correct tier1GatewayPath (tier1-gateway-path)",
        "check the configuration: load balancer IP pool named gone not found; correct ipPoolName or ipPoolId",
        "check the configuration: application profile named gone of type LBFastUdpProfile not found; correct tcpAppProfileName",
    ];
    assert_eq!(missing.len(), 3, "{missing:?}");
    assert!(missing.iter().zip(expected).all(|(error, expected)| error.starts_with(expected)), "{missing:?}");
    world.cloud.inject(FaultSpec::always(error_fault(403, 403, "The credentials were incorrect.")));
    assert_eq!(world.provider.diagnose().await.len(), 1, "wrong credentials are sent once");
}
