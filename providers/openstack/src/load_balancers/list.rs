//! Owners of cloud resources: all Services of a cluster that have a load balancer, a part of one, a floating IP or a security
//! group.
//!
//! ```text
//!  load balancer ──► its tags kube_service_…; without such a tag its name, or its description if the name is truncated
//!  listener ───────► its tags
//!  floating IP ────► its description, if it is at no port: otherwise it belongs to its load balancer
//!  security group ─► its description
//! ```
//!
//! None of these has the UID of the Service, so a new Service owns what an earlier one of its name left.

use std::collections::BTreeSet;

use bowline_core::{ClusterName, LoadBalancerKey};

use super::names::{MAX_LENGTH, Names, SECURITY_GROUP_PREFIX, SERVICE_PREFIX, described};
use super::tracker::DELETED;
use crate::api::network::{FloatingIp, SecurityGroup};
use crate::api::octavia::{Listener, LoadBalancer};

/// Returns the owners of these resources, each once.
pub(super) fn owners(
    cluster: &ClusterName,
    balancers: &[LoadBalancer],
    listeners: &[Listener],
    floating_ips: &[FloatingIp],
    groups: &[SecurityGroup],
) -> Vec<LoadBalancerKey> {
    let balancers = balancers.iter().filter(|balancer| balancer.provisioning_status != DELETED);
    let of_balancers = balancers.flat_map(|balancer| owners_of(cluster, balancer));
    // A Service that joins a load balancer has tagged listeners there before the load balancer is tagged.
    let of_listeners = listeners.iter().flat_map(|one| &one.tags).filter_map(|tag| by_mark(cluster, tag, ""));
    let unused = floating_ips.iter().filter(|floating| floating.port_id.is_empty());
    let groups = groups.iter().filter(|group| group.name.starts_with(SECURITY_GROUP_PREFIX));
    let descriptions = unused.map(|floating| &floating.description).chain(groups.map(|group| &group.description));
    let of_others = descriptions.filter_map(|description| by_description(cluster, description));
    let owners: BTreeSet<(String, String)> = of_balancers.chain(of_listeners).chain(of_others).collect();
    owners.into_iter().map(|(namespace, service)| key(cluster, namespace, service)).collect()
}

/// Returns namespace and name of the Services that use a load balancer.
fn owners_of(cluster: &ClusterName, balancer: &LoadBalancer) -> Vec<(String, String)> {
    let marks: Vec<_> = balancer.tags.iter().filter(|tag| tag.starts_with(SERVICE_PREFIX)).collect();
    // A shared load balancer keeps the name of the Service that it was created for.
    let marks = if marks.is_empty() { vec![&balancer.name] } else { marks };
    marks.into_iter().filter_map(|mark| by_mark(cluster, mark, &balancer.description)).collect()
}

/// Returns the owner by a name or tag. Namespaces and names have no `_`. A truncated one is resolved by the description that was
/// written together with it.
fn by_mark(cluster: &ClusterName, mark: &str, description: &str) -> Option<(String, String)> {
    if let Some((namespace, service)) = by_description(cluster, description)
        && Names::of(&key(cluster, namespace.clone(), service.clone())).balancer() == mark
    {
        return Some((namespace, service));
    }
    let rest = mark.strip_prefix(SERVICE_PREFIX)?.strip_prefix(cluster.as_str())?.strip_prefix('_')?;
    let (namespace, service) = rest.split_once('_')?;
    let is_whole = !namespace.is_empty() && !service.is_empty() && !service.contains('_') && mark.len() < MAX_LENGTH;
    is_whole.then(|| (namespace.to_owned(), service.to_owned()))
}

fn by_description(cluster: &ClusterName, description: &str) -> Option<(String, String)> {
    let owner = described(description).filter(|owner| *cluster == owner.cluster)?;
    Some((owner.namespace.to_owned(), owner.service.to_owned()))
}

fn key(cluster: &ClusterName, namespace: String, service: String) -> LoadBalancerKey {
    LoadBalancerKey { cluster: cluster.clone(), namespace, service, uid: String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster() -> ClusterName {
        ClusterName::from("kubernetes")
    }

    fn balancer(name: &str, tags: &[&str], description: &str) -> LoadBalancer {
        LoadBalancer {
            name: name.to_owned(),
            tags: tags.iter().map(|&tag| tag.to_owned()).collect(),
            description: description.to_owned(),
            ..LoadBalancer::default()
        }
    }

    fn names(balancers: &[LoadBalancer], floating_ips: &[FloatingIp], groups: &[SecurityGroup]) -> Vec<String> {
        let keys = owners(&cluster(), balancers, &[], floating_ips, groups);
        assert!(keys.iter().all(|key| key.uid.is_empty() && key.cluster == cluster()));
        keys.into_iter().map(|key| format!("{}/{}", key.namespace, key.service)).collect()
    }

    #[test]
    fn a_load_balancer_belongs_to_its_tags_or_else_to_its_name() {
        let table = [
            (balancer("kube_service_kubernetes_default_web", &[], ""), &["default/web"][..]),
            (
                balancer("kube_service_kubernetes_default_web", &["kube_service_kubernetes_default_web"], ""),
                &["default/web"],
            ),
            (
                balancer(
                    "kube_service_kubernetes_a_x",
                    &["kube_service_kubernetes_a_x", "kube_service_kubernetes_b_y"],
                    "",
                ),
                &["a/x", "b/y"],
            ),
            // The Service that it was created for is deleted.
            (balancer("kube_service_kubernetes_a_x", &["kube_service_kubernetes_b_y"], ""), &["b/y"]),
            (balancer("corp-lb", &["kube_service_kubernetes_b_y", "mine"], ""), &["b/y"]),
            (balancer("kube_service_kubernetes_a_x", &["mine", ""], ""), &["a/x"]),
            (balancer("corp-lb", &[], "Kubernetes external service a/x from cluster kubernetes"), &[]),
            (balancer("kube_service_other_a_x", &[], ""), &[]),
            (balancer("kube_service_kubernetes_two_a_x", &[], ""), &[]),
            (balancer("kube_service_kubernetes_a", &[], ""), &[]),
            (balancer("kube_service_kubernetes__x", &[], ""), &[]),
            (balancer("listener_0_kube_service_kubernetes_a_x", &[], ""), &[]),
        ];
        for (balancer, expected) in table {
            assert_eq!(names(std::slice::from_ref(&balancer), &[], &[]), expected, "{balancer:?}");
        }
    }

    #[test]
    fn a_truncated_name_is_resolved_by_the_description() {
        let key = key(&cluster(), "n".repeat(63), "s".repeat(253));
        let names_of = Names::of(&key);
        let complete = balancer(&names_of.balancer(), &[&names_of.balancer()], &names_of.balancer_description());
        assert_eq!(names(&[complete], &[], &[]), [format!("{}/{}", key.namespace, key.service)]);
        let without_description = balancer(&names_of.balancer(), &[], "");
        assert!(names(&[without_description], &[], &[]).is_empty());
    }

    #[test]
    fn an_orphan_of_each_kind_is_found_and_a_service_is_listed_once() {
        let key = key(&cluster(), "default".to_owned(), "web".to_owned());
        let names_of = Names::of(&key);
        let floating = FloatingIp { description: names_of.floating_ip_description(), ..FloatingIp::default() };
        let used = FloatingIp { port_id: "p1".to_owned(), ..floating.clone() };
        let group = SecurityGroup {
            name: "lb-sg-0123-default-web".to_owned(),
            description: names_of.security_group_description(),
            ..SecurityGroup::default()
        };
        let complete = balancer(&names_of.balancer(), &[], "");
        assert_eq!(names(&[], std::slice::from_ref(&floating), &[]), ["default/web"]);
        assert_eq!(names(&[], &[], std::slice::from_ref(&group)), ["default/web"]);
        assert!(names(&[], &[used], &[]).is_empty());
        assert_eq!(names(&[complete], &[floating], &[group]), ["default/web"]);
    }

    #[test]
    fn a_deleted_load_balancer_has_no_owner() {
        let deleted = LoadBalancer {
            provisioning_status: DELETED.to_owned(),
            ..balancer("kube_service_kubernetes_default_web", &[], "")
        };
        assert!(names(&[deleted], &[], &[]).is_empty());
    }
}
