//! Validation of a Service, in the order kube-apiserver reports errors.
//!
//! `validate_ports` validates ports, `validate_ips` addresses and IP families. Metadata validation is the same for all
//! kinds.

use serde_json::Value;

use super::shape::{self, ServiceType};
use super::warnings::{TOPOLOGY_HINTS, TOPOLOGY_MODE, annotation};
use super::{validate_ips, validate_ports};
use crate::field_error::FieldError;
use crate::validation::{self, address};
use crate::value::Json;

const SOURCE_RANGES_ANNOTATION: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
const ONLY_LOAD_BALANCER: &str = "may only be used when `type` is 'LoadBalancer'";
const LOAD_BALANCER_CLASS: &str = "spec.loadBalancerClass";
const TRAFFIC_POLICIES: &[&str] = &["Cluster", "Local"];
/// One day.
const MAX_AFFINITY_SECONDS: i64 = 86_400;

pub(super) fn create(svc: &Value) -> Vec<FieldError> {
    validate_service(svc, None)
}

pub(super) fn update(svc: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = validate_ips::update(svc, old);
    let both = |predicate: fn(&Value) -> bool| predicate(svc) && predicate(old);
    if both(shape::is_load_balancer) && !shape::same(svc, old, LOAD_BALANCER_CLASS) {
        let class = svc.at(LOAD_BALANCER_CLASS).clone();
        errors.push(FieldError::invalid(LOAD_BALANCER_CLASS, class, "may not change once set"));
    }
    errors.extend(validate_load_balancer_class(svc));
    if both(shape::needs_health_check_port) && shape::health_check_port(svc) != shape::health_check_port(old) {
        errors.push(FieldError::forbidden("spec.healthCheckNodePort", "field is immutable"));
    }
    errors.extend(validate_service(svc, Some(old)));
    errors
}

pub(super) fn status_update(svc: &Value, old: &Value) -> Vec<FieldError> {
    const INGRESS: &str = "status.loadBalancer.ingress";
    let ingress = svc.list(INGRESS);
    if !shape::is_load_balancer(svc) && !ingress.is_empty() {
        return vec![FieldError::forbidden(INGRESS, "may only be used when `spec.type` is 'LoadBalancer'")];
    }
    let accepted: Vec<&str> = old.list(INGRESS).iter().map(|i| i.text("ip")).filter(|ip| !ip.is_empty()).collect();
    ingress
        .iter()
        .enumerate()
        .flat_map(|(i, entry)| validate_ingress(&format!("{INGRESS}[{i}]"), entry, &accepted))
        .collect()
}

// === Status ===

fn validate_ingress(at: &str, ingress: &Value, accepted: &[&str]) -> Vec<FieldError> {
    let (ip, hostname) = (ingress.text("ip"), ingress.text("hostname"));
    let mut errors = Vec::new();
    if !ip.is_empty() {
        errors.extend(address::is_valid_ip_legacy(&format!("{at}.ip"), ip, accepted));
    }
    errors.extend(validate_ip_mode(&format!("{at}.ipMode"), ingress));
    if !hostname.is_empty() {
        let field = format!("{at}.hostname");
        errors.extend(validation::invalid_each(&field, hostname, validation::dns_subdomain(hostname)));
        if address::parse_ip(hostname).is_some() {
            errors.push(FieldError::invalid(field, hostname, "must be a DNS name, not an IP address"));
        }
    }
    errors
}

fn validate_ip_mode(field: &str, ingress: &Value) -> Option<FieldError> {
    const MODES: &[&str] = &["Proxy", "VIP"];
    let mode = ingress.text("ipMode");
    match (ingress.has("ip"), ingress.has("ipMode")) {
        (true, false) => Some(FieldError::required(field, "must be specified when `ip` is set")),
        (false, true) => Some(FieldError::forbidden(field, "may not be specified when `ip` is not set")),
        (true, true) if !MODES.contains(&mode) => Some(FieldError::not_supported(field, mode, MODES)),
        _ => None,
    }
}

// === Spec ===

fn validate_service(svc: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::from_iter(validate_topology_annotations(svc));
    errors.extend(validate_ports::presence(svc));
    errors.extend(validate_type_fields(svc));
    errors.extend(validate_ports::each(svc));
    errors.extend(validation::labels("spec.selector", svc.map("spec.selector")));
    errors.extend(validate_session_affinity(svc));
    errors.extend(validate_ips::cluster_ips(svc, old));
    errors.extend(validate_external_ips(svc, old));
    errors.extend(one_of(svc, "spec.type", &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"]));
    errors.extend(validate_ports::together(svc));
    errors.extend(validate_source_ranges(svc, old));
    if svc.has("spec.allocateLoadBalancerNodePorts") && !shape::is_load_balancer(svc) {
        errors.push(FieldError::forbidden("spec.allocateLoadBalancerNodePorts", ONLY_LOAD_BALANCER));
    }
    errors.extend(validate_load_balancer_class(svc));
    errors.extend(validate_external_traffic_policy(svc));
    errors.extend(validate_health_check_port(svc));
    errors.extend(validate_internal_traffic_policy(svc));
    errors.extend(validate_traffic_distribution(svc));
    errors
}

/// Requires a value, and that it is one of `supported`.
fn one_of(svc: &Value, path: &str, supported: &[&str]) -> Option<FieldError> {
    match svc.text(path) {
        "" => Some(FieldError::required(path, "")),
        text => (!supported.contains(&text)).then(|| FieldError::not_supported(path, text, supported)),
    }
}

fn validate_topology_annotations(svc: &Value) -> Option<FieldError> {
    let (hints, mode) = (annotation(svc, TOPOLOGY_HINTS)?, annotation(svc, TOPOLOGY_MODE)?);
    (hints != mode).then(|| {
        let detail = format!("must match annotations[{TOPOLOGY_HINTS}] when both are specified");
        FieldError::invalid(format!("metadata.annotations[{TOPOLOGY_MODE}]"), mode, detail)
    })
}

fn validate_type_fields(svc: &Value) -> Vec<FieldError> {
    let no_headless = |kind: &str| {
        let detail = format!("may not be set to 'None' for {kind} services");
        let error = || FieldError::invalid("spec.clusterIPs[0]", shape::NONE, detail);
        Vec::from_iter(shape::is_headless(svc).then(error))
    };
    match shape::type_of(svc) {
        ServiceType::LoadBalancer => no_headless("LoadBalancer"),
        ServiceType::NodePort => no_headless("NodePort"),
        ServiceType::ExternalName => validate_external_name(svc),
        _ => Vec::new(),
    }
}

fn validate_external_name(svc: &Value) -> Vec<FieldError> {
    const NAME: &str = "spec.externalName";
    let forbidden = |path: &&str| FieldError::forbidden(*path, "may not be set for ExternalName services");
    let not_allowed = ["spec.clusterIPs", "spec.ipFamilies", "spec.ipFamilyPolicy"];
    let mut errors: Vec<FieldError> = not_allowed.iter().filter(|path| svc.has(path)).map(forbidden).collect();
    // A trailing dot marks a fully qualified name.
    let name = svc.text(NAME);
    match name.strip_suffix('.').unwrap_or(name) {
        "" => errors.push(FieldError::required(NAME, "")),
        name => errors.extend(validation::invalid_each(NAME, name, validation::dns_subdomain(name))),
    }
    errors
}

fn validate_session_affinity(svc: &Value) -> Vec<FieldError> {
    const CONFIG: &str = "spec.sessionAffinityConfig";
    let mut errors = Vec::from_iter(one_of(svc, "spec.sessionAffinity", &["ClientIP", "None"]));
    match svc.text("spec.sessionAffinity") {
        "ClientIP" => errors.extend(validate_client_ip_config(svc)),
        "None" if svc.has(CONFIG) => {
            errors.push(FieldError::forbidden(CONFIG, "must not be set when session affinity is None"));
        }
        _ => {}
    }
    errors
}

fn validate_client_ip_config(svc: &Value) -> Option<FieldError> {
    const TIMEOUT: &str = "spec.sessionAffinityConfig.clientIP.timeoutSeconds";
    let levels = ["spec.sessionAffinityConfig", "spec.sessionAffinityConfig.clientIP", TIMEOUT];
    if let Some(missing) = levels.into_iter().find(|path| !svc.has(path)) {
        return Some(FieldError::required(missing, "when session affinity type is ClientIP"));
    }
    let seconds = svc.int(TIMEOUT)?;
    let detail = format!("must be greater than 0 and less than {MAX_AFFINITY_SECONDS}");
    (!(1..=MAX_AFFINITY_SECONDS).contains(&seconds)).then(|| FieldError::invalid(TIMEOUT, seconds, detail))
}

fn validate_external_ips(svc: &Value, old: Option<&Value>) -> Vec<FieldError> {
    const PATH: &str = "spec.externalIPs";
    let accepted = old.map(|old| old.texts(PATH)).unwrap_or_default();
    let check = |(i, ip): (usize, &str)| {
        let field = format!("{PATH}[{i}]");
        match address::is_valid_ip_legacy(&field, ip, &accepted) {
            none if none.is_empty() => address::endpoint_ip(&field, ip),
            errors => errors,
        }
    };
    svc.texts(PATH).into_iter().enumerate().flat_map(check).collect()
}

// === Load balancers ===

/// Validates the field, or the legacy annotation if the field is empty. Values may be padded with spaces.
fn validate_source_ranges(svc: &Value, old: Option<&Value>) -> Vec<FieldError> {
    const PATH: &str = "spec.loadBalancerSourceRanges";
    // upstream: errors capitalise the field name.
    const FIELD: &str = "spec.LoadBalancerSourceRanges";
    let ranges = svc.texts(PATH);
    if ranges.is_empty() {
        return validate_annotated_source_ranges(svc, old);
    }
    let mut errors = Vec::from_iter(only_load_balancer(svc, FIELD));
    let accepted: Vec<&str> = old.map(|old| old.texts(PATH)).unwrap_or_default().into_iter().map(str::trim).collect();
    for (i, range) in ranges.into_iter().enumerate() {
        errors.extend(address::is_valid_cidr_legacy(&format!("{FIELD}[{i}]"), range.trim(), &accepted));
    }
    errors
}

fn validate_annotated_source_ranges(svc: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let Some(text) = annotation(svc, SOURCE_RANGES_ANNOTATION) else { return Vec::new() };
    let field = format!("metadata.annotations[{SOURCE_RANGES_ANNOTATION}]");
    let mut errors = Vec::from_iter(only_load_balancer(svc, &field));
    let previous = old.map(|old| annotation(old, SOURCE_RANGES_ANNOTATION).unwrap_or_default());
    if previous != Some(text) && !text.trim().is_empty() {
        for range in text.split(',') {
            errors.extend(address::is_valid_cidr_legacy(&field, range.trim(), &[]));
        }
    }
    errors
}

fn only_load_balancer(svc: &Value, field: &str) -> Option<FieldError> {
    (!shape::is_load_balancer(svc)).then(|| FieldError::forbidden(field, ONLY_LOAD_BALANCER))
}

fn validate_load_balancer_class(svc: &Value) -> Vec<FieldError> {
    let Some(class) = svc.at(LOAD_BALANCER_CLASS).as_str() else { return Vec::new() };
    match only_load_balancer(svc, LOAD_BALANCER_CLASS) {
        Some(error) => vec![error],
        None => validation::invalid_each(LOAD_BALANCER_CLASS, class, validation::qualified_name(class)),
    }
}

// === Traffic policies ===

fn validate_external_traffic_policy(svc: &Value) -> Option<FieldError> {
    const PATH: &str = "spec.externalTrafficPolicy";
    if shape::is_external(svc) {
        return one_of(svc, PATH, TRAFFIC_POLICIES);
    }
    let policy = svc.at(PATH).as_str()?;
    Some(FieldError::invalid(PATH, policy, "may only be set for externally-accessible services"))
}

fn validate_health_check_port(svc: &Value) -> Vec<FieldError> {
    const PATH: &str = "spec.healthCheckNodePort";
    let port = shape::health_check_port(svc);
    let invalid = |detail: String| FieldError::invalid(PATH, port, detail);
    match (shape::needs_health_check_port(svc), port) {
        (true, 0) => vec![FieldError::required(PATH, "")],
        (true, _) => validation::port_number(port).into_iter().map(invalid).collect(),
        (false, 0) => Vec::new(),
        (false, _) => vec![invalid(
            "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'".to_owned(),
        )],
    }
}

fn validate_internal_traffic_policy(svc: &Value) -> Option<FieldError> {
    const PATH: &str = "spec.internalTrafficPolicy";
    let needed = !matches!(shape::type_of(svc), ServiceType::ExternalName | ServiceType::Unknown);
    match svc.at(PATH).as_str() {
        None => needed.then(|| FieldError::required(PATH, "")),
        Some(policy) if !TRAFFIC_POLICIES.contains(&policy) => {
            Some(FieldError::not_supported(PATH, policy, TRAFFIC_POLICIES))
        }
        Some(_) => None,
    }
}

fn validate_traffic_distribution(svc: &Value) -> Option<FieldError> {
    const PATH: &str = "spec.trafficDistribution";
    const SUPPORTED: &[&str] = &["PreferClose", "PreferSameZone", "PreferSameNode"];
    let distribution = svc.at(PATH).as_str()?;
    (!SUPPORTED.contains(&distribution)).then(|| FieldError::not_supported(PATH, distribution, SUPPORTED))
}
