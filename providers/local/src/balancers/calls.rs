//! Write calls of users: the Service, and the change.

use std::collections::HashSet;
use std::net::IpAddr;

use bowline_core::{IpFamily, LoadBalancerKey};
use serde::{Deserialize, Serialize};

use super::records::{BalancerSettings, CloudAddress};
use super::targets::Targets;

/// Service and the resources it needs. Every call has a query, because every response is the observation of the Service: the
/// resources with its mark, and conflicting ones.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Query {
    /// Ownership mark.
    pub(crate) key: LoadBalancerKey,
    /// Name of a new load balancer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    /// Name or ID of a load balancer to adopt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) adopt: Option<String>,
    /// Requested addresses, in order.
    #[serde(default)]
    pub(crate) addresses: Vec<AddressRequest>,
}

/// Requested address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct AddressRequest {
    pub(crate) family: IpFamily,
    #[serde(default)]
    pub(crate) internal: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) share_group: Option<String>,
    /// Specific address, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ip: Option<IpAddr>,
}

/// Write call. Resources of earlier calls are found by their mark.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "call", rename_all = "kebab-case", rename_all_fields = "camelCase", deny_unknown_fields)]
pub(crate) enum Change {
    /// Allocates an address, or joins the one of the share group.
    CreateAddress { desired: AddressRequest },
    /// Creates a load balancer on the requested addresses, which must exist.
    CreateBalancer { name: String, settings: BalancerSettings, targets: Targets },
    /// Changes settings, addresses and targets.
    UpdateBalancer { id: String, settings: BalancerSettings, targets: TargetChange },
    /// Changes the targets only.
    UpdateTargets { id: String, targets: TargetChange },
    /// Marks a load balancer without an owner, and its addresses.
    AdoptBalancer { id: String },
    /// Removes the mark from a load balancer and its addresses, and changes nothing else.
    ReleaseBalancer { id: String },
    /// Deletes a load balancer.
    DeleteBalancer { id: String },
    /// Removes the mark from an address.
    ReleaseAddress { id: String },
    /// Removes the mark from an address, and returns the address to the pool if it has no other mark.
    DeleteAddress { id: String },
}

/// Change of targets with only the differences, because a load balancer may have thousands.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct TargetChange {
    /// Targets to add, or to replace by name.
    pub(crate) set: Targets,
    /// Names of targets to remove.
    pub(crate) remove: Vec<String>,
}

impl TargetChange {
    /// Returns these targets with the change, sorted by name.
    pub(crate) fn apply(&self, targets: &Targets) -> Targets {
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
    pub(crate) const KINDS: [&str; 9] = [
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
    pub(crate) fn kind(&self) -> &'static str {
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
    pub(crate) fn balancer(&self) -> Option<&str> {
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
    pub(crate) fn matches(&self, address: &CloudAddress) -> bool {
        self.is_like(address) && self.ip.is_none_or(|ip| ip == address.ip)
    }

    /// As [`matches`](AddressRequest::matches), ignoring the specific address.
    fn is_like(&self, address: &CloudAddress) -> bool {
        address.family() == self.family && address.internal == self.internal && address.share_group == self.share_group
    }

    /// Whether the address belongs to the requested share group. Only Services of one namespace share addresses.
    pub(crate) fn is_of_group(&self, key: &LoadBalancerKey, address: &CloudAddress) -> bool {
        let is_same_namespace =
            |owner: &LoadBalancerKey| owner.cluster == key.cluster && owner.namespace == key.namespace;
        self.share_group.is_some() && self.is_like(address) && address.owners.iter().any(is_same_namespace)
    }
}
