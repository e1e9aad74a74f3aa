//! Maintains one EndpointSlice with the addresses of the selected Pods for each Service with a selector.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use serde_json::{Value, json};

use super::{Writer, kind};
use crate::resources::Resource;
use crate::store::{Change, Stored};
use crate::value::Json;
use crate::verbs::{DeleteOptions, create_object, update_object};

const MANAGER: &str = "endpointslice-controller.k8s.io";
const HEADLESS: &str = "service.kubernetes.io/headless";
const ZONE: &str = "topology.kubernetes.io/zone";

/// The namespaces to reconcile.
#[derive(Default)]
pub(super) struct Slices {
    dirty: BTreeSet<String>,
}

impl Slices {
    pub(super) fn on_change(&mut self, resource: &Resource, change: &Change) {
        // Changes of slices by other clients are reverted. A sync after our own write changes nothing.
        if matches!(resource.storage, "services" | "pods" | "endpointslices") {
            self.dirty.insert(change.object.key.namespace.to_string());
        }
    }

    pub(super) fn reconcile(&mut self, writer: &Writer) {
        for namespace in std::mem::take(&mut self.dirty) {
            let pods: Vec<Arc<Stored>> = writer.state.store.list("pods", Some(&namespace)).objects;
            for service in writer.state.store.list("services", Some(&namespace)).objects {
                sync(writer, &service, &pods);
            }
        }
    }
}

/// Reconciles the EndpointSlice of one Service.
fn sync(writer: &Writer, service: &Stored, pods: &[Arc<Stored>]) {
    let value = service.value();
    let existing = slice_of(writer, service);
    let desired_slice = match value.map("spec.selector") {
        Some(selector) if !selector.is_empty() && value.text("spec.type") != "ExternalName" => {
            desired(writer, &value, pods.iter().filter(|p| selects(selector, p)))
        }
        _ => return,
    };
    if value.has("metadata.deletionTimestamp") {
        return;
    }
    let resource = kind("discovery.k8s.io/v1", "EndpointSlice");
    let write = writer.context(resource, &service.key.namespace, None);
    // The next change in the namespace retries a rejected write.
    match existing {
        None => {
            let _ = create_object(&write, desired_slice, false, &mut Vec::new());
        }
        Some(slice) if slice.value().text("addressType") != desired_slice.text("addressType") => {
            let _ = writer.delete(resource, &slice, &DeleteOptions::default());
        }
        Some(slice) => {
            let old = slice.value();
            let mut new = old.clone();
            new.put("endpoints", desired_slice.at("endpoints").clone());
            new.put("ports", desired_slice.at("ports").clone());
            new.put("metadata.labels", desired_slice.at("metadata.labels").clone());
            let _ = update_object(&write, &slice, &old, new, false, &mut Vec::new());
        }
    }
}

fn slice_of(writer: &Writer, service: &Stored) -> Option<Arc<Stored>> {
    let slices = writer.state.store.list("endpointslices", Some(&service.key.namespace)).objects;
    slices.into_iter().find(|slice| {
        let label = |key: &str| slice.labels.get(key).map(String::as_str);
        label("kubernetes.io/service-name") == Some(&service.key.name)
            && label("endpointslice.kubernetes.io/managed-by") == Some(MANAGER)
    })
}

fn selects(selector: &serde_json::Map<String, Value>, pod: &Stored) -> bool {
    selector.iter().all(|(key, value)| pod.labels.get(key).map(String::as_str) == value.as_str())
}

fn desired<'a>(writer: &Writer, service: &Value, pods: impl Iterator<Item = &'a Arc<Stored>>) -> Value {
    let family = service.texts("spec.ipFamilies").first().copied().unwrap_or("IPv4").to_owned();
    let pods: Vec<Value> = pods.map(|p| p.value()).collect();
    let endpoints: Vec<Value> = pods.iter().filter_map(|p| endpoint(writer, service, p, &family)).collect();
    let ports: Vec<Value> = service.list("spec.ports").iter().filter_map(|p| port(p, &pods)).collect();
    let name = service.text("metadata.name");
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "generateName": format!("{name}-"),
            "labels": labels(service),
            "ownerReferences": [{
                "apiVersion": "v1",
                "kind": "Service",
                "name": name,
                "uid": service.text("metadata.uid"),
                "controller": true,
                "blockOwnerDeletion": true,
            }],
        },
        "addressType": family,
        "endpoints": endpoints,
        "ports": ports,
    })
}

/// The labels of the Service, plus the labels of every managed slice.
fn labels(service: &Value) -> Value {
    let mut labels = service.map("metadata.labels").cloned().unwrap_or_default();
    labels.remove(HEADLESS);
    if service.text("spec.clusterIP") == "None" {
        labels.insert(HEADLESS.into(), "".into());
    }
    labels.insert("kubernetes.io/service-name".into(), service.text("metadata.name").into());
    labels.insert("endpointslice.kubernetes.io/managed-by".into(), MANAGER.into());
    Value::Object(labels)
}

/// The endpoint of a Pod, if the Pod has an address and has not terminated.
fn endpoint(writer: &Writer, service: &Value, pod: &Value, family: &str) -> Option<Value> {
    if matches!(pod.text("status.phase"), "Succeeded" | "Failed") {
        return None;
    }
    let listed = pod.list("status.podIPs").iter().map(|ip| ip.text("ip"));
    let address = listed.chain([pod.text("status.podIP")]).find(|ip| is_of_family(ip, family))?.to_owned();
    let is_ready =
        pod.list("status.conditions").iter().any(|c| c.text("type") == "Ready" && c.text("status") == "True");
    let terminating = pod.has("metadata.deletionTimestamp");
    let publish = service.at("spec.publishNotReadyAddresses").as_bool() == Some(true);
    let mut endpoint = json!({
        "addresses": [address],
        "conditions": {"ready": publish || (is_ready && !terminating), "serving": is_ready, "terminating": terminating},
        "targetRef": {
            "kind": "Pod",
            "namespace": pod.text("metadata.namespace"),
            "name": pod.text("metadata.name"),
            "uid": pod.text("metadata.uid"),
        },
    });
    if pod.has("spec.hostname") && pod.text("spec.subdomain") == service.text("metadata.name") {
        endpoint["hostname"] = pod.text("spec.hostname").into();
    }
    if pod.has("spec.nodeName") {
        let node = pod.text("spec.nodeName");
        endpoint["nodeName"] = node.into();
        if let Some(zone) = writer.state.store.get("nodes", "", node).and_then(|node| node.labels.get(ZONE).cloned()) {
            endpoint["zone"] = zone.into();
        }
    }
    Some(endpoint)
}

fn is_of_family(text: &str, family: &str) -> bool {
    match text.parse::<IpAddr>() {
        Ok(ip) => ip.is_ipv4() == (family == "IPv4"),
        Err(_) => false,
    }
}

/// The slice port of a Service port; a named target port is resolved in the Pods.
fn port(port: &Value, pods: &[Value]) -> Option<Value> {
    let target = match port.at("targetPort") {
        Value::Number(n) => n.as_i64()?,
        Value::String(name) => pods.iter().find_map(|pod| named_port(pod, name))?,
        _ => port.int("port")?,
    };
    let mut slice_port = json!({
        "name": port.text("name"),
        "port": target,
        "protocol": if port.has("protocol") { port.text("protocol") } else { "TCP" },
    });
    if port.has("appProtocol") {
        slice_port["appProtocol"] = port.text("appProtocol").into();
    }
    Some(slice_port)
}

fn named_port(pod: &Value, name: &str) -> Option<i64> {
    let containers = pod.list("spec.containers").iter();
    containers.flat_map(|c| c.list("ports")).find(|p| p.text("name") == name)?.int("containerPort")
}
