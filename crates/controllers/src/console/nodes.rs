//! Nodes as the watch shows them.

use bowline_cloud::Clouds;
use bowline_console::document::{self, Document, Health, Level, text};
use bowline_core::well_known::{INSTANCE_TYPE, LabelPair, REGION, UNINITIALIZED_TAINT, ZONE};
use bowline_core::{Address, Node, Ready, Taint};
use bowline_kube::Store;

use crate::pause;

/// Maximum number of entries of each list of a Node.
const MAX_ENTRIES: usize = 50;

/// Adds an item for each Node.
pub(super) fn add(document: &mut Document, nodes: &Store<Node>, clouds: &Clouds) {
    document.node.extend(nodes.all().iter().map(|node| (node.name.to_string(), item(node, clouds))));
}

fn item(node: &Node, clouds: &Clouds) -> document::Node {
    let label = |pair: &LabelPair| node.labels.get(pair.ga).or_else(|| node.labels.get(pair.beta)).map(text);
    let id = node.provider_id.as_ref().map(ToString::to_string);
    document::Node {
        health: health(node),
        cloud: node.provider_id.as_ref().and_then(|id| clouds.owner(id)).map(|cloud| cloud.name().to_string()),
        machine: id.as_deref().and_then(machine).map(text),
        provider_id: id.map(text),
        machine_state: machine_state(node).to_owned(),
        instance_type: label(&INSTANCE_TYPE),
        zone: label(&ZONE),
        region: label(&REGION),
        ready: format!("{:?}", node.ready),
        addresses: node.addresses.iter().take(MAX_ENTRIES).map(address).collect(),
        taints: node.taints.iter().take(MAX_ENTRIES).map(taint).collect(),
        uninitialized: node.is_uninitialized(),
        pod_cidrs: node.pod_cidrs.iter().take(MAX_ENTRIES).map(text).collect(),
        created: node.created,
        deleting: node.deleting,
        paused: node.is_paused(),
        ..document::Node::default()
    }
}

/// The last part of a provider ID, without a trailing slash.
fn machine(id: &str) -> Option<&str> {
    id.trim_end_matches('/').rsplit('/').next().filter(|machine| !machine.is_empty())
}

/// State of the machine, as far as the Node shows it: a kubelet that reports needs a running machine.
fn machine_state(node: &Node) -> &'static str {
    match node.ready {
        _ if node.has_shutdown_taint() => "stopped",
        Ready::True => "running",
        Ready::False | Ready::Unknown => "unknown",
    }
}

fn address(address: &Address) -> String {
    text(format!("{} {}", address.kind, address.address))
}

fn taint(taint: &Taint) -> String {
    match taint.value.as_str() {
        "" => text(format!("{}:{}", taint.key, taint.effect)),
        value => text(format!("{}={value}:{}", taint.key, taint.effect)),
    }
}

fn health(node: &Node) -> Health {
    if let Some((key, value)) = node.unmanaged_label() {
        let message = format!("The label {key}={value} excludes the Node from cloud controller managers.");
        return Health { message, reason: "Unmanaged".to_owned(), ..Health::ok() };
    }
    if node.is_paused() {
        return Health::new(Level::Warning, "Paused", pause::message(&node.annotations, node.deleting).1);
    }
    if node.deleting {
        return Health::new(Level::Progressing, "Deleting", "The Node is being deleted.");
    }
    if node.is_uninitialized() {
        let message = format!(
            "The Node waits for the cloud-node-controller, which reads its machine from the cloud and then removes the taint \
             {UNINITIALIZED_TAINT}. No Pod is scheduled on it before that."
        );
        return Health::new(Level::Progressing, "Uninitialized", message);
    }
    if node.has_shutdown_taint() {
        let message = "The machine is shut down in the cloud. Start it; if it is not needed any more, delete it in the cloud, and the \
                       Node is deleted, too.";
        return Health::new(Level::Warning, "MachineStopped", message);
    }
    let ready = match node.ready {
        Ready::True => Health::ok(),
        Ready::False => {
            let message = format!(
                "The kubelet reports that the Node is not ready: kubectl describe node {} shows why.",
                node.name
            );
            Health::new(Level::Warning, "NotReady", message)
        }
        Ready::Unknown => {
            let message = "The kubelet does not report: the machine may be stopped, or cannot reach the API server.";
            Health::new(Level::Unknown, "NoReport", message)
        }
    };
    match &node.network {
        Some(network) if network.status == "True" && ready.level < Level::Warning => {
            let message = format!("The pod network of the Node is not set up: NetworkUnavailable, {}.", network.reason);
            Health::new(Level::Warning, "NetworkUnavailable", message)
        }
        _ => ready,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_the_last_part_of_a_provider_id() {
        for (id, expected) in [
            ("local://id-1", Some("id-1")),
            ("aws:///eu-1a/i-0123", Some("i-0123")),
            ("x://a/", Some("a")),
            ("i-5", Some("i-5")),
            ("", None),
        ] {
            assert_eq!(machine(id), expected, "{id}");
        }
    }
}
