//! From a Service to what is wished of a cloud.

use std::sync::Arc;

use ipnet::IpNet;

use super::source_ranges::{self, SourceRangeError, leave_everybody_in};
use super::{Service, ServicePort, ServiceType};
use crate::annotations::{self, LoadBalancerSettings, Mistake, POLICY, Unknown};
use crate::{
    ClusterName, DesiredLoadBalancer, HealthCheck, LoadBalancerKey, LoadBalancerSpec, PortSpec, TargetSet,
    TrafficPolicy,
};

/// The characters that a balancer's name may have by default.
const NAME_LENGTH: usize = 32;

/// What a Service's annotations say.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    /// The settings, or all that is wrong with them.
    pub settings: Result<LoadBalancerSettings, Vec<Mistake>>,
    /// What counts when the balancer is to go. Only a policy that cannot be read holds that back: nobody knows then what
    /// is to become of the balancer. Whatever else cannot be read is as if it were not there.
    pub cleanup: Result<LoadBalancerSettings, Vec<Mistake>>,
    /// Keys with our prefix that mean nothing here: worth a warning each.
    pub unknown: Vec<Unknown>,
}

/// Reads the annotations of a Service and its source ranges.
pub fn read(service: &Service) -> Reading {
    let (settings, mut mistakes) = annotations::read_leniently(&service.annotations);
    let about_policy: Vec<Mistake> = mistakes.iter().filter(|mistake| mistake.place == POLICY.key).cloned().collect();
    let (_, wrong_ranges) = source_ranges::find(service);
    // Those of our own annotation are there already.
    mistakes
        .extend(wrong_ranges.iter().filter(|wrong| wrong.place != annotations::SOURCE_RANGES.key).map(Mistake::from));
    Reading {
        cleanup: unless_any(about_policy, settings.clone()),
        settings: unless_any(mistakes, settings),
        unknown: annotations::COMMON.unknown(&service.annotations),
    }
}

fn unless_any<T>(mistakes: Vec<Mistake>, value: T) -> Result<T, Vec<Mistake>> {
    if mistakes.is_empty() { Ok(value) } else { Err(mistakes) }
}

/// What is wished for a Service that wants a balancer, with these settings and targets. Source ranges that leave everybody
/// in are none. The error says what is wrong with the Service itself.
pub fn desired(
    cluster: &ClusterName,
    service: &Service,
    settings: &LoadBalancerSettings,
    targets: TargetSet,
) -> Result<DesiredLoadBalancer, Vec<Mistake>> {
    let spec = LoadBalancerSpec {
        ports: service.ports.iter().map(port).collect(),
        targets,
        source_ranges: limited_to(service)?,
        requested_address: requested_address(service),
        ip_families: service.ip_families.clone(),
        session_affinity: service.session_affinity,
        traffic_policy: service.traffic_policy,
        health_check: health_check(service),
    };
    Ok(DesiredLoadBalancer { spec: Some(Arc::new(spec)), ..desired_cleanup(cluster, service, settings) })
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

/// Who may connect; empty means everybody.
fn limited_to(service: &Service) -> Result<Vec<IpNet>, Vec<Mistake>> {
    let (ranges, wrong) = source_ranges::find(service);
    let ranges = unless_any(wrong.iter().map(Mistake::from).collect(), ranges)?;
    let is_limit = !leave_everybody_in(&ranges, &service.ip_families);
    Ok(ranges.into_iter().filter(|_| is_limit).collect())
}

fn requested_address(service: &Service) -> Option<String> {
    let address = service.load_balancer_ip.as_deref().map(str::trim);
    address.filter(|address| !address.is_empty()).map(str::to_owned)
}

/// What is wished for a Service that is to have no balancer any more.
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

/// The policy is Local, on a Service that has node ports at all (H5, H6).
pub fn wants_only_local_traffic(service: &Service) -> bool {
    let has_node_ports = matches!(service.kind, ServiceType::LoadBalancer | ServiceType::NodePort);
    has_node_ports && service.traffic_policy == TrafficPolicy::Local
}

/// How a node says whether it wants traffic (H7).
pub fn health_check(service: &Service) -> Option<HealthCheck> {
    let is_needed = service.kind == ServiceType::LoadBalancer && wants_only_local_traffic(service);
    let port = service.health_check_node_port.filter(|port| is_needed && *port != 0)?;
    Some(HealthCheck { path: "/healthz".to_owned(), port })
}

/// The name that the Go library gives a balancer by default (H10): `a` and the UID without dashes, cut to 32 characters.
pub fn default_load_balancer_name(uid: &str) -> String {
    std::iter::once('a').chain(uid.chars().filter(|letter| *letter != '-')).take(NAME_LENGTH).collect()
}

impl From<&SourceRangeError> for Mistake {
    fn from(wrong: &SourceRangeError) -> Mistake {
        Mistake { place: wrong.place.to_owned(), message: wrong.message() }
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

    fn wished(service: &Service) -> LoadBalancerSpec {
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
    fn h10_the_default_name_is_made_of_the_uid() {
        let cases = [
            ("0123abcd-4567-89ab-cdef-0123456789ab", "a0123abcd456789abcdef0123456789a"),
            ("a-b", "aab"),
            ("", "a"),
            ("--", "a"),
            ("żżżżżżżżżżżżżżżżżżżżżżżżżżżżżżżżżżżżż", "ażżżżżżżżżżżżżżżżżżżżżżżżżżżżżżż"),
        ];
        for (uid, name) in cases {
            assert_eq!(default_load_balancer_name(uid), name, "H10: {uid}");
            assert!(default_load_balancer_name(uid).chars().count() <= NAME_LENGTH, "H10: {uid}");
        }
    }

    #[test]
    fn a_wish_says_all_that_the_service_says() {
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
        assert_eq!(wished(&service), expected);
    }

    #[test]
    fn ranges_that_leave_everybody_in_are_none() {
        let ranges = |ranges: &[&str]| {
            let source_ranges = ranges.iter().map(|range| (*range).to_owned()).collect();
            wished(&Service { source_ranges, ..web() }).source_ranges
        };
        assert_eq!(ranges(&[]), []);
        assert_eq!(ranges(&["10.0.0.0/8", "0.0.0.0/0"]), []);
        assert_eq!(ranges(&["0.0.0.0/0", "2001:db8::/32"]).len(), 2);
        assert_eq!(wished(&annotated(web(), &[(annotations::SOURCE_RANGES.key, "10.0.0.0/8")])).source_ranges.len(), 1);
    }

    #[test]
    fn an_empty_requested_address_is_none() {
        for text in ["", "  "] {
            let service = Service { load_balancer_ip: Some(text.to_owned()), ..web() };
            assert_eq!(wished(&service).requested_address, None);
        }
    }

    #[test]
    fn both_wishes_know_whose_they_are_and_what_is_set() {
        let service = annotated(web(), &[("bowline.dev/policy", "retain"), ("example.com/flavour", "small")]);
        let settings = read(&service).settings.unwrap();
        let cluster = ClusterName::from("c");
        let (wanted, over) = (
            desired(&cluster, &service, &settings, TargetSet::default()).unwrap(),
            desired_cleanup(&cluster, &service, &settings),
        );
        for desired in [&wanted, &over] {
            let LoadBalancerKey { cluster, namespace, service: name, uid } = &desired.key;
            assert_eq!((cluster.as_str(), &**namespace, &**name, &**uid), ("c", "default", "web", "uid-of-web"));
            assert_eq!((&desired.annotations, &*desired.settings), (&service.annotations, &settings));
            assert_eq!(desired.settings.policy, DeletionPolicy::Retain);
        }
        assert_eq!((wanted.spec.is_some(), over.spec), (true, None));
    }

    fn shown(mistakes: &[Mistake]) -> Vec<String> {
        mistakes.iter().map(|mistake| mistake.place.clone()).collect()
    }

    #[test]
    fn all_mistakes_of_annotations_and_field_are_told_at_once() {
        let bad = Service { source_ranges: vec!["a".to_owned(), "10.0.0.0/8".to_owned(), "b".to_owned()], ..web() };
        let bad = annotated(bad, &[("bowline.dev/internal", "maybe"), ("bowline.dev/source-ranges", "c,d")]);
        let mistakes = read(&bad).settings.unwrap_err();
        let (ours, field) = ("bowline.dev/source-ranges", "spec.loadBalancerSourceRanges");
        assert_eq!(shown(&mistakes), ["bowline.dev/internal", ours, ours, field, field]);
        let refused = desired(&"c".into(), &bad, &LoadBalancerSettings::default(), TargetSet::default()).unwrap_err();
        assert_eq!(shown(&refused), [field, field], "what the Service itself says");
    }

    #[test]
    fn a_mistake_in_our_ranges_is_told_once_and_one_in_the_old_annotation_if_it_counts() {
        let ours = annotated(web(), &[(annotations::SOURCE_RANGES.key, "a")]);
        assert_eq!(shown(&read(&ours).settings.unwrap_err()), [annotations::SOURCE_RANGES.key]);
        let old = annotated(web(), &[(crate::well_known::SOURCE_RANGES, "a")]);
        assert_eq!(shown(&read(&old).settings.unwrap_err()), [crate::well_known::SOURCE_RANGES]);
        let unused = annotated(old, &[(annotations::SOURCE_RANGES.key, "10.0.0.0/8")]);
        assert!(read(&unused).settings.is_ok());
    }

    #[test]
    fn only_a_policy_that_cannot_be_read_holds_the_end_of_a_balancer_back() {
        let bad = Service { source_ranges: vec!["a".to_owned()], ..web() };
        let bad = annotated(bad, &[("bowline.dev/internal", "maybe"), ("bowline.dev/share-group", "g")]);
        let readable = read(&annotated(bad.clone(), &[("bowline.dev/policy", "protect")]));
        assert!(readable.settings.is_err());
        let cleanup = readable.cleanup.unwrap();
        assert_eq!((cleanup.policy, cleanup.share_group.as_deref()), (DeletionPolicy::Protect, Some("g")));
        for value in ["reatin", "", "  ", "delete,retain"] {
            let held = read(&annotated(bad.clone(), &[("bowline.dev/policy", value)])).cleanup.unwrap_err();
            assert_eq!(shown(&held), ["bowline.dev/policy"], "{value:?}");
        }
    }

    #[test]
    fn nothing_said_is_the_default_without_a_warning() {
        let nothing = LoadBalancerSettings::default();
        let expected = Reading { settings: Ok(nothing.clone()), cleanup: Ok(nothing), unknown: vec![] };
        assert_eq!(read(&annotated(web(), &[("example.com/colour", "red")])), expected);
    }
}
