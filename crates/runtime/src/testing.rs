//! Test helpers that simulate a suspended process.

use std::time::{Duration, Instant};

/// Number of times that other tasks are scheduled after the pause, before the work continues.
const ROUNDS: usize = 5;

/// Polls `work` once and then after each of `hops` yields, so that it is passed from task to task, and then blocks the whole thread
/// for `pause`. Afterwards the tasks that `work` was passed to continue first, and `work` last. Returns the start of the pause.
/// Requires a single-threaded runtime.
pub async fn block_thread_during(work: impl Future, hops: usize, pause: Duration) -> Instant {
    let mut work = std::pin::pin!(work);
    let mut has_ended = futures::poll!(&mut work).is_ready();
    for _ in 0..hops {
        tokio::task::yield_now().await;
        has_ended = has_ended || futures::poll!(&mut work).is_ready();
    }
    let blocked_at = Instant::now();
    std::thread::sleep(pause);
    for _ in 0..ROUNDS {
        tokio::task::yield_now().await;
    }
    if !has_ended {
        work.await;
    }
    blocked_at
}
