//! The controller's metrics: upstream's by their names, and ours.

use std::time::Duration;

use bowline_core::ipam::{Allocator, ClusterRange};
use prometheus::core::Collector;
use prometheus::{
    Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry,
};

/// The label of all but one.
const LABEL: &str = "clusterCIDR";

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
    pub(super) fn register(registry: &Registry, ranges: &[ClusterRange]) -> prometheus::Result<Metrics> {
        let families = Families::register(registry)?;
        let seconds_left = Opts::new(
            "bowline_pod_range_seconds_until_full",
            "How long until a range of the cluster has no free block left, at the rate of the last hours; 0 when it is \
             full, absent while it does not grow.",
        );
        let metrics = Metrics {
            ranges: ranges.iter().map(|range| families.of(range)).collect(),
            seconds_left: registered(registry, GaugeVec::new(seconds_left, &[LABEL])?)?,
            misfits: registered(
                registry,
                IntCounter::new(
                    "bowline_pod_range_misfits_total",
                    "Nodes that turned up with a pod range that is none of the cluster's.",
                )?,
            )?,
            overlaps: registered(
                registry,
                IntGauge::new(
                    "bowline_pod_range_overlaps",
                    "Nodes that have a pod range, or a part of one, that another Node has, too.",
                )?,
            )?,
        };
        Ok(metrics)
    }

    /// Counts what happened to the ranges since this was last done (IPAM-11).
    pub(super) fn count(&self, allocator: &mut Allocator) {
        let happened = allocator.take_tallies().into_iter().zip(allocator.usage());
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
        let labels = &[LABEL];
        let allocations = Opts::new(
            "node_ipam_controller_cidrset_cidrs_allocations_total",
            "[ALPHA] Counter measuring total number of CIDR allocations.",
        );
        let releases = Opts::new(
            "node_ipam_controller_cidrset_cidrs_releases_total",
            "[ALPHA] Counter measuring total number of CIDR releases.",
        );
        // upstream: "cirdset".
        let most = Opts::new(
            "node_ipam_controller_cirdset_max_cidrs",
            "[ALPHA] Maximum number of CIDRs that can be allocated.",
        );
        let usage = Opts::new(
            "node_ipam_controller_cidrset_usage_cidrs",
            "[ALPHA] Gauge measuring percentage of allocated CIDRs.",
        );
        // upstream: the help text is another metric's.
        let skipped = HistogramOpts::new(
            "node_ipam_controller_cidrset_allocation_tries_per_request",
            "[ALPHA] Number of endpoints added on each Service sync",
        );
        let skipped = skipped.buckets(prometheus::exponential_buckets(1.0, 5.0, 5)?);
        let free = Opts::new("bowline_pod_range_free_blocks", "Blocks of a range of the cluster that no Node holds.");
        Ok(Families {
            allocations: registered(registry, IntCounterVec::new(allocations, labels)?)?,
            releases: registered(registry, IntCounterVec::new(releases, labels)?)?,
            most: registered(registry, IntGaugeVec::new(most, labels)?)?,
            usage: registered(registry, GaugeVec::new(usage, labels)?)?,
            skipped: registered(registry, HistogramVec::new(skipped, labels)?)?,
            free: registered(registry, IntGaugeVec::new(free, labels)?)?,
        })
    }

    fn of(&self, range: &ClusterRange) -> RangeMetrics {
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

fn registered<M: Collector + Clone + 'static>(registry: &Registry, metric: M) -> prometheus::Result<M> {
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}
