//! Health checks of targets.
//!
//! ```text
//!  set(listeners) ──► check keys: address, probe, interval ──► one task each ──► probe ──► HealthState ◄── read by pools
//!                     (shared by listeners with the same key)
//! ```
//!
//! * A target that has not been checked yet counts as healthy; otherwise a new load balancer would reject its first clients. The
//!   first result takes effect at once, so that a node without a pod (`externalTrafficPolicy: Local`) does not get traffic until it
//!   has failed several times. After that it takes `rise` successes or `fall` failures in a row to change the state.
//! * A load balancer with ten ports and one health-check node port probes each node once per interval, not ten times.
//! * The first probes of new checks are spread out, so that a hundred nodes are not probed at the same instant. After that each
//!   check keeps its own schedule.
//! * A check keeps its state when a new configuration leaves it as it is or changes only its timing.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};

use crate::probe::{ProbeError, Prober, SocketProber};
use crate::{Health, HealthCheck, HealthProbe, ListenerConfig};

/// Interval between the first probes of checks that start together.
const START_SPREAD: Duration = Duration::from_millis(10);

/// Minimum interval between two probes, whatever the configuration says.
const MIN_INTERVAL: Duration = Duration::from_millis(1);

/// Health checks of one load balancer. Dropping it stops them.
#[derive(Debug, Default)]
pub(crate) struct HealthChecks<A = SocketProber> {
    prober: A,
    running: HashMap<CheckKey, RunningCheck>,
}

/// Health of a target. Read for every new connection, written by one task.
#[derive(Debug, Default)]
pub(crate) struct HealthState {
    /// A [`Health`], as a number.
    health: AtomicU8,
    /// Number of consecutive results that contradict `health`.
    contrary: AtomicU32,
}

/// Identifies a check: address and settings.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct CheckKey {
    at: SocketAddr,
    check: HealthCheck,
}

/// State of a check and the task that runs it.
#[derive(Debug)]
struct RunningCheck {
    state: Arc<HealthState>,
    task: JoinHandle<()>,
}

// === impl HealthChecks ===

impl HealthChecks {
    pub(crate) fn new() -> HealthChecks {
        HealthChecks::default()
    }
}

impl<A: Prober> HealthChecks<A> {
    /// Starts the checks of these listeners and stops all others. Must be called on a Tokio runtime.
    pub(crate) fn set(&mut self, listeners: &[ListenerConfig]) {
        let mut before = std::mem::take(&mut self.running);
        let known: HashMap<_, _> = before.iter().map(|(old, check)| (old.probe_key(), check.state.copy())).collect();
        let mut new = 0;
        for key in listeners.iter().flat_map(check_keys) {
            if self.running.contains_key(&key) {
                continue;
            }
            let check = before.remove(&key).unwrap_or_else(|| {
                let state = known.get(&key.probe_key()).map(HealthState::copy).unwrap_or_default();
                let delay = first_delay(new, key.check.interval);
                new += 1;
                self.start(key.clone(), state, delay)
            });
            self.running.insert(key, check);
        }
    }

    /// Returns the health of a target; [`Health::Unknown`] without a running check.
    pub(crate) fn state(&self, check: Option<&HealthCheck>, target: SocketAddr) -> Arc<HealthState> {
        let check = check.and_then(|check| self.running.get(&CheckKey::new(check, target)));
        check.map(|check| check.state.clone()).unwrap_or_default()
    }

    fn start(&self, key: CheckKey, state: HealthState, delay: Duration) -> RunningCheck {
        let state = Arc::new(state);
        let task = tokio::spawn(run_check(self.prober.clone(), key, state.clone(), delay));
        RunningCheck { state, task }
    }
}

/// Returns the check of each target of a listener.
fn check_keys(listener: &ListenerConfig) -> impl Iterator<Item = CheckKey> {
    let targets = listener.health.iter().flat_map(|check| listener.targets.iter().map(move |target| (check, target)));
    targets.map(|(check, target)| CheckKey::new(check, target.address))
}

/// Returns the delay of the first probe of the `index`th new check.
fn first_delay(index: u32, interval: Duration) -> Duration {
    let interval = interval.max(MIN_INTERVAL).as_nanos();
    let after = START_SPREAD.as_nanos().saturating_mul(u128::from(index)) % interval;
    Duration::from_nanos(u64::try_from(after).unwrap_or(0))
}

async fn run_check<A: Prober>(prober: A, key: CheckKey, state: Arc<HealthState>, delay: Duration) {
    let mut ticks = interval_at(Instant::now() + delay, key.check.interval.max(MIN_INTERVAL));
    // A slow probe delays the next one; there is no burst to catch up.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let result = timeout(key.check.timeout, prober.probe(key.at, &key.check.probe)).await;
        let result = result.unwrap_or(Err(ProbeError::Timeout));
        if state.record(result.is_ok(), &key.check) {
            key.log_change(&result);
        }
    }
}

// === impl CheckKey ===

impl CheckKey {
    fn new(check: &HealthCheck, target: SocketAddr) -> CheckKey {
        let at = SocketAddr::new(target.ip(), check.port.unwrap_or(target.port()));
        // The port is in `at` already. Two listeners on different node ports that check the same third port share the check.
        CheckKey { at, check: HealthCheck { port: None, ..check.clone() } }
    }

    /// Returns address and probe, without timing and thresholds. Checks that differ only in those share their state.
    fn probe_key(&self) -> (SocketAddr, HealthProbe) {
        (self.at, self.check.probe.clone())
    }

    fn log_change(&self, result: &Result<(), ProbeError>) {
        let probe = match &self.check.probe {
            HealthProbe::Tcp => "TCP connection",
            HealthProbe::Http { path } => path,
        };
        match result {
            Ok(()) => tracing::info!(target = %self.at, probe, "target is healthy"),
            Err(error) => {
                tracing::info!(target = %self.at, probe, %error, "target is unhealthy and gets no new connections")
            }
        }
    }
}

// === impl HealthState ===

impl HealthState {
    pub(crate) fn health(&self) -> Health {
        match self.health.load(Ordering::Relaxed) {
            0 => Health::Unknown,
            1 => Health::Healthy,
            _ => Health::Unhealthy,
        }
    }

    /// Records a result. Returns whether the health has changed.
    pub(crate) fn record(&self, healthy: bool, check: &HealthCheck) -> bool {
        let needed = match self.health() {
            Health::Unknown => 1,
            Health::Healthy if healthy => return self.confirm(),
            Health::Unhealthy if !healthy => return self.confirm(),
            Health::Healthy => check.fall,
            Health::Unhealthy => check.rise,
        };
        let contrary = self.contrary.load(Ordering::Relaxed).saturating_add(1);
        if contrary < needed {
            self.contrary.store(contrary, Ordering::Relaxed);
            return false;
        }
        self.contrary.store(0, Ordering::Relaxed);
        self.health.store(if healthy { 1 } else { 2 }, Ordering::Relaxed);
        true
    }

    fn confirm(&self) -> bool {
        self.contrary.store(0, Ordering::Relaxed);
        false
    }

    fn copy(&self) -> HealthState {
        HealthState {
            health: self.health.load(Ordering::Relaxed).into(),
            contrary: self.contrary.load(Ordering::Relaxed).into(),
        }
    }
}

// === impl RunningCheck ===

impl Drop for RunningCheck {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tokio::time::sleep;

    use super::*;
    use crate::{Target, Transport};

    const INTERVAL: Duration = Duration::from_secs(10);

    /// Records probes and returns configured results.
    #[derive(Debug, Clone, Default)]
    struct Fake(Arc<Mutex<Log>>);

    #[derive(Debug, Default)]
    struct Log {
        probes: Vec<(SocketAddr, Instant)>,
        broken: Vec<SocketAddr>,
        silent: Vec<SocketAddr>,
    }

    impl Prober for Fake {
        async fn probe(&self, at: SocketAddr, _: &HealthProbe) -> Result<(), ProbeError> {
            let (broken, silent) = {
                let mut log = self.0.lock().unwrap();
                log.probes.push((at, Instant::now()));
                (log.broken.contains(&at), log.silent.contains(&at))
            };
            if silent {
                std::future::pending::<()>().await;
            }
            if broken { Err(ProbeError::Status(503)) } else { Ok(()) }
        }
    }

    impl Fake {
        fn checks(&self) -> HealthChecks<Fake> {
            HealthChecks { prober: self.clone(), running: HashMap::new() }
        }
        fn take(&self) -> Vec<(SocketAddr, Instant)> {
            std::mem::take(&mut self.0.lock().unwrap().probes)
        }
        fn break_down(&self, at: SocketAddr) {
            self.0.lock().unwrap().broken.push(at);
        }
        fn repair(&self) {
            self.0.lock().unwrap().broken.clear();
        }
    }

    fn check(port: Option<u16>) -> HealthCheck {
        let probe = HealthProbe::Http { path: "/healthz".into() };
        HealthCheck { probe, port, interval: INTERVAL, timeout: Duration::from_secs(2), rise: 2, fall: 3 }
    }

    fn node(n: u8, port: u16) -> SocketAddr {
        ([10, 0, 0, n], port).into()
    }

    fn listener(port: u16, nodes: u8, health: HealthCheck) -> ListenerConfig {
        let targets = (0..nodes).map(|n| Target::new(node(n, 30000 + port))).collect();
        ListenerConfig { health: Some(health), ..ListenerConfig::new(Transport::Tcp, port, targets) }
    }

    #[test]
    fn consecutive_results_change_the_health() {
        use Health::{Healthy, Unhealthy};
        // Results (+ success, - failure), and the health after them. rise 2, fall 3.
        let cases = [
            ("+", Healthy),
            ("-", Unhealthy),
            ("+--", Healthy),
            ("+---", Unhealthy),
            ("+--+--", Healthy),
            ("-+", Unhealthy),
            ("-++", Healthy),
            ("-+-+", Unhealthy),
            ("-++--", Healthy),
            ("+---++", Healthy),
        ];
        for (results, expected) in cases {
            let state = HealthState::default();
            assert_eq!(state.health(), Health::Unknown);
            for result in results.chars() {
                state.record(result == '+', &check(None));
            }
            assert_eq!(state.health(), expected, "{results}");
        }
    }

    #[test]
    fn a_rise_or_fall_of_0_counts_as_1() {
        let check = HealthCheck { rise: 0, fall: 0, ..check(None) };
        let state = HealthState::default();
        for healthy in [true, false, true] {
            assert!(state.record(healthy, &check));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn ten_ports_with_one_health_check_port_probe_each_node_once_per_interval() {
        let (fake, mut listeners) = (Fake::default(), Vec::new());
        listeners.extend((1..=10).map(|port| listener(port, 3, check(Some(32000)))));
        // A listener whose targets have that port as their own.
        listeners.push(listener(2000, 3, check(None)));
        let mut checks = fake.checks();
        checks.set(&listeners);
        for _ in 0..3 {
            sleep(INTERVAL).await;
            let mut probe: Vec<_> = fake.take().into_iter().map(|(at, _)| at).collect();
            probe.sort();
            assert_eq!(probe, (0..3).map(|n| node(n, 32000)).collect::<Vec<_>>());
        }
        assert!(Arc::ptr_eq(
            &checks.state(Some(&check(Some(32000))), node(1, 30001)),
            &checks.state(Some(&check(Some(32000))), node(1, 30002)),
        ));
    }

    #[tokio::test(start_paused = true)]
    async fn probes_of_a_hundred_nodes_are_spread_out_and_keep_their_schedule() {
        let fake = Fake::default();
        let mut checks = fake.checks();
        checks.set(&[listener(1, 100, check(None))]);
        sleep(INTERVAL - START_SPREAD / 2).await;
        let first = fake.take();
        assert_eq!(first.len(), 100);
        assert!(first.windows(2).all(|pair| pair[0].1 < pair[1].1), "two probes at the same time");
        sleep(INTERVAL).await;
        let second = fake.take();
        let rhythm = first.iter().map(|(at, when)| (*at, *when + INTERVAL)).collect::<Vec<_>>();
        assert_eq!(second, rhythm);
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_target_is_unknown_until_the_first_result_which_takes_effect_at_once() {
        let fake = Fake::default();
        fake.break_down(node(0, 30001));
        let mut checks = fake.checks();
        checks.set(&[listener(1, 2, check(None))]);
        let states = [0, 1].map(|n| checks.state(Some(&check(None)), node(n, 30001)));
        assert_eq!(states.each_ref().map(|state| state.health()), [Health::Unknown, Health::Unknown]);
        sleep(START_SPREAD * 2).await;
        assert_eq!(states.each_ref().map(|state| state.health()), [Health::Unhealthy, Health::Healthy]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_timeout_is_a_failure() {
        let fake = Fake::default();
        fake.0.lock().unwrap().silent.push(node(0, 30001));
        let mut checks = fake.checks();
        checks.set(&[listener(1, 1, check(None))]);
        let state = checks.state(Some(&check(None)), node(0, 30001));
        sleep(Duration::from_secs(1)).await;
        assert_eq!(state.health(), Health::Unknown);
        sleep(Duration::from_secs(2)).await;
        assert_eq!(state.health(), Health::Unhealthy);
    }

    #[tokio::test(start_paused = true)]
    async fn unchanged_targets_keep_their_health_and_schedule() {
        let fake = Fake::default();
        let mut checks = fake.checks();
        checks.set(&[listener(1, 1, check(None))]);
        sleep(INTERVAL / 2).await;
        let before = fake.take();
        checks.set(&[listener(1, 2, check(None))]);
        let old = checks.state(Some(&check(None)), node(0, 30001));
        assert_eq!(old.health(), Health::Healthy);
        assert_eq!(checks.state(Some(&check(None)), node(1, 30001)).health(), Health::Unknown);
        sleep(INTERVAL / 2 + START_SPREAD).await;
        let again: Vec<_> = fake.take().into_iter().filter(|(at, _)| *at == node(0, 30001)).collect();
        assert_eq!(again, [(node(0, 30001), before[0].1 + INTERVAL)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_interval_keeps_the_health_and_a_new_probe_resets_it() {
        let fake = Fake::default();
        fake.break_down(node(0, 30001));
        let mut checks = fake.checks();
        checks.set(&[listener(1, 1, check(None))]);
        sleep(START_SPREAD).await;
        fake.repair();
        let quicker = HealthCheck { interval: Duration::from_secs(1), ..check(None) };
        checks.set(&[listener(1, 1, quicker.clone())]);
        let state = checks.state(Some(&quicker), node(0, 30001));
        sleep(START_SPREAD).await;
        assert_eq!(state.health(), Health::Unhealthy, "one success of two");
        sleep(Duration::from_secs(1)).await;
        assert_eq!(state.health(), Health::Healthy);
        let other = HealthCheck { probe: HealthProbe::Tcp, ..quicker };
        checks.set(&[listener(1, 1, other.clone())]);
        assert_eq!(checks.state(Some(&other), node(0, 30001)).health(), Health::Unknown, "another probe");
    }

    #[tokio::test(start_paused = true)]
    async fn removed_targets_are_not_probed() {
        let fake = Fake::default();
        let mut checks = fake.checks();
        checks.set(&[listener(1, 3, check(None))]);
        sleep(INTERVAL / 2).await;
        fake.take();
        checks.set(&[listener(1, 1, check(None))]);
        sleep(INTERVAL * 2).await;
        assert!(fake.take().iter().all(|(at, _)| *at == node(0, 30001)));
        drop(checks);
        sleep(INTERVAL * 2).await;
        assert_eq!(fake.take(), []);
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_check_the_health_is_unknown_and_nothing_is_probed() {
        let fake = Fake::default();
        let mut checks = fake.checks();
        checks.set(&[ListenerConfig { health: None, ..listener(1, 3, check(None)) }]);
        sleep(INTERVAL).await;
        assert_eq!(fake.take(), []);
        assert_eq!(checks.state(None, node(0, 30001)).health(), Health::Unknown);
    }
}
