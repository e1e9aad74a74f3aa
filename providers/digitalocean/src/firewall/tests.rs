//! Desired firewalls and their comparison. Numbers are those of the cases in `docs/reference/rules.md`.

use std::sync::Arc;

use bowline_core::testing::{annotated, service, service_port};
use serde_json::{Value, json};

use super::*;

const ID: &str = "kubernetes.digitalocean.com/load-balancer-id";
const TYPE: &str = "service.beta.kubernetes.io/do-loadbalancer-type";
const NETWORK: &str = "service.beta.kubernetes.io/do-loadbalancer-network";

fn managed() -> ManagedFirewall {
    ManagedFirewall { name: "fw".to_owned(), tags: vec!["k8s:worker".to_owned()] }
}

fn request(services: &[Service]) -> Result<FirewallSettings> {
    let services: Vec<_> = services.iter().cloned().map(Arc::new).collect();
    desired(&services, &managed(), LoadBalancerType::RegionalNetwork)
}

fn inbound_of(services: &[Service]) -> Vec<String> {
    let rules = request(services).unwrap().inbound_rules.unwrap_or_default();
    let source = |peers: &Peers| {
        if peers.load_balancer_uids.is_empty() { "all".to_owned() } else { peers.load_balancer_uids.join(" ") }
    };
    rules
        .iter()
        .map(|rule| format!("{} {} from {}", rule.protocol, rule.ports, source(rule.sources.as_ref().unwrap())))
        .collect()
}

fn node_port(port: u16) -> Service {
    let port = ServicePort { node_port: Some(port), ..service_port(Protocol::Tcp, 80) };
    Service { kind: ServiceType::NodePort, ports: vec![port], ..service("default/node-port") }
}

fn load_balancer(name: &str, ports: &[u16], annotations: &[(&str, &str)]) -> Service {
    let ports = ports.iter().map(|port| service_port(Protocol::Tcp, *port)).collect();
    Service { ports, ..annotated(service(&format!("default/{name}")), annotations) }
}

fn firewall(settings: Value) -> FirewallSettings {
    serde_json::from_value::<Firewall>(settings).unwrap().settings
}

/// The body of the specification, with all its keys and nothing else.
#[test]
fn the_request_is_that_of_the_go_manager() {
    let anywhere = json!({"addresses": ["0.0.0.0/0", "::/0"]});
    let expected = json!({"name": "fw", "droplet_ids": null, "tags": ["k8s:worker"],
        "inbound_rules": [{"protocol": "tcp", "ports": "30080", "sources": anywhere}],
        "outbound_rules": [{"protocol": "tcp", "ports": "all", "destinations": anywhere},
            {"protocol": "udp", "ports": "all", "destinations": anywhere}, {"protocol": "icmp", "destinations": anywhere}]});
    assert_eq!(serde_json::to_value(request(&[node_port(30080)]).unwrap()).unwrap(), expected);
}

#[test]
fn do_44_to_46_equal_firewalls() {
    let own = request(&[node_port(30080), node_port(30081)]).unwrap();
    let all = json!(["::/0", "0.0.0.0/0"]);
    let reported =
        firewall(json!({"id": "1", "name": "fw", "tags": ["k8s:worker"], "droplet_ids": [1], "status": "succeeded",
        "inbound_rules": [{"protocol": "tcp", "ports": "30081", "sources": {"addresses": all, "tags": ["x"]}},
            {"protocol": "tcp", "ports": "30080", "sources": {"addresses": all}}],
        "outbound_rules": [{"protocol": "udp", "ports": "0", "destinations": {"addresses": all}},
            {"protocol": "icmp", "ports": "0", "destinations": {"addresses": all}},
            {"protocol": "tcp", "ports": "0", "destinations": {"addresses": all}}]}));
    assert_eq!(changes(&reported, &own), []);
    let more = request(&[node_port(30080), node_port(30081), node_port(30082)]).unwrap();
    let changes = changes(&reported, &more);
    assert_eq!(
        (changes.len(), changes[0].from.as_deref(), changes[0].to.as_deref()),
        (1, None, Some("tcp 30082 (0.0.0.0/0 ::/0)"))
    );
}

#[test]
fn do_47_without_ports_the_firewall_has_no_inbound_rules() {
    let cluster_ip = Service { kind: ServiceType::ClusterIP, ..service("default/web") };
    let request = serde_json::to_value(request(&[cluster_ip]).unwrap()).unwrap();
    assert_eq!(request["inbound_rules"], Value::Null);
}

#[test]
fn do_48_proxies_and_internal_load_balancers_need_no_rules() {
    let services = [
        load_balancer("proxy", &[80], &[(TYPE, "REGIONAL")]),
        load_balancer("internal", &[81], &[(NETWORK, "INTERNAL")]),
        load_balancer("common", &[82], &[("bowline.dev/internal", "true")]),
    ];
    assert_eq!(inbound_of(&services), Vec::<String>::new());
}

#[test]
fn do_49_and_53_rules_of_load_balancers() {
    let services = [load_balancer("a", &[443], &[]), load_balancer("b", &[443, 80], &[])];
    assert_eq!(inbound_of(&services), ["tcp 10256 from all", "tcp 443 from all", "tcp 80 from all"], "DO-49");
    let services = [load_balancer("a", &[443], &[(ID, "lb-1")]), load_balancer("b", &[443], &[])];
    assert_eq!(inbound_of(&services), ["tcp 10256 from lb-1", "tcp 10256 from all", "tcp 443 from all"], "DO-53");
    let local = Service {
        traffic_policy: TrafficPolicy::Local,
        health_check_node_port: Some(31000),
        ..load_balancer("a", &[443], &[])
    };
    assert_eq!(inbound_of(&[local]), ["tcp 31000 from all", "tcp 443 from all"]);
}

#[test]
fn do_52_an_invalid_type_fails_the_whole_firewall() {
    for (key, value, message) in [
        (
            TYPE,
            "bogus",
            "failed to get load balancer type for service default/bad: only LB types supported are (REGIONAL, REGIONAL_NETWORK)",
        ),
        (
            NETWORK,
            "bogus",
            "failed to get load balancer network for service default/bad: only LB networks supported are (EXTERNAL, INTERNAL)",
        ),
    ] {
        let error = request(&[node_port(30080), load_balancer("bad", &[80], &[(key, value)])]).unwrap_err();
        assert_eq!(error.to_string(), format!("failed to create reconciled firewall request: {message}"));
    }
}

#[test]
fn a_service_of_type_node_port_can_be_excluded() {
    let managed = "kubernetes.digitalocean.com/firewall-managed";
    assert_eq!(inbound_of(&[annotated(node_port(30080), &[(managed, "false")])]), Vec::<String>::new());
    assert_eq!(inbound_of(&[annotated(node_port(30080), &[(managed, "maybe")])]), ["tcp 30080 from all"]);
    let ignored = annotated(load_balancer("a", &[443], &[]), &[(managed, "false")]);
    assert_eq!(inbound_of(&[ignored]).len(), 2);
}
