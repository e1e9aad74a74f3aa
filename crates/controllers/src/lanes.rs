//! Lanes for batches of Nodes: one for each cloud, and one for Nodes that may be any cloud's. A cloud that hangs fills its own
//! lane, and no Node of another cloud waits behind it.

use std::sync::Arc;

use bowline_cloud::Clouds;
use bowline_core::Node;
use tokio::sync::Semaphore;

/// The lanes of one controller.
pub(crate) struct Lanes {
    clouds: Clouds,
    /// Places for batches: of each cloud, in their order, and of Nodes without one.
    places: Vec<Arc<Semaphore>>,
}

impl Lanes {
    /// Lanes with room for this many batches each.
    pub(crate) fn new(clouds: &Clouds, batches: usize) -> Lanes {
        let places = (0..=clouds.iter().count()).map(|_| Arc::new(Semaphore::new(batches))).collect();
        Lanes { clouds: clouds.clone(), places }
    }

    /// Splits a batch by lane, each with the places that it has to wait for.
    pub(crate) fn split<W>(
        &self,
        batch: Vec<W>,
        node: impl Fn(&W) -> Option<Arc<Node>>,
    ) -> impl Iterator<Item = (Arc<Semaphore>, Vec<W>)> {
        let mut lanes: Vec<_> = self.places.iter().map(|places| (places.clone(), Vec::new())).collect();
        for work in batch {
            let lane = node(&work).and_then(|node| self.clouds.position(node.provider_id.as_ref()?));
            if let Some((_, lane)) = lanes.get_mut(lane.unwrap_or(self.places.len() - 1)) {
                lane.push(work);
            }
        }
        lanes.into_iter().filter(|(_, lane)| !lane.is_empty())
    }
}
