//! Changes of an existing load balancer.

use bowline_core::annotations::LoadBalancerSettings;
use bowline_core::{PortSpec, Protocol};

use super::super::super::annotations as keys;
use super::super::{Change, target_groups};
use super::creation::GROUP;
use super::model::DEFAULT_POLICY;
use super::*;

/// Returns a load balancer as it is after its creation.
fn created(case: &mut Case) -> Observed {
    case.sync(None).1
}

/// Counts the steps that begin with a text.
fn count(steps: &[String], prefix: &str) -> usize {
    steps.iter().filter(|step| step.starts_with(prefix)).count()
}

#[test]
fn every_change_of_a_health_check_number_port_or_path_is_one_step() {
    for (key, value) in [
        (keys::HEALTHY_THRESHOLD.key, "5"),
        (keys::UNHEALTHY_THRESHOLD.key, "5"),
        (keys::HEALTH_CHECK_PORT.key, "8080"),
        (keys::HEALTH_CHECK_PATH.key, "/other"),
    ] {
        let mut case = Case::new(&[(keys::HEALTH_CHECK_PROTOCOL.key, "HTTP")]);
        let observed = created(&mut case);
        let mut case = case.annotate(key, value);
        let (steps, _) = case.sync(Some(observed));
        assert_eq!(count(&steps, "update target group"), 1, "{key}: {steps:?}");
        let others = steps.iter().filter(|step| !step.contains("security group")).count();
        assert_eq!(others, 1, "{key}: {steps:?}");
    }
}

#[test]
fn a_new_protocol_or_interval_of_the_health_check_or_node_port_needs_a_new_group() {
    let changes: [fn(Case) -> Case; 4] = [
        |case| case.annotate(keys::HEALTH_CHECK_PROTOCOL.key, "HTTPS"),
        |case| case.annotate(keys::HEALTH_CHECK_INTERVAL.key, "10"),
        |mut case| {
            case.spec.ports[0].node_port = Some(30081);
            case
        },
        |mut case| {
            let interval = Some(std::time::Duration::from_secs(5));
            case.settings = LoadBalancerSettings { health_check_interval: interval, ..LoadBalancerSettings::default() };
            case
        },
    ];
    for change in changes {
        let mut case = Case::new(&[]);
        let observed = created(&mut case);
        let old = observed.target_groups[0].group.name.clone();
        let mut case = change(case);
        let (steps, observed) = case.sync(Some(observed));
        let order = [GROUP, GROUP, "TCP 80"].map(|name| name.to_owned());
        let expected = [
            format!("create target group {}", order[0]),
            format!("update target group {}", order[1]),
            format!("update listener {}", order[2]),
        ];
        for (step, expected) in steps.iter().zip(&expected) {
            assert!(step.starts_with(expected), "{steps:?}");
        }
        assert_eq!(steps.last(), Some(&format!("delete target group {old}")));
        assert_ne!(observed.target_groups[0].group.name, old);
    }
}

#[test]
fn a_changed_protocol_of_a_port_is_one_change_of_its_listener() {
    let mut case = Case::new(&[]);
    let observed = created(&mut case);
    let mut case = case.annotate(keys::SSL_CERT.key, "arn:cert");
    let (steps, observed) = case.sync(Some(observed));
    assert_eq!(steps, ["update listener TLS 80"]);
    case.annotations.clear();
    let (steps, observed) = case.sync(Some(observed));
    assert_eq!(steps, ["update listener TCP 80"]);
    case.spec.ports[0].protocol = Protocol::Udp;
    let (steps, observed) = case.sync(Some(observed));
    assert_eq!((count(&steps, "update listener UDP 80"), count(&steps, "delete listener")), (1, 0), "{steps:?}");
    assert_eq!(observed.target_groups[0].group.protocol, "UDP");
}

#[test]
fn the_default_policy_of_a_tls_listener_is_right_unless_another_is_requested() {
    let mut case = Case::new(&[(keys::SSL_CERT.key, "arn:cert")]);
    let observed = created(&mut case);
    assert_eq!(observed.listeners[0].ssl_policy, DEFAULT_POLICY);
    let case = case.annotate(keys::SSL_NEGOTIATION_POLICY.key, "");
    assert_eq!(case.text(Some(&observed)), "nothing to do");
    let mut case = case.annotate(keys::SSL_NEGOTIATION_POLICY.key, "Strong");
    assert!(case.text(Some(&observed)).contains(&format!("TLS policy: {DEFAULT_POLICY} -> Strong")));
    let (_, observed) = case.sync(Some(observed));
    let mut case = case.annotate(keys::SSL_CERT.key, "arn:other");
    assert_eq!(case.sync(Some(observed)).0, ["update listener TLS 80"]);
}

#[test]
fn targets_are_removed_before_others_are_added() {
    let mut case = Case::new(&[]).with_instances(&["i-1", "i-2"]);
    let observed = created(&mut case);
    let mut case = case.with_instances(&["i-2", "i-3"]);
    let plan = case.plan(Some(&observed)).unwrap();
    let changes: Vec<_> = plan.steps.iter().map(|step| &step.payload).collect();
    assert!(
        matches!(
            changes.as_slice(),
            [AnyChange::Network(Change::Deregister(..)), AnyChange::Network(Change::Register(..))]
        ),
        "{plan}"
    );
    case.sync(Some(observed));
}

#[test]
fn targets_that_are_being_deregistered_are_registered_again() {
    let health = |id: &str, reason: &str| crate::api::elbv2::TargetHealth {
        target: crate::api::elbv2::Target { id: id.to_owned(), port: 30080 },
        health: crate::api::elbv2::Health { state: String::new(), reason: reason.to_owned() },
    };
    let health = vec![
        health("i-1", "Target.DeregistrationInProgress"),
        health("i-2", "Elb.RegistrationInProgress"),
        health("i-3", ""),
    ];
    let registered: Vec<_> = target_groups::registered(health).into_iter().map(|target| target.id).collect();
    assert_eq!(registered, ["i-2", "i-3"]);
}

#[test]
fn ports_are_added_and_removed_with_their_groups() {
    let mut case = Case::new(&[]);
    let observed = created(&mut case);
    let second = PortSpec { port: 443, node_port: Some(30443), ..case.spec.ports[0].clone() };
    case.spec.ports.push(second);
    let (steps, observed) = case.sync(Some(observed));
    assert_eq!((count(&steps, "create listener TCP 443"), count(&steps, "create")), (1, 2), "{steps:?}");
    case.spec.ports.remove(0);
    let (steps, observed) = case.sync(Some(observed));
    assert_eq!((count(&steps, "delete listener TCP 80"), count(&steps, "delete")), (1, 2), "{steps:?}");
    assert_eq!((observed.listeners.len(), observed.target_groups.len()), (1, 1));
}

#[test]
fn ports_may_exchange_their_node_ports() {
    let mut case = Case::new(&[]);
    let second = PortSpec { port: 443, node_port: Some(30443), ..case.spec.ports[0].clone() };
    case.spec.ports.push(second);
    let observed = created(&mut case);
    case.spec.ports[0].node_port = Some(30443);
    case.spec.ports[1].node_port = Some(30080);
    let (steps, observed) = case.sync(Some(observed));
    assert_eq!((count(&steps, "update listener"), count(&steps, "delete target group")), (2, 2), "{steps:?}");
    assert_eq!(observed.target_groups.len(), 2);
}

#[test]
fn security_groups_are_replaced_and_the_own_one_is_deleted() {
    let mut case = Case::new(&[]);
    case.config.nlb_security_group_mode = "Managed".to_owned();
    let observed = created(&mut case);
    let own = observed.load_balancer.security_groups.clone();
    let mut case = case.annotate(keys::SECURITY_GROUPS.key, "sg-1");
    let plan = case.plan(Some(&observed)).unwrap();
    let last = plan.steps.last().unwrap();
    assert!(last.to_string().starts_with("delete security group k8s-default-web-"), "{plan}");
    assert!(last.best_effort.is_some());
    let (_, observed) = case.sync(Some(observed));
    assert_eq!(observed.load_balancer.security_groups, ["sg-1"]);
    case.annotations.clear();
    let (_, observed) = case.sync(Some(observed));
    assert_eq!(observed.load_balancer.security_groups, own);
}

#[test]
fn without_groups_and_without_the_mode_the_groups_stay_as_they_are() {
    let mut case = Case::new(&[]);
    let observed = created(&mut case);
    let mut with_groups = observed.clone();
    with_groups.load_balancer.security_groups = vec!["sg-1".to_owned()];
    assert_eq!(case.text(Some(&with_groups)), "nothing to do");
    case.config.nlb_security_group_mode = "Managed".to_owned();
    assert_eq!(case.text(Some(&observed)), "nothing to do");
}

#[test]
fn attributes_are_compared_with_those_that_aws_reports() {
    let mut case = Case::new(&[]);
    let observed = created(&mut case);
    let mut case = case.annotate(keys::CROSS_ZONE.key, "true");
    let (steps, mut observed) = case.sync(Some(observed));
    assert_eq!(steps, [format!("update Network Load Balancer {}", case.inputs().name)]);
    observed.attributes.insert("deletion_protection.enabled".to_owned(), "true".to_owned());
    let mut case = case.annotate(keys::TARGET_GROUP_ATTRIBUTES.key, "preserve_client_ip.enabled=false");
    let (steps, observed) = case.sync(Some(observed));
    assert_eq!(steps.len(), 1, "{steps:?}");
    case.annotations.clear();
    let text = case.text(Some(&observed));
    assert!(text.contains("cross_zone.enabled: true -> false") && !text.contains("preserve"), "{text}");
}
