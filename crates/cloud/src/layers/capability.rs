//! What the cloud cannot do is refused before any call: every wish of a Service that it cannot fulfil, all at once.
//!
//! Wishes that only a provider can read, because they are annotations of its own, are its own to refuse. That a node is
//! leaving is no wish of the user: a cloud that cannot drain drops the node at once.

use std::collections::BTreeSet;

use bowline_core::annotations::{
    ADOPT, DeletionPolicy, HEALTH_CHECK_INTERVAL, HEALTH_CHECK_PATH, HEALTH_CHECK_PORT, IDLE_TIMEOUT, INTERNAL,
    LoadBalancerSettings, POLICY, PROXY_PROTOCOL, SHARE_GROUP, SOURCE_RANGES,
};
use bowline_core::{
    DesiredLoadBalancer, IpFamily, LoadBalancerSpec, Protocol, RouteSpec, SessionAffinity, TrafficPolicy,
};

use crate::{Error, ErrorKind, LoadBalancerCapabilities, LoadBalancerKind, LoadBalancers, Result, RouteCapabilities};

/// The kind of load balancer that a Service requests; an error if the cloud does not have it.
pub fn requested_kind<'a>(
    provider: &str,
    balancers: &dyn LoadBalancers,
    desired: &DesiredLoadBalancer,
    caps: &'a LoadBalancerCapabilities,
) -> Result<&'a LoadBalancerKind> {
    let name = balancers.kind(desired);
    caps.kind(name).ok_or_else(|| {
        let names: Vec<_> = caps.kinds.iter().map(|kind| kind.name).collect();
        let message =
            format!("{provider} has no load balancers of kind {}, only {}", name.unwrap_or_default(), names.join(", "));
        unsupported(desired, message)
    })
}

/// Checks that load balancers of this kind can do all that the Service asks for; otherwise an error of kind `Unsupported` names
/// each field and each annotation. Removing a load balancer is always possible; leaving it behind without a mark is not.
pub fn check_load_balancer(provider: &str, desired: &DesiredLoadBalancer, caps: &LoadBalancerKind) -> Result<()> {
    let mut refused = desired.spec.as_deref().map(|spec| balancer(spec, &desired.settings, caps)).unwrap_or_default();
    let retained = desired.settings.policy == DeletionPolicy::Retain && !caps.retention;
    refuse(&mut refused, retained, || format!("{POLICY}: retain"));
    if refused.is_empty() {
        return Ok(());
    }
    let kind = if caps.name.is_empty() { String::new() } else { format!(" with {} load balancers", caps.name) };
    Err(unsupported(desired, format!("{provider} cannot do this{kind}: {}", refused.join("; "))))
}

fn unsupported(desired: &DesiredLoadBalancer, message: String) -> Error {
    let service = format!("{}/{}", desired.key.namespace, desired.key.service);
    Error::new(ErrorKind::Unsupported, "plan load balancer", message).context("service", service)
}

/// Whether `provider` can lead traffic to this range.
pub fn check_route(provider: &str, route: &RouteSpec, caps: &RouteCapabilities) -> Result<()> {
    let family = if route.destination.addr().is_ipv4() { IpFamily::IPv4 } else { IpFamily::IPv6 };
    if caps.ip_families.contains(&family) {
        return Ok(());
    }
    let message = format!("{provider} cannot do this: destination {} ({family:?})", route.destination);
    Err(Error::new(ErrorKind::Unsupported, "create route", message).context("node", route.node.as_str()))
}

/// All that makes up a balancer.
fn balancer(spec: &LoadBalancerSpec, wished: &LoadBalancerSettings, caps: &LoadBalancerKind) -> Vec<String> {
    let families = families(&spec.ip_families, caps);
    [ports(spec, caps), families, limits(spec, caps), fields(spec, wished, caps), settings(wished, caps)].concat()
}

fn ports(spec: &LoadBalancerSpec, caps: &LoadBalancerKind) -> Vec<String> {
    let protocols: BTreeSet<Protocol> = spec.ports.iter().map(|port| port.protocol).collect();
    let mut refused = Vec::new();
    for protocol in &protocols {
        let can = match protocol {
            Protocol::Tcp => caps.tcp,
            Protocol::Udp => caps.udp,
            Protocol::Sctp => caps.sctp,
        };
        refuse(&mut refused, !can, || format!("spec.ports: protocol {protocol}"));
    }
    let mixed = protocols.len() > 1 && !caps.mixed_protocols;
    refuse(&mut refused, mixed, || "spec.ports: several protocols on one balancer".to_owned());
    let bare = spec.ports.iter().any(|port| port.node_port.is_none()) && !caps.without_node_ports;
    refuse(&mut refused, bare, || "spec.allocateLoadBalancerNodePorts: false".to_owned());
    refused
}

fn families(wanted: &[IpFamily], caps: &LoadBalancerKind) -> Vec<String> {
    let mut refused = Vec::new();
    let served = if caps.serves_first_family() { 1 } else { wanted.len() };
    for family in wanted.iter().take(served) {
        refuse(&mut refused, !caps.ip_families.contains(family), || format!("spec.ipFamilies: {family:?}"));
    }
    let dual = served > 1 && !caps.dual_stack;
    refuse(&mut refused, dual, || "spec.ipFamilies: two families on one balancer".to_owned());
    refused
}

fn limits(spec: &LoadBalancerSpec, caps: &LoadBalancerKind) -> Vec<String> {
    let mut refused = Vec::new();
    let counts = [("spec.ports", spec.ports.len(), caps.max_ports), ("nodes", spec.targets.len(), caps.max_targets)];
    for (field, count, most) in counts {
        if let Some(most) = most.filter(|most| count > *most) {
            refused.push(format!("{field}: {count} of them, at most {most}"));
        }
    }
    refused
}

fn fields(spec: &LoadBalancerSpec, settings: &LoadBalancerSettings, caps: &LoadBalancerKind) -> Vec<String> {
    let mut refused = Vec::new();
    let ranges = !spec.source_ranges.is_empty() && !caps.source_ranges;
    let is_annotated = settings.source_ranges.as_ref() == Some(&spec.source_ranges);
    let place = if is_annotated { SOURCE_RANGES.key } else { "spec.loadBalancerSourceRanges" };
    refuse(&mut refused, ranges, || place.to_owned());
    let sticky = spec.session_affinity != SessionAffinity::None && !caps.session_affinity;
    refuse(&mut refused, sticky, || "spec.sessionAffinity: ClientIP".to_owned());
    let local = spec.traffic_policy == TrafficPolicy::Local && !caps.local_traffic_policy;
    refuse(&mut refused, local, || "spec.externalTrafficPolicy: Local".to_owned());
    if let Some(address) = spec.requested_address.as_ref().filter(|_| !caps.requested_address) {
        refused.push(format!("spec.loadBalancerIP: {address}"));
    }
    refused
}

/// The annotations that a balancer is made by.
fn settings(settings: &LoadBalancerSettings, caps: &LoadBalancerKind) -> Vec<String> {
    let checks = caps.health_check_settings;
    let wanted = [
        (INTERNAL.key, settings.internal, caps.internal),
        (PROXY_PROTOCOL.key, settings.proxy_protocol.is_some(), caps.proxy_protocol),
        (IDLE_TIMEOUT.key, settings.idle_timeout.is_some(), caps.idle_timeout),
        (HEALTH_CHECK_PATH.key, settings.health_check_path.is_some(), checks),
        (HEALTH_CHECK_PORT.key, settings.health_check_port.is_some(), checks),
        (HEALTH_CHECK_INTERVAL.key, settings.health_check_interval.is_some(), checks),
        (SHARE_GROUP.key, settings.share_group.is_some(), caps.shared),
        (ADOPT.key, settings.adopt.is_some(), caps.adoption),
    ];
    wanted.into_iter().filter(|(_, wished, can)| *wished && !can).map(|(key, ..)| key.to_owned()).collect()
}

fn refuse(refused: &mut Vec<String>, cannot: bool, field: impl FnOnce() -> String) {
    if cannot {
        refused.push(field());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bowline_core::annotations;
    use bowline_core::testing::{annotated, desired, desired_cleanup, service};
    use bowline_core::{ClusterName, Service};

    use super::*;

    /// Enough for a plain balancer.
    fn plain() -> LoadBalancerKind {
        LoadBalancerKind { tcp: true, ip_families: vec![IpFamily::IPv4], ..Default::default() }
    }

    fn with(desired: DesiredLoadBalancer, annotated: &[(&str, &str)]) -> DesiredLoadBalancer {
        let annotated = annotated.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        DesiredLoadBalancer { settings: Arc::new(annotations::read(&annotated).unwrap()), ..desired }
    }

    fn refused(desired: &DesiredLoadBalancer, caps: &LoadBalancerKind) -> Option<String> {
        let error = check_load_balancer("c", desired, caps).err()?;
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        Some(error.to_string())
    }

    fn said(what: &str) -> Option<String> {
        Some(format!("plan load balancer: c cannot do this: {what} (service=default/web)"))
    }

    type Grant = fn(&mut LoadBalancerKind);

    #[test]
    fn an_annotation_is_refused_by_its_name_unless_the_cloud_can_do_it() {
        let cases: [(&str, &str, &str, Grant); 9] = [
            (INTERNAL.key, "true", INTERNAL.key, |caps| caps.internal = true),
            (PROXY_PROTOCOL.key, "v1", PROXY_PROTOCOL.key, |caps| caps.proxy_protocol = true),
            (IDLE_TIMEOUT.key, "1m", IDLE_TIMEOUT.key, |caps| caps.idle_timeout = true),
            (HEALTH_CHECK_PATH.key, "/a", HEALTH_CHECK_PATH.key, |caps| caps.health_check_settings = true),
            (HEALTH_CHECK_PORT.key, "80", HEALTH_CHECK_PORT.key, |caps| caps.health_check_settings = true),
            (HEALTH_CHECK_INTERVAL.key, "1s", HEALTH_CHECK_INTERVAL.key, |caps| caps.health_check_settings = true),
            (SHARE_GROUP.key, "a", SHARE_GROUP.key, |caps| caps.shared = true),
            (ADOPT.key, "a", ADOPT.key, |caps| caps.adoption = true),
            (POLICY.key, "retain", "bowline.dev/policy: retain", |caps| caps.retention = true),
        ];
        for (key, value, place, grant) in cases {
            let desired = with(desired("default/web", &[]), &[(key, value)]);
            assert_eq!(refused(&desired, &plain()), said(place), "{key}");
            let mut able = plain();
            grant(&mut able);
            assert_eq!(refused(&desired, &able), None, "{key}");
        }
    }

    #[test]
    fn what_is_as_without_the_annotation_or_no_affair_of_the_cloud_is_not_refused() {
        let cases = [
            (INTERNAL.key, "false"),
            (POLICY.key, "delete"),
            (POLICY.key, "protect"),
            (annotations::IP_MODE.key, "Proxy"),
            (annotations::TARGET_NODES.key, "a=b"),
        ];
        for (key, value) in cases {
            let desired = with(desired("default/web", &[]), &[(key, value)]);
            assert_eq!(refused(&desired, &plain()), None, "{key}: {value}");
        }
    }

    #[test]
    fn of_a_balancer_that_is_to_go_only_its_retention_is_refused() {
        let over =
            with(desired_cleanup("default/web"), &[(INTERNAL.key, "true"), (SHARE_GROUP.key, "a"), (ADOPT.key, "a")]);
        assert_eq!(refused(&over, &plain()), None);
        let desired = with(over, &[(INTERNAL.key, "true"), (POLICY.key, "retain")]);
        assert_eq!(refused(&desired, &plain()), said("bowline.dev/policy: retain"));
        assert_eq!(refused(&desired, &LoadBalancerKind { retention: true, ..plain() }), None);
    }

    #[test]
    fn all_annotations_are_refused_at_once() {
        let desired =
            with(desired("default/web", &[]), &[(POLICY.key, "retain"), (INTERNAL.key, "true"), (ADOPT.key, "a")]);
        let expected = "bowline.dev/internal; bowline.dev/adopt; bowline.dev/policy: retain";
        assert_eq!(refused(&desired, &plain()), said(expected));
    }

    #[test]
    fn source_ranges_are_refused_by_where_they_stand() {
        let wished = |service: &Service| {
            let settings = annotations::read(&service.annotations).unwrap();
            bowline_core::service::desired(&ClusterName::from("k"), service, &settings, Default::default()).unwrap()
        };
        let noted = annotated(service("default/web"), &[(SOURCE_RANGES.key, "10.0.0.0/8")]);
        assert_eq!(refused(&wished(&noted), &plain()), said("bowline.dev/source-ranges"));
        let field = Service { source_ranges: vec!["11.0.0.0/8".to_owned()], ..noted };
        assert_eq!(refused(&wished(&field), &plain()), said("spec.loadBalancerSourceRanges"));
        let everybody = annotated(service("default/web"), &[(SOURCE_RANGES.key, "0.0.0.0/0")]);
        assert_eq!(refused(&wished(&everybody), &plain()), None);
        assert_eq!(refused(&wished(&field), &LoadBalancerKind { source_ranges: true, ..plain() }), None);
    }
}
