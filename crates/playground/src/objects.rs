//! Services, as far as the playground reads them. The whole type would bring the decoding of every field with it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt as _;
use serde::Deserialize;

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

    /// Whether this Pod of the same namespace is one of its own. Without a selector there are none.
    pub(crate) fn selects(&self, pod: &Pod) -> bool {
        let selector = &self.spec.selector;
        let has = |(key, value): (&String, &String)| pod.labels().get(key) == Some(value);
        !selector.is_empty() && pod.metadata.namespace == self.metadata.namespace && selector.iter().all(has)
    }
}

impl kube::Resource for Service {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind(_: &()) -> Cow<'_, str> {
        "Service".into()
    }

    fn group(_: &()) -> Cow<'_, str> {
        "".into()
    }

    fn version(_: &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural(_: &()) -> Cow<'_, str> {
        "services".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
