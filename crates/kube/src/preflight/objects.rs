//! Objects of a cluster, reduced to the fields that preflight checks read.

use bowline_core::ProviderId;
use jiff::Timestamp;
use serde_json::Value;

/// Taint of a Node that waits for a cloud controller manager.
const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
/// Finalizer of a Service that has a load balancer.
const CLEANUP: &str = "service.kubernetes.io/load-balancer-cleanup";

/// Node, with the fields that depend on kubelet flags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenNode {
    /// Name.
    pub name: String,
    /// `spec.providerID`.
    pub provider_id: Option<ProviderId>,
    /// `status.nodeInfo.systemUUID`.
    pub system_uuid: Option<String>,
    /// The Node waits for a cloud controller manager.
    pub is_uninitialized: bool,
    /// A manager has set the instance type, zone or region label.
    pub has_cloud_labels: bool,
    /// Version of the kubelet, such as `v1.36.1`.
    pub kubelet: String,
}

/// Service of type `LoadBalancer`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenService {
    /// `namespace/name`.
    pub name: String,
    /// `spec.loadBalancerClass`.
    pub class: Option<String>,
    /// Field managers that wrote its addresses or finalizer.
    pub writers: Vec<Writer>,
}

/// Field manager of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Writer {
    /// Name in the managed fields.
    pub name: String,
    /// Time of the last write.
    pub time: Option<Timestamp>,
}

/// Lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenLease {
    /// Name.
    pub name: String,
    /// Holder; empty if the lease is free.
    pub holder: String,
    /// Time of the last renewal.
    pub renewed: Option<Timestamp>,
    /// Lease duration in seconds.
    pub seconds: i64,
    /// Field manager that wrote the lease last.
    pub writer: Option<String>,
}

impl SeenNode {
    pub(super) fn read(node: &Value) -> SeenNode {
        let labels =
            ["node.kubernetes.io/instance-type", "topology.kubernetes.io/zone", "topology.kubernetes.io/region"];
        let taints = node.pointer("/spec/taints").and_then(Value::as_array);
        let present = |path: &str| Some(text(node, path)).filter(|text| !text.is_empty());
        SeenNode {
            name: text(node, "/metadata/name"),
            provider_id: present("/spec/providerID").and_then(|id| ProviderId::new(&id)),
            system_uuid: present("/status/nodeInfo/systemUUID"),
            is_uninitialized: taints.into_iter().flatten().any(|taint| taint["key"] == UNINITIALIZED),
            has_cloud_labels: labels.iter().any(|label| !node["metadata"]["labels"][label].is_null()),
            kubelet: text(node, "/status/nodeInfo/kubeletVersion"),
        }
    }
}

impl SeenService {
    /// `None` if the Service is not of type `LoadBalancer`.
    pub(super) fn read(service: &Value) -> Option<SeenService> {
        if service.pointer("/spec/type").and_then(Value::as_str) != Some("LoadBalancer") {
            return None;
        }
        let class = service.pointer("/spec/loadBalancerClass").and_then(Value::as_str).map(str::to_owned);
        let name = format!("{}/{}", text(service, "/metadata/namespace"), text(service, "/metadata/name"));
        let entries = managed(service).filter(|entry| is_load_balancer_field(&entry["fieldsV1"]));
        Some(SeenService { name, class, writers: entries.map(Writer::read).collect() })
    }
}

/// Whether the fields include the addresses or the finalizer.
fn is_load_balancer_field(fields: &Value) -> bool {
    let finalizer = format!("v:\"{CLEANUP}\"");
    !fields["f:status"]["f:loadBalancer"].is_null() || !fields["f:metadata"]["f:finalizers"][&finalizer].is_null()
}

impl Writer {
    fn read(entry: &Value) -> Writer {
        Writer { name: text(entry, "/manager"), time: time(entry, "/time") }
    }
}

impl SeenLease {
    pub(super) fn read(lease: &Value) -> SeenLease {
        let last = managed(lease).map(Writer::read).max_by_key(|writer| writer.time);
        SeenLease {
            name: text(lease, "/metadata/name"),
            holder: text(lease, "/spec/holderIdentity"),
            renewed: time(lease, "/spec/renewTime"),
            seconds: lease.pointer("/spec/leaseDurationSeconds").and_then(Value::as_i64).unwrap_or(0),
            writer: last.map(|writer| writer.name),
        }
    }
}

fn managed(object: &Value) -> impl Iterator<Item = &Value> {
    object.pointer("/metadata/managedFields").and_then(Value::as_array).into_iter().flatten()
}

fn text(value: &Value, path: &str) -> String {
    value.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn time(value: &Value, path: &str) -> Option<Timestamp> {
    value.pointer(path)?.as_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_empty_node_is_read() {
        let node = SeenNode::read(&json!({"metadata": {"name": "n"}, "spec": {"providerID": ""}}));
        let empty = SeenNode {
            name: "n".into(),
            provider_id: None,
            system_uuid: None,
            is_uninitialized: false,
            has_cloud_labels: false,
            kubelet: String::new(),
        };
        assert_eq!(node, empty);
    }

    #[test]
    fn writers_are_the_field_managers_of_addresses_and_finalizer() {
        let fields = |fields: Value, manager: &str| json!({"manager": manager, "time": "2026-01-01T00:00:00Z", "fieldsV1": fields});
        let service = json!({
            "metadata": {"namespace": "a", "name": "b", "managedFields": [
                fields(json!({"f:spec": {}}), "kubectl"),
                fields(json!({"f:status": {"f:loadBalancer": {"f:ingress": {}}}}), "one"),
                fields(json!({"f:metadata": {"f:finalizers": {"v:\"service.kubernetes.io/load-balancer-cleanup\"": {}}}}), "two"),
            ]},
            "spec": {"type": "LoadBalancer"},
        });
        let seen = SeenService::read(&service).unwrap();
        assert_eq!(seen.writers.iter().map(|writer| writer.name.as_str()).collect::<Vec<_>>(), ["one", "two"]);
        assert_eq!(SeenService::read(&json!({"spec": {"type": "ClusterIP"}})), None);
    }
}
