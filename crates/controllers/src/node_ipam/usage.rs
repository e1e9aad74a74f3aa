//! Usage of the cluster CIDRs.

use std::collections::BTreeSet;
use std::time::Duration;

use bowline_core::ipam::Overlap;
use bowline_core::ipam::forecast::{Trend, UsageMonitor, UsageWarning};
use bowline_kube::{EventType, ObjectRef};
use bowline_runtime::Shutdown;

use super::Shared;

/// Pause between two measurements.
const PERIOD: Duration = Duration::from_secs(60);

/// Measures the usage at once, and then every minute until shutdown is requested.
pub(super) async fn run(shared: &Shared, shutdown: &Shutdown) {
    let mut monitors = vec![(Trend::default(), UsageMonitor::default()); shared.options.cluster_cidrs.len()];
    let mut known = BTreeSet::new();
    loop {
        observe(shared, &mut monitors);
        report_overlaps(shared, &mut known);
        if shutdown.or(tokio::time::sleep(PERIOD)).await.is_none() {
            return;
        }
    }
}

fn observe(shared: &Shared, monitors: &mut [(Trend, UsageMonitor)]) {
    let now = shared.context.clock.now();
    for (index, (usage, (trend, monitor))) in shared.usage().into_iter().zip(monitors).enumerate() {
        trend.record(now, usage.used);
        let left = trend.time_left(now, &usage);
        shared.metrics.forecast(index, left);
        if let Some(warning) = monitor.check(usage, left) {
            warn(shared, &warning);
        }
    }
}

/// Logs Nodes with overlapping pod CIDRs, whichever controller allocated them; each pair once, until it is resolved. The CIDRs of
/// both count as used.
fn report_overlaps(shared: &Shared, known: &mut BTreeSet<Overlap>) {
    let overlaps: BTreeSet<Overlap> = shared.overlaps().into_iter().collect();
    shared.metrics.overlaps.set(i64::try_from(overlaps.len()).unwrap_or(i64::MAX));
    for Overlap { nodes: [one, other], range } in overlaps.difference(known) {
        tracing::warn!(
            controller = super::NAME,
            "nodes {one} and {other} both have the pod CIDR {range}, so their pods have the same addresses; delete and re-register \
             one of them"
        );
    }
    *known = overlaps;
}

/// Emits an Event. A cluster CIDR is no object, so the Event is about the namespace kube-system.
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
