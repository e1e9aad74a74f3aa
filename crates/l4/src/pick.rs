//! Which target is next.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::Algorithm;

/// One that can be picked.
pub(crate) trait Candidate {
    fn address(&self) -> SocketAddr;
    fn weight(&self) -> u16;
    fn eligible(&self) -> bool;
    fn open(&self) -> u64;
}

impl<C: Candidate> Candidate for Arc<C> {
    fn address(&self) -> SocketAddr {
        (**self).address()
    }
    fn weight(&self) -> u16 {
        (**self).weight()
    }
    fn eligible(&self) -> bool {
        (**self).eligible()
    }
    fn open(&self) -> u64 {
        (**self).open()
    }
}

pub(crate) struct Picker {
    turn: usize,
}

pub(crate) struct Ticket {}

pub(crate) struct Pick {
    pub(crate) index: usize,
    pub(crate) ticket: Option<Ticket>,
}

impl Picker {
    pub(crate) fn new(_: Algorithm, _: Option<Duration>, _: usize) -> Picker {
        Picker { turn: 0 }
    }

    pub(crate) fn set(&mut self, _: Algorithm, _: Option<Duration>) {}

    pub(crate) fn pick<C: Candidate>(
        &mut self,
        _client: IpAddr,
        candidates: &[C],
        except: &[SocketAddr],
        _now: Instant,
    ) -> Option<Pick> {
        let able: Vec<usize> = candidates
            .iter()
            .enumerate()
            .filter(|(_, c)| c.eligible() && c.weight() > 0 && c.open() < u64::MAX && !except.contains(&c.address()))
            .map(|(index, _)| index)
            .collect();
        self.turn = self.turn.wrapping_add(1);
        let index = *able.get(self.turn.checked_rem(able.len())?)?;
        Some(Pick { index, ticket: None })
    }

    pub(crate) fn end(&mut self, _: Ticket, _: Instant) {}
}
