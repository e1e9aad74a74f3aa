//! Names of resources, as the Go manager derives them.

use bowline_core::LoadBalancerKey;
use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY, SHA256};

/// Maximum length of the name of a load balancer.
const MAX_NAME: usize = 32;

/// Length of the namespace and of the name of a Service in the name of a group.
const MAX_PART: usize = 8;

/// Length of the hash in the name of a group.
const HASH: usize = 10;

/// Returns the name of the load balancer of a Service, which is its UID, cut.
pub(crate) fn load_balancer(uid: &str) -> String {
    format!("a{}", uid.replace('-', "")).chars().take(MAX_NAME).collect()
}

/// Returns the part of a UID that the name of a load balancer contains; `None` if no Service has such a name.
pub(super) fn uid(name: &str) -> Option<&str> {
    let uid = name.strip_prefix('a')?;
    (name.len() == MAX_NAME && uid.chars().all(|c| c.is_ascii_hexdigit())).then_some(uid)
}

/// Returns the name of the security group of a Classic Load Balancer.
pub(super) fn classic_group(load_balancer: &str) -> String {
    format!("k8s-elb-{load_balancer}")
}

/// Returns the name of the load balancer from that of the security group of a Classic Load Balancer.
pub(super) fn of_classic_group(group: &str) -> Option<&str> {
    group.strip_prefix("k8s-elb-")
}

/// Returns the name of the security group of a Network Load Balancer.
pub(super) fn network_group(key: &LoadBalancerKey) -> String {
    let parts = [key.cluster.as_str(), &key.service, &key.namespace, &key.uid];
    grouped(key, &digest(Context::new(&SHA256), parts))
}

/// Returns the beginning of the names of all target groups of a Service. It may be that of other Services as well.
pub(super) fn target_group_prefix(key: &LoadBalancerKey) -> String {
    format!("k8s-{}-{}-", alphanumeric(&key.namespace), alphanumeric(&key.service))
}

/// Settings that the name of a target group contains, because they cannot be changed.
#[derive(Debug, Clone, Copy)]
pub(super) struct TargetGroupParts<'a> {
    pub(super) cluster_id: &'a str,
    pub(super) port: u16,
    pub(super) node_port: u16,
    pub(super) protocol: &'a str,
    pub(super) health_check_protocol: &'a str,
    pub(super) health_check_interval: i32,
    /// UID of the Service if the group of another load balancer has the name without it, otherwise empty.
    pub(super) uid: &'a str,
}

/// Returns the name of a target group.
pub(super) fn target_group(key: &LoadBalancerKey, parts: TargetGroupParts<'_>) -> String {
    let (port, node_port, interval) =
        (parts.port.to_string(), parts.node_port.to_string(), parts.health_check_interval.to_string());
    let hashed = [
        parts.cluster_id,
        &key.namespace,
        &key.service,
        &port,
        &node_port,
        parts.protocol,
        "instance",
        parts.health_check_protocol,
        &interval,
        parts.uid,
    ];
    grouped(key, &digest(Context::new(&SHA1_FOR_LEGACY_USE_ONLY), hashed))
}

fn grouped(key: &LoadBalancerKey, digest: &str) -> String {
    format!("{}{}", target_group_prefix(key), digest.get(..HASH).unwrap_or(digest))
}

fn alphanumeric(text: &str) -> String {
    text.chars().filter(char::is_ascii_alphanumeric).take(MAX_PART).collect()
}

fn digest<const N: usize>(mut context: Context, parts: [&str; N]) -> String {
    parts.iter().for_each(|part| context.update(part.as_bytes()));
    context.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(cluster: &str, namespace: &str, service: &str, uid: &str) -> LoadBalancerKey {
        let (namespace, service, uid) = (namespace.to_owned(), service.to_owned(), uid.to_owned());
        LoadBalancerKey { cluster: cluster.into(), namespace, service, uid }
    }

    #[test]
    fn a_load_balancer_is_named_by_the_uid_of_its_service() {
        let name = load_balancer("12345678-1234-1234-1234-123456789abc");
        assert_eq!(name, "a12345678123412341234123456789ab");
        assert_eq!(uid(&name), Some("12345678123412341234123456789ab"));
        assert_eq!(load_balancer(uid(&name).unwrap()), name, "the part of the UID leads to the same name");
        assert_eq!((uid("b12345678123412341234123456789ab"), uid("a12"), uid("")), (None, None, None));
    }

    #[test]
    fn security_groups_are_named_as_upstream_does() {
        let first = key("test-cluster", "default", "my-service", "12345678-1234-1234-1234-123456789abc");
        assert_eq!(network_group(&first), "k8s-default-myservic-b7cb8b02f0");
        assert_eq!(
            network_group(&key("", "default", "test-service", "test-uid-123")),
            "k8s-default-testserv-4ff26f905f"
        );
        assert_eq!(classic_group("a12"), "k8s-elb-a12");
    }

    #[test]
    fn target_groups_are_named_as_upstream_does() {
        let parts = TargetGroupParts {
            cluster_id: "cluster-a",
            port: 80,
            node_port: 8080,
            protocol: "TCP",
            health_check_protocol: "",
            health_check_interval: 0,
            uid: "",
        };
        assert_eq!(target_group(&key("", "default", "service-a", "u"), parts), "k8s-default-servicea-7fa2e07508");
        let with_uid = TargetGroupParts { uid: "u", ..parts };
        assert_ne!(target_group(&key("", "default", "service-a", "u"), with_uid), "k8s-default-servicea-7fa2e07508");
    }
}
