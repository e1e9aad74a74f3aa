//! Debounce of Node changes: when the load balancers are updated after Nodes joined or left.
//!
//! ```text
//!  a Node joins ─────────────────► quiet period after the last one ──┐
//!  a Node leaves, or is deleted ─► 500 ms ───────────────────────────┼──► requeue every Service whose targets differ
//!  the drain period of a Node ends ──────────────────────────────────┘
//! ```
//!
//! A hundred Nodes that join one after the other thus cause one update of each load balancer, not a hundred. A load balancer
//! without any target does not wait for further Nodes.
//!
//! The quiet period is half a second. It is extended to the whole debounce period while another Node is not initialised yet, or if
//! the load balancers were updated within that period, because more Nodes are likely to join then.
//!
//! The caller passes the time, so that tests need no clock.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::{Duration, Instant};

use super::{NodeSet, TargetRules, leaving, needs_target_update};
use crate::Node;

/// Debounce period of Nodes that leave, or the period of those that join, if that is shorter.
const URGENT: Duration = Duration::from_millis(500);

/// Quiet period of Nodes that join, if no further ones are likely.
const QUIET: Duration = Duration::from_millis(500);

/// Maximum delay of a Node that joins, in debounce periods.
const MAX_PERIODS: u32 = 10;

/// Node changes that no load balancer was updated for yet, and Nodes that are draining.
#[derive(Debug)]
pub struct NodeChanges {
    debounce: Duration,
    drain: Duration,
    /// Time of the first and of the last Node that joined since the last update.
    joined: Option<(Instant, Instant)>,
    /// Deadline of the update for Nodes that left; that update covers all other changes as well.
    urgent: Option<Instant>,
    /// UIDs of Nodes that are not initialised yet, if only initialised Nodes become targets.
    uninitialized: HashSet<String>,
    /// Time of the last update.
    updated: Option<Instant>,
    /// Nodes that are leaving, by UID.
    leaving: HashMap<String, Drain>,
}

/// A Node that is leaving.
#[derive(Debug)]
struct Drain {
    since: Instant,
    /// Whether the end of its drain period has caused an update.
    is_over: bool,
}

/// Time at which the load balancers are to be updated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpdateDue {
    /// Immediately.
    Now,
    /// At this time, unless a Node changes before.
    At(Instant),
    /// Not until a Node changes.
    AfterChange,
}

/// Effect of a Node change on the targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Movement {
    /// There may be one more target.
    Join,
    /// There may be one target less.
    Leave,
}

impl NodeChanges {
    /// Creates a tracker that debounces Nodes that join for `debounce` and drains Nodes that leave for `drain`.
    pub fn new(debounce: Duration, drain: Duration) -> NodeChanges {
        NodeChanges {
            debounce,
            drain,
            joined: None,
            urgent: None,
            uninitialized: HashSet::new(),
            updated: None,
            leaving: HashMap::new(),
        }
    }

    /// Records the change of a Node from `old` to `new`; `None` is a Node that does not exist. Returns whether the change
    /// affects any load balancer. `labels` are the label keys in the node selectors of Services.
    pub fn on_change(
        &mut self,
        (old, new): (Option<&Node>, Option<&Node>),
        rules: TargetRules,
        labels: &BTreeSet<String>,
        now: Instant,
    ) -> bool {
        let (Some(movement), Some(node)) = (movement(old, new, rules, labels), new.or(old)) else { return false };
        if new.is_some_and(|new| leaving(new).is_some()) {
            self.leaving.entry(node.uid.clone()).or_insert(Drain { since: now, is_over: false });
        } else {
            self.leaving.remove(&node.uid);
        }
        if new.is_some_and(|new| rules.nodes == NodeSet::Initialized && new.is_uninitialized()) {
            self.uninitialized.insert(node.uid.clone());
        } else {
            self.uninitialized.remove(&node.uid);
        }
        self.schedule(movement, now);
        true
    }

    /// Shortens the debounce of Nodes that have joined, because a load balancer has no target. Returns whether any Node has joined.
    pub fn expedite(&mut self, now: Instant) -> bool {
        let is_waiting = self.joined.is_some();
        if is_waiting {
            self.schedule(Movement::Leave, now);
        }
        is_waiting
    }

    /// Returns whether the Node is leaving and its drain period is not over.
    pub fn is_draining(&self, node: &Node, now: Instant) -> bool {
        let elapsed = |drain: &Drain| now.saturating_duration_since(drain.since);
        self.leaving.get(&node.uid).is_some_and(|drain| elapsed(drain) < self.drain)
    }

    /// Returns when the load balancers are to be updated. All changes count as covered once it returns [`UpdateDue::Now`].
    pub fn poll(&mut self, now: Instant) -> UpdateDue {
        let joined = self.joined.map(|(first, last)| self.quiet_at(last).min(first + self.debounce * MAX_PERIODS));
        let drained = self.leaving.values().filter(|drain| !drain.is_over).map(|drain| drain.since + self.drain);
        match drained.chain(joined).chain(self.urgent).min() {
            None => UpdateDue::AfterChange,
            Some(due) if due > now => UpdateDue::At(due),
            Some(_) => {
                (self.joined, self.urgent, self.updated) = (None, None, Some(now));
                let over = self.leaving.values_mut().filter(|drain| drain.since + self.drain <= now);
                over.for_each(|drain| drain.is_over = true);
                UpdateDue::Now
            }
        }
    }

    fn schedule(&mut self, movement: Movement, now: Instant) {
        match movement {
            Movement::Join => self.joined = Some((self.joined.map_or(now, |(first, _)| first), now)),
            Movement::Leave => {
                self.urgent.get_or_insert(now + URGENT.min(self.debounce));
            }
        }
    }

    /// Returns the end of the quiet period if the last Node joined at this time.
    fn quiet_at(&self, last: Instant) -> Instant {
        let (soon, latest) = (last + QUIET.min(self.debounce), last + self.debounce);
        if !self.uninitialized.is_empty() {
            return latest;
        }
        self.updated.map_or(soon, |updated| soon.max((updated + self.debounce).min(latest)))
    }
}

/// Returns the effect of a Node change on the targets; `None` if it has none.
fn movement(old: Option<&Node>, new: Option<&Node>, rules: TargetRules, labels: &BTreeSet<String>) -> Option<Movement> {
    let Some(new) = new else { return Some(Movement::Leave) };
    let matters = old.is_none_or(|old| needs_target_update(old, new, rules, labels));
    matters.then(|| if leaving(new).is_some() { Movement::Leave } else { Movement::Join })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ProviderId;
    use crate::testing::{node, taint};
    use crate::well_known::{AUTOSCALER_TAINT, UNINITIALIZED_TAINT};

    const DEBOUNCE: Duration = Duration::from_secs(3);
    const DRAIN: Duration = Duration::from_secs(30);
    const RULES: TargetRules = TargetRules { nodes: NodeSet::All, drain: true, max: None };

    /// Node changes with a simulated clock.
    struct World {
        changes: NodeChanges,
        now: Instant,
    }

    impl World {
        fn new() -> World {
            World { changes: NodeChanges::new(DEBOUNCE, DRAIN), now: Instant::now() }
        }

        fn change(&mut self, old: Option<&Node>, new: Option<&Node>, rules: TargetRules) {
            self.changes.on_change((old, new), rules, &BTreeSet::new(), self.now);
        }

        fn join(&mut self, name: &str) {
            self.change(None, Some(&node(name)), RULES);
        }

        fn leave(&mut self, name: &str) -> Node {
            let mut new = node(name);
            new.taints.push(taint(AUTOSCALER_TAINT, "NoSchedule"));
            self.change(Some(&node(name)), Some(&new), RULES);
            new
        }

        fn is_draining(&self, node: &Node) -> bool {
            self.changes.is_draining(node, self.now)
        }

        /// Waits for the next update and returns how long it takes; `None` if no change causes one.
        fn updated_after(&mut self) -> Option<Duration> {
            let begin = self.now;
            loop {
                match self.changes.poll(self.now) {
                    UpdateDue::Now => return Some(self.now - begin),
                    UpdateDue::At(due) => self.now = due,
                    UpdateDue::AfterChange => return None,
                }
            }
        }
    }

    #[test]
    fn nodes_that_join_cause_an_update_after_the_quiet_period_and_within_ten_debounce_periods() {
        let mut world = World::new();
        assert_eq!(world.updated_after(), None, "no Node has changed");
        world.join("a");
        assert_eq!(world.updated_after(), Some(QUIET));
        assert_eq!(world.updated_after(), None, "one update");
        let begin = world.now;
        let mut updates = Vec::new();
        for index in 0..200 {
            world.join(&index.to_string());
            let next = world.now + QUIET / 2;
            while let UpdateDue::At(due) = world.changes.poll(world.now)
                && due <= next
            {
                world.now = due;
                updates.push(due - begin);
                assert_eq!(world.changes.poll(due), UpdateDue::Now);
            }
            world.now = next;
        }
        assert_eq!(updates.first(), Some(&(DEBOUNCE * MAX_PERIODS)));
    }

    #[test]
    fn nodes_wait_for_the_debounce_period_while_others_are_initialised_or_after_an_update() {
        let mut world = World::new();
        let rules = TargetRules { nodes: NodeSet::Initialized, drain: true, max: None };
        let mut new = node("a");
        new.taints.push(taint(UNINITIALIZED_TAINT, "NoSchedule"));
        world.change(None, Some(&new), rules);
        assert_eq!(world.updated_after(), Some(DEBOUNCE), "it is to be initialised");
        world.now += DEBOUNCE;
        let initialized = Node { provider_id: ProviderId::new("x://1"), ..node("a") };
        world.change(Some(&new), Some(&initialized), rules);
        assert_eq!(world.updated_after(), Some(QUIET), "no other Node is to be initialised");
        world.join("b");
        assert_eq!(world.updated_after(), Some(DEBOUNCE), "the load balancers were just updated");
        world.now += DEBOUNCE;
        world.join("c");
        assert_eq!(world.updated_after(), Some(QUIET));
    }

    #[test]
    fn nodes_that_leave_cause_an_update_within_half_a_second_that_covers_those_that_joined() {
        let mut world = World::new();
        world.join("a");
        world.leave("b");
        assert_eq!(world.updated_after(), Some(URGENT));
        assert_eq!(world.updated_after(), Some(DRAIN - URGENT), "the drain period of b is over");
        assert_eq!(world.updated_after(), None);
    }

    #[test]
    fn a_node_drains_for_its_period_unless_it_stays_after_all() {
        let mut world = World::new();
        let (a, b) = (world.leave("a"), world.leave("b"));
        assert!(world.is_draining(&a) && world.is_draining(&b) && !world.is_draining(&node("c")));
        world.change(Some(&b), Some(&node("b")), RULES);
        assert!(!world.is_draining(&b));
        world.now += DRAIN;
        assert!(!world.is_draining(&a));
    }

    #[test]
    fn a_load_balancer_without_targets_does_not_wait_for_further_nodes() {
        let mut world = World::new();
        assert!(!world.changes.expedite(world.now));
        assert_eq!(world.updated_after(), None, "no Node joins");
        world.join("a");
        assert!(world.changes.expedite(world.now));
        assert_eq!(world.updated_after(), Some(URGENT));
    }
}
