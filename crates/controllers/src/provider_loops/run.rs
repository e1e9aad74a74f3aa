//! One loop: schedule, run and report.

use std::time::Duration;

use std::collections::BTreeSet;

use bowline_cloud::{ClusterSnapshot, Error, ErrorKind, LoopOutcome, Readiness, Retry};
use bowline_core::{Node, NodeName};
use bowline_kube::{EventType, WriteError};
use bowline_runtime::Backoff;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tracing::Instrument as _;

use super::{Loop, NAME, Shared, annotation_change, label_change, node_of};
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
    let names: BTreeSet<_> = outcome.annotations.keys().chain(outcome.labels.keys()).collect();
    let writes: Vec<_> = names.into_iter().map(|name| write_metadata(shared, &snapshot, name, &outcome)).collect();
    let written = stream::iter(writes).buffer_unordered(MAX_WRITES).try_collect::<()>();
    written.await.map_err(|error| {
        let message = format!("failed to write the annotations and labels of a Node: {error}");
        Error::new(ErrorKind::Unavailable, "write annotations and labels", message)
    })?;
    Ok(outcome)
}

/// Writes the annotations and labels of a Node that differ from those of a run.
async fn write_metadata(
    shared: &Shared,
    snapshot: &ClusterSnapshot,
    name: &NodeName,
    outcome: &LoopOutcome,
) -> Result<(), WriteError> {
    let Some(node) = node_of(snapshot, name) else {
        tracing::warn!(node = %name, "the provider returned metadata for a Node of another cloud; it is not written");
        return Ok(());
    };
    // The Node may have changed during the run.
    let now = shared.context.nodes.get(name.as_str());
    let is_same = |now: &std::sync::Arc<Node>| now.uid == node.uid && !now.is_paused();
    let Some(now) = now.filter(is_same) else { return Ok(()) };
    let change = outcome.annotations.get(name).map(|values| annotation_change(&now, values)).unwrap_or_default();
    for warning in &change.warnings {
        tracing::warn!(%warning, "some annotations of the provider are not written");
    }
    let labels = outcome.labels.get(name).map(|labels| label_change(&now, labels)).unwrap_or_default();
    let cluster = &shared.context.cluster;
    let written = match (change.values.is_empty(), labels.is_empty()) {
        (true, true) => return Ok(()),
        (false, true) => cluster.set_annotations(&now, &change.values).await,
        (_, false) => cluster.set_metadata(&now, &change.values, &labels).await,
    };
    match written {
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
