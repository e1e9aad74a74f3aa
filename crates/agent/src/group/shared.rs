//! What the tasks of an agent share: state, role, knowledge about the peers.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bowline_agent_client::AgentRole;
use bowline_runtime::{Fence, Fenced as NoClaim, Term};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::beat::{Beat, Claim, Role};
use super::decide::{Decision, Fenced, Own, PeerView, Received};
use super::problems::Problems;
use crate::config::Config;
use crate::error::AgentError;
use crate::metrics::Metrics;
use crate::state::{State, StateFile, World};
use crate::version::{ClaimId, Position, Version};

/// A group, as one agent sees it.
pub(crate) struct Group {
    pub(crate) config: Config,
    pub(crate) metrics: Metrics,
    /// ID of this process.
    boot: String,
    pub(super) file: Arc<StateFile>,
    /// Serializes changes of the state and of the own claim.
    pub(super) write: tokio::sync::Mutex<()>,
    inner: Mutex<Inner>,
    /// Permits writes until the claim ends.
    fence: Fence,
    term: Term,
    /// Notified when a beat may change the decision.
    pub(super) news: Notify,
    /// Number of changes of the state or the role.
    changes: watch::Sender<u64>,
    pub(crate) problems: Problems,
}

/// Mutable state.
pub(crate) struct Inner {
    pub(crate) state: State,
    /// Term of the own claim.
    pub(crate) active: Option<u64>,
    /// Begin of the latest claim.
    pub(crate) claimed: Instant,
    /// Another agent is active as well.
    pub(crate) contested: bool,
    /// The state is replicated in the term of the own claim.
    pub(crate) settled: bool,
    pub(crate) fenced: Option<Fenced>,
    /// Peer whose state is copied.
    pub(crate) follow: Option<String>,
    pub(crate) leaving: bool,
    pub(crate) writable: bool,
    /// `false` while the interface of the addresses is down or has no carrier.
    pub(crate) connected: bool,
    pub(crate) seen_term: u64,
    pub(crate) peers: Vec<PeerView>,
    /// Errors of the latest polls, by peer, and since when.
    pub(crate) unreachable: BTreeMap<String, (Instant, String)>,
    /// The state has writes that another agent does not have, and that the next copy replaces.
    pub(crate) may_discard: bool,
    /// Own link-layer address.
    pub(crate) link_address: Option<String>,
    pub(crate) started: Instant,
    pub(crate) last_run: Instant,
}

impl Group {
    pub(crate) fn new(config: Config, file: StateFile, state: State, metrics: Metrics) -> Group {
        let (fence, now) = (Fence::open(), Instant::now());
        let term = fence.term("claim to be the active agent");
        let seen_term = state.position.accepted.term;
        let inner = Inner {
            state,
            active: None,
            claimed: now,
            contested: false,
            settled: false,
            fenced: Some(Fenced::Starting),
            follow: None,
            leaving: false,
            writable: true,
            connected: true,
            seen_term,
            peers: config.peers.iter().map(|peer| PeerView::new(&peer.name)).collect(),
            unreachable: BTreeMap::new(),
            may_discard: false,
            link_address: None,
            started: now,
            last_run: now,
        };
        Group {
            boot: format!("{:016x}", random()),
            config,
            metrics,
            file: Arc::new(file),
            write: tokio::sync::Mutex::default(),
            inner: Mutex::new(inner),
            fence,
            term,
            news: Notify::new(),
            changes: watch::Sender::default(),
            problems: Problems::default(),
        }
    }

    /// Locks the mutable state. No change is applied partially, so a poisoned lock is still consistent.
    pub(crate) fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the resources.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&World) -> T) -> T {
        read(&self.inner().state.world)
    }

    /// Whether the state is that of a group: from a file, copied, or the own one of an active agent. A new agent knows nothing.
    pub(crate) fn has_state(&self) -> bool {
        let inner = self.inner();
        inner.active.is_some() || inner.state.position != Position::default()
    }

    /// Notifications of changes of the state or the role, without details.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    pub(crate) fn notify_change(&self) {
        self.changes.send_modify(|number| *number = number.wrapping_add(1));
    }

    /// Whether this agent forwards traffic.
    pub(crate) fn is_active(&self) -> bool {
        self.inner().active.is_some() && self.fence.check().is_ok()
    }

    /// Whether the own claim still holds.
    pub(crate) fn check_claim(&self) -> Result<(), NoClaim> {
        self.fence.check()
    }

    pub(super) fn extend_claim(&self, until: Instant) {
        self.term.extend(until);
    }

    pub(super) fn end_claim(&self) {
        self.term.end();
    }

    /// Fails unless this agent is the active one and no other is.
    pub(crate) fn check_active(&self) -> Result<(), AgentError> {
        let inner = self.inner();
        if inner.active.is_none() {
            return Err(self.not_active(&inner));
        }
        if inner.contested {
            let message = "another agent is active as well; one of them yields in a moment";
            return Err(AgentError::NotReady(message.to_owned()));
        }
        self.fence.check().map_err(|error| AgentError::NotReady(error.to_string()))
    }

    fn not_active(&self, inner: &Inner) -> AgentError {
        let (own, now) = (&self.config.name, Instant::now());
        let is_active = |peer: &&PeerView| peer.beat(now).is_some_and(|beat| beat.active.is_some());
        let active = inner.peers.iter().find(is_active).map(|peer| peer.name.clone());
        let endpoint = active.as_ref().and_then(|name| self.config.peers.iter().find(|peer| peer.name == *name));
        let endpoint = endpoint.map(|peer| peer.endpoint.clone());
        match (active, inner.fenced) {
            (Some(active), _) => {
                let message = format!("the agent {own:?} is a standby; {active:?} is active");
                AgentError::NotActive { active: endpoint, message }
            }
            (None, Some(fenced)) => {
                let message = format!("the agent {own:?} is not active, and knows no active one: {fenced}");
                AgentError::NotActive { active: None, message }
            }
            (None, None) => {
                let message = format!("the agent {own:?} is not active, and knows no active one");
                AgentError::NotActive { active: None, message }
            }
        }
    }

    /// State of this agent for its peers.
    pub(crate) fn beat(&self) -> Beat {
        let (inner, now) = (self.inner(), Instant::now());
        let direct = inner.peers.iter().filter_map(|peer| peer.beat(now)?.claim());
        let is_electable = inner.fenced.is_none_or(Fenced::is_electable);
        Beat {
            name: self.config.name.clone(),
            boot: self.boot.clone(),
            role: self.config.role,
            ready: !inner.leaving,
            electable: is_electable && self.config.role == Role::Member,
            writable: inner.writable,
            connected: inner.connected,
            active: inner.active.filter(|_| self.fence.check().is_ok()),
            observes: direct.max_by(|one, other| one.rank().cmp(&other.rank())),
            version: inner.state.position.version,
            accepted: inner.state.position.accepted,
            seen_term: inner.seen_term,
            pools: self.pools(),
            link_address: inner.link_address.clone(),
        }
    }

    /// Pools as text, which peers compare.
    pub(crate) fn pools(&self) -> String {
        let text = |pools: &[crate::Pool]| pools.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let pools = &self.config.pools;
        format!("{}; internal: {}", text(&pools.external), text(&pools.internal))
    }

    /// Records the claim in a request of a peer. Followers may read beats, but a claim of theirs has no effect: a term that is too
    /// high would stop the group.
    pub(crate) fn receive_claim(&self, from: &str, claim: Claim) {
        let mut inner = self.inner();
        let (is_active, now) = (inner.active.is_some(), Instant::now());
        let Some(peer) = inner.peers.iter_mut().find(|peer| peer.name == from) else { return };
        let term = claim.term;
        peer.claim = Some((now, claim));
        inner.seen_term = inner.seen_term.max(term);
        inner.contested |= is_active;
        drop(inner);
        if is_active {
            self.news.notify_one();
        }
    }

    /// Records a beat, which was requested at this time.
    pub(crate) fn receive(&self, from: &str, at: Instant, beat: Beat) {
        let mut inner = self.inner();
        inner.seen_term = inner.seen_term.max(beat.seen_term(inner.state.position.accepted));
        inner.unreachable.remove(from);
        let Some(peer) = inner.peers.iter_mut().find(|peer| peer.name == from) else { return };
        let key =
            |beat: &Beat| (beat.active, beat.ready, beat.electable, beat.connected, beat.version, beat.boot.clone());
        let is_news = peer.received.as_ref().is_none_or(|received| key(&received.beat) != key(&beat));
        peer.received = Some(Received { at, beat });
        drop(inner);
        if is_news {
            self.news.notify_one();
        }
    }

    /// Records a failed poll.
    pub(crate) fn record_failure(&self, from: &str, error: String) {
        let mut inner = self.inner();
        let since = inner.unreachable.get(from).map_or_else(Instant::now, |(since, _)| *since);
        inner.unreachable.insert(from.to_owned(), (since, error));
    }

    /// Records a beacon of a peer.
    pub(crate) fn receive_beacon(&self, from: &str, at: Instant) {
        if let Some(peer) = self.inner().peers.iter_mut().find(|peer| peer.name == from) {
            peer.beacon = Some(at);
        }
    }

    /// Records the interface of the addresses: its link-layer address, and whether it is connected.
    pub(crate) fn set_interface(&self, link_address: Option<String>, connected: bool) {
        let mut inner = self.inner();
        inner.link_address = link_address;
        let is_news = std::mem::replace(&mut inner.connected, connected) != connected;
        drop(inner);
        if is_news {
            self.news.notify_one();
        }
    }

    /// Peers by their link-layer addresses.
    pub(crate) fn link_addresses(&self) -> BTreeMap<String, String> {
        let inner = self.inner();
        let beats = inner.peers.iter().filter_map(|peer| peer.received.as_ref()).map(|received| &received.beat);
        beats.filter_map(|beat| Some((beat.link_address.clone()?, beat.name.clone()))).collect()
    }

    pub(super) fn own(&self, inner: &Inner) -> Own {
        Own {
            name: self.config.name.clone(),
            role: self.config.role,
            ready: !inner.leaving,
            writable: inner.writable,
            connected: inner.connected,
            active: inner.active,
            version: inner.state.position.version,
            seen_term: inner.seen_term,
            quorum: self.config.quorum,
            started: inner.started,
            last_run: inner.last_run,
        }
    }

    /// Peers that a write must reach: members that are alive and can store it.
    pub(super) fn standbys(&self) -> Vec<String> {
        let (inner, now) = (self.inner(), Instant::now());
        let is_standby = |peer: &&PeerView| {
            peer.beat(now).is_some_and(|beat| beat.role == Role::Member && beat.ready && beat.writable)
        };
        inner.peers.iter().filter(is_standby).map(|peer| peer.name.clone()).collect()
    }

    /// Own role.
    pub(crate) fn role(&self) -> AgentRole {
        let inner = self.inner();
        match (inner.active, self.config.role, inner.fenced) {
            (Some(_), ..) => AgentRole::Active,
            (None, Role::Follower, _) => AgentRole::Follower,
            (None, _, Some(_)) => AgentRole::Fenced,
            (None, ..) => AgentRole::Standby,
        }
    }
}

impl Inner {
    /// Records the parts of a decision that concern no other task.
    pub(super) fn record(&mut self, decision: &Decision, now: Instant) {
        self.last_run = now;
        self.fenced = if let Decision::Fenced(fenced) = decision { Some(*fenced) } else { None };
        self.follow = if let Decision::Standby { follow } = decision { follow.clone() } else { None };
    }

    /// Identity of the own claim.
    pub(crate) fn claim_id(&self) -> ClaimId {
        self.state.position.accepted
    }

    pub(crate) fn version(&self) -> Version {
        self.state.position.version
    }
}

/// Random number.
pub(super) fn random() -> u64 {
    RandomState::new().hash_one(Instant::now().elapsed() + Duration::from_nanos(1))
}

#[cfg(test)]
mod tests {
    use bowline_config::ConfigFile;

    use super::*;
    use crate::testing::Scratch;
    use crate::testing::records::Random;

    fn group(scratch: &Scratch) -> Group {
        let text = "name: lb-1\nlisten: unix:/run/agent.sock\n";
        let config = Config::read(&ConfigFile::from_text("agent.yaml", text)).unwrap();
        let (file, state) = StateFile::open(&scratch.path().join("state.json")).unwrap();
        Group::new(config, file, state, Metrics::new().unwrap())
    }

    #[tokio::test]
    async fn an_agent_has_a_state_when_it_is_active_or_its_file_has_one() {
        let scratch = Scratch::new();
        let new = group(&scratch);
        assert!(!new.has_state());
        assert!(new.claim(1) && new.has_state());
        let mut state = Random::new(3).state(10);
        state.position.accepted.term = 1;
        new.save(&state).await.unwrap();
        drop(new);
        assert!(group(&scratch).has_state());
    }
}
