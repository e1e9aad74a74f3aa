//! Refresh: compares all Nodes with the cloud, at the start and then periodically.

use std::sync::Arc;
use std::time::Duration;

use bowline_cloud::{Error, Retry};
use bowline_core::Node;
use bowline_core::routes::{self, NodePlan};
use bowline_runtime::{Priority, Shutdown};
use futures::future::join_all;
use tokio::time::Instant;

use super::metrics::{Outcome, Trigger};
use super::state::{CloudState, is_unsupported};
use super::{BACKOFF, Fleet, Key, Mode, NAME, Shared};

/// Refreshes each cloud independently until shutdown is requested.
pub(super) async fn run(shared: &Shared, shutdown: &Shutdown) {
    let loops = shared.states.iter().map(|state| shutdown.or(shared.refresh_forever(state)));
    join_all(loops).await;
}

impl Shared {
    async fn refresh_forever(&self, state: &CloudState) {
        let mut failures = 0;
        loop {
            let begin = Instant::now();
            state.heartbeat.begin();
            let outcome = self.refresh(state).await;
            state.heartbeat.stop();
            failures = if outcome.is_err() { failures + 1 } else { 0 };
            match self.pause(state, begin, outcome.err(), failures) {
                Some(pause) => {
                    state.heartbeat.finish(pause);
                    tokio::time::sleep(pause).await;
                }
                None => return,
            }
        }
    }

    /// Returns the delay until the next refresh; `None` if there is none.
    fn pause(&self, state: &CloudState, begin: Instant, error: Option<Error>, failures: u32) -> Option<Duration> {
        let refresh = match self.options.mode {
            // The period is from start to start (ROUTE-2).
            Mode::Periodic { period } => return Some(period.saturating_sub(begin.elapsed())),
            Mode::Watch { refresh } => Some(refresh).filter(|refresh| !refresh.is_zero()),
        };
        // No sync is possible without a listing, so a failed one is retried before the next period.
        let sooner = error.map(|error| match error.retry_advice() {
            Retry::After(wait) => wait,
            Retry::Backoff | Retry::Never => BACKOFF.after(failures),
        });
        refresh.into_iter().chain(sooner).chain(state.confirmation_due()).min()
    }

    /// Lists the routes and queues the Nodes that differ (ROUTE-4, ROUTE-5, ROUTE-11). Returns when all of them are synced.
    async fn refresh(&self, state: &CloudState) -> Result<(), Error> {
        let had_no_routes = state.has_no_routes();
        if let Err(error) = state.list().await {
            if is_unsupported(&error) {
                if !had_no_routes {
                    let cloud = state.cloud.name();
                    tracing::warn!(controller = NAME, %cloud, %error, "the cloud has no routes; none are managed in it");
                }
                return Ok(());
            }
            tracing::warn!(controller = NAME, cloud = %state.cloud.name(), %error, "error listing routes");
            self.metrics.synced(Trigger::Periodic, Outcome::Error);
            return Err(error);
        }
        self.metrics.set_routes(state.cloud.name(), state.read(|table| table.len()));
        self.warn_of_another_cluster(state);
        // The queue monitors the progress of the syncs.
        state.heartbeat.stop();
        let keys = self.differing(state);
        let end = state.progress.begin(keys.iter().cloned());
        keys.into_iter().for_each(|key| state.queue.add(key, Priority::Low));
        // The sender is dropped only at shutdown.
        if let Ok(outcome) = end.await {
            self.metrics.synced(Trigger::Periodic, outcome);
        }
        Ok(())
    }

    /// Logs the number of routes of another cluster with the same name each time it changes.
    fn warn_of_another_cluster(&self, state: &CloudState) {
        let fleet = Fleet::from_store(&self.context.nodes, &self.context.clouds, &state.cloud);
        let foreign = state.read(|table| {
            let route_context = self.route_context(table, &fleet);
            table.iter().filter(|route| route_context.is_foreign(route)).count()
        });
        if state.record_foreign(foreign) && foreign > 0 {
            let (cloud, cluster) = (state.cloud.name(), &self.options.cluster);
            tracing::warn!(
                %cloud, %cluster, routes = foreign,
                "the cloud has routes of another cluster with the same name; they are not changed; \
                 fix: give each cluster its own --cluster-name and pod CIDRs"
            );
        }
    }

    /// Returns the keys that need a sync: Nodes whose routes or condition differ from the desired state, and orphans. In watch
    /// mode, a Node in back-off is left to the queue.
    fn differing(&self, state: &CloudState) -> Vec<Key> {
        let fleet = Fleet::from_store(&self.context.nodes, &self.context.clouds, &state.cloud);
        let is_watching = self.is_watching();
        let nodes = fleet.owned();
        let plans = state.read(|table| {
            let route_context = self.route_context(table, &fleet);
            nodes.iter().map(|node| routes::decide(&route_context, node)).collect::<Vec<_>>()
        });
        plans.iter().for_each(|plan| state.claim(plan.route_ids.clone()));
        state.read(|table| {
            let differs = |(node, plan): &(&Arc<Node>, &NodePlan)| {
                !plan.is_empty() || routes::network_status(node, plan.is_complete(), plan.has_route()).is_some()
            };
            let nodes = nodes.iter().zip(&plans).filter(differs).map(|(node, _)| Key::Node(node.name.clone()));
            let nodes = nodes.filter(|key| !is_watching || state.queue.failures(key) == 0);
            let orphans = (!routes::orphans(&self.route_context(table, &fleet)).is_empty()).then_some(Key::Orphans);
            nodes.chain(orphans).collect()
        })
    }
}
