//! What Neutron says. Everything may be null or missing, and is then empty.

use serde::{Deserialize, Serialize};

use super::nullable;

/// A floating IP.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct FloatingIp {
    #[serde(deserialize_with = "nullable")]
    pub(crate) id: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) floating_ip_address: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) floating_network_id: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) port_id: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) description: String,
}

/// A network.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Network {
    #[serde(deserialize_with = "nullable")]
    pub(crate) id: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) name: String,
    #[serde(rename = "router:external", deserialize_with = "nullable")]
    pub(crate) external: bool,
    #[serde(deserialize_with = "nullable")]
    pub(crate) subnets: Vec<String>,
}

/// A subnet.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Subnet {
    #[serde(deserialize_with = "nullable")]
    pub(crate) id: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) name: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) network_id: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) cidr: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) ip_version: u8,
    #[serde(deserialize_with = "nullable")]
    pub(crate) tags: Vec<String>,
}

/// A port.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Port {
    #[serde(deserialize_with = "nullable")]
    pub(crate) id: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) status: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) device_id: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) network_id: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) fixed_ips: Vec<FixedIp>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) security_groups: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) allowed_address_pairs: Vec<AddressPair>,
    /// `None` where the extension is not there.
    pub(crate) port_security_enabled: Option<bool>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) tags: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) trunk_details: TrunkDetails,
    pub(crate) revision_number: Option<u64>,
}

/// An address of a port.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct FixedIp {
    #[serde(deserialize_with = "nullable")]
    pub(crate) ip_address: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) subnet_id: String,
}

/// A further address that may be spoken from a port. What is there already is echoed unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct AddressPair {
    #[serde(deserialize_with = "nullable")]
    pub(crate) ip_address: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mac_address: Option<String>,
}

/// What hangs on a trunk.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct TrunkDetails {
    #[serde(deserialize_with = "nullable")]
    pub(crate) sub_ports: Vec<SubPort>,
}

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SubPort {
    #[serde(deserialize_with = "nullable")]
    pub(crate) port_id: String,
}

/// A security group.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SecurityGroup {
    #[serde(deserialize_with = "nullable")]
    pub(crate) id: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) name: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) description: String,
}

/// A rule of one.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SecurityGroupRule {
    #[serde(deserialize_with = "nullable")]
    pub(crate) id: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) direction: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) ethertype: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) protocol: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) port_range_min: u16,
    #[serde(deserialize_with = "nullable")]
    pub(crate) port_range_max: u16,
    #[serde(deserialize_with = "nullable")]
    pub(crate) remote_ip_prefix: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) remote_group_id: String,
}

/// A router.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Router {
    #[serde(deserialize_with = "nullable")]
    pub(crate) id: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) routes: Vec<ExtraRoute>,
}

/// A route of one.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ExtraRoute {
    #[serde(deserialize_with = "nullable")]
    pub(crate) destination: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) nexthop: String,
}
