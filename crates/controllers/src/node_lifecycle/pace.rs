//! Polling rate for the machines of Nodes that stay not ready.
//!
//! The machine of a Node that has just become not ready is read at once. After that, the maximum age of an answer grows with the
//! number of such Nodes, so that a large outage costs about one call per second and a small one is still observed closely. Only
//! the answer "exists" is ever cached, never "gone".

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bowline_cloud::Freshness;
use bowline_core::Node;

/// Maximum age of an answer for a Node that has just become not ready, so that the read of another loop is reused.
const PROMPT: Duration = Duration::from_secs(5);

/// Approximate number of machines per call.
const PER_CALL: usize = 100;

/// Upper limit for the age of an answer.
const LONGEST: Duration = Duration::from_secs(60);

/// Nodes whose machines were read in the last sync, by UID.
#[derive(Default)]
pub(super) struct Pace {
    asked: HashSet<String>,
}

/// Nodes whose machines are to be read, with the maximum age of the answers.
pub(super) struct Group {
    pub(super) nodes: Vec<Arc<Node>>,
    pub(super) freshness: Freshness,
}

impl Pace {
    /// Splits the Nodes into those that were not read in the last sync, and the rest.
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
    fn a_node_is_new_once_and_answers_for_many_nodes_are_cached_longer() {
        let prompt = Freshness::Within(Duration::from_millis(2500));
        assert_eq!(bounds(99), [(1, prompt), (99, prompt)]);
        assert_eq!(bounds(1000), [(1, prompt), (1000, Freshness::Within(Duration::from_secs(10)))]);
        assert_eq!(bounds(20_000), [(1, prompt), (20_000, Freshness::Within(LONGEST))]);
    }

    #[test]
    fn a_node_that_was_ready_meanwhile_is_new_again() {
        let mut pace = Pace::default();
        pace.groups(nodes(2), Duration::from_secs(5));
        pace.groups(nodes(1), Duration::from_secs(5));
        let [new, known] = pace.groups(nodes(2), Duration::from_secs(5));
        assert_eq!((new.nodes.len(), known.nodes.len()), (1, 1));
    }
}
