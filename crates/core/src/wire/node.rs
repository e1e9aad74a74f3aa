//! Wire type of Nodes.

use serde::Deserialize;

use super::shapes::{List, Record, Text, Texts};
use crate::well_known::NETWORK_UNAVAILABLE;
use crate::{Address, AddressType, NetworkCondition, Node, NodeName, ProviderId, Ready, Taint};

/// Node as the API server sends it, with the fields that the manager reads.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct NodeObject {
    metadata: Record<Metadata>,
    spec: Record<NodeSpec>,
    status: Record<NodeStatus>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct NodeSpec {
    #[serde(rename = "providerID")]
    provider_id: Text,
    #[serde(rename = "podCIDR")]
    pod_cidr: Text,
    #[serde(rename = "podCIDRs")]
    pod_cidrs: List<Text>,
    taints: List<Record<WireTaint>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WireTaint {
    key: Text,
    value: Text,
    effect: Text,
    time_added: Text,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct NodeStatus {
    addresses: List<Record<WireAddress>>,
    conditions: List<Record<Condition>>,
    node_info: Record<NodeInfo>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct WireAddress {
    #[serde(rename = "type")]
    kind: Text,
    address: Text,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Condition {
    #[serde(rename = "type")]
    kind: Text,
    status: Text,
    reason: Text,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct NodeInfo {
    #[serde(rename = "systemUUID")]
    system_uuid: Text,
}

/// Metadata without the managed fields.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    name: Text,
    uid: Text,
    resource_version: Text,
    creation_timestamp: Text,
    deletion_timestamp: Text,
    labels: Texts,
    annotations: Texts,
}

impl NodeObject {
    /// Returns `metadata.uid`.
    pub fn uid(&self) -> Option<&str> {
        self.metadata.0.uid.0.as_deref()
    }

    /// Returns `metadata.resourceVersion`.
    pub fn resource_version(&self) -> Option<&str> {
        self.metadata.0.resource_version.0.as_deref()
    }

    /// Converts to the domain type; `None` if the object has no name, which no stored object lacks.
    pub fn into_node(self) -> Option<Node> {
        let NodeObject { metadata: Record(metadata), spec: Record(spec), status: Record(status) } = self;
        Some(Node {
            created: metadata.creation_timestamp.time(),
            deleting: metadata.deletion_timestamp.time().is_some(),
            name: NodeName::from(metadata.name.0?),
            uid: metadata.uid.0.unwrap_or_default(),
            resource_version: metadata.resource_version.0.unwrap_or_default(),
            labels: metadata.labels.0,
            annotations: metadata.annotations.0,
            provider_id: spec.provider_id.0.as_deref().and_then(ProviderId::new),
            taints: spec.taints.0.into_iter().map(|Record(taint)| taint.into()).collect(),
            pod_cidrs: pod_cidrs(spec.pod_cidrs, spec.pod_cidr),
            ready: ready(&status.conditions),
            network: network(&status.conditions),
            addresses: status.addresses.0.into_iter().filter_map(|Record(address)| address.into_address()).collect(),
            system_uuid: status.node_info.0.system_uuid.non_empty(),
        })
    }
}

/// `podCIDRs`, or `podCIDR` on Nodes from before dual-stack.
fn pod_cidrs(list: List<Text>, single: Text) -> Vec<String> {
    let listed = list.texts();
    if listed.is_empty() { single.non_empty().into_iter().collect() } else { listed }
}

fn ready(conditions: &List<Record<Condition>>) -> Ready {
    let condition = conditions.0.iter().find(|Record(condition)| condition.kind.is("Ready"));
    match condition {
        Some(Record(condition)) if condition.status.is("True") => Ready::True,
        Some(Record(condition)) if condition.status.is("False") => Ready::False,
        _ => Ready::Unknown,
    }
}

fn network(conditions: &List<Record<Condition>>) -> Option<NetworkCondition> {
    let Record(condition) = conditions.0.iter().find(|Record(condition)| condition.kind.is(NETWORK_UNAVAILABLE))?;
    let text = |text: &Text| text.0.clone().unwrap_or_default();
    Some(NetworkCondition { status: text(&condition.status), reason: text(&condition.reason) })
}

impl From<WireTaint> for Taint {
    fn from(taint: WireTaint) -> Taint {
        Taint {
            key: taint.key.0.unwrap_or_default(),
            value: taint.value.0.unwrap_or_default(),
            effect: taint.effect.0.unwrap_or_default(),
            time_added: taint.time_added.0,
        }
    }
}

impl WireAddress {
    /// Converts the address; `None` for an unknown type.
    fn into_address(self) -> Option<Address> {
        let kind = match self.kind.0.as_deref()? {
            "Hostname" => AddressType::Hostname,
            "InternalIP" => AddressType::InternalIP,
            "ExternalIP" => AddressType::ExternalIP,
            "InternalDNS" => AddressType::InternalDNS,
            "ExternalDNS" => AddressType::ExternalDNS,
            _ => return None,
        };
        Some(Address::new(kind, self.address.0?))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::wire::shapes::any_json;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn read(object: Value) -> Option<Node> {
        serde_json::from_str::<NodeObject>(&object.to_string()).unwrap().into_node()
    }

    #[test]
    fn a_node_is_parsed_with_all_fields_in_order() {
        let node = read(json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {
                "name": "n1", "uid": "u1", "resourceVersion": "7", "creationTimestamp": "2026-01-02T03:04:05Z",
                "labels": {"a": "1"}, "annotations": {"b": "2"},
                "managedFields": [{"manager": "kubelet", "fieldsV1": {"f:spec": {}}}],
            },
            "spec": {
                "providerID": "cloud:///1", "podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24", "fd00::/64"],
                "taints": [
                    {"key": "k", "value": "v", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"},
                    {"key": "k", "effect": "NoSchedule"},
                ],
            },
            "status": {
                "addresses": [
                    {"type": "InternalIP", "address": "10.1.0.2"}, {"type": "InternalIP", "address": "10.1.0.1"},
                    {"type": "Carrier", "address": "pigeon"}, {"type": "Hostname", "address": "n1"},
                ],
                "conditions": [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": "True"}],
                "nodeInfo": {"systemUUID": "uuid", "kubeletVersion": "v1.36.0"},
                "images": [{"names": ["a"], "sizeBytes": 1}],
            },
        }))
        .unwrap();
        let taint = |value: &str, effect: &str, time: Option<&str>| Taint {
            key: "k".into(),
            value: value.into(),
            effect: effect.into(),
            time_added: time.map(str::to_owned),
        };
        let expected = Node {
            name: "n1".into(),
            uid: "u1".into(),
            resource_version: "7".into(),
            created: Some("2026-01-02T03:04:05Z".parse().unwrap()),
            deleting: false,
            labels: [("a".into(), "1".into())].into(),
            annotations: [("b".into(), "2".into())].into(),
            provider_id: ProviderId::new("cloud:///1"),
            taints: vec![taint("v", "NoExecute", Some("2026-01-01T00:00:00Z")), taint("", "NoSchedule", None)],
            pod_cidrs: vec!["10.0.0.0/24".into(), "fd00::/64".into()],
            addresses: vec![
                Address::new(AddressType::InternalIP, "10.1.0.2"),
                Address::new(AddressType::InternalIP, "10.1.0.1"),
                Address::new(AddressType::Hostname, "n1"),
            ],
            ready: Ready::True,
            network: None,
            system_uuid: Some("uuid".into()),
        };
        assert_eq!(node, expected);
    }

    #[test]
    fn a_field_of_an_unexpected_type_counts_as_missing() {
        for odd in [json!(null), json!(1), json!(-1.5), json!(true), json!([[1]]), json!({"x": {"y": 1}})] {
            let node = read(json!({
                "metadata": {"name": "n", "uid": odd, "labels": {"good": "1", "bad": odd}, "deletionTimestamp": odd},
                "spec": {"providerID": odd, "taints": [odd, {"key": "k", "value": odd, "effect": "NoSchedule"}]},
                "status": {"addresses": odd, "conditions": [{"type": "Ready", "status": odd}], "nodeInfo": odd},
            }));
            let node = node.unwrap();
            assert_eq!((node.uid.as_str(), node.labels.len(), node.ready), ("", 1, Ready::Unknown), "{odd}");
            assert_eq!(node.taints.last().unwrap().key, "k", "{odd}");
            assert!(!node.deleting && node.provider_id.is_none() && node.addresses.is_empty(), "{odd}");
        }
    }

    fn network(conditions: Value) -> Option<(String, String)> {
        let node = read(json!({"metadata": {"name": "n"}, "status": {"conditions": conditions}})).unwrap();
        node.network.map(|condition| (condition.status, condition.reason))
    }

    #[test]
    fn the_network_condition_is_parsed_among_other_conditions() {
        let condition = |status: &str, reason: &str| Some((status.to_owned(), reason.to_owned()));
        let full = json!({
            "type": "NetworkUnavailable", "status": "True", "reason": "NoRouteCreated", "message": "none",
            "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        let cases = [
            (json!([]), None),
            (json!([{"type": "Ready", "status": "True", "reason": "KubeletReady"}]), None),
            (json!([{"type": "Ready", "status": "True"}, full]), condition("True", "NoRouteCreated")),
            (json!([{"type": "NetworkUnavailable", "status": "False"}]), condition("False", "")),
            (json!([{"type": "networkunavailable", "status": "False"}]), None),
        ];
        for (conditions, expected) in cases {
            assert_eq!(network(conditions.clone()), expected, "{conditions}");
        }
    }

    #[test]
    fn a_network_condition_of_unexpected_type_is_empty() {
        for odd in [json!(null), json!(1), json!(-1.5), json!(true), json!([[1]]), json!({"x": {"y": 1}})] {
            // An empty condition equals no status of the manager, so it is overwritten.
            let empty = Some((String::new(), String::new()));
            assert_eq!(network(json!([{"type": "NetworkUnavailable", "status": odd, "reason": odd}])), empty, "{odd}");
            let good = json!({"type": "NetworkUnavailable", "status": "False", "reason": "RouteCreated"});
            let read = Some(("False".to_owned(), "RouteCreated".to_owned()));
            assert_eq!(network(json!([odd, {"type": odd, "status": "True"}, good])), read, "{odd}");
            assert_eq!(network(odd.clone()), None, "{odd}");
        }
    }

    #[test]
    fn an_object_without_a_name_is_none() {
        for nameless in [json!({}), json!({"metadata": null}), json!({"metadata": {"name": null}})] {
            assert_eq!(read(nameless), None);
        }
    }

    #[test]
    fn the_single_pod_cidr_field_is_read() {
        let node = read(json!({"metadata": {"name": "n"}, "spec": {"podCIDR": "10.0.0.0/24"}})).unwrap();
        assert_eq!(node.pod_cidrs, ["10.0.0.0/24"]);
    }

    const KEYS: &str = "metadata|name|labels|spec|taints|key|status|addresses|type|conditions|reason|nodeInfo";

    proptest! {
        #[test]
        fn any_json_object_is_parsed(
            metadata in any_json(KEYS), spec in any_json(KEYS), status in any_json(KEYS),
        ) {
            let text = json!({"metadata": metadata, "spec": spec, "status": status}).to_string();
            prop_assert!(serde_json::from_str::<NodeObject>(&text).is_ok());
        }
    }
}
