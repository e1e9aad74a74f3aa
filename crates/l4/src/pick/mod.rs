//! Selection of the target for a new connection or flow.
//!
//! ```text
//!  client ──► session affinity: is there an entry, and is its target eligible? ── yes ──► that target
//!                 │ no
//!                 └──► algorithm, among the eligible targets ──► a target, recorded as the affinity entry
//! ```
//!
//! A target that is draining, unhealthy or has weight 0 is never picked, even with session affinity. If no target is eligible, none
//! is picked: when all health checks fail, there is no traffic. Some load balancers send it to all targets then, assuming that the
//! checks are wrong (Envoy's panic threshold). But with `externalTrafficPolicy: Local` a failed check means that the node has no
//! pod, and connections to it would hang.
//!
//! This module does not lock, block or read a clock.

mod round_robin;
mod source_hash;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::Algorithm;
use crate::affinity::{Affinity, Ticket};
use round_robin::RoundRobin;
use source_hash::pick_by_source;

/// A target as the algorithms see it.
pub(crate) trait Candidate {
    /// Address and port of the target.
    fn address(&self) -> SocketAddr;
    /// Weight; with 0 it is never picked.
    fn weight(&self) -> u16;
    /// Whether the target is neither draining nor unhealthy.
    fn eligible(&self) -> bool;
    /// Number of open connections or flows.
    fn open(&self) -> u64;
}

impl<C: Candidate> Candidate for Arc<C> {
    fn address(&self) -> SocketAddr {
        C::address(self)
    }
    fn weight(&self) -> u16 {
        C::weight(self)
    }
    fn eligible(&self) -> bool {
        C::eligible(self)
    }
    fn open(&self) -> u64 {
        C::open(self)
    }
}

/// Picks targets for one listener, and keeps the state of the algorithm and the affinity entries.
#[derive(Debug)]
pub(crate) struct Picker {
    algorithm: Algorithm,
    round_robin: RoundRobin,
    affinity: Option<Affinity>,
    affinity_entries: usize,
}

/// A picked target.
#[derive(Debug)]
pub(crate) struct Pick {
    /// Index of the target among the candidates.
    pub(crate) index: usize,
    /// With affinity: to be passed to [`Picker::end`] when the connection has ended or could not be established.
    pub(crate) ticket: Option<Ticket>,
}

// === impl Picker ===

impl Picker {
    pub(crate) fn new(algorithm: Algorithm, affinity: Option<Duration>, affinity_entries: usize) -> Picker {
        let mut picker = Picker { algorithm, round_robin: RoundRobin::default(), affinity: None, affinity_entries };
        picker.set(algorithm, affinity);
        picker
    }

    /// Changes the settings. Affinity entries are kept while affinity is enabled.
    pub(crate) fn set(&mut self, algorithm: Algorithm, affinity: Option<Duration>) {
        self.algorithm = algorithm;
        match (affinity, &mut self.affinity) {
            (Some(timeout), Some(there)) => there.set_timeout(timeout),
            (Some(timeout), None) => self.affinity = Some(Affinity::new(timeout, self.affinity_entries)),
            (None, _) => self.affinity = None,
        }
    }

    /// Picks a candidate for a new connection of this client, except those in `exclude`, which were tried already.
    pub(crate) fn pick<C: Candidate>(
        &mut self,
        client: IpAddr,
        candidates: &[C],
        exclude: &[SocketAddr],
        now: Instant,
    ) -> Option<Pick> {
        let client = client.to_canonical();
        let is_eligible = |c: &C| c.weight() > 0 && c.eligible() && !exclude.contains(&c.address());
        let affine = self.affinity.as_ref().and_then(|affinity| affinity.target(client, now));
        let index = affine
            .and_then(|address| candidates.iter().position(|c| c.address() == address && is_eligible(c)))
            .or_else(|| self.choose(client, candidates, &is_eligible))?;
        let address = candidates.get(index)?.address();
        let ticket = self.affinity.as_mut().map(|affinity| affinity.begin(client, address, now));
        Some(Pick { index, ticket })
    }

    /// Records the end of a connection.
    pub(crate) fn end(&mut self, ticket: Ticket, now: Instant) {
        if let Some(affinity) = &mut self.affinity {
            affinity.end(ticket, now);
        }
    }

    fn choose<C: Candidate>(
        &mut self,
        client: IpAddr,
        candidates: &[C],
        is_eligible: &impl Fn(&C) -> bool,
    ) -> Option<usize> {
        match self.algorithm {
            Algorithm::RoundRobin => self.round_robin.next(candidates, is_eligible),
            Algorithm::LeastConnections => {
                let least = candidates.iter().filter(|c| is_eligible(c)).map(Load::of).min()?;
                self.round_robin.next(candidates, |c| is_eligible(c) && Load::of(c) == least)
            }
            Algorithm::SourceHash => pick_by_source(client, candidates, is_eligible),
        }
    }
}

/// Load of a target with one more connection, relative to its weight. Counting the new connection prefers the heavier of two idle
/// targets.
#[derive(Debug, Clone, Copy)]
struct Load {
    open: u64,
    weight: u16,
}

// === impl Load ===

impl Load {
    fn of(candidate: &impl Candidate) -> Load {
        Load { open: candidate.open().saturating_add(1), weight: candidate.weight() }
    }
}

impl Ord for Load {
    fn cmp(&self, other: &Load) -> std::cmp::Ordering {
        let ours = u128::from(self.open) * u128::from(other.weight);
        ours.cmp(&(u128::from(other.open) * u128::from(self.weight)))
    }
}

impl PartialOrd for Load {
    fn partial_cmp(&self, other: &Load) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Load {
    fn eq(&self, other: &Load) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Load {}
