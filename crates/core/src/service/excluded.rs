//! Nodes that are not targets of a load balancer, with the reason for each.

use std::collections::BTreeMap;
use std::fmt;

use super::Leaving;
use crate::NodeName;
use crate::well_known::{AUTOSCALER_TAINT, EXCLUDE_FROM_LOAD_BALANCERS};

/// Maximum number of names listed for one reason.
const MAX_NAMES: usize = 10;

/// Reason why a Node is not a target of a load balancer. The order of the variants is that of the text of [`ExcludedNodes`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exclusion {
    /// The load balancer already has its maximum number of targets.
    OverLimit(usize),
    /// The Node is not initialised.
    Uninitialized,
    /// The Node has no provider ID, so its cloud is unknown.
    NoProviderId,
    /// The machine of the Node is in another cloud.
    OtherCloud,
    /// The Service selects other Nodes with `bowline.dev/target-nodes`.
    NotSelected,
    /// The Node is leaving, and its drain period is over.
    Leaving(Leaving),
}

/// Nodes that are not targets of a load balancer, by reason. The text does not depend on the order of the Nodes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExcludedNodes(BTreeMap<Exclusion, Names>);

/// The first names in alphabetical order, and the total number.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Names {
    first: Vec<NodeName>,
    count: usize,
}

impl ExcludedNodes {
    /// Returns whether no Node is excluded.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the reasons, each with the first names in alphabetical order and the total number of Nodes.
    pub fn reasons(&self) -> impl Iterator<Item = (Exclusion, &[NodeName], usize)> {
        self.0.iter().map(|(why, names)| (*why, names.first.as_slice(), names.count))
    }

    /// Returns whether Nodes are excluded because the load balancer has its maximum number of targets.
    pub fn is_over_limit(&self) -> bool {
        self.0.keys().any(|why| matches!(why, Exclusion::OverLimit(_)))
    }
}

impl FromIterator<(Exclusion, NodeName)> for ExcludedNodes {
    fn from_iter<I: IntoIterator<Item = (Exclusion, NodeName)>>(nodes: I) -> ExcludedNodes {
        let mut by_reason: BTreeMap<Exclusion, Vec<NodeName>> = BTreeMap::new();
        for (why, name) in nodes {
            by_reason.entry(why).or_default().push(name);
        }
        let cut = |mut names: Vec<NodeName>| {
            let count = names.len();
            names.sort();
            names.truncate(MAX_NAMES);
            names.shrink_to_fit();
            Names { first: names, count }
        };
        ExcludedNodes(by_reason.into_iter().map(|(why, names)| (why, cut(names))).collect())
    }
}

/// Formats as `n5, n6 (the load balancer takes at most 4 targets)`.
impl fmt::Display for ExcludedNodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (why, names)) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{names} ({why})")?;
        }
        Ok(())
    }
}

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.first.iter().map(NodeName::as_str).collect::<Vec<_>>().join(", "))?;
        match self.count - self.first.len() {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

impl fmt::Display for Exclusion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exclusion::OverLimit(limit) => write!(f, "the load balancer takes at most {limit} targets"),
            Exclusion::Uninitialized => f.write_str("not initialized"),
            Exclusion::NoProviderId => f.write_str("no provider ID"),
            Exclusion::OtherCloud => f.write_str("machine of another cloud"),
            Exclusion::NotSelected => f.write_str("not selected by the Service"),
            Exclusion::Leaving(Leaving::Deleting) => f.write_str("being deleted"),
            Exclusion::Leaving(Leaving::Autoscaler) => write!(f, "taint {AUTOSCALER_TAINT}"),
            Exclusion::Leaving(Leaving::Excluded) => write!(f, "label {EXCLUDE_FROM_LOAD_BALANCERS}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_and_truncated_so_that_the_same_nodes_give_the_same_text() {
        let excluded = |names: &[u32]| {
            let named = names.iter().map(|number| (Exclusion::OverLimit(4), format!("n{number:02}").as_str().into()));
            named.collect::<ExcludedNodes>()
        };
        assert_eq!(excluded(&[7, 5]).to_string(), "n05, n07 (the load balancer takes at most 4 targets)");
        assert_eq!(excluded(&[5, 7]), excluded(&[7, 5]));
        let many: Vec<u32> = (0..25).rev().collect();
        let text = excluded(&many).to_string();
        assert!(text.starts_with("n00, n01, ") && text.contains("n09 and 15 more ("), "{text}");
        assert!(excluded(&[1]).is_over_limit() && excluded(&[]).is_empty());
    }
}
