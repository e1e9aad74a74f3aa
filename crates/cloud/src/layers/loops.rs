//! Runs of a provider's background loops.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt as _;

use crate::layers::Layered;
use crate::{ClusterSnapshot, Error, ErrorKind, LoopOutcome, ProviderLoop, Result};

impl Layered {
    /// Returns the background loops of the provider.
    pub fn loops(&self) -> Vec<Arc<dyn ProviderLoop>> {
        self.provider.loops()
    }

    /// Runs the loop of this name once. Fails until the cloud has started; a panic of the loop is returned as an error.
    pub async fn sync_loop(&self, name: &str, cluster: &ClusterSnapshot) -> Result<LoopOutcome> {
        self.starter.ready().await?;
        // The provider may have been rebuilt since the last run, so its loops are looked up each time.
        let Some(found) = self.loops().into_iter().find(|found| found.name() == name) else {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "sync",
                format!("the provider no longer has a loop {name}"),
            ));
        };
        let cluster = &ClusterSnapshot { dry_run: self.is_dry_run(), ..cluster.clone() };
        match AssertUnwindSafe(found.sync(cluster)).catch_unwind().await {
            Ok(Err(error)) if cluster.dry_run && error.kind() == ErrorKind::Cancelled => {
                Ok(LoopOutcome::new(format!("dry run: stopped before the first write: {error}")))
            }
            Ok(outcome) => outcome,
            Err(_) => Err(Error::new(ErrorKind::Unexpected, "sync", "the loop panicked; see the log")),
        }
    }
}
