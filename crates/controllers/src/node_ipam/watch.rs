//! Watching over how full the ranges are.

use std::collections::BTreeSet;
use std::time::Duration;

use bowline_core::ipam::Overlap;
use bowline_core::ipam::forecast::{Trend, UsageMonitor, UsageWarning};
use bowline_kube::{EventType, ObjectRef};
use bowline_runtime::Shutdown;

use super::Shared;

/// The pause between two looks.
const PERIOD: Duration = Duration::from_secs(60);

/// Looks at once, and then every minute until shutdown is requested.
pub(super) async fn run(shared: &Shared, shutdown: &Shutdown) {
    let mut watches = vec![(Trend::default(), UsageMonitor::default()); shared.options.ranges.len()];
    let mut known = BTreeSet::new();
    loop {
        look(shared, &mut watches);
        look_for_overlaps(shared, &mut known);
        if shutdown.or(tokio::time::sleep(PERIOD)).await.is_none() {
            return;
        }
    }
}

fn look(shared: &Shared, watches: &mut [(Trend, UsageMonitor)]) {
    let now = shared.context.clock.now();
    for (index, (usage, (trend, watchman))) in shared.usage().into_iter().zip(watches).enumerate() {
        trend.add(now, usage.used);
        let left = trend.left(now, &usage);
        shared.metrics.forecast(index, left);
        if let Some(warning) = watchman.look(usage, left) {
            warn(shared, &warning);
        }
    }
}

/// Tells Nodes that have addresses in common, whoever gave them those; each pair once, as long as it lasts. What either of
/// them has is kept from all others in any case.
fn look_for_overlaps(shared: &Shared, known: &mut BTreeSet<Overlap>) {
    let overlaps: BTreeSet<Overlap> = shared.overlaps().into_iter().collect();
    shared.metrics.overlaps.set(i64::try_from(overlaps.len()).unwrap_or(i64::MAX));
    for Overlap { nodes: [one, other], range } in overlaps.difference(known) {
        tracing::warn!(
            controller = super::NAME,
            "nodes {one} and {other} both have the pod range {range}: their pods have the same addresses. Delete and \
             re-register one of them"
        );
    }
    *known = overlaps;
}

/// In the log, and as an Event. A range is no object, so the Event is about the namespace that stands for the cluster.
fn warn(shared: &Shared, warning: &UsageWarning) {
    let object = ObjectRef {
        api_version: "v1".to_owned(),
        kind: "Namespace".to_owned(),
        namespace: None,
        name: "kube-system".to_owned(),
        uid: String::new(),
        resource_version: None,
    };
    shared.events.emit(&object, EventType::Warning, "PodRangeFillingUp", warning);
}
