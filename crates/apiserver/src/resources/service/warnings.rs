//! Warnings about valid but discouraged fields of a Service, for `Warning` headers.

use std::net::IpAddr;

use serde_json::Value;

use super::shape::{self, NONE, ServiceType};
use crate::validation::address;
use crate::value::Json;

/// Returns the warnings of the whole object.
pub(super) fn of_service(svc: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    if annotation(svc, TOPOLOGY_HINTS).is_some() {
        warnings.push(format!("annotation {TOPOLOGY_HINTS} is deprecated, please use {TOPOLOGY_MODE} instead"));
    }
    if !matches!(svc.text("spec.clusterIP"), "" | NONE) {
        warnings.extend(of_each(svc, "spec.clusterIPs", ip_warning));
    }
    let headless = shape::type_of(svc) == ServiceType::ClusterIp && svc.text("spec.clusterIP") == NONE;
    if headless {
        warnings.extend(ignored_when_headless(svc));
    }
    warnings.extend(of_each(svc, "spec.externalIPs", ip_warning));
    let external_ips = !svc.list("spec.externalIPs").is_empty();
    if external_ips && !headless && !shape::is_external_name(svc) {
        warnings.push("spec.externalIPs is deprecated and may no longer be implemented in some clusters".to_owned());
    }
    warnings.extend(ip_warning("spec.loadBalancerIP", svc.text("spec.loadBalancerIP")));
    warnings.extend(of_each(svc, "spec.loadBalancerSourceRanges", address::cidr_warning));
    warnings.extend(ignored_by_type(svc));
    if svc.text("spec.trafficDistribution") == "PreferClose" {
        warnings.push(r#"spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone""#.to_owned());
    }
    warnings
}

/// Returns the warnings of a status update.
pub(super) fn of_status(svc: &Value) -> Vec<String> {
    const INGRESS: &str = "status.loadBalancer.ingress";
    let ingress = svc.list(INGRESS).iter().enumerate();
    ingress.filter_map(|(i, entry)| ip_warning(&format!("{INGRESS}[{i}]"), entry.text("ip"))).collect()
}

pub(super) const TOPOLOGY_HINTS: &str = "service.kubernetes.io/topology-aware-hints";
pub(super) const TOPOLOGY_MODE: &str = "service.kubernetes.io/topology-mode";

pub(super) fn annotation<'a>(svc: &'a Value, key: &str) -> Option<&'a str> {
    svc.map("metadata.annotations")?.get(key)?.as_str()
}

fn ignored_when_headless(svc: &Value) -> Vec<String> {
    [
        (svc.has("spec.loadBalancerIP"), "spec.loadBalancerIP is ignored for headless services"),
        (!svc.list("spec.externalIPs").is_empty(), "spec.externalIPs is ignored for headless services"),
        (svc.text("spec.sessionAffinity") != "None", "spec.SessionAffinity is ignored for headless services"),
    ]
    .into_iter()
    .filter(|(ignored, _)| *ignored)
    .map(|(_, text)| text.to_owned())
    .collect()
}

fn ignored_by_type(svc: &Value) -> Option<String> {
    let external_name = shape::is_external_name(svc);
    if external_name && !svc.list("spec.externalIPs").is_empty() {
        return Some(r#"spec.externalIPs is ignored when spec.type is "ExternalName""#.to_owned());
    }
    (!external_name && svc.has("spec.externalName"))
        .then(|| r#"spec.externalName is ignored when spec.type is not "ExternalName""#.to_owned())
}

fn of_each(svc: &Value, path: &str, warning: fn(&str, &str) -> Option<String>) -> Vec<String> {
    let given = svc.texts(path).into_iter().enumerate();
    given.filter_map(|(i, text)| warning(&format!("{path}[{i}]"), text)).collect()
}

/// Returns a warning for a non-canonical address. Fields without validation, such as `loadBalancerIP`, can even have
/// non-standard addresses, which other fields reject.
fn ip_warning(field: &str, text: &str) -> Option<String> {
    let plain = address::parse_ip(text)?;
    match text.parse::<IpAddr>() {
        Ok(ip) if ip == plain => address::ip_warning(field, text),
        _ => Some(format!("{field}: non-standard IP address {text:?} is invalid: use \"{plain}\"")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn discouraged_fields_return_warnings() {
        let cases = [
            (json!({"type": "ClusterIP"}), vec![]),
            (json!({"type": "ClusterIP", "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"]}), vec![]),
            (
                json!({"type": "ClusterIP", "externalIPs": ["192.0.2.5"]}),
                vec!["spec.externalIPs is deprecated and may no longer be implemented in some clusters"],
            ),
            (
                json!({"type": "ClusterIP", "trafficDistribution": "PreferClose"}),
                vec![r#"spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone""#],
            ),
            (
                json!({"type": "ClusterIP", "clusterIP": "None", "externalIPs": ["192.0.2.5"], "loadBalancerIP": "192.0.2.1",
                       "sessionAffinity": "ClientIP"}),
                vec![
                    "spec.loadBalancerIP is ignored for headless services",
                    "spec.externalIPs is ignored for headless services",
                    "spec.SessionAffinity is ignored for headless services",
                ],
            ),
            (
                json!({"type": "ExternalName", "externalName": "a", "externalIPs": ["192.0.2.5"]}),
                vec![r#"spec.externalIPs is ignored when spec.type is "ExternalName""#],
            ),
            (
                json!({"type": "NodePort", "externalName": "a"}),
                vec![r#"spec.externalName is ignored when spec.type is not "ExternalName""#],
            ),
            (
                json!({"type": "LoadBalancer", "loadBalancerIP": "192.0.2.01", "loadBalancerSourceRanges": ["FD00::/64"]}),
                vec![
                    r#"spec.loadBalancerIP: non-standard IP address "192.0.2.01" is invalid: use "192.0.2.1""#,
                    r#"spec.loadBalancerSourceRanges[0]: IPv6 CIDR value "FD00::/64" should be in RFC 5952 canonical format ("fd00::/64")"#,
                ],
            ),
        ];
        for (mut spec, expected) in cases {
            if spec.get("sessionAffinity").is_none() {
                spec["sessionAffinity"] = "None".into();
            }
            assert_eq!(of_service(&json!({ "spec": spec })), expected, "{spec}");
        }
    }

    #[test]
    fn deprecated_annotation_returns_a_warning() {
        let svc = json!({"metadata": {"annotations": {TOPOLOGY_HINTS: "auto"}}});
        assert_eq!(
            of_service(&svc),
            ["annotation service.kubernetes.io/topology-aware-hints is deprecated, please use \
                 service.kubernetes.io/topology-mode instead"]
        );
    }

    #[test]
    fn non_canonical_ingress_address_returns_a_warning() {
        let svc = json!({"status": {"loadBalancer": {"ingress": [{"hostname": "a"}, {"ip": "FD00::1"}]}}});
        assert_eq!(
            of_status(&svc),
            [
                r#"status.loadBalancer.ingress[1]: IPv6 address "FD00::1" should be in RFC 5952 canonical format ("fd00::1")"#
            ]
        );
    }
}
