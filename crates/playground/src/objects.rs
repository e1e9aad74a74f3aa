//! Nodes, Pods, Leases and Services, as far as the playground reads them.
//!
//! The whole types would bring the decoding of every field of every volume into the program, and into memory what nobody
//! looks at. What is written here is written as JSON and need not be complete either: all changes are patches.

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

/// Makes a type an object of the API: its kind, where that is, and in which scope.
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

/// Creates an object from its whole JSON.
pub(crate) async fn create<K>(client: &Client, namespace: Option<&str>, object: &Value) -> kube::Result<K>
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
{
    let body = serde_json::to_vec(object).map_err(kube::Error::SerdeError)?;
    let request = Request::new(K::url_path(&(), namespace)).create(&PostParams::default(), body);
    client.request(request.map_err(kube::Error::BuildRequest)?).await
}

/// What a Node or a Pod says of itself.
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

/// Whole: lists of them are written back.
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
    /// The `Ready` condition, if there is one.
    pub(crate) fn ready_condition(&self) -> Option<&Condition> {
        self.condition("Ready")
    }

    /// The status of the `Ready` condition; `Unknown` without one.
    pub(crate) fn readiness(&self) -> &str {
        self.ready_condition().map_or("Unknown", |condition| &condition.status)
    }

    /// The status of the `NetworkUnavailable` condition; `Unknown` without one.
    pub(crate) fn network_unavailable(&self) -> &str {
        self.condition(NETWORK_UNAVAILABLE).map_or("Unknown", |condition| &condition.status)
    }

    fn condition(&self, kind: &str) -> Option<&Condition> {
        self.status.conditions.iter().find(|condition| condition.kind == kind)
    }
}

/// The Lease by which a kubelet says that it is there.
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
    /// The Node that it is bound to.
    pub(crate) fn node(&self) -> Option<&str> {
        Some(&*self.spec.node_name).filter(|name| !name.is_empty())
    }

    /// The phase; `Pending` until somebody says another.
    pub(crate) fn phase(&self) -> &str {
        Some(&*self.status.phase).filter(|phase| !phase.is_empty()).unwrap_or("Pending")
    }

    /// Its own addresses, one of each family.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.status.addresses.iter().filter_map(|address| address.ip.parse().ok())
    }

    /// Its containers say where they listen.
    pub(crate) fn has_ports(&self) -> bool {
        self.spec.containers.iter().any(|container| !container.ports.is_empty())
    }

    /// It takes traffic: it runs, says that it is ready, and is not about to go.
    pub(crate) fn is_ready(&self) -> bool {
        let says_so = |condition: &Condition| condition.kind == "Ready" && condition.status == "True";
        self.metadata.deletion_timestamp.is_none()
            && self.phase() == "Running"
            && self.status.conditions.iter().any(says_so)
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
    pub(crate) protocol: String,
    /// 0 if there is none.
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
    /// The first address that it has been given.
    pub(crate) fn address(&self) -> Option<IpAddr> {
        self.status.load_balancer.ingress.first()?.ip.parse().ok()
    }

    /// Whether nodes have anything to do with it.
    pub(crate) fn has_node_ports(&self) -> bool {
        self.spec.ports.iter().any(|port| port.node_port != 0)
    }

    /// Whether this Pod of the same namespace is one of its own. Without a selector there are none.
    pub(crate) fn selects(&self, pod: &Pod) -> bool {
        let selector = &self.spec.selector;
        let has = |(key, value): (&String, &String)| pod.labels().get(key) == Some(value);
        !selector.is_empty() && pod.metadata.namespace == self.metadata.namespace && selector.iter().all(has)
    }
}
