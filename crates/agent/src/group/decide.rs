//! Decides which agent of a group is active: a pure function of what an agent knows of its peers.
//!
//! Every agent calls it in each round. All agents compute the same from the same knowledge, so there is no vote:
//!
//! 1. An agent that was suspended, or that reaches fewer agents than the quorum, is fenced.
//! 2. Of two active agents that reach each other, directly or through a third one, only the one with more writes stays active.
//! 3. The active agent stays active, and while there is one, no other becomes active; unless an agent with a newer state returns, or
//!    the active one has lost the network of the addresses and another one with the same state has not.
//! 4. Otherwise the agent with the newest state becomes active; among equal ones one that is connected to that network, then one
//!    that can write its file, then the first by name.
//!
//! A claim permits no writes by itself: the active agent first replicates its state in the new term to all live agents, at least to
//! a quorum. An agent accepts it only if the state is at least as new as its own and of a term that is at least as great as any
//! that it knows of ([`Position::accepts`](crate::version::Position::accepts)). So two agents that both claim to be active never both acknowledge writes in a group
//! whose quorum is a majority.

use std::cmp::Reverse;
use std::time::Duration;

use tokio::time::Instant;

use super::beat::{Beat, Claim, Role};
use crate::version::Version;

/// Interval of the rounds, in which an agent polls its peers and decides.
pub(crate) const ROUND: Duration = Duration::from_millis(250);

/// A peer whose latest beat is older is not alive.
pub(crate) const DEADLINE: Duration = Duration::from_millis(1200);

/// State of the agent itself.
#[derive(Debug, Clone)]
pub(crate) struct Own {
    pub(crate) name: String,
    pub(crate) role: Role,
    /// `false` while the agent shuts down.
    pub(crate) ready: bool,
    /// `false` while the state file cannot be written.
    pub(crate) writable: bool,
    /// `false` while the interface of the addresses is down or has no carrier.
    pub(crate) connected: bool,
    /// Term of its claim, if it is active.
    pub(crate) active: Option<u64>,
    /// Version of its state file, which may have a write that is not replicated yet.
    pub(crate) version: Version,
    /// Greatest term of the group that the agent knows of.
    pub(crate) seen_term: u64,
    /// Number of live agents, including this one, that are needed to be active.
    pub(crate) quorum: usize,
    pub(crate) started: Instant,
    /// Time of the previous decision.
    pub(crate) last_run: Instant,
}

/// Beat of a peer, and when it was requested.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    /// Time at which the request was sent: the beat is no older.
    pub(crate) at: Instant,
    pub(crate) beat: Beat,
}

/// Knowledge about a peer.
#[derive(Debug, Clone, Default)]
pub(crate) struct PeerView {
    pub(crate) name: String,
    /// Latest beat.
    pub(crate) received: Option<Received>,
    /// Claim in the latest request of the peer: it may reach this agent while this agent does not reach the peer.
    pub(crate) claim: Option<(Instant, Claim)>,
    /// Time at which a beacon of the peer was seen on the segment. Only active agents send beacons.
    pub(crate) beacon: Option<Instant>,
}

/// What an agent has to do until the next round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Hold the addresses and forward traffic.
    Active {
        term: u64,
        /// Another agent is active as well and must yield. Until then, writes are rejected.
        contested: bool,
    },
    /// Copy the state of this peer, if one is active.
    Standby { follow: Option<String> },
    /// As a standby without an active peer, but this agent must not become active.
    Fenced(Fenced),
}

/// Reason why an agent must not be active.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fenced {
    /// It did not run for longer than [`DEADLINE`], so another agent may have become active.
    Suspended,
    /// It has started, and not all its peers have answered yet.
    Starting,
    /// It reaches fewer agents than the quorum.
    Quorum { alive: usize, needed: usize },
}

/// Decides. `peers` are the members of the group other than this agent.
pub(crate) fn decide(own: &Own, peers: &[PeerView], now: Instant) -> Decision {
    let view = View { own, peers, now };
    if own.role == Role::Follower || !own.ready {
        return view.standby();
    }
    if !peers.is_empty() && now.saturating_duration_since(own.last_run) > DEADLINE {
        return Decision::Fenced(Fenced::Suspended);
    }
    let rivals = view.rivals();
    if view.yields(&rivals) {
        return view.standby();
    }
    let alive = view.alive();
    if alive < own.quorum {
        return Decision::Fenced(Fenced::Quorum { alive, needed: own.quorum });
    }
    match own.active {
        // A peer may know of a greater term. With the old term, it would reject our writes.
        Some(term) if term >= own.seen_term => Decision::Active { term, contested: !rivals.is_empty() },
        Some(_) => Decision::Active { term: own.seen_term.saturating_add(1), contested: !rivals.is_empty() },
        None if view.is_starting() => Decision::Fenced(Fenced::Starting),
        None => view.elect(),
    }
}

/// Claims of other agents that are in force, as this agent observes them directly or through a third one.
pub(crate) fn rivals(own: &Own, peers: &[PeerView], now: Instant) -> Vec<Claim> {
    View { own, peers, now }.rivals()
}

impl PeerView {
    pub(crate) fn new(name: &str) -> PeerView {
        PeerView { name: name.to_owned(), ..PeerView::default() }
    }

    /// Beat of the peer, if it is alive.
    pub(crate) fn beat(&self, now: Instant) -> Option<&Beat> {
        self.received.as_ref().filter(|received| is_fresh(received.at, now)).map(|received| &received.beat)
    }

    /// Claim of a request that is newer than the latest beat.
    fn newer_claim(&self, now: Instant) -> Option<Claim> {
        let is_newer = |at| self.received.as_ref().is_none_or(|received| received.at < at);
        self.claim.as_ref().filter(|(at, _)| is_newer(*at) && is_fresh(*at, now)).map(|(_, claim)| claim.clone())
    }

    /// Whether the peer is seen on the segment, but not reached.
    fn is_only_seen(&self, now: Instant) -> bool {
        self.beat(now).is_none() && self.beacon.is_some_and(|at| is_fresh(at, now))
    }
}

fn is_fresh(at: Instant, now: Instant) -> bool {
    now.saturating_duration_since(at) <= DEADLINE
}

struct View<'a> {
    own: &'a Own,
    peers: &'a [PeerView],
    now: Instant,
}

impl<'a> View<'a> {
    fn beats(&self) -> impl Iterator<Item = &'a Beat> {
        let (peers, now) = (self.peers, self.now);
        peers.iter().filter_map(move |peer| peer.beat(now)).filter(|beat| beat.role == Role::Member)
    }

    /// Number of live agents, including this one.
    fn alive(&self) -> usize {
        let seen = self.peers.iter().filter(|peer| peer.is_only_seen(self.now)).count();
        1 + self.beats().count() + seen
    }

    fn is_starting(&self) -> bool {
        is_fresh(self.own.started, self.now) && self.peers.iter().any(|peer| peer.received.is_none())
    }

    /// Standby of the greatest claim that this agent observes directly.
    fn standby(&self) -> Decision {
        let claims = self.beats().filter_map(Beat::claim);
        let greatest = claims.max_by(|one, other| one.rank().cmp(&other.rank()));
        Decision::Standby { follow: greatest.map(|claim| claim.name) }
    }

    fn rivals(&self) -> Vec<Claim> {
        let direct = self.beats().filter_map(Beat::claim);
        let pushed = self.peers.iter().filter_map(|peer| peer.newer_claim(self.now));
        // What a third agent observes is older than what this one observes.
        let indirect = self.beats().filter_map(|beat| beat.observes.clone()).filter(|claim| !self.knows(&claim.name));
        direct.chain(pushed).chain(indirect).collect()
    }

    /// Whether this agent observes the agent of this name directly.
    fn knows(&self, name: &str) -> bool {
        name == self.own.name || self.beats().any(|beat| beat.name == name)
    }

    /// Whether another agent is active, or has to be, and this one must not be.
    fn yields(&self, rivals: &[Claim]) -> bool {
        let mut seen = self.peers.iter().filter(|peer| peer.is_only_seen(self.now));
        let Some(term) = self.own.active else { return !rivals.is_empty() || seen.next().is_some() };
        let claim = Claim { name: self.own.name.clone(), term, version: self.own.version };
        let mut candidates = self.candidates();
        // Of two active agents, ranks decide.
        let replaces = |beat: &Beat| beat.active.is_none() && beat.connected && !self.own.connected;
        // The version of an agent that is only seen is unknown, so names decide.
        candidates.any(|beat| beat.version > self.own.version || beat.version == self.own.version && replaces(beat))
            || rivals.iter().any(|rival| rival.rank() > claim.rank())
            || seen.any(|peer| peer.name < self.own.name)
    }

    /// Peers that may become active.
    fn candidates(&self) -> impl Iterator<Item = &'a Beat> {
        self.beats().filter(|beat| beat.ready && beat.electable)
    }

    fn elect(&self) -> Decision {
        let Own { version, connected, writable, name, .. } = self.own;
        let own = (*version, *connected, *writable, Reverse(name.as_str()));
        let rank = |beat: &'a Beat| (beat.version, beat.connected, beat.writable, Reverse(beat.name.as_str()));
        let mut ranks = self.candidates().map(rank);
        if ranks.any(|rank| rank > own) {
            return Decision::Standby { follow: None };
        }
        let term = self.own.seen_term.saturating_add(1);
        Decision::Active { term, contested: false }
    }
}

impl Fenced {
    /// Whether the agent may become active in the next round.
    pub(crate) fn is_electable(self) -> bool {
        self == Fenced::Starting
    }
}

impl std::fmt::Display for Fenced {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Fenced::Suspended => f.write_str("the process was suspended"),
            Fenced::Starting => f.write_str("the agent is starting and not all its peers have answered yet"),
            Fenced::Quorum { alive, needed } => {
                write!(f, "only {alive} of at least {needed} agents can be reached; check the network and the peers")
            }
        }
    }
}

#[cfg(test)]
mod tests;
