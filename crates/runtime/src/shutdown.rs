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
