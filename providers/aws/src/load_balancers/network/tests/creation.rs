//! Creation of a load balancer.

use bowline_core::annotations::ProxyProtocol;
use bowline_core::{IpFamily, PortSpec, TrafficPolicy};

use super::super::super::annotations as keys;
use super::super::{Change, Ref, attributes};
use super::*;

/// Name of the target group of port 80.
pub(super) const GROUP: &str = "k8s-default-web-";

fn is_group(step: &str, verb: &str) -> bool {
    step.starts_with(&format!("{verb} target group {GROUP}"))
}

#[test]
fn a_new_load_balancer_takes_the_fewest_steps() {
    let mut case = Case::new(&[]);
    let (steps, observed) = case.sync(None);
    let name = format!("create Network Load Balancer {}", case.inputs().name);
    assert_eq!(steps[0], name);
    assert!(is_group(&steps[1], "create") && is_group(&steps[2], "update"), "{steps:?}");
    assert_eq!(steps[3..], ["create listener TCP 80".to_owned(), "update security group sg-node".to_owned()]);
    assert_eq!(observed.hostname(), "web.elb.eu-west-1.amazonaws.com");
    assert_eq!(case.warnings(None), [""; 0]);
    let tags = &observed.tags;
    assert_eq!(tags.get("kubernetes.io/service-name").map(String::as_str), Some("default/web"));
    assert_eq!(tags.get("kubernetes.io/cluster/demo").map(String::as_str), Some("owned"));
}

#[test]
fn creations_may_be_repeated_and_name_what_earlier_steps_create() {
    let plan = Case::new(&[]).plan(None).unwrap();
    let mut creations = plan.steps.iter().filter(|step| step.verb == bowline_core::Verb::Create);
    assert!(creations.all(|step| step.repeatable));
    let listener = plan.steps.iter().find_map(|step| match &step.payload {
        AnyChange::Network(Change::CreateListener(load_balancer, new, _)) => Some((load_balancer, &new.group)),
        _ => None,
    });
    assert!(matches!(listener, Some((Ref::Name(_), Ref::Name(_)))), "{listener:?}");
}

#[test]
fn targets_are_registered_in_chunks_of_100() {
    let ids: Vec<String> = (0..250).map(|at| format!("i-{at:03}")).collect();
    let mut case = Case::new(&[]).with_instances(&ids);
    let (steps, observed) = case.sync(None);
    assert_eq!(steps.iter().filter(|step| is_group(step, "update")).count(), 3);
    assert_eq!(observed.target_groups[0].targets.len(), 250);
}

#[test]
fn attributes_and_tls_are_set_only_if_asked_for() {
    let mut case = Case::new(&[
        (keys::CROSS_ZONE.key, "true"),
        (keys::SSL_CERT.key, "arn:cert"),
        (keys::TARGET_GROUP_ATTRIBUTES.key, "proxy_protocol_v2.enabled=true,preserve_client_ip.enabled=true"),
    ]);
    let text = case.text(None);
    assert!(text.contains("load_balancing.cross_zone.enabled: true") && !text.contains("access_logs"), "{text}");
    assert!(text.contains("proxy_protocol_v2.enabled: true") && !text.contains("preserve_client_ip"), "{text}");
    let (steps, observed) = case.sync(None);
    assert!(
        steps.contains(&"create listener TLS 443".to_owned()) || steps.contains(&"create listener TLS 80".to_owned())
    );
    let listener = &observed.listeners[0];
    assert_eq!(listener.certificates[0].certificate_arn, "arn:cert");
    assert_eq!(observed.target_groups[0].group.protocol, "TCP");
}

#[test]
fn the_common_proxy_protocol_is_marked_and_can_be_disabled() {
    let mut case = Case::new(&[]);
    case.settings.proxy_protocol = Some(ProxyProtocol::V2);
    let (_, observed) = case.sync(None);
    let is_enabled = |observed: &Observed| observed.target_groups[0].attributes["proxy_protocol_v2.enabled"] == "true";
    assert!(is_enabled(&observed) && observed.tags.contains_key(attributes::PROXY_MARK));
    case.settings.proxy_protocol = None;
    let (steps, observed) = case.sync(Some(observed));
    assert_eq!(steps.len(), 2, "{steps:?}");
    assert!(!is_enabled(&observed) && !observed.tags.contains_key(attributes::PROXY_MARK));
    case.settings.proxy_protocol = Some(ProxyProtocol::V2);
    let (_, observed) = case.sync(Some(observed));
    assert!(is_enabled(&observed));
}

#[test]
fn in_managed_mode_it_gets_its_own_group_with_rules_for_tcp() {
    let mut case = Case::new(&[(keys::SSL_CERT.key, "arn:cert")]);
    case.config.nlb_security_group_mode = "Managed".to_owned();
    let text = case.text(None);
    assert!(text.contains("rule: tcp 80 from 0.0.0.0/0") && text.contains("rule: icmp 3-4 from 0.0.0.0/0"), "{text}");
    let (steps, observed) = case.sync(None);
    let own = names::network_group(case.inputs().key);
    assert_eq!(steps[..2], [format!("create security group {own}"), format!("update security group {own}")]);
    assert_eq!(observed.load_balancer.security_groups, [format!("id:{own}")]);
}

#[test]
fn in_managed_mode_requested_groups_replace_its_own() {
    let mut case = Case::new(&[(keys::SECURITY_GROUPS.key, " sg-1 ,sg-2,")]);
    case.config.nlb_security_group_mode = "Managed".to_owned();
    let (steps, observed) = case.sync(None);
    assert!(steps[0].starts_with("create Network Load Balancer"), "{steps:?}");
    assert_eq!(observed.load_balancer.security_groups, ["sg-1", "sg-2"]);
}

#[test]
fn an_unknown_mode_is_an_error_at_every_sync() {
    let mut case = Case::new(&[]);
    let (_, observed) = case.sync(None);
    case.config.nlb_security_group_mode = "managed".to_owned();
    let expected = "error ensuring NLB security group: error checking NLB security group mode: \
                    invalid NLB security group mode: \"managed\". Expected: \"Managed\"";
    for observed in [None, Some(&observed)] {
        assert_eq!(case.plan(observed).unwrap_err().to_string(), expected);
    }
}

#[test]
fn addresses_go_to_the_requested_subnets_in_their_order() {
    let case = Case::new(&[
        (keys::SUBNETS.key, "subnet-2,subnet-1"),
        (keys::EIP_ALLOCATIONS.key, "eip-2,eip-1"),
        (keys::INTERNAL.key, "true"),
    ]);
    let plan = case.plan(None).unwrap();
    let AnyChange::Network(Change::Create(new, _)) = &plan.steps[0].payload else { panic!("{plan}") };
    let shown = new.subnets.iter().map(|it| (it.subnet_id.as_str(), it.allocation_id.as_deref().unwrap()));
    assert_eq!(shown.collect::<Vec<_>>(), [("subnet-2", "eip-2"), ("subnet-1", "eip-1")]);
    assert!(new.internal);
    let error = case.annotate(keys::EIP_ALLOCATIONS.key, "eip-1").plan(None).unwrap_err();
    let text = "error creating load balancer: Must have same number of EIP AllocationIDs (1) and SubnetIDs (2)";
    assert_eq!(error.to_string(), text);
}

#[test]
fn nodes_accept_clients_and_the_health_check_of_a_local_service() {
    let mut case = Case::new(&[]);
    case.spec.traffic_policy = TrafficPolicy::Local;
    case.spec.health_check = Some(bowline_core::HealthCheck { path: "/healthz".to_owned(), port: 32000 });
    let text = case.text(None);
    for rule in ["tcp 30080 from 0.0.0.0/0", "tcp 32000 from 10.0.1.0/24", "tcp 32000 from 10.0.2.0/24"] {
        assert!(text.contains(rule), "{rule}: {text}");
    }
    case.config.disable_security_group_ingress = true;
    assert!(!case.text(None).contains("rule:"));
}

#[test]
fn the_plan_does_not_depend_on_the_order_of_ports_and_ranges() {
    let mut case = Case::new(&[]).with_instances(&["i-2", "i-1"]);
    let second = PortSpec { port: 443, node_port: Some(30443), ..case.spec.ports[0].clone() };
    case.spec.ports.push(second);
    case.spec.source_ranges = vec!["10.1.0.0/16".parse().unwrap(), "10.0.0.0/16".parse().unwrap()];
    let first = case.plan(None).unwrap();
    let mut reversed = case.with_instances(&["i-1", "i-2"]);
    reversed.spec.ports.reverse();
    reversed.spec.source_ranges.reverse();
    assert_eq!(reversed.plan(None).unwrap(), first);
    reversed.sync(None);
}

#[test]
fn ports_without_node_ports_and_ipv6_are_warnings() {
    let mut case = Case::new(&[]);
    case.spec.ports[0].node_port = None;
    case.spec.ip_families = vec![IpFamily::IPv6];
    let expected = [
        "port 80 is ignored: it has no node port",
        "spec.ipFamilies: the load balancer has IPv4 addresses only; fix: make IPv4 the first family",
    ];
    assert_eq!(case.warnings(None), expected);
    let (steps, _) = case.sync(None);
    assert_eq!(steps.len(), 1, "{steps:?}");
}
