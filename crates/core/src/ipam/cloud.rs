//! Pod CIDR allocation with clouds that route pod CIDRs to machines themselves: sync between Node and cloud (IPAM-12).

use std::collections::BTreeSet;
use std::fmt;

use ipnet::IpNet;

use crate::parse_cidr;

/// Side that allocates the pod CIDRs of Nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AllocationMode {
    /// The cloud allocates them, and Bowline writes them to the Node.
    Cloud,
    /// Bowline allocates them and assigns them to the machine in the cloud.
    Cluster,
}

/// Next step of the sync for a Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Nothing to do: Node and cloud have the same pod CIDRs.
    Agreed,
    /// Write these pod CIDRs of the cloud to the Node.
    WriteToNode(Vec<IpNet>),
    /// Assign these pod CIDRs to the machine in the cloud.
    AssignInCloud(Vec<IpNet>),
    /// Allocate pod CIDRs for the Node; they are assigned in the cloud once the Node has them.
    Allocate,
    /// Change nothing: an operator has to resolve the conflict.
    Refuse(CloudIpamError),
}

/// Conflict between the pod CIDRs of the Node and of the cloud.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CloudIpamError {
    /// Node and cloud have different pod CIDRs.
    Mismatch {
        /// Pod CIDRs of the Node.
        node: Vec<String>,
        /// Pod CIDRs of the machine in the cloud.
        cloud: Vec<IpNet>,
    },
    /// The required action is not allowed in this mode.
    InvalidMode {
        /// Required action.
        what: &'static str,
        /// Allocation mode.
        mode: AllocationMode,
    },
    /// A pod CIDR of the Node is invalid.
    InvalidPodCidr {
        /// The invalid value.
        text: String,
    },
}

/// Decides the next step for a Node with the pod CIDRs `node`, whose machine has the pod CIDRs `cloud`.
// upstream: compares only the first pod CIDR of each side, so that a dual-stack Node with one missing CIDR counts as in sync.
pub fn decide(node: &[String], cloud: &[IpNet], mode: AllocationMode) -> Step {
    let cloud: Vec<IpNet> = cloud.iter().map(IpNet::trunc).collect();
    match (node.is_empty(), cloud.is_empty(), mode) {
        (true, true, AllocationMode::Cluster) => Step::Allocate,
        (true, true, AllocationMode::Cloud) => invalid("allocate CIDRs", mode),
        (true, false, AllocationMode::Cloud) => Step::WriteToNode(cloud),
        (true, false, AllocationMode::Cluster) => invalid("sync from cloud", mode),
        (false, true, AllocationMode::Cloud) => invalid("sync to cloud", mode),
        (false, _, _) => compare(node, cloud, mode),
    }
}

/// Compares the pod CIDRs of a Node that has some with those of the cloud.
fn compare(node: &[String], cloud: Vec<IpNet>, mode: AllocationMode) -> Step {
    let mut desired = Vec::new();
    for text in node {
        match parse_cidr(text) {
            Some(range) => desired.push(range),
            None => return Step::Refuse(CloudIpamError::InvalidPodCidr { text: text.clone() }),
        }
    }
    let assigned: BTreeSet<IpNet> = cloud.iter().copied().collect();
    let missing: Vec<IpNet> = desired.iter().copied().filter(|range| !assigned.contains(range)).collect();
    let has_others = assigned.iter().any(|range| !desired.contains(range));
    match (missing.is_empty(), has_others, mode) {
        (true, false, _) => Step::Agreed,
        // Partly assigned, for example because the manager stopped in between.
        (false, false, AllocationMode::Cluster) => Step::AssignInCloud(missing),
        _ => Step::Refuse(CloudIpamError::Mismatch { node: node.to_vec(), cloud }),
    }
}

fn invalid(what: &'static str, mode: AllocationMode) -> Step {
    Step::Refuse(CloudIpamError::InvalidMode { what, mode })
}

impl CloudIpamError {
    /// Returns the reason of the Event.
    pub fn reason(&self) -> &'static str {
        match self {
            CloudIpamError::Mismatch { .. } => "CloudCIDRAllocatorMismatch",
            CloudIpamError::InvalidMode { .. } => "CloudCIDRAllocatorInvalidMode",
            CloudIpamError::InvalidPodCidr { .. } => "CloudCIDRAllocatorInvalidPodCIDR",
        }
    }

    /// Returns whether a retry may succeed without a change of the Node: the cloud may have a pod CIDR by then.
    pub fn is_retryable(&self) -> bool {
        matches!(self, CloudIpamError::InvalidMode { .. })
    }
}

impl fmt::Display for CloudIpamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CloudIpamError::Mismatch { node, cloud } => {
                let cloud: Vec<String> = cloud.iter().map(ToString::to_string).collect();
                write!(f, "Node.Spec.PodCIDR != cloud alias ({} != {})", node.join(","), cloud.join(","))
            }
            CloudIpamError::InvalidMode { what, mode } => write!(f, "Cannot {what} in mode {:?}", mode.name()),
            CloudIpamError::InvalidPodCidr { text } => write!(f, "The node has an invalid PodCIDR: {text:?}"),
        }
    }
}

impl AllocationMode {
    /// Returns the name of the mode in Events.
    fn name(self) -> &'static str {
        match self {
            AllocationMode::Cloud => "SyncFromCloud",
            AllocationMode::Cluster => "SyncFromCluster",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "10.1.0.0/24";
    const A6: &str = "fd00::/64";
    const B: &str = "10.2.0.0/24";

    fn nets(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn decided(node: &[&str], cloud: &[&str], mode: AllocationMode) -> Step {
        let node: Vec<String> = node.iter().map(|text| (*text).to_owned()).collect();
        decide(&node, &nets(cloud), mode)
    }

    #[test]
    fn ipam_12_every_case() {
        use AllocationMode::{Cloud, Cluster};
        type Row<'a> = (&'a str, &'a [&'a str], &'a [&'a str], AllocationMode, Step);
        let rows: [Row<'_>; 14] = [
            ("both, the same", &[A], &[A], Cloud, Step::Agreed),
            ("both, the same", &[A], &[A], Cluster, Step::Agreed),
            ("both, host bits", &["10.1.0.7/24"], &["10.1.0.9/24"], Cloud, Step::Agreed),
            ("both, in another order", &[A, A6], &[A6, A], Cloud, Step::Agreed),
            ("only the cloud", &[], &[A], Cloud, Step::WriteToNode(nets(&[A]))),
            ("only the cloud, two", &[], &[A, A6], Cloud, Step::WriteToNode(nets(&[A, A6]))),
            ("only the cloud, host bits", &[], &["10.1.0.9/24"], Cloud, Step::WriteToNode(nets(&[A]))),
            ("only the cloud", &[], &[A], Cluster, invalid("sync from cloud", Cluster)),
            ("only the Node", &[A], &[], Cluster, Step::AssignInCloud(nets(&[A]))),
            ("only the Node, two", &[A, A6], &[], Cluster, Step::AssignInCloud(nets(&[A, A6]))),
            ("the cloud has half", &[A, A6], &[A], Cluster, Step::AssignInCloud(nets(&[A6]))),
            ("only the Node", &[A], &[], Cloud, invalid("sync to cloud", Cloud)),
            ("neither", &[], &[], Cluster, Step::Allocate),
            ("neither", &[], &[], Cloud, invalid("allocate CIDRs", Cloud)),
        ];
        for (case, node, cloud, mode, expected) in rows {
            assert_eq!(decided(node, cloud, mode), expected, "{case}, {mode:?}");
        }
    }

    #[test]
    fn ipam_12_a_mismatch_is_reported_and_nothing_is_changed() {
        use AllocationMode::{Cloud, Cluster};
        let rows: [(&[&str], &[&str], AllocationMode); 6] = [
            (&[A], &[B], Cloud),
            (&[A], &[B], Cluster),
            (&[A], &[A, B], Cluster),
            (&[A], &[A, A6], Cloud),
            (&[A, A6], &[A], Cloud),
            (&[A, A6], &[A, B], Cluster),
        ];
        for (node, cloud, mode) in rows {
            let step = decided(node, cloud, mode);
            let Step::Refuse(error) = step else { panic!("{node:?} {cloud:?} {mode:?}: {step:?}") };
            assert_eq!(error.reason(), "CloudCIDRAllocatorMismatch", "{node:?} {cloud:?} {mode:?}");
            assert!(!error.is_retryable());
        }
    }

    #[test]
    fn ipam_12_errors_have_the_reasons_and_messages_of_upstream() {
        let event = |node: &[&str], cloud: &[&str], mode| match decided(node, cloud, mode) {
            Step::Refuse(error) => (error.reason(), error.to_string()),
            step => panic!("{step:?}"),
        };
        let rows = [
            (
                event(&[A], &[B], AllocationMode::Cloud),
                "CloudCIDRAllocatorMismatch",
                "Node.Spec.PodCIDR != cloud alias (10.1.0.0/24 != 10.2.0.0/24)",
            ),
            (
                event(&[], &[A], AllocationMode::Cluster),
                "CloudCIDRAllocatorInvalidMode",
                "Cannot sync from cloud in mode \"SyncFromCluster\"",
            ),
            (
                event(&[A], &[], AllocationMode::Cloud),
                "CloudCIDRAllocatorInvalidMode",
                "Cannot sync to cloud in mode \"SyncFromCloud\"",
            ),
            (
                event(&[], &[], AllocationMode::Cloud),
                "CloudCIDRAllocatorInvalidMode",
                "Cannot allocate CIDRs in mode \"SyncFromCloud\"",
            ),
            (
                event(&["x"], &[A], AllocationMode::Cloud),
                "CloudCIDRAllocatorInvalidPodCIDR",
                "The node has an invalid PodCIDR: \"x\"",
            ),
            (
                event(&["x"], &[], AllocationMode::Cluster),
                "CloudCIDRAllocatorInvalidPodCIDR",
                "The node has an invalid PodCIDR: \"x\"",
            ),
        ];
        for ((reason, message), expected_reason, expected) in rows {
            assert_eq!((reason, message.as_str()), (expected_reason, expected));
        }
    }
}
