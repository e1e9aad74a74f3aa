//! Nodes that are not behind a load balancer, with the reason for each.

use std::collections::BTreeMap;
use std::fmt;

use super::Leaving;
use crate::NodeName;
use crate::well_known::{AUTOSCALER_TAINT, EXCLUDE_FROM_LOAD_BALANCERS};

/// Maximum number of names listed for one reason.
const NAMES: usize = 10;

/// Why a Node is not behind a load balancer. The order is that of [`LeftOut`]'s text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exclusion {
    /// The load balancer has this many targets already, and takes no more.
    OverLimit(usize),
    /// No cloud has initialised it.
    Uninitialized,
    /// It has no provider ID, so that its cloud is unknown.
    NoProviderId,
    /// Its machine is in another cloud.
    OtherCloud,
    /// The Service selects other Nodes.
    NotSelected,
    /// It is leaving, and its connections are drained.
    Leaving(Leaving),
}

/// Nodes that are not behind a load balancer, by reason. The text is the same for the same Nodes, in whatever order they come.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LeftOut(BTreeMap<Exclusion, Names>);

/// The first names in alphabetical order, and the number of all.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Names {
    first: Vec<NodeName>,
    count: usize,
}

impl LeftOut {
    /// Whether no Node is left out.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The reasons, each with the first names in alphabetical order and the number of all Nodes.
    pub fn reasons(&self) -> impl Iterator<Item = (Exclusion, &[NodeName], usize)> {
        self.0.iter().map(|(why, names)| (*why, names.first.as_slice(), names.count))
    }

    /// Whether Nodes are left out that would be targets if the load balancer took more.
    pub fn is_over_limit(&self) -> bool {
        self.0.keys().any(|why| matches!(why, Exclusion::OverLimit(_)))
    }
}

impl FromIterator<(Exclusion, NodeName)> for LeftOut {
    fn from_iter<I: IntoIterator<Item = (Exclusion, NodeName)>>(nodes: I) -> LeftOut {
        let mut by_reason: BTreeMap<Exclusion, Vec<NodeName>> = BTreeMap::new();
        for (why, name) in nodes {
            by_reason.entry(why).or_default().push(name);
        }
        let cut = |mut names: Vec<NodeName>| {
            let count = names.len();
            names.sort();
            names.truncate(NAMES);
            names.shrink_to_fit();
            Names { first: names, count }
        };
        LeftOut(by_reason.into_iter().map(|(why, names)| (why, cut(names))).collect())
    }
}

/// `n5, n6 (the load balancer takes at most 4 targets)`.
impl fmt::Display for LeftOut {
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
    fn names_are_sorted_and_cut_so_that_the_same_nodes_give_the_same_text() {
        let left_out = |names: &[u32]| {
            let named = names.iter().map(|number| (Exclusion::OverLimit(4), format!("n{number:02}").as_str().into()));
            named.collect::<LeftOut>()
        };
        assert_eq!(left_out(&[7, 5]).to_string(), "n05, n07 (the load balancer takes at most 4 targets)");
        assert_eq!(left_out(&[5, 7]), left_out(&[7, 5]));
        let many: Vec<u32> = (0..25).rev().collect();
        let text = left_out(&many).to_string();
        assert!(text.starts_with("n00, n01, ") && text.contains("n09 and 15 more ("), "{text}");
        assert!(left_out(&[1]).is_over_limit() && left_out(&[]).is_empty());
    }
}
