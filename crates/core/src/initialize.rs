//! What initialising a Node changes on it (NODE-6 to NODE-18).

use std::collections::BTreeMap;

use crate::addresses::AddressError;
use crate::{Instance, Node, NodeName, ProviderId, Taint};

/// Everything that lands on the Node in one write: all of it or nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeChange {
    /// The Node, and the state of it that this was decided on.
    pub node: NodeName,
    /// Not another Node of the same name.
    pub uid: String,
    /// If the Node has moved on from here, the decision is made anew.
    pub resource_version: String,
    /// To be set; `None` if the Node has one.
    pub provider_id: Option<ProviderId>,
    /// To be set; only those that differ.
    pub labels: BTreeMap<String, String>,
    /// The whole new list: without the init taint, the others in their order.
    pub taints: Vec<Taint>,
    /// What was asked for and not done, and why: for the log.
    pub warnings: Vec<String>,
}

/// Why a Node cannot be initialised yet. Its taint stays.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InitializeError {
    /// Neither the cloud nor the Node has a provider ID; later it could never be set (NODE-9).
    #[error("cloud provider does not set node provider ID for node {node}")]
    NoProviderId {
        /// The Node.
        node: NodeName,
    },
    /// The address that the kubelet was told to use is not among the cloud's (NODE-11).
    #[error(
        "failed to get node modifiers from cloud provider: provided node ip for node {:?} is not valid: {source}",
        .node.as_str()
    )]
    ProvidedNodeIp {
        /// The Node.
        node: NodeName,
        /// What is wrong.
        source: AddressError,
    },
}

/// What initialising `node` as `instance` changes.
pub fn decide(node: &Node, instance: &Instance) -> Result<NodeChange, InitializeError> {
    let _ = (node, instance);
    todo!()
}

/// The new-style labels that must be set because the old-style ones say something else (NODE-18); empty as a rule.
pub fn mirrored_labels(node: &Node) -> BTreeMap<String, String> {
    let _ = node;
    todo!()
}
