//! A machine, as a cloud tells of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::{Address, Node, NodeName, ProviderId};

/// What is known of a Node when its machine is asked for. A provider looks up by `provider_id` if there is one, and only
/// else by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceRef {
    /// The Node that asks.
    pub node: NodeName,
    /// Which machine it is, if that is known.
    pub provider_id: Option<ProviderId>,
    /// What the machine's firmware says of itself; a stronger key than a name, where a cloud knows it.
    pub system_uuid: Option<String>,
}

/// What a cloud says of a machine. There is no "perhaps": a provider that is not sure returns an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InstanceState {
    /// It exists and is not known to be stopped.
    Running(Arc<Instance>),
    /// It exists and is powered off, suspended or the like.
    Stopped(Arc<Instance>),
    /// The cloud answered, completely, and has no such machine. Only this may lead to the deletion of a Node.
    Gone,
    /// The provider declines: the node may be anybody's, and nothing about it is to change.
    NotMine,
}

/// A machine's metadata. An empty text or list means "the cloud does not say", and changes nothing on the Node.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Instance {
    /// The cloud's own key for it, without the prefix: what [`ProviderId`]s and listings are matched by.
    pub id: String,
    /// The name under which a Node without provider ID is looked for.
    pub name: String,
    /// What goes into `spec.providerID`: stable for ever once written.
    pub provider_id: Option<ProviderId>,
    /// The kind of machine.
    #[serde(default)]
    pub instance_type: String,
    /// The failure domain.
    #[serde(default)]
    pub zone: String,
    /// The region around it.
    #[serde(default)]
    pub region: String,
    /// In the order that the Node should have them in.
    #[serde(default)]
    pub addresses: Vec<Address>,
    /// Further labels for the Node, put on once, at initialisation.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Annotations of the Node that the provider owns, by the rules of [`node_annotations`](crate::node_annotations): written
    /// at initialisation and kept in sync after it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// The pod ranges that the cloud itself leads to the machine, where it does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pod_ranges: Vec<IpNet>,
}

impl InstanceRef {
    /// How `node` asks for its machine.
    pub fn of(node: &Node) -> InstanceRef {
        InstanceRef {
            node: node.name.clone(),
            provider_id: node.provider_id.clone(),
            system_uuid: node.system_uuid.clone(),
        }
    }
}

impl InstanceState {
    /// The metadata, if the machine exists.
    pub fn instance(&self) -> Option<&Arc<Instance>> {
        match self {
            InstanceState::Running(instance) | InstanceState::Stopped(instance) => Some(instance),
            InstanceState::Gone | InstanceState::NotMine => None,
        }
    }
}
