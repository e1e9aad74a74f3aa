//! One loop: schedule, run and report.

use std::time::Duration;

use bowline_cloud::{ClusterSnapshot, Error, ErrorKind, LoopOutcome, Readiness, Retry};
use bowline_core::node_annotations::AnnotationValues;
use bowline_core::{Node, NodeName};
use bowline_kube::{EventType, WriteError};
use bowline_runtime::Backoff;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tracing::Instrument as _;

use super::{Loop, NAME, Shared, annotation_change, node_of};
use crate::spans;

/// Debounce period between a change and the run that follows it.
const DEBOUNCE: Duration = Duration::from_secs(2);

/// Back-off after failed runs.
// upstream: as in DigitalOcean's firewall controller.
const BACKOFF: Backoff = Backoff { first: Duration::from_secs(1), max: Duration::from_secs(300) };

/// Maximum number of concurrent writes of Nodes.
const MAX_WRITES: usize = 8;

/// Failures since the last successful run.
#[derive(Default)]
struct Failures {
    count: u32,
    /// Kind of the last failure. An Event is emitted when it changes; messages differ each time because of request IDs.
    kind: Option<ErrorKind>,
}

/// Runs a loop forever.
pub(super) async fn run(shared: &Shared, one: &Loop) {
    let mut readiness = one.cloud.readiness();
    // The sender lives as long as the cloud.
    let _ = readiness.wait_for(|state| matches!(state, Readiness::Ready)).await.is_ok();
    tokio::join!(shared.context.nodes.synced(), shared.context.services.synced());
    let (mut changes, mut failures) = (one.changes.subscribe(), Failures::default());
    loop {
        changes.mark_unchanged();
        one.status.begins();
        let begun = Instant::now();
        let synced = sync(shared, one).instrument(spans::sync(NAME, &one.key())).await;
        shared.metrics.ran(one.cloud.name(), &one.name, begun.elapsed(), synced.is_ok());
        let pause = report(shared, one, &mut failures, &synced);
        one.status.ended(synced.map_err(|error| error.to_string()), pause.longest());
        pause.pass(&mut changes).await;
    }
}

async fn sync(shared: &Shared, one: &Loop) -> Result<LoopOutcome, Error> {
    let snapshot = shared.snapshot(&one.cloud);
    let outcome = one.cloud.layers().run_loop(&one.name, &snapshot).await?;
    let annotations = outcome.annotations.iter();
    let writes: Vec<_> = annotations.map(|(name, values)| annotate(shared, &snapshot, name, values)).collect();
    let written = stream::iter(writes).buffer_unordered(MAX_WRITES).try_collect::<()>();
    written.await.map_err(|error| {
        let message = format!("failed to write the annotations of a Node: {error}");
        Error::new(ErrorKind::Unavailable, "write annotations", message)
    })?;
    Ok(outcome)
}

async fn annotate(
    shared: &Shared,
    snapshot: &ClusterSnapshot,
    name: &NodeName,
    values: &AnnotationValues,
) -> Result<(), WriteError> {
    let Some(node) = node_of(snapshot, name) else {
        tracing::warn!(node = %name, "the provider returned annotations for a Node of another cloud; they are not written");
        return Ok(());
    };
    // The Node may have changed during the run.
    let now = shared.context.nodes.get(name.as_str());
    let is_same = |now: &std::sync::Arc<Node>| now.uid == node.uid && !now.is_paused();
    let Some(now) = now.filter(is_same) else { return Ok(()) };
    let change = annotation_change(&now, values);
    for warning in &change.warnings {
        tracing::warn!(%warning, "some annotations of the provider are not written");
    }
    if change.values.is_empty() {
        return Ok(());
    }
    match shared.context.cluster.set_annotations(&now, &change.values).await {
        Ok(_) | Err(WriteError::NotFound(_)) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Logs a run, emits an Event for a new or resolved cause, and returns the pause until the next run.
fn report(shared: &Shared, one: &Loop, failures: &mut Failures, synced: &Result<LoopOutcome, Error>) -> Pause {
    let what = format!("loop {} of cloud {}", one.name, one.cloud.name());
    let emit = |kind, reason, message: String| shared.events.emit(&shared.lease, kind, reason, message.trim_end());
    let error = match synced {
        Ok(outcome) => {
            tracing::debug!(controller = NAME, key = one.key(), summary = outcome.summary, "loop succeeded");
            if std::mem::take(failures).kind.is_some() {
                emit(EventType::Normal, "ProviderLoopRecovered", format!("The {what} succeeded again"));
            }
            return Pause::UntilChange(one.status.period);
        }
        Err(error) => error,
    };
    failures.count = failures.count.saturating_add(1);
    if failures.kind.replace(error.kind()) != Some(error.kind()) {
        tracing::warn!(controller = NAME, key = one.key(), %error, "loop failed; it is retried");
        let message = error.kind().with_advice(&format!("The {what} failed and is retried: {error}"));
        emit(EventType::Warning, "ProviderLoopFailed", message);
    }
    match error.retry_advice() {
        Retry::Never => Pause::UntilChange(one.status.period),
        Retry::After(delay) => Pause::Fixed(delay.max(BACKOFF.first)),
        Retry::Backoff => Pause::Fixed(BACKOFF.after(failures.count)),
    }
}

/// Pause between two runs.
#[derive(Debug, Clone, Copy)]
enum Pause {
    /// Until this time, or a change before it.
    UntilChange(Duration),
    /// This time, regardless of changes: the cloud is failing.
    Fixed(Duration),
}

impl Pause {
    fn longest(self) -> Duration {
        match self {
            Pause::UntilChange(longest) | Pause::Fixed(longest) => longest,
        }
    }

    async fn pass(self, changes: &mut watch::Receiver<()>) {
        match self {
            Pause::Fixed(pause) => sleep(pause).await,
            Pause::UntilChange(longest) => {
                if timeout(longest, changes.changed()).await.is_ok() {
                    sleep(DEBOUNCE).await;
                }
            }
        }
    }
}
