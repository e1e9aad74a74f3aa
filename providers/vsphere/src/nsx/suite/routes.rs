//! Static routes in special cases.

use bowline_cloud::{CloudProvider as _, ErrorKind, Routes};
use bowline_core::testing::addresses;
use bowline_core::{ClusterName, RouteSpec};
use bowline_vsphere_simulator::nsx::{FaultSpec, Options, Work, error_fault};
use http::Method;
use serde_json::json;

use super::world::{NsxOnly, TIER1, World, balancers, config, simulator};
use crate::routes::Gateway;

fn cluster() -> ClusterName {
    ClusterName::from("cluster1")
}

fn spec(cidr: &str, nodes: &str) -> RouteSpec {
    RouteSpec {
        name_hint: "nameHint".to_owned(),
        node: "node1".into(),
        provider_id: None,
        node_addresses: addresses(nodes),
        destination: cidr.parse().unwrap(),
        cluster_uid: None,
    }
}

fn routes(world: &World) -> &dyn Routes {
    world.provider.routes().unwrap()
}

async fn create(world: &World, spec: RouteSpec) -> bowline_cloud::Result<bowline_core::Route> {
    routes(world).create(&cluster(), &[spec]).await.remove(0)
}

/// VS-127
#[tokio::test(start_paused = true)]
async fn a_route_has_the_id_name_and_tags_of_the_go_manager() {
    let world = World::new();
    create(&world, spec("100.96.0.0/24", "I172.50.0.13")).await.unwrap();
    let route = world.only("static-routes");
    assert_eq!(
        (&route["id"], &route["path"]),
        (&json!("nameHint_100.96.0.0_24"), &json!(format!("{TIER1}/static-routes/nameHint_100.96.0.0_24")))
    );
    assert_eq!(
        (&route["display_name"], &route["network"]),
        (&json!("cluster1_node1_100.96.0.0/24"), &json!("100.96.0.0/24"))
    );
    assert_eq!(route["next_hops"][0]["ip_address"], "172.50.0.13");
    assert_eq!(
        route["tags"],
        json!([
            {"scope": "vsphere.k8s.io/cluster-name", "tag": "cluster1"},
            {"scope": "vsphere.k8s.io/node-name", "tag": "node1"},
        ])
    );
}

/// VS-127
#[tokio::test(start_paused = true)]
async fn a_route_to_ipv6_has_an_id_and_a_name_in_the_same_form() {
    let world = World::new();
    create(&world, spec("fd00:10::/64", "Ifd00::5")).await.unwrap();
    let route = world.only("static-routes");
    assert_eq!((&route["id"], &route["network"]), (&json!("nameHint_fd00:10::_64"), &json!("fd00:10::/64")));
    assert_eq!(route["display_name"], "cluster1_node1_fd00:10::/64");
}

/// VS-128
#[tokio::test(start_paused = true)]
async fn a_route_that_nsx_refuses_is_an_error_without_a_poll() {
    let world = World::new();
    world.cloud.inject(
        FaultSpec::always(error_fault(400, 500_012, "The path is invalid."))
            .on(Method::PATCH, "infra/tier-1s/{id}/static-routes/{id}"),
    );
    let error = create(&world, spec("100.96.0.0/24", "I10.0.0.1")).await.unwrap_err();
    assert!(error.to_string().contains("The path is invalid."), "{error}");
    let calls = world.calls();
    assert!(calls.iter().all(|call| !call.contains("realized")), "{calls:?}");
    assert_eq!(calls.last().unwrap(), "PATCH infra/tier-1s/{id}/static-routes/{id}");
}

/// VS-129
#[tokio::test(start_paused = true)]
async fn the_next_hop_is_the_first_address_of_the_family() {
    let v6 = "21da:00d3:0000:2f3b::/64";
    let table = [
        ("100.96.0.0/24", "E203.0.113.1 I10.0.0.1", Ok("10.0.0.1")),
        ("100.96.0.0/24", "E203.0.113.1", Ok("203.0.113.1")),
        (v6, "Hnode1 I172.50.0.13 Ife80::20c:29ff:fe0b:b407", Ok("fe80::20c:29ff:fe0b:b407")),
        (v6, "Ife80::1 Ifd00::0:5", Ok("fd00::5")),
        ("100.96.0.0/24", "Hnode1", Err("node node1 has neither InternalIP nor ExternalIP")),
        (v6, "I10.0.0.1", Err("node node1 does not have any IPv6 address (available IPs: [10.0.0.1])")),
    ];
    for (cidr, nodes, expected) in table {
        let world = World::new();
        match (create(&world, spec(cidr, nodes)).await, expected) {
            (Ok(route), Ok(hop)) => assert_eq!(route.next_hop, Some(hop.parse().unwrap())),
            (Err(error), Err(message)) => assert_eq!(error.message(), message),
            (outcome, expected) => panic!("{cidr} {nodes}: {outcome:?}, expected {expected:?}"),
        }
    }
}

/// VS-128
#[tokio::test(start_paused = true)]
async fn a_route_that_nsx_cannot_realise_is_an_error_with_the_alarm() {
    let world = World::new();
    world.cloud.fail_realization(1);
    let began = tokio::time::Instant::now();
    let error = create(&world, spec("100.96.0.0/24", "I10.0.0.1")).await.unwrap_err();
    assert!(error.to_string().contains("The realization failed."), "{error}");
    assert!(began.elapsed().as_secs() < 2);
    world.cloud.set_realized(&format!("{TIER1}/static-routes/nameHint_100.96.0.0_24"), "REALIZED", &[]);
    create(&world, spec("100.96.0.0/24", "I10.0.0.1")).await.unwrap();
    assert_eq!(world.cloud.objects("static-routes").len(), 1);
}

/// VS-128
#[tokio::test(start_paused = true)]
async fn a_route_that_is_never_realised_stays_and_is_an_error_after_ten_seconds() {
    let world = World::new();
    world.cloud.configure(|options| options.realization = Work::Manual);
    let began = tokio::time::Instant::now();
    let error = create(&world, spec("100.96.0.0/24", "I10.0.0.1")).await.unwrap_err();
    let path = format!("{TIER1}/static-routes/nameHint_100.96.0.0_24");
    assert_eq!(
        (error.kind(), error.message()),
        (ErrorKind::Unavailable, format!("timed out waiting for static route {path}").as_str())
    );
    assert!((8..=10).contains(&began.elapsed().as_secs()));
    assert_eq!(world.cloud.objects("static-routes").len(), 1);
}

/// VS-132
#[tokio::test(start_paused = true)]
async fn routes_of_other_routers_are_never_listed() {
    let world = World::new();
    create(&world, spec("100.96.0.0/24", "I10.0.0.1")).await.unwrap();
    let other = world.cloud.add_tier1("other");
    let mut route = serde_json::Value::Object(world.only("static-routes"));
    route.as_object_mut().unwrap().retain(|name, _| ["network", "next_hops", "tags"].contains(&name.as_str()));
    world.cloud.put(&format!("{other}/static-routes/x"), route);
    assert_eq!(routes(&world).list(&cluster()).await.unwrap().len(), 1);
}

/// VS-125
#[tokio::test(start_paused = true)]
async fn a_long_list_of_routes_is_read_page_by_page() {
    let world = World::new();
    world.cloud.configure(|options| options.max_page = 3);
    let specs: Vec<_> = (0..10).map(|number| spec(&format!("100.96.{number}.0/24"), "I10.0.0.1")).collect();
    let created = routes(&world).create(&cluster(), &specs).await;
    assert!(created.iter().all(Result::is_ok));
    assert_eq!(routes(&world).list(&cluster()).await.unwrap().len(), 10);
}

/// VS-125, VS-126
#[tokio::test(start_paused = true)]
async fn tier_0_gateways_and_gateways_of_projects_have_routes() {
    for path in ["/infra/tier-0s/north", "/orgs/default/projects/red/infra/tier-1s/t"] {
        let cloud = simulator(Options::default());
        cloud.add_gateway(path);
        let provider = NsxOnly::new(&cloud, &config(balancers(), path));
        let routes = provider.routes().unwrap();
        let created = routes.create(&cluster(), &[spec("100.96.0.0/24", "I10.0.0.1")]).await.remove(0).unwrap();
        assert_eq!(routes.list(&cluster()).await.unwrap(), std::slice::from_ref(&created));
        assert!(cloud.object(&format!("{path}/static-routes/{}", created.id)).is_some());
        routes.delete(&cluster(), std::slice::from_ref(&created)).await.remove(0).unwrap();
        assert_eq!(cloud.objects("static-routes").len(), 0);
    }
}

/// VS-130
#[tokio::test(start_paused = true)]
async fn addresses_that_a_node_gets_later_are_seen() {
    let world = World::new();
    assert!(create(&world, spec("100.96.0.0/24", "Hnode1")).await.is_err());
    assert_eq!(world.cloud.objects("static-routes").len(), 0);
    create(&world, spec("100.96.0.0/24", "Hnode1 I10.0.0.1")).await.unwrap();
}

/// VS-125: NSX keeps the ID of a deleted route for minutes.
#[tokio::test(start_paused = true)]
async fn a_route_that_is_created_again_while_nsx_still_deletes_has_another_id() {
    let world = World::new();
    world.cloud.configure(|options| options.purge = Work::Manual);
    for id in ["nameHint_100.96.0.0_24", "nameHint_100.96.0.0_24_1", "nameHint_100.96.0.0_24_2"] {
        let created = create(&world, spec("100.96.0.0/24", "I10.0.0.1")).await.unwrap();
        assert_eq!(created.id, id);
        assert_eq!(routes(&world).list(&cluster()).await.unwrap(), std::slice::from_ref(&created));
        routes(&world).delete(&cluster(), &[created]).await.remove(0).unwrap();
    }
}

/// VS-131
#[tokio::test(start_paused = true)]
async fn a_route_that_another_client_deletes_first_is_no_error() {
    let world = World::new();
    let created = create(&world, spec("100.96.0.0/24", "I10.0.0.1")).await.unwrap();
    world.cloud.vanish_on_delete(&format!("{TIER1}/static-routes/{}", created.id));
    routes(&world).delete(&cluster(), &[created]).await.remove(0).unwrap();
    assert_eq!(world.writes().last().unwrap(), "DELETE infra/tier-1s/{id}/static-routes/{id}");
}

/// VS-132
#[tokio::test(start_paused = true)]
async fn cluster_names_may_have_special_characters() {
    let world = World::new();
    for (number, name) in ["a/b (c):*", "a", "*"].into_iter().enumerate() {
        let cluster = ClusterName::from(name);
        let name_hint = format!("hint-{number}");
        let spec = RouteSpec { name_hint, ..spec(&format!("100.96.{number}.0/24"), "I10.0.0.1") };
        routes(&world).create(&cluster, &[spec]).await.remove(0).unwrap();
        assert_eq!(routes(&world).list(&cluster).await.unwrap().len(), 1, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_route_of_another_cluster_to_the_same_destination_is_an_error_with_its_next_hop() {
    let world = World::new();
    let of = |uid: &str, hop: &str| RouteSpec { cluster_uid: Some(uid.to_owned()), ..spec("100.96.0.0/24", hop) };
    create(&world, of("b", "I10.0.0.9")).await.unwrap();
    let error = create(&world, of("a", "I10.0.0.1")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    let expected =
        " already has destination 100.96.0.0/24 with next hop 10.0.0.9; fix: delete it, or change the pod CIDR";
    assert!(error.to_string().contains(expected), "{error}");
}

/// VS-126
#[test]
fn only_paths_of_gateways_are_router_paths() {
    for valid in ["/infra/tier-1s/a", "/infra/tier-0s/a", "/orgs/o/projects/p/infra/tier-1s/a"] {
        assert_eq!(Gateway::parse(valid).unwrap().path(), valid);
    }
    for invalid in [
        "",
        "/",
        "edge",
        "/infra/tier-1s/",
        "/infra/tier-2s/a",
        "/infra/tier-1s/a/b",
        "/orgs//projects/p/infra/tier-1s/a",
    ] {
        assert!(Gateway::parse(invalid).is_err(), "{invalid:?}");
    }
}
