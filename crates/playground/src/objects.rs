//! Nodes, Pods, Leases and Services, with the fields that the playground reads.
//!
//! The complete types would add the decoding of every field of every volume to the binary, and keep unused data in memory. Writes
//! use JSON patches, which need no complete types either.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;

use bowline_core::well_known::NETWORK_UNAVAILABLE;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::api::PostParams;
use kube::core::Request;
use kube::{Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Implements [`Resource`] for a type: kind, group, plural and scope.
macro_rules! resource {
    ($kind:ident, $group:literal, $plural:literal, $scope:ty) => {
        impl Resource for $kind {
            type DynamicType = ();
            type Scope = $scope;

            fn kind(_: &()) -> Cow<'_, str> {
                stringify!($kind).into()
            }

            fn group(_: &()) -> Cow<'_, str> {
                $group.into()
            }

            fn version(_: &()) -> Cow<'_, str> {
                "v1".into()
            }

            fn plural(_: &()) -> Cow<'_, str> {
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

resource!(Node, "", "nodes", ClusterResourceScope);
resource!(Pod, "", "pods", NamespaceResourceScope);
resource!(Service, "", "services", NamespaceResourceScope);
resource!(Lease, "coordination.k8s.io", "leases", NamespaceResourceScope);

/// Creates an object from JSON.
pub(crate) async fn create<K>(client: &Client, namespace: Option<&str>, object: &Value) -> kube::Result<K>
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
{
    let body = serde_json::to_vec(object).map_err(kube::Error::SerdeError)?;
    let request = Request::new(K::url_path(&(), namespace)).create(&PostParams::default(), body);
    client.request(request.map_err(kube::Error::BuildRequest)?).await
}

/// A condition of a Node or Pod.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Condition {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) status: String,
    pub(crate) message: String,
}

// ---- Nodes

/// A Node.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Node {
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: NodeSpec,
    pub(crate) status: NodeStatus,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct NodeSpec {
    #[serde(rename = "providerID")]
    pub(crate) provider_id: Option<String>,
    #[serde(rename = "podCIDRs")]
    pub(crate) pod_cidrs: Vec<String>,
    pub(crate) taints: Vec<Taint>,
    pub(crate) unschedulable: bool,
}

/// Has all fields, because lists of taints are written back.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Taint {
    pub(crate) key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) value: Option<String>,
    pub(crate) effect: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) time_added: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct NodeStatus {
    pub(crate) conditions: Vec<Condition>,
    pub(crate) addresses: Vec<NodeAddress>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct NodeAddress {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) address: String,
}

impl Node {
    /// Returns the `Ready` condition.
    pub(crate) fn ready_condition(&self) -> Option<&Condition> {
        self.condition("Ready")
    }

    /// Returns the status of the `Ready` condition; `Unknown` without one.
    pub(crate) fn readiness(&self) -> &str {
        self.ready_condition().map_or("Unknown", |condition| &condition.status)
    }

    /// Returns the status of the `NetworkUnavailable` condition; `Unknown` without one.
    pub(crate) fn network_unavailable(&self) -> &str {
        self.condition(NETWORK_UNAVAILABLE).map_or("Unknown", |condition| &condition.status)
    }

    fn condition(&self, kind: &str) -> Option<&Condition> {
        self.status.conditions.iter().find(|condition| condition.kind == kind)
    }
}

/// The Lease of a kubelet.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Lease {
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: LeaseSpec,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct LeaseSpec {
    pub(crate) renew_time: String,
}

// ---- Pods

/// A Pod.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Pod {
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: PodSpec,
    pub(crate) status: PodStatus,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct PodSpec {
    pub(crate) node_name: String,
    pub(crate) scheduler_name: String,
    pub(crate) node_selector: BTreeMap<String, String>,
    pub(crate) tolerations: Vec<Toleration>,
    pub(crate) containers: Vec<Container>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Toleration {
    pub(crate) key: String,
    pub(crate) operator: String,
    pub(crate) value: String,
    pub(crate) effect: String,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Container {
    pub(crate) name: String,
    pub(crate) image: String,
    pub(crate) ports: Vec<ContainerPort>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ContainerPort {
    pub(crate) container_port: u16,
    pub(crate) protocol: String,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct PodStatus {
    phase: String,
    #[serde(rename = "podIPs")]
    addresses: Vec<PodAddress>,
    pub(crate) conditions: Vec<Condition>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
struct PodAddress {
    ip: String,
}

impl Pod {
    /// Returns the Node that the Pod is bound to.
    pub(crate) fn node(&self) -> Option<&str> {
        Some(&*self.spec.node_name).filter(|name| !name.is_empty())
    }

    /// Returns the phase; `Pending` if it is not set.
    pub(crate) fn phase(&self) -> &str {
        Some(&*self.status.phase).filter(|phase| !phase.is_empty()).unwrap_or("Pending")
    }

    /// Returns the addresses of the Pod, one of each family.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.status.addresses.iter().filter_map(|address| address.ip.parse().ok())
    }

    /// Returns whether the containers declare ports.
    pub(crate) fn has_ports(&self) -> bool {
        self.spec.containers.iter().any(|container| !container.ports.is_empty())
    }

    /// Returns whether the Pod receives traffic: it is running, ready and not terminating.
    pub(crate) fn is_ready(&self) -> bool {
        let is_ready = |condition: &Condition| condition.kind == "Ready" && condition.status == "True";
        self.metadata.deletion_timestamp.is_none()
            && self.phase() == "Running"
            && self.status.conditions.iter().any(is_ready)
    }
}

// ---- Services

/// A Service.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Service {
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: ServiceSpec,
    pub(crate) status: ServiceStatus,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ServiceSpec {
    pub(crate) selector: BTreeMap<String, String>,
    pub(crate) ports: Vec<ServicePort>,
    pub(crate) external_traffic_policy: String,
    pub(crate) session_affinity: String,
    pub(crate) health_check_node_port: u16,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ServicePort {
    pub(crate) port: u16,
    pub(crate) protocol: String,
    /// 0 if not set.
    pub(crate) node_port: u16,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ServiceStatus {
    pub(crate) load_balancer: LoadBalancer,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct LoadBalancer {
    pub(crate) ingress: Vec<Ingress>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Ingress {
    pub(crate) ip: String,
}

impl Service {
    /// Returns the first address in the status.
    pub(crate) fn address(&self) -> Option<IpAddr> {
        self.status.load_balancer.ingress.first()?.ip.parse().ok()
    }

    /// Returns whether the Service has node ports.
    pub(crate) fn has_node_ports(&self) -> bool {
        self.spec.ports.iter().any(|port| port.node_port != 0)
    }

    /// Returns whether the selector matches this Pod; an empty selector matches none.
    pub(crate) fn selects(&self, pod: &Pod) -> bool {
        let selector = &self.spec.selector;
        let has = |(key, value): (&String, &String)| pod.labels().get(key) == Some(value);
        !selector.is_empty() && pod.metadata.namespace == self.metadata.namespace && selector.iter().all(has)
    }
}
