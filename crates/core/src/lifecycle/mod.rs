//! What becomes of Nodes that are not ready (LIFE-3 to LIFE-8), and the rules against doubtful deletion.
//!
//! A pass looks at all Nodes at once, in two steps, so that one cloud read serves all of them:
//!
//! ```text
//!  Fleet ──► questions ──► whom to ask the cloud about ──(observe)──► Glance
//!                └──► taints to remove, whatever the cloud says
//!  Fleet, Glance, Memory ──► decide ──► Verdict: taints to add, whom to look at again, what is held back and why
//!                                                     │
//!                    whom to look at again ──(observe, past every cache)──► Look
//!  Fleet, Look, Memory ──► conclude ──► Conclusion: Nodes to delete, what is held back and why
//! ```
//!
//! [`decide`] runs in every pass, also if nobody had to be asked, because it forgets what no longer holds. [`conclude`]
//! runs if the verdict asks for a look, best on a fresh snapshot of the Nodes: reading a cloud takes time, and a Node
//! that became Ready meanwhile stays. Only a [`FreshAnswers`] can lead to a deletion, and only an uncached read may become one.
//!
//! A Node is deleted only if all of this holds; everything else leaves it alone:
//!
//! 1. it is not Ready, and was registered at least [`Policy::grace`] ago, or [`Policy::uninitialized_grace`] if it shows no
//!    sign that a cloud has ever known its machine; what was seen before that does not count;
//! 2. the provider that owns its ID answered [`Gone`](Answer::Gone), by a read that passed every cache, twice, at least
//!    [`Policy::confirm_after`] apart, and nothing else in between. A read that fails is no answer: it confirms nothing
//!    and refutes nothing. The Node being Ready, its machine being seen by any read, or a new Node of the same name
//!    start all over;
//! 3. the same read showed at least one machine of another Node of that provider (the witness), unless this provider
//!    has no other Node: an account or project in which nothing is visible is the wrong one, not an empty one;
//! 4. no more than [`Policy::brake_share`] of that provider's Nodes (and always one) go within [`Policy::brake_window`],
//!    counting those that went already and those that were seen gone once. If more would go, none goes: the brake holds
//!    until fewer are missing, or an operator lets Nodes go with the annotation `bowline.dev/allow-deletion: "true"`.
//!
//! The annotation waives rules 3 and 4, never 1 and 2; a Node that has it is no longer counted against the others.
//! Nodes that an operator marked as not for us ([`Node::is_paused`]) are no part of any of this, and a Node that is
//! being deleted already is not deleted again.
//!
//! What is remembered of missing machines is lost with the process: a new leader needs two reads of its own. Deletions
//! outlive it in a [record](Memory::deletion_record), which is written before a Node is deleted.
// upstream: deletes at the first "does not exist", without regard to age, number or a deletion under way (LIFE-6).

mod doubt;
mod fleet;
mod memory;
mod record;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;

pub use self::doubt::{Held, HoldReason};
use self::fleet::Answers;
pub use self::fleet::{Answer, CachedAnswers, Fleet, FreshAnswers, Lookups};
pub use self::memory::Memory;
use crate::Node;

/// How many Nodes whose machines should be visible are asked about beside those whose machines seem gone. More than one,
/// because any of them may just have vanished, too; few, because some clouds are asked for each of them alone.
const WITNESSES: usize = 3;

/// When a deletion is beyond doubt.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Policy {
    /// Minimum age of a Node that may be deleted: the cloud may not list its machine yet.
    pub grace: Duration,
    /// The same for a Node that is not [initialised](Node::is_initialized). There, "gone" may always have meant "not yet".
    pub uninitialized_grace: Duration,
    /// How far apart the two looks are at least.
    pub confirm_after: Duration,
    /// The share of a provider's Nodes that may go within the window, from 0 to 1; one Node always may.
    pub brake_share: f64,
    /// How long a deletion counts.
    pub brake_window: Duration,
}

/// One point in time, by two clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// For the time between two events that we saw ourselves.
    pub instant: Instant,
    /// For the age of what others wrote down.
    pub wall: Timestamp,
}

/// What follows from a read that may have been served from a cache: nothing that could not be undone.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Verdict {
    /// Their machines are stopped; they lack the taint that says so ([`Taint::shutdown`](crate::Taint::shutdown)).
    pub taint: Vec<Arc<Node>>,
    /// To be asked about in one read past every cache: those whose machines seem gone, and their witnesses.
    pub look: Vec<Arc<Node>>,
    /// Not even looked at again in this pass.
    pub held: Vec<Held>,
}

/// What follows from a read past every cache.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Conclusion {
    /// To be deleted, if they are still the same objects.
    pub delete: Vec<Deletion>,
    /// Their machines are gone, and yet they stay for now.
    pub held: Vec<Held>,
}

/// A Node to be deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deletion {
    /// The Node; its UID belongs into the request.
    pub node: Arc<Node>,
    /// The provider that has no machine for it.
    pub provider: Arc<str>,
}

/// What the Nodes of a pass are judged by.
#[derive(Clone, Copy)]
struct Scene<'a> {
    fleet: &'a Fleet,
    answers: &'a Answers,
    memory: &'a Memory,
    policy: &'a Policy,
    now: Moment,
}

/// The Nodes whose machines are reported gone.
#[derive(Default)]
struct Suspects {
    /// Not to be deleted yet, whatever another look says.
    held: Vec<Held>,
    /// The others, per provider.
    due: BTreeMap<Arc<str>, Due>,
}

/// Nodes of one provider, by the look that is due.
#[derive(Default)]
struct Due {
    /// Nobody has looked past the caches yet.
    first: Vec<Arc<Node>>,
    /// The first look is long enough ago.
    second: Vec<Arc<Node>>,
}

/// Where a Node stands whose machine is reported gone.
enum Standing {
    Held(HoldReason),
    FirstLook,
    SecondLook,
}

/// What follows from the answers to [`Fleet::questions`].
pub fn decide(fleet: &Fleet, glance: &CachedAnswers, memory: &mut Memory, policy: &Policy, now: Moment) -> Verdict {
    let answers = glance.answers();
    memory.forget_outdated(fleet, policy, now);
    memory.forget_refuted(answers);
    let scene = Scene { fleet, answers, memory, policy, now };
    let Suspects { held, due } = scene.suspects();
    let mut verdict = Verdict { taint: fleet.stopped_without_taint(answers), look: Vec::new(), held };
    for (provider, due) in due {
        scene.summon(&provider, due, &mut verdict);
    }
    verdict
}

/// What follows from the look that a [`Verdict`] asked for.
pub fn conclude(fleet: &Fleet, look: &FreshAnswers, memory: &mut Memory, policy: &Policy, now: Moment) -> Conclusion {
    let answers = look.answers();
    memory.forget_outdated(fleet, policy, now);
    memory.forget_refuted(answers);
    let Suspects { held, due } = Scene { fleet, answers, memory, policy, now }.suspects();
    for node in due.values().flat_map(|due| &due.first) {
        memory.remember_gone(node, now);
    }
    let mut conclusion = Conclusion { delete: Vec::new(), held };
    for (provider, due) in due {
        Scene { fleet, answers, memory, policy, now }.judge(&provider, due, &mut conclusion);
    }
    for Deletion { node, provider } in &conclusion.delete {
        memory.remember_deletion(node, provider, now);
    }
    conclusion
}

// ---- the steps, for all Nodes and for those of one provider

impl Scene<'_> {
    /// Sorts out rules 1 and 2.
    fn suspects(&self) -> Suspects {
        let mut suspects = Suspects::default();
        for (node, provider) in self.fleet.gone(self.answers) {
            match self.standing(node) {
                Standing::Held(doubt) => suspects.held.push(Held::new(node, provider, doubt)),
                Standing::FirstLook => suspects.due.entry(provider.clone()).or_default().first.push(node.clone()),
                Standing::SecondLook => suspects.due.entry(provider.clone()).or_default().second.push(node.clone()),
            }
        }
        suspects
    }

    /// Asks for a look at what is due, except for Nodes that the brake holds whatever the look shows.
    fn summon(&self, provider: &Arc<str>, due: Due, verdict: &mut Verdict) {
        let brake = self.brake(provider);
        let mut look = due.first;
        for node in due.second {
            match &brake {
                Some(brake) if !node.is_deletion_allowed() => {
                    verdict.held.push(Held::new(&node, provider, brake.clone()))
                }
                _ => look.push(node),
            }
        }
        if !look.is_empty() {
            verdict.look.extend(look);
            verdict.look.extend(self.fleet.witnesses(provider, self.answers, WITNESSES));
        }
    }

    /// Lets Nodes go after their second look, except for those that rules 3 and 4 hold back.
    fn judge(&self, provider: &Arc<str>, due: Due, conclusion: &mut Conclusion) {
        let next_look = HoldReason::AwaitingSecondLook { left: self.policy.confirm_after };
        conclusion.held.extend(due.first.iter().map(|node| Held::new(node, provider, next_look.clone())));
        let doubt = self.brake(provider).or_else(|| self.lack_of_witness(provider));
        for node in due.second {
            match &doubt {
                Some(doubt) if !node.is_deletion_allowed() => {
                    conclusion.held.push(Held::new(&node, provider, doubt.clone()));
                }
                _ => conclusion.delete.push(Deletion { node, provider: provider.clone() }),
            }
        }
    }
}

// ---- the rules

impl Scene<'_> {
    /// Rules 1 and 2.
    fn standing(&self, node: &Node) -> Standing {
        let (grace, confirm_after) = (self.policy.grace_of(node), self.policy.confirm_after);
        // Of unknown age counts as new.
        let age = node.age(self.now.wall).unwrap_or_default();
        match self.memory.gone_for(node, self.now) {
            _ if node.deleting => Standing::Held(HoldReason::Leaving),
            _ if age < grace => Standing::Held(HoldReason::TooYoung { age, grace }),
            None => Standing::FirstLook,
            Some(time) if time < confirm_after => {
                Standing::Held(HoldReason::AwaitingSecondLook { left: confirm_after - time })
            }
            Some(_) => Standing::SecondLook,
        }
    }

    /// Rule 3.
    fn lack_of_witness(&self, provider: &str) -> Option<HoldReason> {
        let others = self.fleet.count(provider).saturating_sub(1);
        let is_blind = others > 0 && !self.fleet.shows_machine(provider, self.answers);
        is_blind.then_some(HoldReason::NoWitness { others })
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
    /// Minimum age of this Node.
    fn grace_of(&self, node: &Node) -> Duration {
        if node.is_initialized() { self.grace } else { self.grace.max(self.uninitialized_grace) }
    }

    /// How many of so many Nodes may go within the window.
    pub fn allowed(&self, of: usize) -> usize {
        // 0.29 × 100 is a little less than 29 in binary, and means 29.
        let share = (self.brake_share.clamp(0.0, 1.0) * of as f64 + 1e-9).floor();
        (share as usize).max(1)
    }
}

impl Default for Policy {
    /// The share lets one zone of three go, and stops there.
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
