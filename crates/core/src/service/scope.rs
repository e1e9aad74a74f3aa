//! Services that Bowline manages, and changes that require an update.

use std::collections::BTreeSet;

use super::{Service, ServiceType};

/// Services that Bowline manages, selected by `spec.loadBalancerClass`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Scope {
    /// Whether Services without a class are managed.
    pub unset: bool,
    /// Classes whose Services are managed.
    pub classes: BTreeSet<String>,
}

impl Scope {
    /// Returns the scope of the Go managers: Services without a class only.
    pub fn upstream() -> Scope {
        Scope { unset: true, classes: BTreeSet::new() }
    }

    /// Returns whether Services of this class are managed.
    pub fn includes(&self, class: Option<&str>) -> bool {
        class.map_or(self.unset, |class| self.classes.contains(class))
    }
}

/// Returns whether the Service needs a load balancer of Bowline: its type is LoadBalancer, and its class is in scope.
pub fn wants_load_balancer(service: &Service, scope: &Scope) -> bool {
    service.kind == ServiceType::LoadBalancer && scope.includes(service.class.as_deref())
}

/// Returns whether the load balancer of the Service is to be deleted: it has the finalizer, and is being deleted or has another
/// type. A Service whose class is out of scope belongs to another controller, with or without the finalizer.
pub fn needs_cleanup(service: &Service, scope: &Scope) -> bool {
    let unwanted = service.deleting || service.kind != ServiceType::LoadBalancer;
    service.has_finalizer() && unwanted && may_have_been_in_scope(service, scope)
}

/// Returns whether the Service was in scope before its type changed. The API server clears the class together with the type, so a
/// Service without both may have been in scope, even if Services without a class are not.
fn may_have_been_in_scope(service: &Service, scope: &Scope) -> bool {
    let class_is_lost = service.class.is_none() && service.kind != ServiceType::LoadBalancer;
    class_is_lost || scope.includes(service.class.as_deref())
}

/// Returns whether a change of the Service requires an update of its load balancer (SVC-8, SVC-9).
pub fn needs_update(old: &Service, new: &Service, scope: &Scope) -> bool {
    match (wants_load_balancer(old, scope), wants_load_balancer(new, scope)) {
        (false, false) => false,
        (true, true) => relevant_fields(old) != relevant_fields(new),
        _ => true,
    }
}

/// Returns the fields of a Service that determine its load balancer. The class determines the cloud.
// upstream: compares only the number of IP families.
fn relevant_fields(service: &Service) -> impl PartialEq + '_ {
    (
        (&service.uid, &service.class, &service.annotations),
        (&service.ports, service.ip_families.len(), &service.external_ips, &service.load_balancer_ip),
        (&service.source_ranges, service.session_affinity, service.traffic_policy, service.health_check_node_port),
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::service::{ServicePort, TargetPort};
    use crate::testing::{annotated, finalized, service, service_port, status};
    use crate::{IpFamily, Protocol, SessionAffinity, TrafficPolicy};

    fn web() -> Service {
        service("default/web")
    }

    fn of_type(kind: ServiceType) -> Service {
        Service { kind, ..web() }
    }

    fn of_class(class: &str) -> Service {
        Service { class: Some(class.to_owned()), ..web() }
    }

    /// Returns a scope with these classes, without Services that have no class.
    fn only(classes: &[&str]) -> Scope {
        Scope { unset: false, classes: classes.iter().map(|class| (*class).to_owned()).collect() }
    }

    #[test]
    fn a_load_balancer_is_needed_for_the_type_and_a_class_in_scope() {
        let both = Scope { unset: true, ..only(&["bowline.dev/local"]) };
        let cases = [
            ("S2", web(), Scope::upstream(), true),
            ("S1", of_type(ServiceType::ClusterIP), Scope::upstream(), false),
            ("Q1", of_type(ServiceType::NodePort), Scope::upstream(), false),
            ("an alias", of_type(ServiceType::ExternalName), Scope::upstream(), false),
            ("S3", of_class("example.com/x"), Scope::upstream(), false),
            ("S3, an empty class is one", of_class(""), Scope::upstream(), false),
            ("a class in scope", of_class("bowline.dev/local"), both.clone(), true),
            ("without a class, in scope", web(), both.clone(), true),
            ("a class out of scope", of_class("example.com/x"), both, false),
            ("without a class, out of scope", web(), only(&["bowline.dev/local"]), false),
        ];
        for (case, service, scope, expected) in cases {
            assert_eq!(wants_load_balancer(&service, &scope), expected, "{case}");
        }
    }

    #[test]
    fn s12_to_s15_services_with_the_finalizer_are_cleaned_up_on_deletion_or_type_change() {
        let deleting = |service: Service| Service { deleting: true, ..service };
        let cases = [
            ("S12", of_type(ServiceType::NodePort), false),
            ("S12, deleting", deleting(web()), false),
            ("S13", finalized(of_type(ServiceType::NodePort)), true),
            ("S14", finalized(web()), false),
            ("S15", finalized(deleting(web())), true),
            ("S15", finalized(deleting(of_type(ServiceType::ClusterIP))), true),
            ("S15", finalized(deleting(of_type(ServiceType::NodePort))), true),
            ("S15", finalized(deleting(of_type(ServiceType::ExternalName))), true),
            ("another finalizer", Service { finalizers: vec!["foo".into()], ..deleting(web()) }, false),
            ("a class out of scope", finalized(deleting(of_class("example.com/x"))), false),
        ];
        for (case, service, expected) in cases {
            assert_eq!(needs_cleanup(&service, &Scope::upstream()), expected, "{case}");
        }
    }

    #[test]
    fn a_service_that_lost_its_class_with_its_type_is_cleaned_up() {
        let ours = only(&["bowline.dev/local"]);
        let deleting = |service: Service| Service { deleting: true, ..service };
        assert!(needs_cleanup(&finalized(of_type(ServiceType::ClusterIP)), &ours));
        assert!(needs_cleanup(&finalized(deleting(of_class("bowline.dev/local"))), &ours));
        assert!(
            !needs_cleanup(&finalized(deleting(web())), &ours),
            "type LoadBalancer without a class is out of scope"
        );
    }

    type Edit = fn(&mut Service);

    #[test]
    fn a_change_of_a_relevant_field_needs_an_update() {
        let cases: [(&str, Edit); 22] = [
            ("U1", |service| service.kind = ServiceType::ClusterIP),
            ("U2", |service| service.ports = [8001, 9001, 10001].map(tcp).to_vec()),
            ("U2, one fewer", |service| drop(service.ports.pop())),
            ("U2, name", |service| first(service).name = "http".into()),
            ("U2, protocol", |service| first(service).protocol = Protocol::Udp),
            ("U2, order", |service| service.ports.reverse()),
            ("U3", |service| service.external_ips = vec!["192.0.2.2".into()]),
            ("U3, one more", |service| service.external_ips.push("192.0.2.2".into())),
            ("U4", |service| service.uid = "another".into()),
            ("U5", |service| service.traffic_policy = TrafficPolicy::Local),
            ("U6", |service| service.health_check_node_port = Some(30123)),
            ("U7", |service| first(service).target_port = TargetPort::Number(21)),
            ("U7, a text", |service| first(service).target_port = TargetPort::Name("20".into())),
            ("U9", |service| service.ip_families.push(IpFamily::IPv6)),
            ("U11", |service| first(service).app_protocol = Some("tcp".into())),
            ("U13", |service| *service = annotated(service.clone(), &[("example.com/colour", "blue")])),
            ("U13, gone", |service| service.annotations = Arc::default()),
            ("U15", |service| first(service).node_port = None),
            ("S7", |service| service.load_balancer_ip = Some("192.168.1.11".into())),
            ("source ranges", |service| service.source_ranges = vec!["10.0.0.0/8".into()]),
            ("affinity", |service| service.session_affinity = SessionAffinity::None),
            ("affinity's time", |service| service.session_affinity = SessionAffinity::ClientIp { timeout_seconds: 2 }),
        ];
        for (case, edit) in cases {
            let (old, mut new) = (full(), full());
            edit(&mut new);
            assert!(needs_update(&old, &new, &Scope::upstream()), "{case}");
            assert!(needs_update(&new, &old, &Scope::upstream()), "{case}, reverted");
            assert!(!needs_update(&new, &new, &Scope::upstream()), "{case}, resync");
        }
    }

    #[test]
    fn a_change_of_an_irrelevant_field_needs_no_update() {
        let cases: [(&str, Edit); 6] = [
            // U14: labels and selectors are not even read.
            ("U8, U10, U14", |_| ()),
            ("SVC-9, finalizers", |service| *service = finalized(service.clone())),
            ("SVC-9, status", |service| service.status = status(&["192.0.2.1"])),
            ("SVC-9, which family", |service| service.ip_families = vec![IpFamily::IPv6]),
            ("resource version", |service| service.resource_version = "2".into()),
            ("deletion, which needs a cleanup", |service| service.deleting = true),
        ];
        for (case, edit) in cases {
            let (old, mut new) = (full(), full());
            edit(&mut new);
            assert!(!needs_update(&old, &new, &Scope::upstream()), "{case}");
        }
    }

    #[test]
    fn u12_a_service_without_a_load_balancer_before_and_after_needs_no_update() {
        let changed = |service: Service| annotated(Service { ports: vec![], ..service }, &[("example.com/a", "b")]);
        for old in [of_type(ServiceType::ClusterIP), of_class("example.com/x")] {
            assert!(!needs_update(&old, &changed(old.clone()), &Scope::upstream()));
        }
        assert!(!needs_update(&of_type(ServiceType::ClusterIP), &of_class("example.com/x"), &Scope::upstream()));
    }

    #[test]
    fn a_change_of_the_cloud_needs_an_update() {
        let scope = only(&["bowline.dev/a", "bowline.dev/b"]);
        assert!(needs_update(&of_class("bowline.dev/a"), &of_class("bowline.dev/b"), &scope));
        assert!(needs_update(&of_class("bowline.dev/a"), &of_class("example.com/x"), &scope));
        assert!(!needs_update(&of_class("bowline.dev/a"), &of_class("bowline.dev/a"), &scope));
    }

    /// Returns a Service with a value in every field.
    fn full() -> Service {
        let http = ServicePort {
            target_port: TargetPort::Number(20),
            app_protocol: Some("http".to_owned()),
            ..service_port(Protocol::Tcp, 8000)
        };
        let service = Service {
            ports: vec![http, tcp(9000), tcp(10000)],
            external_ips: vec!["192.0.2.1".to_owned()],
            load_balancer_ip: Some("192.168.1.1".to_owned()),
            session_affinity: SessionAffinity::ClientIp { timeout_seconds: 1 },
            ..web()
        };
        annotated(service, &[("example.com/colour", "red")])
    }

    fn tcp(port: u16) -> ServicePort {
        service_port(Protocol::Tcp, port)
    }

    fn first(service: &mut Service) -> &mut ServicePort {
        &mut service.ports[0]
    }

    proptest! {
        #[test]
        fn an_unchanged_service_needs_no_update(
            kind in prop::sample::select(vec![ServiceType::ClusterIP, ServiceType::NodePort, ServiceType::LoadBalancer]),
            class in prop::option::of("[a-b]"),
            ports in prop::collection::vec(any::<u16>(), 0..4),
            ranges in prop::collection::vec(".*", 0..3),
            unset in any::<bool>(),
        ) {
            let ports = ports.into_iter().map(tcp).collect();
            let service = Service { kind, class, ports, source_ranges: ranges, ..web() };
            let scope = Scope { unset, ..only(&["a"]) };
            prop_assert!(!needs_update(&service, &service.clone(), &scope));
        }
    }
}
