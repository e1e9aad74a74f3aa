//! Status of a loop on `/statusz`.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bowline_cloud::LoopOutcome;
use bowline_console::document::{self, Health, Level, text};
use bowline_runtime::{Anchor, Component, Heartbeat};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::console::loop_item;

/// Status of one loop. A failing loop is shown but counts as healthy, because a restart of this process would not help. A stuck one
/// is unhealthy.
pub(super) struct LoopStatus {
    pub(super) period: Duration,
    heartbeat: Heartbeat,
    last: Mutex<Option<Last>>,
}

/// Result of the last run.
struct Last {
    /// Its summary, or its error.
    outcome: Result<String, String>,
    next: Instant,
}

impl LoopStatus {
    pub(super) fn new(period: Duration) -> LoopStatus {
        LoopStatus { period, heartbeat: Heartbeat::new(), last: Mutex::default() }
    }

    pub(super) fn begins(&self) {
        self.heartbeat.begin();
    }

    /// Records the end of a run. The next one follows after `pause` at the latest.
    pub(super) fn ended(&self, outcome: Result<LoopOutcome, String>, pause: Duration) {
        self.heartbeat.finish(pause);
        let last = Last { outcome: outcome.map(|outcome| outcome.summary), next: Instant::now() + pause };
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(last);
    }
}

impl LoopStatus {
    /// Item of the console.
    pub(super) fn item(&self, anchor: Anchor) -> document::Loop {
        let mut item = loop_item(self.heartbeat.snapshot(), self.heartbeat.health(), anchor);
        if let Some(last) = &*self.last.lock().unwrap_or_else(PoisonError::into_inner) {
            item.next = Some(anchor.at(last.next)).filter(|_| !item.running);
            match &last.outcome {
                Ok(summary) => item.summary = Some(text(summary)).filter(|summary| !summary.is_empty()),
                Err(error) => item.health.worsen(Health::new(Level::Warning, "Failed", error)),
            }
        }
        item
    }
}

impl Component for LoopStatus {
    fn status(&self) -> Value {
        let mut status = self.heartbeat.status();
        status["periodSeconds"] = json!(self.period.as_secs_f64());
        if let Some(last) = &*self.last.lock().unwrap_or_else(PoisonError::into_inner) {
            let next = last.next.saturating_duration_since(Instant::now());
            status["outcome"] = json!(if last.outcome.is_ok() { "success" } else { "failure" });
            status["summary"] = json!(last.outcome.as_ref().ok());
            status["lastError"] = json!(last.outcome.as_ref().err());
            status["nextRunInSeconds"] = json!(next.as_secs_f64().round());
        }
        status
    }

    fn health(&self) -> Result<(), String> {
        self.heartbeat.health()
    }
}
