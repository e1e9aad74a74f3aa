//! Node lifecycle: taints and deletion of Nodes that are not Ready (LIFE-3 to LIFE-8), and the rules against doubtful deletion.
//!
//! A sync processes all Nodes together, in two steps, so that one read of the cloud serves all of them:
//!
//! ```text
//!  Fleet ──► lookups ──► Nodes to look up in the cloud ──(observe)──► CachedResults
//!                └──► taints to remove, independent of the cloud
//!  Fleet, CachedResults, Memory ──► decide ──► Decision: taints to add, Nodes to recheck, Nodes held back with the reason
//!                                                  │
//!                       Nodes to recheck ──(observe, bypassing every cache)──► FreshResults
//!  Fleet, FreshResults, Memory ──► conclude ──► Conclusion: Nodes to delete, Nodes held back with the reason
//! ```
//!
//! [`decide`] runs in every sync, even if no Node had to be looked up, because it removes outdated entries from the memory.
//! [`conclude`] runs if the decision lists Nodes to recheck, preferably on a fresh snapshot of the Nodes: a read of the cloud takes
//! time, and a Node that has become Ready in the meantime is not deleted. Only [`FreshResults`] can lead to a deletion, and they
//! must come from an uncached read.
//!
//! A Node is deleted only if all of these rules are met:
//!
//! 1. It is not Ready, and was created at least [`Policy::grace`] ago, or [`Policy::uninitialized_grace`] if nothing indicates that
//!    a cloud has ever known its machine. Lookups before that do not count.
//! 2. The provider that owns the Node returned [`Gone`](LookupResult::Gone) in two uncached reads, at least
//!    [`Policy::confirm_after`] apart, and no other result in between. A failed read neither confirms nor refutes. The rule starts
//!    over if the Node becomes Ready, any read shows its machine, or a new Node of the same name appears.
//! 3. The same read showed at least one machine of another Node of that provider (the witness), unless the provider has no other
//!    Node: an account or project in which nothing is visible is the wrong one, not an empty one.
//! 4. No more than [`Policy::brake_share`] of that provider's Nodes (but always at least one) are deleted within
//!    [`Policy::brake_window`], including those already deleted and those reported as gone once. If more would be deleted, none is:
//!    the brake holds until fewer machines are missing, or an operator allows deletions with the annotation
//!    `bowline.dev/allow-deletion: "true"`.
//!
//! The annotation waives rules 3 and 4, never 1 and 2, and a Node with the annotation does not count towards the brake. Paused
//! Nodes ([`Node::is_paused`]) are ignored, and a Node that is already being deleted is not deleted again.
//!
//! The times of missing machines are lost with the process: a new leader needs two reads of its own. Deletions outlive the
//! process in a [record](Memory::deletion_record), which is written before a Node is deleted.
// upstream: deletes at the first "does not exist", regardless of age, number or a deletion in progress (LIFE-6).

mod fleet;
mod held;
mod memory;
mod record;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use self::fleet::Results;
pub use self::fleet::{CachedResults, Fleet, FreshResults, LookupResult, Lookups};
pub use self::held::{Held, HoldReason};
pub use self::memory::Memory;
use crate::Node;

/// Maximum number of witnesses per recheck: Nodes whose machines should be visible. More than one, because the machine of a witness
/// may just have been deleted as well; few, because some clouds need one request for each.
const MAX_WITNESSES: usize = 3;

/// Parameters of the rules against doubtful deletion.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Policy {
    /// Minimum age of a Node for its deletion: the cloud may not list the machine of a newer Node yet.
    pub grace: Duration,
    /// Minimum age for a Node that is not [initialised](Node::is_initialized): there, "gone" may mean "not listed yet".
    pub uninitialized_grace: Duration,
    /// Minimum time between the two uncached reads.
    pub confirm_after: Duration,
    /// Maximum fraction of a provider's Nodes that may be deleted within the window, from 0 to 1. One Node may always be deleted.
    pub brake_share: f64,
    /// Time for which a deletion counts towards the brake.
    pub brake_window: Duration,
}

/// One point in time, on two clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// Monotonic time, for the time between events in this process.
    pub instant: Instant,
    /// Wall-clock time, for the age of objects.
    pub wall: Timestamp,
}

/// Decision based on results that may come from a cache. It contains nothing irreversible.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Decision {
    /// Nodes whose machines are stopped and that lack the shutdown taint ([`Taint::shutdown`](crate::Taint::shutdown)).
    pub taint: Vec<Arc<Node>>,
    /// Nodes to look up in one uncached read: those whose machines seem to be gone, and their witnesses.
    pub recheck: Vec<Arc<Node>>,
    /// Nodes that are held back in this sync without a recheck.
    pub held: Vec<Held>,
}

/// Conclusion from an uncached read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Conclusion {
    /// Nodes to delete, with the UID as precondition.
    pub delete: Vec<Deletion>,
    /// Nodes whose machines are gone and whose deletion is held back.
    pub held: Vec<Held>,
}

/// A Node to delete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deletion {
    /// The Node. The delete request must contain its UID as precondition.
    pub node: Arc<Node>,
    /// Provider that reports the machine as gone.
    pub provider: Arc<str>,
}

/// Input of a decision.
#[derive(Clone, Copy)]
struct Context<'a> {
    fleet: &'a Fleet,
    results: &'a Results,
    memory: &'a Memory,
    policy: &'a Policy,
    now: Moment,
}

/// Nodes whose machines are reported as gone.
#[derive(Default)]
struct Suspects {
    /// Nodes that must not be deleted yet, whatever another read returns.
    held: Vec<Held>,
    /// The remaining Nodes by provider.
    due: BTreeMap<Arc<str>, Due>,
}

/// Nodes of one provider, by the uncached read that is due.
#[derive(Default)]
struct Due {
    /// Nodes without an uncached read so far.
    first: Vec<Arc<Node>>,
    /// Nodes whose first read is long enough ago.
    second: Vec<Arc<Node>>,
}

/// Progress of a Node whose machine is reported as gone.
enum Standing {
    Held(HoldReason),
    FirstReadDue,
    SecondReadDue,
}

/// Decides about all Nodes, based on the results of [`Fleet::lookups`].
pub fn decide(fleet: &Fleet, cached: &CachedResults, memory: &mut Memory, policy: &Policy, now: Moment) -> Decision {
    let results = cached.results();
    memory.remove_outdated(fleet, policy, now);
    memory.remove_refuted(results);
    let context = Context { fleet, results, memory, policy, now };
    let Suspects { held, due } = context.suspects();
    let mut decision = Decision { taint: fleet.stopped_without_taint(results), recheck: Vec::new(), held };
    for (provider, due) in due {
        context.request_recheck(&provider, due, &mut decision);
    }
    decision
}

/// Decides which Nodes to delete, based on the recheck that a [`Decision`] requested.
pub fn conclude(fleet: &Fleet, fresh: &FreshResults, memory: &mut Memory, policy: &Policy, now: Moment) -> Conclusion {
    let results = fresh.results();
    memory.remove_outdated(fleet, policy, now);
    memory.remove_refuted(results);
    let Suspects { held, due } = Context { fleet, results, memory, policy, now }.suspects();
    for node in due.values().flat_map(|due| &due.first) {
        memory.record_gone(node, now);
    }
    let mut conclusion = Conclusion { delete: Vec::new(), held };
    for (provider, due) in due {
        Context { fleet, results, memory, policy, now }.conclude_provider(&provider, due, &mut conclusion);
    }
    for Deletion { node, provider } in &conclusion.delete {
        memory.record_deletion(node, provider, now);
    }
    conclusion
}

// ---- steps, for all Nodes and for those of one provider

impl Context<'_> {
    /// Applies rules 1 and 2 to all Nodes.
    fn suspects(&self) -> Suspects {
        let mut suspects = Suspects::default();
        for (node, provider) in self.fleet.gone(self.results) {
            match self.standing(node) {
                Standing::Held(reason) => suspects.held.push(Held::new(node, provider, reason)),
                Standing::FirstReadDue => suspects.due.entry(provider.clone()).or_default().first.push(node.clone()),
                Standing::SecondReadDue => suspects.due.entry(provider.clone()).or_default().second.push(node.clone()),
            }
        }
        suspects
    }

    /// Requests a recheck of the Nodes that are due, except for those that the brake holds back whatever the recheck returns.
    fn request_recheck(&self, provider: &Arc<str>, due: Due, decision: &mut Decision) {
        let brake = self.brake(provider);
        let mut recheck = due.first;
        for node in due.second {
            match &brake {
                Some(brake) if !node.is_deletion_allowed() => {
                    decision.held.push(Held::new(&node, provider, brake.clone()))
                }
                _ => recheck.push(node),
            }
        }
        if !recheck.is_empty() {
            decision.recheck.extend(recheck);
            decision.recheck.extend(self.fleet.witnesses(provider, self.results, MAX_WITNESSES));
        }
    }

    /// Deletes Nodes after their second read, except for those that rules 3 and 4 hold back.
    fn conclude_provider(&self, provider: &Arc<str>, due: Due, conclusion: &mut Conclusion) {
        let second_read = HoldReason::AwaitingSecondLook { left: self.policy.confirm_after };
        conclusion.held.extend(due.first.iter().map(|node| Held::new(node, provider, second_read.clone())));
        let hold = self.brake(provider).or_else(|| self.lack_of_witness(provider));
        for node in due.second {
            match &hold {
                Some(reason) if !node.is_deletion_allowed() => {
                    conclusion.held.push(Held::new(&node, provider, reason.clone()));
                }
                _ => conclusion.delete.push(Deletion { node, provider: provider.clone() }),
            }
        }
    }
}

// ---- the rules

impl Context<'_> {
    /// Rules 1 and 2.
    fn standing(&self, node: &Node) -> Standing {
        let (grace, confirm_after) = (self.policy.grace_of(node), self.policy.confirm_after);
        // A Node of unknown age counts as new.
        let age = node.age(self.now.wall).unwrap_or_default();
        match self.memory.gone_for(node, self.now) {
            _ if node.deleting => Standing::Held(HoldReason::Leaving),
            _ if age < grace => Standing::Held(HoldReason::TooYoung { age, grace }),
            None => Standing::FirstReadDue,
            Some(time) if time < confirm_after => {
                Standing::Held(HoldReason::AwaitingSecondLook { left: confirm_after - time })
            }
            Some(_) => Standing::SecondReadDue,
        }
    }

    /// Rule 3.
    fn lack_of_witness(&self, provider: &str) -> Option<HoldReason> {
        let others = self.fleet.count(provider).saturating_sub(1);
        let has_no_witness = others > 0 && !self.fleet.shows_machine(provider, self.results);
        has_no_witness.then_some(HoldReason::NoWitness { others })
    }

    /// Rule 4.
    fn brake(&self, provider: &str) -> Option<HoldReason> {
        let gone = self.memory.deleted(provider, self.fleet);
        let missing = self.memory.missing(provider, self.fleet);
        let of = self.fleet.staying(provider, self.memory) + gone;
        let allowed = self.policy.allowed(of);
        let window = self.policy.brake_window;
        (gone + missing > allowed).then_some(HoldReason::Brake { missing, gone, allowed, of, window })
    }
}

// ---- Policy

impl Policy {
    /// Returns the minimum age of this Node for its deletion.
    fn grace_of(&self, node: &Node) -> Duration {
        if node.is_initialized() { self.grace } else { self.grace.max(self.uninitialized_grace) }
    }

    /// Returns the maximum number of deletions within the window, of a total of `of` Nodes.
    pub fn allowed(&self, of: usize) -> usize {
        // 0.29 × 100 is a little less than 29 in binary, and means 29.
        let share = (self.brake_share.clamp(0.0, 1.0) * of as f64 + 1e-9).floor();
        (share as usize).max(1)
    }
}

impl Default for Policy {
    /// Returns the default policy. Its share allows the deletion of one zone of three, and no more.
    fn default() -> Policy {
        Policy {
            grace: Duration::from_secs(30),
            uninitialized_grace: Duration::from_secs(300),
            confirm_after: Duration::from_secs(10),
            brake_share: 0.34,
            brake_window: Duration::from_secs(600),
        }
    }
}
