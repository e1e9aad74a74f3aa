//! Conditions that an operator must know of: in the log, in the status of the agent, and as Events of Services.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// A condition that has passed, such as a split brain, is reported for this long.
const RETENTION: Duration = Duration::from_secs(60 * 60);

/// Maximum number of conditions that have passed.
const MAX_PASSED: usize = 20;

/// Current and recent problems.
#[derive(Debug, Default)]
pub(crate) struct Problems(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// Current problems by their origin.
    current: BTreeMap<&'static str, BTreeSet<String>>,
    /// Problems that have passed.
    passed: Vec<(Instant, String)>,
}

impl Problems {
    /// Replaces the current problems of this origin. New and resolved ones are logged.
    pub(crate) fn set(&self, origin: &'static str, problems: BTreeSet<String>) {
        let mut inner = self.inner();
        let known = inner.current.entry(origin).or_default();
        for problem in problems.difference(known) {
            tracing::warn!(origin, problem, "problem");
        }
        for problem in known.difference(&problems) {
            tracing::info!(origin, problem, "problem resolved");
        }
        *known = problems;
    }

    /// Adds a problem that has passed already.
    pub(crate) fn add(&self, problem: String) {
        tracing::error!(problem, "problem");
        let mut inner = self.inner();
        inner.passed.push((Instant::now(), problem));
        let surplus = inner.passed.len().saturating_sub(MAX_PASSED);
        inner.passed.drain(..surplus);
    }

    /// All problems, current ones first.
    pub(crate) fn all(&self) -> Vec<String> {
        let mut inner = self.inner();
        inner.passed.retain(|(at, _)| at.elapsed() < RETENTION);
        let current = inner.current.values().flatten().cloned();
        current.chain(inner.passed.iter().map(|(_, problem)| problem.clone())).collect()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
