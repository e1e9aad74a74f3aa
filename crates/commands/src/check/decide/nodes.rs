//! Findings about Nodes: flags of their kubelets, and their machines.

use bowline_cloud::{NoOwner, Ownership, Result};
use bowline_core::InstanceState;
use bowline_kube::SeenNode;

use crate::check::finding::{Finding, Kind};
use crate::check::observed::Observed;

pub(super) fn decide(observed: &Observed) -> Vec<Finding> {
    match &observed.nodes {
        None => Vec::new(),
        Some(Err(error)) => vec![Finding::new(Kind::ReadError, "Nodes", error.to_string())],
        Some(Ok(nodes)) => nodes.iter().filter_map(|(node, machine)| decide_node(node, machine.as_ref()?)).collect(),
    }
}

fn decide_node(node: &SeenNode, machine: &Result<Ownership>) -> Option<Finding> {
    let (kind, detail) = match machine {
        Err(error) => (Kind::MachineUnknown, error.to_string()),
        Ok(Ownership::NoOwner(NoOwner::ForeignId(id))) => (Kind::ProviderIdForeign, id.to_string()),
        Ok(Ownership::NoOwner(NoOwner::Declined(cloud))) => {
            (Kind::NodeOfNoCloud, format!("{cloud} does not manage it"))
        }
        Ok(Ownership::NoOwner(NoOwner::Unclaimed)) if node.is_uninitialized => (Kind::NodeNameUnknown, String::new()),
        Ok(Ownership::NoOwner(NoOwner::Unclaimed)) => (Kind::NodeOfNoCloud, String::new()),
        Ok(Ownership::Owned { provider, state: InstanceState::Gone }) => (Kind::MachineGone, format!("in {provider}")),
        Ok(Ownership::Owned { provider, state }) => owned(node, provider, state),
    };
    Some(Finding::new(kind, &node.name, detail))
}

/// Decides on a Node whose machine exists.
fn owned(node: &SeenNode, provider: &str, state: &InstanceState) -> (Kind, String) {
    let machine = state.instance().map(|instance| instance.name.as_str()).unwrap_or_default();
    match (&node.provider_id, node.is_uninitialized) {
        _ if !machine.is_empty() && machine != node.name => {
            (Kind::NodeNameMismatch, format!("named {machine} in {provider}"))
        }
        (_, true) => (Kind::NodesWaiting, format!("in {provider}")),
        (Some(_), false) => (Kind::NodesKnown, format!("in {provider}")),
        (None, false) if node.has_cloud_labels => (Kind::ProviderIdMissing, format!("in {provider}")),
        (None, false) => (Kind::KubeletNotExternal, format!("in {provider}")),
    }
}
