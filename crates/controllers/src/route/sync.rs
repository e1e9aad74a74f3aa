//! Sync of one Node: its routes, with all destinations in parallel, and then its condition.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bowline_cloud::{Error, ErrorKind, Result, Retry};
use bowline_core::routes::{self, NodePlan, Removal, RouteChange};
use bowline_core::{Node, NodeName, RouteSpec, format_duration, parse_cidr};
use bowline_kube::{EventType, ObjectRef, WriteError};
use bowline_runtime::{Priority, Shutdown};
use futures::future::join_all;

use super::state::{CloudState, is_unsupported};
use super::{DEBOUNCE, Fleet, Key, Shared};

/// Maximum number of attempts of a creation that meets conflicts (ROUTE-9), and the pause before a retry, with up to 100 % jitter.
const MAX_ATTEMPTS: u32 = 5;
const CONFLICT_PAUSE: Duration = Duration::from_millis(100);

/// Result of a sync.
#[derive(Debug, Default)]
pub(super) struct SyncResult {
    /// A route was created or deleted.
    pub(super) has_changed: bool,
    /// A desired route is missing.
    pub(super) is_missing: bool,
    /// The routes could not be listed.
    pub(super) is_unlisted: bool,
    /// A write failed and may have succeeded in the cloud, so that a new listing is needed.
    pub(super) is_unclear: bool,
    /// Shutdown cancelled the sync, so that the state of the routes is unknown.
    pub(super) is_cancelled: bool,
    /// Delay until the next sync although nothing failed.
    pub(super) resync_after: Option<Duration>,
    /// Retry advice of each failure.
    pub(super) failures: Vec<Retry>,
    /// First error, for the status page.
    pub(super) error: Option<String>,
}

/// When the key of a sync is synced again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Requeue {
    /// On the next change.
    OnChange,
    /// After the queue's back-off.
    Backoff,
    /// After this delay.
    After(Duration),
}

impl SyncResult {
    /// Returns when to sync again. A transient failure precedes a permanent one, and a delay from the cloud precedes the back-off.
    pub(super) fn requeue(&self) -> Requeue {
        let waits = self.failures.iter().filter_map(|retry| match retry {
            Retry::After(wait) => Some(*wait),
            Retry::Backoff | Retry::Never => None,
        });
        match waits.chain(self.resync_after).max() {
            Some(wait) => Requeue::After(wait),
            None if self.failures.contains(&Retry::Backoff) => Requeue::Backoff,
            None => Requeue::OnChange,
        }
    }

    pub(super) fn failed(retry: Retry, error: impl fmt::Display) -> SyncResult {
        SyncResult { failures: vec![retry], error: Some(error.to_string()), ..SyncResult::default() }
    }

    fn cloud_failed(error: &Error) -> SyncResult {
        SyncResult {
            is_unclear: is_unclear(error.kind()),
            is_cancelled: error.kind() == ErrorKind::Cancelled,
            ..SyncResult::failed(retry_advice(error), error)
        }
    }

    pub(super) fn listing_failed(error: &Error) -> SyncResult {
        SyncResult { is_unlisted: true, ..SyncResult::failed(error.retry_advice(), error) }
    }

    pub(super) fn merge(mut self, other: SyncResult) -> SyncResult {
        self.has_changed |= other.has_changed;
        self.is_missing |= other.is_missing;
        self.is_unclear |= other.is_unclear;
        self.is_cancelled |= other.is_cancelled;
        self.failures.extend(other.failures);
        self.error = self.error.or(other.error);
        self
    }
}

impl Shared {
    /// Syncs one Node. A deleted one is skipped, because its routes are orphans, and so is one that another cloud owns by now.
    pub(super) async fn sync_node(&self, state: &CloudState, name: &NodeName, shutdown: &Shutdown) -> SyncResult {
        let Some(node) = self.context.nodes.get(name.as_str()) else { return SyncResult::default() };
        if !self.owns(&state.cloud, &node) {
            return SyncResult::default();
        }
        // Shutdown cancels the read, but not writes.
        match shutdown.or(state.ensure_listed(Some(name))).await {
            Some(Ok(())) => {}
            Some(Err(error)) if is_unsupported(&error) => return SyncResult::default(),
            Some(Err(error)) => {
                tracing::warn!(%error, "error listing routes");
                return SyncResult::listing_failed(&error);
            }
            None => return SyncResult::default(),
        }
        let plan = self.plan(state, &node);
        self.report_invalid_cidrs(&node, &plan);
        let changes = join_all(plan.changes.iter().map(|change| self.apply_change(state, &node, change))).await;
        let result = changes.into_iter().fold(SyncResult::default(), SyncResult::merge);
        if result.is_unclear {
            state.invalidate(Some(name));
        }
        self.metrics.set_routes(state.cloud.name(), state.read(|table| table.len()));
        let reported = self.report(state, &node, &plan, &result).await;
        self.queue_orphans_of_deleted(state, &node, &result);
        result.merge(reported)
    }

    /// Reports the state of its routes on the Node, if that is known.
    async fn report(&self, state: &CloudState, node: &Node, plan: &NodePlan, result: &SyncResult) -> SyncResult {
        if result.is_cancelled {
            return SyncResult::default();
        }
        let is_complete = plan.is_complete() && !result.is_missing;
        if is_complete {
            self.forget_reports(node);
        }
        self.write_condition(state, node, is_complete, plan.has_route()).await
    }

    /// Queues the orphans if the Node was deleted during its sync: routes created for it are left behind.
    fn queue_orphans_of_deleted(&self, state: &CloudState, node: &Node, result: &SyncResult) {
        if self.context.nodes.get(node.name.as_str()).is_some() {
            return;
        }
        self.forget_reports(node);
        // In periodic mode, the next period covers it.
        if self.is_watching() && (result.has_changed || result.is_unclear) {
            state.queue.add_after(Key::Orphans, DEBOUNCE, Priority::Low);
        }
    }

    /// Plans the routes of this Node.
    pub(super) fn plan(&self, state: &CloudState, node: &Node) -> NodePlan {
        let fleet = Fleet::from_store(&self.context.nodes, &self.context.clouds, &state.cloud);
        let plan = state.read(|table| routes::decide(&self.route_context(table, &fleet), node));
        state.claim(plan.route_ids.clone());
        plan
    }

    /// Applies the changes of one destination: deletions first, and then the creation (ROUTE-8). A failed deletion prevents the
    /// creation.
    async fn apply_change(&self, state: &CloudState, node: &Node, change: &RouteChange) -> SyncResult {
        let _lock = state.lock_destination(change.destination).await;
        let mut result = SyncResult::default();
        for removal in &change.remove {
            result = result.merge(self.delete(state, removal).await);
            state.queue.record_progress();
        }
        if let Some(spec) = &change.create {
            if result.failures.is_empty() {
                result = result.merge(self.create(state, node, spec).await);
            }
            result.is_missing = !result.failures.is_empty();
        }
        result
    }

    pub(super) async fn delete(&self, state: &CloudState, Removal { route, reason }: &Removal) -> SyncResult {
        let (cloud, cidr) = (state.cloud.name(), route.destination);
        match state.delete(route).await {
            Ok(has_changed) => {
                if has_changed && !self.context.cluster.is_dry_run() {
                    tracing::info!(%cloud, %cidr, id = route.id, ?reason, "deleted a route");
                }
                SyncResult { has_changed, ..SyncResult::default() }
            }
            Err(error) => {
                tracing::warn!(%cloud, %cidr, id = route.id, %error, "failed to delete a route");
                SyncResult { is_unclear: true, ..SyncResult::cloud_failed(&error) }
            }
        }
    }

    async fn create(&self, state: &CloudState, node: &Node, spec: &RouteSpec) -> SyncResult {
        let begin = self.context.clock.instant();
        match create_with_retries(state, spec).await {
            Ok(()) => {
                self.reported.forget(&(node.name.clone(), Some(spec.destination)));
                if !self.context.cluster.is_dry_run() {
                    tracing::info!(node = %node.name, cidr = %spec.destination, "created a route");
                }
                SyncResult { has_changed: true, ..SyncResult::default() }
            }
            Err(error) if error.kind() == ErrorKind::ImplementedElsewhere => SyncResult::default(),
            Err(error) => {
                let took = self.context.clock.instant().saturating_duration_since(begin);
                self.report_failure(node, spec, took, &error);
                SyncResult::cloud_failed(&error)
            }
        }
    }

    /// Writes the condition NetworkUnavailable of the Node (ROUTE-11 to ROUTE-13).
    async fn write_condition(&self, state: &CloudState, node: &Node, is_complete: bool, has_route: bool) -> SyncResult {
        // The Node may have changed while its routes were written; that change triggers another sync.
        let is_unchanged = |current: &Arc<Node>| {
            current.uid == node.uid && current.pod_cidrs == node.pod_cidrs && self.owns(&state.cloud, current)
        };
        let current = self.context.nodes.get(node.name.as_str()).filter(is_unchanged);
        let Some(node) = current else { return SyncResult::default() };
        let Some(status) = routes::network_status(&node, is_complete, has_route) else { return SyncResult::default() };
        self.written().insert(node.name.clone(), status);
        match self.context.cluster.set_network(&node, &status, self.context.clock.now()).await {
            Ok(_) => SyncResult::default(),
            Err(WriteError::NotFound(_)) => {
                // The event handler of the deletion may have run before the insertion above.
                self.written().remove(&node.name);
                SyncResult::default()
            }
            Err(error) => {
                tracing::warn!(node = %node.name, %error, "failed to write the node's condition");
                SyncResult::failed(Retry::Backoff, error)
            }
        }
    }

    // ---- report: each cause once

    fn report_failure(&self, node: &Node, spec: &RouteSpec, took: Duration, error: &Error) {
        let (key, kind) = ((node.name.clone(), Some(spec.destination)), error.kind());
        // An uninitialised Node usually has no addresses yet, and is synced again when it gets them.
        let is_early = node.is_uninitialized();
        let is_failure = !is_early && !matches!(kind, ErrorKind::Cancelled | ErrorKind::InProgress);
        if !is_failure || !self.reported.is_new(&key, &node.uid, kind.as_str()) {
            return tracing::debug!(node = %node.name, %error, "failed to create a route");
        }
        let (range, took) = (spec.destination, format_duration(took));
        let mut message =
            format!("Could not create route {} {range} for node {} after {took}: {error}", spec.name_hint, node.name);
        if !kind.advice().is_empty() {
            message = kind.with_advice(&message);
        }
        self.events.emit(&ObjectRef::node(node), EventType::Warning, "FailedToCreateRoute", message);
    }

    fn report_invalid_cidrs(&self, node: &Node, plan: &NodePlan) {
        let cause = plan.invalid_cidrs.join(" ");
        if !cause.is_empty() && self.reported.is_new(&(node.name.clone(), None), &node.uid, &cause) {
            let message = format!("Could not create routes for invalid spec.podCIDRs: {cause}");
            self.events.emit(&ObjectRef::node(node), EventType::Warning, "FailedToCreateRoute", message);
        }
    }

    /// Forgets what was reported about a Node that has all routes or is deleted.
    pub(super) fn forget_reports(&self, node: &Node) {
        let ranges = node.pod_cidrs.iter().filter_map(|text| parse_cidr(text)).map(Some);
        ranges.chain([None]).for_each(|range| self.reported.forget(&(node.name.clone(), range)));
    }
}

/// Whether a creation that failed with this kind may have succeeded, or shows that the cached table is incomplete.
fn is_unclear(kind: ErrorKind) -> bool {
    match kind {
        ErrorKind::AlreadyExists
        | ErrorKind::Conflict
        | ErrorKind::RateLimited
        | ErrorKind::InProgress
        | ErrorKind::Unavailable
        | ErrorKind::Cancelled
        | ErrorKind::Unexpected => true,
        ErrorKind::NotFound
        | ErrorKind::QuotaExceeded
        | ErrorKind::Unauthenticated
        | ErrorKind::PermissionDenied
        | ErrorKind::InvalidConfig
        | ErrorKind::Unsupported
        | ErrorKind::ImplementedElsewhere => false,
    }
}

/// Retry advice for this error. A destination that exists in the cloud but not in the cached table is retried.
fn retry_advice(error: &Error) -> Retry {
    match error.kind() {
        ErrorKind::AlreadyExists => Retry::Backoff,
        _ => error.retry_advice(),
    }
}

/// Creates a route, with immediate retries if another client writes at the same time (ROUTE-9).
async fn create_with_retries(state: &CloudState, spec: &RouteSpec) -> Result<()> {
    for _ in 1..MAX_ATTEMPTS {
        match state.create(spec).await {
            Err(error) if error.kind() == ErrorKind::Conflict => {
                tokio::time::sleep(CONFLICT_PAUSE + CONFLICT_PAUSE.mul_f64(fastrand::f64())).await;
            }
            answer => return answer,
        }
    }
    state.create(spec).await
}
