//! One pass over one Node: its lanes, side by side, and then its condition.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bowline_cloud::{Error, ErrorKind, Result, Retry};
use bowline_core::routes::{self, Lane, NodePlan, Removal};
use bowline_core::{Node, NodeName, RouteSpec, format_duration, parse_cidr};
use bowline_kube::{EventType, ObjectRef, WriteError};
use bowline_runtime::{Priority, Shutdown};
use futures::future::join_all;

use super::account::{Account, is_without_routes};
use super::{Fleet, GATHER, Key, Shared};

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
    /// A write failed that may have worked: only a listing tells.
    pub(super) is_unclear: bool,
    /// We gave up, because we are stopping: it is not known whether the routes are there.
    pub(super) is_cancelled: bool,
    /// It is to be looked at again after this long, although nothing failed.
    pub(super) again: Option<Duration>,
    /// What failed.
    pub(super) failures: Vec<Retry>,
    /// The first of it, for people who look.
    pub(super) why: Option<String>,
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

    pub(super) fn failed(retry: Retry, why: impl fmt::Display) -> Done {
        Done { failures: vec![retry], why: Some(why.to_string()), ..Done::default() }
    }

    fn failed_with(error: &Error) -> Done {
        Done {
            is_unclear: is_unclear(error.kind()),
            is_cancelled: error.kind() == ErrorKind::Cancelled,
            ..Done::failed(retry_of(error), error)
        }
    }

    pub(super) fn unlisted(error: &Error) -> Done {
        Done { is_unlisted: true, ..Done::failed(error.retry_advice(), error) }
    }

    pub(super) fn merge(mut self, other: Done) -> Done {
        self.has_changed |= other.has_changed;
        self.is_missing |= other.is_missing;
        self.is_unclear |= other.is_unclear;
        self.is_cancelled |= other.is_cancelled;
        self.failures.extend(other.failures);
        self.why = self.why.or(other.why);
        self
    }
}

impl Shared {
    /// One pass over one Node. One that is gone is not looked at: its routes are strays. Neither is one that
    /// has become another cloud's.
    pub(super) async fn sync_node(&self, account: &Account, name: &NodeName, shutdown: &Shutdown) -> Done {
        let Some(node) = self.context.nodes.get(name.as_str()) else { return Done::default() };
        if !self.owns(&account.cloud, &node) {
            return Done::default();
        }
        // A read may be given up at shutdown; writes may not.
        match shutdown.or(account.ensure_listed(Some(name))).await {
            Some(Ok(())) => {}
            Some(Err(error)) if is_without_routes(&error) => return Done::default(),
            Some(Err(error)) => {
                tracing::warn!(%error, "error listing routes");
                return Done::unlisted(&error);
            }
            None => return Done::default(),
        }
        let plan = self.plan(account, &node);
        self.tell_unreadable(&node, &plan);
        let lanes = join_all(plan.lanes.iter().map(|lane| self.run_lane(account, &node, lane))).await;
        let done = lanes.into_iter().fold(Done::default(), Done::merge);
        if done.is_unclear {
            account.doubt(Some(name));
        }
        self.metrics.has(account.cloud.name(), account.read(|table| table.len()));
        let told = self.tell(account, &node, &plan, &done).await;
        self.follow(account, &node, &done);
        done.merge(told)
    }

    /// Tells the Node how its routes are, if that is known.
    async fn tell(&self, account: &Account, node: &Node, plan: &NodePlan, done: &Done) -> Done {
        if done.is_cancelled {
            return Done::default();
        }
        let all_there = plan.is_complete() && !done.is_missing;
        if all_there {
            self.forget_complaints(node);
        }
        self.write_network(account, node, all_there, plan.has_route()).await
    }

    /// A Node that went meanwhile leaves behind what was made for it.
    fn follow(&self, account: &Account, node: &Node, done: &Done) {
        if self.context.nodes.get(node.name.as_str()).is_some() {
            return;
        }
        self.forget_complaints(node);
        // In the other mode, the next period is soon enough.
        if self.is_watching() && (done.has_changed || done.is_unclear) {
            account.queue.add_after(Key::Orphans, GATHER, Priority::Low);
        }
    }

    /// What this Node needs.
    pub(super) fn plan(&self, account: &Account, node: &Node) -> NodePlan {
        let fleet = Fleet::heard(&self.context.nodes, &self.context.clouds, &account.cloud);
        let plan = account.read(|table| routes::decide(&self.scene(table, &fleet), node));
        account.claim(plan.led.clone());
        plan
    }

    /// All that goes, and then what comes (ROUTE-8). What cannot be removed keeps the new one from coming.
    async fn run_lane(&self, account: &Account, node: &Node, lane: &Lane) -> Done {
        let _turn = account.turn(lane.destination).await;
        let mut done = Done::default();
        for removal in &lane.remove {
            done = done.merge(self.delete(account, removal).await);
            account.queue.made_progress();
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
        let (cloud, range) = (account.cloud.name(), route.destination);
        match account.delete(route).await {
            Ok(has_changed) => {
                if has_changed && !self.context.cluster.is_dry_run() {
                    tracing::info!(%cloud, %range, id = route.id, ?why, "removed a route");
                }
                Done { has_changed, ..Done::default() }
            }
            Err(error) => {
                tracing::warn!(%cloud, %range, id = route.id, %error, "could not delete a route");
                Done { is_unclear: true, ..Done::failed_with(&error) }
            }
        }
    }

    async fn create(&self, account: &Account, node: &Node, spec: &RouteSpec) -> Done {
        let begin = self.context.clock.instant();
        match create_through_conflicts(account, spec).await {
            Ok(()) => {
                self.complaints.forget(&(node.name.clone(), Some(spec.destination)));
                if !self.context.cluster.is_dry_run() {
                    tracing::info!(node = %node.name, range = %spec.destination, "made a route");
                }
                Done { has_changed: true, ..Done::default() }
            }
            Err(error) if error.kind() == ErrorKind::ImplementedElsewhere => Done::default(),
            Err(error) => {
                let took = self.context.clock.instant().saturating_duration_since(begin);
                self.tell_failure(node, spec, took, &error);
                Done::failed_with(&error)
            }
        }
    }

    /// Tells the Node whether its routes are there (ROUTE-11 to ROUTE-13).
    async fn write_network(&self, account: &Account, node: &Node, all_there: bool, has_route: bool) -> Done {
        // Routes may have taken their time. What has changed meanwhile gets a pass of its own.
        let is_as_it_was = |heard: &Arc<Node>| {
            heard.uid == node.uid && heard.pod_cidrs == node.pod_cidrs && self.owns(&account.cloud, heard)
        };
        let heard = self.context.nodes.get(node.name.as_str()).filter(is_as_it_was);
        let Some(node) = heard else { return Done::default() };
        let Some(status) = routes::network(&node, all_there, has_route) else { return Done::default() };
        self.told().insert(node.name.clone(), status);
        match self.context.cluster.set_network(&node, &status, self.context.clock.now()).await {
            Ok(_) => Done::default(),
            Err(WriteError::NotFound(_)) => {
                // Whoever heard of that has forgotten it already.
                self.told().remove(&node.name);
                Done::default()
            }
            Err(error) => {
                tracing::warn!(node = %node.name, %error, "could not write the node's condition");
                Done::failed(Retry::Backoff, error)
            }
        }
    }

    // ---- what people are told, each cause once

    fn tell_failure(&self, node: &Node, spec: &RouteSpec, took: Duration, error: &Error) {
        let (key, kind) = ((node.name.clone(), Some(spec.destination)), error.kind());
        // A Node that is not initialised has no addresses yet, as a rule: it gets another try as soon as it has.
        let is_early = node.is_uninitialized();
        let is_failure = !is_early && !matches!(kind, ErrorKind::Cancelled | ErrorKind::InProgress);
        if !is_failure || !self.complaints.is_news(&key, &node.uid, kind.as_str()) {
            return tracing::debug!(node = %node.name, %error, "could not create a route");
        }
        let (range, took) = (spec.destination, format_duration(took));
        let mut message =
            format!("Could not create route {} {range} for node {} after {took}: {error}", spec.name_hint, node.name);
        if !kind.advice().is_empty() {
            message = format!("{message}. {}", kind.advice());
        }
        self.events.emit(&ObjectRef::node(node), EventType::Warning, "FailedToCreateRoute", message);
    }

    fn tell_unreadable(&self, node: &Node, plan: &NodePlan) {
        let cause = plan.unreadable.join(" ");
        if !cause.is_empty() && self.complaints.is_news(&(node.name.clone(), None), &node.uid, &cause) {
            let message = format!("No route can be made for what is not a range in spec.podCIDRs: {cause}");
            self.events.emit(&ObjectRef::node(node), EventType::Warning, "FailedToCreateRoute", message);
        }
    }

    /// All is well with the Node, or it is gone: whatever happens next is news.
    pub(super) fn forget_complaints(&self, node: &Node) {
        let ranges = node.pod_cidrs.iter().filter_map(|text| parse_cidr(text)).map(Some);
        ranges.chain([None]).for_each(|range| self.complaints.forget(&(node.name.clone(), range)));
    }
}

/// A creation that failed like this may have worked, or something is there that the account does not know of.
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
