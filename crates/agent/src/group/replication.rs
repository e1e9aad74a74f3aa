//! Writes of the active agent, and their copies.
//!
//! ```text
//!  write: claim holds? ─► edit a copy ─► file ─► update to all live standbys ─► claim holds? ─► acknowledged
//!                                                   └─ out of sync: complete state
//! ```
//!
//! A write that fails after it is in the file stays there: the client repeats it. Before the next write or read, it is replicated, so
//! that an agent never has more than one write that the others do not have.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::peer_client::{Answer, PeerClient};
use super::shared::{Group, random};
use crate::config::Peer;
use crate::error::AgentError;
use crate::state::{Delta, State, StateError, Stored, World};
use crate::version::ClaimId;

/// Pause before an update that failed is repeated.
const RETRY: Duration = Duration::from_millis(100);

/// Update of a standby.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Update {
    /// Changes since the version that the standby must have.
    Delta(Delta),
    /// The complete state.
    Full(Stored),
}

impl Group {
    /// Changes the resources. `edit` returns whether it changed anything. The change is complete when this returns, even if the caller
    /// is cancelled.
    pub(crate) async fn write<T: Send + 'static>(
        self: &Arc<Self>,
        client: &PeerClient,
        edit: impl FnOnce(&mut World) -> Result<(T, bool), AgentError> + Send + 'static,
    ) -> Result<T, AgentError> {
        let (group, client) = (self.clone(), client.clone());
        let task = tokio::spawn(async move { group.write_in_task(&client, edit).await });
        task.await.unwrap_or_else(|_| Err(AgentError::Internal("the agent is shutting down".to_owned())))
    }

    async fn write_in_task<T>(
        self: &Arc<Self>,
        client: &PeerClient,
        edit: impl FnOnce(&mut World) -> Result<(T, bool), AgentError>,
    ) -> Result<T, AgentError> {
        let _lock = self.write.lock().await;
        self.settle_locked(client).await?;
        let before = self.inner().state.clone();
        let mut after = before.clone();
        let (value, has_changed) = edit(&mut after.world)?;
        if !has_changed {
            return Ok(value);
        }
        after.position.version = after.position.version.next(after.position.accepted);
        self.save(&after).await.map_err(|error| AgentError::Storage(error.to_string()))?;
        // The claim may have ended meanwhile. Then the file has a write more than the group, as after a crash.
        let delta = Delta::between(&before, &after);
        {
            let mut inner = self.inner();
            inner.state = after;
            inner.settled = false;
        }
        self.replicate(client, Update::Delta(delta)).await?;
        self.notify_change();
        Ok(value)
    }

    /// Makes sure that all live agents have the state of this one, which must be active: a new claim, or the rest of a write that
    /// failed. Reads need it as well: they must not return what another agent may replace.
    pub(crate) async fn settle(self: &Arc<Self>, client: &PeerClient) -> Result<(), AgentError> {
        self.check_active()?;
        if self.inner().settled {
            return Ok(());
        }
        let _lock = self.write.lock().await;
        self.settle_locked(client).await
    }

    async fn settle_locked(self: &Arc<Self>, client: &PeerClient) -> Result<(), AgentError> {
        self.check_active()?;
        let state = {
            let inner = self.inner();
            if inner.settled {
                return Ok(());
            }
            inner.state.clone()
        };
        self.replicate(client, Update::Delta(Delta::between(&state, &state))).await?;
        self.notify_change();
        Ok(())
    }

    /// Sends the update to all live standbys, and checks that enough have it and that the own claim still holds.
    async fn replicate(self: &Arc<Self>, client: &PeerClient, update: Update) -> Result<(), AgentError> {
        let (update, mut sending) = (Arc::new(update), JoinSet::new());
        for peer in self.standbys() {
            let Some(peer) = self.config.peers.iter().find(|known| known.name == peer).cloned() else { continue };
            let (group, client, update) = (self.clone(), client.clone(), update.clone());
            sending.spawn(async move { group.send(&client, &peer, &update).await });
        }
        let mut copies = 1;
        while let Some(sent) = sending.join_next().await {
            copies += usize::from(sent.unwrap_or_else(|_| Err(AgentError::NotReady("shutting down".to_owned())))?);
        }
        if copies < self.config.quorum {
            let message =
                format!("only {copies} of at least {} agents have stored the state; retry", self.config.quorum);
            return Err(AgentError::NotReady(message));
        }
        self.check_active()?;
        self.inner().settled = true;
        Ok(())
    }

    /// Sends an update until the standby has it, or is not alive. Returns whether it has it.
    async fn send(&self, client: &PeerClient, peer: &Peer, update: &Update) -> Result<bool, AgentError> {
        let mut answer = client.update(peer, update).await;
        loop {
            match answer {
                Answer::Accepted => return Ok(true),
                Answer::Rejected(message) => {
                    self.metrics.replication_failures.inc();
                    let message = format!("the agent {:?} does not accept the change: {message}", peer.name);
                    return Err(AgentError::NotReady(message));
                }
                Answer::OutOfSync => {}
                Answer::Failed(error) => {
                    self.metrics.replication_failures.inc();
                    tracing::warn!(peer = peer.name, error, "cannot update a standby");
                    tokio::time::sleep(RETRY).await;
                }
            }
            if !self.standbys().contains(&peer.name) {
                return Ok(false);
            }
            self.check_claim().map_err(|error| AgentError::NotReady(error.to_string()))?;
            let state = Stored::from(&self.inner().state);
            answer = client.update(peer, &Update::Full(state)).await;
        }
    }

    /// Applies an update of the active agent.
    pub(crate) async fn accept(&self, from: &str, update: Update) -> Result<(), AgentError> {
        // Before the lock: two active agents would wait for each other.
        self.check_not_active()?;
        let _lock = self.write.lock().await;
        self.check_not_active()?;
        let own = self.inner().state.clone();
        let seen_term = self.inner().seen_term;
        let (claim, version) = match &update {
            Update::Delta(delta) => (delta.claim, delta.to),
            Update::Full(stored) => (stored.position().accepted, stored.position().version),
        };
        if !own.position.accepts(seen_term, claim, version) {
            let message = format!(
                "the agent {:?} has the version {} and knows of term {seen_term}; it does not accept version {version} of \
                 {from:?} in term {}",
                self.config.name, own.position.version, claim.term
            );
            return Err(AgentError::Rejected(message));
        }
        let after = match update {
            Update::Delta(delta) if delta.from == own.position.version => delta.apply(&own),
            // The answer to the same update was lost.
            Update::Delta(delta) if delta.to == own.position.version => {
                let mut after = own.clone();
                after.position.accepted = delta.claim;
                after
            }
            Update::Delta(delta) => {
                let (own, from) = (own.position.version, delta.from);
                return Err(AgentError::OutOfSync(format!("this agent has version {own}, not {from}")));
            }
            Update::Full(stored) => stored.restore().map_err(AgentError::Invalid)?,
        };
        self.replace(own, after).await
    }

    /// Copies the complete state of an active peer.
    pub(crate) async fn copy(&self, client: &PeerClient, peer: &Peer) -> Result<(), AgentError> {
        let stored = client.state(peer).await.map_err(AgentError::NotReady)?;
        self.accept(&peer.name, Update::Full(stored)).await
    }

    fn check_not_active(&self) -> Result<(), AgentError> {
        match self.inner().active {
            Some(term) => Err(AgentError::Rejected(format!("{:?} is active in term {term}", self.config.name))),
            None => Ok(()),
        }
    }

    async fn replace(&self, own: State, after: State) -> Result<(), AgentError> {
        if own.position == after.position {
            return Ok(());
        }
        if std::mem::take(&mut self.inner().may_discard) && own.position.version != after.position.version {
            self.keep(&own, &after).await;
        }
        self.save(&after).await.map_err(|error| AgentError::Storage(error.to_string()))?;
        let mut inner = self.inner();
        inner.seen_term = inner.seen_term.max(after.position.accepted.term);
        inner.state = after;
        drop(inner);
        self.notify_change();
        Ok(())
    }

    /// Keeps a copy of writes that are going to be discarded.
    async fn keep(&self, own: &State, after: &State) {
        let (file, state) = (self.file.clone(), own.clone());
        let kept = tokio::task::spawn_blocking(move || file.keep(&state)).await;
        let (from, to) = (own.position.version, after.position.version);
        let place = match kept {
            Ok(Ok(path)) => format!("a copy of it is in {}", path.display()),
            Ok(Err(error)) => format!("no copy of it could be kept: {error}"),
            Err(error) => format!("no copy of it could be kept: {error}"),
        };
        self.problems.add(format!(
            "the agent {:?} has replaced its state of version {from} with version {to} of another agent, because both were active; \
             {place}",
            self.config.name
        ));
    }

    /// Writes the file.
    pub(super) async fn save(&self, state: &State) -> Result<(), StateError> {
        let (file, state) = (self.file.clone(), state.clone());
        let saved = tokio::task::spawn_blocking(move || file.save(&state)).await;
        let saved = saved.unwrap_or_else(|error| {
            Err(StateError { path: self.config.state_file.clone(), message: format!("cannot be written: {error}") })
        });
        self.inner().writable = saved.is_ok();
        self.problems.set("state file", saved.as_ref().err().map(ToString::to_string).into_iter().collect());
        saved
    }

    /// Takes over with this term: the state stays, and the group gets a new claim. Returns whether it did: not during a change.
    ///
    /// The claim reaches the file with the first write. Until then, this agent has acknowledged nothing in its term.
    pub(super) fn claim(&self, term: u64) -> bool {
        let Ok(_lock) = self.write.try_lock() else { return false };
        let mut inner = self.inner();
        if inner.active.is_none() {
            inner.claimed = Instant::now();
        }
        (inner.active, inner.settled) = (Some(term), false);
        inner.seen_term = inner.seen_term.max(term);
        inner.state.position.accepted = ClaimId { term, nonce: random() as u32 };
        true
    }
}
