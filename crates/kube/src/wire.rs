//! Nodes as they come over the wire, as far as we read them: a tenth of the object.
//!
//! The rest (managed fields, images, conditions of others, …) is skipped while parsing and never allocated, which is what
//! keeps the list of a large cluster small. A field of an unexpected shape reads as if it were missing: one odd object
//! must not end the watch of all the others, which is what a parse error in the middle of a list would do.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use bowline_core::{Address, AddressType, Node, NodeName, ProviderId, Ready, Taint};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::store::Stored;

/// A kind as it comes over the wire, which turns into a value of the domain.
pub(crate) trait Wire:
    kube::Resource<DynamicType = ()> + DeserializeOwned + Clone + fmt::Debug + Send + 'static
{
    /// What is kept of it.
    type Kept: Stored;

    /// What is kept of it; `None` if it has no name, which nothing that was ever stored lacks.
    fn kept(self) -> Option<Self::Kept>;
}

/// A Node, as far as we read it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct WireNode {
    #[serde(deserialize_with = "slim_metadata")]
    metadata: ObjectMeta,
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
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct NodeInfo {
    #[serde(rename = "systemUUID")]
    system_uuid: Text,
}

/// Metadata without what takes most of its room.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct SlimMetadata {
    name: Text,
    namespace: Text,
    uid: Text,
    resource_version: Text,
    creation_timestamp: Text,
    deletion_timestamp: Text,
    labels: Texts,
    annotations: Texts,
}

/// kube asks for an `ObjectMeta`; this one never had managed fields.
fn slim_metadata<'de, D: Deserializer<'de>>(from: D) -> Result<ObjectMeta, D::Error> {
    let Record(slim) = Record::<SlimMetadata>::deserialize(from)?;
    Ok(ObjectMeta {
        name: slim.name.0,
        namespace: slim.namespace.0,
        uid: slim.uid.0,
        resource_version: slim.resource_version.0,
        creation_timestamp: slim.creation_timestamp.time(),
        deletion_timestamp: slim.deletion_timestamp.time(),
        labels: Some(slim.labels.0),
        annotations: Some(slim.annotations.0),
        ..ObjectMeta::default()
    })
}

impl kube::Resource for WireNode {
    type DynamicType = ();
    type Scope = k8s_openapi::ClusterResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "Node".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "nodes".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl Wire for WireNode {
    type Kept = Node;

    fn kept(self) -> Option<Node> {
        let WireNode { metadata, spec: Record(spec), status: Record(status) } = self;
        Some(Node {
            name: NodeName::from(metadata.name?),
            uid: metadata.uid.unwrap_or_default(),
            resource_version: metadata.resource_version.unwrap_or_default(),
            created: metadata.creation_timestamp.map(|time| time.0),
            deleting: metadata.deletion_timestamp.is_some(),
            labels: metadata.labels.unwrap_or_default(),
            annotations: metadata.annotations.unwrap_or_default(),
            provider_id: spec.provider_id.0.as_deref().and_then(ProviderId::new),
            taints: spec.taints.0.into_iter().map(|Record(taint)| taint.into()).collect(),
            pod_cidrs: pod_cidrs(spec.pod_cidrs, spec.pod_cidr),
            ready: ready(&status.conditions),
            addresses: status.addresses.0.into_iter().filter_map(|Record(address)| address.known()).collect(),
            system_uuid: status.node_info.0.system_uuid.0.filter(|uuid| !uuid.is_empty()),
        })
    }
}

/// The list; the single field is its first element, and all there is on objects of long ago.
fn pod_cidrs(list: List<Text>, single: Text) -> Vec<String> {
    let listed: Vec<String> = list.0.into_iter().filter_map(|text| text.0).collect();
    if listed.is_empty() { single.0.into_iter().filter(|cidr| !cidr.is_empty()).collect() } else { listed }
}

fn ready(conditions: &List<Record<Condition>>) -> Ready {
    let condition = conditions.0.iter().find(|Record(condition)| condition.kind.is("Ready"));
    match condition {
        Some(Record(condition)) if condition.status.is("True") => Ready::True,
        Some(Record(condition)) if condition.status.is("False") => Ready::False,
        _ => Ready::Unknown,
    }
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
    /// The address, unless it is of a type that we know nothing of.
    fn known(self) -> Option<Address> {
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

// === Shapes that never fail ===

/// A text; anything else reads as none.
#[derive(Debug, Clone, Default)]
struct Text(Option<String>);

/// The texts of an object by key; other values are left out, and anything but an object reads as empty.
#[derive(Debug, Clone, Default)]
struct Texts(BTreeMap<String, String>);

/// The elements of an array; anything else reads as empty.
#[derive(Debug, Clone)]
struct List<T>(Vec<T>);

/// The fields of an object; anything else reads as an object without fields.
#[derive(Debug, Clone, Default)]
struct Record<T>(T);

impl Text {
    fn is(&self, wanted: &str) -> bool {
        self.0.as_deref() == Some(wanted)
    }

    /// The time that it spells, if it does.
    fn time(&self) -> Option<Time> {
        self.0.as_deref()?.parse::<Timestamp>().ok().map(Time)
    }
}

impl<T> Default for List<T> {
    fn default() -> List<T> {
        List(Vec::new())
    }
}

/// What to make of the JSON value that is found; what is not overridden reads as `T::default()`.
trait Shape<'de>: Default + Sized {
    fn of_text(_: String) -> Self {
        Self::default()
    }

    fn of_array<A: SeqAccess<'de>>(mut array: A) -> Result<Self, A::Error> {
        while array.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Self::default())
    }

    fn of_object<A: MapAccess<'de>>(mut object: A) -> Result<Self, A::Error> {
        while object.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Self::default())
    }
}

impl<'de> Shape<'de> for Text {
    fn of_text(text: String) -> Text {
        Text(Some(text))
    }
}

impl<'de> Shape<'de> for Texts {
    fn of_object<A: MapAccess<'de>>(mut object: A) -> Result<Texts, A::Error> {
        let mut texts = Vec::new();
        while let Some((key, value)) = object.next_entry::<String, Text>()? {
            texts.extend(value.0.map(|value| (key, value)));
        }
        // Made of all at once, a map is packed; grown by keys in their order, as they arrive, it is half empty.
        Ok(Texts(texts.into_iter().collect()))
    }
}

impl<'de, T: Deserialize<'de>> Shape<'de> for List<T> {
    fn of_array<A: SeqAccess<'de>>(mut array: A) -> Result<List<T>, A::Error> {
        let mut elements = Vec::new();
        while let Some(element) = array.next_element()? {
            elements.push(element);
        }
        Ok(List(elements))
    }
}

impl<'de, T: Deserialize<'de> + Default> Shape<'de> for Record<T> {
    fn of_object<A: MapAccess<'de>>(object: A) -> Result<Record<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(object)).map(Record)
    }
}

struct ShapeVisitor<S>(PhantomData<S>);

impl<'de, S: Shape<'de>> Visitor<'de> for ShapeVisitor<S> {
    type Value = S;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_str<E>(self, text: &str) -> Result<S, E> {
        Ok(S::of_text(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<S, E> {
        Ok(S::of_text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, array: A) -> Result<S, A::Error> {
        S::of_array(array)
    }

    fn visit_map<A: MapAccess<'de>>(self, object: A) -> Result<S, A::Error> {
        S::of_object(object)
    }

    fn visit_bool<E>(self, _: bool) -> Result<S, E> {
        Ok(S::default())
    }

    fn visit_i64<E>(self, _: i64) -> Result<S, E> {
        Ok(S::default())
    }

    fn visit_u64<E>(self, _: u64) -> Result<S, E> {
        Ok(S::default())
    }

    fn visit_f64<E>(self, _: f64) -> Result<S, E> {
        Ok(S::default())
    }

    fn visit_unit<E>(self) -> Result<S, E> {
        Ok(S::default())
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Text, D::Error> {
        from.deserialize_any(ShapeVisitor(PhantomData))
    }
}

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Texts, D::Error> {
        from.deserialize_any(ShapeVisitor(PhantomData))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<List<T>, D::Error> {
        from.deserialize_any(ShapeVisitor(PhantomData))
    }
}

impl<'de, T: Deserialize<'de> + Default> Deserialize<'de> for Record<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Record<T>, D::Error> {
        from.deserialize_any(ShapeVisitor(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn read(object: Value) -> Option<Node> {
        serde_json::from_str::<WireNode>(&object.to_string()).unwrap().kept()
    }

    #[test]
    fn a_node_is_read_with_everything_that_matters_in_its_order() {
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
        let wanted = Node {
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
            system_uuid: Some("uuid".into()),
        };
        assert_eq!(node, wanted);
    }

    #[test]
    fn managed_fields_are_never_kept() {
        let text = r#"{"metadata": {"name": "n", "managedFields": [{"manager": "kubelet"}]}}"#;
        let node: WireNode = serde_json::from_str(text).unwrap();
        assert!(node.metadata.managed_fields.is_none());
    }

    #[test]
    fn a_field_of_an_odd_shape_reads_as_missing_and_leaves_the_others() {
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

    #[test]
    fn an_object_without_a_name_is_none() {
        for nameless in [json!({}), json!({"metadata": null}), json!({"metadata": {"name": null}})] {
            assert_eq!(read(nameless), None);
        }
    }

    #[test]
    fn a_lone_pod_range_of_long_ago_counts() {
        let node = read(json!({"metadata": {"name": "n"}, "spec": {"podCIDR": "10.0.0.0/24"}})).unwrap();
        assert_eq!(node.pod_cidrs, ["10.0.0.0/24"]);
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            ".{0,8}".prop_map(Value::from),
        ];
        let keys = "metadata|name|labels|spec|taints|key|status|addresses|type|conditions|nodeInfo";
        leaf.prop_recursive(5, 40, 6, move |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                proptest::collection::btree_map(keys, inner, 0..6)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn no_json_object_fails_to_be_read(metadata in any_json(), spec in any_json(), status in any_json()) {
            let text = json!({"metadata": metadata, "spec": spec, "status": status}).to_string();
            prop_assert!(serde_json::from_str::<WireNode>(&text).is_ok());
        }
    }
}
