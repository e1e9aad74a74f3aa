//! Rejects unsupported requests before any call, and names all unsupported fields of a Service at once.
//!
//! A provider checks its own annotations by itself, and also the fields of the spec if it claims
//! [`checks_spec`](LoadBalancerKind::checks_spec). Draining is not a request of the user: a cloud that cannot drain removes the
//! target at once.

use std::collections::BTreeSet;

use bowline_core::annotations::{
    ADOPT, DeletionPolicy, HEALTH_CHECK_INTERVAL, HEALTH_CHECK_PATH, HEALTH_CHECK_PORT, IDLE_TIMEOUT, INTERNAL,
    LoadBalancerSettings, POLICY, PROXY_PROTOCOL, SHARE_GROUP, SOURCE_RANGES,
};
use bowline_core::{
    DesiredLoadBalancer, IpFamily, LoadBalancerSpec, Protocol, RouteSpec, SessionAffinity, TrafficPolicy,
};

use crate::{Error, ErrorKind, LoadBalancerCapabilities, LoadBalancerKind, LoadBalancers, Result, RouteCapabilities};

/// Returns the kind of load balancer that a Service requests, or an error if the cloud does not have it.
pub fn requested_kind<'a>(
    provider: &str,
    load_balancers: &dyn LoadBalancers,
    desired: &DesiredLoadBalancer,
    caps: &'a LoadBalancerCapabilities,
) -> Result<&'a LoadBalancerKind> {
    let name = load_balancers.kind(desired);
    caps.kind(name).ok_or_else(|| {
        let names: Vec<_> = caps.kinds.iter().map(|kind| kind.name).collect();
        let message =
            format!("{provider} has no load balancers of kind {}, only {}", name.unwrap_or_default(), names.join(", "));
        unsupported(desired, message)
    })
}

/// Checks that load balancers of this kind support everything that the Service requests. Otherwise an `Unsupported` error names
/// each field and each annotation. Deleting a load balancer is always supported; retaining it is not.
pub fn check_load_balancer(provider: &str, desired: &DesiredLoadBalancer, caps: &LoadBalancerKind) -> Result<()> {
    let mut unsupported_fields =
        desired.spec.as_deref().map(|spec| in_spec(spec, &desired.settings, caps)).unwrap_or_default();
    let retained = desired.settings.policy == DeletionPolicy::Retain && !caps.retention;
    check(&mut unsupported_fields, retained, || format!("{POLICY}: retain"));
    if unsupported_fields.is_empty() {
        return Ok(());
    }
    let kind = if caps.name.is_empty() { String::new() } else { format!(" with {} load balancers", caps.name) };
    Err(unsupported(desired, format!("{provider} does not support this{kind}: {}", unsupported_fields.join("; "))))
}

fn unsupported(desired: &DesiredLoadBalancer, message: String) -> Error {
    let service = format!("{}/{}", desired.key.namespace, desired.key.service);
    Error::new(ErrorKind::Unsupported, "plan load balancer", message).context("service", service)
}

/// Checks that the cloud supports routes of this IP family.
pub fn check_route(provider: &str, route: &RouteSpec, caps: &RouteCapabilities) -> Result<()> {
    let family = if route.destination.addr().is_ipv4() { IpFamily::IPv4 } else { IpFamily::IPv6 };
    if caps.ip_families.contains(&family) {
        return Ok(());
    }
    let message = format!("{provider} does not support this: destination {} ({family:?})", route.destination);
    Err(Error::new(ErrorKind::Unsupported, "create route", message).context("node", route.node.as_str()))
}

/// Returns the unsupported fields and annotations of a load balancer.
fn in_spec(spec: &LoadBalancerSpec, requested: &LoadBalancerSettings, caps: &LoadBalancerKind) -> Vec<String> {
    let ranges = !spec.source_ranges.is_empty() && !caps.source_ranges;
    // They come from the annotation or from the field.
    let is_annotated = requested.source_ranges.as_ref() == Some(&spec.source_ranges);
    let in_fields = |unsupported: Vec<String>| if caps.checks_spec { Vec::new() } else { unsupported };
    [
        in_fields(ports(spec, caps)),
        in_fields(families(&spec.ip_families, caps)),
        limits(spec, caps),
        in_fields(fields(spec, ranges && !is_annotated, caps)),
        settings(requested, ranges && is_annotated, caps),
    ]
    .concat()
}

fn ports(spec: &LoadBalancerSpec, caps: &LoadBalancerKind) -> Vec<String> {
    let protocols: BTreeSet<Protocol> = spec.ports.iter().map(|port| port.protocol).collect();
    let mut unsupported = Vec::new();
    for protocol in &protocols {
        let can = match protocol {
            Protocol::Tcp => caps.tcp,
            Protocol::Udp => caps.udp,
            Protocol::Sctp => caps.sctp,
        };
        check(&mut unsupported, !can, || format!("spec.ports: protocol {protocol}"));
    }
    let mixed = protocols.len() > 1 && !caps.mixed_protocols;
    check(&mut unsupported, mixed, || "spec.ports: several protocols on one load balancer".to_owned());
    let bare = spec.ports.iter().any(|port| port.node_port.is_none()) && !caps.without_node_ports;
    check(&mut unsupported, bare, || "spec.allocateLoadBalancerNodePorts: false".to_owned());
    unsupported
}

fn families(requested: &[IpFamily], caps: &LoadBalancerKind) -> Vec<String> {
    let mut unsupported = Vec::new();
    let served = if caps.serves_first_family() { 1 } else { requested.len() };
    for family in requested.iter().take(served) {
        check(&mut unsupported, !caps.ip_families.contains(family), || format!("spec.ipFamilies: {family:?}"));
    }
    let dual = served > 1 && !caps.dual_stack;
    check(&mut unsupported, dual, || "spec.ipFamilies: two families on one load balancer".to_owned());
    unsupported
}

fn limits(spec: &LoadBalancerSpec, caps: &LoadBalancerKind) -> Vec<String> {
    let mut unsupported = Vec::new();
    let counts = [("spec.ports", spec.ports.len(), caps.max_ports), ("nodes", spec.targets.len(), caps.max_targets)];
    for (field, count, max) in counts {
        if let Some(max) = max.filter(|max| count > *max) {
            unsupported.push(format!("{field}: {count}, at most {max}"));
        }
    }
    unsupported
}

fn fields(spec: &LoadBalancerSpec, source_ranges: bool, caps: &LoadBalancerKind) -> Vec<String> {
    let mut unsupported = Vec::new();
    check(&mut unsupported, source_ranges, || "spec.loadBalancerSourceRanges".to_owned());
    let sticky = spec.session_affinity != SessionAffinity::None && !caps.session_affinity;
    check(&mut unsupported, sticky, || "spec.sessionAffinity: ClientIP".to_owned());
    let local = spec.traffic_policy == TrafficPolicy::Local && !caps.local_traffic_policy;
    check(&mut unsupported, local, || "spec.externalTrafficPolicy: Local".to_owned());
    if let Some(address) = spec.requested_address.as_ref().filter(|_| !caps.requested_address) {
        unsupported.push(format!("spec.loadBalancerIP: {address}"));
    }
    unsupported
}

/// Returns the unsupported annotations.
fn settings(settings: &LoadBalancerSettings, source_ranges: bool, caps: &LoadBalancerKind) -> Vec<String> {
    let checks = caps.health_check_settings;
    let has_proxy_protocol = settings.proxy_protocol.is_some_and(|version| caps.proxy_protocol.contains(&version));
    let requests = [
        (SOURCE_RANGES.key, source_ranges, false),
        (INTERNAL.key, settings.internal, caps.internal),
        (PROXY_PROTOCOL.key, settings.proxy_protocol.is_some(), has_proxy_protocol),
        (IDLE_TIMEOUT.key, settings.idle_timeout.is_some(), caps.idle_timeout),
        (HEALTH_CHECK_PATH.key, settings.health_check_path.is_some(), checks),
        (HEALTH_CHECK_PORT.key, settings.health_check_port.is_some(), checks),
        (HEALTH_CHECK_INTERVAL.key, settings.health_check_interval.is_some(), checks),
        (SHARE_GROUP.key, settings.share_group.is_some(), caps.shared),
        (ADOPT.key, settings.adopt.is_some(), caps.adoption),
    ];
    requests.into_iter().filter(|(_, requested, can)| *requested && !can).map(|(key, ..)| key.to_owned()).collect()
}

fn check(unsupported: &mut Vec<String>, is_unsupported: bool, field: impl FnOnce() -> String) {
    if is_unsupported {
        unsupported.push(field());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bowline_core::annotations::{self, ProxyProtocol};
    use bowline_core::testing::{annotated, desired, desired_cleanup, service};
    use bowline_core::{ClusterName, Service};

    use super::*;

    /// Capabilities for a plain load balancer.
    fn plain() -> LoadBalancerKind {
        LoadBalancerKind { tcp: true, ip_families: vec![IpFamily::IPv4], ..Default::default() }
    }

    fn with(desired: DesiredLoadBalancer, annotated: &[(&str, &str)]) -> DesiredLoadBalancer {
        let annotated = annotated.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        DesiredLoadBalancer { settings: Arc::new(annotations::read(&annotated).unwrap()), ..desired }
    }

    fn error_of(desired: &DesiredLoadBalancer, caps: &LoadBalancerKind) -> Option<String> {
        let error = check_load_balancer("c", desired, caps).err()?;
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        Some(error.to_string())
    }

    fn message(fields: &str) -> Option<String> {
        Some(format!("plan load balancer: c does not support this: {fields} (service=default/web)"))
    }

    type Grant = fn(&mut LoadBalancerKind);

    #[test]
    fn an_unsupported_annotation_is_rejected_by_name() {
        let cases: [(&str, &str, &str, Grant); 9] = [
            (INTERNAL.key, "true", INTERNAL.key, |caps| caps.internal = true),
            (PROXY_PROTOCOL.key, "v1", PROXY_PROTOCOL.key, |caps| caps.proxy_protocol = vec![ProxyProtocol::V1]),
            (IDLE_TIMEOUT.key, "1m", IDLE_TIMEOUT.key, |caps| caps.idle_timeout = true),
            (HEALTH_CHECK_PATH.key, "/a", HEALTH_CHECK_PATH.key, |caps| caps.health_check_settings = true),
            (HEALTH_CHECK_PORT.key, "80", HEALTH_CHECK_PORT.key, |caps| caps.health_check_settings = true),
            (HEALTH_CHECK_INTERVAL.key, "1s", HEALTH_CHECK_INTERVAL.key, |caps| caps.health_check_settings = true),
            (SHARE_GROUP.key, "a", SHARE_GROUP.key, |caps| caps.shared = true),
            (ADOPT.key, "a", ADOPT.key, |caps| caps.adoption = true),
            (POLICY.key, "retain", "bowline.dev/policy: retain", |caps| caps.retention = true),
        ];
        for (key, value, field, grant) in cases {
            let desired = with(desired("default/web", &[]), &[(key, value)]);
            assert_eq!(error_of(&desired, &plain()), message(field), "{key}");
            let mut able = plain();
            grant(&mut able);
            assert_eq!(error_of(&desired, &able), None, "{key}");
        }
    }

    #[test]
    fn default_values_and_cloud_independent_annotations_are_accepted() {
        let cases = [
            (INTERNAL.key, "false"),
            (POLICY.key, "delete"),
            (POLICY.key, "protect"),
            (annotations::IP_MODE.key, "Proxy"),
            (annotations::TARGET_NODES.key, "a=b"),
        ];
        for (key, value) in cases {
            let desired = with(desired("default/web", &[]), &[(key, value)]);
            assert_eq!(error_of(&desired, &plain()), None, "{key}: {value}");
        }
    }

    #[test]
    fn for_a_deletion_only_retention_is_checked() {
        let deleted =
            with(desired_cleanup("default/web"), &[(INTERNAL.key, "true"), (SHARE_GROUP.key, "a"), (ADOPT.key, "a")]);
        assert_eq!(error_of(&deleted, &plain()), None);
        let desired = with(deleted, &[(INTERNAL.key, "true"), (POLICY.key, "retain")]);
        assert_eq!(error_of(&desired, &plain()), message("bowline.dev/policy: retain"));
        assert_eq!(error_of(&desired, &LoadBalancerKind { retention: true, ..plain() }), None);
    }

    #[test]
    fn all_unsupported_annotations_are_reported_at_once() {
        let desired =
            with(desired("default/web", &[]), &[(POLICY.key, "retain"), (INTERNAL.key, "true"), (ADOPT.key, "a")]);
        let expected = "bowline.dev/internal; bowline.dev/adopt; bowline.dev/policy: retain";
        assert_eq!(error_of(&desired, &plain()), message(expected));
    }

    #[test]
    fn unsupported_source_ranges_are_reported_by_annotation_or_field() {
        let desired_of = |service: &Service| {
            let settings = annotations::read(&service.annotations).unwrap();
            bowline_core::service::desired(&ClusterName::from("k"), service, &settings, Default::default()).unwrap()
        };
        let by_annotation = annotated(service("default/web"), &[(SOURCE_RANGES.key, "10.0.0.0/8")]);
        assert_eq!(error_of(&desired_of(&by_annotation), &plain()), message("bowline.dev/source-ranges"));
        let by_field = Service { source_ranges: vec!["11.0.0.0/8".to_owned()], ..by_annotation };
        assert_eq!(error_of(&desired_of(&by_field), &plain()), message("spec.loadBalancerSourceRanges"));
        let all_sources = annotated(service("default/web"), &[(SOURCE_RANGES.key, "0.0.0.0/0")]);
        assert_eq!(error_of(&desired_of(&all_sources), &plain()), None);
        assert_eq!(error_of(&desired_of(&by_field), &LoadBalancerKind { source_ranges: true, ..plain() }), None);
    }

    #[test]
    fn a_provider_that_checks_the_spec_gets_every_field_of_it() {
        let mut all = desired("default/web", &[]);
        let spec = Arc::make_mut(all.spec.as_mut().unwrap());
        spec.ports.iter_mut().for_each(|port| (port.protocol, port.node_port) = (Protocol::Sctp, None));
        spec.ip_families = vec![IpFamily::IPv6, IpFamily::IPv4];
        spec.source_ranges = vec!["10.0.0.0/8".parse().unwrap()];
        spec.session_affinity = SessionAffinity::ClientIp { timeout_seconds: 60 };
        spec.traffic_policy = TrafficPolicy::Local;
        spec.requested_address = Some("192.0.2.1".to_owned());
        assert!(error_of(&all, &plain()).is_some_and(|error| error.matches("spec.").count() == 8));
        let checks = LoadBalancerKind { checks_spec: true, ..plain() };
        assert_eq!(error_of(&all, &checks), None);
        let annotated = with(all.clone(), &[(SOURCE_RANGES.key, "10.0.0.0/8"), (INTERNAL.key, "true")]);
        assert_eq!(error_of(&annotated, &checks), message("bowline.dev/source-ranges; bowline.dev/internal"));
        let limited = LoadBalancerKind { max_ports: Some(0), ..checks };
        assert_eq!(error_of(&all, &limited), message("spec.ports: 1, at most 0"));
    }
}
