//! Write calls of users: the Service, and the change.

use std::collections::HashSet;
use std::net::IpAddr;

use bowline_core::{IpFamily, LoadBalancerKey};
use serde::{Deserialize, Serialize};

use crate::records::{BalancerSettings, CloudAddress};
use crate::targets::Targets;

/// Service and the resources it needs. Every call has a query, because every response is the observation of the Service: the
/// resources with its mark, and conflicting ones.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Query {
    /// Ownership mark.
    pub key: LoadBalancerKey,
    /// Name of a new load balancer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Name or ID of a load balancer to adopt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adopt: Option<String>,
    /// Requested addresses, in order.
    #[serde(default)]
    pub addresses: Vec<AddressRequest>,
}

/// Requested address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AddressRequest {
    /// IP family.
    pub family: IpFamily,
    /// From the internal pool.
    #[serde(default)]
    pub internal: bool,
    /// Share group: Services of one namespace with this group share the address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_group: Option<String>,
    /// Specific address, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip: Option<IpAddr>,
}

/// Write call. Resources of earlier calls are found by their mark.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "call", rename_all = "kebab-case", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum Change {
    /// Allocates an address, or joins the one of the share group.
    CreateAddress {
        /// Requested address.
        desired: AddressRequest,
    },
    /// Creates a load balancer on the requested addresses, which must exist.
    CreateBalancer {
        /// Unique name.
        name: String,
        /// Settings.
        settings: BalancerSettings,
        /// Targets.
        targets: Targets,
    },
    /// Changes settings, addresses and targets.
    UpdateBalancer {
        /// ID of the load balancer.
        id: String,
        /// New settings.
        settings: BalancerSettings,
        /// Changed targets.
        targets: TargetChange,
    },
    /// Changes the targets only.
    UpdateTargets {
        /// ID of the load balancer.
        id: String,
        /// Changed targets.
        targets: TargetChange,
    },
    /// Marks a load balancer without an owner, and its addresses.
    AdoptBalancer {
        /// ID of the load balancer.
        id: String,
    },
    /// Removes the mark from a load balancer and its addresses, and changes nothing else.
    ReleaseBalancer {
        /// ID of the load balancer.
        id: String,
    },
    /// Deletes a load balancer.
    DeleteBalancer {
        /// ID of the load balancer.
        id: String,
    },
    /// Removes the mark from an address.
    ReleaseAddress {
        /// ID of the address.
        id: String,
    },
    /// Removes the mark from an address, and returns the address to the pool if it has no other mark.
    DeleteAddress {
        /// ID of the address.
        id: String,
    },
}

/// Change of targets with only the differences, because a load balancer may have thousands.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TargetChange {
    /// Targets to add, or to replace by name.
    pub set: Targets,
    /// Names of targets to remove.
    pub remove: Vec<String>,
}

impl TargetChange {
    /// Returns these targets with the change, sorted by name.
    pub fn apply(&self, targets: &Targets) -> Targets {
        let set = self.set.iter().map(|target| &*target.name);
        let replaced: HashSet<&str> = set.chain(self.remove.iter().map(|name| &**name)).collect();
        let kept = targets.iter().filter(|target| !replaced.contains(target.name.as_str()));
        let mut targets: Vec<_> = kept.chain(self.set.iter()).cloned().collect();
        targets.sort_by(|one, other| one.name.cmp(&other.name));
        targets.into()
    }
}

impl Change {
    /// All kinds of write calls.
    pub const KINDS: [&str; 9] = [
        "create-address",
        "create-balancer",
        "update-balancer",
        "update-targets",
        "adopt-balancer",
        "release-balancer",
        "delete-balancer",
        "release-address",
        "delete-address",
    ];

    /// Name under which the call is counted and faults are injected.
    pub fn kind(&self) -> &'static str {
        match self {
            Change::CreateAddress { .. } => "create-address",
            Change::CreateBalancer { .. } => "create-balancer",
            Change::UpdateBalancer { .. } => "update-balancer",
            Change::UpdateTargets { .. } => "update-targets",
            Change::AdoptBalancer { .. } => "adopt-balancer",
            Change::ReleaseBalancer { .. } => "release-balancer",
            Change::DeleteBalancer { .. } => "delete-balancer",
            Change::ReleaseAddress { .. } => "release-address",
            Change::DeleteAddress { .. } => "delete-address",
        }
    }

    /// ID of the existing load balancer that the call changes.
    pub fn balancer(&self) -> Option<&str> {
        match self {
            Change::UpdateBalancer { id, .. }
            | Change::UpdateTargets { id, .. }
            | Change::AdoptBalancer { id }
            | Change::ReleaseBalancer { id }
            | Change::DeleteBalancer { id } => Some(id),
            _ => None,
        }
    }
}

impl AddressRequest {
    /// Whether the address matches the request.
    pub fn matches(&self, address: &CloudAddress) -> bool {
        self.is_like(address) && self.ip.is_none_or(|ip| ip == address.ip)
    }

    /// As [`matches`](AddressRequest::matches), ignoring the specific address.
    fn is_like(&self, address: &CloudAddress) -> bool {
        address.family() == self.family && address.internal == self.internal && address.share_group == self.share_group
    }

    /// Whether the address belongs to the requested share group. Only Services of one namespace share addresses.
    pub fn is_of_group(&self, key: &LoadBalancerKey, address: &CloudAddress) -> bool {
        let is_same_namespace =
            |owner: &LoadBalancerKey| owner.cluster == key.cluster && owner.namespace == key.namespace;
        self.share_group.is_some() && self.is_like(address) && address.owners.iter().any(is_same_namespace)
    }
}
