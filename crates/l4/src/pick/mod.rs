//! Which target gets a new connection or flow.
//!
//! ```text
//!  client ──► affinity: has it a target, and may that one have more? ── yes ──► that one
//!                 │ no
//!                 └──► algorithm, among those that may have more ──► one of them, remembered
//! ```
//!
//! A target that drains, is unhealthy or has the weight 0 is never picked, whatever the client had before. If none is left,
//! nobody is picked: when all health checks fail, traffic goes nowhere. Some balancers send it everywhere then, in the hope
//! that the checks are wrong. With `externalTrafficPolicy: Local` a failed check is how a node says that it has no pod, so
//! sending to all of them would fill the void with connections that hang.
//!
//! Nothing here locks, waits or reads a clock.

mod source;
#[cfg(test)]
mod tests;
mod turns;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::Algorithm;
use crate::affinity::{Affinity, Ticket};
use source::by_source;
use turns::Turns;

/// What has to be known about a target to pick it.
pub(crate) trait Candidate {
    /// Where it listens.
    fn address(&self) -> SocketAddr;
    /// Its share; 0 gets nothing.
    fn weight(&self) -> u16;
    /// It neither drains nor is it unhealthy.
    fn eligible(&self) -> bool;
    /// Connections or flows that it has.
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

/// Picks targets for one listener, and remembers what it has to for the next time.
#[derive(Debug)]
pub(crate) struct Picker {
    algorithm: Algorithm,
    turns: Turns,
    affinity: Option<Affinity>,
    affinity_entries: usize,
}

/// Who was picked.
#[derive(Debug)]
pub(crate) struct Pick {
    /// Where it is among the candidates.
    pub(crate) index: usize,
    /// With affinity: to be handed to [`Picker::end`] when the connection is over, or never came to be.
    pub(crate) ticket: Option<Ticket>,
}

// === impl Picker ===

impl Picker {
    pub(crate) fn new(algorithm: Algorithm, affinity: Option<Duration>, affinity_entries: usize) -> Picker {
        let mut picker = Picker { algorithm, turns: Turns::default(), affinity: None, affinity_entries };
        picker.set(algorithm, affinity);
        picker
    }

    /// From now on it picks like this. Clients keep their targets while affinity stays on.
    pub(crate) fn set(&mut self, algorithm: Algorithm, affinity: Option<Duration>) {
        self.algorithm = algorithm;
        match (affinity, &mut self.affinity) {
            (Some(timeout), Some(there)) => there.set_timeout(timeout),
            (Some(timeout), None) => self.affinity = Some(Affinity::new(timeout, self.affinity_entries)),
            (None, _) => self.affinity = None,
        }
    }

    /// One of the candidates for a new connection of this client, but none of `except`: those that it was tried with already.
    pub(crate) fn pick<C: Candidate>(
        &mut self,
        client: IpAddr,
        candidates: &[C],
        except: &[SocketAddr],
        now: Instant,
    ) -> Option<Pick> {
        let client = client.to_canonical();
        let may = |c: &C| c.weight() > 0 && c.eligible() && !except.contains(&c.address());
        let affine = self.affinity.as_ref().and_then(|affinity| affinity.target(client, now));
        let index = affine
            .and_then(|address| candidates.iter().position(|c| c.address() == address && may(c)))
            .or_else(|| self.choose(client, candidates, &may))?;
        let address = candidates.get(index)?.address();
        let ticket = self.affinity.as_mut().map(|affinity| affinity.begin(client, address, now));
        Some(Pick { index, ticket })
    }

    /// The connection of this pick is over.
    pub(crate) fn end(&mut self, ticket: Ticket, now: Instant) {
        if let Some(affinity) = &mut self.affinity {
            affinity.end(ticket, now);
        }
    }

    fn choose<C: Candidate>(&mut self, client: IpAddr, candidates: &[C], may: &impl Fn(&C) -> bool) -> Option<usize> {
        match self.algorithm {
            Algorithm::RoundRobin => self.turns.next(candidates, may),
            Algorithm::LeastConnections => {
                let least = candidates.iter().filter(|c| may(c)).map(Load::of).min()?;
                self.turns.next(candidates, |c| may(c) && Load::of(c) == least)
            }
            Algorithm::SourceHash => by_source(client, candidates, may),
        }
    }
}

/// How loaded a target would be with one more connection, in proportion to its weight. Counting the one to come makes the
/// heavier of two idle targets the first choice.
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
