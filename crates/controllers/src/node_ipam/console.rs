//! Contribution to the console: work of each Node, and Nodes without pod CIDRs.

use bowline_console::document::{self, Document, Health, Level};
use bowline_runtime::Anchor;

use super::{NAME, QUEUE, Shared};
use crate::console::{add_queue, with_next_try};

impl Shared {
    pub(super) fn fill(&self, document: &mut Document, anchor: Anchor) {
        for (name, work) in add_queue(document, QUEUE, &self.queue, anchor) {
            if let Some(item) = document.node.get_mut(name.as_str()) {
                item.work.insert(NAME.to_owned(), work);
            }
        }
        let without = |item: &&mut document::Node| item.pod_cidrs.is_empty() && !item.deleting && !item.paused;
        for item in document.node.values_mut().filter(without) {
            let failed = item.work.get(NAME).and_then(|work| Some((work, work.error.as_deref()?)));
            item.health.worsen(match failed {
                Some((work, error)) => {
                    let message = with_next_try(&format!("The Node has no pod CIDR: {error}"), work);
                    Health::new(Level::Warning, "NoPodCidr", message)
                }
                None => {
                    let message = "The Node waits for its pod CIDRs, which the node-ipam-controller allocates.";
                    Health::new(Level::Progressing, "NoPodCidr", message)
                }
            });
        }
    }
}
