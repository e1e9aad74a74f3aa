//! Tests of the services through a client.

use std::time::Duration;

use bowline_openstack_simulator::{Fault, FaultSpec, Kind, NewServer, Options, Service, Simulator, Work};
use http::Method;
use serde_json::{Value, json};

use crate::client::Client;

fn load_balancer(cloud: &Simulator) -> Value {
    let subnet = cloud.fixture().subnet;
    json!({"loadbalancer": {
        "name": "web", "provider": "amphora", "tags": ["x"], "vip_subnet_id": subnet,
        "listeners": [{"name": "l0", "protocol": "TCP", "protocol_port": 80, "tags": ["x"],
            "default_pool": {"name": "p0", "protocol": "TCP", "lb_algorithm": "ROUND_ROBIN",
                "members": [{"name": "n1", "address": "10.10.0.9", "protocol_port": 30080, "subnet_id": subnet}],
                "healthmonitor": {"name": "m0", "type": "TCP", "delay": 5, "timeout": 3, "max_retries": 1}}}],
    }})
}

#[tokio::test]
async fn a_token_has_a_catalog_and_expires() {
    tokio::time::pause();
    let cloud = Simulator::new(Options::default());
    let client = Client::new(&cloud).await;
    assert_eq!(client.catalog.len(), 5);
    assert_eq!(client.get(Service::Compute, "/v2.1/servers/detail").await.0, 200);
    tokio::time::advance(Duration::from_secs(3601)).await;
    assert_eq!(client.get(Service::Compute, "/v2.1/servers/detail").await.0, 401);
    assert_eq!(cloud.authentications(), 1);
}

#[tokio::test]
async fn servers_are_paged_with_links() {
    let cloud = Simulator::new(Options { servers_per_page: 2, ..Options::default() });
    for number in 0..5 {
        cloud.add_server(NewServer::named(&format!("node-{number}")));
    }
    let client = Client::new(&cloud).await;
    let mut path = "/v2.1/servers/detail?limit=1000".to_owned();
    let mut names = Vec::new();
    loop {
        let (_, page) = client.get(Service::Compute, &path).await;
        names.extend(
            page["servers"].as_array().unwrap().iter().map(|server| server["name"].as_str().unwrap().to_owned()),
        );
        let Some(next) = page["servers_links"][0]["href"].as_str() else { break };
        path = next.split_once("/compute").unwrap().1.to_owned();
    }
    assert_eq!(names, ["node-4", "node-3", "node-2", "node-1", "node-0"]);
}

#[tokio::test]
async fn a_fully_populated_load_balancer_is_pending_and_then_active() {
    let cloud = Simulator::new(Options { work: Work::Manual, ..Options::default() });
    let client = Client::new(&cloud).await;
    let (status, created) =
        client.call(Method::POST, Service::LoadBalancer, "/v2.0/lbaas/loadbalancers", load_balancer(&cloud)).await;
    assert_eq!((status, &created["loadbalancer"]["provisioning_status"]), (201, &json!("PENDING_CREATE")));
    let id = created["loadbalancer"]["id"].as_str().unwrap();
    let path = format!("/v2.0/lbaas/loadbalancers/{id}");
    let change = json!({"loadbalancer": {"tags": [""]}});
    let (status, rejected) = client.call(Method::PUT, Service::LoadBalancer, &path, change.clone()).await;
    let message = format!("Invalid state PENDING_CREATE of loadbalancer resource {id}");
    assert_eq!((status, &rejected["faultstring"]), (409, &json!(message)));
    cloud.finish_work();
    let (_, shown) = client.get(Service::LoadBalancer, &path).await;
    assert_eq!(shown["loadbalancer"]["provisioning_status"], "ACTIVE");
    assert_eq!(client.call(Method::PUT, Service::LoadBalancer, &path, change).await.0, 200);
    cloud.finish_work();
    assert_eq!(client.call(Method::DELETE, Service::LoadBalancer, &path, Value::Null).await.0, 400);
    let cascade = format!("{path}?cascade=true");
    assert_eq!(client.call(Method::DELETE, Service::LoadBalancer, &cascade, Value::Null).await.0, 204);
    cloud.finish_work();
    assert_eq!(client.get(Service::LoadBalancer, &path).await.0, 404);
    for kind in [Kind::Listener, Kind::Pool, Kind::Member, Kind::HealthMonitor] {
        assert_eq!(cloud.records(kind).len(), 0, "{kind:?}");
    }
    // The port of the router remains.
    assert_eq!(cloud.records(Kind::Port).len(), 1);
}

#[tokio::test]
async fn a_floating_ip_needs_a_router_and_a_port_has_at_most_one() {
    let cloud = Simulator::new(Options::default());
    let server = cloud.add_server(NewServer::named("node-1"));
    let client = Client::new(&cloud).await;
    let (_, ports) = client.get(Service::Network, &format!("/v2.0/ports?device_id={server}")).await;
    let port = ports["ports"][0]["id"].as_str().unwrap();
    let body = json!({"floatingip": {"floating_network_id": cloud.fixture().external_network, "port_id": port}});
    let (status, created) = client.call(Method::POST, Service::Network, "/v2.0/floatingips", body.clone()).await;
    assert_eq!((status, &created["floatingip"]["router_id"]), (201, &json!(cloud.fixture().router)));
    let (status, rejected) = client.call(Method::POST, Service::Network, "/v2.0/floatingips", body).await;
    assert_eq!((status, &rejected["NeutronError"]["type"]), (409, &json!("FloatingIPPortAlreadyAssociated")));
}

#[tokio::test]
async fn a_crash_loses_the_last_response_and_all_later_requests() {
    let cloud = Simulator::new(Options::default());
    let client = Client::new(&cloud).await;
    cloud.crash_after(2);
    let group = |name: &str| json!({"security_group": {"name": name}});
    let path = "/v2.0/security-groups";
    assert!(client.send(Method::POST, Service::Network, path, group("a")).await.is_ok());
    assert!(client.send(Method::POST, Service::Network, path, group("b")).await.is_err());
    assert!(client.send(Method::POST, Service::Network, path, group("c")).await.is_err());
    cloud.repair_all();
    let names: Vec<_> = cloud.records(Kind::SecurityGroup).iter().map(|group| group["name"].clone()).collect();
    assert_eq!(names, ["default", "k8s-nodes", "a", "b"]);
}

#[tokio::test]
async fn a_fault_only_affects_matching_calls() {
    let cloud = Simulator::new(Options::default());
    let client = Client::new(&cloud).await;
    cloud.inject(FaultSpec::always(Fault::Answer(503, String::new())).on(Method::GET, "ports/{id}").times(1));
    assert_eq!(client.get(Service::Network, "/v2.0/ports").await.0, 200);
    assert_eq!(client.get(Service::Network, "/v2.0/ports/x").await.0, 503);
    assert_eq!(client.get(Service::Network, "/v2.0/ports/x").await.0, 404);
    assert_eq!(cloud.counts()["GET ports/{id}"], 2);
}

#[tokio::test]
async fn the_simulator_serves_http() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let cloud = Simulator::new(Options { close_connections: true, ..Options::default() });
    let server = cloud.serve("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let mut stream = tokio::net::TcpStream::connect(server.address()).await.unwrap();
    stream.write_all(b"GET /load-balancer/ HTTP/1.1\r\nHost: here\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("connection: close"), "{answer}");
    assert!(answer.contains("\"v2.26\"") && answer.contains("http://here/load-balancer/v2"), "{answer}");
}

#[tokio::test]
async fn a_change_takes_time_and_can_end_in_error() {
    tokio::time::pause();
    let cloud = Simulator::new(Options { work: Work::Taking(Duration::from_secs(5)), ..Options::default() });
    let client = Client::new(&cloud).await;
    cloud.fail_work(1);
    let (_, created) =
        client.call(Method::POST, Service::LoadBalancer, "/v2.0/lbaas/loadbalancers", load_balancer(&cloud)).await;
    let path = format!("/v2.0/lbaas/loadbalancers/{}", created["loadbalancer"]["id"].as_str().unwrap());
    let status =
        async || client.get(Service::LoadBalancer, &path).await.1["loadbalancer"]["provisioning_status"].clone();
    tokio::time::advance(Duration::from_secs(4)).await;
    assert_eq!(status().await, "PENDING_CREATE");
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(status().await, "ERROR");
    let change = json!({"loadbalancer": {"name": "other"}});
    assert_eq!(client.call(Method::PUT, Service::LoadBalancer, &path, change).await.0, 409);
    let cascade = format!("{path}?cascade=true");
    assert_eq!(client.call(Method::DELETE, Service::LoadBalancer, &cascade, Value::Null).await.0, 204);
    tokio::time::advance(Duration::from_secs(5)).await;
    assert_eq!(client.get(Service::LoadBalancer, &path).await.0, 404);
}

#[tokio::test]
async fn an_older_octavia_rejects_fields_of_later_versions() {
    for (minor, status) in [(4, 400), (5, 201)] {
        let cloud = Simulator::new(Options { octavia_minor: minor, ..Options::default() });
        let client = Client::new(&cloud).await;
        let path = "/v2.0/lbaas/loadbalancers";
        assert_eq!(
            client.call(Method::POST, Service::LoadBalancer, path, load_balancer(&cloud)).await.0,
            status,
            "{minor}"
        );
    }
}

#[tokio::test]
async fn the_ovn_provider_rejects_unsupported_options() {
    let cloud = Simulator::new(Options::default());
    let client = Client::new(&cloud).await;
    let mut desired = load_balancer(&cloud);
    desired["loadbalancer"]["provider"] = json!("ovn");
    let path = "/v2.0/lbaas/loadbalancers";
    assert_eq!(client.call(Method::POST, Service::LoadBalancer, path, desired.clone()).await.0, 501);
    desired["loadbalancer"]["listeners"][0]["default_pool"]["lb_algorithm"] = json!("SOURCE_IP_PORT");
    assert_eq!(client.call(Method::POST, Service::LoadBalancer, path, desired).await.0, 201);
}

#[tokio::test]
async fn a_rejected_load_balancer_leaves_no_resources() {
    let cloud = Simulator::new(Options::default());
    let client = Client::new(&cloud).await;
    let mut desired = load_balancer(&cloud);
    let members = &mut desired["loadbalancer"]["listeners"][0]["default_pool"]["members"];
    let duplicate = members[0].clone();
    members.as_array_mut().unwrap().push(duplicate);
    let path = "/v2.0/lbaas/loadbalancers";
    assert_eq!(client.call(Method::POST, Service::LoadBalancer, path, desired).await.0, 409);
    for kind in [Kind::LoadBalancer, Kind::Listener, Kind::Pool, Kind::Member, Kind::HealthMonitor] {
        assert_eq!(cloud.records(kind).len(), 0, "{kind:?}");
    }
    assert_eq!(cloud.records(Kind::Port).len(), 1);
}

#[tokio::test]
async fn a_frozen_view_returns_stale_lists_and_accepts_changes() {
    let cloud = Simulator::new(Options::default());
    let client = Client::new(&cloud).await;
    cloud.freeze_view(true);
    let group = json!({"security_group": {"name": "new"}});
    assert_eq!(client.call(Method::POST, Service::Network, "/v2.0/security-groups", group).await.0, 201);
    let listed =
        async || client.get(Service::Network, "/v2.0/security-groups?name=new").await.1["security_groups"].clone();
    assert_eq!(listed().await, json!([]));
    cloud.freeze_view(false);
    assert_eq!(listed().await.as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_throttled_call_has_a_retry_after_header() {
    let cloud = Simulator::new(Options::default());
    cloud.inject(FaultSpec::always(Fault::Throttled(Some(Duration::from_secs(7)))));
    let request = http::Request::get("http://openstack.test/network/v2.0/ports").body(bytes::Bytes::new()).unwrap();
    let answer = cloud.answer(request).await.unwrap();
    assert_eq!((answer.status().as_u16(), &answer.headers()["retry-after"]), (429, &"7".parse().unwrap()));
}

#[tokio::test]
async fn a_missing_role_only_affects_octavia() {
    let cloud = Simulator::new(Options { roles: vec!["member".to_owned()], ..Options::default() });
    let client = Client::new(&cloud).await;
    assert_eq!(client.get(Service::LoadBalancer, "/v2.0/lbaas/loadbalancers").await.0, 403);
    assert_eq!(client.get(Service::Network, "/v2.0/ports").await.0, 200);
    cloud.revoke_tokens();
    assert_eq!(client.get(Service::Network, "/v2.0/ports").await.0, 401);
}

#[tokio::test]
async fn octavia_has_one_flavor_and_one_zone_since_the_versions_that_introduced_them() {
    let cloud = Simulator::new(Options::default());
    let client = Client::new(&cloud).await;
    let (flavor, zone) = (cloud.fixture().octavia_flavor, cloud.fixture().octavia_zone);
    let get = async |path: &str| client.get(Service::LoadBalancer, &format!("/v2.0/lbaas/{path}")).await;
    let (status, shown) = get(&format!("flavors/{flavor}")).await;
    assert_eq!((status, &shown["flavor"]["id"]), (200, &json!(flavor)));
    assert_eq!(get("flavors").await.1, json!({"flavors": [shown["flavor"]], "flavors_links": []}));
    let (status, shown) = get(&format!("availabilityzones/{zone}")).await;
    assert_eq!((status, &shown["availability_zone"]["name"]), (200, &json!(zone)));
    let zones = json!({"availability_zones": [shown["availability_zone"]], "availability_zones_links": []});
    assert_eq!(get(&format!("availabilityzones?name={zone}")).await.1, zones);
    let none = json!({"availability_zones": [], "availability_zones_links": []});
    assert_eq!(get("availabilityzones?name=x").await, (200, none));
    for (path, status, message) in [
        ("flavors/x", 404, "Flavor x not found."),
        ("availabilityzones/x", 404, "Availability Zone x not found."),
        ("flavors?nope=1", 400, "One or more arguments are either duplicate or invalid"),
    ] {
        assert_eq!(
            get(path).await,
            (status, json!({"faultcode": "Client", "faultstring": message, "debuginfo": null}))
        );
    }
    for (minor, path) in [(5, format!("flavors/{flavor}")), (13, format!("availabilityzones/{zone}"))] {
        cloud.configure(|options| options.octavia_minor = minor);
        assert_eq!(get(&path).await.0, 404, "2.{minor}");
    }
}
