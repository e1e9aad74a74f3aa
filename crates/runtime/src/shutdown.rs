//! The wish to end.

use tokio_util::sync::CancellationToken;

/// The wish to end. Clones are the same wish.
#[derive(Debug, Clone, Default)]
pub struct Shutdown(CancellationToken);

impl Shutdown {
    /// Nobody wishes to end yet.
    pub fn new() -> Shutdown {
        Shutdown::default()
    }

    /// From now on, everybody should end.
    pub fn request(&self) {
        self.0.cancel();
    }

    /// Somebody wishes to end.
    pub fn is_requested(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Waits for the wish.
    pub async fn requested(&self) {
        self.0.cancelled().await;
    }

    /// Runs `work` until it ends or the wish comes; `None` in the second case, with `work` dropped where it was.
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
    async fn work_runs_until_the_wish_comes() {
        let (shutdown, start) = (Shutdown::new(), Instant::now());
        assert_eq!(shutdown.or(async { 7 }).await, Some(7));
        let desired = shutdown.clone();
        tokio::spawn(async move {
            sleep(Duration::from_secs(3)).await;
            desired.request();
        });
        assert_eq!(shutdown.or(sleep(Duration::from_secs(60))).await, None);
        assert_eq!(start.elapsed(), Duration::from_secs(3));
    }

    #[tokio::test]
    async fn work_does_not_start_after_the_wish() {
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
