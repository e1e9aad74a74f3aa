//! Writing to the API server: each write is one targeted request (W-1 to W-10).

use std::collections::BTreeMap;

use bowline_core::initialize::NodeChange;
use bowline_core::{Address, Node, NodeName, Taint};

/// Why a write did not happen.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The object has changed since it was read: read again, decide again.
    #[error("{0}")]
    Conflict(String),
    /// The object is gone, or is another one of the same name.
    #[error("{0}")]
    NotFound(String),
    /// The API server refuses; trying the same again is no use before something changes.
    #[error("{message}")]
    Rejected {
        /// The HTTP status.
        code: u16,
        /// What the API server says.
        message: String,
    },
    /// The API server cannot be reached, or is broken or too busy, after several tries.
    #[error("{0}")]
    Unavailable(String),
}

/// The cluster, for writing.
#[derive(Clone)]
pub struct Cluster {
    client: kube::Client,
}

impl Cluster {
    /// Writes through this client.
    pub fn new(client: kube::Client) -> Cluster {
        Cluster { client }
    }

    /// The Node as it is now, not as it was last heard of; `None` if there is none.
    pub async fn node(&self, name: &NodeName) -> Result<Option<Node>, WriteError> {
        let _ = (name, &self.client);
        todo!()
    }

    /// Initialises a Node: provider ID, labels and taints in one request that fails if the Node has changed (W-1).
    pub async fn initialize(&self, change: &NodeChange) -> Result<Node, WriteError> {
        let _ = change;
        todo!()
    }

    /// Replaces the addresses (W-2).
    pub async fn set_addresses(&self, node: &NodeName, addresses: &[Address]) -> Result<Node, WriteError> {
        let _ = (node, addresses);
        todo!()
    }

    /// Sets these labels and leaves the others (W-3).
    pub async fn set_labels(&self, node: &NodeName, labels: &BTreeMap<String, String>) -> Result<Node, WriteError> {
        let _ = (node, labels);
        todo!()
    }

    /// Replaces the taints, if the Node is still at this version (W-4).
    pub async fn set_taints(
        &self,
        node: &NodeName,
        resource_version: &str,
        taints: &[Taint],
    ) -> Result<Node, WriteError> {
        let _ = (node, resource_version, taints);
        todo!()
    }

    /// Deletes the Node, if it is still the one with this UID (W-10). A Node that is gone already counts as deleted.
    pub async fn delete_node(&self, node: &NodeName, uid: &str) -> Result<(), WriteError> {
        let _ = (node, uid);
        todo!()
    }
}
