//! Concurrency limits for batches of Nodes: one lane per cloud, and one for Nodes without a provider ID. A cloud that hangs blocks
//! its own lane only.

use std::sync::Arc;

use bowline_cloud::Clouds;
use bowline_core::Node;
use tokio::sync::Semaphore;

/// The lanes of one controller.
pub(crate) struct Lanes {
    clouds: Clouds,
    /// Permits for batches: one semaphore per cloud, in their order, and one for Nodes without a cloud.
    permits: Vec<Arc<Semaphore>>,
}

impl Lanes {
    /// Creates lanes with this many concurrent batches each.
    pub(crate) fn new(clouds: &Clouds, batches: usize) -> Lanes {
        let permits = (0..=clouds.iter().count()).map(|_| Arc::new(Semaphore::new(batches))).collect();
        Lanes { clouds: clouds.clone(), permits }
    }

    /// Splits a batch by lane. Each part comes with the semaphore that limits its lane.
    pub(crate) fn split<W>(
        &self,
        batch: Vec<W>,
        node: impl Fn(&W) -> Option<Arc<Node>>,
    ) -> impl Iterator<Item = (Arc<Semaphore>, Vec<W>)> {
        let mut lanes: Vec<_> = self.permits.iter().map(|permits| (permits.clone(), Vec::new())).collect();
        for work in batch {
            let lane = node(&work).and_then(|node| self.clouds.position(node.provider_id.as_ref()?));
            if let Some((_, lane)) = lanes.get_mut(lane.unwrap_or(self.permits.len() - 1)) {
                lane.push(work);
            }
        }
        lanes.into_iter().filter(|(_, lane)| !lane.is_empty())
    }
}
