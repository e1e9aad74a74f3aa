//! Changes that are written to a Service: finalizer, load balancer status, condition and annotations. The spec is never changed.

use std::collections::BTreeMap;

use super::{Condition, Service};
use crate::{Ingress, IpMode, LoadBalancerStatus, PortStatus};

/// Changes of a Service, written with a single request to the `status` subresource (W-6 to W-8).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServiceChange {
    /// Change of Bowline's finalizer.
    pub finalizer: Option<FinalizerChange>,
    /// New `status.loadBalancer`.
    pub status: Option<LoadBalancerStatus>,
    /// Change of Bowline's condition.
    pub condition: Option<ConditionChange>,
    /// Annotations to set, or to remove if the value is `None`. All others are kept.
    pub annotations: BTreeMap<String, Option<String>>,
}

/// Change of Bowline's finalizer. Other finalizers are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinalizerChange {
    /// Append it.
    Add,
    /// Remove it.
    Remove,
}

/// Change of Bowline's condition. Other conditions are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConditionChange {
    /// Add or replace the condition.
    Set(Condition),
    /// Remove the condition of this type.
    Remove(String),
}

impl ServiceChange {
    /// Returns whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        *self == ServiceChange::default()
    }

    /// Returns a change that adds the finalizer, unless the Service has it already (S18).
    pub fn add_finalizer(service: &Service) -> ServiceChange {
        let finalizer = (!service.has_finalizer()).then_some(FinalizerChange::Add);
        ServiceChange { finalizer, ..ServiceChange::default() }
    }

    /// Removes the finalizer, if the Service has it (S19).
    pub fn without_finalizer(mut self, service: &Service) -> ServiceChange {
        self.finalizer = service.has_finalizer().then_some(FinalizerChange::Remove);
        self
    }

    /// Sets the status, if the Service has a different one (S20, S21).
    pub fn with_status(mut self, service: &Service, status: &LoadBalancerStatus) -> ServiceChange {
        self.status = (!status_equal(&service.status, status)).then(|| status.clone());
        self
    }

    /// Sets the annotations whose value on the Service differs.
    pub fn with_annotations(mut self, service: &Service, annotations: &BTreeMap<String, String>) -> ServiceChange {
        let differing = annotations.iter().filter(|(key, value)| service.annotations.get(*key) != Some(*value));
        self.annotations.extend(differing.map(|(key, value)| (key.clone(), Some(value.clone()))));
        self
    }

    /// Removes the annotations that have exactly these values. Values that another client has set are kept.
    pub fn without_annotations(mut self, service: &Service, annotations: &BTreeMap<String, String>) -> ServiceChange {
        let same = annotations.iter().filter(|(key, value)| service.annotations.get(*key) == Some(*value));
        self.annotations.extend(same.map(|(key, _)| (key.clone(), None)));
        self
    }

    /// Sets the condition, if that of the Service differs in more than its time. The last transition time is kept if the status
    /// does not change. Replaces an earlier condition change: there is at most one per request.
    pub fn with_condition(mut self, service: &Service, mut condition: Condition) -> ServiceChange {
        let now = service.condition(&condition.kind);
        if let Some(now) = now.filter(|now| now.status == condition.status) {
            condition.last_transition_time.clone_from(&now.last_transition_time);
        }
        self.condition = (now != Some(&condition)).then_some(ConditionChange::Set(condition));
        self
    }

    /// Removes the condition of this type, if the Service has one. Replaces an earlier condition change.
    pub fn without_condition(mut self, service: &Service, kind: &str) -> ServiceChange {
        self.condition = service.condition(kind).map(|_| ConditionChange::Remove(kind.to_owned()));
        self
    }
}

/// Returns whether two statuses are equivalent (H9, SVC-19): an address without a mode has the mode VIP, as in the API server.
pub fn status_equal(one: &LoadBalancerStatus, other: &LoadBalancerStatus) -> bool {
    one.ingress.iter().map(normalized).eq(other.ingress.iter().map(normalized))
}

/// Normalises an entry for comparison: empty strings are `None`, and the default mode is filled in.
fn normalized(entry: &Ingress) -> (Option<&str>, Option<&str>, Option<IpMode>, &[PortStatus]) {
    let ip = entry.ip.as_deref().filter(|ip| !ip.is_empty());
    let hostname = entry.hostname.as_deref().filter(|hostname| !hostname.is_empty());
    let mode = entry.ip_mode.or(ip.map(|_| IpMode::Vip));
    (ip, hostname, mode, &entry.ports)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Protocol;
    use crate::testing::{finalized, service, status};

    fn web() -> Service {
        service("default/web")
    }

    fn with_finalizers(finalizers: &[&str]) -> Service {
        Service { finalizers: finalizers.iter().map(|name| (*name).to_owned()).collect(), ..web() }
    }

    const OURS: &str = "service.kubernetes.io/load-balancer-cleanup";

    #[test]
    fn h08_the_finalizer_is_found_by_its_name() {
        let cases: [(&[&str], bool); 5] =
            [(&[], false), (&["foo"], false), (&[OURS], true), (&[OURS, "foo"], true), (&["foo", OURS], true)];
        for (finalizers, expected) in cases {
            assert_eq!(with_finalizers(finalizers).has_finalizer(), expected, "H8: {finalizers:?}");
        }
    }

    #[test]
    fn s18_and_s19_the_finalizer_is_added_and_removed_once() {
        let (without, with) = (with_finalizers(&["foo"]), with_finalizers(&["foo", OURS]));
        let added = |service: &Service| ServiceChange::add_finalizer(service).finalizer;
        let removed = |service: &Service| ServiceChange::default().without_finalizer(service).finalizer;
        assert_eq!(added(&with), None, "S18");
        assert_eq!(added(&without), Some(FinalizerChange::Add), "S18, S23");
        assert_eq!(removed(&without), None, "S19");
        assert_eq!(removed(&with), Some(FinalizerChange::Remove), "S19");
        assert!(ServiceChange::add_finalizer(&with).is_empty());
        assert!(!ServiceChange::add_finalizer(&without).is_empty());
    }

    #[test]
    fn s20_and_s21_the_status_is_written_if_it_differs() {
        let vip = Ingress { ip: Some("8.8.8.8".to_owned()), ip_mode: Some(IpMode::Vip), ..Ingress::default() };
        let cases = [
            ("S20", status(&["8.8.8.8"]), status(&["8.8.8.8"]), false),
            ("S20", status(&[]), status(&[]), false),
            ("S20, S29", LoadBalancerStatus { ingress: vec![vip] }, status(&["8.8.8.8"]), false),
            ("S21", status(&[]), status(&["8.8.8.8"]), true),
            ("S21", status(&["8.8.8.8"]), status(&[]), true),
        ];
        for (case, now, desired, is_written) in cases {
            let change = ServiceChange::default().with_status(&Service { status: now, ..web() }, &desired);
            assert_eq!(change.status, is_written.then_some(desired), "{case}");
        }
    }

    #[test]
    fn s04_finalizer_and_status_are_removed_in_one_change() {
        let service = Service { status: status(&["8.8.8.8"]), ..finalized(web()) };
        let change = ServiceChange::default().without_finalizer(&service).with_status(&service, &status(&[]));
        assert_eq!((change.finalizer, change.status), (Some(FinalizerChange::Remove), Some(status(&[]))));
    }

    #[test]
    fn h09_equivalent_statuses_are_equal() {
        let base = || Ingress { ip: Some("1.1.1.1".to_owned()), ..Ingress::default() };
        let ports = |protocol| Ingress { ports: vec![PortStatus { port: 80, protocol, error: None }], ..base() };
        let mode = |mode| Ingress { ip_mode: Some(mode), ..base() };
        let ip = |ip: &str| Ingress { ip: Some(ip.to_owned()), ..Ingress::default() };
        let name = |name: &str| Ingress { hostname: Some(name.to_owned()), ..Ingress::default() };
        let failed = Ingress {
            ports: vec![PortStatus { port: 80, protocol: Protocol::Tcp, error: Some("Taken".to_owned()) }],
            ..base()
        };
        let cases = [
            ("H9", vec![base()], vec![base()], true),
            ("H9", vec![base()], vec![ip("2.2.2.2")], false),
            ("H9", vec![ports(Protocol::Tcp)], vec![ports(Protocol::Tcp)], true),
            ("H9", vec![ports(Protocol::Tcp)], vec![ports(Protocol::Udp)], false),
            ("H9", vec![ports(Protocol::Tcp)], vec![base()], false),
            ("H9", vec![mode(IpMode::Vip)], vec![mode(IpMode::Proxy)], false),
            ("SVC-19, no mode is VIP", vec![base()], vec![mode(IpMode::Vip)], true),
            ("SVC-19, no mode is not Proxy", vec![base()], vec![mode(IpMode::Proxy)], false),
            ("a port that failed", vec![ports(Protocol::Tcp)], vec![failed], false),
            ("names", vec![name("a")], vec![name("a")], true),
            ("other names", vec![name("a")], vec![name("b")], false),
            ("a name is no address", vec![name("1.1.1.1")], vec![base()], false),
            ("an empty name is none", vec![Ingress { hostname: Some(String::new()), ..base() }], vec![base()], true),
            ("one more", vec![base()], vec![base(), base()], false),
            ("order", vec![base(), name("a")], vec![name("a"), base()], false),
        ];
        for (case, one, other, expected) in cases {
            let (one, other) = (LoadBalancerStatus { ingress: one }, LoadBalancerStatus { ingress: other });
            assert_eq!(status_equal(&one, &other), expected, "{case}");
            assert_eq!(status_equal(&other, &one), expected, "{case}, reversed");
        }
    }

    fn condition(status: &str, message: &str, time: &str) -> Condition {
        Condition {
            kind: "Good".to_owned(),
            status: status.to_owned(),
            reason: "Because".to_owned(),
            message: message.to_owned(),
            last_transition_time: time.to_owned(),
        }
    }

    #[test]
    fn a_condition_is_written_if_more_than_its_time_differs_and_keeps_its_transition_time() {
        let service = Service { conditions: vec![condition("True", "ready", "t1")], ..web() };
        let changed = |desired| ServiceChange::default().with_condition(&service, desired).condition;
        let set = |condition| Some(ConditionChange::Set(condition));
        assert_eq!(changed(condition("True", "ready", "t2")), None);
        assert_eq!(changed(condition("True", "still ready", "t2")), set(condition("True", "still ready", "t1")));
        assert_eq!(changed(condition("False", "ready", "t2")), set(condition("False", "ready", "t2")));
        let first = ServiceChange::default().with_condition(&web(), condition("True", "ready", "t2"));
        assert_eq!(first.condition, set(condition("True", "ready", "t2")));
    }

    #[test]
    fn only_an_existing_condition_is_removed() {
        let service = Service { conditions: vec![condition("True", "ready", "t1")], ..web() };
        let without = |kind| ServiceChange::default().without_condition(&service, kind).condition;
        assert_eq!(without("Good"), Some(ConditionChange::Remove("Good".to_owned())));
        assert_eq!(without("Other"), None);
    }

    #[test]
    fn annotations_are_set_if_they_differ_and_removed_if_they_are_equal() {
        let texts =
            |pairs: &[(&str, &str)]| pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
        let annotations: BTreeMap<String, String> = texts(&[("id", "1"), ("place", "here"), ("mine", "x")]);
        let service = Service { annotations: annotations.into(), ..web() };
        let desired = texts(&[("id", "1"), ("place", "there"), ("new", "y")]);
        let some = |text: &str| Some(text.to_owned());
        let with = ServiceChange::default().with_annotations(&service, &desired).annotations;
        assert_eq!(with, [("new".to_owned(), some("y")), ("place".to_owned(), some("there"))].into());
        let without = ServiceChange::default().without_annotations(&service, &desired).annotations;
        assert_eq!(without, [("id".to_owned(), None)].into(), "values of another client are kept");
        assert!(ServiceChange::default().with_annotations(&service, &texts(&[("mine", "x")])).is_empty());
    }

    fn ingress() -> impl Strategy<Value = Ingress> {
        let text = || prop::option::of("[ab]?");
        let mode = prop::option::of(prop::sample::select(vec![IpMode::Vip, IpMode::Proxy]));
        (text(), text(), mode).prop_map(|(ip, hostname, ip_mode)| Ingress { ip, hostname, ip_mode, ports: Vec::new() })
    }

    proptest! {
        #[test]
        fn status_equality_is_symmetric_and_reflexive(
            one in prop::collection::vec(ingress(), 0..3),
            other in prop::collection::vec(ingress(), 0..3),
        ) {
            let (one, other) = (LoadBalancerStatus { ingress: one }, LoadBalancerStatus { ingress: other });
            prop_assert_eq!(status_equal(&one, &other), status_equal(&other, &one));
            prop_assert!(status_equal(&one, &one.clone()));
        }
    }
}
