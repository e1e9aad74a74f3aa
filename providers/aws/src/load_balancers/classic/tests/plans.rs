//! Steps of load balancers.

use bowline_core::IpFamily;

use super::super::super::Change as AnyChange;
use super::super::super::annotations::{self as keys, Values};
use super::super::{Change, attributes, capabilities, plan};
use super::*;

#[test]
fn a_new_load_balancer_takes_the_minimum_of_calls() {
    let expected = [
        "create security group k8s-elb-LB []",
        "update security group k8s-elb-LB [rule: icmp 3-4 from 0.0.0.0/0; rule: tcp 80 from 0.0.0.0/0]",
        "create CLB LB [scheme: internet-facing; listeners: [tcp 80 -> tcp 30080]; subnets: [subnet-a, subnet-b]; \
         security groups: [k8s-elb-LB]]",
        "update CLB LB [health check: TCP:30080]",
        "update security group sg-nodes [rule: all from k8s-elb-LB]",
        "update CLB LB [instance: i-1; instance: i-2]",
    ];
    let plan = Fixture::new().plan(None);
    assert_eq!(shown(&plan), expected);
    assert!(plan.locks.is_empty() && plan.warnings.is_empty());
    let AnyChange::Classic(Change::Create(new, _)) = &plan.steps[2].payload else { panic!("{plan}") };
    let tags: Tags = [(CLUSTER_TAG, "owned"), ("kubernetes.io/service-name", "default/web")]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
    assert_eq!((&new.tags, new.internal, plan.steps[2].repeatable), (&tags, false, true));
}

#[test]
fn a_new_load_balancer_gets_policies_and_attributes() {
    let fixture = annotated(
        Fixture::new().ports(&[("https", 443)]),
        &[
            ("ssl-cert", "arn:cert"),
            ("ssl-negotiation-policy", "Strict"),
            ("proxy-protocol", "*"),
            ("connection-idle-timeout", "90"),
            ("additional-resource-tags", "team=web"),
            ("internal", "true"),
        ],
    );
    let steps = fixture.steps(None);
    assert!(steps[2].starts_with("create CLB LB [scheme: internal;"), "{steps:?}");
    assert!(steps[2].contains("subnets: [subnet-0, subnet-b]"), "{steps:?}");
    let expected = [
        "create load balancer policy k8s-proxyprotocol-enabled []",
        "update CLB LB [policy of instance port 30443: k8s-proxyprotocol-enabled]",
        "update CLB LB [idle timeout: 60 -> 90]",
        "create load balancer policy k8s-SSLNegotiationPolicy-Strict []",
        "update CLB LB [TLS policy of port 443: k8s-SSLNegotiationPolicy-Strict]",
        "update CLB LB [health check: TCP:30443]",
    ];
    assert_eq!(steps[3..9], expected);
    let plan = fixture.plan(None);
    assert!(plan.steps.iter().filter(|step| step.verb == bowline_core::Verb::Create).all(|step| step.repeatable));
}

#[test]
fn what_the_go_manager_created_is_adopted_without_a_step() {
    for annotations in [
        &[][..],
        &[("internal", "true")],
        &[("proxy-protocol", "*"), ("backend-protocol", "http")],
        &[("ssl-cert", "arn:cert"), ("ssl-negotiation-policy", "Strict"), ("backend-protocol", "https")],
        &[("access-log-enabled", "true"), ("access-log-s3-bucket-name", "b"), ("additional-resource-tags", "a=b,c")],
        &[("extra-security-groups", "sg-2, sg-1"), ("healthcheck-protocol", "http"), ("subnets", "subnet-b,subnet-a")],
    ] {
        let fixture = annotated(Fixture::new().ports(&[("a", 80), ("b", 443)]).with_own_group(), annotations);
        let mut observed = fixture.created_by_go();
        // AWS fills these in.
        observed.attributes.connection_draining.timeout = Some(300);
        observed.load_balancer.subnets.reverse();
        observed.load_balancer.security_groups.reverse();
        assert_eq!(fixture.steps(Some(&observed)), [""; 0], "{annotations:?}");
    }
}

#[test]
fn the_order_of_ports_ranges_and_instances_changes_nothing() {
    let ports = Fixture::new().ports(&[("a", 80), ("b", 443)]);
    let mut fixture = annotated(ports, &[("proxy-protocol", "*")]);
    fixture.spec.source_ranges = ["10.0.0.0/8", "192.0.2.0/24"].map(|range| range.parse().unwrap()).to_vec();
    let fixture = fixture.with_own_group();
    let mut observed = fixture.created_by_go();
    observed.load_balancer.instances.reverse();
    let mut reversed = fixture.clone();
    reversed.spec.ports.reverse();
    reversed.spec.source_ranges.reverse();
    assert_eq!(reversed.steps(Some(&observed)), [""; 0]);
    assert_eq!(fixture.steps(None).len(), reversed.steps(None).len());
}

#[test]
fn an_interrupted_creation_is_continued() {
    let fixture = annotated(Fixture::new().with_own_group(), &[("proxy-protocol", "*")]);
    let mut observed = fixture.created_by_go();
    observed.attributes = attributes::of_new();
    observed.load_balancer.backends.clear();
    observed.load_balancer.instances.clear();
    observed.load_balancer.health_check = Some(elb::HealthCheck {
        target: "TCP:30080".to_owned(),
        interval: 30,
        timeout: 5,
        unhealthy_threshold: 2,
        healthy_threshold: 10,
    });
    let expected = [
        "create load balancer policy k8s-proxyprotocol-enabled []",
        "update CLB LB [policy of instance port 30080: k8s-proxyprotocol-enabled]",
        "update CLB LB [health check interval: 30 -> 10; unhealthy threshold: 2 -> 6; healthy threshold: 10 -> 2]",
        "update CLB LB [instance: i-1; instance: i-2]",
    ];
    assert_eq!(fixture.steps(Some(&observed)), expected);
    observed.load_balancer.policies.other_policies.push("k8s-proxyprotocol-enabled".to_owned());
    assert_eq!(fixture.steps(Some(&observed)), expected[1..]);
}

#[test]
fn each_changed_part_is_one_step() {
    let before = Fixture::new().ports(&[("a", 80), ("b", 443)]).with_own_group();
    let observed = before.created_by_go();
    for (annotations, expected) in [
        (&[("subnets", "subnet-a")][..], &["update CLB LB [subnet: subnet-b (removed)]"][..]),
        (
            &[("subnets", "subnet-0,subnet-b")],
            &["update CLB LB [subnet: subnet-a (removed)]", "update CLB LB [subnet: subnet-0]"],
        ),
        (&[("extra-security-groups", "sg-1")], &["update CLB LB [security group: sg-1]"]),
        (
            &[("backend-protocol", "http"), ("ssl-cert", "arn"), ("ssl-ports", "b")],
            &[
                "update CLB LB [listener: tcp 80 -> tcp 30080 (removed); listener: tcp 443 -> tcp 30443 (removed)]",
                "update CLB LB [listener: http 80 -> http 30080; listener: https 443 -> http 30443 with arn]",
            ],
        ),
        (
            &[("proxy-protocol", "*")],
            &[
                "create load balancer policy k8s-proxyprotocol-enabled []",
                "update CLB LB [policy of instance port 30080: k8s-proxyprotocol-enabled]",
                "update CLB LB [policy of instance port 30443: k8s-proxyprotocol-enabled]",
            ],
        ),
        (&[("additional-resource-tags", "a=b")], &["update CLB LB [tag a: b]"]),
        (
            &[("cross-zone-load-balancing-enabled", "true")],
            &["update CLB LB [cross-zone load balancing: false -> true]"],
        ),
        (&[("healthcheck-timeout", "7")], &["update CLB LB [health check timeout: 5 -> 7]"]),
        (&[("healthcheck-port", "8001")], &["update CLB LB [health check: TCP:30080 -> TCP:8001]"]),
    ] {
        let after = annotated(before.clone(), annotations);
        assert_eq!(after.steps(Some(&observed)), expected, "{annotations:?}");
    }
}

#[test]
fn instances_are_registered_before_others_are_deregistered() {
    let before = Fixture::new().with_own_group();
    let observed = before.created_by_go();
    let after = before.instances(&["i-2", "i-3"]);
    let expected = ["update CLB LB [instance: i-3]", "update CLB LB [instance: i-1 (removed)]"];
    assert_eq!(after.steps(Some(&observed)), expected);
    assert!(after.plan(Some(&observed)).locks.is_empty());
}

#[test]
fn changed_ports_and_source_ranges_change_the_own_group() {
    let before = Fixture::new().with_own_group();
    let observed = before.created_by_go();
    let mut after = before.ports(&[("", 81)]);
    after.spec.source_ranges = vec!["192.0.2.7/24".parse().unwrap()];
    let expected = [
        "update security group k8s-elb-LB [rule: icmp 3-4 from 192.0.2.0/24; rule: tcp 81 from 192.0.2.0/24]",
        "update security group k8s-elb-LB [rule: icmp 3-4 from 0.0.0.0/0 (removed); rule: tcp 80 from 0.0.0.0/0 (removed)]",
        "update CLB LB [listener: tcp 80 -> tcp 30080 (removed)]",
        "update CLB LB [listener: tcp 81 -> tcp 30081]",
        "update CLB LB [health check: TCP:30080 -> TCP:30081]",
    ];
    assert_eq!(after.steps(Some(&observed)), expected);
}

#[test]
fn tags_are_added_and_replaced_but_never_removed_and_keep_the_identity() {
    let fixture = annotated(Fixture::new().with_own_group(), &[("additional-resource-tags", "a=1,b=2")]);
    let mut observed = fixture.created_by_go();
    observed.tags.insert("a".to_owned(), "0".to_owned());
    observed.tags.insert("by-hand".to_owned(), "x".to_owned());
    assert_eq!(fixture.steps(Some(&observed)), ["update CLB LB [tag a: 0 -> 1]"]);
    let hostile = annotated(fixture, &[("additional-resource-tags", "a=0,kubernetes.io/cluster/demo=shared")]);
    assert_eq!(hostile.steps(Some(&observed)), [""; 0]);
}

#[test]
fn the_scheme_and_its_subnets_stay() {
    let before = Fixture::new().with_own_group();
    let observed = before.created_by_go();
    let after = annotated(before, &[("internal", "true")]);
    let plan = after.plan(Some(&observed));
    assert_eq!(shown(&plan), [""; 0]);
    assert!(plan.warnings[0].message.contains("is internet-facing and the Service requests internal"), "{plan:?}");
    let explicit = annotated(after, &[("subnets", "subnet-0")]);
    assert_eq!(explicit.steps(Some(&observed)).len(), 2, "subnets that the user names are used");
}

#[test]
fn settings_without_effect_are_warnings() {
    let mut fixture = annotated(Fixture::new(), &[("eip-allocations", "e"), ("ssl-negotiation-policy", "Strict")]);
    fixture.spec.ip_families = vec![IpFamily::IPv4, IpFamily::IPv6];
    let plan = fixture.plan(None);
    let starts = ["spec.ipFamilies", &format!("{PREFIX}eip-allocations"), &format!("{PREFIX}ssl-negotiation-policy")];
    assert_eq!(plan.warnings.len(), starts.len());
    for (warning, start) in plan.warnings.iter().zip(starts) {
        assert!(warning.message.starts_with(start) && warning.reason == "LoadBalancerSettingIgnored", "{warning:?}");
    }
}

#[test]
fn invalid_annotations_are_reported_in_the_order_of_upstream() {
    let all = [
        ("ssl-cert", "arn"),
        ("backend-protocol", "bacon"),
        ("proxy-protocol", "x"),
        ("cross-zone-load-balancing-enabled", "x"),
        ("subnets", ""),
        ("healthcheck-port", "x"),
    ];
    let texts = ["Invalid backend protocol", "only value supported", "cross-zone", "empty subnet slice", "ParseInt"];
    for (at, text) in texts.iter().enumerate() {
        let from = if at == 0 { 0 } else { at + 1 };
        let fixture = annotated(Fixture::new(), all.get(from..).unwrap());
        let error = plan(&fixture.inputs(), None).unwrap_err().to_string();
        assert!(error.contains(text), "{text}: {error}");
    }
}

#[test]
fn the_internal_kind_is_requested_by_the_annotation() {
    for internal in [false, true] {
        let kind = capabilities(internal);
        let annotations =
            kind.requested_by.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        assert_eq!(keys::is_internal(Values(&annotations), false), internal);
        assert_eq!((kind.name, kind.internal), (if internal { "classic-internal" } else { "classic" }, internal));
    }
}
