//! Routes of a router, and allowed address pairs of ports.

use std::net::IpAddr;

use bowline_cloud::{CloudProvider as _, Error, ErrorKind, Routes as _};
use bowline_core::{ClusterName, ProviderId, Route, RouteSpec};
use bowline_openstack_simulator::{Fault, FaultSpec, Kind, NewPort, NewServer, Options};
use futures::future::join_all;
use http::Method;
use serde_json::{Value, json};

use crate::machines::cloud::Cloud;

const CIDR: &str = "10.244.1.0/24";

/// Extensions of Neutron for routes.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Neutron {
    Atomic,
    Classic,
    WithoutPairs,
    WithoutRoutes,
}

fn cloud(neutron: Neutron) -> Cloud {
    let mut options = Options::default();
    options.extensions.retain(|alias| match neutron {
        Neutron::Atomic => true,
        Neutron::Classic => alias != "extraroute-atomic",
        Neutron::WithoutPairs => alias != "allowed-address-pairs",
        Neutron::WithoutRoutes => !alias.starts_with("extraroute"),
    });
    Cloud::with(options, |_| {})
}

fn cluster() -> ClusterName {
    ClusterName::from("kubernetes")
}

impl Cloud {
    /// Adds a server with this address, and returns a route of the CIDR to it.
    async fn spec(&self, address: &str, cidr: &str) -> RouteSpec {
        let at: IpAddr = address.parse().unwrap();
        let id = self.simulator.add_server(NewServer::named("node-1").at(at));
        let instance = self.instance(&id).await;
        RouteSpec {
            name_hint: "uid".to_owned(),
            node: "node-1".into(),
            provider_id: instance.provider_id,
            node_addresses: instance.addresses,
            destination: cidr.parse().unwrap(),
            cluster_uid: None,
        }
    }

    async fn create(&self, spec: &RouteSpec) -> bowline_cloud::Result<Route> {
        self.layers.create_route(&cluster(), spec).await
    }

    async fn delete(&self, route: &Route) -> bowline_cloud::Result<()> {
        self.layers.delete_route(&cluster(), route).await
    }

    /// Lists the routes.
    async fn listed(&self) -> Vec<Route> {
        self.provider.list(&cluster()).await.unwrap()
    }

    /// Returns the routes of the router.
    fn table(&self) -> Vec<String> {
        let router = self.simulator.record(Kind::Router, &self.simulator.fixture().router).unwrap();
        let text = |route: &Value| {
            format!("{} via {}", route["destination"].as_str().unwrap(), route["nexthop"].as_str().unwrap())
        };
        router["routes"].as_array().unwrap().iter().map(text).collect()
    }

    /// Sets the routes of the router.
    fn set_table(&self, routes: &[(&str, &str)]) {
        let routes: Vec<_> = routes
            .iter()
            .map(|(destination, nexthop)| json!({ "destination": destination, "nexthop": nexthop }))
            .collect();
        self.simulator.edit(Kind::Router, &self.simulator.fixture().router, |router| {
            router.insert("routes".to_owned(), json!(routes));
        });
    }

    /// Returns the ID of the port with this address.
    fn port_id(&self, address: &str) -> String {
        let ports = self.simulator.records(Kind::Port);
        let port = ports.iter().find(|port| port["fixed_ips"][0]["ip_address"] == address).unwrap();
        port["id"].as_str().unwrap().to_owned()
    }

    /// Returns the address pairs of the port with this address.
    fn pairs(&self, address: &str) -> Vec<String> {
        let port = self.simulator.record(Kind::Port, &self.port_id(address)).unwrap();
        let pairs = port["allowed_address_pairs"].as_array().unwrap();
        pairs.iter().map(|pair| pair["ip_address"].as_str().unwrap().to_owned()).collect()
    }

    /// Returns the calls since the last time, without those to Keystone.
    fn recent_calls(&self) -> Vec<String> {
        let journal = self.simulator.journal();
        self.simulator.forget_calls();
        let text = journal.iter().map(|entry| format!("{} {}", entry.method, entry.template));
        text.filter(|call| !call.contains("auth/tokens")).collect()
    }
}

fn failed(answer: bowline_cloud::Result<Route>) -> Error {
    answer.expect_err("it should fail")
}

#[tokio::test]
async fn case_168_without_a_router_there_are_no_routes() {
    let cloud = Cloud::configured(|config| config.router_id = None);
    assert!(cloud.provider.routes().is_none() && cloud.provider.capabilities().routes.is_none());
}

#[tokio::test]
async fn without_the_extension_listing_routes_is_an_error() {
    let cloud = cloud(Neutron::WithoutRoutes);
    let error = cloud.provider.list(&cluster()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("extraroute"), "{error}");
    // Nothing is cached that an upgrade of Neutron could change.
    cloud.simulator.configure(|options| options.extensions.push("extraroute-atomic".to_owned()));
    assert_eq!(cloud.listed().await, []);
}

#[tokio::test]
async fn case_169_with_the_atomic_extension_a_route_is_added_without_reading_the_router() {
    let cloud = cloud(Neutron::Atomic);
    let spec = cloud.spec("10.10.0.5", CIDR).await;
    cloud.recent_calls();
    let created = cloud.create(&spec).await.unwrap();
    let calls = cloud.recent_calls();
    assert_eq!(
        calls,
        ["GET extensions", "GET ports", "GET ports", "PUT ports/{id}", "PUT routers/{id}/add_extraroutes"],
        "extensions and attached networks are read once"
    );
    assert_eq!((cloud.table(), cloud.pairs("10.10.0.5")), (vec![created.id.clone()], vec![CIDR.to_owned()]));
    assert_eq!(cloud.listed().await, std::slice::from_ref(&created));
    assert_eq!((created.provider_id, created.blackhole, created.stamped), (spec.provider_id, false, false));
}

#[tokio::test]
async fn request_bodies_are_those_of_the_go_manager() {
    let cloud = cloud(Neutron::Atomic);
    let spec = cloud.spec("10.10.0.5", CIDR).await;
    let own = json!({ "ip_address": "10.10.0.99", "mac_address": "fa:16:3e:00:00:01" });
    cloud.simulator.edit(Kind::Port, &cloud.port_id("10.10.0.5"), |port| {
        port.insert("allowed_address_pairs".to_owned(), json!([own]));
    });
    let created = cloud.create(&spec).await.unwrap();
    cloud.delete(&created).await.unwrap();
    let bodies: Vec<_> = cloud.simulator.writes().into_iter().map(|entry| entry.body).collect();
    let route = json!({ "router": { "routes": [{ "destination": CIDR, "nexthop": "10.10.0.5" }] } });
    let with = json!({ "port": { "allowed_address_pairs": [own, { "ip_address": CIDR }] } });
    let without = json!({ "port": { "allowed_address_pairs": [own] } });
    assert_eq!(bodies, [with, route.clone(), without, route]);
}

#[tokio::test]
async fn case_170_classic_an_existing_route_is_not_written_again() {
    let cloud = cloud(Neutron::Classic);
    let spec = cloud.spec("10.10.0.5", CIDR).await;
    cloud.set_table(&[("10.99.0.0/24", "10.10.0.77")]);
    cloud.create(&spec).await.unwrap();
    assert_eq!(cloud.table(), ["10.99.0.0/24 via 10.10.0.77", "10.244.1.0/24 via 10.10.0.5"]);
    cloud.recent_calls();
    let created = cloud.create(&spec).await.unwrap();
    assert_eq!(cloud.recent_calls(), ["GET ports", "GET routers/{id}"]);
    cloud.delete(&created).await.unwrap();
    assert_eq!(cloud.table(), ["10.99.0.0/24 via 10.10.0.77"]);
    cloud.recent_calls();
    cloud.delete(&created).await.unwrap();
    assert_eq!(cloud.recent_calls(), ["GET ports", "GET routers/{id}"]);
}

#[tokio::test]
async fn case_171_without_its_pair_no_route_is_created() {
    for neutron in [Neutron::Atomic, Neutron::Classic] {
        let cloud = cloud(neutron);
        let spec = cloud.spec("10.10.0.5", CIDR).await;
        cloud.set_table(&[("10.99.0.0/24", "10.10.0.77")]);
        let fault = FaultSpec::always(Fault::Answer(403, String::new())).on(Method::PUT, "ports/{id}");
        let fault = cloud.simulator.inject(fault);
        assert_eq!(failed(cloud.create(&spec).await).kind(), ErrorKind::PermissionDenied);
        assert_eq!(cloud.table(), ["10.99.0.0/24 via 10.10.0.77"], "{neutron:?}");
        cloud.simulator.repair(fault);
        let created = cloud.create(&spec).await.unwrap();
        let fault = FaultSpec::always(Fault::Answer(503, String::new())).on(Method::PUT, "ports/{id}");
        cloud.simulator.inject(fault);
        assert_eq!(cloud.delete(&created).await.unwrap_err().kind(), ErrorKind::Unavailable);
        assert!(cloud.table().contains(&created.id), "{neutron:?}: a route whose pair could not be removed is kept");
    }
}

#[tokio::test]
async fn the_pair_of_a_rejected_route_is_removed() {
    for (neutron, call) in [(Neutron::Atomic, "routers/{id}/add_extraroutes"), (Neutron::Classic, "routers/{id}")] {
        let cloud = cloud(neutron);
        let spec = cloud.spec("10.10.0.5", CIDR).await;
        let fault = FaultSpec::always(Fault::Answer(403, String::new())).on(Method::PUT, call);
        cloud.simulator.inject(fault);
        assert_eq!(failed(cloud.create(&spec).await).kind(), ErrorKind::PermissionDenied);
        assert_eq!((cloud.table(), cloud.pairs("10.10.0.5")), (vec![], vec![]), "{neutron:?}");
    }
}

#[tokio::test]
async fn an_existing_pair_is_kept_if_the_route_is_rejected() {
    let cloud = cloud(Neutron::Atomic);
    let spec = cloud.spec("10.10.0.5", CIDR).await;
    cloud.create(&spec).await.unwrap();
    let fault = FaultSpec::always(Fault::Answer(403, String::new())).on(Method::PUT, "routers/{id}/add_extraroutes");
    cloud.simulator.inject(fault);
    failed(cloud.create(&spec).await);
    assert_eq!((cloud.table().len(), cloud.pairs("10.10.0.5")), (1, vec![CIDR.to_owned()]));
}

/// The process dies before a call, after it, or while it waits for the response: the routes of the router show what is left to do.
#[tokio::test]
async fn interrupted_work_is_detected_and_repeated() {
    let calls = ["ports/{id}", "routers/{id}/add_extraroutes", "routers/{id}/remove_extraroutes"];
    for (call, fault) in calls.iter().flat_map(|call| [(call, Fault::Lost), (call, Fault::AnswerLost)]) {
        let cloud = cloud(Neutron::Atomic);
        let spec = cloud.spec("10.10.0.5", CIDR).await;
        let broken = || FaultSpec::always(fault.clone()).on(Method::PUT, call);
        let counts = || (cloud.table().len(), cloud.pairs("10.10.0.5").len());

        let fault_id = cloud.simulator.inject(broken());
        let created = cloud.create(&spec).await;
        cloud.simulator.repair(fault_id);
        assert!(created.is_ok() || counts().0 <= counts().1, "{call} {fault:?}: a route without its pair is listed");
        if cloud.listed().await.is_empty() {
            cloud.create(&spec).await.unwrap();
        }
        assert_eq!(counts(), (1, 1), "{call} {fault:?}");

        let fault_id = cloud.simulator.inject(broken());
        let deleted = cloud.delete(&cloud.listed().await[0]).await;
        cloud.simulator.repair(fault_id);
        assert!(deleted.is_ok() || counts().1 <= counts().0, "{call} {fault:?}: an orphaned pair is left");
        for route in cloud.listed().await {
            cloud.delete(&route).await.unwrap();
        }
        assert_eq!(counts(), (0, 0), "{call} {fault:?}");
    }
}

#[tokio::test]
async fn a_route_without_its_pair_is_listed_for_recreation() {
    let cloud = cloud(Neutron::Atomic);
    let spec = cloud.spec("10.10.0.5", CIDR).await;
    let created = cloud.create(&spec).await.unwrap();
    assert_eq!(cloud.listed().await, std::slice::from_ref(&created));
    let edit = |key: &str, value: Value| {
        cloud.simulator.edit(Kind::Port, &cloud.port_id("10.10.0.5"), |port| {
            port.insert(key.to_owned(), value.clone());
        });
    };
    // A removal was interrupted after it had removed the pair.
    edit("allowed_address_pairs", json!([]));
    let listed = cloud.listed().await;
    assert_eq!(listed, [Route { node_addresses: Some(Vec::new()), ..created.clone() }]);
    for (pairs, security) in [(json!([{ "ip_address": "10.244.0.0/16" }]), true), (json!([]), false)] {
        edit("allowed_address_pairs", pairs);
        edit("port_security_enabled", json!(security));
        assert_eq!(cloud.listed().await, std::slice::from_ref(&created));
    }
    edit("port_security_enabled", json!(true));
    cloud.delete(&listed[0]).await.unwrap();
    assert_eq!(cloud.create(&spec).await.unwrap(), created);
    assert_eq!((cloud.listed().await, cloud.pairs("10.10.0.5")), (vec![created], vec![CIDR.to_owned()]));
}

#[tokio::test]
async fn without_the_pairs_extension_no_route_needs_a_pair() {
    let cloud = cloud(Neutron::WithoutPairs);
    let created = cloud.create(&cloud.spec("10.10.0.5", CIDR).await).await.unwrap();
    assert_eq!(cloud.listed().await, [created]);
}

#[tokio::test]
async fn a_route_to_an_unused_address_is_an_error() {
    let cloud = cloud(Neutron::Atomic);
    let spec = cloud.spec("10.10.0.5", CIDR).await;
    let id = cloud.provider.list(&cluster()).await.map(|_| cloud.port_id("10.10.0.5")).unwrap();
    cloud.simulator.remove(Kind::Port, &id);
    let error = failed(cloud.create(&spec).await);
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("10.10.0.5"), "{error}");
    assert!(cloud.table().is_empty());
}

#[tokio::test]
async fn a_route_to_the_address_of_another_server_is_an_error() {
    let cloud = cloud(Neutron::Atomic);
    let spec = cloud.spec("10.10.0.5", CIDR).await;
    for id in ["openstack:///nobody", "openstack://R2/nobody", "aws:///x"] {
        let spec = RouteSpec { provider_id: ProviderId::new(id), ..spec.clone() };
        let error = failed(cloud.create(&spec).await);
        assert!(matches!(error.kind(), ErrorKind::NotFound | ErrorKind::InvalidConfig), "{error}");
        assert!(cloud.table().is_empty() && cloud.pairs("10.10.0.5").is_empty());
    }
}

#[tokio::test]
async fn case_172_without_the_pairs_extension_only_the_router_is_written() {
    let cloud = cloud(Neutron::WithoutPairs);
    let spec = cloud.spec("10.10.0.5", CIDR).await;
    cloud.recent_calls();
    let created = cloud.create(&spec).await.unwrap();
    assert_eq!(cloud.recent_calls(), ["GET extensions", "PUT routers/{id}/add_extraroutes"]);
    assert_eq!(cloud.listed().await, std::slice::from_ref(&created));
    cloud.recent_calls();
    cloud.delete(&created).await.unwrap();
    assert_eq!(cloud.recent_calls(), ["PUT routers/{id}/remove_extraroutes"]);
    assert!(cloud.table().is_empty());
}

#[tokio::test]
async fn case_173_a_port_without_port_security_needs_no_pair() {
    let cloud = cloud(Neutron::Atomic);
    let spec = cloud.spec("10.10.0.5", CIDR).await;
    cloud.simulator.edit(Kind::Port, &cloud.port_id("10.10.0.5"), |port| {
        port.insert("port_security_enabled".to_owned(), json!(false));
    });
    let created = cloud.create(&spec).await.unwrap();
    assert_eq!((cloud.table(), cloud.pairs("10.10.0.5")), (vec![created.id], vec![]));
}

#[tokio::test]
async fn case_174_case_175_a_route_with_an_unused_next_hop_is_a_blackhole_and_can_be_deleted() {
    for neutron in [Neutron::Atomic, Neutron::Classic] {
        let cloud = cloud(neutron);
        cloud.set_table(&[(CIDR, "10.10.0.200"), ("10.244.2.0/24", "10.10.0.201")]);
        let listed = cloud.listed().await;
        let blackholes: Vec<_> = listed.iter().filter(|route| route.blackhole && route.provider_id.is_none()).collect();
        assert_eq!(blackholes.len(), 2, "{listed:?}");
        cloud.recent_calls();
        cloud.delete(blackholes[0]).await.unwrap();
        assert_eq!(cloud.table(), ["10.244.2.0/24 via 10.10.0.201"]);
        let wanted: &[&str] = match neutron {
            Neutron::Atomic => &["PUT routers/{id}/remove_extraroutes"],
            _ => &["GET routers/{id}", "PUT routers/{id}"],
        };
        assert_eq!(cloud.recent_calls(), wanted);
    }
}

#[tokio::test]
async fn case_176_for_duplicate_addresses_the_first_network_with_exactly_one_port_counts() {
    let cloud = cloud(Neutron::Atomic);
    let (_, other) = cloud.simulator.add_network("other", "10.10.0.0/16", false);
    cloud.simulator.add_interface(&cloud.simulator.fixture().router, &other);
    let spec = cloud.spec("10.10.0.5", CIDR).await;
    let twin = |subnet: &str| NewPort {
        subnet: subnet.to_owned(),
        addresses: vec!["10.10.0.5".parse().unwrap()],
        ..NewPort::default()
    };
    cloud.simulator.add_server(NewServer { ports: vec![twin(&other)], ..NewServer::named("a") });
    cloud.simulator.add_server(NewServer { ports: vec![twin(&other)], ..NewServer::named("b") });
    let created = cloud.create(&spec).await.unwrap();
    assert_eq!(cloud.listed().await, [created], "two ports have it in the other network, so the server's own counts");
}

#[tokio::test]
async fn case_177_a_foreign_static_route_is_kept() {
    let cloud = cloud(Neutron::Classic);
    cloud.set_table(&[("10.99.0.0/24", "10.10.0.77")]);
    let spec = cloud.spec("10.10.0.5", CIDR).await;
    let created = cloud.create(&spec).await.unwrap();
    assert!(cloud.listed().await.iter().all(|route| !route.stamped), "routes have no mark");
    cloud.delete(&created).await.unwrap();
    assert_eq!(cloud.table(), ["10.99.0.0/24 via 10.10.0.77"]);
}

#[tokio::test]
async fn a_route_through_the_external_network_is_not_listed() {
    let cloud = cloud(Neutron::Atomic);
    cloud.set_table(&[("10.244.0.0/16", "203.0.113.77"), (CIDR, "10.10.0.77")]);
    let ids: Vec<_> = cloud.listed().await.into_iter().map(|route| route.id).collect();
    assert_eq!(ids, ["10.244.1.0/24 via 10.10.0.77"]);
}

#[tokio::test]
async fn case_178_a_node_without_an_address_of_the_family_is_an_error_before_any_call() {
    let cloud = cloud(Neutron::Atomic);
    let spec = cloud.spec("10.10.0.5", "fd00:244::/64").await;
    cloud.recent_calls();
    let error = failed(cloud.create(&spec).await);
    assert_eq!(error.kind(), ErrorKind::InvalidConfig);
    assert!(error.to_string().contains("no address"), "{error}");
    assert!(cloud.recent_calls().is_empty());
}

#[tokio::test]
async fn a_route_to_a_deleted_server_can_be_deleted() {
    let cloud = cloud(Neutron::Atomic);
    let spec = cloud.spec("10.10.0.5", CIDR).await;
    let created = cloud.create(&spec).await.unwrap();
    let server = cloud.simulator.records(Kind::Server)[0]["id"].as_str().unwrap().to_owned();
    cloud.simulator.delete_server(&server);
    assert!(cloud.listed().await.iter().all(|route| route.blackhole));
    cloud.delete(&created).await.unwrap();
    assert!(cloud.table().is_empty());
}

#[tokio::test]
async fn the_pair_of_the_current_owner_of_an_address_is_kept() {
    let cloud = cloud(Neutron::Atomic);
    let spec = cloud.spec("10.10.0.5", CIDR).await;
    let created = cloud.create(&spec).await.unwrap();
    let server = cloud.simulator.records(Kind::Server)[0]["id"].as_str().unwrap().to_owned();
    cloud.simulator.delete_server(&server);
    cloud.spec("10.10.0.5", CIDR).await;
    cloud.simulator.edit(Kind::Port, &cloud.port_id("10.10.0.5"), |port| {
        port.insert("allowed_address_pairs".to_owned(), json!([{ "ip_address": CIDR }]));
    });
    cloud.delete(&created).await.unwrap();
    assert_eq!((cloud.table(), cloud.pairs("10.10.0.5")), (vec![], vec![CIDR.to_owned()]));
}

#[tokio::test]
async fn concurrent_routes_to_one_server_are_all_written() {
    for neutron in [Neutron::Atomic, Neutron::Classic] {
        let cloud = cloud(neutron);
        let spec = cloud.spec("10.10.0.5", CIDR).await;
        let specs: Vec<_> = (0..8)
            .map(|n| RouteSpec { destination: format!("10.244.{n}.0/24").parse().unwrap(), ..spec.clone() })
            .collect();
        let created = join_all(specs.iter().map(|spec| cloud.create(spec))).await;
        assert!(created.iter().all(Result::is_ok), "{created:?}");
        assert_eq!((cloud.table().len(), cloud.pairs("10.10.0.5").len()), (8, 8));
        let created: Vec<_> = created.into_iter().map(Result::unwrap).collect();
        let deleted = join_all(created.iter().map(|route| cloud.delete(route))).await;
        assert!(deleted.iter().all(Result::is_ok), "{deleted:?}");
        assert_eq!((cloud.table().len(), cloud.pairs("10.10.0.5").len()), (0, 0));
    }
}

#[tokio::test]
async fn a_port_changed_by_another_client_is_read_again() {
    let cloud = cloud(Neutron::Atomic);
    let spec = cloud.spec("10.10.0.5", CIDR).await;
    let rejection =
        json!({ "NeutronError": { "type": "RevisionNumberConstraintFailed", "message": "", "detail": "" } });
    let fault = Fault::Answer(412, rejection.to_string());
    cloud.simulator.inject(FaultSpec::always(fault.clone()).on(Method::PUT, "ports/{id}").times(2));
    cloud.create(&spec).await.unwrap();
    assert_eq!(cloud.pairs("10.10.0.5"), [CIDR]);
    cloud.simulator.inject(FaultSpec::always(fault).on(Method::PUT, "ports/{id}"));
    let spec = RouteSpec { destination: "10.244.9.0/24".parse().unwrap(), ..spec };
    assert_eq!(failed(cloud.create(&spec).await).kind(), ErrorKind::Conflict);
    assert_eq!(cloud.table().len(), 1);
}

#[tokio::test]
async fn a_network_attached_later_is_found() {
    let cloud = cloud(Neutron::Atomic);
    cloud.listed().await;
    let (_, subnet) = cloud.simulator.add_network("later", "10.20.0.0/24", false);
    cloud.simulator.add_interface(&cloud.simulator.fixture().router, &subnet);
    let at = NewPort { subnet, addresses: vec!["10.20.0.5".parse().unwrap()], ..NewPort::default() };
    let id = cloud.simulator.add_server(NewServer { ports: vec![at], ..NewServer::named("node-2") });
    let instance = cloud.instance(&id).await;
    let spec = RouteSpec {
        name_hint: String::new(),
        node: "node-2".into(),
        provider_id: instance.provider_id,
        node_addresses: instance.addresses,
        destination: CIDR.parse().unwrap(),
        cluster_uid: None,
    };
    cloud.create(&spec).await.unwrap();
    assert_eq!(cloud.pairs("10.20.0.5"), [CIDR]);
}

#[tokio::test]
async fn the_number_of_calls_of_a_listing_does_not_depend_on_its_size() {
    let cloud = cloud(Neutron::Atomic);
    for count in [3, 250] {
        let routes: Vec<_> = (0..count).map(|n| (format!("10.244.{n}.0/24"), format!("10.10.1.{n}"))).collect();
        for (_, hop) in &routes {
            cloud.simulator.add_server(NewServer::named("node").at(hop.parse().unwrap()));
        }
        cloud.set_table(&routes.iter().map(|(cidr, hop)| (cidr.as_str(), hop.as_str())).collect::<Vec<_>>());
        cloud.listed().await;
        cloud.recent_calls();
        assert_eq!(cloud.listed().await.iter().filter(|route| !route.blackhole).count(), count);
        let mut calls = cloud.recent_calls();
        calls.sort();
        assert_eq!(calls, ["GET ports", "GET ports", "GET routers/{id}"]);
        cloud.simulator.records(Kind::Server).iter().for_each(|server| {
            cloud.simulator.delete_server(server["id"].as_str().unwrap());
        });
    }
}

/// Returns routes to this many new servers.
async fn specs(cloud: &Cloud, count: u8) -> Vec<RouteSpec> {
    let mut specs = Vec::new();
    for n in 0..count {
        specs.push(cloud.spec(&format!("10.10.1.{n}"), &format!("10.244.{n}.0/24")).await);
    }
    specs
}

/// One by one, 200 routes took 600 calls, and 800 without `extraroute-atomic`.
#[tokio::test]
async fn two_hundred_routes_take_one_call_per_port_and_two_or_three_per_fifty() {
    for (neutron, calls) in [(Neutron::Atomic, 208), (Neutron::Classic, 212), (Neutron::WithoutPairs, 4)] {
        let cloud = cloud(neutron).unrecorded();
        let specs = specs(&cloud, 200).await;
        cloud.listed().await;
        cloud.recent_calls();
        let created = join_all(specs.iter().map(|spec| cloud.create(spec))).await;
        let created: Vec<_> = created.into_iter().map(Result::unwrap).collect();
        assert_eq!((cloud.recent_calls().len(), cloud.table().len()), (calls, 200), "{neutron:?}");
        let mut listed = cloud.listed().await;
        listed.sort_by_key(|route| created.iter().position(|created| created.id == route.id));
        assert_eq!(listed, created, "{neutron:?}");
        cloud.recent_calls();
        let deleted = join_all(created.iter().map(|route| cloud.delete(route))).await;
        assert!(deleted.iter().all(Result::is_ok), "{deleted:?}");
        assert_eq!((cloud.recent_calls().len(), cloud.table().len()), (calls, 0), "{neutron:?}");
    }
}

#[tokio::test]
async fn a_rejected_batch_is_written_one_by_one() {
    for (neutron, call) in [(Neutron::Atomic, "routers/{id}/add_extraroutes"), (Neutron::Classic, "routers/{id}")] {
        let cloud = cloud(neutron);
        let specs = specs(&cloud, 3).await;
        // The batch, and the first of its routes.
        let fault = FaultSpec::always(Fault::Answer(400, String::new())).on(Method::PUT, call).times(2);
        cloud.simulator.inject(fault);
        let created = join_all(specs.iter().map(|spec| cloud.create(spec))).await;
        let kinds: Vec<_> = created.iter().map(|created| created.as_ref().map(drop).map_err(Error::kind)).collect();
        assert_eq!(kinds, [Err(ErrorKind::InvalidConfig), Ok(()), Ok(())], "{neutron:?}");
        assert_eq!(cloud.table().len(), 2, "{neutron:?}");
        let pairs = [0, 1, 2].map(|n| cloud.pairs(&format!("10.10.1.{n}")).len());
        assert_eq!(pairs, [0, 1, 1], "{neutron:?}: the pair of the rejected route is removed");
    }
}

#[tokio::test]
async fn rejected_pairs_are_written_one_by_one() {
    let cloud = cloud(Neutron::Atomic);
    let one = cloud.spec("10.10.0.5", CIDR).await;
    let specs = [one.clone(), RouteSpec { destination: "10.244.2.0/24".parse().unwrap(), ..one }];
    let fault = FaultSpec::always(Fault::Answer(400, String::new())).on(Method::PUT, "ports/{id}").times(2);
    cloud.simulator.inject(fault);
    let created = join_all(specs.iter().map(|spec| cloud.create(spec))).await;
    assert_eq!(created.iter().map(Result::is_ok).collect::<Vec<_>>(), [false, true]);
    assert_eq!((cloud.table().len(), cloud.pairs("10.10.0.5")), (1, vec!["10.244.2.0/24".to_owned()]));
}

#[tokio::test]
async fn a_permission_error_is_not_retried_for_each_route() {
    let cloud = cloud(Neutron::WithoutPairs);
    let specs = specs(&cloud, 10).await;
    cloud.listed().await;
    let fault = FaultSpec::always(Fault::Answer(403, String::new())).on(Method::PUT, "routers/{id}/add_extraroutes");
    cloud.simulator.inject(fault);
    cloud.recent_calls();
    let created = join_all(specs.iter().map(|spec| cloud.create(spec))).await;
    assert!(created.into_iter().all(|created| failed(created).kind() == ErrorKind::PermissionDenied));
    assert_eq!(cloud.recent_calls().len(), 1);
}
