//! What things are called: names, tags and descriptions, byte for byte as the Go manager has them, because it and this one find
//! each other's things by them. And the way back: whose a name or a description is.
//!
//! ```text
//!  kube_service_{cluster}_{namespace}_{service}              a balancer, and the tag of it and of its listeners
//!  listener_0_kube_service_{cluster}_{namespace}_{service}   what belongs to the first port, in the same way pool_, monitor_
//! ```

use bowline_core::LoadBalancerKey;
use bowline_core::service::default_load_balancer_name;

/// What the names and tags of all Services' balancers start with.
pub(crate) const SERVICE_PREFIX: &str = "kube_service_";

/// What is in the description of every floating IP that was made for a Service.
pub(crate) const FLOATING_IP_MARK: &str = "Floating IP for Kubernetes external service";

/// What the names of Services' security groups start with.
pub(crate) const SECURITY_GROUP_PREFIX: &str = "lb-sg-";

/// The longest text that OpenStack takes for a name.
pub(crate) const LONGEST: usize = 255;

/// The names of all that is made for a Service.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Names<'a> {
    key: &'a LoadBalancerKey,
}

/// What a balancer has for each port; the name says which.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Listener,
    Pool,
    Monitor,
}

/// Whose something is, as its description says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Described<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) service: &'a str,
    pub(crate) cluster: &'a str,
}

impl<'a> Names<'a> {
    pub(crate) fn of(key: &'a LoadBalancerKey) -> Names<'a> {
        Names { key }
    }

    pub(crate) fn cluster(&self) -> &'a str {
        self.key.cluster.as_str()
    }

    /// The balancer's name, and the tag of what is the Service's.
    pub(crate) fn balancer(&self) -> String {
        self.balancer_in(self.key.cluster.as_str())
    }

    /// The same if the cluster had this name.
    pub(crate) fn balancer_in(&self, cluster: &str) -> String {
        cut(format!("{SERVICE_PREFIX}{cluster}_{}_{}", self.key.namespace, self.key.service))
    }

    /// What very old managers called the balancer. A Service without UID has no such name: `a` may be anybody's.
    pub(crate) fn legacy_balancer(&self) -> Option<String> {
        let name = default_load_balancer_name(&self.key.uid);
        (name.len() > 1).then_some(name)
    }

    /// A balancer of this name is the Service's own, of today or of old.
    pub(crate) fn is_balancer(&self, name: &str) -> bool {
        name == self.balancer() || self.legacy_balancer().is_some_and(|legacy| name == legacy)
    }

    // upstream: also of balancers that are internal.
    pub(crate) fn balancer_description(&self) -> String {
        format!("Kubernetes external service {}", self.whose())
    }

    /// The name of what belongs to the port with this place in the Service.
    pub(crate) fn part(&self, part: Part, index: usize) -> String {
        cut(format!("{}{index}_{}", part.prefix(), self.balancer()))
    }

    pub(crate) fn floating_ip_description(&self) -> String {
        format!("{FLOATING_IP_MARK} {}", self.whose())
    }

    pub(crate) fn security_group(&self) -> String {
        cut(format!("{SECURITY_GROUP_PREFIX}{}-{}-{}", self.key.uid, self.key.namespace, self.key.service))
    }

    /// It is known which Service of the name is meant.
    pub(crate) fn has_uid(&self) -> bool {
        !self.key.uid.is_empty()
    }

    pub(crate) fn security_group_description(&self) -> String {
        let LoadBalancerKey { cluster, namespace, service, .. } = self.key;
        format!("Security Group for {namespace}/{service} Service LoadBalancer in cluster {cluster}")
    }

    fn whose(&self) -> String {
        let LoadBalancerKey { cluster, namespace, service, .. } = self.key;
        format!("{namespace}/{service} from cluster {cluster}")
    }
}

impl Part {
    fn prefix(self) -> &'static str {
        match self {
            Part::Listener => "listener_",
            Part::Pool => "pool_",
            Part::Monitor => "monitor_",
        }
    }

    /// The name in this one that a balancer would have, with what stands before it.
    fn split(self, name: &str) -> Option<(&str, &str)> {
        let rest = name.strip_prefix(self.prefix())?;
        let (index, rest) = rest.split_once('_')?;
        let is_index = !index.is_empty() && index.bytes().all(|digit| digit.is_ascii_digit());
        is_index.then(|| name.split_at(name.len() - rest.len()))
    }

    /// The place of the port that a name says.
    pub(crate) fn number(self, name: &str) -> Option<usize> {
        let (head, _) = self.split(name)?;
        head.strip_prefix(self.prefix())?.strip_suffix('_')?.parse().ok()
    }

    /// This name with another cluster in it; `None` if it is not a name of the old one.
    pub(crate) fn moved(self, name: &str, old: &str, new: &str) -> Option<String> {
        let (head, balancer) = self.split(name)?;
        Some(cut(format!("{head}{}", moved(balancer, old, new)?)))
    }
}

/// The name that a member has where they are made one by one.
pub(crate) fn serial_member(node: &str, address: &str, port: u16) -> String {
    cut(format!("member_{node}_{address}_{port}"))
}

/// The first 255 bytes, without a half letter.
fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(LONGEST));
    text
}

// ---- the way back

/// The cluster in the name of a balancer or in a tag. The end of the name may have been cut off.
///
/// Neither a namespace nor a Service has `_` in its name, so that what stands before the last two of them is the cluster.
pub(crate) fn cluster_of(name: &str) -> Option<&str> {
    let rest = name.strip_prefix(SERVICE_PREFIX)?;
    let head = without_last(rest)?;
    Some(without_last(head).unwrap_or(head))
}

fn without_last(text: &str) -> Option<&str> {
    let (head, last) = text.rsplit_once('_')?;
    (!head.is_empty() && !last.is_empty()).then_some(head)
}

/// The name of a balancer, or a tag, with another cluster in it; `None` if it is not of the old one.
pub(crate) fn moved(name: &str, old: &str, new: &str) -> Option<String> {
    if cluster_of(name)? != old {
        return None;
    }
    // Only where the cluster stands: the same text may stand elsewhere in the name.
    let rest = name.strip_prefix(SERVICE_PREFIX)?.strip_prefix(old)?;
    Some(cut(format!("{SERVICE_PREFIX}{new}{rest}")))
}

/// Whose a balancer, a floating IP or a security group is, by its description.
pub(crate) fn described(text: &str) -> Option<Described<'_>> {
    let balancer = text.strip_prefix("Kubernetes external service ");
    let floating = || text.strip_prefix(FLOATING_IP_MARK)?.strip_prefix(' ');
    let group = || text.strip_prefix("Security Group for ")?.split_once(" Service LoadBalancer in cluster ");
    let (service, cluster) = match balancer.or_else(floating) {
        Some(rest) => rest.split_once(" from cluster ")?,
        None => group()?,
    };
    let (namespace, service) = service.split_once('/')?;
    Some(Described { namespace, service, cluster })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(cluster: &str, namespace: &str, service: &str) -> LoadBalancerKey {
        let uid = "0123abcd-4567-89ab-cdef-0123456789ab".to_owned();
        LoadBalancerKey { cluster: cluster.into(), namespace: namespace.to_owned(), service: service.to_owned(), uid }
    }

    #[test]
    fn names_are_those_of_the_go_manager() {
        let key = key("kubernetes", "default", "web");
        let names = Names::of(&key);
        let uid = &key.uid;
        let table = [
            (names.balancer(), "kube_service_kubernetes_default_web".to_owned()),
            (names.legacy_balancer().unwrap(), "a0123abcd456789abcdef0123456789a".to_owned()),
            (
                names.balancer_description(),
                "Kubernetes external service default/web from cluster kubernetes".to_owned(),
            ),
            (names.part(Part::Listener, 0), "listener_0_kube_service_kubernetes_default_web".to_owned()),
            (names.part(Part::Pool, 1), "pool_1_kube_service_kubernetes_default_web".to_owned()),
            (names.part(Part::Monitor, 10), "monitor_10_kube_service_kubernetes_default_web".to_owned()),
            (serial_member("n1", "10.0.0.1", 30080), "member_n1_10.0.0.1_30080".to_owned()),
            (
                names.floating_ip_description(),
                "Floating IP for Kubernetes external service default/web from cluster kubernetes".to_owned(),
            ),
            (names.security_group(), format!("lb-sg-{uid}-default-web")),
            (
                names.security_group_description(),
                "Security Group for default/web Service LoadBalancer in cluster kubernetes".to_owned(),
            ),
        ];
        for (made, expected) in table {
            assert_eq!(made, expected);
        }
    }

    #[test]
    fn case_084_names_are_cut_at_255_bytes_and_a_name_in_a_name_is_cut_twice() {
        let (namespace, service) = ("n".repeat(120), "s".repeat(170));
        let key = key("kubernetes", &namespace, &service);
        let names = Names::of(&key);
        let whole = format!("kube_service_kubernetes_{namespace}_{service}");
        assert_eq!(names.balancer(), whole[..255]);
        assert_eq!(names.part(Part::Listener, 0), format!("listener_0_{whole}")[..255]);
        assert_eq!(names.security_group().len(), 255);
        assert_eq!(serial_member(&"n".repeat(250), "10.0.0.1", 1).len(), 255);
    }

    #[test]
    fn a_cut_leaves_no_half_letter() {
        let text = cut(format!("{}ü", "a".repeat(254)));
        assert_eq!(text, "a".repeat(254));
    }

    #[test]
    fn a_service_without_uid_has_no_legacy_name() {
        let key = LoadBalancerKey { uid: String::new(), ..key("c", "n", "s") };
        assert_eq!(Names::of(&key).legacy_balancer(), None);
    }

    #[test]
    fn the_cluster_is_what_stands_before_namespace_and_service() {
        let table = [
            ("kube_service_kubernetes_default_web", Some("kubernetes")),
            ("kube_service_my_own_cluster_default_web", Some("my_own_cluster")),
            ("kube_service_kubernetes_default", Some("kubernetes")),
            ("kube_service_a__b", Some("a_")),
            ("kube_service_kube_kube_kube", Some("kube")),
            ("kube_service__default_web", Some("_default")),
            ("kube_service_kubernetes", None),
            ("kube_service_kubernetes_", None),
            ("kube_service_", None),
            ("listener_0_kube_service_kubernetes_default_web", None),
            ("corp-lb", None),
            ("", None),
        ];
        for (name, cluster) in table {
            assert_eq!(cluster_of(name), cluster, "{name}");
        }
    }

    #[test]
    fn only_the_cluster_is_replaced_and_only_if_it_is_the_old_one() {
        let name = "kube_service_kube_ns_kube";
        assert_eq!(moved(name, "kube", "c2").as_deref(), Some("kube_service_c2_ns_kube"));
        assert_eq!(moved(name, "other", "c2"), None);
        assert_eq!(moved("corp-lb", "corp-lb", "c2"), None);
        let listener = "listener_0_kube_service_kube_ns_x";
        assert_eq!(Part::Listener.moved(listener, "kube", "c2").as_deref(), Some("listener_0_kube_service_c2_ns_x"));
        assert_eq!(Part::Pool.moved(listener, "kube", "c2"), None);
        for foreign in
            ["listener_", "listener_x_kube_service_kube_ns_x", "listener__kube_service_kube_ns_x", "pool_0_mine"]
        {
            assert_eq!(Part::Listener.moved(foreign, "kube", "c2"), None, "{foreign}");
        }
    }

    #[test]
    fn descriptions_say_whose_something_is() {
        let key = key("my cluster", "default", "web");
        let names = Names::of(&key);
        let expected = Described { namespace: "default", service: "web", cluster: "my cluster" };
        for text in [names.balancer_description(), names.floating_ip_description(), names.security_group_description()]
        {
            assert_eq!(described(&text), Some(expected), "{text}");
        }
        for foreign in ["", "Kubernetes external service", "Kubernetes external service web from cluster c", "my own"] {
            assert_eq!(described(foreign), None, "{foreign}");
        }
    }
}
