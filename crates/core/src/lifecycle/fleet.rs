//! The Nodes of one pass, and what the cloud says of their machines.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::Memory;
use crate::{Node, NodeName, Ready, Taint};

/// All Nodes that are ours to judge, and whose machines they are.
#[derive(Debug, Clone, Default)]
pub struct Fleet {
    members: BTreeMap<Key, Member>,
}

/// Tells a Node from an earlier or later one of the same name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Key {
    name: NodeName,
    uid: String,
}

#[derive(Debug, Clone)]
struct Member {
    node: Arc<Node>,
    provider: Option<Arc<str>>,
}

/// What a pass starts with.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Lookups {
    /// Not Ready: the cloud is asked about their machines; an answer from a cache will do.
    pub ask: Vec<Arc<Node>>,
    /// Ready, and so not stopped: the shutdown taint goes, without asking anybody (LIFE-4).
    pub untaint: Vec<Arc<Node>>,
}

/// What the provider that owns a Node says of its machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Answer {
    /// It exists and is not known to be stopped.
    Running,
    /// It exists and is powered off, suspended or the like.
    Stopped,
    /// The cloud answered, completely, and has no such machine.
    Gone,
    /// The Node belongs to no provider here, or its provider declines it.
    Unowned,
    /// The question failed: nothing is known that was not known before.
    Failed,
}

pub(super) type Answers = HashMap<Key, Answer>;

/// Answers that may have come out of a cache. They can start a deletion, and never carry one through.
#[derive(Debug, Clone, Default)]
pub struct CachedAnswers(Answers);

/// Answers that were asked for after the question was put, all in one read.
#[derive(Debug, Clone, Default)]
pub struct FreshAnswers(Answers);

impl Fleet {
    /// These Nodes without those that are not for us. `owner` names the provider whose machine a Node is; a Node of
    /// nobody is never deleted.
    pub fn new(nodes: impl IntoIterator<Item = Arc<Node>>, owner: impl Fn(&Node) -> Option<Arc<str>>) -> Fleet {
        let managed = nodes.into_iter().filter(|node| !node.is_paused());
        let members = managed.map(|node| (Key::of(&node), Member { provider: owner(&node), node })).collect();
        Fleet { members }
    }

    /// Whom to ask the cloud about, and what needs no question (LIFE-3 to LIFE-5).
    pub fn questions(&self) -> Lookups {
        let mut questions = Lookups::default();
        for Member { node, .. } in self.members.values() {
            match node.ready {
                Ready::True if node.has_shutdown_taint() => questions.untaint.push(node.clone()),
                Ready::True => {}
                Ready::False | Ready::Unknown => questions.ask.push(node.clone()),
            }
        }
        questions
    }

    /// The Nodes whose machines are stopped while nothing on them says so (LIFE-8), or not in the words that others look
    /// for. A machine that is no longer stopped keeps its taint until its Node is Ready.
    pub(super) fn stopped_without_taint(&self, answers: &Answers) -> Vec<Arc<Node>> {
        let wanted = Taint::shutdown();
        self.answered(answers)
            .filter(|(member, answer)| *answer == Answer::Stopped && member.node.ready != Ready::True)
            .filter(|(member, _)| !member.node.taints.contains(&wanted))
            .map(|(member, _)| member.node.clone())
            .collect()
    }

    /// The Nodes, not Ready, whose provider says that their machines are gone.
    pub(super) fn gone<'a>(&'a self, answers: &'a Answers) -> impl Iterator<Item = (&'a Arc<Node>, &'a Arc<str>)> {
        self.answered(answers)
            .filter(|(member, answer)| *answer == Answer::Gone && member.node.ready != Ready::True)
            .filter_map(|(member, _)| Some((&member.node, member.provider.as_ref()?)))
    }

    /// At most so many Nodes of this provider whose machines should be visible: those that were just seen before those
    /// that are merely Ready.
    pub(super) fn witnesses(&self, provider: &str, answers: &Answers, at_most: usize) -> Vec<Arc<Node>> {
        let is_seen = |key: &Key| answers.get(key).is_some_and(|answer| answer.is_visible());
        let just_seen = self.of(provider).filter(|(key, _)| is_seen(key));
        let merely_ready = self.of(provider).filter(|(key, node)| node.ready == Ready::True && !is_seen(key));
        just_seen.chain(merely_ready).take(at_most).map(|(_, node)| node.clone()).collect()
    }

    /// Whether the answers show a machine of any Node of this provider.
    pub(super) fn shows_machine(&self, provider: &str, answers: &Answers) -> bool {
        let of_provider = |member: &Member| member.provider.as_deref() == Some(provider);
        self.answered(answers).any(|(member, answer)| answer.is_visible() && of_provider(member))
    }

    /// How many Nodes this provider has.
    pub(super) fn count(&self, provider: &str) -> usize {
        self.of(provider).count()
    }

    /// How many Nodes of this provider are here and not counted as deleted.
    pub(super) fn staying(&self, provider: &str, memory: &Memory) -> usize {
        self.of(provider).filter(|(_, node)| !memory.is_deleted(node)).count()
    }

    pub(super) fn get(&self, key: &Key) -> Option<&Node> {
        self.members.get(key).map(|member| &*member.node)
    }

    /// The Nodes of this provider.
    pub(super) fn of<'a>(&'a self, provider: &'a str) -> impl Iterator<Item = (&'a Key, &'a Arc<Node>)> {
        let own = self.members.iter().filter(move |(_, member)| member.provider.as_deref() == Some(provider));
        own.map(|(key, member)| (key, &member.node))
    }

    fn answered<'a>(&'a self, answers: &'a Answers) -> impl Iterator<Item = (&'a Member, Answer)> {
        self.members.iter().filter_map(|(key, member)| Some((member, *answers.get(key)?)))
    }
}

impl Key {
    pub(super) fn of(node: &Node) -> Key {
        Key { name: node.name.clone(), uid: node.uid.clone() }
    }
}

impl Answer {
    /// The machine exists.
    pub fn is_visible(self) -> bool {
        matches!(self, Answer::Running | Answer::Stopped)
    }

    /// The machine, if there was one, is not simply gone.
    pub(super) fn refutes_gone(self) -> bool {
        matches!(self, Answer::Running | Answer::Stopped | Answer::Unowned)
    }
}

impl CachedAnswers {
    /// What was answered about these Nodes.
    pub fn new<'a>(answers: impl IntoIterator<Item = (&'a Arc<Node>, Answer)>) -> CachedAnswers {
        CachedAnswers(keyed(answers))
    }

    pub(super) fn answers(&self) -> &Answers {
        &self.0
    }
}

impl FreshAnswers {
    /// What was answered about these Nodes by one read that no cache had a part in. Whoever calls this vouches for it.
    pub fn uncached<'a>(answers: impl IntoIterator<Item = (&'a Arc<Node>, Answer)>) -> FreshAnswers {
        FreshAnswers(keyed(answers))
    }

    pub(super) fn answers(&self) -> &Answers {
        &self.0
    }
}

fn keyed<'a>(answers: impl IntoIterator<Item = (&'a Arc<Node>, Answer)>) -> Answers {
    answers.into_iter().map(|(node, answer)| (Key::of(node), answer)).collect()
}
