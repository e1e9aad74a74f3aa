//! API discovery: groups, versions and resources, generated from the resource table.
//!
//! There are two formats: one document per group version (unaggregated), or one document for everything (aggregated,
//! `apidiscovery.k8s.io/v2`). Content negotiation selects the format.

use std::iter::once;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::digest::{SHA256, digest};
use serde_json::{Map, Value, json};

use crate::resources::{self, RESOURCES, Resource, Subresource};

/// `GET /api`.
pub(crate) fn api_versions(address: &str) -> Value {
    json!({
        "kind": "APIVersions",
        "versions": versions_of("").iter().map(|v| v.version).collect::<Vec<_>>(),
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    })
}

/// `GET /apis`.
pub(crate) fn group_list() -> Value {
    let groups: Vec<Value> = named_groups().into_iter().map(|name| Value::Object(group_entry(name))).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `GET /apis/GROUP`.
pub(crate) fn group(name: &str) -> Option<Value> {
    let name = named_groups().into_iter().find(|group| *group == name)?;
    let mut group = group_entry(name);
    group.insert("kind".to_owned(), "APIGroup".into());
    group.insert("apiVersion".to_owned(), "v1".into());
    Some(Value::Object(group))
}

/// `GET /api/v1` or `/apis/GROUP/VERSION`; the core group is empty.
pub(crate) fn resource_list(group: &str, version: &str) -> Option<Value> {
    let group_version = versions_of(group).into_iter().find(|v| v.version == version)?;
    let resources: Vec<Value> = group_version.resources().flat_map(plain_entries).collect();
    let mut list = json!({
        "kind": "APIResourceList",
        "groupVersion": group_version.name(),
        "resources": resources,
    });
    // upstream: the core group's APIResourceList has no apiVersion.
    if !group.is_empty() {
        list["apiVersion"] = "v1".into();
    }
    Some(list)
}

/// The aggregated (v2) document of `/api` (`core`) or `/apis`.
pub(crate) fn aggregated(core: bool) -> Value {
    let groups = if core { vec![""] } else { named_groups() };
    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": groups.into_iter().map(aggregated_group).collect::<Vec<_>>(),
    })
}

// --- groups and versions ---

/// One version of one group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GroupVersion {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
}

impl GroupVersion {
    /// `v1` or `apps/v1`.
    pub(crate) fn name(self) -> String {
        match self.group {
            "" => self.version.to_owned(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// The resources of this group version, in table order.
    pub(crate) fn resources(self) -> impl Iterator<Item = &'static Resource> {
        RESOURCES.iter().filter(move |r| r.group == self.group && r.version == self.version)
    }
}

/// Every group version, in table order.
pub(crate) fn group_versions() -> Vec<GroupVersion> {
    let mut all = Vec::new();
    for resource in RESOURCES {
        let group_version = GroupVersion { group: resource.group, version: resource.version };
        if !all.contains(&group_version) {
            all.push(group_version);
        }
    }
    all
}

fn versions_of(group: &str) -> Vec<GroupVersion> {
    group_versions().into_iter().filter(|v| v.group == group).collect()
}

fn named_groups() -> Vec<&'static str> {
    let mut names: Vec<_> = group_versions().into_iter().map(|v| v.group).filter(|g| !g.is_empty()).collect();
    names.dedup();
    names
}

// --- unaggregated discovery ---

fn group_entry(name: &str) -> Map<String, Value> {
    let versions: Vec<Value> =
        versions_of(name).into_iter().map(|v| json!({"groupVersion": v.name(), "version": v.version})).collect();
    let mut entry = Map::new();
    entry.insert("name".to_owned(), name.into());
    entry.insert("preferredVersion".to_owned(), versions.first().cloned().unwrap_or_default());
    entry.insert("versions".to_owned(), Value::Array(versions));
    entry
}

/// A resource and its subresources.
fn plain_entries(resource: &'static Resource) -> impl Iterator<Item = Value> {
    let subresources = resource.subresources.iter().map(|sub| plain_subresource(resource, sub));
    once(plain_resource(resource)).chain(subresources)
}

fn plain_resource(resource: &Resource) -> Value {
    let mut entry = json!({
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": resource.verbs,
    });
    put_list(&mut entry, "shortNames", resource.short_names);
    put_list(&mut entry, "categories", resource.categories);
    if !resource.is_virtual() {
        entry["storageVersionHash"] = storage_version_hash(resource).into();
    }
    entry
}

fn plain_subresource(resource: &Resource, sub: &Subresource) -> Value {
    let mut entry = json!({
        "name": format!("{}/{}", resource.plural, sub.name),
        "singularName": "",
        "namespaced": resource.namespaced,
        "kind": sub.kind,
        "verbs": sub.verbs,
    });
    if let (Some(group), Some(version)) = (sub.group, sub.version) {
        entry["group"] = group.into();
        entry["version"] = version.into();
    }
    entry
}

/// Hash that is equal for resources with the same stored objects.
fn storage_version_hash(resource: &Resource) -> String {
    let stored = resources::find_storage(resource.storage);
    let kind = format!("{}/{}/{}", stored.group, stored.version, stored.kind);
    let hash = digest(&SHA256, kind.as_bytes());
    STANDARD.encode(hash.as_ref().get(..8).unwrap_or_default())
}

// --- aggregated discovery ---

fn aggregated_group(name: &str) -> Value {
    let versions: Vec<Value> = versions_of(name).into_iter().map(aggregated_version).collect();
    let metadata = if name.is_empty() { json!({}) } else { json!({"name": name}) };
    json!({"metadata": metadata, "versions": versions})
}

fn aggregated_version(group_version: GroupVersion) -> Value {
    json!({
        "version": group_version.version,
        "freshness": "Current",
        "resources": group_version.resources().map(aggregated_resource).collect::<Vec<_>>(),
    })
}

fn aggregated_resource(resource: &Resource) -> Value {
    let mut entry = json!({
        "resource": resource.plural,
        "singularResource": resource.singular,
        "responseKind": response_kind(None, None, resource.kind),
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "verbs": resource.verbs,
    });
    put_list(&mut entry, "shortNames", resource.short_names);
    put_list(&mut entry, "categories", resource.categories);
    if !resource.subresources.is_empty() {
        entry["subresources"] = resource.subresources.iter().map(aggregated_subresource).collect();
    }
    entry
}

fn aggregated_subresource(sub: &Subresource) -> Value {
    json!({
        "subresource": sub.name,
        "responseKind": response_kind(sub.group, sub.version, sub.kind),
        "verbs": sub.verbs,
    })
}

/// Group and version are empty unless they differ from those of the list.
fn response_kind(group: Option<&str>, version: Option<&str>, kind: &str) -> Value {
    json!({"group": group.unwrap_or_default(), "version": version.unwrap_or_default(), "kind": kind})
}

fn put_list(entry: &mut Value, field: &str, items: &[&str]) {
    if !items.is_empty() {
        entry[field] = json!(items);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Json;

    fn entry(list: &Value, name: &str) -> Value {
        list.list("resources").iter().find(|r| r.text("name") == name).unwrap().clone()
    }

    #[test]
    fn the_core_resource_list_has_no_api_version() {
        let core = resource_list("", "v1").unwrap();
        let keys: Vec<&str> = core.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(keys, ["groupVersion", "kind", "resources"]);
        assert_eq!(resource_list("apps", "v1").unwrap()["apiVersion"], "v1");
        assert_eq!(resource_list("apps", "v2"), None);
    }

    #[test]
    fn a_resource_entry_has_names_verbs_and_storage_hash() {
        let services = entry(&resource_list("", "v1").unwrap(), "services");
        let expected = json!({
            "name": "services", "singularName": "service", "namespaced": true, "kind": "Service",
            "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
            "shortNames": ["svc"], "categories": ["all"], "storageVersionHash": "0/CO1lhkEBI="});
        assert_eq!(services, expected);
    }

    #[test]
    fn subresources_of_another_group_have_group_and_version() {
        let eviction = entry(&resource_list("", "v1").unwrap(), "pods/eviction");
        let expected = json!({"name": "pods/eviction", "singularName": "", "namespaced": true, "group": "policy",
                              "version": "v1", "kind": "Eviction", "verbs": ["create"]});
        assert_eq!(eviction, expected);
    }

    #[test]
    fn both_event_groups_have_the_same_storage_version_hash() {
        let hash = |group| entry(&resource_list(group, "v1").unwrap(), "events")["storageVersionHash"].clone();
        assert_eq!(hash(""), hash("events.k8s.io"));
    }

    #[test]
    fn groups_are_listed_once_with_their_versions() {
        let groups = group_list();
        let names: Vec<&str> = groups.list("groups").iter().map(|g| g.text("name")).collect();
        let expected = [
            "apps",
            "events.k8s.io",
            "authentication.k8s.io",
            "authorization.k8s.io",
            "policy",
            "rbac.authorization.k8s.io",
            "coordination.k8s.io",
            "discovery.k8s.io",
        ];
        assert_eq!(names, expected);
        let version = json!({"groupVersion": "apps/v1", "version": "v1"});
        let apps = json!({"kind": "APIGroup", "apiVersion": "v1", "name": "apps", "preferredVersion": version,
                          "versions": [version]});
        assert_eq!(group("apps"), Some(apps));
        assert_eq!(group(""), None);
        assert_eq!(group("absent"), None);
    }

    #[test]
    fn api_versions_have_the_server_address() {
        let expected = json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [
            {"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1:6443"}]});
        assert_eq!(api_versions("127.0.0.1:6443"), expected);
    }

    #[test]
    fn aggregated_discovery_nests_subresources() {
        let core = aggregated(true);
        assert_eq!(core["items"][0]["metadata"], json!({}));
        let resources = core["items"][0]["versions"][0].list("resources");
        let accounts = resources.iter().find(|r| r.text("resource") == "serviceaccounts").unwrap();
        let expected = json!({
            "resource": "serviceaccounts", "singularResource": "serviceaccount", "scope": "Namespaced",
            "responseKind": {"group": "", "version": "", "kind": "ServiceAccount"}, "shortNames": ["sa"],
            "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
            "subresources": [{"subresource": "token", "verbs": ["create"], "responseKind": {
                "group": "authentication.k8s.io", "version": "v1", "kind": "TokenRequest"}}]});
        assert_eq!(accounts, &expected);
        assert_eq!(aggregated(false).list("items").len(), 8);
    }
}
