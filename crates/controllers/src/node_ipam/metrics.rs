//! The controller's metrics: upstream's by their names, and ours.

use std::time::Duration;

use bowline_core::ipam::{Allocator, ClusterCidr};
use bowline_runtime::{Bounds, Metric, metrics};
use prometheus::{
    Gauge, GaugeVec, Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry,
};

/// The label of all but two.
const LABELS: &[&str] = &["clusterCIDR"];

metrics! {
    /// What the controller counts.
    pub METRICS;
    ALLOCATIONS = Metric::counter(
        "node_ipam_controller_cidrset_cidrs_allocations_total", "Counter measuring total number of CIDR allocations.",
    ).labels(LABELS);
    RELEASES = Metric::counter(
        "node_ipam_controller_cidrset_cidrs_releases_total", "Counter measuring total number of CIDR releases.",
    ).labels(LABELS);
    // upstream: "cirdset".
    MOST = Metric::gauge("node_ipam_controller_cirdset_max_cidrs", "Maximum number of CIDRs that can be allocated.")
        .labels(LABELS);
    USAGE = Metric::gauge(
        "node_ipam_controller_cidrset_usage_cidrs", "Gauge measuring percentage of allocated CIDRs.",
    ).labels(LABELS);
    // upstream: the help text is another metric's.
    SKIPPED = Metric::histogram(
        "node_ipam_controller_cidrset_allocation_tries_per_request",
        "Number of endpoints added on each Service sync",
        Bounds::Powers { first: 1.0, factor: 5.0, count: 5 },
    ).labels(LABELS);
    FREE = Metric::gauge("bowline_pod_range_free_blocks", "Blocks of a range of the cluster that no Node holds.")
        .labels(LABELS);
    SECONDS_LEFT = Metric::gauge(
        "bowline_pod_range_seconds_until_full",
        "How long until a range of the cluster has no free block left, at the rate of the last hours; 0 when it is full, \
         absent while it does not grow.",
    ).labels(LABELS);
    MISFITS = Metric::counter(
        "bowline_pod_range_misfits_total", "Nodes that turned up with a pod range that is none of the cluster's.",
    );
    OVERLAPS = Metric::gauge(
        "bowline_pod_range_overlaps", "Nodes that have a pod range, or a part of one, that another Node has, too.",
    );
}

pub(super) struct Metrics {
    ranges: Vec<RangeMetrics>,
    /// Absent while a range does not grow.
    seconds_left: GaugeVec,
    /// Nodes that turned up with ranges that they cannot have.
    pub(super) misfits: IntCounter,
    /// Nodes that have addresses in common with another, each pair counted once.
    pub(super) overlaps: IntGauge,
}

/// Those of one range.
struct RangeMetrics {
    label: String,
    allocations: IntCounter,
    releases: IntCounter,
    usage: Gauge,
    skipped: Histogram,
    free: IntGauge,
}

/// Those with a label, before it is given.
struct Families {
    allocations: IntCounterVec,
    releases: IntCounterVec,
    most: IntGaugeVec,
    usage: GaugeVec,
    skipped: HistogramVec,
    free: IntGaugeVec,
}

impl Metrics {
    pub(super) fn register(registry: &Registry, ranges: &[ClusterCidr]) -> prometheus::Result<Metrics> {
        let families = Families::register(registry)?;
        Ok(Metrics {
            ranges: ranges.iter().map(|range| families.of(range)).collect(),
            seconds_left: SECONDS_LEFT.register(registry)?,
            misfits: MISFITS.register(registry)?,
            overlaps: OVERLAPS.register(registry)?,
        })
    }

    /// Counts what happened to the ranges since this was last done (IPAM-11).
    pub(super) fn count(&self, allocator: &mut Allocator) {
        let happened = allocator.take_counts().into_iter().zip(allocator.usage());
        for (metrics, (tally, usage)) in self.ranges.iter().zip(happened) {
            metrics.allocations.inc_by(tally.allocations);
            metrics.releases.inc_by(tally.releases);
            metrics.usage.set(usage.share());
            metrics.free.set(i64::try_from(usage.free()).unwrap_or(i64::MAX));
            if let Some(skipped) = tally.skipped {
                metrics.skipped.observe(skipped as f64);
            }
        }
    }

    /// This range is full in so long.
    pub(super) fn forecast(&self, index: usize, left: Option<Duration>) {
        let Some(range) = self.ranges.get(index) else { return };
        match left {
            Some(left) => self.seconds_left.with_label_values(&[&range.label]).set(left.as_secs_f64()),
            // That it is not there already is as good.
            None => drop(self.seconds_left.remove_label_values(&[&range.label])),
        }
    }
}

impl Families {
    fn register(registry: &Registry) -> prometheus::Result<Families> {
        Ok(Families {
            allocations: ALLOCATIONS.register(registry)?,
            releases: RELEASES.register(registry)?,
            most: MOST.register(registry)?,
            usage: USAGE.register(registry)?,
            skipped: SKIPPED.register(registry)?,
            free: FREE.register(registry)?,
        })
    }

    fn of(&self, range: &ClusterCidr) -> RangeMetrics {
        let label = range.cluster().to_string();
        let labels = &[label.as_str()];
        self.most.with_label_values(labels).set(i64::try_from(range.blocks()).unwrap_or(i64::MAX));
        RangeMetrics {
            allocations: self.allocations.with_label_values(labels),
            releases: self.releases.with_label_values(labels),
            usage: self.usage.with_label_values(labels),
            skipped: self.skipped.with_label_values(labels),
            free: self.free.with_label_values(labels),
            label,
        }
    }
}
