//! Requests for load balancers. Numbers are those of the cases in `docs/reference/rules.md`.

use bowline_core::annotations::{LoadBalancerSettings, read};
use bowline_core::service;
use bowline_core::testing::{addresses, annotated, service as plain_service, service_port};
use bowline_core::{ClusterName, DesiredLoadBalancer, Protocol, ProviderId, Service, TargetNode, TrafficPolicy};
use serde_json::{Value, json};

use super::compare;
use super::request::{BuildError, CertificateLookup, Inputs, LoadBalancerType, Lookups, legacy_name};
use crate::api::LoadBalancer;
use crate::config::{Config, Keys};

const LB: &str = "service.beta.kubernetes.io/do-loadbalancer-";

/// A Service of type LoadBalancer with these annotations below [`LB`].
fn web(annotations: &[(&str, &str)]) -> Service {
    let keys: Vec<_> = annotations.iter().map(|(key, value)| (format!("{LB}{key}"), *value)).collect();
    let keys: Vec<_> = keys.iter().map(|(key, value)| (key.as_str(), *value)).collect();
    annotated(plain_service("default/web"), &keys)
}

fn regional(annotations: &[(&str, &str)]) -> Service {
    web(&[&[("type", "REGIONAL")], annotations].concat())
}

fn with_ports(service: Service, ports: &[(Protocol, u16)]) -> Service {
    Service { ports: ports.iter().map(|(protocol, port)| service_port(*protocol, *port)).collect(), ..service }
}

/// Nodes, each as its addresses; the ID of their Droplets counts from 1001.
fn nodes(all: &[&str]) -> Vec<TargetNode> {
    let node = |(index, text): (usize, &&str)| TargetNode {
        node: format!("node-{}", index + 1).as_str().into(),
        provider_id: Some(ProviderId::of("digitalocean", &(1001 + index).to_string())),
        addresses: addresses(text),
        draining: false,
    };
    all.iter().enumerate().map(node).collect()
}

const PUBLIC: &str = "I10.0.0.1 E198.51.100.1";
const DUAL: &str = "I10.0.0.1 E198.51.100.1 E2001:db8::1";
const PRIVATE: &str = "I10.0.0.1";
const V6_ONLY: &str = "E2001:db8::1";

fn desired(service: &Service, targets: Vec<TargetNode>) -> DesiredLoadBalancer {
    let settings = read(&service.annotations).unwrap_or_else(|_| LoadBalancerSettings::default());
    service::desired(&ClusterName::from("kubernetes"), service, &settings, targets.into()).unwrap()
}

fn build_with(
    config: &Config,
    lookups: &Lookups,
    existing: Option<&LoadBalancer>,
    desired: &DesiredLoadBalancer,
) -> Result<Value, BuildError> {
    let spec = desired.spec.as_deref().unwrap();
    let inputs = Inputs { config, region: "fra1", desired, spec, existing, lookups, has_nodes: true };
    inputs.build().map(|request| request.to_body())
}

fn build(service: &Service, addresses: &[&str]) -> Result<Value, String> {
    let certificate = match service.annotations.get(&format!("{LB}certificate-id")) {
        Some(id) if !id.is_empty() => CertificateLookup::Found(id.clone()),
        _ => CertificateLookup::None,
    };
    let lookups = Lookups { certificate, ..Lookups::default() };
    build_with(&Config::default(), &lookups, None, &desired(service, nodes(addresses))).map_err(|error| error.message)
}

fn rules(service: &Service) -> Vec<String> {
    let request = build(service, &[PUBLIC]).unwrap();
    let rules = request["forwarding_rules"].as_array().unwrap();
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let rule = |rule: &Value| {
        let fields = ["entry_protocol", "entry_port", "target_protocol", "target_port"].map(|field| text(&rule[field]));
        let tls = rule.get("certificate_id").map(|id| format!(" {}", text(id))).unwrap_or_default();
        fields.join(" ") + &tls + if rule["tls_passthrough"] == true { " passthrough" } else { "" }
    };
    rules.iter().map(rule).collect()
}

fn error(service: &Service) -> String {
    build(service, &[PUBLIC]).unwrap_err()
}

#[test]
fn do_1_and_2_the_name_is_the_uid_without_dashes_cut_to_32_characters() {
    assert_eq!(legacy_name("abc123"), "aabc123");
    assert_eq!(legacy_name("a0b1c2d3-e4f5-0617-2839-4a5b6c7d8e9f"), "aa0b1c2d3e4f5061728394a5b6c7d8e9");
}

/// The body of the specification, with all its keys and nothing else.
#[test]
fn the_default_request_is_that_of_the_go_manager() {
    let keys = Keys { cluster_id: "c1".to_owned(), vpc_id: "v1".to_owned(), ..Keys::default() };
    let config = Config { keys, ..Config::default() };
    let service = Service { uid: "a0b1c2d3-e4f5-0617-2839-4a5b6c7d8e9f".to_owned(), ..web(&[]) };
    let request = build_with(&config, &Lookups::default(), None, &desired(&service, nodes(&[PUBLIC, PUBLIC]))).unwrap();
    let expected = json!({"name": "aa0b1c2d3e4f5061728394a5b6c7d8e9", "algorithm": "round_robin", "region": "fra1",
        "type": "REGIONAL_NETWORK",
        "forwarding_rules": [{"entry_protocol": "tcp", "entry_port": 80, "target_protocol": "tcp", "target_port": 80}],
        "health_check": {"protocol": "http", "port": 10256, "path": "/healthz", "check_interval_seconds": 3,
            "response_timeout_seconds": 5, "healthy_threshold": 5, "unhealthy_threshold": 3, "proxy_protocol": false},
        "sticky_sessions": {"type": "none"}, "droplet_ids": [1001, 1002], "tags": ["k8s:c1"], "vpc_uuid": "v1",
        "disable_lets_encrypt_dns_records": false, "firewall": {}, "network": "EXTERNAL", "network_stack": "IPV4"});
    assert_eq!(request, expected);
}

#[test]
fn do_15_no_nodes_at_all() {
    assert_eq!(build(&web(&[]), &[]).unwrap_err(), "no ready nodes available for load balancer");
}

#[test]
fn do_16_to_20_tls_of_a_proxy() {
    let https = |annotations: &[(&str, &str)]| with_ports(regional(annotations), &[(Protocol::Tcp, 443)]);
    let tls = "failed to build TLS part(s) of forwarding rule: ";
    assert_eq!(
        error(&https(&[("tls-ports", "443")])),
        format!("{tls}must set certificate id or enable tls pass through"),
        "DO-16"
    );
    assert_eq!(
        error(&https(&[("certificate-id", "c1"), ("tls-passthrough", "true")])),
        format!("{tls}either certificate id should be set or tls pass through enabled, not both"),
        "DO-17"
    );
    let blank = error(&regional(&[("http-ports", "80, 8080")]));
    assert_eq!(blank, "strconv.Atoi: parsing \" 8080\": invalid syntax", "DO-18");
    assert_eq!(rules(&https(&[("tls-passthrough", "maybe")])), ["tcp 443 tcp 30443"], "DO-19");
    let udp = with_ports(regional(&[("http-ports", "53")]), &[(Protocol::Udp, 53)]);
    assert_eq!(rules(&udp), ["udp 53 udp 30053"], "DO-20");
    assert_eq!(rules(&https(&[("certificate-id", "c1")])), ["https 443 http 30443 c1"]);
    assert_eq!(rules(&https(&[("tls-passthrough", "true")])), ["https 443 https 30443 passthrough"]);
}

#[test]
fn do_21_sctp() {
    for service in [web(&[]), regional(&[])] {
        let service = with_ports(service, &[(Protocol::Sctp, 80)]);
        assert_eq!(error(&service), "only TCP or UDP protocol is supported, got: \"SCTP\"");
    }
}

#[test]
fn do_22_and_23_sizes() {
    let both = web(&[("size-slug", "lb-medium"), ("size-unit", "2")]);
    assert_eq!(error(&both), "only one of LB size slug and size unit can be provided", "DO-22");
    let request = build(&web(&[("size-slug", "lb-small"), ("size-unit", "0")]), &[PUBLIC]).unwrap();
    assert_eq!((&request["size"], request.get("size_unit")), (&json!("lb-small"), None), "DO-23");
    for (key, value, message) in [
        ("size-slug", "huge", "invalid LB size slug provided: huge"),
        ("size-unit", "x", "invalid LB size unit \"x\" provided: strconv.Atoi: parsing \"x\": invalid syntax"),
        ("size-unit", "-1", "LB size unit must be non-negative. -1 provided"),
        ("size-unit", "4294967296", "invalid LB size unit \"4294967296\" provided: value out of range"),
    ] {
        assert_eq!(error(&web(&[(key, value)])), message);
    }
    assert_eq!(build(&web(&[("size-unit", "3")]), &[PUBLIC]).unwrap()["size_unit"], 3);
}

#[test]
fn do_24_and_25_sticky_sessions() {
    let cookies = ("sticky-sessions-type", "cookies");
    let name = ("sticky-sessions-cookie-name", "lb");
    assert_eq!(error(&web(&[cookies, name])), "sticky session cookie ttl not specified, but required", "DO-24");
    assert_eq!(error(&web(&[cookies])), "sticky session cookie name not specified, but required");
    let bogus = build(&web(&[("sticky-sessions-type", "bogus")]), &[PUBLIC]).unwrap();
    assert_eq!(bogus["sticky_sessions"], json!({"type": "none"}), "DO-25");
    let set = build(&web(&[cookies, name, ("sticky-sessions-cookie-ttl", "300")]), &[PUBLIC]).unwrap();
    assert_eq!(set["sticky_sessions"], json!({"type": "cookies", "cookie_name": "lb", "cookie_ttl_seconds": 300}));
    assert_eq!(
        error(&web(&[cookies, name, ("sticky-sessions-cookie-ttl", "5m")])),
        "strconv.Atoi: parsing \"5m\": invalid syntax"
    );
}

#[test]
fn do_26_to_31_nodes_and_networks() {
    let try_build = |service: &Service, addresses: &[&str]| {
        build_with(&Config::default(), &Lookups::default(), None, &desired(service, nodes(addresses)))
    };
    let stack = |request: &Value| request["network_stack"].as_str().unwrap().to_owned();
    let dual_internal = web(&[("network", "INTERNAL"), ("network-stack", "DUALSTACK")]);
    let error = try_build(&dual_internal, &[DUAL]).unwrap_err();
    let message =
        "network stack configuration error: dual stack networking is not supported for internal load balancer";
    assert_eq!(error, BuildError { has_event: true, ..message.into() }, "DO-26");
    let internal = try_build(&web(&[("network", "INTERNAL")]), &[PRIVATE, PRIVATE]).unwrap();
    assert_eq!((stack(&internal).as_str(), &internal["droplet_ids"]), ("IPV4", &json!([1001, 1002])), "DO-27");
    assert_eq!(stack(&try_build(&regional(&[]), &[PRIVATE]).unwrap()), "DUALSTACK", "DO-28");
    let private = try_build(&web(&[]), &[PRIVATE]).unwrap_err();
    let message = "no eligible load balancer backends: REGIONAL_NETWORK EXTERNAL load balancers require at least one node with a \
                   public IPv4 address; no eligible backends found. For private-only nodes, set \
                   service.beta.kubernetes.io/do-loadbalancer-type to \"REGIONAL\" or \
                   service.beta.kubernetes.io/do-loadbalancer-network to \"INTERNAL\".";
    assert_eq!(private, BuildError { has_event: true, ..message.into() }, "DO-29");
    assert_eq!(try_build(&web(&[]), &[PRIVATE, PUBLIC]).unwrap()["droplet_ids"], json!([1002]), "DO-30");
    let v6 = try_build(&web(&[]), &[V6_ONLY]).unwrap_err();
    let expected = BuildError { lacks_nodes: true, .."no ready nodes available for load balancer".into() };
    assert_eq!(v6, expected, "DO-31");
}

#[test]
fn the_network_stack_follows_the_nodes() {
    let stack = |service: &Service, addresses: &[&str]| {
        build(service, addresses).map(|request| request["network_stack"].clone())
    };
    assert_eq!(stack(&web(&[]), &[DUAL, DUAL]), Ok(json!("DUALSTACK")));
    assert_eq!(stack(&web(&[]), &[DUAL, PUBLIC]), Ok(json!("IPV4")));
    assert_eq!(stack(&web(&[]), &[DUAL, V6_ONLY]), Ok(json!("DUALSTACK")), "a dropped Node does not count");
    assert_eq!(stack(&web(&[("network-stack", "IPV4")]), &[DUAL]), Ok(json!("IPV4")));
    assert_eq!(stack(&regional(&[]), &[PUBLIC]), Ok(json!("DUALSTACK")));
    let requested = web(&[("network-stack", "DUALSTACK")]);
    let message = "network stack configuration error: dual-stack networking requested but 4 nodes lack IPv6 addresses: \
                   node-2, node-3, node-4 [+1 more]. REGIONAL_NETWORK load balancers require all nodes to have IPv6 for dual-stack mode";
    assert_eq!(stack(&requested, &[DUAL, PUBLIC, PUBLIC, PUBLIC, PUBLIC]).unwrap_err(), message);
    assert_eq!(
        stack(&web(&[("network-stack", "IPV6")]), &[DUAL]).unwrap_err(),
        "only LB network stacks supported are (IPV4, DUALSTACK)"
    );
}

#[test]
fn do_32_to_34_health_checks() {
    let local = Service { traffic_policy: TrafficPolicy::Local, health_check_node_port: Some(30000), ..web(&[]) };
    let check = |service: &Service| build(service, &[PUBLIC]).unwrap()["health_check"].clone();
    assert_eq!((&check(&local)["port"], &check(&local)["path"]), (&json!(30000), &json!("/healthz")), "DO-32");
    let ports = [(Protocol::Udp, 53), (Protocol::Tcp, 80)];
    let overridden = check(&with_ports(web(&[("override-health-check", "")]), &ports));
    let expected = json!({"protocol": "tcp", "port": 30080, "check_interval_seconds": 3, "response_timeout_seconds": 5,
        "healthy_threshold": 5, "unhealthy_threshold": 3});
    assert_eq!(overridden, expected, "DO-33");
    assert_eq!(
        check(&web(&[("healthcheck-protocol", "bogus"), ("healthcheck-path", "/x")])),
        check(&web(&[])),
        "DO-34"
    );
}

#[test]
fn overridden_health_checks_are_validated() {
    let set = |annotations: &[(&str, &str)]| {
        with_ports(
            web(&[&[("override-health-check", "true")], annotations].concat()),
            &[(Protocol::Tcp, 80), (Protocol::Udp, 53)],
        )
    };
    let check =
        build(&set(&[("healthcheck-path", "/ready"), ("healthcheck-port", "80")]), &[PUBLIC]).unwrap()["health_check"]
            .clone();
    assert_eq!((&check["protocol"], &check["path"], &check["port"]), (&json!("http"), &json!("/ready"), &json!(30080)));
    let key = format!("{LB}healthcheck-port");
    for (annotation, value, message) in [
        (
            "healthcheck-port",
            "80,81",
            format!("annotation {key} only supports a single port, but found multiple: [80 81]"),
        ),
        (
            "healthcheck-port",
            "",
            "failed to get health check port: strconv.Atoi: parsing \"\": invalid syntax".to_owned(),
        ),
        ("healthcheck-port", "81", "specified health check port 81 does not exist on service default/web".to_owned()),
        ("healthcheck-port", "53", "health check port: 53, cannot be of protocol type UDP".to_owned()),
        (
            "healthcheck-protocol",
            "udp",
            format!("invalid protocol \"udp\" specified in annotation \"{LB}healthcheck-protocol\""),
        ),
        (
            "healthcheck-check-interval-seconds",
            "x",
            format!(
                "failed to parse health check interval annotation \"{LB}healthcheck-check-interval-seconds\": strconv.Atoi: parsing \"x\": invalid syntax"
            ),
        ),
    ] {
        assert_eq!(error(&set(&[(annotation, value)])), message, "{annotation}");
    }
    let udp = with_ports(web(&[("override-health-check", "true")]), &[(Protocol::Udp, 53)]);
    assert_eq!(error(&udp), "no health check port of protocol TCP found");
}

#[test]
fn do_35_to_38e_ports_and_certificates() {
    let https = |annotations: &[(&str, &str)]| with_ports(regional(annotations), &[(Protocol::Tcp, 443)]);
    let http3 = "failed to construct http3 forwarding rule: ";
    assert_eq!(
        error(&https(&[("http3-port", "443")])),
        format!("{http3}certificate ID is required for HTTP3"),
        "DO-35"
    );
    let certificate = ("certificate-id", "c1");
    assert_eq!(rules(&https(&[certificate, ("http3-port", "444")])), ["https 443 http 30443 c1"], "DO-36");
    assert_eq!(
        rules(&https(&[certificate, ("http3-port", "443")])),
        ["https 443 http 30443 c1", "http3 443 http 30443 c1"]
    );
    let missing = Lookups { certificate: CertificateLookup::Missing("n".to_owned()), ..Lookups::default() };
    let unknown = desired(&https(&[("certificate-name", "n")]), nodes(&[PUBLIC]));
    let error_of = build_with(&Config::default(), &missing, None, &unknown).unwrap_err();
    assert_eq!(error_of.message, "certificate with name: \"n\" not found", "DO-37");
    assert!(build(&web(&[("protocol", "bogus"), ("tls-ports", "x")]), &[PUBLIC]).is_ok(), "DO-38a");
    assert_eq!(error(&regional(&[("http-ports", "")])), "strconv.Atoi: parsing \"\": invalid syntax", "DO-38b");
    assert_eq!(rules(&https(&[certificate, ("http-ports", "443")])), ["https 443 http 30443 c1"], "DO-38c");
    let timeout = error(&web(&[("http-idle-timeout-seconds", "+60")]));
    assert_eq!(
        timeout,
        "failed to parse provided LB HTTP idle timeout seconds value '+60': strconv.ParseUint: parsing \"+60\": invalid syntax",
        "DO-38d"
    );
    assert_eq!(
        error(&web(&[("type", "regional")])),
        "only LB types supported are (REGIONAL, REGIONAL_NETWORK)",
        "DO-38e"
    );
}

#[test]
fn port_lists_set_the_protocol_of_ports() {
    let ports = [(Protocol::Tcp, 80), (Protocol::Tcp, 8080), (Protocol::Tcp, 8443)];
    let service =
        with_ports(regional(&[("protocol", "http"), ("http2-ports", "8443"), ("tls-passthrough", "true")]), &ports);
    assert_eq!(rules(&service), ["http 80 http 30080", "http 8080 http 38080", "http2 8443 http2 38443 passthrough"]);
    let shared = regional(&[("http-ports", "80,443,80"), ("tls-ports", "443")]);
    let message = "ports from annotations \"service.beta.kubernetes.io/do-loadbalancer-*-ports\" cannot be shared but found: 443, 80";
    assert_eq!(error(&shared), message);
    assert_eq!(
        error(&regional(&[("protocol", "")])),
        format!("invalid protocol \"\" specified in annotation \"{LB}protocol\"")
    );
}

#[test]
fn booleans_have_the_texts_of_the_go_manager() {
    for (annotation, setting) in [
        ("redirect-http-to-https", "HTTP-to-HTTPS"),
        ("enable-proxy-protocol", "proxy protocol"),
        ("enable-backend-keepalive", "backend keepalive"),
        ("disable-lets-encrypt-dns-records", "disable lets encrypt dns records"),
    ] {
        let message = format!(
            "failed to get {setting} configuration setting: cannot convert value \"maybe\" for annotation \"{LB}{annotation}\" to bool: \
             strconv.ParseBool: parsing \"maybe\": invalid syntax"
        );
        assert_eq!(error(&web(&[(annotation, "maybe")])), message);
        assert!(build(&web(&[(annotation, "T")]), &[PUBLIC]).is_ok());
    }
}

#[test]
fn clients_are_allowed_by_source_ranges_or_annotations() {
    let firewall = |service: &Service| build(service, &[PUBLIC]).unwrap()["firewall"].clone();
    let rules = web(&[("allow-rules", "ip:1.2.3.4, cidr:10.0.0.0/8"), ("deny-rules", "ip:5.6.7.8")]);
    assert_eq!(firewall(&rules), json!({"allow": ["ip:1.2.3.4", "cidr:10.0.0.0/8"], "deny": ["ip:5.6.7.8"]}));
    let ranges = Service { source_ranges: vec!["10.1.2.3/16".to_owned(), " 10.1.0.0/16".to_owned()], ..rules };
    assert_eq!(firewall(&ranges), json!({"allow": ["cidr:10.1.0.0/16"], "deny": ["ip:5.6.7.8"]}));
}

#[test]
fn an_invalid_provider_id_fails_the_request_and_nodes_of_other_clouds_are_left_out() {
    let mut targets = nodes(&[PUBLIC, PUBLIC]);
    targets[0].provider_id = Some(ProviderId::of("aws", "/eu-1/i-1"));
    let request =
        build_with(&Config::default(), &Lookups::default(), None, &desired(&web(&[]), targets.clone())).unwrap();
    assert_eq!(request["droplet_ids"], json!([1002]));
    targets[0].provider_id = Some(ProviderId::of("digitalocean", "x"));
    let error = build_with(&Config::default(), &Lookups::default(), None, &desired(&web(&[]), targets)).unwrap_err();
    assert!(
        error.message.starts_with("failed to parse provider ID \"digitalocean://x\": failed to convert"),
        "{error:?}"
    );
}

#[test]
fn common_annotations_apply_where_the_cloud_has_no_annotation_of_its_own() {
    let common = |annotations: &[(&str, &str)]| annotated(regional(&[]), annotations);
    let request =
        build(&common(&[("bowline.dev/internal", "true"), ("bowline.dev/proxy-protocol", "v1")]), &[PRIVATE]).unwrap();
    assert_eq!((&request["network"], &request["enable_proxy_protocol"]), (&json!("INTERNAL"), &json!(true)));
    let health = [
        ("bowline.dev/health-check-path", "/a"),
        ("bowline.dev/health-check-port", "8080"),
        ("bowline.dev/idle-timeout", "2m"),
    ];
    let request = build(&common(&health), &[PUBLIC]).unwrap();
    assert_eq!((&request["health_check"]["path"], &request["health_check"]["port"]), (&json!("/a"), &json!(8080)));
    assert_eq!(request["http_idle_timeout_seconds"], 120);
}

// ---- comparison

/// A load balancer as the API returns it after this request.
fn as_reported(request: &Value) -> LoadBalancer {
    let mut reported = request.clone();
    let object = reported.as_object_mut().unwrap();
    let fields = json!({"id": "1", "status": "active", "ip": "203.0.113.1", "region": {"slug": "fra1"}, "size_unit": 1,
        "http_idle_timeout_seconds": 60});
    for (key, value) in fields.as_object().unwrap() {
        object.insert(key.clone(), value.clone());
    }
    object["forwarding_rules"].as_array_mut().unwrap().reverse();
    object["droplet_ids"].as_array_mut().unwrap().reverse();
    serde_json::from_value(reported).unwrap()
}

fn differences(old: &Service, new: &Service, addresses: &[&str]) -> Vec<String> {
    let reported = as_reported(&build(old, addresses).unwrap());
    let desired = desired(new, nodes(addresses));
    let spec = desired.spec.as_deref().unwrap();
    let (config, lookups) = (Config::default(), Lookups::default());
    let inputs = Inputs {
        config: &config,
        region: "fra1",
        desired: &desired,
        spec,
        existing: Some(&reported),
        lookups: &lookups,
        has_nodes: true,
    };
    compare::changes(&reported.settings, &inputs.build().unwrap().settings)
        .into_iter()
        .map(|change| change.field)
        .collect()
}

#[test]
fn an_unchanged_service_has_no_differences_whatever_the_order() {
    let ports = [(Protocol::Tcp, 80), (Protocol::Tcp, 443), (Protocol::Udp, 53)];
    for service in [with_ports(web(&[]), &ports), with_ports(regional(&[("http-ports", "80")]), &ports)] {
        assert_eq!(differences(&service, &service, &[DUAL, PUBLIC]), Vec::<String>::new());
    }
    let everyone = Service { source_ranges: vec!["0.0.0.0/0".to_owned()], ..web(&[]) };
    assert_eq!(differences(&web(&[("allow-rules", "cidr:0.0.0.0/0")]), &everyone, &[PUBLIC]), Vec::<String>::new());
}

#[test]
fn each_setting_that_changes_is_a_difference() {
    let base = regional(&[]);
    for (annotation, value, field) in [
        ("name", "web", "name"),
        ("http-ports", "80", "forwarding rules"),
        ("healthcheck-check-interval-seconds", "10", "health check"),
        ("size-unit", "3", "size unit"),
        ("redirect-http-to-https", "true", "redirect HTTP to HTTPS"),
        ("enable-proxy-protocol", "true", "PROXY protocol"),
        ("enable-backend-keepalive", "true", "backend keepalive"),
        ("disable-lets-encrypt-dns-records", "true", "disable Let's Encrypt DNS records"),
        ("http-idle-timeout-seconds", "120", "HTTP idle timeout"),
        ("allow-rules", "ip:1.2.3.4", "allowed clients"),
        ("deny-rules", "ip:1.2.3.4", "denied clients"),
        ("subnet-uuid", "s1", "subnet"),
    ] {
        assert_eq!(differences(&base, &regional(&[(annotation, value)]), &[PUBLIC]), [field], "{annotation}");
    }
    assert_eq!(differences(&base, &regional(&[("algorithm", "least_connections")]), &[PUBLIC]), Vec::<String>::new());
}

/// Type, network and network stack are fixed at creation.
#[test]
fn an_existing_load_balancer_keeps_its_type_and_network_stack() {
    assert_eq!(
        differences(&regional(&[]), &web(&[("type", "REGIONAL_NETWORK")]), &[PUBLIC]),
        Vec::<String>::new(),
        "DO-11"
    );
    let request = build(&web(&[]), &[PUBLIC]).unwrap();
    let (config, lookups) =
        (Config { default_type: LoadBalancerType::Regional, ..Config::default() }, Lookups::default());
    let now =
        build_with(&config, &lookups, Some(&as_reported(&request)), &desired(&web(&[]), nodes(&[DUAL, DUAL]))).unwrap();
    assert_eq!((&now["type"], &now["network_stack"]), (&json!("REGIONAL_NETWORK"), &json!("IPV4")));
}
