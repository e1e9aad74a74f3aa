//! Values of settings and their precedence.

use std::collections::BTreeMap;

use bowline_core::IpFamily;
use bowline_core::annotations::{LoadBalancerSettings, NodeSelector, ProxyProtocol};

use super::super::observation::Placement;
use super::super::testing::{Scene, config};
use super::*;
use crate::config::{Class, FloatingSubnet, MonitorTimes};

fn class(placement: &[(&str, &str)]) -> Class {
    let mut class = Class::default();
    for (key, value) in placement {
        let field = match *key {
            "network-id" => &mut class.network_id,
            "subnet-id" => &mut class.subnet_id,
            "member-subnet-id" => &mut class.member_subnet_id,
            "floating-network-id" => &mut class.floating_network_id,
            "floating-subnet-id" => &mut class.floating_subnet.id,
            "floating-subnet" => &mut class.floating_subnet.name,
            "floating-subnet-tags" => &mut class.floating_subnet.tags,
            other => panic!("{other}"),
        };
        *field = (*value).to_owned();
    }
    class
}

/// Networks and subnets in `[LoadBalancer]`, in the class `c` and in annotations.
fn placed(own: &[(&str, &str)], of_class: &[(&str, &str)], annotated: &[(&str, &str)]) -> Scene {
    let mut scene = Scene::new();
    scene.config.load_balancer.placement = class(own);
    if !of_class.is_empty() {
        scene.config.classes.insert("c".to_owned(), class(of_class));
        scene = scene.with("class", "c");
    }
    annotated.iter().fold(scene, |scene, (key, value)| scene.with(key, value))
}

fn placement(scene: &Scene, detected: Option<&str>) -> [String; 3] {
    let Placement { vip_network_id, vip_subnet_id, member_subnet_id, .. } =
        scene.settings().unwrap().placement.with(detected);
    [vip_network_id, vip_subnet_id, member_subnet_id]
}

fn external(scene: Scene) -> Scene {
    scene.configured(|section| section.internal = false)
}

#[test]
fn the_vip_subnet_comes_from_annotation_class_or_configuration_in_this_order() {
    let (own, of_class, annotated) = ([("subnet-id", "own")], [("subnet-id", "class")], [("subnet-id", "annotated")]);
    let table = [
        (placed(&own, &[], &[]), ["", "own", "own"]),
        (placed(&own, &of_class, &[]), ["", "class", "own"]),
        (placed(&own, &of_class, &annotated), ["", "annotated", "own"]),
        (placed(&[], &of_class, &annotated), ["", "annotated", "annotated"]),
        (placed(&[], &of_class, &[("subnet-id", "")]), ["", "class", "class"]),
        (external(placed(&[], &of_class, &annotated)), ["", "class", "annotated"]),
        (external(placed(&own, &of_class, &annotated)), ["", "class", "own"]),
        (
            placed(&[("network-id", "own")], &[("network-id", "class")], &[("network-id", "annotated")]),
            ["annotated", "", ""],
        ),
        (external(placed(&[], &[("network-id", "class")], &[("network-id", "annotated")])), ["class", "", ""]),
    ];
    for (number, (scene, expected)) in table.into_iter().enumerate() {
        assert_eq!(placement(&scene, None), expected, "row {number}");
    }
}

#[test]
fn members_have_their_own_subnet_if_configured() {
    let own = [("subnet-id", "own"), ("member-subnet-id", "own-members")];
    let of_class = [("subnet-id", "class"), ("member-subnet-id", "class-members")];
    let annotated = [("subnet-id", "annotated"), ("member-subnet-id", "annotated-members")];
    let table = [
        (placed(&own, &[], &[]), "own-members"),
        (placed(&own, &of_class, &[]), "class-members"),
        (placed(&own, &of_class, &annotated), "annotated-members"),
        (placed(&own, &of_class, &[("member-subnet-id", "")]), "class-members"),
    ];
    for (scene, expected) in table {
        assert_eq!(placement(&scene, None)[2], expected);
    }
}

#[test]
fn without_configuration_the_subnet_of_the_first_node_is_used() {
    let unset = placed(&[], &[], &[]);
    assert!(unset.settings().unwrap().placement.detect);
    assert_eq!(placement(&unset, Some("of-node")), ["", "of-node", "of-node"]);
    let members = placed(&[("member-subnet-id", "members")], &[], &[]);
    assert_eq!(placement(&members, Some("of-node")), ["", "of-node", "members"]);
    let network = placed(&[("network-id", "own")], &[], &[]);
    assert!(!network.settings().unwrap().placement.detect, "a network suffices");
    assert_eq!(placement(&network, Some("of-node")), ["own", "", ""]);
}

#[test]
fn case_013_an_unknown_class_is_an_error_and_names_are_case_sensitive() {
    let scene = placed(&[], &[("subnet-id", "x")], &[]);
    assert!(scene.clone().settings().is_ok());
    let error = scene.with("class", "C").settings().unwrap_err();
    assert!(error.message().contains("\"C\"") && error.message().contains("known: c"), "{error}");
}

#[test]
fn the_floating_network_comes_from_class_annotation_or_configuration_in_this_order() {
    let network = |own: &[_], of_class: &[_], annotated: &[_]| {
        external(placed(own, of_class, annotated)).settings().unwrap().floating.network_id
    };
    let key = "floating-network-id";
    assert_eq!(network(&[(key, "own")], &[], &[]), "own");
    assert_eq!(network(&[(key, "own")], &[], &[(key, "annotated")]), "annotated");
    assert_eq!(network(&[(key, "own")], &[], &[(key, "")]), "", "it is detected");
    assert_eq!(network(&[(key, "own")], &[(key, "class")], &[(key, "annotated")]), "class");
    assert_eq!(network(&[(key, "own")], &[("subnet-id", "x")], &[]), "own");
}

#[test]
fn the_floating_subnet_comes_from_one_source_and_an_id_excludes_patterns() {
    let subnet = |own: &[_], of_class: &[_], annotated: &[_]| {
        let FloatingSubnet { id, name, tags } =
            external(placed(own, of_class, annotated)).settings().unwrap().floating.subnet;
        [id, name, tags].join(",")
    };
    let (id, name, tags) = ("floating-subnet-id", "floating-subnet", "floating-subnet-tags");
    assert_eq!(subnet(&[], &[], &[]), ",,");
    assert_eq!(subnet(&[(id, "a"), (name, "b"), (tags, "c")], &[], &[]), "a,,");
    assert_eq!(subnet(&[(id, "a")], &[], &[(name, "b"), (tags, "c")]), ",b,c");
    assert_eq!(subnet(&[(id, "a")], &[(tags, "d")], &[(name, "b")]), ",,d");
    assert_eq!(subnet(&[(id, "a")], &[(key_of_network(), "n")], &[(name, "")]), "a,,");
}

fn key_of_network() -> &'static str {
    "floating-network-id"
}

#[test]
fn case_163_and_164_a_certificate_is_checked_if_it_is_in_barbican() {
    let secret = |reference: &str, store: &str| {
        let scene = Scene::new().with("default-tls-container-ref", reference).configured(|section| {
            section.container_store = store.to_owned();
        });
        let settings = scene.settings().unwrap();
        settings.tls_secret(&scene.config).map(|found| found.map(|found| format!("{found:?}")))
    };
    assert_eq!(secret("https://kms/v1/secrets/1", "barbican").unwrap().unwrap(), r#"Secret("1")"#);
    assert_eq!(secret("https://kms/v1/containers/2", "barbican").unwrap().unwrap(), r#"Container("2")"#);
    for wrong in ["https://kms/v1/orders/1", "https://kms/v1/secrets/", "nonsense"] {
        let error = secret(wrong, "barbican").unwrap_err();
        assert!(error.message().contains("neither a container nor a secret"), "163: {error}");
    }
    assert_eq!(secret("https://kms/v1/orders/1", "external").unwrap(), None, "164");
    assert_eq!(secret("", "barbican").unwrap(), None);
}

#[test]
fn an_empty_certificate_disables_the_configured_one() {
    let configured =
        Scene::new().configured(|section| section.tls_container_ref = "https://kms/v1/secrets/1".to_owned());
    assert_eq!(configured.settings().unwrap().tls_container_ref, "https://kms/v1/secrets/1");
    assert_eq!(configured.with("default-tls-container-ref", "").settings().unwrap().tls_container_ref, "");
}

#[test]
fn case_165_an_unsupported_availability_zone_is_ignored_with_a_warning() {
    let scene = Scene::new().octavia("v2.13").with("availability-zone", "az1");
    assert_eq!(scene.warnings(), ["LoadBalancerAvailabilityZonesIgnored"]);
    assert!(scene.body("create load balancer").get("availability_zone").is_none());
    assert_eq!(Scene::new().octavia("v2.14").with("availability-zone", "az1").warnings(), [""; 0]);
    assert_eq!(Scene::new().octavia("v2.13").with("availability-zone", "").warnings(), [""; 0]);
}

#[test]
fn common_annotations_that_ovn_does_not_support_cause_warnings() {
    let warnings_with = |provider: &str| {
        let scene = Scene::new().provider(provider).with("bowline.dev/idle-timeout", "90s");
        scene.with("bowline.dev/health-check-path", "/ready").warnings()
    };
    assert_eq!(warnings_with("ovn"), ["LoadBalancerIdleTimeoutIgnored", "LoadBalancerHealthCheckPathIgnored"]);
    assert_eq!(warnings_with("amphora"), [""; 0]);
}

#[test]
fn numbers_are_parsed_as_in_go() {
    let limit = |text: &str| Scene::new().with("connection-limit", text).settings().unwrap().connection_limit;
    let table =
        [("5", 5), ("-1", -1), ("+7", 7), (" 5", -1), ("5 ", -1), ("", -1), ("0x10", -1), ("5.0", -1), ("1e3", -1)];
    for (text, expected) in table {
        assert_eq!(limit(text), expected, "{text:?}");
    }
}

#[test]
fn only_true_and_false_are_booleans() {
    let forwarded = |text: &str| Scene::new().with("x-forwarded-for", text).settings().unwrap();
    for (text, expected) in
        [("true", true), ("false", false), ("True", false), ("1", false), ("yes", false), ("", false)]
    {
        let settings = forwarded(text);
        assert_eq!(settings.x_forwarded_for, expected, "{text:?}");
        assert_eq!(settings.warnings.is_empty(), matches!(text, "true" | "false"), "{text:?}");
    }
}

#[test]
fn internal_lb_in_the_configuration_cannot_be_overridden() {
    const INTERNAL: &str = "service.beta.kubernetes.io/openstack-internal-load-balancer";
    let internal = |configured: bool, annotations: &[(&str, &str)]| {
        let scene = Scene::new().configured(|section| section.internal = configured);
        annotations.iter().fold(scene, |scene, (key, value)| scene.with(key, value)).settings().unwrap().internal
    };
    assert!(internal(true, &[]) && internal(true, &[(INTERNAL, "false")]));
    assert!(!internal(false, &[]) && internal(false, &[(INTERNAL, "true")]));
    assert!(internal(false, &[("bowline.dev/internal", "true")]));
    assert!(!internal(false, &[("bowline.dev/internal", "true"), (INTERNAL, "false")]));
    assert!(internal(false, &[("bowline.dev/internal", "true"), (INTERNAL, "perhaps")]), "an invalid value is ignored");
}

#[test]
fn monitor_timing_comes_from_annotations_and_configuration() {
    let times = |annotations: &[(&str, &str)]| {
        let scene = Scene::new().configured(|section| section.create_monitor = true);
        let scene = annotations.iter().fold(scene, |scene, (key, value)| scene.with(key, value));
        let MonitorTimes { delay, timeout, max_retries, max_retries_down } =
            scene.settings().unwrap().monitor.unwrap().times;
        [delay, timeout, max_retries, max_retries_down]
    };
    assert_eq!(times(&[]), [5, 3, 1, 3]);
    let all = [
        ("health-monitor-delay", "10"),
        ("health-monitor-timeout", "7"),
        ("health-monitor-max-retries", "2"),
        ("health-monitor-max-retries-down", "4"),
    ];
    assert_eq!(times(&all), [10, 7, 2, 4]);
    assert_eq!(times(&[("bowline.dev/health-check-interval", "500ms")]), [1, 1, 1, 3]);
    assert_eq!(times(&[("bowline.dev/health-check-interval", "30s")]), [30, 3, 1, 3]);
    assert_eq!(times(&[("bowline.dev/health-check-interval", "30s"), ("health-monitor-delay", "4")])[0], 4);
}

// ---- common settings

fn shared(annotations: &[(&str, &str)], node_selector: &str, common: LoadBalancerSettings) -> LoadBalancerSettings {
    let mut config = config();
    config.load_balancer.node_selector = node_selector.to_owned();
    let annotations: BTreeMap<String, String> = annotations
        .iter()
        .map(|(key, value)| (format!("loadbalancer.openstack.org/{key}"), (*value).to_owned()))
        .collect();
    let once = common_settings(&config, &known::TABLE.reader(&annotations), common);
    assert_eq!(common_settings(&config, &known::TABLE.reader(&annotations), once.clone()), once, "idempotent");
    once
}

#[test]
fn an_invalid_internal_annotation_is_ignored_with_a_warning() {
    let scene = Scene::new().configured(|section| section.internal = false);
    let settings = scene.with(known::INTERNAL.key, "yes").settings().unwrap();
    assert!(!settings.internal);
    let [warning] = settings.warnings.as_slice() else { panic!("{:?}", settings.warnings) };
    assert!(warning.message.contains(known::INTERNAL.key), "{warning:?}");
}

fn chosen_by(selector: &str, labels: &[(&str, &str)]) -> bool {
    let settings = shared(&[("node-selector", selector)], "", LoadBalancerSettings::default());
    let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    settings.target_nodes.is_none_or(|selector| selector.matches(&labels))
}

#[test]
fn nodes_are_selected_by_labels_that_must_all_match() {
    let prod = [("env", "prod"), ("gpu", "")];
    type Labels<'a> = &'a [(&'a str, &'a str)];
    let table: [(&str, Labels<'_>, bool); 17] = [
        ("", &[], true),
        ("  ", &[], true),
        (",", &[], true),
        ("env=prod", &prod, true),
        ("env=test", &prod, false),
        ("env", &prod, true),
        ("env=", &prod, true),
        ("gpu", &prod, true),
        ("env=prod,gpu", &prod, true),
        (" env=prod , gpu ", &prod, true),
        ("env=prod,zone", &prod, false),
        ("env=prod", &[], false),
        ("env=test,env=prod", &prod, true),
        ("env=a=b", &prod, false),
        ("!env", &[], false),
        ("env in (prod)", &prod, false),
        ("=prod", &prod, false),
    ];
    for (selector, labels, expected) in table {
        assert_eq!(chosen_by(selector, labels), expected, "{selector:?} {labels:?}");
    }
}

#[test]
fn case_118_an_empty_selector_overrides_the_configured_one() {
    let selector = |text: &str| Some(NodeSelector::parse(text).unwrap());
    let nothing = LoadBalancerSettings::default;
    let common = || LoadBalancerSettings { target_nodes: selector("zone=a"), ..nothing() };
    assert_eq!(shared(&[], "env=prod", nothing()).target_nodes, selector("env=prod"));
    assert_eq!(shared(&[("node-selector", "")], "env=prod", nothing()).target_nodes, None);
    assert_eq!(shared(&[("node-selector", "gpu")], "env=prod", common()).target_nodes, selector("gpu"));
    assert_eq!(shared(&[("node-selector", "")], "", common()).target_nodes, None);
    assert_eq!(shared(&[], "env=prod", common()).target_nodes, selector("zone=a"), "the Service takes precedence");
}

#[test]
fn the_clouds_proxy_protocol_annotation_takes_precedence() {
    let v2 = || LoadBalancerSettings { proxy_protocol: Some(ProxyProtocol::V2), ..LoadBalancerSettings::default() };
    let table = [(None, Some(ProxyProtocol::V2)), (Some("v1"), Some(ProxyProtocol::V1)), (Some("off"), None)];
    for (annotation, expected) in table {
        let annotations: Vec<_> = annotation.into_iter().map(|value| ("proxy-protocol", value)).collect();
        assert_eq!(shared(&annotations, "", v2()).proxy_protocol, expected, "{annotation:?}");
    }
}

#[test]
fn the_ip_family_is_the_first_of_the_service() {
    let both = Scene::new().changed(|service| service.ip_families = vec![IpFamily::IPv6, IpFamily::IPv4]);
    assert_eq!(both.settings().unwrap().family, Some(IpFamily::IPv6));
    assert_eq!(Scene::new().changed(|service| service.ip_families.clear()).settings().unwrap().family, None);
}

#[test]
fn case_091_a_source_range_without_a_mask_is_an_error_before_any_call() {
    const RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
    let web = bowline_core::testing::annotated(bowline_core::testing::service("default/web"), &[(RANGES, "10.0.0.1")]);
    let errors = bowline_core::service::read(&web).settings.unwrap_err();
    assert!(errors[0].to_string().starts_with(RANGES) && errors[0].to_string().contains("10.0.0.1"), "{errors:?}");
}

#[test]
fn every_annotation_is_declared_completely() {
    assert_eq!(known::TABLE.validate(), [""; 0]);
}

#[test]
fn a_misspelled_annotation_is_reported_and_one_of_another_program_is_not() {
    let scene = Scene::new().with("netwrok-id", "n1").with("colour", "blue").with("connection-limit", "many");
    let settings = Settings::of(&scene.desired(), scene.desired().spec.as_deref().unwrap(), &scene.config).unwrap();
    let messages: Vec<_> = settings.warnings.iter().map(|warning| warning.message.as_str()).collect();
    let prefix = "loadbalancer.openstack.org";
    let expected = [
        format!(
            "the annotation {prefix}/connection-limit is ignored: \"many\" is not a whole number; default: -1, no limit"
        ),
        format!("unknown annotation {prefix}/netwrok-id; did you mean {prefix}/network-id?"),
    ];
    assert_eq!(messages, expected);
}
