//! Graceful shutdown.

use tokio_util::sync::CancellationToken;

/// Signal for graceful shutdown. Clones share their state.
#[derive(Debug, Clone, Default)]
pub struct Shutdown(CancellationToken);

impl Shutdown {
    /// Creates a signal that has not been requested.
    pub fn new() -> Shutdown {
        Shutdown::default()
    }

    /// Requests shutdown.
    pub fn request(&self) {
        self.0.cancel();
    }

    /// Returns whether shutdown was requested.
    pub fn is_requested(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Waits until shutdown is requested.
    pub async fn requested(&self) {
        self.0.cancelled().await;
    }

    /// Runs `work` until it ends or shutdown is requested; `None` in the second case, in which `work` is dropped.
    pub async fn or<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        self.0.run_until_cancelled(work).await
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::{Instant, sleep};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn work_runs_until_shutdown_is_requested() {
        let (shutdown, start) = (Shutdown::new(), Instant::now());
        assert_eq!(shutdown.or(async { 7 }).await, Some(7));
        let requester = shutdown.clone();
        tokio::spawn(async move {
            sleep(Duration::from_secs(3)).await;
            requester.request();
        });
        assert_eq!(shutdown.or(sleep(Duration::from_secs(60))).await, None);
        assert_eq!(start.elapsed(), Duration::from_secs(3));
    }

    #[tokio::test]
    async fn work_does_not_start_after_shutdown_was_requested() {
        let shutdown = Shutdown::new();
        assert!(!shutdown.is_requested());
        shutdown.request();
        assert!(shutdown.is_requested());
        shutdown.requested().await;
        let mut started = false;
        assert_eq!(shutdown.or(async { started = true }).await, None);
        assert!(!started);
    }
}
