//! The writing calls as the cloud's users put them: who asks, what for, and what is to be done.

use std::collections::HashSet;
use std::net::IpAddr;

use bowline_core::{IpFamily, LoadBalancerKey};
use serde::{Deserialize, Serialize};

use super::records::{BalancerSettings, CloudAddress};
use super::targets::Targets;

/// Who asks, and what for. It comes with every call, because the answer to every call is all that there is for the asker:
/// what carries its mark, and what stands in the way of what it wants.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Asking {
    /// The mark.
    pub(crate) key: LoadBalancerKey,
    /// The name that a new balancer would have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    /// The name or ID of a balancer that is to be adopted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) adopt: Option<String>,
    /// The addresses that are wanted, in order.
    #[serde(default)]
    pub(crate) addresses: Vec<AddressWish>,
}

/// An address that is wanted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct AddressWish {
    pub(crate) family: IpFamily,
    #[serde(default)]
    pub(crate) internal: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) share_group: Option<String>,
    /// This very one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ip: Option<IpAddr>,
}

/// A writing call. Things that were made by an earlier call are meant by their mark.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "call", rename_all = "kebab-case", rename_all_fields = "camelCase", deny_unknown_fields)]
pub(crate) enum Change {
    /// Allocates an address, or joins the one of the share group.
    CreateAddress { desired: AddressWish },
    /// Makes a balancer at the addresses that the asker wants and has.
    CreateBalancer { name: String, settings: BalancerSettings, targets: Targets },
    /// Changes what it does, its addresses and its targets.
    UpdateBalancer { id: String, settings: BalancerSettings, targets: TargetChange },
    /// Changes its targets alone.
    UpdateTargets { id: String, targets: TargetChange },
    /// Marks one that is nobody's, and its addresses.
    AdoptBalancer { id: String },
    /// Takes the mark from it and its addresses, and nothing else.
    ReleaseBalancer { id: String },
    /// Removes it.
    DeleteBalancer { id: String },
    /// Takes the mark from an address.
    ReleaseAddress { id: String },
    /// Takes the mark from an address, and gives it back to the pool if it was the last one.
    DeleteAddress { id: String },
}

/// A change of targets: only those that differ, because a load balancer may have thousands.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct TargetChange {
    /// Targets to add, or to put in the place of those of the same name.
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
    /// All kinds of writing calls.
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

    /// What it is counted as.
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

    /// The balancer that it changes, if that exists already.
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

impl AddressWish {
    /// Whether this address is what is wanted.
    pub(crate) fn fits(&self, address: &CloudAddress) -> bool {
        self.is_like(address) && self.ip.is_none_or(|ip| ip == address.ip)
    }

    /// The same, whichever address was asked for.
    fn is_like(&self, address: &CloudAddress) -> bool {
        address.family() == self.family && address.internal == self.internal && address.share_group == self.share_group
    }

    /// Whether this is the address of the group that is meant: Services of one namespace share, others never do.
    pub(crate) fn is_of_group(&self, key: &LoadBalancerKey, address: &CloudAddress) -> bool {
        let beside = |owner: &LoadBalancerKey| owner.cluster == key.cluster && owner.namespace == key.namespace;
        self.share_group.is_some() && self.is_like(address) && address.owners.iter().any(beside)
    }
}
