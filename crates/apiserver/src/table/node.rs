//! Printer of Node.

use std::collections::BTreeSet;

use serde_json::Value;

use super::age::Clock;
use super::{AGE, Column, NAME, Printer, name, or, text, wide};
use crate::value::Json;

pub(super) static NODE: Printer = Printer::new(COLUMNS, cells);

const COLUMNS: &[Column] = &[
    NAME,
    text("Status", "Readiness of the node, and whether it is cordoned."),
    text("Roles", "Roles of the node, from its labels."),
    AGE,
    text("Version", "Kubelet version."),
    wide("Internal-IP", "First internal IP address."),
    wide("External-IP", "First external IP address."),
    wide("OS-Image", "Operating system image of the node."),
    wide("Kernel-Version", "Kernel version and CPU architecture of the node."),
    wide("Container-Runtime", "Container runtime version of the node."),
];

fn cells(node: &Value, clock: Clock) -> Vec<Value> {
    let info = node.at("status.nodeInfo");
    vec![
        name(node),
        status(node).into(),
        roles(node).into(),
        clock.age(node),
        info.text("kubeletVersion").into(),
        address(node, "InternalIP").into(),
        address(node, "ExternalIP").into(),
        or(info.text("osImage"), "<unknown>").into(),
        kernel(info).into(),
        or(info.text("containerRuntimeVersion"), "<unknown>").into(),
    ]
}

fn status(node: &Value) -> String {
    // upstream: if several conditions have the same type, the last one is used.
    let ready = node.list("status.conditions").iter().rfind(|c| c.text("type") == "Ready");
    let ready = match ready.map(|c| c.text("status")) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    let cordoned = node.at("spec.unschedulable") == true;
    format!("{ready}{}", if cordoned { ",SchedulingDisabled" } else { "" })
}

fn roles(node: &Value) -> String {
    let labels = node.map("metadata.labels").into_iter().flatten();
    let roles: BTreeSet<&str> = labels
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role),
            None if key == "kubernetes.io/role" => value.as_str(),
            None => None,
        })
        .filter(|role| !role.is_empty())
        .collect();
    or(&Vec::from_iter(roles).join(","), "<none>").to_owned()
}

fn address<'a>(node: &'a Value, ty: &str) -> &'a str {
    node.list("status.addresses").iter().find(|a| a.text("type") == ty).map_or("<none>", |a| a.text("address"))
}

fn kernel(info: &Value) -> String {
    let version = or(info.text("kernelVersion"), "<unknown>");
    match info.text("architecture") {
        "" => version.to_owned(),
        architecture => format!("{version} ({architecture})"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn row(node: Value) -> Vec<Value> {
        cells(&node, Clock::at("2024-01-01T00:00:00Z".parse().unwrap()))
    }

    #[test]
    fn node_without_status_has_unknown_cells() {
        let row = row(json!({"metadata": {"name": "a"}}));
        let expected = json!([
            "a",
            "Unknown",
            "<none>",
            "<unknown>",
            "",
            "<none>",
            "<none>",
            "<unknown>",
            "<unknown>",
            "<unknown>"
        ]);
        assert_eq!(Value::Array(row), expected);
    }

    #[test]
    fn node_with_status_has_roles_addresses_and_versions() {
        let row = row(json!({
            "metadata": {"name": "a", "labels": {
                "node-role.kubernetes.io/control-plane": "", "node-role.kubernetes.io/b": "",
                "node-role.kubernetes.io/": "", "kubernetes.io/role": "a"}},
            "status": {
                "conditions": [{"type": "Ready", "status": "True"}],
                "addresses": [
                    {"type": "ExternalIP", "address": "192.0.2.1"},
                    {"type": "InternalIP", "address": "10.0.0.1"}, {"type": "InternalIP", "address": "10.0.0.2"}],
                "nodeInfo": {"kubeletVersion": "v1.33.1", "osImage": "Debian", "kernelVersion": "6.1",
                             "architecture": "arm64", "containerRuntimeVersion": "containerd://2"}}}));
        let expected = json!([
            "a",
            "Ready",
            "a,b,control-plane",
            "<unknown>",
            "v1.33.1",
            "10.0.0.1",
            "192.0.2.1",
            "Debian",
            "6.1 (arm64)",
            "containerd://2"
        ]);
        assert_eq!(Value::Array(row), expected);
    }

    #[test]
    fn status_of_a_cordoned_and_not_ready_node() {
        for ready in ["False", "Unknown"] {
            let node = json!({"spec": {"unschedulable": true},
                              "status": {"conditions": [{"type": "Ready", "status": ready}]}});
            assert_eq!(status(&node), "NotReady,SchedulingDisabled");
        }
    }
}
