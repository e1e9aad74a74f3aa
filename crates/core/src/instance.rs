//! Machines of a cloud.

use std::collections::BTreeMap;
use std::sync::Arc;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::{Address, Node, NodeName, ProviderId};

/// Reference to the machine of a Node. Providers look the machine up by `provider_id`, and by name only if there is no provider ID.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceRef {
    /// Name of the Node.
    pub node: NodeName,
    /// Provider ID of the machine, if the Node has one.
    pub provider_id: Option<ProviderId>,
    /// UUID that the machine's firmware reports. For clouds that know it, a more reliable key than the name.
    pub system_uuid: Option<String>,
}

/// State of a machine in the cloud. There is no "unknown" state: a provider that is not certain returns an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InstanceState {
    /// The machine exists and is not known to be stopped.
    Running(Arc<Instance>),
    /// The machine exists and is powered off, suspended or otherwise stopped.
    Stopped(Arc<Instance>),
    /// The cloud returned a complete response without the machine. Only this state can lead to the deletion of a Node.
    Gone,
    /// The provider is not responsible for the Node. No controller changes it.
    NotMine,
}

/// Metadata of a machine. An empty string or list means that the cloud does not report the value; the Node keeps its own.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Instance {
    /// ID of the machine in the cloud, without the prefix of the [`ProviderId`]. Provider IDs and listings are matched by it.
    pub id: String,
    /// Name of the machine, by which a Node without a provider ID is looked up.
    pub name: String,
    /// Value for `spec.providerID`. It must never change once it is written.
    pub provider_id: Option<ProviderId>,
    /// Instance type.
    #[serde(default)]
    pub instance_type: String,
    /// Zone (failure domain).
    #[serde(default)]
    pub zone: String,
    /// Region.
    #[serde(default)]
    pub region: String,
    /// Addresses, in the order in which the Node gets them.
    #[serde(default)]
    pub addresses: Vec<Address>,
    /// Additional labels for the Node, set once at initialisation.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Node annotations that the provider owns ([`node_annotations`](crate::node_annotations)): set at initialisation and kept in
    /// sync afterwards.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Pod CIDRs that the cloud itself routes to the machine.
    #[serde(rename = "podRanges", default, skip_serializing_if = "Vec::is_empty")]
    pub pod_cidrs: Vec<IpNet>,
}

impl InstanceRef {
    /// Returns the reference to the machine of `node`.
    pub fn of(node: &Node) -> InstanceRef {
        InstanceRef {
            node: node.name.clone(),
            provider_id: node.provider_id.clone(),
            system_uuid: node.system_uuid.clone(),
        }
    }
}

impl InstanceState {
    /// Returns the metadata if the machine exists.
    pub fn instance(&self) -> Option<&Arc<Instance>> {
        match self {
            InstanceState::Running(instance) | InstanceState::Stopped(instance) => Some(instance),
            InstanceState::Gone | InstanceState::NotMine => None,
        }
    }
}
