//! The Nodes behind the balancers, as they come and go.
//!
//! ```text
//!  a Node comes ──────────► wait until none has come for a while ──┐
//!  a Node leaves, or goes ─► wait a moment ────────────────────────┼──► every balancer whose targets differ is queued
//!  a Node's drain time is up ──────────────────────────────────────┘
//! ```
//!
//! A hundred Nodes that join one after the other are thus one update of each balancer, not a hundred. A balancer without
//! any target does not wait for further ones.
//!
//! New Nodes wait for half a second after the last of them. They wait for the whole gather period if a further Node is still to be
//! initialised, or if the load balancers were updated within that period: more are likely to come.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bowline_core::Node;
use bowline_core::service::{self, NodeSet, TargetRules};
use bowline_kube::Change;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Nodes that leave are gathered for so long, or for the period for those that come, if that is shorter.
const MOMENT: Duration = Duration::from_millis(500);

/// New Nodes are passed on after this long without a further one, if nothing speaks for waiting longer.
const SETTLED: Duration = Duration::from_millis(500);

/// However many Nodes come, none waits for more than so many gather periods.
const LONGEST: u32 = 10;

/// What is known of the Nodes' coming and going.
pub(super) struct Crowd {
    gather: Duration,
    drain: Duration,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    /// When the first and the last Node came that no balancer has been told of.
    coming: Option<(Instant, Instant)>,
    /// When Nodes that left are to be told, and with them all others.
    urgent: Option<Instant>,
    /// Nodes that wait for their initialisation, by UID; only where that decides whether they are targets.
    uninitialized: HashSet<String>,
    /// When the load balancers were last queued.
    queued: Option<Instant>,
    /// Nodes that are leaving, by UID.
    leaving: HashMap<String, Drain>,
}

/// A Node that is leaving.
struct Drain {
    since: Instant,
    /// That its time is up was told.
    told: bool,
}

/// What to wait for.
enum Wait {
    Over,
    Until(Instant),
    ForChange,
}

/// What a change of a Node is to the balancers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Movement {
    /// There may be a target more.
    Coming,
    /// There may be one less.
    Leaving,
}

impl Crowd {
    /// Nodes that come are gathered for so long; Nodes that leave are drained for so long.
    pub(super) fn new(gather: Duration, drain: Duration) -> Crowd {
        Crowd { gather, drain, state: Mutex::default(), changed: Notify::new() }
    }

    /// Notes a change of a Node, if it matters. `labels` are those that selectors of Services look at.
    pub(super) fn heard(&self, change: &Change<Node>, rules: TargetRules, labels: &BTreeSet<String>) {
        let Some(movement) = movement(change, rules, labels) else { return };
        let now = Instant::now();
        let mut state = self.lock();
        match change {
            Change::Added(node) | Change::Updated { new: node, .. } if service::leaving(node).is_some() => {
                state.leaving.entry(node.uid.clone()).or_insert(Drain { since: now, told: false });
            }
            Change::Added(node) | Change::Updated { new: node, .. } | Change::Deleted(node) => {
                state.leaving.remove(&node.uid);
            }
        }
        match change {
            Change::Added(node) | Change::Updated { new: node, .. }
                if rules.nodes == NodeSet::Initialized && node.is_uninitialized() =>
            {
                state.uninitialized.insert(node.uid.clone());
            }
            Change::Added(node) | Change::Updated { new: node, .. } | Change::Deleted(node) => {
                state.uninitialized.remove(&node.uid);
            }
        }
        state.moved(movement, now, self.gather);
        drop(state);
        self.changed.notify_one();
    }

    /// Some balancer has no target at all: what comes is told within a moment.
    pub(super) fn hurry(&self) {
        let mut state = self.lock();
        if state.coming.is_some() {
            state.moved(Movement::Leaving, Instant::now(), self.gather);
            drop(state);
            self.changed.notify_one();
        }
    }

    /// The Node is leaving and still has time to let its connections end.
    pub(super) fn drains(&self, node: &Node) -> bool {
        self.lock().leaving.get(&node.uid).is_some_and(|drain| drain.since.elapsed() < self.drain)
    }

    /// Waits until balancers are to be told.
    pub(super) async fn settled(&self) {
        loop {
            // Made before the look, so that a change between the look and the wait is noticed.
            let changed = self.changed.notified();
            let wait = self.lock().next(Instant::now(), self.gather, self.drain);
            match wait {
                Wait::Over => return,
                Wait::Until(due) => drop(tokio::time::timeout_at(due, changed).await),
                Wait::ForChange => changed.await,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn moved(&mut self, movement: Movement, now: Instant, gather: Duration) {
        match movement {
            Movement::Coming => self.coming = Some((self.coming.map_or(now, |(first, _)| first), now)),
            Movement::Leaving => self.urgent = Some(self.urgent.unwrap_or(now + MOMENT.min(gather))),
        }
    }

    /// When Nodes of which the last came then are passed on, if no further one comes.
    fn settles(&self, last: Instant, gather: Duration) -> Instant {
        let (soon, latest) = (last + SETTLED.min(gather), last + gather);
        if !self.uninitialized.is_empty() {
            return latest;
        }
        self.queued.map_or(soon, |queued| soon.max((queued + gather).min(latest)))
    }

    /// What to wait for. If that is nothing, what has moved counts as told.
    fn next(&mut self, now: Instant, gather: Duration, drain: Duration) -> Wait {
        let came = self.coming.map(|(first, last)| self.settles(last, gather).min(first + gather * LONGEST));
        let ends = self.leaving.values().filter(|leaving| !leaving.told).map(|leaving| leaving.since + drain);
        match ends.chain(came).chain(self.urgent).min() {
            None => Wait::ForChange,
            Some(due) if due > now => Wait::Until(due),
            Some(_) => {
                (self.coming, self.urgent, self.queued) = (None, None, Some(now));
                let drained = self.leaving.values_mut().filter(|leaving| leaving.since + drain <= now);
                drained.for_each(|leaving| leaving.told = true);
                Wait::Over
            }
        }
    }
}

/// What this change is to the balancers; `None` if it is nothing to them.
fn movement(change: &Change<Node>, rules: TargetRules, labels: &BTreeSet<String>) -> Option<Movement> {
    let of = |node: &Node| if service::leaving(node).is_some() { Movement::Leaving } else { Movement::Coming };
    match change {
        Change::Added(node) => Some(of(node)),
        Change::Updated { old, new } => service::triggers(old, new, rules, labels).then(|| of(new)),
        Change::Deleted(_) => Some(Movement::Leaving),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use bowline_core::ProviderId;
    use bowline_core::testing::{node, taint};
    use bowline_core::well_known::{AUTOSCALER_TAINT, UNINITIALIZED_TAINT};

    const GATHER: Duration = Duration::from_secs(3);
    const DRAIN: Duration = Duration::from_secs(30);
    const RULES: TargetRules = TargetRules { nodes: service::NodeSet::All, drain: true, max: None };

    fn crowd() -> Crowd {
        Crowd::new(GATHER, DRAIN)
    }

    fn comes(crowd: &Crowd, name: &str) {
        crowd.heard(&Change::Added(Arc::new(node(name))), RULES, &BTreeSet::new());
    }

    fn leaves(crowd: &Crowd, name: &str) -> Node {
        let (old, mut new) = (node(name), node(name));
        new.taints.push(taint(AUTOSCALER_TAINT, "NoSchedule"));
        let change = Change::Updated { old: Arc::new(old), new: Arc::new(new.clone()) };
        crowd.heard(&change, RULES, &BTreeSet::new());
        new
    }

    /// How long it takes until balancers are told; `None` if they are not within an hour.
    async fn told_after(crowd: &Crowd) -> Option<Duration> {
        let begin = Instant::now();
        let told = tokio::time::timeout(Duration::from_secs(3600), crowd.settled()).await;
        told.ok().map(|()| begin.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn nodes_that_come_are_told_once_it_is_quiet_and_never_later_than_ten_periods() {
        let crowd = crowd();
        assert_eq!(told_after(&crowd).await, None, "nothing has moved");
        comes(&crowd, "a");
        assert_eq!(told_after(&crowd).await, Some(SETTLED));
        assert_eq!(told_after(&crowd).await, None, "told once");
        let begin = Instant::now();
        let coming = async {
            for index in 0..200 {
                comes(&crowd, &index.to_string());
                tokio::time::sleep(SETTLED / 2).await;
            }
        };
        let told = async {
            crowd.settled().await;
            begin.elapsed()
        };
        assert_eq!(tokio::join!(coming, told).1, GATHER * LONGEST);
    }

    #[tokio::test(start_paused = true)]
    async fn nodes_wait_for_the_gather_period_while_others_are_initialised_or_after_an_update() {
        let crowd = crowd();
        let rules = TargetRules { nodes: NodeSet::Initialized, drain: true, max: None };
        let mut new = node("a");
        new.taints.push(taint(UNINITIALIZED_TAINT, "NoSchedule"));
        crowd.heard(&Change::Added(Arc::new(new.clone())), rules, &BTreeSet::new());
        assert_eq!(told_after(&crowd).await, Some(GATHER), "it waits for its initialisation");
        tokio::time::advance(GATHER).await;
        let initialized = Node { provider_id: ProviderId::new("x://1"), ..node("a") };
        let change = Change::Updated { old: Arc::new(new), new: Arc::new(initialized) };
        crowd.heard(&change, rules, &BTreeSet::new());
        assert_eq!(told_after(&crowd).await, Some(SETTLED), "no other Node waits");
        comes(&crowd, "b");
        assert_eq!(told_after(&crowd).await, Some(GATHER), "the load balancers were just updated");
        tokio::time::advance(GATHER).await;
        comes(&crowd, "c");
        assert_eq!(told_after(&crowd).await, Some(SETTLED));
    }

    #[tokio::test(start_paused = true)]
    async fn what_leaves_is_told_within_a_moment_and_what_came_is_told_along_with_it() {
        let crowd = crowd();
        comes(&crowd, "a");
        leaves(&crowd, "b");
        assert_eq!(told_after(&crowd).await, Some(MOMENT));
        assert_eq!(told_after(&crowd).await, Some(DRAIN - MOMENT), "the drain time of b is up");
        assert_eq!(told_after(&crowd).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_drains_for_its_time_and_not_if_it_stays_after_all() {
        let crowd = crowd();
        let (a, b) = (leaves(&crowd, "a"), leaves(&crowd, "b"));
        assert!(crowd.drains(&a) && crowd.drains(&b) && !crowd.drains(&node("c")));
        let back = Change::Updated { old: Arc::new(b.clone()), new: Arc::new(node("b")) };
        crowd.heard(&back, RULES, &BTreeSet::new());
        assert!(!crowd.drains(&b));
        tokio::time::advance(DRAIN).await;
        assert!(!crowd.drains(&a));
    }

    #[tokio::test(start_paused = true)]
    async fn a_balancer_without_targets_does_not_wait_for_further_nodes() {
        let crowd = crowd();
        crowd.hurry();
        assert_eq!(told_after(&crowd).await, None, "nobody comes");
        comes(&crowd, "a");
        crowd.hurry();
        assert_eq!(told_after(&crowd).await, Some(MOMENT));
    }
}
