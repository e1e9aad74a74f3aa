//! What became of a Node, and what that means for its place in the queue.

use std::time::Duration;

use bowline_core::{Node, NodeName};
use bowline_kube::Store;
use bowline_runtime::{Priority, Queue, Work};

use crate::complaints::Complaints;
use crate::spans;

/// What became of one Node.
pub(crate) enum Outcome {
    /// Nothing is left to do until it changes.
    Done,
    /// It failed; it gets further tries, later and later.
    Retry(String),
    /// It failed; it gets another try after this long.
    RetryAfter(Duration, String),
    /// It is left alone, and looked at again after this long.
    Rest(Duration),
}

/// Where the Nodes of a controller wait for their next try, and what went wrong with them.
pub(crate) struct Tries<'a> {
    /// The controller's name.
    pub(crate) controller: &'static str,
    pub(crate) queue: &'a Queue<NodeName>,
    pub(crate) failures: &'a Complaints<NodeName>,
    pub(crate) nodes: &'a Store<Node>,
}

impl Tries<'_> {
    /// What becomes of the key (NODE-2). The work is done when `work` is dropped, so the next try is queued before.
    pub(crate) fn settle(&self, work: &Work<NodeName>, outcome: Outcome) {
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

    /// A failure is told when it is new: a cloud that is away for an hour, or a range that is full, fails a thousand Nodes
    /// again and again.
    fn log_failure(&self, key: &NodeName, wait: Duration, error: &str) {
        let node = self.nodes.get(key.as_str());
        if node.is_none_or(|node| self.failures.is_news(&node.name, &node.uid, error)) {
            tracing::warn!(controller = self.controller, %key, ?wait, "error syncing '{key}': {error}, requeuing");
        } else {
            tracing::debug!(controller = self.controller, %key, ?wait, "error syncing '{key}': {error}, requeuing");
        }
        spans::failed("retry", &error);
    }
}
