//! Allocated pod CIDRs by Node, the Nodes that wait for one, and how both follow the store.
//!
//! Every change reads the store under the lock of the allocations. A deletion event arrives after the store has removed the Node,
//! and releases its CIDRs under the same lock. Therefore nothing is reserved for a Node after its release, and the release of a
//! deleted Node does not free the CIDRs of a new Node with the same name.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bowline_core::ipam::{Allocator, Exhausted, InvalidPodCidr, Overlap, Usage};
use bowline_core::{Node, NodeName};
use bowline_runtime::Priority;
use ipnet::IpNet;

use super::waiting::WaitingNodes;
use super::{IpamError, Options, Shared};

/// Allocations, under one lock.
pub(super) struct Allocations(Mutex<State>);

/// State under the lock.
pub(super) struct State {
    allocator: Allocator,
    /// All Nodes of the start are recorded. Until then, changes of the store are ignored.
    is_open: bool,
    /// Nodes whose last write has an unknown outcome: they keep their reservation.
    unclear: HashSet<NodeName>,
    /// Nodes that wait because a cluster CIDR is exhausted.
    waiting: WaitingNodes,
}

/// Result of a reservation.
pub(super) enum Reservation {
    /// The Node holds these CIDRs.
    Granted(Vec<IpNet>),
    /// A cluster CIDR is exhausted.
    Full(Exhausted),
    /// The Node is deleted, or has CIDRs by now.
    Moot,
}

impl Allocations {
    pub(super) fn new(options: &Options) -> Allocations {
        Allocations(Mutex::new(State {
            allocator: Allocator::new(&options.cluster_cidrs, &options.service_cidrs),
            is_open: false,
            unclear: HashSet::new(),
            waiting: WaitingNodes::default(),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change leaves the state consistent, so a poisoned lock is safe to use.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    /// Records the pod CIDRs of all Nodes (IPAM-6), and follows changes of the store from then on.
    pub(super) fn open(&self) -> Result<(), IpamError> {
        let mut state = self.allocations.lock();
        state.is_open = true;
        let mut nodes = self.context.nodes.all();
        nodes.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        let invalid: Vec<InvalidPodCidr> =
            nodes.iter().filter_map(|node| self.record(&mut state, node).err()).collect();
        self.metrics.count(&mut state.allocator);
        if invalid.is_empty() { Ok(()) } else { Err(IpamError::InvalidPodCidrs(invalid)) }
    }

    /// Records the pod CIDRs of this Node, unless it is deleted.
    pub(super) fn observe_node(&self, node: &Node) {
        let mut state = self.allocations.lock();
        let is_there = self.context.nodes.get(node.name.as_str()).is_some_and(|known| known.uid == node.uid);
        if !state.is_open || !is_there {
            return;
        }
        state.unclear.remove(&node.name);
        state.waiting.leave(&node.name);
        let noted = self.record(&mut state, node);
        self.changed(&mut state);
        drop(state);
        if let Err(invalid) = noted {
            self.report_invalid(node, &invalid);
        }
    }

    /// Reserves CIDRs for this Node.
    pub(super) fn reserve(&self, node: &Node) -> Reservation {
        let mut state = self.allocations.lock();
        if !self.is_unserved(node) {
            return Reservation::Moot;
        }
        let reservation = state.allocator.allocate(&node.name);
        self.metrics.count(&mut state.allocator);
        match reservation {
            Ok(cidrs) => {
                state.waiting.leave(&node.name);
                Reservation::Granted(cidrs)
            }
            Err(full) => {
                state.waiting.join(&node.name);
                Reservation::Full(full)
            }
        }
    }

    /// Reserves the CIDRs that the cloud has assigned to the Node's machine, if they are in the cluster CIDRs and free.
    pub(super) fn reserve_specific(&self, node: &Node, cidrs: &[IpNet]) -> Result<Reservation, InvalidPodCidr> {
        let pod_cidrs: Vec<String> = cidrs.iter().map(ToString::to_string).collect();
        let mut state = self.allocations.lock();
        if !self.is_unserved(node) {
            return Ok(Reservation::Moot);
        }
        if !self.options.cluster_cidrs.is_empty() {
            state.allocator.admit(&node.name, &pod_cidrs)?;
        }
        // An earlier write with an unknown outcome may still arrive, so the Node keeps its CIDRs, too. That it holds too many is an
        // expected error here.
        let may_arrive = state.unclear.contains(&node.name);
        let kept = state.allocator.held(&node.name).iter().filter(|_| may_arrive).map(ToString::to_string);
        let pod_cidrs = pod_cidrs.into_iter().chain(kept).collect();
        drop(self.record(&mut state, &Node { pod_cidrs, ..node.clone() }));
        self.changed(&mut state);
        Ok(Reservation::Granted(cidrs.to_vec()))
    }

    /// Checks that the Node's pod CIDRs are in the cluster CIDRs and no other Node's, so that the cloud may assign them.
    pub(super) fn admit(&self, node: &Node) -> Result<(), InvalidPodCidr> {
        self.allocations.lock().allocator.admit(&node.name, &node.pod_cidrs)
    }

    /// Releases all CIDRs of this Node except those that the store shows.
    pub(super) fn release(&self, name: &NodeName) {
        let mut state = self.allocations.lock();
        if !state.is_open {
            return;
        }
        state.unclear.remove(name);
        match self.context.nodes.get(name.as_str()) {
            // The event handler reports invalid CIDRs.
            Some(node) => drop(self.record(&mut state, &node)),
            None => {
                state.waiting.leave(name);
                state.allocator.release(name);
            }
        }
        self.changed(&mut state);
    }

    /// Ends the sync of this Node. If it was woken and did not reserve a block, the next waiting Node is woken.
    pub(super) fn finish_waiting(&self, name: &NodeName) {
        let mut state = self.allocations.lock();
        if state.waiting.decline(name) {
            self.changed(&mut state);
        }
    }

    /// Whether the store still has this Node without pod CIDRs.
    pub(super) fn still_needs(&self, node: &Node) -> bool {
        let _state = self.allocations.lock();
        self.is_unserved(node)
    }

    /// Records that the outcome of the last write is unknown. Returns `false` if the store shows the outcome already.
    pub(super) fn set_unclear(&self, node: &Node) -> bool {
        let mut state = self.allocations.lock();
        self.is_unserved(node) && {
            state.unclear.insert(node.name.clone());
            true
        }
    }

    pub(super) fn is_unclear(&self, name: &NodeName) -> bool {
        self.allocations.lock().unclear.contains(name)
    }

    pub(super) fn usage(&self) -> Vec<Usage> {
        self.allocations.lock().allocator.usage()
    }

    pub(super) fn overlaps(&self) -> Vec<Overlap> {
        self.allocations.lock().allocator.overlaps()
    }

    /// Whether the store still has a Node with this UID, without pod CIDRs.
    fn is_unserved(&self, node: &Node) -> bool {
        let known = self.context.nodes.get(node.name.as_str());
        known.is_some_and(|known| known.uid == node.uid && known.pod_cidrs.is_empty())
    }

    fn record(&self, state: &mut State, node: &Node) -> Result<(), InvalidPodCidr> {
        // With a cloud allocator, the cluster need not have cluster CIDRs.
        if self.options.cluster_cidrs.is_empty() {
            return Ok(());
        }
        state.allocator.observe(&node.name, &node.pod_cidrs)
    }

    /// Updates the metrics, and wakes as many waiting Nodes as there are free blocks, before their back-off ends. More would find
    /// no block. Nodes that were woken and have not reserved yet count as users.
    fn changed(&self, state: &mut State) {
        self.metrics.count(&mut state.allocator);
        let mut free = state.allocator.remaining().saturating_sub(state.waiting.woken_count());
        while free > 0
            && let Some(name) = state.waiting.wake()
        {
            if self.context.nodes.get(name.as_str()).is_some_and(|node| self.needs_work(&node)) {
                self.queue.add(name, Priority::High);
                free -= 1;
            } else {
                state.waiting.decline(&name);
            }
        }
    }
}
