//! Security groups.

use bowline_cloud::{ErrorKind, LoadBalancers as _};
use bowline_core::{LoadBalancerState, Protocol, ProviderId, TargetNode};
use bowline_openstack::Config;
use bowline_openstack_simulator::{Fault, FaultSpec, Kind, NewPort, NewServer, Options, Record};
use http::Method;
use serde_json::{Value, json};

use crate::balancers_end_to_end::world::{Service, World, add_node, text};

fn managed(config: &mut Config) {
    config.load_balancer.manage_security_groups = true;
}

fn world() -> World {
    World::with(Options::default(), |config, _| managed(config))
}

/// Rules of the Service's group: protocol, port, source.
fn rules(world: &World) -> Vec<String> {
    let group = world.groups().remove(0);
    let rules = world.cloud.records(Kind::SecurityGroupRule).into_iter();
    let own = rules.filter(|rule| text(rule, "security_group_id") == text(&group, "id"));
    let mut rules: Vec<_> = own.map(|rule| rule_text(&rule)).collect();
    rules.sort();
    rules
}

fn rule_text(rule: &Record) -> String {
    let (protocol, from) = (text(rule, "protocol"), text(rule, "remote_ip_prefix"));
    format!("{} {protocol} {} {from} {}", text(rule, "direction"), rule["port_range_min"], text(rule, "ethertype"))
}

/// Servers whose ports have the Service's group.
fn members(world: &World) -> Vec<String> {
    let group = world.groups().remove(0);
    let ports = world.cloud.records(Kind::Port).into_iter();
    let own = ports.filter(|port| port["security_groups"].as_array().unwrap().contains(&group["id"]));
    own.map(|port| text(&port, "device_id").to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn case_139_and_143_only_node_ports_are_open_to_the_member_subnet() {
    let world = world();
    let mut web = world.service();
    web.ports(&[(Protocol::Tcp, 80, 30080), (Protocol::Udp, 53, 30053)]);
    world.ensure(&mut web).await.unwrap();
    assert_eq!(rules(&world), ["ingress tcp 30080 10.10.0.0/16 IPv4", "ingress udp 30053 10.10.0.0/16 IPv4"]);
    let group = world.groups().remove(0);
    assert_eq!(text(&group, "name"), format!("lb-sg-{}-default-web", web.key.uid));
    let description = "Security Group for default/web Service LoadBalancer in cluster kubernetes";
    assert_eq!(text(&group, "description"), description);
    assert_eq!(members(&world).len(), 2);
    web.local(31000);
    world.ensure(&mut web).await.unwrap();
    assert!(rules(&world).contains(&"ingress tcp 31000 10.10.0.0/16 IPv4".to_owned()));
    world.cloud.forget_calls();
    world.ensure(&mut web).await.unwrap();
    assert_eq!(world.writes(), Vec::<String>::new());
    world.remove(&mut web).await.unwrap();
    world.assert_empty();
}

#[tokio::test(start_paused = true)]
async fn an_uppercase_id_gets_the_group_and_a_node_of_another_region_is_skipped() {
    let world = world();
    let mut web = world.service();
    web.spec.targets.edit(|targets| {
        let id = targets[0].provider_id.as_ref().and_then(|id| id.rest()).unwrap().to_uppercase();
        targets[0].provider_id = ProviderId::new(&format!("openstack://{id}"));
        let provider_id = ProviderId::new("openstack://elsewhere/8f2c");
        targets.push(TargetNode { provider_id, node: "elsewhere".into(), ..targets[1].clone() });
    });
    world.ensure(&mut web).await.unwrap();
    assert_eq!(members(&world).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn case_140_with_ovn_node_ports_are_open_to_the_source_ranges() {
    let world = World::with(Options::default(), |config, _| {
        managed(config);
        config.load_balancer.provider = "ovn".to_owned();
        config.load_balancer.method = "SOURCE_IP_PORT".to_owned();
    });
    let mut web = world.service();
    web.ports(&[(Protocol::Tcp, 80, 30080), (Protocol::Udp, 53, 30053)]);
    web.spec.source_ranges = vec!["198.51.100.0/24".parse().unwrap(), "192.0.2.0/24".parse().unwrap()];
    world.ensure(&mut web).await.unwrap();
    assert_eq!(rules(&world).len(), 4, "{:?}", rules(&world));
    assert!(rules(&world).contains(&"ingress udp 30053 192.0.2.0/24 IPv4".to_owned()));
    web.spec.source_ranges = Vec::new();
    world.ensure(&mut web).await.unwrap();
    assert_eq!(rules(&world), ["ingress tcp 30080 0.0.0.0/0 IPv4", "ingress udp 30053 0.0.0.0/0 IPv4"]);
}

#[tokio::test(start_paused = true)]
async fn case_141_and_150_rules_have_the_cidr_of_the_member_subnet() {
    let world = World::with(Options::default(), |config, cloud| {
        managed(config);
        let members = cloud.add_subnet(&cloud.fixture().network, "six", "2001:db8:6::/64");
        config.load_balancer.placement.member_subnet_id = members;
    });
    world.ensure(&mut world.service()).await.unwrap();
    assert_eq!(rules(&world), ["ingress tcp 30080 2001:db8:6::/64 IPv6"]);
}

#[tokio::test(start_paused = true)]
async fn case_142_for_another_node_port_the_new_rule_is_created_before_the_old_one_is_deleted() {
    let world = world();
    let mut web = world.service();
    world.ensure(&mut web).await.unwrap();
    world.cloud.forget_calls();
    web.ports(&[(Protocol::Tcp, 80, 30081)]);
    world.ensure(&mut web).await.unwrap();
    assert_eq!(rules(&world), ["ingress tcp 30081 10.10.0.0/16 IPv4"]);
    let writes = world.writes();
    let place = |call: &str| writes.iter().position(|write| write == call).unwrap();
    assert!(place("POST security-group-rules") < place("DELETE security-group-rules/{id}"), "{writes:?}");
}

#[tokio::test(start_paused = true)]
async fn case_144_and_145_only_the_member_port_with_port_security_gets_the_group() {
    let mut world = world();
    let (_, other) = world.cloud.add_network("storage", "172.16.0.0/24", false);
    let ports = vec![NewPort::default(), NewPort { subnet: other, ..NewPort::default() }];
    let two = world.cloud.add_server(NewServer { ports, ..NewServer::named("node-two-ports") });
    let open = add_node(&world.cloud, "node-open");
    let of = |server: &str| {
        let ports = world.cloud.records(Kind::Port).into_iter();
        ports.filter(|port| text(port, "device_id") == server).collect::<Vec<_>>()
    };
    let open_id = open.provider_id.as_ref().unwrap().as_str().trim_start_matches("openstack:///").to_owned();
    world.cloud.edit(Kind::Port, text(&of(&open_id)[0], "id"), |port| {
        port.insert("port_security_enabled".to_owned(), json!(false));
        port.insert("security_groups".to_owned(), json!([]));
    });
    let reached = of(&two).iter().find_map(|port| {
        let ip = port["fixed_ips"][0]["ip_address"].as_str()?.to_owned();
        ip.starts_with("10.10.").then_some(ip)
    });
    let mut target = open.clone();
    target.provider_id = bowline_core::ProviderId::new(&format!("openstack:///{two}"));
    target.node = "node-two-ports".into();
    target.addresses[0].address = reached.unwrap();
    world.nodes = vec![target, open];
    world.ensure(&mut world.service()).await.unwrap();
    assert_eq!(members(&world), [two]);
}

#[tokio::test(start_paused = true)]
async fn case_146_the_group_is_deleted_once_groups_are_not_managed() {
    let mut world = world();
    let mut web = world.service();
    world.ensure(&mut web).await.unwrap();
    assert_eq!(world.groups().len(), 1);
    world.reconfigure(|config| config.load_balancer.manage_security_groups = false);
    world.ensure(&mut web).await.unwrap();
    assert_eq!(world.groups(), Vec::<Record>::new());
}

#[tokio::test(start_paused = true)]
async fn case_147_an_existing_rule_is_no_error() {
    let world = world();
    let fault =
        r#"{"NeutronError": {"type": "SecurityGroupRuleExists", "message": "Security group rule already exists."}}"#;
    let exists = Fault::Answer(409, fault.to_owned());
    world.cloud.inject(FaultSpec::always(exists).on(Method::POST, "security-group-rules").times(1));
    world.ensure(&mut world.service()).await.unwrap();
    assert_eq!(rules(&world).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn exceeding_the_rule_quota_is_an_error() {
    let world = world();
    world.cloud.set_quota("security_group_rule", Some(0));
    let mut web = world.service();
    assert_eq!(world.ensure(&mut web).await.unwrap_err().kind(), ErrorKind::QuotaExceeded);
    world.cloud.set_quota("security_group_rule", None);
    world.ensure(&mut web).await.unwrap();
    assert_eq!((rules(&world).len(), world.groups().len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn case_148_deleting_a_group_in_use_is_retried() {
    let world = world();
    let mut web = world.service();
    world.ensure(&mut web).await.unwrap();
    let used =
        Fault::Answer(409, r#"{"NeutronError": {"type": "SecurityGroupInUse", "message": "in use"}}"#.to_owned());
    world.cloud.inject(FaultSpec::always(used).on(Method::DELETE, "security-groups/{id}").times(1));
    let error = world.remove(&mut web).await.unwrap_err();
    assert_eq!((error.kind(), error.retry_advice()), (ErrorKind::Conflict, bowline_cloud::Retry::Backoff));
    world.remove(&mut web).await.unwrap();
    world.assert_empty();
}

/// Deletes everything but the security groups, as a user would.
fn delete_balancers(world: &World) {
    for kind in [Kind::Member, Kind::HealthMonitor, Kind::Pool, Kind::Listener, Kind::FloatingIp, Kind::LoadBalancer] {
        world.cloud.records(kind).iter().for_each(|record| {
            world.cloud.remove(kind, text(record, "id"));
        });
    }
}

/// `default/web` recreated, as a Service with another UID.
fn recreated(world: &World, number: usize) -> Service {
    let mut web = world.service();
    web.key.uid = format!("fedcba98-7654-3210-fedc-{number:0>12}");
    web
}

#[tokio::test(start_paused = true)]
async fn groups_of_earlier_services_of_the_name_are_replaced() {
    for left in [1, 2] {
        let world = world();
        for number in 0..left {
            let group = json!({
                "name": format!("lb-sg-fedcba98-7654-3210-fedc-{number:0>12}-default-web"),
                "description": "Security Group for default/web Service LoadBalancer in cluster kubernetes",
            });
            let group = world.cloud.add(Kind::SecurityGroup, group);
            let ports = world.cloud.records(Kind::Port).into_iter();
            for port in ports.filter(|port| text(port, "device_owner").starts_with("compute:")) {
                world.cloud.edit(Kind::Port, text(&port, "id"), |port| {
                    port.get_mut("security_groups").and_then(Value::as_array_mut).unwrap().push(json!(group));
                });
            }
        }
        let mut web = recreated(&world, 9);
        world.ensure(&mut web).await.unwrap();
        let names: Vec<_> = world.groups().iter().map(|group| text(group, "name").to_owned()).collect();
        assert_eq!(names, [format!("lb-sg-{}-default-web", web.key.uid)], "{left} groups existed");
        assert_eq!((rules(&world).len(), members(&world).len()), (1, 2));
        let writes = world.writes();
        let last = |call: &str| writes.iter().rposition(|write| write == call).unwrap();
        assert!(last("DELETE security-groups/{id}") > last("POST security-group-rules"), "{writes:?}");
        world.remove(&mut web).await.unwrap();
        world.assert_empty();
    }
}

#[tokio::test(start_paused = true)]
async fn a_stale_group_is_deleted_if_groups_are_listed_or_with_the_service() {
    let world = world();
    let mut web = world.service();
    world.ensure(&mut web).await.unwrap();
    let leave = |number: usize| {
        let name = format!("lb-sg-fedcba98-7654-3210-fedc-{number:0>12}-default-web");
        let description = "Security Group for default/web Service LoadBalancer in cluster kubernetes";
        world.cloud.add(Kind::SecurityGroup, json!({"name": name, "description": description}));
    };
    leave(1);
    let planned = |seen: Option<LoadBalancerState>| {
        let plan = world.provider.plan(&world.desired(&web, true), seen.as_ref()).unwrap();
        plan.steps.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let wanted = [world.desired(&web, true), world.desired(&world.named("another"), true)];
    let alone = world.provider.observe(&wanted[..1]).await.remove(0).unwrap();
    assert_eq!(planned(alone), [""; 0], "it would take one more call in every sync");
    let listed = world.provider.observe(&wanted).await.remove(0).unwrap();
    assert_eq!(planned(listed), ["delete security group lb-sg-fedcba98-7654-3210-fedc-000000000001-default-web"]);
    world.remove(&mut web).await.unwrap();
    world.assert_empty();
}

#[tokio::test(start_paused = true)]
async fn the_group_of_an_earlier_service_is_taken_over_with_its_load_balancer() {
    let world = world();
    world.ensure(&mut world.service()).await.unwrap();
    let mut successor = recreated(&world, 9);
    world.cloud.forget_calls();
    world.ensure(&mut successor).await.unwrap();
    assert_eq!(world.writes(), Vec::<String>::new());
    world.remove(&mut successor).await.unwrap();
    world.assert_empty();
}

#[tokio::test(start_paused = true)]
async fn case_149_the_group_is_deleted_with_its_service_although_the_load_balancer_is_missing() {
    let world = world();
    let mut web = world.service();
    world.ensure(&mut web).await.unwrap();
    delete_balancers(&world);
    world.remove(&mut web).await.unwrap();
    world.assert_empty();
}

#[tokio::test(start_paused = true)]
async fn a_port_changed_by_two_services_concurrently_has_both_groups() {
    let world = world();
    let (mut one, mut other) = (world.named("one"), world.named("another"));
    // Both were planned with the same ports.
    let (_, first) = world.plan(&mut one, true).await.unwrap();
    let (_, second) = world.plan(&mut other, true).await.unwrap();
    for (service, plan) in [(&one, &first), (&other, &second)] {
        for step in &plan.steps {
            world.provider.apply(&service.key, step, None).await.unwrap();
        }
    }
    let groups: Vec<_> = world.groups().iter().map(|group| text(group, "id").to_owned()).collect();
    let ports = world.cloud.records(Kind::Port).into_iter();
    let of_servers: Vec<_> = ports.filter(|port| text(port, "device_owner").starts_with("compute:")).collect();
    assert_eq!((groups.len(), of_servers.len()), (2, 2));
    for port in of_servers {
        let has = port["security_groups"].as_array().unwrap().clone();
        assert!(groups.iter().all(|group| has.contains(&json!(group))), "{port:?}");
    }
}

/// Neutron answers 404 for a deleted group before it compares revisions, although the port exists.
#[tokio::test(start_paused = true)]
async fn a_port_write_with_a_deleted_group_is_retried() {
    let mut world = world();
    let mut web = world.service();
    world.ensure(&mut web).await.unwrap();
    let added = add_node(&world.cloud, "node-3");
    world.nodes.push(added);
    web.spec.targets = world.nodes.clone().into();
    // The port of the new node has a group that is deleted before the plan is applied, as if by another process.
    let group = world.cloud.add(Kind::SecurityGroup, json!({"name": "short-lived"}));
    let ports = world.cloud.records(Kind::Port);
    let port =
        ports.iter().find(|port| port["fixed_ips"][0]["ip_address"] == world.nodes[2].addresses[0].address.as_str());
    let id = text(port.unwrap(), "id").to_owned();
    let mut groups = port.unwrap()["security_groups"].as_array().unwrap().clone();
    groups.push(json!(group));
    assert!(world.cloud.edit(Kind::Port, &id, |port| drop(port.insert("security_groups".to_owned(), groups.into()))));
    let stale = world.plan(&mut web, true).await.unwrap().1;
    assert!(world.cloud.edit(Kind::Port, &id, |port| {
        port["security_groups"].as_array_mut().unwrap().pop();
        port.insert("revision_number".to_owned(), json!(77));
    }));
    assert!(world.cloud.remove(Kind::SecurityGroup, &group));
    world.restart();
    world.cloud.forget_calls();
    for step in &stale.steps {
        world.apply(&mut web, step).await.unwrap();
    }
    let answers: Vec<_> =
        world.cloud.writes().iter().filter(|entry| entry.template == "ports/{id}").map(|it| it.status).collect();
    assert_eq!(answers, [Some(404), Some(200)]);
    let own = format!("lb-sg-{}-default-web", web.key.uid);
    let own = world.groups().into_iter().find(|group| text(group, "name") == own).unwrap();
    assert!(world.cloud.record(Kind::Port, &id).unwrap()["security_groups"].as_array().unwrap().contains(&own["id"]));
}

/// Both Services read the ports before the other one writes them.
#[tokio::test(start_paused = true)]
async fn concurrent_writes_of_services_to_the_same_ports_do_not_conflict() {
    let world = world();
    let mut services: Vec<Service> = ["a", "bb", "ccc", "dddd"].iter().map(|name| world.named(name)).collect();
    futures::future::join_all(services.iter_mut().map(|service| world.ensure(service))).await;
    let rejected = |world: &World| {
        let calls = world.cloud.journal().into_iter().filter(|entry| entry.status >= Some(400));
        calls.map(|entry| format!("{:?} {} {}", entry.status, entry.method, entry.path)).collect::<Vec<_>>()
    };
    assert_eq!(rejected(&world), Vec::<String>::new());
    assert_eq!(world.writes().iter().filter(|write| *write == "PUT ports/{id}").count(), 8);
    world.cloud.forget_calls();
    futures::future::join_all(services.iter_mut().map(|service| world.remove(service))).await;
    assert_eq!(rejected(&world).iter().filter(|call| call.contains("ports")).count(), 0, "{:?}", rejected(&world));
    assert_eq!(world.groups().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn port_tags_of_early_releases_are_removed() {
    let world = world();
    let mut web = world.service();
    world.ensure(&mut web).await.unwrap();
    let group = text(&world.groups()[0], "id").to_owned();
    let mut ports = world.cloud.records(Kind::Port).into_iter();
    let port = ports.find(|port| text(port, "device_owner").starts_with("compute:")).unwrap();
    world.cloud.edit(Kind::Port, text(&port, "id"), |port| {
        port.insert("tags".to_owned(), json!([group, "mine"]));
    });
    world.remove(&mut web).await.unwrap();
    assert_eq!(world.cloud.record(Kind::Port, text(&port, "id")).unwrap()["tags"], json!(["mine"]));
    world.assert_empty();
}
