//! Which Services are ours, and when something about them has to be done.

use std::collections::BTreeSet;

use super::{Service, ServiceType};

/// Whose Services these are: by their class.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Scope {
    /// Those without a class.
    pub unset: bool,
    /// Those with one of these classes.
    pub classes: BTreeSet<String>,
}

impl Scope {
    /// Services without a class only, as the Go managers have it.
    pub fn upstream() -> Scope {
        Scope { unset: true, classes: BTreeSet::new() }
    }

    /// A Service of this class is ours.
    pub fn takes(&self, class: Option<&str>) -> bool {
        class.map_or(self.unset, |class| self.classes.contains(class))
    }
}

/// The Service is to have a balancer of ours: the type is LoadBalancer, and the class is in scope.
pub fn wants_load_balancer(service: &Service, scope: &Scope) -> bool {
    service.kind == ServiceType::LoadBalancer && scope.takes(service.class.as_deref())
}

/// The Service has our finalizer, and is being deleted or has another type. One of a class that is not ours belongs to
/// somebody else, finalizer or not.
pub fn needs_cleanup(service: &Service, scope: &Scope) -> bool {
    let unwanted = service.deleting || service.kind != ServiceType::LoadBalancer;
    service.has_finalizer() && unwanted && may_have_been_ours(service, scope)
}

/// The API server takes the class away together with the type. So one without either may have been of a class of ours,
/// even where Services without a class are not.
fn may_have_been_ours(service: &Service, scope: &Scope) -> bool {
    let class_is_lost = service.class.is_none() && service.kind != ServiceType::LoadBalancer;
    class_is_lost || scope.takes(service.class.as_deref())
}

/// Something has changed that a balancer is made of (SVC-8, SVC-9).
pub fn needs_update(old: &Service, new: &Service, scope: &Scope) -> bool {
    match (wants_load_balancer(old, scope), wants_load_balancer(new, scope)) {
        (false, false) => false,
        (true, true) => ingredients(old) != ingredients(new),
        _ => true,
    }
}

/// All that a balancer is made of. The class decides in which cloud; it differs between two Services that want a balancer
/// only where classes of ours are known.
// upstream: which families there are does not matter, only how many.
fn ingredients(service: &Service) -> impl PartialEq + '_ {
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

    /// Ours are the classes given, and no Service without one.
    fn only(classes: &[&str]) -> Scope {
        Scope { unset: false, classes: classes.iter().map(|class| (*class).to_owned()).collect() }
    }

    #[test]
    fn a_balancer_is_wanted_by_the_type_and_a_class_in_scope() {
        let both = Scope { unset: true, ..only(&["bowline.dev/local"]) };
        let cases = [
            ("S2", web(), Scope::upstream(), true),
            ("S1", of_type(ServiceType::ClusterIP), Scope::upstream(), false),
            ("Q1", of_type(ServiceType::NodePort), Scope::upstream(), false),
            ("an alias", of_type(ServiceType::ExternalName), Scope::upstream(), false),
            ("S3", of_class("example.com/x"), Scope::upstream(), false),
            ("S3, an empty class is one", of_class(""), Scope::upstream(), false),
            ("our class", of_class("bowline.dev/local"), both.clone(), true),
            ("without class beside ours", web(), both.clone(), true),
            ("another's class beside ours", of_class("example.com/x"), both, false),
            ("only ours", web(), only(&["bowline.dev/local"]), false),
        ];
        for (case, service, scope, expected) in cases {
            assert_eq!(wants_load_balancer(&service, &scope), expected, "{case}");
        }
    }

    #[test]
    fn s12_to_s15_clean_up_is_for_those_with_our_finalizer_that_are_leaving() {
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
            ("a finalizer of somebody else", Service { finalizers: vec!["foo".into()], ..deleting(web()) }, false),
            ("a class of somebody else", finalized(deleting(of_class("example.com/x"))), false),
        ];
        for (case, service, expected) in cases {
            assert_eq!(needs_cleanup(&service, &Scope::upstream()), expected, "{case}");
        }
    }

    #[test]
    fn what_lost_its_class_with_its_type_is_cleaned_up_even_if_only_classes_are_ours() {
        let ours = only(&["bowline.dev/local"]);
        let deleting = |service: Service| Service { deleting: true, ..service };
        assert!(needs_cleanup(&finalized(of_type(ServiceType::ClusterIP)), &ours));
        assert!(needs_cleanup(&finalized(deleting(of_class("bowline.dev/local"))), &ours));
        assert!(!needs_cleanup(&finalized(deleting(web())), &ours), "one of the type, without class, is another's");
    }

    type Edit = fn(&mut Service);

    #[test]
    fn what_a_balancer_is_made_of_needs_an_update() {
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
            let (old, mut new) = (rich(), rich());
            edit(&mut new);
            assert!(needs_update(&old, &new, &Scope::upstream()), "{case}");
            assert!(needs_update(&new, &old, &Scope::upstream()), "{case}, back again");
            assert!(!needs_update(&new, &new, &Scope::upstream()), "{case}, resync");
        }
    }

    #[test]
    fn what_a_balancer_is_not_made_of_needs_none() {
        let cases: [(&str, Edit); 6] = [
            // U14: labels and selectors are not even read.
            ("U8, U10, U14", |_| ()),
            ("SVC-9, finalizers", |service| *service = finalized(service.clone())),
            ("SVC-9, status", |service| service.status = status(&["192.0.2.1"])),
            ("SVC-9, which family", |service| service.ip_families = vec![IpFamily::IPv6]),
            ("the version", |service| service.resource_version = "2".into()),
            ("deletion, which needs clean-up", |service| service.deleting = true),
        ];
        for (case, edit) in cases {
            let (old, mut new) = (rich(), rich());
            edit(&mut new);
            assert!(!needs_update(&old, &new, &Scope::upstream()), "{case}");
        }
    }

    #[test]
    fn u12_what_wants_no_balancer_before_and_after_needs_no_update() {
        let changed = |service: Service| annotated(Service { ports: vec![], ..service }, &[("example.com/a", "b")]);
        for old in [of_type(ServiceType::ClusterIP), of_class("example.com/x")] {
            assert!(!needs_update(&old, &changed(old.clone()), &Scope::upstream()));
        }
        assert!(!needs_update(&of_type(ServiceType::ClusterIP), &of_class("example.com/x"), &Scope::upstream()));
    }

    #[test]
    fn another_cloud_is_an_update() {
        let scope = only(&["bowline.dev/a", "bowline.dev/b"]);
        assert!(needs_update(&of_class("bowline.dev/a"), &of_class("bowline.dev/b"), &scope));
        assert!(needs_update(&of_class("bowline.dev/a"), &of_class("example.com/x"), &scope));
        assert!(!needs_update(&of_class("bowline.dev/a"), &of_class("bowline.dev/a"), &scope));
    }

    /// One that has something everywhere.
    fn rich() -> Service {
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
        fn nothing_changed_is_no_update(
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
