//! Desired load balancer of a Service.

use std::sync::Arc;

use ipnet::IpNet;

use super::source_ranges::{self, SourceRangeError, allow_all_clients};
use super::{Service, ServicePort, ServiceType};
use crate::annotations::{self, FieldError, LoadBalancerSettings, POLICY, UnknownAnnotation};
use crate::{
    ClusterName, DesiredLoadBalancer, HealthCheck, LoadBalancerKey, LoadBalancerSpec, PortSpec, TargetSet,
    TrafficPolicy,
};

/// Maximum length of the default name of a load balancer.
const MAX_NAME_LENGTH: usize = 32;

/// Parsed annotations of a Service.
#[derive(Debug, Clone, PartialEq)]
pub struct ParsedAnnotations {
    /// Settings, or all errors.
    pub settings: Result<LoadBalancerSettings, Vec<FieldError>>,
    /// Settings for the deletion of the load balancer. Only an invalid policy is an error here, because it is unknown then whether
    /// the load balancer may be deleted. Other invalid values are ignored.
    pub cleanup: Result<LoadBalancerSettings, Vec<FieldError>>,
    /// Unknown keys with the prefix of Bowline; each causes a warning.
    pub unknown: Vec<UnknownAnnotation>,
}

/// Parses the annotations of a Service and checks its source ranges.
pub fn read(service: &Service) -> ParsedAnnotations {
    let (settings, mut errors) = annotations::read_leniently(&service.annotations);
    let policy_errors: Vec<FieldError> = errors.iter().filter(|error| error.field == POLICY.key).cloned().collect();
    let (_, range_errors) = source_ranges::find(service);
    // Errors of Bowline's own annotation are already included.
    errors.extend(
        range_errors.iter().filter(|error| error.field != annotations::SOURCE_RANGES.key).map(FieldError::from),
    );
    ParsedAnnotations {
        cleanup: ok_unless(policy_errors, settings.clone()),
        settings: ok_unless(errors, settings),
        unknown: annotations::COMMON.unknown(&service.annotations),
    }
}

fn ok_unless<T>(errors: Vec<FieldError>, value: T) -> Result<T, Vec<FieldError>> {
    if errors.is_empty() { Ok(value) } else { Err(errors) }
}

/// Returns the desired load balancer of a Service with these settings and targets. Source ranges that allow all clients are
/// omitted. Returns the errors of the Service's own fields, if it has any.
pub fn desired(
    cluster: &ClusterName,
    service: &Service,
    settings: &LoadBalancerSettings,
    targets: TargetSet,
) -> Result<DesiredLoadBalancer, Vec<FieldError>> {
    let spec = LoadBalancerSpec {
        ports: service.ports.iter().map(port).collect(),
        targets,
        source_ranges: allowed_clients(service)?,
        requested_address: requested_address(service),
        ip_families: service.ip_families.clone(),
        session_affinity: service.session_affinity,
        traffic_policy: service.traffic_policy,
        health_check: health_check(service),
    };
    Ok(DesiredLoadBalancer { spec: Some(Arc::new(spec)), ..desired_cleanup(cluster, service, settings) })
}

/// Returns the desired load balancer of a Service without targets, with the settings from the common annotations; or the errors of
/// these annotations and of the Service's own fields. For an admission webhook, which has no Nodes.
pub fn desired_without_targets(
    cluster: &ClusterName,
    service: &Service,
) -> Result<DesiredLoadBalancer, Vec<FieldError>> {
    desired(cluster, service, &read(service).settings?, TargetSet::default())
}

fn port(port: &ServicePort) -> PortSpec {
    PortSpec {
        name: port.name.clone(),
        protocol: port.protocol,
        port: port.port,
        node_port: port.node_port,
        app_protocol: port.app_protocol.clone(),
    }
}

/// Returns the CIDRs from which clients may connect; empty if all clients may.
fn allowed_clients(service: &Service) -> Result<Vec<IpNet>, Vec<FieldError>> {
    let (ranges, errors) = source_ranges::find(service);
    let ranges = ok_unless(errors.iter().map(FieldError::from).collect(), ranges)?;
    let is_limited = !allow_all_clients(&ranges, &service.ip_families);
    Ok(ranges.into_iter().filter(|_| is_limited).collect())
}

fn requested_address(service: &Service) -> Option<String> {
    let address = service.load_balancer_ip.as_deref().map(str::trim);
    address.filter(|address| !address.is_empty()).map(str::to_owned)
}

/// Returns the desired state of a Service whose load balancer is to be deleted.
pub fn desired_cleanup(
    cluster: &ClusterName,
    service: &Service,
    settings: &LoadBalancerSettings,
) -> DesiredLoadBalancer {
    DesiredLoadBalancer {
        key: LoadBalancerKey {
            cluster: cluster.clone(),
            namespace: service.namespace.clone(),
            service: service.name.clone(),
            uid: service.uid.clone(),
        },
        annotations: Arc::clone(&service.annotations),
        settings: Arc::new(settings.clone()),
        spec: None,
    }
}

/// Returns whether `spec.externalTrafficPolicy` is Local, on a Service of a type that has node ports (H5, H6).
pub fn wants_only_local_traffic(service: &Service) -> bool {
    let has_node_ports = matches!(service.kind, ServiceType::LoadBalancer | ServiceType::NodePort);
    has_node_ports && service.traffic_policy == TrafficPolicy::Local
}

/// Returns the health check that kube-proxy serves for the Service (H7).
pub fn health_check(service: &Service) -> Option<HealthCheck> {
    let is_needed = service.kind == ServiceType::LoadBalancer && wants_only_local_traffic(service);
    let port = service.health_check_node_port.filter(|port| is_needed && *port != 0)?;
    Some(HealthCheck { path: "/healthz".to_owned(), port })
}

/// Returns the default name of a load balancer in the Go library (H10): `a` and the UID without dashes, truncated to 32 characters.
pub fn default_load_balancer_name(uid: &str) -> String {
    std::iter::once('a').chain(uid.chars().filter(|letter| *letter != '-')).take(MAX_NAME_LENGTH).collect()
}

impl From<&SourceRangeError> for FieldError {
    fn from(error: &SourceRangeError) -> FieldError {
        FieldError { field: error.field.to_owned(), message: error.message() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::annotations::DeletionPolicy;
    use crate::testing::{annotated, service, service_port, target};
    use crate::{IpFamily, Protocol, SessionAffinity};

    fn web() -> Service {
        service("default/web")
    }

    fn spec_of(service: &Service) -> LoadBalancerSpec {
        let desired = desired(
            &"kubernetes".into(),
            service,
            &LoadBalancerSettings::default(),
            TargetSet::from(vec![target("n1")]),
        )
        .unwrap();
        LoadBalancerSpec::clone(&desired.spec.unwrap())
    }

    fn with_policy(kind: ServiceType, traffic_policy: TrafficPolicy) -> Service {
        Service { kind, traffic_policy, health_check_node_port: Some(30123), ..web() }
    }

    #[test]
    fn h05_to_h07_only_local_traffic_and_its_health_check() {
        use ServiceType::{ClusterIP, ExternalName, LoadBalancer, NodePort};
        use TrafficPolicy::{Cluster, Local};
        let cases = [
            ("H5, no type", ServiceType::default(), Cluster, false, false),
            ("H5, H7", ClusterIP, Cluster, false, false),
            ("H5", NodePort, Cluster, false, false),
            ("H5, H7", LoadBalancer, Cluster, false, false),
            ("H6", NodePort, Local, true, false),
            ("H6, H7", LoadBalancer, Local, true, true),
            ("H7", ClusterIP, Local, false, false),
            ("an alias", ExternalName, Local, false, false),
        ];
        let check = HealthCheck { path: "/healthz".to_owned(), port: 30123 };
        for (case, kind, policy, only_local, checked) in cases {
            let service = with_policy(kind, policy);
            assert_eq!(wants_only_local_traffic(&service), only_local, "{case}");
            assert_eq!(health_check(&service), checked.then(|| check.clone()), "{case}");
        }
        for port in [None, Some(0)] {
            let service = Service { health_check_node_port: port, ..with_policy(LoadBalancer, Local) };
            assert_eq!(health_check(&service), None, "H7: {port:?}");
        }
    }

    #[test]
    fn h10_the_default_name_is_derived_from_the_uid() {
        let cases = [
            ("0123abcd-4567-89ab-cdef-0123456789ab", "a0123abcd456789abcdef0123456789a"),
            ("a-b", "aab"),
            ("", "a"),
            ("--", "a"),
            ("żżżżżżżżżżżżżżżżżżżżżżżżżżżżżżżżżżżżż", "ażżżżżżżżżżżżżżżżżżżżżżżżżżżżżżż"),
        ];
        for (uid, name) in cases {
            assert_eq!(default_load_balancer_name(uid), name, "H10: {uid}");
            assert!(default_load_balancer_name(uid).chars().count() <= MAX_NAME_LENGTH, "H10: {uid}");
        }
    }

    #[test]
    fn the_desired_state_has_all_fields_of_the_service() {
        let dns = [Protocol::Tcp, Protocol::Udp].map(|protocol| ServicePort {
            name: format!("{protocol:?}"),
            app_protocol: Some("dns".to_owned()),
            node_port: None,
            ..service_port(protocol, 53)
        });
        let service = Service {
            ports: dns.to_vec(),
            source_ranges: vec!["10.1.2.3/8".to_owned(), "10.0.0.0/8".to_owned()],
            load_balancer_ip: Some(" 192.0.2.1 ".to_owned()),
            session_affinity: SessionAffinity::ClientIp { timeout_seconds: 7 },
            ip_families: vec![IpFamily::IPv6, IpFamily::IPv4],
            ..with_policy(ServiceType::LoadBalancer, TrafficPolicy::Local)
        };
        let port = |protocol: Protocol| PortSpec {
            name: format!("{protocol:?}"),
            protocol,
            port: 53,
            node_port: None,
            app_protocol: Some("dns".to_owned()),
        };
        let expected = LoadBalancerSpec {
            // S30: protocols may be mixed.
            ports: vec![port(Protocol::Tcp), port(Protocol::Udp)],
            targets: TargetSet::from(vec![target("n1")]),
            source_ranges: vec!["10.0.0.0/8".parse().unwrap()],
            requested_address: Some("192.0.2.1".to_owned()),
            ip_families: vec![IpFamily::IPv6, IpFamily::IPv4],
            session_affinity: SessionAffinity::ClientIp { timeout_seconds: 7 },
            traffic_policy: TrafficPolicy::Local,
            health_check: Some(HealthCheck { path: "/healthz".to_owned(), port: 30123 }),
        };
        assert_eq!(spec_of(&service), expected);
    }

    #[test]
    fn a_desired_state_without_targets_has_the_settings_or_the_errors() {
        let desired = desired_without_targets(&"c".into(), &annotated(web(), &[("bowline.dev/policy", "retain")]));
        let desired = desired.unwrap();
        assert_eq!(desired.settings.policy, DeletionPolicy::Retain);
        assert_eq!(desired.spec.unwrap().targets, TargetSet::default());
        let bad = annotated(web(), &[("bowline.dev/policy", "maybe")]);
        assert_eq!(fields(&desired_without_targets(&"c".into(), &bad).unwrap_err()), ["bowline.dev/policy"]);
    }

    #[test]
    fn source_ranges_that_allow_all_clients_are_omitted() {
        let ranges = |ranges: &[&str]| {
            let source_ranges = ranges.iter().map(|range| (*range).to_owned()).collect();
            spec_of(&Service { source_ranges, ..web() }).source_ranges
        };
        assert_eq!(ranges(&[]), []);
        assert_eq!(ranges(&["10.0.0.0/8", "0.0.0.0/0"]), []);
        assert_eq!(ranges(&["0.0.0.0/0", "2001:db8::/32"]).len(), 2);
        assert_eq!(
            spec_of(&annotated(web(), &[(annotations::SOURCE_RANGES.key, "10.0.0.0/8")])).source_ranges.len(),
            1
        );
    }

    #[test]
    fn an_empty_requested_address_is_none() {
        for text in ["", "  "] {
            let service = Service { load_balancer_ip: Some(text.to_owned()), ..web() };
            assert_eq!(spec_of(&service).requested_address, None);
        }
    }

    #[test]
    fn the_desired_state_and_the_cleanup_have_the_key_and_the_settings() {
        let service = annotated(web(), &[("bowline.dev/policy", "retain"), ("example.com/flavour", "small")]);
        let settings = read(&service).settings.unwrap();
        let cluster = ClusterName::from("c");
        let (wanted, cleanup) = (
            desired(&cluster, &service, &settings, TargetSet::default()).unwrap(),
            desired_cleanup(&cluster, &service, &settings),
        );
        for desired in [&wanted, &cleanup] {
            let LoadBalancerKey { cluster, namespace, service: name, uid } = &desired.key;
            assert_eq!((cluster.as_str(), &**namespace, &**name, &**uid), ("c", "default", "web", "uid-of-web"));
            assert_eq!((&desired.annotations, &*desired.settings), (&service.annotations, &settings));
            assert_eq!(desired.settings.policy, DeletionPolicy::Retain);
        }
        assert_eq!((wanted.spec.is_some(), cleanup.spec), (true, None));
    }

    fn fields(errors: &[FieldError]) -> Vec<String> {
        errors.iter().map(|error| error.field.clone()).collect()
    }

    #[test]
    fn all_errors_of_annotations_and_fields_are_reported_at_once() {
        let bad = Service { source_ranges: vec!["a".to_owned(), "10.0.0.0/8".to_owned(), "b".to_owned()], ..web() };
        let bad = annotated(bad, &[("bowline.dev/internal", "maybe"), ("bowline.dev/source-ranges", "c,d")]);
        let errors = read(&bad).settings.unwrap_err();
        let (ours, field) = ("bowline.dev/source-ranges", "spec.loadBalancerSourceRanges");
        assert_eq!(fields(&errors), ["bowline.dev/internal", ours, ours, field, field]);
        let rejected = desired(&"c".into(), &bad, &LoadBalancerSettings::default(), TargetSet::default()).unwrap_err();
        assert_eq!(fields(&rejected), [field, field], "errors of the Service's own fields");
    }

    #[test]
    fn an_invalid_source_range_is_reported_once_and_that_of_the_legacy_annotation_if_it_is_used() {
        let ours = annotated(web(), &[(annotations::SOURCE_RANGES.key, "a")]);
        assert_eq!(fields(&read(&ours).settings.unwrap_err()), [annotations::SOURCE_RANGES.key]);
        let old = annotated(web(), &[(crate::well_known::SOURCE_RANGES, "a")]);
        assert_eq!(fields(&read(&old).settings.unwrap_err()), [crate::well_known::SOURCE_RANGES]);
        let unused = annotated(old, &[(annotations::SOURCE_RANGES.key, "10.0.0.0/8")]);
        assert!(read(&unused).settings.is_ok());
    }

    #[test]
    fn only_an_invalid_policy_holds_back_the_deletion_of_a_load_balancer() {
        let bad = Service { source_ranges: vec!["a".to_owned()], ..web() };
        let bad = annotated(bad, &[("bowline.dev/internal", "maybe"), ("bowline.dev/share-group", "g")]);
        let readable = read(&annotated(bad.clone(), &[("bowline.dev/policy", "protect")]));
        assert!(readable.settings.is_err());
        let cleanup = readable.cleanup.unwrap();
        assert_eq!((cleanup.policy, cleanup.share_group.as_deref()), (DeletionPolicy::Protect, Some("g")));
        for value in ["reatin", "", "  ", "delete,retain"] {
            let held = read(&annotated(bad.clone(), &[("bowline.dev/policy", value)])).cleanup.unwrap_err();
            assert_eq!(fields(&held), ["bowline.dev/policy"], "{value:?}");
        }
    }

    #[test]
    fn without_annotations_the_defaults_apply_without_a_warning() {
        let nothing = LoadBalancerSettings::default();
        let expected = ParsedAnnotations { settings: Ok(nothing.clone()), cleanup: Ok(nothing), unknown: vec![] };
        assert_eq!(read(&annotated(web(), &[("example.com/colour", "red")])), expected);
    }
}
