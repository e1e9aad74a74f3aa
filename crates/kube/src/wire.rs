//! Wire types of Nodes and Services: objects of `bowline_core::wire` with the metadata that kube requires.

/// Implements `kube::Resource` for a kind of the core group with a field `metadata`.
macro_rules! core_resource {
    ($wire:ty, $kind:literal, $plural:literal, $scope:ty) => {
        impl kube::Resource for $wire {
            type DynamicType = ();
            type Scope = $scope;

            fn kind((): &()) -> std::borrow::Cow<'_, str> {
                $kind.into()
            }

            fn group((): &()) -> std::borrow::Cow<'_, str> {
                "".into()
            }

            fn version((): &()) -> std::borrow::Cow<'_, str> {
                "v1".into()
            }

            fn plural((): &()) -> std::borrow::Cow<'_, str> {
                $plural.into()
            }

            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

pub(crate) use core_resource;

use std::fmt;

use bowline_core::wire::{NodeObject, ServiceObject};
use bowline_core::{Node, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::store::Stored;

/// Wire type that converts to a domain type.
pub(crate) trait Wire:
    kube::Resource<DynamicType = ()> + DeserializeOwned + Clone + fmt::Debug + Send + 'static
{
    /// Domain type.
    type Domain: Stored;

    /// Converts to the domain type; `None` if the object has no name, which no stored object lacks.
    fn into_domain(self) -> Option<Self::Domain>;
}

/// A Node, with UID and resource version as metadata.
#[derive(Debug, Clone, Deserialize)]
#[serde(from = "NodeObject")]
pub(crate) struct WireNode {
    metadata: ObjectMeta,
    object: NodeObject,
}

/// A Service, with UID and resource version as metadata.
#[derive(Debug, Clone, Deserialize)]
#[serde(from = "ServiceObject")]
pub(crate) struct WireService {
    metadata: ObjectMeta,
    object: ServiceObject,
}

core_resource!(WireNode, "Node", "nodes", k8s_openapi::ClusterResourceScope);
core_resource!(WireService, "Service", "services", k8s_openapi::NamespaceResourceScope);

impl From<NodeObject> for WireNode {
    fn from(object: NodeObject) -> WireNode {
        WireNode { metadata: metadata(object.uid(), object.resource_version()), object }
    }
}

impl From<ServiceObject> for WireService {
    fn from(object: ServiceObject) -> WireService {
        WireService { metadata: metadata(object.uid(), object.resource_version()), object }
    }
}

/// The metadata that kube's watcher and the log read.
fn metadata(uid: Option<&str>, resource_version: Option<&str>) -> ObjectMeta {
    let (uid, resource_version) = (uid.map(str::to_owned), resource_version.map(str::to_owned));
    ObjectMeta { uid, resource_version, ..ObjectMeta::default() }
}

impl Wire for WireNode {
    type Domain = Node;

    fn into_domain(self) -> Option<Node> {
        self.object.into_node()
    }
}

impl Wire for WireService {
    type Domain = Service;

    fn into_domain(self) -> Option<Service> {
        self.object.into_service()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_has_the_uid_and_the_resource_version_only() {
        let text = r#"{"metadata": {"name": "n", "namespace": "d", "uid": "u1", "resourceVersion": "7",
                       "labels": {"a": "1"}, "managedFields": [{"manager": "kubectl"}]}}"#;
        let expected = metadata(Some("u1"), Some("7"));
        assert_eq!(serde_json::from_str::<WireNode>(text).unwrap().metadata, expected);
        assert_eq!(serde_json::from_str::<WireService>(text).unwrap().metadata, expected);
    }
}
