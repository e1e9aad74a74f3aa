//! The account of who holds which range and who waits for one, and how it keeps up with the store.
//!
//! Whatever changes the account reads the store under the account's lock. A deletion is heard after the store shows it, and
//! gives back under that lock, too; so nothing can be reserved for a Node after it was given up, and nothing that a Node of
//! the same name says it has can be given back for the sake of its predecessor.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bowline_core::ipam::{Allocator, Exhausted, InvalidPodCidr, Overlap, Usage};
use bowline_core::{Node, NodeName};
use bowline_runtime::Priority;
use ipnet::IpNet;

use super::line::Line;
use super::{IpamError, Options, Shared};

/// The account, and its lock.
pub(super) struct Ledger(Mutex<Book>);

/// The account.
pub(super) struct Book {
    allocator: Allocator,
    /// Everything that was there at the start is in. Until then changes of the store are not looked at.
    is_open: bool,
    /// The last write for these may have landed or not: they keep what they were given.
    unclear: HashSet<NodeName>,
    /// There was nothing left for these.
    waiting: Line,
}

/// What a Node gets.
pub(super) enum Reservation {
    /// These, which are its own from now on.
    Granted(Vec<IpNet>),
    /// Nothing is left.
    Full(Exhausted),
    /// It is gone, or has ranges by now.
    Moot,
}

impl Ledger {
    pub(super) fn new(options: &Options) -> Ledger {
        Ledger(Mutex::new(Book {
            allocator: Allocator::new(&options.ranges, &options.services),
            is_open: false,
            unclear: HashSet::new(),
            waiting: Line::default(),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        // Every change below leaves the account whole, so a panic elsewhere does not spoil it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    /// Notes what all Nodes have (IPAM-6), and listens to changes from then on.
    pub(super) fn open(&self) -> Result<(), IpamError> {
        let mut book = self.ledger.lock();
        book.is_open = true;
        let mut nodes = self.context.nodes.all();
        nodes.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        let misfits: Vec<InvalidPodCidr> = nodes.iter().filter_map(|node| self.note(&mut book, node).err()).collect();
        self.metrics.count(&mut book.allocator);
        if misfits.is_empty() { Ok(()) } else { Err(IpamError::Misfits(misfits)) }
    }

    /// Notes what this Node has, unless it is gone.
    pub(super) fn learn(&self, node: &Node) {
        let mut book = self.ledger.lock();
        let is_there = self.context.nodes.get(node.name.as_str()).is_some_and(|known| known.uid == node.uid);
        if !book.is_open || !is_there {
            return;
        }
        book.unclear.remove(&node.name);
        book.waiting.leave(&node.name);
        let noted = self.note(&mut book, node);
        self.changed(&mut book);
        drop(book);
        if let Err(misfit) = noted {
            self.tell_misfit(node, &misfit);
        }
    }

    /// Ranges for this Node, which it then holds.
    pub(super) fn reserve(&self, node: &Node) -> Reservation {
        let mut book = self.ledger.lock();
        if !self.is_unserved(node) {
            return Reservation::Moot;
        }
        let reservation = book.allocator.allocate(&node.name);
        self.metrics.count(&mut book.allocator);
        match reservation {
            Ok(ranges) => {
                book.waiting.leave(&node.name);
                Reservation::Granted(ranges)
            }
            Err(full) => {
                book.waiting.join(&node.name);
                Reservation::Full(full)
            }
        }
    }

    /// The Node is to have what the cloud leads to it, if that is among the cluster's ranges and no other Node's.
    pub(super) fn reserve_these(&self, node: &Node, ranges: &[IpNet]) -> Result<Reservation, InvalidPodCidr> {
        let pod_cidrs: Vec<String> = ranges.iter().map(ToString::to_string).collect();
        let mut book = self.ledger.lock();
        if !self.is_unserved(node) {
            return Ok(Reservation::Moot);
        }
        if !self.options.ranges.is_empty() {
            book.allocator.admit(&node.name, &pod_cidrs)?;
        }
        // What was written before, and may yet arrive, stays the Node's, too; that this is more than it may have is known.
        let may_arrive = book.unclear.contains(&node.name);
        let kept = book.allocator.held(&node.name).iter().filter(|_| may_arrive).map(ToString::to_string);
        let pod_cidrs = pod_cidrs.into_iter().chain(kept).collect();
        drop(self.note(&mut book, &Node { pod_cidrs, ..node.clone() }));
        self.changed(&mut book);
        Ok(Reservation::Granted(ranges.to_vec()))
    }

    /// The Node's ranges are among the cluster's and no other Node's, so that the cloud may lead them to its machine.
    pub(super) fn admit(&self, node: &Node) -> Result<(), InvalidPodCidr> {
        self.ledger.lock().allocator.admit(&node.name, &node.pod_cidrs)
    }

    /// The Node of this name holds what the store says that it has, and nothing else.
    pub(super) fn give_back(&self, name: &NodeName) {
        let mut book = self.ledger.lock();
        if !book.is_open {
            return;
        }
        book.unclear.remove(name);
        match self.context.nodes.get(name.as_str()) {
            // A misfit is told by whoever heard of it.
            Some(node) => drop(self.note(&mut book, &node)),
            None => {
                book.waiting.leave(name);
                book.allocator.release(name);
            }
        }
        self.changed(&mut book);
    }

    /// Work on this Node is over. If it was woken and did not come to ask for a block, the next one is.
    pub(super) fn pass_on(&self, name: &NodeName) {
        let mut book = self.ledger.lock();
        if book.waiting.decline(name) {
            self.changed(&mut book);
        }
    }

    /// The store still has this very Node, and it lacks ranges.
    pub(super) fn still_needs(&self, node: &Node) -> bool {
        let _book = self.ledger.lock();
        self.is_unserved(node)
    }

    /// Whether the last write landed is not known, unless the store shows it: then this is `false`.
    pub(super) fn set_unclear(&self, node: &Node) -> bool {
        let mut book = self.ledger.lock();
        self.is_unserved(node) && {
            book.unclear.insert(node.name.clone());
            true
        }
    }

    pub(super) fn is_unclear(&self, name: &NodeName) -> bool {
        self.ledger.lock().unclear.contains(name)
    }

    pub(super) fn usage(&self) -> Vec<Usage> {
        self.ledger.lock().allocator.usage()
    }

    pub(super) fn overlaps(&self) -> Vec<Overlap> {
        self.ledger.lock().allocator.overlaps()
    }

    /// The store still has this very Node, without ranges.
    fn is_unserved(&self, node: &Node) -> bool {
        let known = self.context.nodes.get(node.name.as_str());
        known.is_some_and(|known| known.uid == node.uid && known.pod_cidrs.is_empty())
    }

    fn note(&self, book: &mut Book, node: &Node) -> Result<(), InvalidPodCidr> {
        // Where the cloud decides, the cluster need not have ranges of its own.
        if self.options.ranges.is_empty() {
            return Ok(());
        }
        book.allocator.observe(&node.name, &node.pod_cidrs)
    }

    /// Counts what changed, and wakes as many of those that wait as there is room for: sooner than their back-off would, and
    /// no more, because the others would find nothing. Those that were woken and have not come yet have room reserved.
    fn changed(&self, book: &mut Book) {
        self.metrics.count(&mut book.allocator);
        let mut room = book.allocator.room().saturating_sub(book.waiting.expected());
        while room > 0
            && let Some(name) = book.waiting.call()
        {
            if self.context.nodes.get(name.as_str()).is_some_and(|node| self.needs_work(&node)) {
                self.queue.add(name, Priority::High);
                room -= 1;
            } else {
                book.waiting.decline(&name);
            }
        }
    }
}
