//! What became of a Node, and what that means for the queue.

use std::time::Duration;

use bowline_core::NodeName;
use bowline_runtime::{Priority, Work};

use super::Shared;

/// What became of one Node.
pub(super) enum Outcome {
    /// Nothing is left to do until it changes.
    Done,
    /// It failed; it gets further tries, later and later.
    Retry(String),
    /// It failed; it gets another try after this long.
    RetryAfter(Duration, String),
}

/// What becomes of the key. The work is done when `work` is dropped, so the next try is queued before.
pub(super) fn settle(shared: &Shared, work: &Work<NodeName>, outcome: Outcome) {
    let key = work.key();
    shared.pass_on(key);
    match outcome {
        Outcome::Done => {
            shared.queue.forget(key);
            shared.failures.forget(key);
        }
        Outcome::Retry(error) => {
            let wait = shared.queue.retry(key.clone());
            log_failure(shared, key, wait, &error);
        }
        Outcome::RetryAfter(delay, error) => {
            shared.queue.add_after(key.clone(), delay, Priority::Low);
            log_failure(shared, key, delay, &error);
        }
    }
}

/// A failure is told when it is new: a range that is full fails the same Nodes again and again.
fn log_failure(shared: &Shared, key: &NodeName, wait: Duration, error: &str) {
    let node = shared.context.nodes.get(key.as_str());
    if node.is_none_or(|node| shared.failures.is_news(&node.name, &node.uid, error)) {
        tracing::warn!(controller = super::NAME, key = %key, ?wait, "error syncing '{key}': {error}, requeuing");
    } else {
        tracing::debug!(controller = super::NAME, key = %key, ?wait, "error syncing '{key}': {error}, requeuing");
    }
}
