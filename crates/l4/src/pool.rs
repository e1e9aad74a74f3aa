//! The targets behind one port of a balancer, at all of its addresses: who they are, how many connections they have, and
//! which one is next.
//!
//! A target keeps its [`TargetState`], and with it its counters and its connections, for as long as configurations name
//! its address. One that is no longer named gets nothing new and *leaves*: its connections may go on until the drain time
//! is up, then [`Lease::closed`] is cancelled and they are closed. If it is named again before that, it stays as if nothing
//! had happened.
//!
//! A target that does not accept a connection rests for a while: new connections go to others, if there are others. After that one
//! connection tries it again. The rest is longer after each failure in a row, up to a bound.
//!
//! TCP connections and UDP flows use a pool alike: [`Pool::pick`] gives a [`Lease`], which counts for as long as it lives.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::affinity::Ticket;
use crate::health::Verdict;
use crate::pick::{Candidate, Picker};
use crate::{Health, ListenerConfig, Target, TargetStatus};

/// How long a target rests after its first failure, and at most.
const FIRST_REST: Duration = Duration::from_secs(1);
const LONGEST_REST: Duration = Duration::from_secs(30);

/// The targets behind one port.
pub(crate) struct Pool {
    inside: Mutex<Inside>,
}

struct Inside {
    targets: Vec<Arc<TargetState>>,
    leaving: Vec<Leaving>,
    picker: Picker,
    /// Targets that did not accept their last connection.
    failing: HashMap<SocketAddr, Failing>,
}

/// A target that did not accept its last connection.
struct Failing {
    /// Failures in a row.
    failures: u32,
    /// It gets nothing new before this.
    until: Instant,
}

/// A target that is no longer named.
struct Leaving {
    target: Arc<TargetState>,
    until: Instant,
}

/// A target and what it is doing.
pub(crate) struct TargetState {
    address: SocketAddr,
    weight: AtomicU16,
    draining: AtomicBool,
    verdict: RwLock<Arc<Verdict>>,
    open: AtomicU64,
    total: AtomicU64,
    /// It has not accepted its last connection.
    is_failing: AtomicBool,
    closed: CancellationToken,
}

/// A connection's or flow's place at a target. Counts as open for as long as it lives.
pub(crate) struct Lease {
    pool: Arc<Pool>,
    target: Arc<TargetState>,
    ticket: Option<Ticket>,
}

impl Pool {
    /// Without targets, picking as this listener says. At most `affinity_entries` clients are remembered.
    pub(crate) fn new(listener: &ListenerConfig, affinity_entries: usize) -> Pool {
        let picker = Picker::new(listener.algorithm, listener.affinity, affinity_entries);
        Pool {
            inside: Mutex::new(Inside { targets: Vec::new(), leaving: Vec::new(), picker, failing: HashMap::new() }),
        }
    }

    /// From now on the targets and the way of picking are those of this listener. `verdict` tells where to read whether a
    /// target works. Connections of targets that are not named any more may go on for `drain`.
    pub(crate) fn set(&self, listener: &ListenerConfig, drain: Duration, verdict: impl Fn(SocketAddr) -> Arc<Verdict>) {
        let now = Instant::now();
        let mut inside = self.inside();
        inside.picker.set(listener.algorithm, listener.affinity);
        inside.sweep(now);
        let mut before = std::mem::take(&mut inside.targets);
        for target in &listener.targets {
            let state = inside.keep_or_make(&mut before, target, verdict(target.address));
            inside.targets.push(state);
        }
        inside.failing.retain(|address, _| listener.targets.iter().any(|target| target.address == *address));
        let until = now + drain;
        inside.leaving.extend(before.into_iter().map(|target| Leaving { target, until }));
        inside.sweep(now);
    }

    /// A target for a connection of this client, none of those in `except`: they have just refused it. Takes no weightless,
    /// draining or unhealthy one.
    pub(crate) fn pick(self: &Arc<Pool>, client: IpAddr, except: &[SocketAddr]) -> Option<Lease> {
        let (mut inside, now) = (self.inside(), Instant::now());
        let Inside { targets, picker, failing, .. } = &mut *inside;
        let resting = failing.iter().filter(|(_, one)| one.until > now).map(|(address, _)| *address);
        let avoided: Vec<SocketAddr> = resting.chain(except.iter().copied()).collect();
        let pick = picker.pick(client, targets, &avoided, now).or_else(|| picker.pick(client, targets, except, now))?;
        let target = Arc::clone(targets.get(pick.index)?);
        if let Some(failing) = failing.get_mut(&target.address) {
            // One connection tries it; the others do not wait for what comes of that.
            failing.until = now + failing.rest();
        }
        // Under the lock, so that the next pick by least connections sees this one.
        target.open.fetch_add(1, Ordering::Relaxed);
        Some(Lease { pool: Arc::clone(self), target, ticket: pick.ticket })
    }

    /// A target has not accepted a connection. Returns whether it had accepted the one before.
    fn note_failure(&self, target: SocketAddr, now: Instant) -> bool {
        let mut inside = self.inside();
        let failing = inside.failing.entry(target).or_insert(Failing { failures: 0, until: now });
        failing.failures = failing.failures.saturating_add(1);
        failing.until = now + failing.rest();
        failing.failures == 1
    }

    /// Closes the connections of targets that left and whose time is up.
    pub(crate) fn sweep(&self, now: Instant) {
        self.inside().sweep(now);
    }

    /// How the targets are doing, in the order of the configuration.
    pub(crate) fn statuses(&self) -> Vec<TargetStatus> {
        self.inside().targets.iter().map(|target| target.status()).collect()
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        // Nothing that runs under this lock leaves it half-way, so what a panic elsewhere left behind is whole.
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inside {
    /// The state of a target that was there or is just leaving, else a fresh one.
    fn keep_or_make(
        &mut self,
        before: &mut Vec<Arc<TargetState>>,
        target: &Target,
        verdict: Arc<Verdict>,
    ) -> Arc<TargetState> {
        let kept = before.iter().position(|state| state.address == target.address).map(|at| before.swap_remove(at));
        match kept.or_else(|| self.call_back(target.address)) {
            Some(state) => {
                state.change(target, verdict);
                state
            }
            None => Arc::new(TargetState::new(target, verdict)),
        }
    }

    fn call_back(&mut self, address: SocketAddr) -> Option<Arc<TargetState>> {
        let at = self.leaving.iter().position(|leaving| leaving.target.address == address)?;
        Some(self.leaving.swap_remove(at).target)
    }

    fn sweep(&mut self, now: Instant) {
        self.leaving.retain(|leaving| {
            if leaving.until <= now {
                leaving.target.closed.cancel();
            }
            leaving.until > now
        });
    }
}

impl Failing {
    fn rest(&self) -> Duration {
        let doubled = 2u32.saturating_pow(self.failures.saturating_sub(1));
        FIRST_REST.saturating_mul(doubled).min(LONGEST_REST)
    }
}

impl TargetState {
    fn new(target: &Target, verdict: Arc<Verdict>) -> TargetState {
        TargetState {
            address: target.address,
            weight: AtomicU16::new(target.weight),
            draining: AtomicBool::new(target.draining),
            verdict: RwLock::new(verdict),
            open: AtomicU64::new(0),
            total: AtomicU64::new(0),
            is_failing: AtomicBool::new(false),
            closed: CancellationToken::new(),
        }
    }

    fn change(&self, target: &Target, verdict: Arc<Verdict>) {
        self.weight.store(target.weight, Ordering::Relaxed);
        self.draining.store(target.draining, Ordering::Relaxed);
        *self.verdict.write().unwrap_or_else(PoisonError::into_inner) = verdict;
    }

    fn health(&self) -> Health {
        self.verdict.read().unwrap_or_else(PoisonError::into_inner).health()
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
    /// Where the target listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.target.address
    }

    /// Whether the target works, as far as anybody knows.
    pub(crate) fn usable(&self) -> bool {
        self.target.health() != Health::Unhealthy
    }

    /// The connection or flow stands: it counts in the target's total. To be called once.
    pub(crate) fn established(&self) {
        self.target.total.fetch_add(1, Ordering::Relaxed);
        if self.target.is_failing.swap(false, Ordering::Relaxed) {
            self.pool.inside().failing.remove(&self.target.address);
            tracing::info!(target = %self.address(), "target accepts connections again");
        }
    }

    /// The target has not accepted the connection: it gets nothing new for a while, if there are others.
    pub(crate) fn failed(&self) {
        self.target.is_failing.store(true, Ordering::Relaxed);
        if self.pool.note_failure(self.target.address, Instant::now()) {
            tracing::info!(target = %self.address(), "target accepts no connection; others are preferred for a while");
        }
    }

    /// Is cancelled when the target was removed and its drain time is up: the connection is to be closed.
    pub(crate) fn closed(&self) -> &CancellationToken {
        &self.target.closed
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.target.open.fetch_sub(1, Ordering::Relaxed);
        if let Some(ticket) = self.ticket.take() {
            self.pool.inside().picker.end(ticket, Instant::now());
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
    fn a_lease_is_open_while_it_lives_and_total_once_it_is_established() {
        let pool = pool(&[1]);
        let lease = pool.pick(client(), &[]).unwrap();
        assert_eq!((pool.statuses()[0].open, pool.statuses()[0].total), (1, 0));
        lease.established();
        drop(lease);
        assert_eq!((pool.statuses()[0].open, pool.statuses()[0].total), (0, 1));
    }

    #[test]
    fn targets_that_refused_are_not_picked_again() {
        let pool = pool(&[1, 2]);
        let first = pool.pick(client(), &[]).unwrap().address();
        let second = pool.pick(client(), &[first]).unwrap().address();
        assert_ne!(first, second);
        assert!(pool.pick(client(), &[first, second]).is_none());
    }

    #[test]
    fn a_target_that_is_kept_keeps_its_counters_whatever_its_place() {
        let pool = pool(&[1, 2]);
        let lease = pool.pick(client(), &[address(2)]).unwrap();
        lease.established();
        set(&pool, &[3, 2, 1], Duration::ZERO);
        let kept: Vec<_> = pool.statuses().iter().map(|status| (status.address.port(), status.open)).collect();
        assert_eq!(kept, [(3, 0), (2, 0), (1, 1)]);
        assert!(!lease.closed().is_cancelled());
    }

    /// Targets of the next connections.
    fn next(pool: &Arc<Pool>, count: usize) -> Vec<u16> {
        (0..count).map(|_| pool.pick(client(), &[]).unwrap().address().port()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_target_that_accepts_nothing_rests_and_is_tried_by_one_connection_at_a_time() {
        let pool = pool(&[1, 2]);
        let fail = |port: u16| pool.pick(client(), &[address(3 - port)]).unwrap().failed();
        fail(1);
        assert_eq!(next(&pool, 4), [2; 4]);
        tokio::time::advance(FIRST_REST).await;
        let tries = next(&pool, 6);
        assert_eq!(tries.iter().filter(|port| **port == 1).count(), 1, "{tries:?}");
        for _ in 0..20 {
            fail(1);
        }
        tokio::time::advance(LONGEST_REST - FIRST_REST).await;
        assert_eq!(next(&pool, 4), [2; 4]);
        tokio::time::advance(FIRST_REST).await;
        assert!(next(&pool, 4).contains(&1), "the rest is bounded");
        pool.pick(client(), &[address(2)]).unwrap().established();
        assert!(pool.inside().failing.is_empty() && next(&pool, 2).contains(&1));
    }

    #[test]
    fn targets_that_all_accept_nothing_are_tried_all_the_same() {
        let pool = pool(&[1, 2]);
        for port in [1u16, 2] {
            pool.pick(client(), &[address(3 - port)]).unwrap().failed();
        }
        let tried = next(&pool, 2);
        assert!(tried.contains(&1) && tried.contains(&2), "{tried:?}");
        set(&pool, &[2], Duration::ZERO);
        assert_eq!(pool.inside().failing.len(), 1, "one that is not named any more is forgotten");
    }

    #[tokio::test(start_paused = true)]
    async fn a_removed_target_is_closed_when_its_drain_time_is_up() {
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
    async fn a_target_that_comes_back_in_time_keeps_its_connections() {
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
    fn without_a_drain_time_connections_of_a_removed_target_are_closed_at_once() {
        let pool = pool(&[1]);
        let lease = pool.pick(client(), &[]).unwrap();
        set(&pool, &[2], Duration::ZERO);
        assert!(lease.closed().is_cancelled());
    }

    #[test]
    fn draining_and_weightless_targets_keep_what_they_have_and_get_nothing_new() {
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
