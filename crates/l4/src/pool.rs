//! Target pool of one port of a load balancer, shared by all of its addresses.
//!
//! A target keeps its [`TargetState`], and with it its counters and connections, as long as the configuration contains its address.
//! A removed target gets no new connections and drains: when the drain timeout expires, [`Lease::closed`] is cancelled and its
//! connections are closed. A target that is added again before that keeps them.
//!
//! Outlier ejection: a target that does not accept a connection is ejected for a while, and new connections use other targets, if
//! there are any. After that one connection tries it again. The ejection time doubles with each consecutive failure, up to a
//! maximum.
//!
//! TCP connections and UDP flows use a pool in the same way: [`Pool::pick`] returns a [`Lease`], which counts as open until it is
//! dropped.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::affinity::Ticket;
use crate::health::HealthState;
use crate::pick::{Candidate, Picker};
use crate::{Health, ListenerConfig, Target, TargetStatus};

/// Ejection time after the first failure, and its maximum.
const BASE_EJECTION_TIME: Duration = Duration::from_secs(1);
const MAX_EJECTION_TIME: Duration = Duration::from_secs(30);

/// Targets of one port.
pub(crate) struct Pool {
    inner: Mutex<PoolState>,
}

struct PoolState {
    targets: Vec<Arc<TargetState>>,
    draining: Vec<Draining>,
    picker: Picker,
    ejections: HashMap<SocketAddr, Ejection>,
}

/// Consecutive connection failures of a target.
struct Ejection {
    /// Number of consecutive failures.
    failures: u32,
    /// End of the ejection.
    until: Instant,
}

/// A removed target, and the end of its drain timeout.
struct Draining {
    target: Arc<TargetState>,
    until: Instant,
}

/// State of a target.
pub(crate) struct TargetState {
    address: SocketAddr,
    weight: AtomicU16,
    draining: AtomicBool,
    health_state: RwLock<Arc<HealthState>>,
    open: AtomicU64,
    total: AtomicU64,
    /// Whether the last connection attempt failed.
    is_failing: AtomicBool,
    closed: CancellationToken,
}

/// Assignment of a connection or flow to a target. Counts as open until it is dropped.
pub(crate) struct Lease {
    pool: Arc<Pool>,
    target: Arc<TargetState>,
    ticket: Option<Ticket>,
}

impl Pool {
    /// Creates a pool without targets, with the algorithm of this listener and at most `affinity_entries` affinity entries.
    pub(crate) fn new(listener: &ListenerConfig, affinity_entries: usize) -> Pool {
        let picker = Picker::new(listener.algorithm, listener.affinity, affinity_entries);
        Pool {
            inner: Mutex::new(PoolState {
                targets: Vec::new(),
                draining: Vec::new(),
                picker,
                ejections: HashMap::new(),
            }),
        }
    }

    /// Sets targets and algorithm to those of this listener. `health_state` returns the health of a target. Connections of removed
    /// targets may last for `drain`.
    pub(crate) fn set(
        &self,
        listener: &ListenerConfig,
        drain: Duration,
        health_state: impl Fn(SocketAddr) -> Arc<HealthState>,
    ) {
        let now = Instant::now();
        let mut inner = self.inner();
        inner.picker.set(listener.algorithm, listener.affinity);
        inner.sweep(now);
        let mut before = std::mem::take(&mut inner.targets);
        for target in &listener.targets {
            let state = inner.keep_or_create(&mut before, target, health_state(target.address));
            inner.targets.push(state);
        }
        inner.ejections.retain(|address, _| listener.targets.iter().any(|target| target.address == *address));
        let until = now + drain;
        inner.draining.extend(before.into_iter().map(|target| Draining { target, until }));
        inner.sweep(now);
    }

    /// Picks a target for a connection of this client, except those in `exclude`, which were tried already. Never picks a draining
    /// or unhealthy target, or one with weight 0.
    pub(crate) fn pick(self: &Arc<Pool>, client: IpAddr, exclude: &[SocketAddr]) -> Option<Lease> {
        let (mut inner, now) = (self.inner(), Instant::now());
        let PoolState { targets, picker, ejections, .. } = &mut *inner;
        let ejected = ejections.iter().filter(|(_, one)| one.until > now).map(|(address, _)| *address);
        let avoided: Vec<SocketAddr> = ejected.chain(exclude.iter().copied()).collect();
        let pick =
            picker.pick(client, targets, &avoided, now).or_else(|| picker.pick(client, targets, exclude, now))?;
        let target = Arc::clone(targets.get(pick.index)?);
        if let Some(ejections) = ejections.get_mut(&target.address) {
            // One connection tries it; until its outcome is known, the others use other targets.
            ejections.until = now + ejections.duration();
        }
        // Under the lock, so that the next pick by least connections counts this one.
        target.open.fetch_add(1, Ordering::Relaxed);
        Some(Lease { pool: Arc::clone(self), target, ticket: pick.ticket })
    }

    /// Records a failed connection attempt. Returns whether it is the first in a row.
    fn record_failure(&self, target: SocketAddr, now: Instant) -> bool {
        let mut inner = self.inner();
        let ejections = inner.ejections.entry(target).or_insert(Ejection { failures: 0, until: now });
        ejections.failures = ejections.failures.saturating_add(1);
        ejections.until = now + ejections.duration();
        ejections.failures == 1
    }

    /// Closes the connections of removed targets whose drain timeout has expired.
    pub(crate) fn sweep(&self, now: Instant) {
        self.inner().sweep(now);
    }

    /// Returns the status of the targets, in the order of the configuration.
    pub(crate) fn statuses(&self) -> Vec<TargetStatus> {
        self.inner().targets.iter().map(|target| target.status()).collect()
    }

    fn inner(&self) -> MutexGuard<'_, PoolState> {
        // No code under this lock can panic half-way through an update, so the state is consistent even if the lock is poisoned.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PoolState {
    /// Returns the state of an existing or draining target, or creates one.
    fn keep_or_create(
        &mut self,
        before: &mut Vec<Arc<TargetState>>,
        target: &Target,
        health_state: Arc<HealthState>,
    ) -> Arc<TargetState> {
        let kept = before.iter().position(|state| state.address == target.address).map(|at| before.swap_remove(at));
        match kept.or_else(|| self.restore(target.address)) {
            Some(state) => {
                state.update(target, health_state);
                state
            }
            None => Arc::new(TargetState::new(target, health_state)),
        }
    }

    fn restore(&mut self, address: SocketAddr) -> Option<Arc<TargetState>> {
        let at = self.draining.iter().position(|draining| draining.target.address == address)?;
        Some(self.draining.swap_remove(at).target)
    }

    fn sweep(&mut self, now: Instant) {
        self.draining.retain(|draining| {
            if draining.until <= now {
                draining.target.closed.cancel();
            }
            draining.until > now
        });
    }
}

impl Ejection {
    fn duration(&self) -> Duration {
        let doubled = 2u32.saturating_pow(self.failures.saturating_sub(1));
        BASE_EJECTION_TIME.saturating_mul(doubled).min(MAX_EJECTION_TIME)
    }
}

impl TargetState {
    fn new(target: &Target, health_state: Arc<HealthState>) -> TargetState {
        TargetState {
            address: target.address,
            weight: AtomicU16::new(target.weight),
            draining: AtomicBool::new(target.draining),
            health_state: RwLock::new(health_state),
            open: AtomicU64::new(0),
            total: AtomicU64::new(0),
            is_failing: AtomicBool::new(false),
            closed: CancellationToken::new(),
        }
    }

    fn update(&self, target: &Target, health_state: Arc<HealthState>) {
        self.weight.store(target.weight, Ordering::Relaxed);
        self.draining.store(target.draining, Ordering::Relaxed);
        *self.health_state.write().unwrap_or_else(PoisonError::into_inner) = health_state;
    }

    fn health(&self) -> Health {
        self.health_state.read().unwrap_or_else(PoisonError::into_inner).health()
    }

    fn status(&self) -> TargetStatus {
        TargetStatus {
            address: self.address,
            health: self.health(),
            draining: self.draining.load(Ordering::Relaxed),
            open: self.open.load(Ordering::Relaxed),
            total: self.total.load(Ordering::Relaxed),
        }
    }
}

impl Candidate for TargetState {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn weight(&self) -> u16 {
        self.weight.load(Ordering::Relaxed)
    }

    fn eligible(&self) -> bool {
        !self.draining.load(Ordering::Relaxed) && self.health() != Health::Unhealthy
    }

    fn open(&self) -> u64 {
        self.open.load(Ordering::Relaxed)
    }
}

impl Lease {
    /// Returns the address and port of the target.
    pub(crate) fn address(&self) -> SocketAddr {
        self.target.address
    }

    /// Returns whether the target is not unhealthy.
    pub(crate) fn is_usable(&self) -> bool {
        self.target.health() != Health::Unhealthy
    }

    /// Marks the connection or flow as established and adds it to the target's total. To be called once.
    pub(crate) fn established(&self) {
        self.target.total.fetch_add(1, Ordering::Relaxed);
        if self.target.is_failing.swap(false, Ordering::Relaxed) {
            self.pool.inner().ejections.remove(&self.target.address);
            tracing::info!(target = %self.address(), "target accepts connections again");
        }
    }

    /// Records that the target has not accepted the connection, and ejects it for a while.
    pub(crate) fn failed(&self) {
        self.target.is_failing.store(true, Ordering::Relaxed);
        if self.pool.record_failure(self.target.address, Instant::now()) {
            tracing::info!(target = %self.address(), "target does not accept connections; ejected for a while");
        }
    }

    /// Returns the token that is cancelled when the target was removed and its drain timeout has expired; the connection must then
    /// be closed.
    pub(crate) fn closed(&self) -> &CancellationToken {
        &self.target.closed
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.target.open.fetch_sub(1, Ordering::Relaxed);
        if let Some(ticket) = self.ticket.take() {
            self.pool.inner().picker.end(ticket, Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Transport;

    fn address(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    fn client() -> IpAddr {
        IpAddr::from([127, 0, 0, 9])
    }

    fn listener(ports: &[u16]) -> ListenerConfig {
        let targets = ports.iter().map(|port| Target::new(address(*port))).collect();
        ListenerConfig::new(Transport::Tcp, 80, targets)
    }

    fn pool(ports: &[u16]) -> Arc<Pool> {
        let pool = Arc::new(Pool::new(&listener(&[]), 10));
        set(&pool, ports, Duration::ZERO);
        pool
    }

    fn set(pool: &Pool, ports: &[u16], drain: Duration) {
        pool.set(&listener(ports), drain, |_| Arc::default());
    }

    #[test]
    fn a_lease_is_open_until_dropped_and_counts_in_the_total_once_established() {
        let pool = pool(&[1]);
        let lease = pool.pick(client(), &[]).unwrap();
        assert_eq!((pool.statuses()[0].open, pool.statuses()[0].total), (1, 0));
        lease.established();
        drop(lease);
        assert_eq!((pool.statuses()[0].open, pool.statuses()[0].total), (0, 1));
    }

    #[test]
    fn excluded_targets_are_not_picked() {
        let pool = pool(&[1, 2]);
        let first = pool.pick(client(), &[]).unwrap().address();
        let second = pool.pick(client(), &[first]).unwrap().address();
        assert_ne!(first, second);
        assert!(pool.pick(client(), &[first, second]).is_none());
    }

    #[test]
    fn a_target_keeps_its_counters_at_any_position() {
        let pool = pool(&[1, 2]);
        let lease = pool.pick(client(), &[address(2)]).unwrap();
        lease.established();
        set(&pool, &[3, 2, 1], Duration::ZERO);
        let kept: Vec<_> = pool.statuses().iter().map(|status| (status.address.port(), status.open)).collect();
        assert_eq!(kept, [(3, 0), (2, 0), (1, 1)]);
        assert!(!lease.closed().is_cancelled());
    }

    /// Returns the ports of the targets of the next connections.
    fn next(pool: &Arc<Pool>, count: usize) -> Vec<u16> {
        (0..count).map(|_| pool.pick(client(), &[]).unwrap().address().port()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_failing_target_is_ejected_and_then_tried_by_one_connection_at_a_time() {
        let pool = pool(&[1, 2]);
        let fail = |port: u16| pool.pick(client(), &[address(3 - port)]).unwrap().failed();
        fail(1);
        assert_eq!(next(&pool, 4), [2; 4]);
        tokio::time::advance(BASE_EJECTION_TIME).await;
        let tries = next(&pool, 6);
        assert_eq!(tries.iter().filter(|port| **port == 1).count(), 1, "{tries:?}");
        for _ in 0..20 {
            fail(1);
        }
        tokio::time::advance(MAX_EJECTION_TIME - BASE_EJECTION_TIME).await;
        assert_eq!(next(&pool, 4), [2; 4]);
        tokio::time::advance(BASE_EJECTION_TIME).await;
        assert!(next(&pool, 4).contains(&1), "the ejection time is bounded");
        pool.pick(client(), &[address(2)]).unwrap().established();
        assert!(pool.inner().ejections.is_empty() && next(&pool, 2).contains(&1));
    }

    #[test]
    fn if_all_targets_are_ejected_they_are_tried_anyway() {
        let pool = pool(&[1, 2]);
        for port in [1u16, 2] {
            pool.pick(client(), &[address(3 - port)]).unwrap().failed();
        }
        let tried = next(&pool, 2);
        assert!(tried.contains(&1) && tried.contains(&2), "{tried:?}");
        set(&pool, &[2], Duration::ZERO);
        assert_eq!(pool.inner().ejections.len(), 1, "the ejection of a removed target is forgotten");
    }

    #[tokio::test(start_paused = true)]
    async fn connections_of_a_removed_target_are_closed_when_the_drain_timeout_expires() {
        let pool = pool(&[1]);
        let lease = pool.pick(client(), &[]).unwrap();
        set(&pool, &[], Duration::from_secs(10));
        assert!(pool.pick(client(), &[]).is_none());
        tokio::time::advance(Duration::from_secs(9)).await;
        pool.sweep(Instant::now());
        assert!(!lease.closed().is_cancelled());
        tokio::time::advance(Duration::from_secs(1)).await;
        pool.sweep(Instant::now());
        assert!(lease.closed().is_cancelled());
    }

    #[tokio::test(start_paused = true)]
    async fn a_target_that_is_added_again_while_draining_keeps_its_connections() {
        let pool = pool(&[1]);
        let lease = pool.pick(client(), &[]).unwrap();
        set(&pool, &[], Duration::from_secs(10));
        set(&pool, &[1], Duration::from_secs(10));
        tokio::time::advance(Duration::from_secs(20)).await;
        pool.sweep(Instant::now());
        assert!(!lease.closed().is_cancelled());
        assert_eq!(pool.statuses()[0].open, 1);
    }

    #[test]
    fn without_a_drain_timeout_connections_of_a_removed_target_are_closed_at_once() {
        let pool = pool(&[1]);
        let lease = pool.pick(client(), &[]).unwrap();
        set(&pool, &[2], Duration::ZERO);
        assert!(lease.closed().is_cancelled());
    }

    #[test]
    fn draining_targets_and_those_with_weight_0_keep_their_connections_and_get_no_new_ones() {
        let pool = pool(&[1, 2]);
        let lease = pool.pick(client(), &[]).unwrap();
        let mut changed = listener(&[1, 2]);
        changed.targets[0].draining = true;
        changed.targets[1].weight = 0;
        pool.set(&changed, Duration::ZERO, |_| Arc::default());
        assert!(pool.pick(client(), &[]).is_none());
        assert!(!lease.closed().is_cancelled());
    }
}
