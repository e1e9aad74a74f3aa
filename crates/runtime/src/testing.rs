//! For tests of what a process does after it stood still.

use std::time::{Duration, Instant};

/// Rounds in which other tasks go on after the pause, before the work does.
const ROUNDS: usize = 5;

/// Polls `work` once and then after each of `hops` rounds of the runtime, so that it is handed from task to task; then the whole
/// thread stands still for `pause`. The tasks that `work` was handed to go on first, and `work` last. Returns when the pause
/// began. For a runtime of one thread.
pub async fn stand_still_within(work: impl Future, hops: usize, pause: Duration) -> Instant {
    let mut work = std::pin::pin!(work);
    let mut has_ended = futures::poll!(&mut work).is_ready();
    for _ in 0..hops {
        tokio::task::yield_now().await;
        has_ended = has_ended || futures::poll!(&mut work).is_ready();
    }
    let stopped = Instant::now();
    std::thread::sleep(pause);
    for _ in 0..ROUNDS {
        tokio::task::yield_now().await;
    }
    if !has_ended {
        work.await;
    }
    stopped
}
