//! Where a cloud leads pod ranges to machines by itself: what is to be done when the Node and the cloud have, or lack,
//! ranges (IPAM-12).

use std::collections::BTreeSet;
use std::fmt;

use ipnet::IpNet;

use crate::parse_cidr;

/// Who decides which range a Node gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AllocationMode {
    /// The cloud: its ranges are written to the Node.
    Cloud,
    /// We do, and the cloud is told.
    Cluster,
}

/// What is to be done for a Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Both say the same.
    Agreed,
    /// The Node gets the cloud's ranges.
    WriteToNode(Vec<IpNet>),
    /// The cloud is told to lead these to the machine.
    AssignInCloud(Vec<IpNet>),
    /// A range is chosen for the Node; the cloud is told once the Node has it.
    Allocate,
    /// A person has to see to it; nothing is touched.
    Refuse(CloudIpamError),
}

/// Why nothing is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CloudIpamError {
    /// Both have ranges, and not the same.
    Mismatch {
        /// What the Node says.
        node: Vec<String>,
        /// What the cloud says.
        cloud: Vec<IpNet>,
    },
    /// The range would have to go the other way than ranges go in this mode.
    InvalidMode {
        /// What would have to be done.
        what: &'static str,
        /// The mode.
        lead: AllocationMode,
    },
    /// What the Node says is no range.
    InvalidPodCidr {
        /// The text.
        text: String,
    },
}

/// What is to be done for a Node with these ranges, whose machine has these in the cloud.
// upstream: looks at the first range of each side alone, so that half a dual stack counts as agreement.
pub fn decide(node: &[String], cloud: &[IpNet], lead: AllocationMode) -> Step {
    let cloud: Vec<IpNet> = cloud.iter().map(IpNet::trunc).collect();
    match (node.is_empty(), cloud.is_empty(), lead) {
        (true, true, AllocationMode::Cluster) => Step::Allocate,
        (true, true, AllocationMode::Cloud) => invalid("allocate CIDRs", lead),
        (true, false, AllocationMode::Cloud) => Step::WriteToNode(cloud),
        (true, false, AllocationMode::Cluster) => invalid("sync from cloud", lead),
        (false, true, AllocationMode::Cloud) => invalid("sync to cloud", lead),
        (false, _, _) => compare(node, cloud, lead),
    }
}

/// The Node has ranges; the cloud may have some, too.
fn compare(node: &[String], cloud: Vec<IpNet>, lead: AllocationMode) -> Step {
    let mut wanted = Vec::new();
    for text in node {
        match parse_cidr(text) {
            Some(range) => wanted.push(range),
            None => return Step::Refuse(CloudIpamError::InvalidPodCidr { text: text.clone() }),
        }
    }
    let there: BTreeSet<IpNet> = cloud.iter().copied().collect();
    let missing: Vec<IpNet> = wanted.iter().copied().filter(|range| !there.contains(range)).collect();
    let are_more = there.iter().any(|range| !wanted.contains(range));
    match (missing.is_empty(), are_more, lead) {
        (true, false, _) => Step::Agreed,
        // Told by half, as when the manager ended in between.
        (false, false, AllocationMode::Cluster) => Step::AssignInCloud(missing),
        _ => Step::Refuse(CloudIpamError::Mismatch { node: node.to_vec(), cloud }),
    }
}

fn invalid(what: &'static str, lead: AllocationMode) -> Step {
    Step::Refuse(CloudIpamError::InvalidMode { what, lead })
}

impl CloudIpamError {
    /// The Event's reason.
    pub fn reason(&self) -> &'static str {
        match self {
            CloudIpamError::Mismatch { .. } => "CloudCIDRAllocatorMismatch",
            CloudIpamError::InvalidMode { .. } => "CloudCIDRAllocatorInvalidMode",
            CloudIpamError::InvalidPodCidr { .. } => "CloudCIDRAllocatorInvalidPodCIDR",
        }
    }

    /// Looking again later may help without anybody changing the Node: the cloud may have a range by then.
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
            CloudIpamError::InvalidMode { what, lead } => write!(f, "Cannot {what} in mode {:?}", lead.mode()),
            CloudIpamError::InvalidPodCidr { text } => write!(f, "The node has an invalid PodCIDR: {text:?}"),
        }
    }
}

impl AllocationMode {
    /// The mode's name in Events.
    fn mode(self) -> &'static str {
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

    fn decided(node: &[&str], cloud: &[&str], lead: AllocationMode) -> Step {
        let node: Vec<String> = node.iter().map(|text| (*text).to_owned()).collect();
        decide(&node, &nets(cloud), lead)
    }

    #[test]
    fn ipam_12_every_row() {
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
        for (case, node, cloud, lead, expected) in rows {
            assert_eq!(decided(node, cloud, lead), expected, "{case}, {lead:?}");
        }
    }

    #[test]
    fn ipam_12_what_differs_is_told_and_left() {
        use AllocationMode::{Cloud, Cluster};
        let rows: [(&[&str], &[&str], AllocationMode); 6] = [
            (&[A], &[B], Cloud),
            (&[A], &[B], Cluster),
            (&[A], &[A, B], Cluster),
            (&[A], &[A, A6], Cloud),
            (&[A, A6], &[A], Cloud),
            (&[A, A6], &[A, B], Cluster),
        ];
        for (node, cloud, lead) in rows {
            let step = decided(node, cloud, lead);
            let Step::Refuse(refusal) = step else { panic!("{node:?} {cloud:?} {lead:?}: {step:?}") };
            assert_eq!(refusal.reason(), "CloudCIDRAllocatorMismatch", "{node:?} {cloud:?} {lead:?}");
            assert!(!refusal.is_retryable());
        }
    }

    #[test]
    fn ipam_12_a_refusal_says_what_upstream_says() {
        let said = |node: &[&str], cloud: &[&str], lead| match decided(node, cloud, lead) {
            Step::Refuse(refusal) => (refusal.reason(), refusal.to_string()),
            step => panic!("{step:?}"),
        };
        let rows = [
            (
                said(&[A], &[B], AllocationMode::Cloud),
                "CloudCIDRAllocatorMismatch",
                "Node.Spec.PodCIDR != cloud alias (10.1.0.0/24 != 10.2.0.0/24)",
            ),
            (
                said(&[], &[A], AllocationMode::Cluster),
                "CloudCIDRAllocatorInvalidMode",
                "Cannot sync from cloud in mode \"SyncFromCluster\"",
            ),
            (
                said(&[A], &[], AllocationMode::Cloud),
                "CloudCIDRAllocatorInvalidMode",
                "Cannot sync to cloud in mode \"SyncFromCloud\"",
            ),
            (
                said(&[], &[], AllocationMode::Cloud),
                "CloudCIDRAllocatorInvalidMode",
                "Cannot allocate CIDRs in mode \"SyncFromCloud\"",
            ),
            (
                said(&["x"], &[A], AllocationMode::Cloud),
                "CloudCIDRAllocatorInvalidPodCIDR",
                "The node has an invalid PodCIDR: \"x\"",
            ),
            (
                said(&["x"], &[], AllocationMode::Cluster),
                "CloudCIDRAllocatorInvalidPodCIDR",
                "The node has an invalid PodCIDR: \"x\"",
            ),
        ];
        for ((reason, message), expected_reason, expected) in rows {
            assert_eq!((reason, message.as_str()), (expected_reason, expected));
        }
    }
}
