//! Names, tags and descriptions of cloud resources, byte for byte those of the Go manager, so that both find each other's
//! resources. Also the reverse: the owner of a name or a description.
//!
//! ```text
//!  kube_service_{cluster}_{namespace}_{service}              a load balancer, and the tag of it and of its listeners
//!  listener_0_kube_service_{cluster}_{namespace}_{service}   listener of the first port; likewise pool_, monitor_
//! ```

use bowline_core::LoadBalancerKey;
use bowline_core::service::default_load_balancer_name;

/// Prefix of names and tags of load balancers.
pub(crate) const SERVICE_PREFIX: &str = "kube_service_";

/// Part of the description of every floating IP that was created for a Service.
pub(crate) const FLOATING_IP_MARK: &str = "Floating IP for Kubernetes external service";

/// Prefix of names of security groups.
pub(crate) const SECURITY_GROUP_PREFIX: &str = "lb-sg-";

/// Maximum length of a name in OpenStack.
pub(crate) const MAX_LENGTH: usize = 255;

/// Names of the resources of a Service.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Names<'a> {
    key: &'a LoadBalancerKey,
}

/// Resource that a load balancer has for each port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Listener,
    Pool,
    Monitor,
}

/// Owner of a resource, by its description.
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

    /// Returns the name of the load balancer, which is also the tag of the Service.
    pub(crate) fn balancer(&self) -> String {
        self.balancer_in(self.key.cluster.as_str())
    }

    /// Returns that name for another cluster name.
    pub(crate) fn balancer_in(&self, cluster: &str) -> String {
        truncated(format!("{SERVICE_PREFIX}{cluster}_{}_{}", self.key.namespace, self.key.service))
    }

    /// Returns the name that early releases of the Go manager used. A Service without UID has none: `a` could be any resource.
    pub(crate) fn legacy_balancer(&self) -> Option<String> {
        let name = default_load_balancer_name(&self.key.uid);
        (name.len() > 1).then_some(name)
    }

    /// Returns whether a load balancer of this name belongs to the Service, under its current or legacy name.
    pub(crate) fn is_balancer(&self, name: &str) -> bool {
        name == self.balancer() || self.legacy_balancer().is_some_and(|legacy| name == legacy)
    }

    // upstream: "external" also for internal load balancers.
    pub(crate) fn balancer_description(&self) -> String {
        format!("Kubernetes external service {}", self.owner())
    }

    /// Returns the name of the resource for the port with this index.
    pub(crate) fn part(&self, part: Part, index: usize) -> String {
        truncated(format!("{}{index}_{}", part.prefix(), self.balancer()))
    }

    pub(crate) fn floating_ip_description(&self) -> String {
        format!("{FLOATING_IP_MARK} {}", self.owner())
    }

    pub(crate) fn security_group(&self) -> String {
        truncated(format!("{SECURITY_GROUP_PREFIX}{}-{}-{}", self.key.uid, self.key.namespace, self.key.service))
    }

    /// Returns whether the UID of the Service is known.
    pub(crate) fn has_uid(&self) -> bool {
        !self.key.uid.is_empty()
    }

    pub(crate) fn security_group_description(&self) -> String {
        let LoadBalancerKey { cluster, namespace, service, .. } = self.key;
        format!("Security Group for {namespace}/{service} Service LoadBalancer in cluster {cluster}")
    }

    fn owner(&self) -> String {
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

    /// Splits a name before the name of the load balancer in it.
    fn split(self, name: &str) -> Option<(&str, &str)> {
        let rest = name.strip_prefix(self.prefix())?;
        let (index, rest) = rest.split_once('_')?;
        let is_index = !index.is_empty() && index.bytes().all(|digit| digit.is_ascii_digit());
        is_index.then(|| name.split_at(name.len() - rest.len()))
    }

    /// Returns the index of the port in a name.
    pub(crate) fn number(self, name: &str) -> Option<usize> {
        let (head, _) = self.split(name)?;
        head.strip_prefix(self.prefix())?.strip_suffix('_')?.parse().ok()
    }

    /// Returns this name for another cluster; `None` if it does not have the old one.
    pub(crate) fn rename_cluster(self, name: &str, old: &str, new: &str) -> Option<String> {
        let (head, balancer) = self.split(name)?;
        Some(truncated(format!("{head}{}", rename_cluster(balancer, old, new)?)))
    }
}

/// Returns the name of a member that is created in its own request.
pub(crate) fn serial_member(node: &str, address: &str, port: u16) -> String {
    truncated(format!("member_{node}_{address}_{port}"))
}

/// Truncates to 255 bytes at a character boundary.
fn truncated(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(MAX_LENGTH));
    text
}

// ---- owners

/// Returns the cluster in the name of a load balancer or in a tag, which may be truncated.
///
/// Names of namespaces and Services have no `_`, so everything before the last two of them is the cluster.
pub(crate) fn cluster_of(name: &str) -> Option<&str> {
    let rest = name.strip_prefix(SERVICE_PREFIX)?;
    let head = without_last(rest)?;
    Some(without_last(head).unwrap_or(head))
}

fn without_last(text: &str) -> Option<&str> {
    let (head, last) = text.rsplit_once('_')?;
    (!head.is_empty() && !last.is_empty()).then_some(head)
}

/// Returns the name of a load balancer, or a tag, for another cluster; `None` if it does not have the old one.
pub(crate) fn rename_cluster(name: &str, old: &str, new: &str) -> Option<String> {
    if cluster_of(name)? != old {
        return None;
    }
    // Only at the position of the cluster: the same text may occur elsewhere in the name.
    let rest = name.strip_prefix(SERVICE_PREFIX)?.strip_prefix(old)?;
    Some(truncated(format!("{SERVICE_PREFIX}{new}{rest}")))
}

/// Returns the owner of a load balancer, floating IP or security group by its description.
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
    fn case_084_names_are_truncated_to_255_bytes_and_a_name_in_a_name_twice() {
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
    fn names_are_truncated_at_a_character_boundary() {
        let text = truncated(format!("{}ü", "a".repeat(254)));
        assert_eq!(text, "a".repeat(254));
    }

    #[test]
    fn a_service_without_uid_has_no_legacy_name() {
        let key = LoadBalancerKey { uid: String::new(), ..key("c", "n", "s") };
        assert_eq!(Names::of(&key).legacy_balancer(), None);
    }

    #[test]
    fn the_cluster_precedes_namespace_and_service() {
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
    fn only_the_old_cluster_name_is_replaced() {
        let name = "kube_service_kube_ns_kube";
        assert_eq!(rename_cluster(name, "kube", "c2").as_deref(), Some("kube_service_c2_ns_kube"));
        assert_eq!(rename_cluster(name, "other", "c2"), None);
        assert_eq!(rename_cluster("corp-lb", "corp-lb", "c2"), None);
        let listener = "listener_0_kube_service_kube_ns_x";
        assert_eq!(
            Part::Listener.rename_cluster(listener, "kube", "c2").as_deref(),
            Some("listener_0_kube_service_c2_ns_x")
        );
        assert_eq!(Part::Pool.rename_cluster(listener, "kube", "c2"), None);
        for foreign in
            ["listener_", "listener_x_kube_service_kube_ns_x", "listener__kube_service_kube_ns_x", "pool_0_mine"]
        {
            assert_eq!(Part::Listener.rename_cluster(foreign, "kube", "c2"), None, "{foreign}");
        }
    }

    #[test]
    fn descriptions_name_the_owner() {
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
