//! The watchdog: checks that control loops make progress.
//!
//! ```text
//!  Queue ── has work, but has finished none for a long time ──┐
//!  Heartbeat ── a run takes too long, or is overdue ──────────┼──► ControllerHealth: status and health of a controller
//! ```
//!
//! Waiting is healthy: an idle queue, a key in back-off, a loop that waits for its next run, a loop that has not been started.
//! There is no background task; health is computed on demand.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::time::Instant;

use crate::Component;
use crate::queue::record::seconds;

/// Maximum duration of a run. Checking all Nodes of a large cluster at one call per second takes most of an hour, which is slow but
/// not stuck.
const MAX_RUN: Duration = Duration::from_secs(60 * 60);

/// Permitted delay of a run, or [`MISSED_PERIODS`] periods if that is longer: on a busy machine timers fire late.
const MAX_DELAY: Duration = Duration::from_secs(5 * 60);

/// Number of periods after which an overdue run counts as missed.
const MISSED_PERIODS: u32 = 3;

/// Heartbeat of a periodic loop. Clones share their state.
#[derive(Debug, Clone, Default)]
pub struct Heartbeat {
    state: Arc<Mutex<State>>,
}

/// Status of a periodic loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoopStatus {
    /// Whether a run is in progress.
    pub running: bool,
    /// Time since which it runs, or waits for the next run.
    pub since: Option<Instant>,
    /// Number of finished runs.
    pub runs: u64,
    /// Duration of the last run.
    pub took: Option<Duration>,
    /// Time of the next run.
    pub next: Option<Instant>,
}

#[derive(Debug, Default)]
struct State {
    now: Activity,
    runs: u64,
    last: Option<(Instant, Duration)>,
}

#[derive(Debug, Clone, Copy, Default)]
enum Activity {
    /// Before the first run, or after the last.
    #[default]
    Off,
    Running(Instant),
    Waiting {
        since: Instant,
        period: Duration,
    },
}

impl Heartbeat {
    /// Creates the heartbeat of a loop that has not been started.
    pub fn new() -> Heartbeat {
        Heartbeat::default()
    }

    /// Records the start of a run.
    pub fn begin(&self) {
        self.lock().now = Activity::Running(Instant::now());
    }

    /// Records the end of a run; the next one starts after `period`.
    pub fn finish(&self, period: Duration) {
        let now = Instant::now();
        self.lock().end(now, Activity::Waiting { since: now, period });
    }

    /// Records the end of the last run.
    pub fn stop(&self) {
        self.lock().end(Instant::now(), Activity::Off);
    }

    /// Returns the status.
    pub fn snapshot(&self) -> LoopStatus {
        let state = self.lock();
        let (since, next) = match state.now {
            Activity::Off => (None, None),
            Activity::Running(since) => (Some(since), None),
            Activity::Waiting { since, period } => (Some(since), since.checked_add(period)),
        };
        let running = matches!(state.now, Activity::Running(_));
        LoopStatus { running, since, runs: state.runs, took: state.last.map(|(_, took)| took), next }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn end(&mut self, now: Instant, next: Activity) {
        if let Activity::Running(since) = self.now {
            self.runs += 1;
            self.last = Some((now, now.saturating_duration_since(since)));
        }
        self.now = next;
    }
}

impl Component for Heartbeat {
    fn status(&self) -> Value {
        let (state, now) = (self.lock(), Instant::now());
        let (label, since) = match state.now {
            Activity::Off => ("off", None),
            Activity::Running(since) => ("working", Some(since)),
            Activity::Waiting { since, .. } => ("resting", Some(since)),
        };
        json!({
            "state": label,
            "forSeconds": since.map(|since| seconds(now.saturating_duration_since(since))),
            "turns": state.runs,
            "lastTurnSecondsAgo": state.last.map(|(end, _)| seconds(now.saturating_duration_since(end))),
            "lastTurnTookSeconds": state.last.map(|(_, took)| seconds(took)),
        })
    }

    fn health(&self) -> Result<(), String> {
        let now = Instant::now();
        match self.lock().now {
            Activity::Running(since) if now.saturating_duration_since(since) > MAX_RUN => {
                Err(format!("the current run has taken {:.0?}", now.saturating_duration_since(since)))
            }
            Activity::Waiting { since, period } => {
                let late = now.saturating_duration_since(since).saturating_sub(period);
                if late > MAX_DELAY.max(period.saturating_mul(MISSED_PERIODS)) {
                    return Err(format!("the next run is overdue by {late:.0?}"));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// Status and health of a controller, from those of its queues and loops.
pub struct ControllerHealth {
    /// Number of running instances; more than one only while an earlier instance stops.
    running: AtomicUsize,
    components: Vec<(String, Arc<dyn Component>)>,
}

impl ControllerHealth {
    /// Creates the health of a controller with these queues and loops, by name.
    pub fn new(components: impl IntoIterator<Item = (String, Arc<dyn Component>)>) -> ControllerHealth {
        ControllerHealth { running: AtomicUsize::new(0), components: components.into_iter().collect() }
    }

    /// Records that the controller started.
    pub fn started(&self) {
        self.running.fetch_add(1, Ordering::Relaxed);
    }

    /// Records that the controller stopped.
    pub fn stopped(&self) {
        self.running.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether an instance runs.
    pub fn is_running(&self) -> bool {
        self.running.load(Ordering::Relaxed) > 0
    }
}

impl Component for ControllerHealth {
    fn status(&self) -> Value {
        let parts: Map<String, Value> =
            self.components.iter().map(|(name, one)| (name.clone(), one.status())).collect();
        json!({ "running": self.is_running(), "parts": parts })
    }

    /// A controller that does not run is healthy.
    fn health(&self) -> Result<(), String> {
        let mut reasons = Vec::new();
        if self.is_running() {
            let reason = |(name, one): &(String, Arc<dyn Component>)| Some(format!("{name}: {}", one.health().err()?));
            reasons.extend(self.components.iter().filter_map(reason));
        }
        if reasons.is_empty() { Ok(()) } else { Err(reasons.join("; ")) }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn a_loop_that_waits_or_is_not_running_is_healthy() {
        let beat = Heartbeat::new();
        advance(1000 * MINUTE).await;
        assert_eq!(beat.health(), Ok(()), "not started");
        beat.begin();
        beat.finish(1000 * MINUTE);
        advance(1000 * MINUTE).await;
        assert_eq!(beat.health(), Ok(()), "waiting");
        beat.begin();
        beat.stop();
        advance(10_000 * MINUTE).await;
        assert_eq!(beat.health(), Ok(()));
        assert_eq!(beat.status()["turns"], 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_that_takes_too_long_is_unhealthy_until_it_ends() {
        let beat = Heartbeat::new();
        beat.begin();
        advance(MAX_RUN).await;
        assert_eq!(beat.health(), Ok(()), "slow is healthy");
        advance(MINUTE).await;
        assert_eq!(beat.health(), Err("the current run has taken 3660s".to_owned()));
        beat.finish(MINUTE);
        assert_eq!(beat.health(), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn an_overdue_run_is_unhealthy_after_some_periods() {
        let beat = Heartbeat::new();
        beat.begin();
        beat.finish(10 * MINUTE);
        advance(40 * MINUTE).await;
        assert_eq!(beat.health(), Ok(()));
        advance(MINUTE).await;
        assert!(beat.health().unwrap_err().contains("overdue"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_running_controller_is_as_healthy_as_its_components() {
        let beat = Heartbeat::new();
        let controller =
            ControllerHealth::new([("addresses".to_owned(), Arc::new(beat.clone()) as Arc<dyn Component>)]);
        beat.begin();
        advance(MAX_RUN + MINUTE).await;
        assert_eq!(controller.health(), Ok(()), "not started");
        controller.started();
        assert_eq!(controller.health(), Err("addresses: the current run has taken 3660s".to_owned()));
        assert_eq!(controller.status()["parts"]["addresses"]["state"], "working");
        controller.stopped();
        assert_eq!(controller.health(), Ok(()));
    }
}
