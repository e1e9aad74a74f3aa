//! Loops of an agent: polls the peers, decides, and acts.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bowline_runtime::Shutdown;
use tokio::time::{Instant, timeout};

use super::decide::{DEADLINE, Decision, ROUND, decide, rivals};
use super::peer_client::PeerClient;
use super::shared::Group;
use crate::config::Peer;

/// Interval of the polls of a follower.
const FOLLOWER_ROUND: Duration = Duration::from_secs(1);

/// A peer that does not answer for this long is a problem.
const UNREACHABLE: Duration = Duration::from_secs(10);

/// Time for which the claim of an agent without peers holds: no other agent becomes active while it has no CPU time, and to close its
/// sockets would only interrupt its clients.
const ALONE: Duration = Duration::from_secs(24 * 60 * 60);

/// Interval in which a state file that could not be written is tried again.
const SAVE_RETRY: Duration = Duration::from_secs(5);

/// Time for which an agent that leaves still answers, so that the others know.
const LEAVE: Duration = Duration::from_millis(600);

impl Group {
    /// Polls a peer until shutdown.
    pub(crate) async fn poll(self: Arc<Self>, client: PeerClient, peer: Peer, shutdown: Shutdown) {
        let pause = if self.config.role == super::Role::Follower { FOLLOWER_ROUND } else { ROUND };
        while !shutdown.is_requested() {
            let at = Instant::now();
            let claim = self.beat().claim();
            match client.beat(&peer, claim.as_ref()).await {
                Ok(beat) => self.receive(&peer.name, at, beat),
                Err(error) => self.record_failure(&peer.name, error),
            }
            shutdown.or(tokio::time::sleep_until(at + pause)).await;
        }
    }

    /// Decides in every round, and when there is news, until shutdown; then hands over.
    pub(crate) async fn run(self: Arc<Self>, client: PeerClient, shutdown: Shutdown) {
        let copying = Arc::new(AtomicBool::new(false));
        let mut saved = Instant::now();
        while !shutdown.is_requested() {
            let decision = self.round();
            if let Decision::Standby { follow: Some(leader) } = &decision {
                self.copy_if_needed(&client, leader, &copying);
            }
            if !self.inner().writable && saved.elapsed() > SAVE_RETRY {
                saved = Instant::now();
                self.save_again().await;
            }
            self.report();
            let _ = timeout(ROUND, shutdown.or(self.news.notified())).await;
        }
        self.leave().await;
    }

    /// Decides once, and acts.
    fn round(&self) -> Decision {
        let now = Instant::now();
        let (decision, conflicts, was_active) = {
            let mut inner = self.inner();
            let own = self.own(&inner);
            let decision = decide(&own, &inner.peers, now);
            let conflicts = if own.active.is_some() { rivals(&own, &inner.peers, now) } else { Vec::new() };
            inner.record(&decision, now);
            (decision, conflicts, own.active)
        };
        self.report_conflicts(&conflicts, matches!(decision, Decision::Active { .. }));
        match decision {
            Decision::Active { term, contested } if was_active == Some(term) || self.take_over(term, was_active) => {
                self.inner().contested = contested;
                self.extend_claim(now + if self.config.peers.is_empty() { ALONE } else { DEADLINE });
                if was_active != Some(term) {
                    self.notify_change();
                }
            }
            Decision::Standby { .. } | Decision::Fenced(_) if was_active.is_some() => {
                self.step_down(&decision, !conflicts.is_empty());
            }
            Decision::Active { .. } | Decision::Standby { .. } | Decision::Fenced(_) => {}
        }
        decision
    }

    fn take_over(&self, term: u64, before: Option<u64>) -> bool {
        if !self.claim(term) {
            return false;
        }
        if before.is_none() {
            self.metrics.takeovers.inc();
        }
        tracing::info!(term, before, "this agent is active");
        true
    }

    fn step_down(&self, decision: &Decision, is_conflict: bool) {
        self.end_claim();
        let mut inner = self.inner();
        (inner.active, inner.contested, inner.settled) = (None, false, false);
        inner.may_discard |= is_conflict;
        drop(inner);
        tracing::warn!(?decision, "this agent is no longer active");
        self.notify_change();
    }

    fn report_conflicts(&self, conflicts: &[super::beat::Claim], stays: bool) {
        // Two agents that start at the same time may both claim. Neither has answered a client then.
        let is_start = {
            let inner = self.inner();
            !inner.settled && inner.claimed.elapsed() < DEADLINE * 2
        };
        let known = self.metrics.begin_conflict(!conflicts.is_empty() && !is_start) || is_start;
        let Some(rival) = conflicts.first().filter(|_| !known) else { return };
        let (own, end) = (&self.config.name, if stays { "yields" } else { "stays active" });
        self.problems.add(format!(
            "split brain: the agents {own:?} and {:?} (term {}) were both active; {:?} {end}. They did not reach each other before; \
             fix: check the network between them",
            rival.name, rival.term, rival.name
        ));
    }

    fn copy_if_needed(self: &Arc<Self>, client: &PeerClient, leader: &str, copying: &Arc<AtomicBool>) {
        let is_needed = {
            let inner = self.inner();
            let peer = inner.peers.iter().find(|peer| peer.name == leader);
            let beat = peer.and_then(|peer| peer.received.as_ref()).map(|received| &received.beat);
            beat.is_some_and(|beat| (beat.version, beat.accepted) != (inner.version(), inner.claim_id()))
        };
        let Some(peer) = self.config.peers.iter().find(|peer| peer.name == leader).filter(|_| is_needed) else {
            return;
        };
        if copying.swap(true, Ordering::SeqCst) {
            return;
        }
        let (group, client, peer, copying) = (self.clone(), client.clone(), peer.clone(), copying.clone());
        tokio::spawn(async move {
            if let Err(error) = group.copy(&client, &peer).await {
                tracing::debug!(peer = peer.name, %error, "cannot copy the state");
            }
            copying.store(false, Ordering::SeqCst);
        });
    }

    async fn save_again(&self) {
        let _lock = self.write.lock().await;
        let state = self.inner().state.clone();
        let _ = self.save(&state).await;
    }

    /// Reports what concerns the peers.
    fn report(&self) {
        let own_pools = self.pools();
        let (mut unreachable, mut settings) = (BTreeSet::new(), BTreeSet::new());
        let inner = self.inner();
        for (name, (since, error)) in &inner.unreachable {
            if since.elapsed() > UNREACHABLE {
                unreachable.insert(format!("the agent {name:?} cannot be reached: {error}"));
            }
        }
        let beats = inner.peers.iter().filter_map(|peer| peer.received.as_ref()).map(|received| &received.beat);
        for beat in beats.filter(|beat| beat.pools != own_pools) {
            settings.insert(format!(
                "the agents {:?} and {:?} have different pools: {own_pools} and {}; fix: configure the same `pool` and `internalPool`",
                self.config.name, beat.name, beat.pools
            ));
        }
        drop(inner);
        self.problems.set("peers", unreachable);
        self.problems.set("settings", settings);
    }

    /// Says that this agent leaves, and answers for a moment so that a standby takes over at once.
    async fn leave(&self) {
        let was_active = {
            let mut inner = self.inner();
            inner.leaving = true;
            inner.active.take().is_some()
        };
        self.end_claim();
        self.notify_change();
        if was_active && !self.config.peers.is_empty() {
            tokio::time::sleep(LEAVE).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use bowline_config::ConfigFile;

    use super::*;
    use crate::config::Config;
    use crate::metrics::Metrics;
    use crate::state::StateFile;
    use crate::testing::Scratch;

    const TLS: &str = "tls: {certificateFile: a, keyFile: b, clientCaFile: c}\n";

    fn group(scratch: &Scratch, text: &str) -> Group {
        let config = Config::read(&ConfigFile::from_text("agent.yaml", text)).unwrap();
        let (file, state) = StateFile::open(&scratch.path().join("state.json")).unwrap();
        Group::new(config, file, state, Metrics::new().unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn the_claim_of_an_agent_that_has_no_cpu_time_ends_only_if_another_may_be_active() {
        let scratch = Scratch::new();
        let peers = "peers: {lb-2: {endpoint: 'https://192.0.2.12:9470'}}\n";
        for (peers, is_active) in [("", true), (peers, false)] {
            let group = group(&scratch, &format!("name: lb-1\n{TLS}{peers}"));
            // With peers, the agent waits for them first.
            while !group.is_active() {
                group.round();
                tokio::time::advance(ROUND).await;
            }
            tokio::time::advance(Duration::from_secs(60)).await;
            assert_eq!(group.is_active(), is_active, "{peers}");
        }
    }
}
