//! Whether control loops get on: the watchdog.
//!
//! ```text
//!  Queue ── has work, and finished none of it for long ──┐
//!  Heartbeat ── a turn takes too long, or does not come ─┼──► Ensemble: a controller on the board, and its health
//! ```
//!
//! What waits is well: an idle queue, a key in back-off, a loop that rests until its time, one that has not been started.
//! Nothing here has a task of its own; the question is answered when it is asked.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::time::Instant;

use crate::Part;
use crate::queue::record::seconds;

/// The longest that a turn may take. A look at all Nodes of a large cluster at one call per second
/// takes most of an hour, and is slow but not stuck.
const LONGEST_TURN: Duration = Duration::from_secs(60 * 60);

/// A turn may be late by so much, or by [`MISSED`] rests, whichever is longer: a busy machine wakes nobody on time.
const LATE: Duration = Duration::from_secs(5 * 60);

/// So many rests may go by before a turn that does not come is missed.
const MISSED: u32 = 3;

/// A loop that works, rests, and works again. Clones are the same loop.
#[derive(Debug, Clone, Default)]
pub struct Heartbeat {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    now: Activity,
    turns: u64,
    last: Option<(Instant, Duration)>,
}

#[derive(Debug, Clone, Copy, Default)]
enum Activity {
    /// Before its first turn, or after its last.
    #[default]
    Off,
    Working(Instant),
    Resting {
        since: Instant,
        rest: Duration,
    },
}

impl Heartbeat {
    /// Of a loop that has not begun.
    pub fn new() -> Heartbeat {
        Heartbeat::default()
    }

    /// A turn begins.
    pub fn works(&self) {
        self.lock().now = Activity::Working(Instant::now());
    }

    /// The turn has ended; the next one comes after `rest`.
    pub fn rests(&self, rest: Duration) {
        let now = Instant::now();
        self.lock().end(now, Activity::Resting { since: now, rest });
    }

    /// The turn has ended, and there will be no other.
    pub fn ends(&self) {
        self.lock().end(Instant::now(), Activity::Off);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn end(&mut self, now: Instant, next: Activity) {
        if let Activity::Working(since) = self.now {
            self.turns += 1;
            self.last = Some((now, now.saturating_duration_since(since)));
        }
        self.now = next;
    }
}

impl Part for Heartbeat {
    fn status(&self) -> Value {
        let (state, now) = (self.lock(), Instant::now());
        let (word, since) = match state.now {
            Activity::Off => ("off", None),
            Activity::Working(since) => ("working", Some(since)),
            Activity::Resting { since, .. } => ("resting", Some(since)),
        };
        json!({
            "state": word,
            "forSeconds": since.map(|since| seconds(now.saturating_duration_since(since))),
            "turns": state.turns,
            "lastTurnSecondsAgo": state.last.map(|(end, _)| seconds(now.saturating_duration_since(end))),
            "lastTurnTookSeconds": state.last.map(|(_, took)| seconds(took)),
        })
    }

    fn health(&self) -> Result<(), String> {
        let now = Instant::now();
        match self.lock().now {
            Activity::Working(since) if now.saturating_duration_since(since) > LONGEST_TURN => {
                Err(format!("its turn has lasted {:.0?}", now.saturating_duration_since(since)))
            }
            Activity::Resting { since, rest } => {
                let late = now.saturating_duration_since(since).saturating_sub(rest);
                if late > LATE.max(rest.saturating_mul(MISSED)) {
                    return Err(format!("its turn should have come {late:.0?} ago"));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// A controller on the board: all that it works through, and whether every part of it gets on.
pub struct ControllerHealth {
    /// How many of it run; more than one only while a former one ends.
    running: AtomicUsize,
    parts: Vec<(String, Arc<dyn Part>)>,
}

impl ControllerHealth {
    /// These are its queues and loops, by name.
    pub fn new(parts: impl IntoIterator<Item = (String, Arc<dyn Part>)>) -> ControllerHealth {
        ControllerHealth { running: AtomicUsize::new(0), parts: parts.into_iter().collect() }
    }

    /// It runs from now on.
    pub fn started(&self) {
        self.running.fetch_add(1, Ordering::Relaxed);
    }

    /// It no longer runs.
    pub fn stopped(&self) {
        self.running.fetch_sub(1, Ordering::Relaxed);
    }

    fn is_running(&self) -> bool {
        self.running.load(Ordering::Relaxed) > 0
    }
}

impl Part for ControllerHealth {
    fn status(&self) -> Value {
        let parts: Map<String, Value> = self.parts.iter().map(|(name, part)| (name.clone(), part.status())).collect();
        json!({ "running": self.is_running(), "parts": parts })
    }

    /// One that does not run has promised nothing.
    fn health(&self) -> Result<(), String> {
        let mut troubles = Vec::new();
        if self.is_running() {
            troubles
                .extend(self.parts.iter().filter_map(|(name, part)| Some(format!("{name}: {}", part.health().err()?))));
        }
        if troubles.is_empty() { Ok(()) } else { Err(troubles.join("; ")) }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn a_loop_that_rests_or_has_not_begun_or_has_ended_is_well() {
        let beat = Heartbeat::new();
        advance(1000 * MINUTE).await;
        assert_eq!(beat.health(), Ok(()), "not begun");
        beat.works();
        beat.rests(1000 * MINUTE);
        advance(1000 * MINUTE).await;
        assert_eq!(beat.health(), Ok(()), "it rests");
        beat.works();
        beat.ends();
        advance(10_000 * MINUTE).await;
        assert_eq!(beat.health(), Ok(()));
        assert_eq!(beat.status()["turns"], 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_that_does_not_end_fails_and_one_that_ends_late_recovers() {
        let beat = Heartbeat::new();
        beat.works();
        advance(LONGEST_TURN).await;
        assert_eq!(beat.health(), Ok(()), "slow is no fault");
        advance(MINUTE).await;
        assert_eq!(beat.health(), Err("its turn has lasted 3660s".to_owned()));
        beat.rests(MINUTE);
        assert_eq!(beat.health(), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_that_does_not_come_is_missed_after_some_rests() {
        let beat = Heartbeat::new();
        beat.works();
        beat.rests(10 * MINUTE);
        advance(40 * MINUTE).await;
        assert_eq!(beat.health(), Ok(()));
        advance(MINUTE).await;
        assert!(beat.health().unwrap_err().contains("should have come"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_controller_is_as_well_as_its_parts_while_it_runs() {
        let beat = Heartbeat::new();
        let controller = ControllerHealth::new([("addresses".to_owned(), Arc::new(beat.clone()) as Arc<dyn Part>)]);
        beat.works();
        advance(LONGEST_TURN + MINUTE).await;
        assert_eq!(controller.health(), Ok(()), "it has not been started");
        controller.started();
        assert_eq!(controller.health(), Err("addresses: its turn has lasted 3660s".to_owned()));
        assert_eq!(controller.status()["parts"]["addresses"]["state"], "working");
        controller.stopped();
        assert_eq!(controller.health(), Ok(()));
    }
}
