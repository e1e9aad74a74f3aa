//! Health checks of Services.

use std::time::Duration;

use super::super::listeners;
use super::super::tests::Fixture;
use super::*;

fn build(fixture: &Fixture) -> Result<HealthCheck> {
    let inputs = fixture.inputs();
    desired(&inputs, &listeners::desired(&inputs).unwrap(), None)
}

fn target(fixture: &Fixture) -> String {
    build(fixture).unwrap().target
}

fn check(annotations: &[(&str, &str)]) -> Fixture {
    let prefix = "service.beta.kubernetes.io/aws-load-balancer-";
    let annotated = |fixture: Fixture, (key, value): &(&str, &str)| fixture.annotated(&format!("{prefix}{key}"), value);
    annotations.iter().fold(Fixture::new().ports(&[("a", 80), ("b", 443)]), annotated)
}

#[test]
fn the_default_is_tcp_to_the_first_node_port() {
    let expected = HealthCheck {
        target: "TCP:30080".to_owned(),
        interval: 10,
        timeout: 5,
        unhealthy_threshold: 6,
        healthy_threshold: 2,
    };
    assert_eq!(build(&check(&[])).unwrap(), expected);
}

#[test]
fn annotations_override_protocol_port_and_path() {
    for (annotations, expected) in [
        (&[("backend-protocol", "HTTPS")][..], "SSL:30080"),
        (&[("backend-protocol", "http")], "TCP:30080"),
        (
            &[("healthcheck-protocol", "SSL"), ("healthcheck-path", "/healthz"), ("healthcheck-port", "3124")],
            "SSL:3124",
        ),
        (
            &[("healthcheck-protocol", "HTTPS"), ("healthcheck-path", "/healthz"), ("healthcheck-port", "31224")],
            "HTTPS:31224/healthz",
        ),
        (&[("healthcheck-protocol", "HTTP")], "HTTP:30080/"),
        (&[("healthcheck-protocol", "http"), ("healthcheck-path", "")], "http:30080/"),
        (&[("healthcheck-protocol", "")], ":30080"),
        (&[("healthcheck-port", "traffic-port")], "TCP:30080"),
        (&[("healthcheck-path", "/ready")], "TCP:30080"),
    ] {
        assert_eq!(target(&check(annotations)), expected, "{annotations:?}");
    }
}

#[test]
fn a_local_service_is_checked_by_its_own_port() {
    assert_eq!(target(&check(&[]).local(32000)), "HTTP:32000/healthz");
    assert_eq!(target(&check(&[("healthcheck-port", "traffic-port")]).local(32000)), "HTTP:30080/healthz");
    assert_eq!(target(&check(&[("healthcheck-port", "8001")]).local(32000)), "HTTP:8001/healthz");
    assert_eq!(target(&check(&[("healthcheck-protocol", "TCP")]).local(32000)), "TCP:32000");
    assert_eq!(target(&check(&[]).local(0)), "TCP:30080");
}

#[test]
fn the_mode_shared_checks_kube_proxy_unless_annotations_or_the_policy_say_otherwise() {
    let shared = |annotations: &[(&str, &str)]| {
        let mut fixture = check(annotations);
        fixture.config.health_probe_mode = "Shared".to_owned();
        (fixture.config.health_probe_port, fixture.config.health_probe_path) = (10256, "/healthz".to_owned());
        fixture
    };
    assert_eq!(target(&shared(&[])), "HTTP:10256/healthz");
    assert_eq!(target(&shared(&[("backend-protocol", "ssl")])), "HTTP:10256/healthz");
    assert_eq!(target(&shared(&[("healthcheck-port", "8001"), ("healthcheck-path", "/a")])), "HTTP:8001/a");
    assert_eq!(target(&shared(&[]).local(32000)), "HTTP:32000/healthz");
    let mut other = shared(&[]);
    other.config.health_probe_mode = "shared".to_owned();
    assert_eq!(target(&other), "TCP:30080");
}

#[test]
fn common_settings_count_where_the_annotation_is_missing() {
    let common = |annotations: &[(&str, &str)]| {
        let mut fixture = check(annotations);
        fixture.settings.health_check_path = Some("/ready".to_owned());
        fixture.settings.health_check_port = Some(32100);
        fixture.settings.health_check_interval = Some(Duration::from_secs(5));
        fixture
    };
    let built = build(&common(&[])).unwrap();
    assert_eq!((built.target.as_str(), built.interval, built.timeout), ("HTTP:32100/ready", 5, 4));
    let annotated = [("healthcheck-port", "1"), ("healthcheck-path", "/a"), ("healthcheck-interval", "30")];
    let built = build(&common(&annotated)).unwrap();
    assert_eq!((built.target.as_str(), built.interval, built.timeout), ("HTTP:1/a", 30, 5));
    let tcp = common(&[("healthcheck-protocol", "TCP")]);
    let built = build(&tcp).unwrap();
    assert_eq!(built.target, "TCP:32100");
    let warning = warning(&tcp.inputs(), &built).unwrap().message;
    assert!(warning.contains("the protocol of the health check is TCP"), "{warning}");
}

#[test]
fn the_observed_node_port_stays_as_long_as_a_listener_uses_it() {
    let fixture = check(&[]);
    let inputs = fixture.inputs();
    let listeners = listeners::desired(&inputs).unwrap();
    for (observed, expected) in
        [("TCP:30443", "TCP:30443"), ("HTTP:30443/x", "TCP:30443"), ("TCP:1", "TCP:30080"), ("", "TCP:30080")]
    {
        let observed = HealthCheck { target: observed.to_owned(), ..HealthCheck::default() };
        assert_eq!(desired(&inputs, &listeners, Some(&observed)).unwrap().target, expected, "{observed:?}");
    }
}

#[test]
fn invalid_values_have_the_texts_of_upstream() {
    let prefix = format!("cannot update health check for load balancer {:?}: ", Fixture::NAME);
    let invalid = "some of the load balancer health check parameters are invalid: HealthCheck validation errors: ";
    for (annotations, expected) in [
        (
            &[("healthcheck-interval", "abc")][..],
            r#"failed parsing health check annotation value: strconv.ParseInt: parsing "abc": invalid syntax"#.to_owned(),
        ),
        (
            &[("healthcheck-interval", "x"), ("healthcheck-timeout", "")],
            r#"failed parsing health check annotation value: strconv.ParseInt: parsing "": invalid syntax"#.to_owned(),
        ),
        (
            &[("healthcheck-timeout", "9999999999")],
            r#"failed parsing health check annotation value: strconv.ParseInt: parsing "9999999999": value out of range"#
                .to_owned(),
        ),
        (&[("healthcheck-timeout", "1")], format!("{invalid}Timeout must be at least 2")),
        (
            &[
                ("healthcheck-timeout", "1"),
                ("healthcheck-interval", "4"),
                ("healthcheck-healthy-threshold", "1"),
                ("healthcheck-unhealthy-threshold", "1"),
            ],
            format!(
                "{invalid}HealthyThreshold must be at least 2; Interval must be at least 5; Timeout must be at least 2; \
                 UnhealthyThreshold must be at least 2"
            ),
        ),
    ] {
        let error = build(&check(annotations)).unwrap_err();
        assert_eq!(error.to_string(), format!("{prefix}{expected:?}"), "{annotations:?}");
    }
}

#[test]
fn errors_of_local_services_name_the_node_port() {
    let name = Fixture::NAME;
    let error = build(&check(&[("healthcheck-port", "abc")]).local(32000)).unwrap_err().to_string();
    let start = format!("Failed to ensure health check for localized service {name} on node port 32000: ");
    assert!(error.starts_with(&start) && error.contains(r#"parsing \"abc\": invalid syntax"#), "{error}");
    let error = build(&check(&[("healthcheck-interval", "1")]).local(32000)).unwrap_err().to_string();
    let inner = r#""cannot update health check for load balancer \""#;
    assert!(error.starts_with(&format!("{start}{inner}")), "{error}");
    let error = build(&check(&[("healthcheck-port", "abc")])).unwrap_err();
    assert_eq!(error.message(), r#"strconv.ParseInt: parsing "abc": invalid syntax"#);
}

#[test]
fn each_field_is_compared() {
    let wanted = build(&check(&[("healthcheck-protocol", "http")])).unwrap();
    let upper = HealthCheck { target: "HTTP:30080/".to_owned(), ..wanted.clone() };
    assert_eq!(changes(Some(&upper), &wanted), []);
    assert_eq!(changes(None, &wanted).len(), 1);
    for other in [
        HealthCheck { target: "http:30080/a".to_owned(), ..wanted.clone() },
        HealthCheck { interval: 1, ..wanted.clone() },
        HealthCheck { timeout: 1, ..wanted.clone() },
        HealthCheck { unhealthy_threshold: 1, ..wanted.clone() },
        HealthCheck { healthy_threshold: 1, ..wanted.clone() },
    ] {
        assert_eq!(changes(Some(&other), &wanted).len(), 1, "{other:?}");
    }
}
