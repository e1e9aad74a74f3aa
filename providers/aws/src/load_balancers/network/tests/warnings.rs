//! Settings without effect.

use super::super::super::annotations as keys;
use super::*;
use crate::api::elbv2::Address;

#[test]
fn each_ignored_annotation_is_a_warning() {
    for (pairs, expected) in [
        (&[(keys::PROXY_PROTOCOL.key, "*")][..], "proxy-protocol is ignored: it applies to Classic"),
        (&[(keys::HEALTH_CHECK_TIMEOUT.key, "5")], "healthcheck-timeout is ignored: it applies to Classic"),
        (&[(keys::BACKEND_PROTOCOL.key, "http")], "knows only \"ssl\", not \"http\""),
        (&[(keys::BACKEND_PROTOCOL.key, "ssl")], "no port has TLS"),
        (&[(keys::SSL_PORTS.key, "443")], "there is no certificate"),
        (&[(keys::SSL_CERT.key, "arn:c"), (keys::SSL_PORTS.key, "443")], "ssl-ports names none of the ports"),
        (&[(keys::ACCESS_LOG_BUCKET.key, "logs")], "access logs are not enabled"),
        (&[(keys::HEALTH_CHECK_PATH.key, "/a")], "the protocol of the health check is TCP"),
        (&[(keys::SECURITY_GROUPS.key, "sg-1")], "NLBSecurityGroupMode is not Managed"),
    ] {
        let warnings = Case::new(pairs).warnings(None);
        let [warning] = warnings.as_slice() else { panic!("{pairs:?}: {warnings:?}") };
        assert!(warning.contains(expected), "{pairs:?}: {warning}");
    }
    let none = [(keys::BACKEND_PROTOCOL.key, "tcp"), (keys::HEALTH_CHECK_PORT.key, "8080")];
    assert_eq!(Case::new(&none).warnings(None), [""; 0]);
}

#[test]
fn modes_of_the_configuration_that_override_annotations_are_warnings() {
    let mut case = Case::new(&[(keys::HEALTH_CHECK_PORT.key, "8080")]);
    case.config.health_probe_mode = "Shared".to_owned();
    case.config.health_probe_port = 10256;
    assert!(case.warnings(None)[0].contains("HealthProbeMode is Shared"));
    let mut case = Case::new(&[]);
    case.config.disable_security_group_ingress = true;
    case.spec.source_ranges = vec!["10.0.0.0/8".parse().unwrap()];
    assert!(case.warnings(None)[0].starts_with("the source ranges are ignored"));
    case.config.nlb_security_group_mode = "Managed".to_owned();
    assert_eq!(case.warnings(None), [""; 0]);
}

#[test]
fn what_is_fixed_at_creation_is_a_warning_if_the_service_asks_for_something_else() {
    let mut case = Case::new(&[(keys::EIP_ALLOCATIONS.key, "eip-1,eip-2")]);
    let (_, mut observed) = case.sync(None);
    for (zone, id) in observed.load_balancer.zones.iter_mut().zip(["eip-2", "eip-1"]) {
        zone.addresses = vec![Address { allocation_id: id.to_owned(), ..Address::default() }];
    }
    assert_eq!(case.warnings(Some(&observed)), [""; 0]);
    for (key, value, expected) in [
        (keys::INTERNAL.key, "true", "is internet-facing and cannot become internal: that is fixed at creation; fix: "),
        (keys::SUBNETS.key, "subnet-1", "stays in the subnets subnet-1, subnet-2 and cannot move to subnet-1"),
        (keys::EIP_ALLOCATIONS.key, "eip-1,eip-3", "cannot get other elastic IP addresses"),
        (keys::PRIVATE_IPV4_ADDRESSES.key, "10.0.1.4,10.0.2.4", "cannot get other private addresses"),
        (keys::ADDITIONAL_TAGS.key, "team=web", "is ignored for the tags team"),
    ] {
        let case = Case::new(&[(keys::EIP_ALLOCATIONS.key, "eip-1,eip-2")]).annotate(key, value);
        let warnings = case.warnings(Some(&observed));
        let [warning] = warnings.as_slice() else { panic!("{key}: {warnings:?}") };
        assert!(warning.contains(expected), "{key}: {warning}");
        let steps = case.steps(Some(&observed));
        assert!(steps.iter().all(|step| step.contains("security group")), "{key}: {steps:?}");
    }
}

#[test]
fn an_unknown_subnet_is_an_error_also_for_an_existing_load_balancer() {
    let mut case = Case::new(&[]);
    let (_, observed) = case.sync(None);
    let case = case.annotate(keys::SUBNETS.key, "subnet-9");
    assert!(case.plan(Some(&observed)).unwrap_err().message().starts_with("expected to find 1, but found 0 subnets"));
}
