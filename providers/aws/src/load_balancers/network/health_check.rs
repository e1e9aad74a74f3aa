//! Health check of the target groups. It is the same for all ports.

use bowline_core::annotations::{Annotation, LoadBalancerSettings, Parsed};
use bowline_core::{HealthCheck, LoadBalancerSpec, TrafficPolicy};

use super::super::annotations::{self as keys, Values};
use crate::api::elbv2::GroupHealthCheck;
use crate::config::Config;

/// Port of a health check that is the node port of its target group.
pub(super) const TRAFFIC_PORT: &str = "traffic-port";

const TCP: &str = "TCP";
const HTTP: &str = "HTTP";
const HTTPS: &str = "HTTPS";

/// Builds the health check. Later sources win: the Service, the common annotations, those of AWS, and the configured mode `Shared`.
pub(super) fn build(
    values: Values<'_>,
    settings: &LoadBalancerSettings,
    spec: &LoadBalancerSpec,
    config: &Config,
) -> Result<GroupHealthCheck, String> {
    let check = with_common(of_service(spec), settings);
    let check = shared(annotated(check, values)?, settings, spec, config)?;
    let check = with_numbers(check, values)?;
    let is_port = check.port == TRAFFIC_PORT || check.port.parse::<i64>().is_ok();
    if is_port { Ok(check) } else { Err(format!("Invalid health check port '{}'", check.port)) }
}

fn of_service(spec: &LoadBalancerSpec) -> GroupHealthCheck {
    match (spec.traffic_policy, &spec.health_check) {
        (TrafficPolicy::Local, Some(HealthCheck { path, port })) => GroupHealthCheck {
            protocol: HTTP.to_owned(),
            port: port.to_string(),
            path: Some(path.clone()),
            interval: 10,
            healthy_threshold: 2,
            unhealthy_threshold: 2,
        },
        _ => GroupHealthCheck {
            protocol: TCP.to_owned(),
            port: TRAFFIC_PORT.to_owned(),
            path: None,
            interval: 30,
            healthy_threshold: 3,
            unhealthy_threshold: 3,
        },
    }
}

/// Sets what the common annotations contain. A path needs HTTP.
fn with_common(mut check: GroupHealthCheck, settings: &LoadBalancerSettings) -> GroupHealthCheck {
    if let Some(path) = &settings.health_check_path {
        check.protocol = HTTP.to_owned();
        check.path = Some(path.clone());
    }
    if let Some(port) = settings.health_check_port {
        check.port = port.to_string();
    }
    if let Some(interval) = settings.health_check_interval {
        check.interval = i32::try_from(interval.as_secs()).unwrap_or(i32::MAX);
    }
    check
}

fn annotated(mut check: GroupHealthCheck, values: Values<'_>) -> Result<GroupHealthCheck, String> {
    if let Some(protocol) = values.text(&keys::HEALTH_CHECK_PROTOCOL) {
        check.protocol = protocol.to_uppercase();
    }
    check.path = match check.protocol.as_str() {
        TCP => None,
        // upstream: an empty path is used as well.
        HTTP | HTTPS => {
            let path = values.text(&keys::HEALTH_CHECK_PATH).map(str::to_owned).or(check.path);
            Some(path.unwrap_or_else(|| "/".to_owned()))
        }
        other => return Err(format!("Unsupported health check protocol {other}")),
    };
    if let Some(port) = values.text(&keys::HEALTH_CHECK_PORT) {
        check.port = port.to_owned();
    }
    Ok(check)
}

/// Returns whether all Nodes are checked by the health check of kube-proxy.
pub(super) fn is_shared(spec: &LoadBalancerSpec, config: &Config) -> bool {
    config.health_probe_mode == "Shared" && spec.traffic_policy != TrafficPolicy::Local
}

/// Replaces the target of the check in the mode `Shared`.
fn shared(
    check: GroupHealthCheck,
    settings: &LoadBalancerSettings,
    spec: &LoadBalancerSpec,
    config: &Config,
) -> Result<GroupHealthCheck, String> {
    match config.health_probe_mode.as_str() {
        "Shared" if is_shared(spec, config) => Ok(GroupHealthCheck {
            protocol: HTTP.to_owned(),
            port: settings.health_check_port.unwrap_or(config.health_probe_port).to_string(),
            path: settings.health_check_path.clone().or_else(|| Some(config.health_probe_path.clone())),
            ..check
        }),
        "" | "ServiceNodePort" | "Shared" => Ok(check),
        other => Err(format!("Unsupported ClusterServiceLoadBalancerHealthProbeMode {other}")),
    }
}

fn with_numbers(check: GroupHealthCheck, values: Values<'_>) -> Result<GroupHealthCheck, String> {
    let number = |annotation: &Annotation<Parsed<i64>>, default: i32| {
        let error = |text: &str| format!("failed to parse annotation {}={text}", annotation.key);
        match values.get_or(annotation, |text, _| error(text))? {
            Some(number) => i32::try_from(number).map_err(|_| error(&number.to_string())),
            None => Ok(default),
        }
    };
    let interval = number(&keys::HEALTH_CHECK_INTERVAL, check.interval)?;
    // upstream: the timeout is read, but not sent.
    number(&keys::HEALTH_CHECK_TIMEOUT, 0)?;
    let healthy_threshold = number(&keys::HEALTHY_THRESHOLD, check.healthy_threshold)?;
    let unhealthy_threshold = number(&keys::UNHEALTHY_THRESHOLD, check.unhealthy_threshold)?;
    Ok(GroupHealthCheck { interval, healthy_threshold, unhealthy_threshold, ..check })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::tests::{annotated, spec};
    use super::*;

    fn shown(check: &GroupHealthCheck) -> String {
        let path = check.path.as_deref().unwrap_or("-");
        let GroupHealthCheck { protocol, port, interval, healthy_threshold, unhealthy_threshold, .. } = check;
        format!("{protocol} {port} {path} {interval} {healthy_threshold}/{unhealthy_threshold}")
    }

    fn built(pairs: &[(&str, &str)], is_local: bool, mode: &str) -> Result<String, String> {
        let mut spec = spec();
        if is_local {
            spec.traffic_policy = TrafficPolicy::Local;
            spec.health_check = Some(HealthCheck { path: "/healthz".to_owned(), port: 32000 });
        }
        let config = Config {
            health_probe_mode: mode.to_owned(),
            health_probe_port: 10256,
            health_probe_path: "/healthz".to_owned(),
            ..Config::default()
        };
        let annotations = annotated(pairs);
        build(Values(&annotations), &LoadBalancerSettings::default(), &spec, &config).map(|check| shown(&check))
    }

    #[test]
    fn the_service_the_annotations_and_the_mode_decide_the_check() {
        let (protocol, path, port) =
            (keys::HEALTH_CHECK_PROTOCOL.key, keys::HEALTH_CHECK_PATH.key, keys::HEALTH_CHECK_PORT.key);
        for (pairs, is_local, mode, expected) in [
            (&[][..], false, "", "TCP traffic-port - 30 3/3"),
            (&[], false, "ServiceNodePort", "TCP traffic-port - 30 3/3"),
            (&[], true, "", "HTTP 32000 /healthz 10 2/2"),
            (&[(protocol, "Http")], false, "", "HTTP traffic-port / 30 3/3"),
            (&[(protocol, "https"), (path, "/ready")], false, "", "HTTPS traffic-port /ready 30 3/3"),
            (&[(protocol, "http"), (path, "")], false, "", "HTTP traffic-port  30 3/3"),
            (&[(path, "/ready")], false, "", "TCP traffic-port - 30 3/3"),
            (&[(protocol, "TCP"), (port, "8001")], true, "", "TCP 8001 - 10 2/2"),
            (&[(port, "traffic-port")], true, "", "HTTP traffic-port /healthz 10 2/2"),
            (&[(port, "8001"), (protocol, "tcp")], false, "Shared", "HTTP 10256 /healthz 30 3/3"),
            (&[(port, "8001")], true, "Shared", "HTTP 8001 /healthz 10 2/2"),
            (&[(keys::HEALTH_CHECK_INTERVAL.key, "23")], false, "", "TCP traffic-port - 23 3/3"),
            (
                &[(keys::HEALTHY_THRESHOLD.key, "4"), (keys::UNHEALTHY_THRESHOLD.key, "5")],
                false,
                "",
                "TCP traffic-port - 30 4/5",
            ),
        ] {
            assert_eq!(built(pairs, is_local, mode).as_deref(), Ok(expected), "{pairs:?} {is_local} {mode}");
        }
    }

    #[test]
    fn invalid_values_have_the_texts_of_upstream() {
        let interval = "failed to parse annotation service.beta.kubernetes.io/aws-load-balancer-healthcheck-interval=";
        let timeout = "failed to parse annotation service.beta.kubernetes.io/aws-load-balancer-healthcheck-timeout=abc";
        for (pair, mode, expected) in [
            ((keys::HEALTH_CHECK_PROTOCOL.key, "udp"), "", "Unsupported health check protocol UDP"),
            ((keys::HEALTH_CHECK_PROTOCOL.key, ""), "", "Unsupported health check protocol "),
            ((keys::HEALTH_CHECK_PORT.key, "http"), "", "Invalid health check port 'http'"),
            ((keys::HEALTH_CHECK_PORT.key, ""), "", "Invalid health check port ''"),
            ((keys::HEALTH_CHECK_INTERVAL.key, ""), "", interval),
            ((keys::HEALTH_CHECK_TIMEOUT.key, "abc"), "", timeout),
            (
                (keys::HEALTH_CHECK_PORT.key, "1"),
                "shared",
                "Unsupported ClusterServiceLoadBalancerHealthProbeMode shared",
            ),
        ] {
            assert_eq!(built(&[pair], false, mode), Err(expected.to_owned()), "{pair:?}");
        }
    }

    #[test]
    fn common_annotations_apply_unless_those_of_aws_replace_them() {
        let settings = LoadBalancerSettings {
            health_check_path: Some("/ready".to_owned()),
            health_check_port: Some(32000),
            health_check_interval: Some(Duration::from_secs(5)),
            ..LoadBalancerSettings::default()
        };
        let build = |pairs: &[(&str, &str)]| {
            let annotations = annotated(pairs);
            build(Values(&annotations), &settings, &spec(), &Config::default()).map(|check| shown(&check))
        };
        assert_eq!(build(&[]).as_deref(), Ok("HTTP 32000 /ready 5 3/3"));
        let replaced = [(keys::HEALTH_CHECK_PORT.key, "traffic-port"), (keys::HEALTH_CHECK_PATH.key, "/a")];
        assert_eq!(build(&replaced).as_deref(), Ok("HTTP traffic-port /a 5 3/3"));
    }
}
