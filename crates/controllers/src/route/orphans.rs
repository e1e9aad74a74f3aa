//! Orphans: routes without a Node. They are deleted unless the brake holds them back.

use std::sync::{Arc, PoisonError};

use bowline_core::Node;
use bowline_core::routes::{self, Brake, BrakeDecision, HoldReason, Removal};
use bowline_runtime::{Priority, Shutdown};
use futures::stream::{self, StreamExt as _};

use super::state::CloudState;
use super::sync::SyncResult;
use super::{Fleet, Key, Shared};

/// Orphans, and the numbers that the brake needs.
struct Orphans {
    orphans: Vec<Removal>,
    /// Number of routes that this cluster owns, orphans included.
    total: usize,
    /// Number of Nodes.
    nodes: usize,
}

impl Shared {
    /// Syncs the orphans of a cloud.
    pub(super) async fn sync_orphans(&self, state: &CloudState, shutdown: &Shutdown) -> SyncResult {
        match shutdown.or(state.ensure_listed(None)).await {
            Some(Ok(())) => {}
            Some(Err(error)) => return SyncResult::listing_failed(&error),
            None => return SyncResult::default(),
        }
        let fleet = Fleet::from_store(&self.context.nodes, &self.context.clouds, &state.cloud);
        let observed = self.observe_orphans(state, &fleet);
        match state.with_brake(|brake| brake.check(observed.orphans.len(), observed.total, observed.nodes)) {
            BrakeDecision::Allow => self.delete_orphans(state, observed.orphans, shutdown).await,
            BrakeDecision::Hold(reason) => self.hold(state, &reason),
            BrakeDecision::Confirm => self.confirm(state, shutdown).await,
        }
    }

    /// Confirms with a fresh list from the API server that the Nodes are gone, because many routes would be deleted.
    async fn confirm(&self, state: &CloudState, shutdown: &Shutdown) -> SyncResult {
        let nodes: Vec<Arc<Node>> = match shutdown.or(self.context.cluster.list_nodes()).await {
            Some(Ok(nodes)) => nodes,
            Some(Err(error)) => {
                tracing::warn!(%error, "cannot list nodes to confirm the deletion of routes; the routes are kept");
                return SyncResult::failed(bowline_cloud::Retry::Backoff, error);
            }
            None => return SyncResult::default(),
        };
        let observed = self.observe_orphans(state, &Fleet::from_list(&nodes, &self.context.clouds, &state.cloud));
        let now = self.context.clock.instant();
        match state.with_brake(|brake| brake.confirm(observed.orphans.len(), observed.total, observed.nodes, now)) {
            BrakeDecision::Hold(reason) => self.hold(state, &reason),
            BrakeDecision::Allow | BrakeDecision::Confirm => {
                self.delete_orphans(state, observed.orphans, shutdown).await
            }
        }
    }

    fn observe_orphans(&self, state: &CloudState, fleet: &Fleet<'_>) -> Orphans {
        state.read(|table| {
            let route_context = self.route_context(table, fleet);
            Orphans {
                orphans: routes::orphans(&route_context),
                total: route_context.responsible_count(),
                nodes: fleet.len(),
            }
        })
    }

    async fn delete_orphans(&self, state: &CloudState, orphans: Vec<Removal>, shutdown: &Shutdown) -> SyncResult {
        self.release(state);
        // Shutdown stops new deletions; the next leader continues.
        let orphans = orphans.into_iter().take_while(|_| !shutdown.is_requested());
        let ended: Vec<(Removal, SyncResult)> = stream::iter(orphans)
            .map(|orphan| self.delete_orphan(state, orphan))
            .buffer_unordered(state.max_parallel())
            .collect()
            .await;
        let (removed, result): (Vec<Removal>, Vec<SyncResult>) = ended.into_iter().unzip();
        let result = result.into_iter().fold(SyncResult::default(), SyncResult::merge);
        if !result.failures.is_empty() {
            state.invalidate(None);
        }
        self.metrics.set_routes(state.cloud.name(), state.read(|table| table.len()));
        self.requeue_returned_nodes(state, &removed);
        result
    }

    /// Deletes an orphan, unless its Node was recreated meanwhile.
    async fn delete_orphan(&self, state: &CloudState, orphan: Removal) -> (Removal, SyncResult) {
        let _lock = state.lock_destination(orphan.route.destination.trunc()).await;
        let result = match orphan.route.node.as_ref().and_then(|name| self.context.nodes.get(name.as_str())) {
            Some(_) => SyncResult::default(),
            None => self.delete(state, &orphan).await,
        };
        state.queue.record_progress();
        (orphan, result)
    }

    /// Requeues Nodes that were recreated while their routes were being deleted: their sync may have seen the old routes.
    fn requeue_returned_nodes(&self, state: &CloudState, removed: &[Removal]) {
        let fleet = Fleet::from_store(&self.context.nodes, &self.context.clouds, &state.cloud);
        let returned = state.read(|table| {
            let route_context = self.route_context(table, &fleet);
            removed.iter().filter_map(|orphan| route_context.target_node(&orphan.route)).collect::<Vec<_>>()
        });
        // In periodic mode, the next period covers it.
        if self.is_watching() {
            returned.iter().for_each(|node| state.queue.add(Key::Node(node.name.clone()), Priority::High));
        }
    }

    fn hold(&self, state: &CloudState, reason: &HoldReason) -> SyncResult {
        if state.hold(Some(reason)) {
            tracing::warn!(cloud = %state.cloud.name(), %reason, "the deletion of routes of missing nodes is held back");
        }
        self.metrics.set_held(state.cloud.name(), Some(reason));
        let resync_after = match reason {
            HoldReason::Many { again_in, .. } => Some(*again_in),
            // Only a new Node changes that.
            HoldReason::NoNodes { .. } => None,
        };
        SyncResult { resync_after, error: Some(reason.to_string()), ..SyncResult::default() }
    }

    fn release(&self, state: &CloudState) {
        state.hold(None);
        self.metrics.set_held(state.cloud.name(), None);
    }
}

impl CloudState {
    fn with_brake<T>(&self, action: impl FnOnce(&mut Brake) -> T) -> T {
        action(&mut self.brake.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
