//! Which addresses a Node should have (NODE-19 to NODE-25).
//!
//! ```text
//!  cloud's list ──► + the kubelet's Hostname, if the cloud has none (NODE-21)
//!               ──► filtered by the annotation of --node-ip (NODE-22, NODE-23)
//!               ──► written, if it differs from the Node's list in any way, order included (NODE-25)
//! ```

use std::net::IpAddr;

use crate::{Address, Node};

/// Why the annotation of `--node-ip` and the cloud's addresses do not go together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The annotation is not one address or a dual-stack pair.
    #[error("failed to parse node IP {value:?}: {reason}")]
    Malformed {
        /// The annotation.
        value: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The cloud does not know that address of this machine.
    #[error("failed to get node address from cloud provider that matches ip: {ip}")]
    NoMatch {
        /// The address that the kubelet was told to use.
        ip: IpAddr,
    },
}

/// The list that `node` should have, given what the cloud says; `None` if the cloud says nothing, and so nothing changes.
pub fn wanted(node: &Node, cloud: &[Address]) -> Result<Option<Vec<Address>>, AddressError> {
    let _ = (node, cloud);
    todo!()
}

/// The list to write, if the Node has another one.
pub fn decide(node: &Node, cloud: &[Address]) -> Result<Option<Vec<Address>>, AddressError> {
    Ok(wanted(node, cloud)?.filter(|wanted| *wanted != node.addresses))
}

/// Checks the annotation of `--node-ip`, if there is one, against what the cloud says, also if that is nothing (NODE-11).
pub fn check(node: &Node, cloud: &[Address]) -> Result<(), AddressError> {
    let _ = (node, cloud);
    todo!()
}

/// Appends those of `more` that are not in `list` yet.
pub fn add(list: &mut Vec<Address>, more: &[Address]) {
    let _ = (list, more);
    todo!()
}
