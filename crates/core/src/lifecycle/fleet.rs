//! Nodes of one sync, and the results of the lookups of their machines.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::Memory;
use crate::{Node, NodeName, Ready, Taint};

/// All managed Nodes, each with the provider that owns it.
#[derive(Debug, Clone, Default)]
pub struct Fleet {
    members: BTreeMap<Key, Member>,
}

/// Name and UID, which distinguish a Node from an earlier or later one of the same name.
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

/// First actions of a sync.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Lookups {
    /// Nodes that are not Ready: look up their machines in the cloud; a cached result is sufficient.
    pub nodes: Vec<Arc<Node>>,
    /// Nodes that are Ready, and therefore not stopped: remove the shutdown taint without a lookup (LIFE-4).
    pub untaint: Vec<Arc<Node>>,
}

/// Result of a lookup of a Node's machine at the provider that owns the Node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LookupResult {
    /// The machine exists and is not known to be stopped.
    Running,
    /// The machine exists and is powered off, suspended or otherwise stopped.
    Stopped,
    /// The cloud returned a complete response without the machine.
    Gone,
    /// No configured provider owns the Node, or its provider is not responsible for it.
    Unowned,
    /// The lookup failed: nothing new is known.
    Failed,
}

pub(super) type Results = HashMap<Key, LookupResult>;

/// Lookup results that may come from a cache. They can start a deletion, but never complete one.
#[derive(Debug, Clone, Default)]
pub struct CachedResults(Results);

/// Lookup results of one uncached read.
#[derive(Debug, Clone, Default)]
pub struct FreshResults(Results);

impl Fleet {
    /// Creates a fleet of these Nodes, without paused ones. `owner` returns the provider that owns a Node; a Node without an
    /// owner is never deleted.
    pub fn new(nodes: impl IntoIterator<Item = Arc<Node>>, owner: impl Fn(&Node) -> Option<Arc<str>>) -> Fleet {
        let managed = nodes.into_iter().filter(|node| !node.is_paused());
        let members = managed.map(|node| (Key::of(&node), Member { provider: owner(&node), node })).collect();
        Fleet { members }
    }

    /// Returns the Nodes to look up in the cloud, and the actions that need no lookup (LIFE-3 to LIFE-5).
    pub fn lookups(&self) -> Lookups {
        let mut lookups = Lookups::default();
        for Member { node, .. } in self.members.values() {
            match node.ready {
                Ready::True if node.has_shutdown_taint() => lookups.untaint.push(node.clone()),
                Ready::True => {}
                Ready::False | Ready::Unknown => lookups.nodes.push(node.clone()),
            }
        }
        lookups
    }

    /// Returns the Nodes whose machines are stopped and that lack the exact shutdown taint (LIFE-8). A Node keeps the taint until
    /// it is Ready, even if its machine runs again.
    pub(super) fn stopped_without_taint(&self, results: &Results) -> Vec<Arc<Node>> {
        let desired = Taint::shutdown();
        self.with_results(results)
            .filter(|(member, result)| *result == LookupResult::Stopped && member.node.ready != Ready::True)
            .filter(|(member, _)| !member.node.taints.contains(&desired))
            .map(|(member, _)| member.node.clone())
            .collect()
    }

    /// Returns the Nodes that are not Ready and whose provider reports their machines as gone.
    pub(super) fn gone<'a>(&'a self, results: &'a Results) -> impl Iterator<Item = (&'a Arc<Node>, &'a Arc<str>)> {
        self.with_results(results)
            .filter(|(member, result)| *result == LookupResult::Gone && member.node.ready != Ready::True)
            .filter_map(|(member, _)| Some((&member.node, member.provider.as_ref()?)))
    }

    /// Returns at most `at_most` Nodes of this provider whose machines should be visible: first those whose machine was just
    /// seen, then those that are Ready.
    pub(super) fn witnesses(&self, provider: &str, results: &Results, at_most: usize) -> Vec<Arc<Node>> {
        let is_seen = |key: &Key| results.get(key).is_some_and(|result| result.is_visible());
        let just_seen = self.of(provider).filter(|(key, _)| is_seen(key));
        let merely_ready = self.of(provider).filter(|(key, node)| node.ready == Ready::True && !is_seen(key));
        just_seen.chain(merely_ready).take(at_most).map(|(_, node)| node.clone()).collect()
    }

    /// Returns whether the results contain the machine of any Node of this provider.
    pub(super) fn shows_machine(&self, provider: &str, results: &Results) -> bool {
        let of_provider = |member: &Member| member.provider.as_deref() == Some(provider);
        self.with_results(results).any(|(member, result)| result.is_visible() && of_provider(member))
    }

    /// Returns the number of Nodes of this provider.
    pub(super) fn count(&self, provider: &str) -> usize {
        self.of(provider).count()
    }

    /// Returns the number of Nodes of this provider that do not count as deleted.
    pub(super) fn staying(&self, provider: &str, memory: &Memory) -> usize {
        self.of(provider).filter(|(_, node)| !memory.is_deleted(node)).count()
    }

    pub(super) fn get(&self, key: &Key) -> Option<&Node> {
        self.members.get(key).map(|member| &*member.node)
    }

    /// Returns the Nodes of this provider.
    pub(super) fn of<'a>(&'a self, provider: &'a str) -> impl Iterator<Item = (&'a Key, &'a Arc<Node>)> {
        let own = self.members.iter().filter(move |(_, member)| member.provider.as_deref() == Some(provider));
        own.map(|(key, member)| (key, &member.node))
    }

    fn with_results<'a>(&'a self, results: &'a Results) -> impl Iterator<Item = (&'a Member, LookupResult)> {
        self.members.iter().filter_map(|(key, member)| Some((member, *results.get(key)?)))
    }
}

impl Key {
    pub(super) fn of(node: &Node) -> Key {
        Key { name: node.name.clone(), uid: node.uid.clone() }
    }
}

impl LookupResult {
    /// Returns whether the machine exists.
    pub fn is_visible(self) -> bool {
        matches!(self, LookupResult::Running | LookupResult::Stopped)
    }

    /// Returns whether the result contradicts that the machine is gone.
    pub(super) fn refutes_gone(self) -> bool {
        matches!(self, LookupResult::Running | LookupResult::Stopped | LookupResult::Unowned)
    }
}

impl CachedResults {
    /// Creates lookup results that may come from a cache.
    pub fn new<'a>(results: impl IntoIterator<Item = (&'a Arc<Node>, LookupResult)>) -> CachedResults {
        CachedResults(keyed(results))
    }

    pub(super) fn results(&self) -> &Results {
        &self.0
    }
}

impl FreshResults {
    /// Creates the lookup results of one uncached read. The caller guarantees that no cache was involved.
    pub fn uncached<'a>(results: impl IntoIterator<Item = (&'a Arc<Node>, LookupResult)>) -> FreshResults {
        FreshResults(keyed(results))
    }

    pub(super) fn results(&self) -> &Results {
        &self.0
    }
}

fn keyed<'a>(results: impl IntoIterator<Item = (&'a Arc<Node>, LookupResult)>) -> Results {
    results.into_iter().map(|(node, result)| (Key::of(node), result)).collect()
}
