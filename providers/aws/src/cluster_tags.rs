//! Tags that say which cluster a resource belongs to.

use crate::api::Tags;

/// Prefix of the tag of a cluster; its value is `owned` or `shared`.
pub(crate) const CLUSTER_TAG_PREFIX: &str = "kubernetes.io/cluster/";

/// Tag of older clusters, with the ID as its value.
pub(crate) const LEGACY_TAG: &str = "KubernetesCluster";

/// Tag with the namespace and the name of the Service.
pub(crate) const SERVICE_TAG: &str = "kubernetes.io/service-name";

const OWNED: &str = "owned";

/// Identity of the cluster in tags.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ClusterTags {
    id: String,
    key: String,
    /// New resources get the tag of older clusters as well.
    is_legacy: bool,
}

impl ClusterTags {
    /// Creates the identity of the cluster with this ID.
    pub(crate) fn new(id: &str, is_legacy: bool) -> ClusterTags {
        ClusterTags { id: id.to_owned(), key: format!("{CLUSTER_TAG_PREFIX}{id}"), is_legacy }
    }

    /// Returns the ID of the cluster.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Returns the key of the cluster's tag.
    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    /// Returns whether the resource is used by this cluster.
    pub(crate) fn is_tagged(&self, tags: &Tags) -> bool {
        tags.contains_key(&self.key) || self.has_legacy_tag(tags)
    }

    /// Returns whether the resource was created for this cluster.
    pub(crate) fn is_owned(&self, tags: &Tags) -> bool {
        tags.get(&self.key).is_some_and(|value| value == OWNED) || self.has_legacy_tag(tags)
    }

    /// Returns the tags that a new resource gets in addition to `others`, which may not replace ours.
    pub(crate) fn of_new(&self, others: &Tags) -> Tags {
        let legacy = self.is_legacy.then(|| (LEGACY_TAG.to_owned(), self.id.clone()));
        let own = [(self.key.clone(), OWNED.to_owned())].into_iter().chain(legacy);
        others.clone().into_iter().chain(own).collect()
    }

    /// Returns the tag of another cluster, if the resource has one and none of this cluster.
    pub(crate) fn other<'a>(&self, tags: &'a Tags) -> Option<&'a str> {
        let is_cluster = |key: &&String| key.starts_with(CLUSTER_TAG_PREFIX);
        if self.is_tagged(tags) { None } else { tags.keys().find(is_cluster).map(String::as_str) }
    }

    fn has_legacy_tag(&self, tags: &Tags) -> bool {
        tags.get(LEGACY_TAG).is_some_and(|id| *id == self.id)
    }
}

/// Returns whether the resource has the tag of any cluster.
pub(crate) fn has_any(tags: &Tags) -> bool {
    tags.keys().any(|key| key.starts_with(CLUSTER_TAG_PREFIX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tags(pairs: &[(&str, &str)]) -> Tags {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_resource_is_used_or_owned_by_its_tag() {
        let cluster = ClusterTags::new("demo", false);
        for (pairs, expected) in [
            (&[("kubernetes.io/cluster/demo", "owned")][..], (true, true)),
            (&[("kubernetes.io/cluster/demo", "shared")], (true, false)),
            (&[("kubernetes.io/cluster/other", "owned")], (false, false)),
            (&[("KubernetesCluster", "demo")], (true, true)),
            (&[("KubernetesCluster", "other")], (false, false)),
            (&[], (false, false)),
        ] {
            let tags = tags(pairs);
            assert_eq!((cluster.is_tagged(&tags), cluster.is_owned(&tags)), expected, "{pairs:?}");
        }
        assert_eq!(cluster.other(&tags(&[("kubernetes.io/cluster/b", "owned")])), Some("kubernetes.io/cluster/b"));
        assert_eq!(cluster.other(&tags(&[("kubernetes.io/cluster/demo", "")])), None);
    }

    #[test]
    fn tags_of_the_cluster_win_over_others() {
        let others = tags(&[("kubernetes.io/cluster/demo", "mine"), ("team", "a")]);
        let expected = tags(&[("KubernetesCluster", "demo"), ("kubernetes.io/cluster/demo", "owned"), ("team", "a")]);
        assert_eq!(ClusterTags::new("demo", true).of_new(&others), expected);
    }
}
