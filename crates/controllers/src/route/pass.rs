//! One pass over one Node: its lanes, side by side, and then its condition.

use std::sync::Arc;
use std::time::Duration;

use bowline_cloud::{Error, ErrorKind, Result, Retry};
use bowline_core::routes::{self, Lane, NodePlan, Removal, Scene};
use bowline_core::{Node, NodeName, RouteSpec, format_duration};
use bowline_kube::{EventType, ObjectRef, WriteError};
use bowline_runtime::Shutdown;
use futures::future::join_all;

use super::account::Account;
use super::{Fleet, NAME, Shared};

/// How often a creation that met a conflict is made again at once (ROUTE-9), and the pause before, to which as much again
/// is added at random.
const ATTEMPTS: u32 = 5;
const PAUSE: Duration = Duration::from_millis(100);

/// How a pass ended.
#[derive(Debug, Default)]
pub(super) struct Done {
    /// A route was made or removed.
    pub(super) has_changed: bool,
    /// A route that should be there is not.
    pub(super) is_missing: bool,
    /// The routes could not be listed.
    pub(super) is_unlisted: bool,
    /// It is to be looked at again after this long, although nothing failed.
    pub(super) again: Option<Duration>,
    /// What failed.
    pub(super) failures: Vec<Retry>,
}

/// What comes next for the key of a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing, until something changes.
    Rest,
    /// Another try, later and later.
    Backoff,
    /// Another try, after this long.
    After(Duration),
}

impl Done {
    /// A failure that may pass goes before one that does not; a cloud that says when is waited for.
    pub(super) fn next(&self) -> Next {
        let waits = self.failures.iter().filter_map(|retry| match retry {
            Retry::After(wait) => Some(*wait),
            Retry::Backoff | Retry::Never => None,
        });
        match waits.chain(self.again).max() {
            Some(wait) => Next::After(wait),
            None if self.failures.contains(&Retry::Backoff) => Next::Backoff,
            None => Next::Rest,
        }
    }

    fn failed(retry: Retry) -> Done {
        Done { failures: vec![retry], ..Done::default() }
    }

    pub(super) fn unlisted(error: &Error) -> Done {
        Done { is_unlisted: true, ..Done::failed(error.retry_advice()) }
    }

    pub(super) fn merge(mut self, other: Done) -> Done {
        self.has_changed |= other.has_changed;
        self.is_missing |= other.is_missing;
        self.failures.extend(other.failures);
        self
    }
}

impl Shared {
    /// One pass over one Node. One that is gone is not looked at: its routes are strays.
    pub(super) async fn sync_node(&self, name: &NodeName, shutdown: &Shutdown) -> Done {
        let Some(node) = self.context.nodes.get(name.as_str()) else { return Done::default() };
        let Some(account) = self.account_of(&node) else { return Done::default() };
        // A read may be given up at shutdown; writes may not.
        match shutdown.or(account.ensure_listed(Some(name))).await {
            Some(Ok(())) => {}
            Some(Err(error)) => {
                tracing::warn!(controller = NAME, key = %name, "error listing routes: {error}");
                return Done::unlisted(&error);
            }
            None => return Done::default(),
        }
        let plan = self.plan(account, &node);
        self.tell_unreadable(&node, &plan);
        let lanes = join_all(plan.lanes.iter().map(|lane| self.run_lane(account, &node, lane))).await;
        let done = lanes.into_iter().fold(Done::default(), Done::merge);
        if !done.failures.is_empty() {
            account.doubt(Some(name));
        }
        self.metrics.has(account.cloud.name(), account.read(|table| table.len()));
        let all_there = plan.is_whole() && !done.is_missing;
        let told = self.write_network(&node, all_there, plan.is_led_to).await;
        done.merge(told)
    }

    /// What this Node needs.
    pub(super) fn plan(&self, account: &Account, node: &Node) -> NodePlan {
        let fleet = Fleet::heard(&self.context.nodes, &self.context.clouds, &account.cloud);
        account.read(|table| {
            let scene = Scene { table, nodes: &fleet, ranges: &self.options.ranges };
            routes::decide(&scene, node)
        })
    }

    /// All that goes, and then what comes (ROUTE-8). What cannot be removed keeps the new one from coming.
    async fn run_lane(&self, account: &Account, node: &Node, lane: &Lane) -> Done {
        let _turn = account.turn(lane.destination).await;
        let mut done = Done::default();
        for removal in &lane.remove {
            done = done.merge(self.delete(account, removal).await);
        }
        if let Some(spec) = &lane.create {
            if done.failures.is_empty() {
                done = done.merge(self.create(account, node, spec).await);
            }
            done.is_missing = !done.failures.is_empty();
        }
        done
    }

    pub(super) async fn delete(&self, account: &Account, Removal { route, why }: &Removal) -> Done {
        match account.delete(route).await {
            Ok(has_changed) => {
                if has_changed {
                    let (cloud, range) = (account.cloud.name(), route.destination);
                    tracing::info!(controller = NAME, %cloud, %range, id = route.id, ?why, "deleted a route");
                }
                Done { has_changed, ..Done::default() }
            }
            Err(error) => {
                let (cloud, range) = (account.cloud.name(), route.destination);
                tracing::warn!(controller = NAME, %cloud, %range, id = route.id, "could not delete a route: {error}");
                Done::failed(error.retry_advice())
            }
        }
    }

    async fn create(&self, account: &Account, node: &Node, spec: &RouteSpec) -> Done {
        let begin = self.context.clock.instant();
        match create_through_conflicts(account, spec).await {
            Ok(()) => {
                self.complaints.forget(&node.name);
                tracing::info!(controller = NAME, key = %node.name, range = %spec.destination, "made a route");
                Done { has_changed: true, ..Done::default() }
            }
            Err(error) if error.kind() == ErrorKind::ImplementedElsewhere => Done::default(),
            Err(error) => {
                let took = self.context.clock.instant().saturating_duration_since(begin);
                self.tell_failure(node, spec, took, &error);
                Done::failed(retry_of(&error))
            }
        }
    }

    /// Tells the Node whether its routes are there (ROUTE-11 to ROUTE-13).
    async fn write_network(&self, node: &Arc<Node>, all_there: bool, is_led_to: bool) -> Done {
        // Routes may have taken their time.
        let heard = self.context.nodes.get(node.name.as_str()).filter(|heard| heard.uid == node.uid);
        let Some(node) = heard else { return Done::default() };
        let Some(status) = routes::network(&node, all_there, is_led_to) else { return Done::default() };
        self.told().insert(node.name.clone(), status);
        match self.context.cluster.set_network(&node, &status, self.context.clock.now()).await {
            Ok(_) => Done::default(),
            Err(WriteError::NotFound(_)) => {
                // Whoever heard of that has forgotten it already.
                self.told().remove(&node.name);
                Done::default()
            }
            Err(error) => {
                tracing::warn!(controller = NAME, key = %node.name, "could not write the node's condition: {error}");
                Done::failed(Retry::Backoff)
            }
        }
    }

    // ---- what people are told, each cause once

    fn tell_failure(&self, node: &Node, spec: &RouteSpec, took: Duration, error: &Error) {
        let cause = format!("{} {}", spec.destination, error.kind().as_str());
        if error.kind() == ErrorKind::Cancelled || !self.complaints.is_news(&node.name, &node.uid, &cause) {
            return tracing::debug!(controller = NAME, key = %node.name, "could not create a route again: {error}");
        }
        let (range, took, advice) = (spec.destination, format_duration(took), error.kind().advice());
        let message = format!(
            "Could not create route {} {range} for node {} after {took}: {error}. {advice}",
            spec.name_hint, node.name
        );
        self.events.emit(&ObjectRef::node(node), EventType::Warning, "FailedToCreateRoute", message.trim_end());
    }

    fn tell_unreadable(&self, node: &Node, plan: &NodePlan) {
        let cause = plan.unreadable.join(" ");
        if !cause.is_empty() && self.complaints.is_news(&node.name, &node.uid, &cause) {
            let message = format!("No route can be made for what is not a range in spec.podCIDRs: {cause}");
            self.events.emit(&ObjectRef::node(node), EventType::Warning, "FailedToCreateRoute", message);
        }
    }
}

/// A range that is taken although the account says otherwise is one to look at again.
fn retry_of(error: &Error) -> Retry {
    match error.kind() {
        ErrorKind::AlreadyExists => Retry::Backoff,
        _ => error.retry_advice(),
    }
}

/// Makes a route, again at once if somebody else was writing at the same moment (ROUTE-9).
async fn create_through_conflicts(account: &Account, spec: &RouteSpec) -> Result<()> {
    for _ in 1..ATTEMPTS {
        match account.create(spec).await {
            Err(error) if error.kind() == ErrorKind::Conflict => {
                tokio::time::sleep(PAUSE + PAUSE.mul_f64(fastrand::f64())).await;
            }
            answer => return answer,
        }
    }
    account.create(spec).await
}
