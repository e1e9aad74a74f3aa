//! Result of one lookup, put together from the answers of all vCenters.

use std::collections::BTreeMap;
use std::sync::Arc;

use bowline_cloud::{Error, ErrorKind, Result, Retry};

use super::find::{Found, Read};
use super::known::Reference;
use super::wanted::Wanted;
use super::{FIND, MachineUuid};
use crate::soap::ManagedObject;
use crate::vcenter::{Machine, Reading, Tree};

/// How a machine matches, the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Match {
    Uuid,
    HostName,
    /// The first label of the host name.
    FirstLabel,
    Address,
}

/// A machine that matches.
#[derive(Debug, Clone)]
pub(super) struct Hit {
    pub found: Found,
    pub quality: Match,
}

/// One lookup with the answers so far.
#[derive(Debug)]
pub(super) struct Lookup<'a> {
    pub wanted: &'a Wanted,
    /// References under which the machine was known, and is not there any more.
    pub stale: Vec<Reference>,
    /// The machine exists, and cannot be read.
    is_settled: bool,
    hits: Vec<Hit>,
    /// Reason why the machine cannot be read although it exists.
    failure: Option<Error>,
    /// Reason why it may exist although it was not found.
    doubt: Option<Error>,
    /// Failure of a vCenter, which may have a machine that matches better.
    unanswered: Option<Error>,
}

impl Hit {
    pub(super) fn new(vcenter: usize, machine: &Machine, tree: &Arc<Tree>, quality: Match) -> Hit {
        Hit { found: Found { vcenter, machine: machine.clone(), tree: tree.clone() }, quality }
    }

    pub(super) fn reference(&self) -> Reference {
        Reference { vcenter: self.found.vcenter, object: self.found.machine.object.clone() }
    }
}

impl<'a> Lookup<'a> {
    pub(super) fn new(wanted: &'a Wanted) -> Lookup<'a> {
        Lookup {
            wanted,
            stale: Vec::new(),
            is_settled: false,
            hits: Vec::new(),
            failure: None,
            doubt: None,
            unanswered: None,
        }
    }

    /// Adds what was read through a known reference.
    pub(super) fn add_known(&mut self, object: &ManagedObject, vcenter: usize, read: &Read) {
        match read.machines.get(object) {
            None | Some(Reading::Skipped) => {}
            Some(Reading::Deleted) => self.stale.push(Reference { vcenter, object: object.clone() }),
            // The UUID of a machine can be changed.
            Some(Reading::Read(machine)) if self.has_other_uuid(machine) || machine.is_template => {
                self.stale.push(Reference { vcenter, object: object.clone() });
            }
            Some(Reading::Read(machine)) => self.add(Hit::new(vcenter, machine, &read.tree, Match::Uuid)),
            Some(Reading::Unreadable(reason)) => self.settle(Error::new(ErrorKind::Unavailable, FIND, reason.as_str())),
        }
    }

    /// A machine whose UUID cannot be read is still the one of its reference.
    fn has_other_uuid(&self, machine: &Machine) -> bool {
        !machine.uuid.is_empty() && self.wanted.uuid().is_some_and(|wanted| !wanted.matches(&machine.uuid))
    }

    pub(super) fn add(&mut self, hit: Hit) {
        self.hits.push(hit);
    }

    pub(super) fn fail(&mut self, error: Error) {
        self.failure.get_or_insert(error);
    }

    /// Ends the search with an error: the machine exists, and cannot be read.
    pub(super) fn settle(&mut self, error: Error) {
        self.fail(error);
        self.is_settled = true;
    }

    pub(super) fn doubt(&mut self, error: Error) {
        self.doubt.get_or_insert(error);
    }

    /// Adds the failure of a vCenter.
    pub(super) fn miss(&mut self, error: &Error) {
        self.doubt(error.clone());
        self.unanswered.get_or_insert_with(|| error.clone());
    }

    /// Adds the doubts of a listing, as far as they matter for this lookup. A machine that does not report its name cannot be the
    /// one of a Node that reports its UUID: it would have been found by that.
    pub(super) fn doubt_all(&mut self, doubt: &Option<Error>, name_doubt: &Option<Error>) {
        let name_doubt = name_doubt.as_ref().filter(|_| self.wanted.uuid().is_none());
        if let Some(error) = doubt.as_ref().or(name_doubt) {
            self.doubt(error.clone());
        }
    }

    /// Returns whether the machine is still to be found. A machine that matches less well than possible does not end the search: a
    /// wrong provider ID would be permanent.
    pub(super) fn is_open(&self) -> bool {
        !self.is_settled && self.quality() != Some(self.wanted.best_match())
    }

    /// Returns whether there is any machine, or the reason why it cannot be read.
    pub(super) fn has_none(&self) -> bool {
        !self.is_settled && self.hits.is_empty()
    }

    /// Returns the quality of the best match.
    fn quality(&self) -> Option<Match> {
        self.hits.iter().map(|hit| hit.quality).min()
    }

    /// Returns the machine, if it is the only one that was found.
    pub(super) fn only_hit(&self) -> Option<&Hit> {
        self.hits.first().filter(|_| self.hits.len() == 1)
    }

    /// Returns the machine; `None` if it certainly does not exist. `identity` is the same for two entries of one vCenter.
    pub(super) fn finish(self, identity: impl Fn(&Hit) -> (String, ManagedObject)) -> Result<Option<Found>> {
        let Some(best) = self.quality() else {
            return self.failure.or(self.doubt).map_or(Ok(None), Err);
        };
        // The better match may be the machine that could not be read, or in the vCenter that did not answer.
        if let Some(error) = self.failure.or(self.unanswered).filter(|_| best != self.wanted.best_match()) {
            return Err(error);
        }
        let best = self.hits.into_iter().filter(|hit| hit.quality == best);
        let mut machines: BTreeMap<_, _> = best.map(|hit| (identity(&hit), hit)).collect();
        match (machines.pop_first(), machines.is_empty()) {
            (Some((_, hit)), true) => readable(hit.found).map(Some),
            (first, _) => {
                let all = first.into_iter().chain(machines).map(|(_, hit)| hit.found);
                Err(ambiguous(self.wanted, all))
            }
        }
    }
}

/// Fails for a machine whose state vCenter does not know.
fn readable(found: Found) -> Result<Found> {
    let machine = &found.machine;
    let is_lost = matches!(machine.connection.as_str(), "orphaned" | "inaccessible" | "invalid");
    if !is_lost && MachineUuid::parse(&machine.uuid).is_some() {
        return Ok(found);
    }
    let message = match machine.connection.as_str() {
        "" | "connected" => format!("discovered VM UUID is empty or invalid: {:?}", machine.uuid),
        connection => {
            format!("vCenter reports the VM as {connection}; fix: repair it, or remove it from the inventory")
        }
    };
    Err(Error::new(ErrorKind::Unavailable, FIND, message).context("vm", machine.name.as_str()))
}

fn ambiguous(wanted: &Wanted, found: impl Iterator<Item = Found>) -> Error {
    let describe = |found: Found| {
        let Machine { name, object, uuid, .. } = found.machine;
        let id = MachineUuid::parse(&uuid).map(|uuid| uuid.key().to_owned()).unwrap_or_default();
        format!("{name} ({object}, {id})")
    };
    let all: Vec<_> = found.map(describe).collect();
    let message = format!(
        "Multiple VMs found for {wanted}: {}; fix: give each VM a UUID and a host name of its own, or start the kubelet with \
         --provider-id",
        all.join(", ")
    );
    // The operator fixes this in vCenter, which sends no notification.
    Error::new(ErrorKind::InvalidConfig, FIND, message).retry(Retry::Backoff)
}
