//! Contribution to the console: work of each Node, and what an uninitialised Node waits for.

use bowline_console::document::{self, Document, Health, Level, Work};
use bowline_core::Node;
use bowline_runtime::{Anchor, Component as _};

use super::{NAME, QUEUE, Shared};
use crate::backlog::PENDING;
use crate::console::{add_loops, add_queue, loop_item, with_next_try};

/// Reason of a Node whose machine could not be read. The report of such a Node has the kind of the error alone.
pub(super) const CLOUD_UNAVAILABLE: &str = "CloudUnavailable";

impl Shared {
    pub(super) fn fill(&self, document: &mut Document, anchor: Anchor) {
        for (name, work) in add_queue(document, QUEUE, &self.queue, anchor) {
            if let Some(item) = document.node.get_mut(name.as_str()) {
                item.work.insert(NAME.to_owned(), work);
            }
        }
        for node in self.context.nodes.all() {
            if let Some(item) = document.node.get_mut(node.name.as_str()).filter(|item| item.uninitialized) {
                self.explain(&node, item);
            }
        }
        let addresses = loop_item(self.addresses.snapshot(), self.addresses.health(), anchor);
        add_loops(document, NAME, [("addresses".to_owned(), addresses)]);
    }

    /// Says what an uninitialised Node waits for, if it is not only its turn.
    fn explain(&self, node: &Node, item: &mut document::Node) {
        let work = item.work.get(NAME).cloned().unwrap_or_default();
        let reason = self.metrics.waiting.reason(&node.name).filter(|reason| reason != PENDING);
        if let Some(message) = self.cause(node, reason.as_deref(), &work) {
            let reason = reason.unwrap_or_else(|| "NotOurNode".to_owned());
            item.health.worsen(Health::new(Level::Warning, reason, with_next_try(&message, &work)));
        }
    }

    fn cause(&self, node: &Node, reason: Option<&str>, work: &Work) -> Option<String> {
        if reason == Some(CLOUD_UNAVAILABLE) {
            let error = work.error.as_deref().unwrap_or("its machine cannot be read");
            return Some(format!("The node stays uninitialized until the cloud provider responds: {error}"));
        }
        self.reported.cause(&node.name, &node.uid).or_else(|| work.error.clone())
    }
}
