//! Names, tags and IDs of the objects of a load balancer.
//!
//! Names and tags are those of the Go manager, so that either program finds what the other created. IDs are derived from the tags and
//! the UID of the Service: a creation that is repeated after a crash or a lost response meets its first result, and is no duplicate,
//! and a late deletion for an earlier Service of the same name does not meet the objects of the current one. The ID of an object that
//! NSX is still deleting is taken, and the next one is used.

use std::collections::BTreeSet;

use bowline_core::{LoadBalancerKey, PortSpec};
use ring::digest::{SHA256, digest};
use uuid::Builder;

use crate::nsx::{Record, Tags};

/// Name of the Go manager, in descriptions and as the owner.
pub(super) const APP: &str = "vsphere-cloud-controller-manager";

pub(super) const OWNER: &str = "owner";
pub(super) const CLUSTER: &str = "cluster";
pub(super) const SERVICE: &str = "service";
pub(super) const PORT: &str = "port";
pub(super) const IP_POOL: &str = "ippoolid";
pub(super) const CLASS: &str = "lbclass";

/// Tags that the configuration adds to all objects, with the owner.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct OwnTags {
    configured: Tags,
    owner: String,
}

/// Names and tags of the objects of one Service.
#[derive(Debug, Clone)]
pub(super) struct Names<'a> {
    own: &'a OwnTags,
    key: &'a LoadBalancerKey,
    /// IDs that new objects cannot have.
    taken: BTreeSet<String>,
}

impl OwnTags {
    pub(super) fn new(configured: &Tags) -> OwnTags {
        let owner = configured.get(OWNER).cloned().unwrap_or_else(|| APP.to_owned());
        OwnTags { configured: configured.clone(), owner }
    }

    /// Returns the cluster and the Service, `namespace/name`, of an object with the mark of this owner.
    pub(super) fn service_of<'r>(&self, record: &'r Record) -> Option<(&'r str, &'r str)> {
        let is_own = record.tag(OWNER) == Some(&self.owner);
        Some((record.tag(CLUSTER)?, record.tag(SERVICE)?)).filter(|_| is_own)
    }

    /// Returns whether an object has the marks of this owner and of this cluster.
    pub(super) fn is_of_cluster(&self, record: &Record, cluster: &str) -> bool {
        record.tag(OWNER) == Some(&self.owner) && record.tag(CLUSTER) == Some(cluster)
    }

    pub(super) fn names<'a>(&'a self, key: &'a LoadBalancerKey) -> Names<'a> {
        Names { own: self, key, taken: BTreeSet::new() }
    }
}

impl Names<'_> {
    /// Returns the same names with other IDs than these.
    pub(super) fn without_ids(self, taken: BTreeSet<String>) -> Self {
        Names { taken, ..self }
    }

    pub(super) fn cluster(&self) -> &str {
        self.key.cluster.as_str()
    }

    /// Namespace and name of the Service.
    pub(super) fn service(&self) -> String {
        format!("{}/{}", self.key.namespace, self.key.service)
    }

    /// Name of the LB service of the cluster.
    pub(super) fn of_cluster(&self) -> String {
        format!("cluster:{}", self.cluster())
    }

    /// Name of the objects of the Service.
    pub(super) fn of_service(&self) -> String {
        format!("cluster:{}:{}", self.cluster(), self.service())
    }

    /// Name of a pool member.
    pub(super) fn of_member(&self, node: &str) -> String {
        format!("{}:{node}", self.cluster())
    }

    /// Tags that identify the objects of the Service.
    pub(super) fn marks(&self) -> Tags {
        [self.cluster_marks(), [(SERVICE.to_owned(), self.service())].into()].into_iter().flatten().collect()
    }

    /// Tags that identify the LB service.
    pub(super) fn cluster_marks(&self) -> Tags {
        [(OWNER.to_owned(), self.own.owner.clone()), (CLUSTER.to_owned(), self.cluster().to_owned())].into()
    }

    /// Tags of the LB service.
    pub(super) fn cluster_tags(&self) -> Tags {
        self.tags(&[])
    }

    /// Tags of all objects of the Service.
    pub(super) fn service_tags(&self) -> Tags {
        self.tags(&[(SERVICE, &self.service())])
    }

    /// Tags of the objects of one port, with further ones.
    pub(super) fn port_tags(&self, port: &PortSpec, more: &[(&str, &str)]) -> Tags {
        let (service, port) = (self.service(), port_tag(port));
        self.tags(&[&[(SERVICE, service.as_str()), (PORT, port.as_str())], more].concat())
    }

    /// Own tags replace configured ones of the same scope.
    fn tags(&self, more: &[(&str, &str)]) -> Tags {
        let mut tags = self.own.configured.clone();
        let own = [(OWNER, self.own.owner.as_str()), (CLUSTER, self.cluster())];
        tags.extend(own.iter().chain(more).map(|(scope, tag)| ((*scope).to_owned(), (*tag).to_owned())));
        tags
    }

    /// Returns the ID of a new object of the Service; `part` distinguishes objects of the same kind.
    pub(super) fn id(&self, kind: &str, part: &str) -> String {
        self.free_id(&[&self.service(), &self.key.uid, kind, part])
    }

    /// Returns the ID of a new LB service at a tier-1 gateway.
    pub(super) fn lb_service_id(&self, tier1: &str) -> String {
        self.free_id(&["lb-service", tier1])
    }

    /// Returns the first ID derived from these texts that is not taken.
    fn free_id(&self, parts: &[&str]) -> String {
        let id = |number: usize| uuid(&[&[&self.own.owner, self.cluster()], parts, &[&number.to_string()]].concat());
        (0..self.taken.len()).map(id).find(|id| !self.taken.contains(id)).unwrap_or_else(|| id(self.taken.len()))
    }
}

/// Returns the tag of a port: `TCP/80`.
pub(super) fn port_tag(port: &PortSpec) -> String {
    format!("{}/{}", port.protocol, port.port)
}

/// Returns a UUID derived from these texts.
fn uuid(parts: &[&str]) -> String {
    let text = parts.join("\n");
    let hash = digest(&SHA256, text.as_bytes());
    let mut bytes = [0; 16];
    bytes.iter_mut().zip(hash.as_ref()).for_each(|(byte, hash)| *byte = *hash);
    Builder::from_random_bytes(bytes).into_uuid().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bowline_core::Protocol;

    fn tags(pairs: &[(&str, &str)]) -> Tags {
        pairs.iter().map(|(scope, tag)| ((*scope).to_owned(), (*tag).to_owned())).collect()
    }

    fn key(cluster: &str, service: &str) -> LoadBalancerKey {
        let (namespace, service) = ("default".to_owned(), service.to_owned());
        LoadBalancerKey { cluster: cluster.into(), namespace, service, uid: "1".to_owned() }
    }

    #[test]
    fn own_tags_replace_configured_ones_except_for_the_owner() {
        let configured = tags(&[("team", "edge"), ("owner", "shoot"), ("cluster", "x"), ("service", "y")]);
        let (own, key) = (OwnTags::new(&configured), key("c", "web"));
        let all = own.names(&key).service_tags();
        assert_eq!(all, tags(&[("cluster", "c"), ("owner", "shoot"), ("service", "default/web"), ("team", "edge")]));
        assert_eq!(own.names(&key).marks(), tags(&[("cluster", "c"), ("owner", "shoot"), ("service", "default/web")]));
        assert_eq!(own.configured, configured);
        assert_eq!(OwnTags::new(&tags(&[])).names(&key).cluster_tags(), tags(&[("cluster", "c"), ("owner", APP)]));
    }

    #[test]
    fn ids_depend_on_owner_cluster_service_uid_kind_and_port() {
        let own = OwnTags::new(&tags(&[]));
        let id = |key: &LoadBalancerKey, kind: &str, part: &str| own.names(key).id(kind, part);
        let web = key("c", "web");
        let first = id(&web, "lb-pools", "TCP/80");
        assert_eq!(first.len(), 36);
        assert_eq!(first, id(&web.clone(), "lb-pools", "TCP/80"));
        let others = [
            id(&LoadBalancerKey { uid: "2".to_owned(), ..web.clone() }, "lb-pools", "TCP/80"),
            id(&web, "lb-pools", "UDP/80"),
            id(&web, "lb-virtual-servers", "TCP/80"),
            id(&key("d", "web"), "lb-pools", "TCP/80"),
            id(&key("c", "api"), "lb-pools", "TCP/80"),
            OwnTags::new(&tags(&[("owner", "shoot")])).names(&web).id("lb-pools", "TCP/80"),
        ];
        assert!(others.iter().all(|other| *other != first), "{others:?}");
        let second = own.names(&web).without_ids([first.clone()].into()).id("lb-pools", "TCP/80");
        let third = own.names(&web).without_ids([first.clone(), second.clone()].into()).id("lb-pools", "TCP/80");
        assert!(second != first && third != second && third != first);
        assert_eq!(own.names(&web).without_ids([second].into()).id("lb-pools", "TCP/80"), first);
    }

    #[test]
    fn the_first_tag_of_a_scope_decides() {
        let own = OwnTags::new(&tags(&[]));
        let record = |service: &str| -> Record {
            let tag = |scope: &str, tag: &str| serde_json::json!({"scope": scope, "tag": tag});
            let all = [tag("service", service), tag("service", "default/api"), tag("owner", APP), tag("cluster", "c")];
            serde_json::from_value(serde_json::json!({"id": "1", "tags": all})).unwrap()
        };
        assert_eq!(own.service_of(&record("default/web")), Some(("c", "default/web")));
        assert!(!record("default/web").has_tags(&own.names(&key("c", "api")).marks()));
        let port =
            PortSpec { name: String::new(), protocol: Protocol::Udp, port: 53, node_port: None, app_protocol: None };
        assert_eq!(port_tag(&port), "UDP/53");
    }
}
