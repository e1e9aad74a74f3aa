//! How often the cloud is asked about a Node that stays not ready.
//!
//! A Node that has just stopped being Ready is asked about at once. After that, answers last the longer, the more Nodes
//! there are to ask about, so that a large outage costs about one call a second and a small one is still watched closely.
//! Only "it exists" ever lasts: that a machine is gone is not answered from memory.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bowline_cloud::Freshness;
use bowline_core::Node;

/// How old an answer may be at most that was not asked for anew: what another loop has just read will do.
const PROMPT: Duration = Duration::from_secs(5);

/// About so many machines are answered about per call.
const PER_CALL: usize = 100;

/// The longest that an answer lasts.
const LONGEST: Duration = Duration::from_secs(60);

/// The Nodes that were asked about in the last pass, by UID.
#[derive(Default)]
pub(super) struct Pace {
    asked: HashSet<String>,
}

/// Nodes to ask about, and how old the answers may be.
pub(super) struct Group {
    pub(super) nodes: Vec<Arc<Node>>,
    pub(super) freshness: Freshness,
}

impl Pace {
    /// Those that are new to this, and those that are not.
    pub(super) fn groups(&mut self, ask: Vec<Arc<Node>>, period: Duration) -> [Group; 2] {
        let asked = ask.iter().map(|node| node.uid.clone()).collect();
        let before = std::mem::replace(&mut self.asked, asked);
        let (known, new): (Vec<_>, Vec<_>) = ask.into_iter().partition(|node| before.contains(&node.uid));
        let prompt = PROMPT.min(period / 2);
        let patient = prompt.max(Duration::from_secs((known.len() / PER_CALL) as u64)).min(LONGEST);
        [
            Group { nodes: new, freshness: Freshness::Within(prompt) },
            Group { nodes: known, freshness: Freshness::Within(patient) },
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bowline_core::testing::node;

    fn nodes(count: usize) -> Vec<Arc<Node>> {
        (0..count).map(|index| Arc::new(node(&format!("node{index}")))).collect()
    }

    fn bounds(count: usize) -> [(usize, Freshness); 2] {
        let mut pace = Pace::default();
        pace.groups(nodes(count), Duration::from_secs(5));
        pace.groups(nodes(count + 1), Duration::from_secs(5)).map(|group| (group.nodes.len(), group.freshness))
    }

    #[test]
    fn a_node_is_new_once_and_answers_about_many_last_longer() {
        let prompt = Freshness::Within(Duration::from_millis(2500));
        assert_eq!(bounds(99), [(1, prompt), (99, prompt)]);
        assert_eq!(bounds(1000), [(1, prompt), (1000, Freshness::Within(Duration::from_secs(10)))]);
        assert_eq!(bounds(20_000), [(1, prompt), (20_000, Freshness::Within(LONGEST))]);
    }

    #[test]
    fn a_node_that_was_ready_in_between_is_new_again() {
        let mut pace = Pace::default();
        pace.groups(nodes(2), Duration::from_secs(5));
        pace.groups(nodes(1), Duration::from_secs(5));
        let [new, known] = pace.groups(nodes(2), Duration::from_secs(5));
        assert_eq!((new.nodes.len(), known.nodes.len()), (1, 1));
    }
}
