//! Outcome of the sync of a Node, and how it is requeued.

use std::time::Duration;

use bowline_core::{Node, NodeName};
use bowline_kube::Store;
use bowline_runtime::{Priority, Queue, Work};

use crate::reports::Reports;
use crate::spans;

/// Outcome of the sync of one Node.
pub(crate) enum Outcome {
    /// The sync succeeded; the next change of the Node triggers another one.
    Done,
    /// The sync failed and is retried with back-off.
    Retry(String),
    /// The sync failed and is retried after this delay.
    RetryAfter(Duration, String),
    /// The Node is not ready to be synced, and is requeued after this delay.
    Rest(Duration),
}

/// Queue of a controller's Nodes, and the failures that were logged.
pub(crate) struct Requeuer<'a> {
    /// The controller's name.
    pub(crate) controller: &'static str,
    pub(crate) queue: &'a Queue<NodeName>,
    pub(crate) failures: &'a Reports<NodeName>,
    pub(crate) nodes: &'a Store<Node>,
}

impl Requeuer<'_> {
    /// Requeues the key by the outcome of its sync (NODE-2). Dropping `work` releases the key, so the retry is queued before that.
    pub(crate) fn finish(&self, work: &Work<NodeName>, outcome: Outcome) {
        let key = work.key();
        match outcome {
            Outcome::Done => {
                spans::ended("done");
                self.queue.forget(key);
                self.failures.forget(key);
            }
            Outcome::Retry(error) => {
                work.failed(&error);
                let wait = self.queue.retry(key.clone());
                self.log_failure(key, wait, &error);
            }
            Outcome::RetryAfter(delay, error) => {
                work.failed(&error);
                self.queue.add_after(key.clone(), delay, Priority::Low);
                self.log_failure(key, delay, &error);
            }
            Outcome::Rest(delay) => {
                spans::ended("rest");
                self.queue.forget(key);
                self.queue.add_after(key.clone(), delay, Priority::Low);
            }
        }
    }

    /// Logs a failure as a warning only if it is new: a cloud outage of an hour, or an exhausted cluster CIDR, fails the syncs of
    /// a thousand Nodes over and over.
    fn log_failure(&self, key: &NodeName, wait: Duration, error: &str) {
        let node = self.nodes.get(key.as_str());
        if node.is_none_or(|node| self.failures.is_new(&node.name, &node.uid, error)) {
            tracing::warn!(controller = self.controller, %key, ?wait, "error syncing '{key}': {error}, requeuing");
        } else {
            tracing::debug!(controller = self.controller, %key, ?wait, "error syncing '{key}': {error}, requeuing");
        }
        spans::failed("retry", &error);
    }
}
