//! Metrics of the controller: upstream's names are kept, ours are added.

use std::time::Duration;

use bowline_core::ipam::{Allocator, ClusterCidr};
use bowline_runtime::{Buckets, Metric, metrics};
use prometheus::{
    Gauge, GaugeVec, Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry,
};

/// Label of all metrics but two.
const LABELS: &[&str] = &["clusterCIDR"];

metrics! {
    /// Metrics of the controller.
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
        Buckets::Exponential { first: 1.0, factor: 5.0, count: 5 },
    ).labels(LABELS);
    FREE = Metric::gauge("bowline_pod_range_free_blocks", "Free blocks of a cluster CIDR.")
        .labels(LABELS);
    SECONDS_LEFT = Metric::gauge(
        "bowline_pod_range_seconds_until_full",
        "Time until a cluster CIDR is exhausted, at the rate of the last hours; 0 when it is exhausted, absent while its usage \
         does not grow.",
    ).labels(LABELS);
    INVALID = Metric::counter(
        "bowline_pod_range_misfits_total", "Nodes that appeared with an invalid pod CIDR, such as one outside the cluster CIDRs.",
    );
    OVERLAPS = Metric::gauge(
        "bowline_pod_range_overlaps", "Pairs of Nodes with overlapping pod CIDRs.",
    );
}

pub(super) struct Metrics {
    cluster_cidrs: Vec<CidrMetrics>,
    /// Absent while the usage of a cluster CIDR does not grow.
    seconds_left: GaugeVec,
    /// Nodes that appeared with invalid pod CIDRs.
    pub(super) invalid: IntCounter,
    /// Pairs of Nodes with overlapping pod CIDRs.
    pub(super) overlaps: IntGauge,
}

/// Metrics of one cluster CIDR.
struct CidrMetrics {
    label: String,
    allocations: IntCounter,
    releases: IntCounter,
    usage: Gauge,
    skipped: Histogram,
    free: IntGauge,
}

/// Metric families with the label of the cluster CIDR.
struct Families {
    allocations: IntCounterVec,
    releases: IntCounterVec,
    most: IntGaugeVec,
    usage: GaugeVec,
    skipped: HistogramVec,
    free: IntGaugeVec,
}

impl Metrics {
    pub(super) fn register(registry: &Registry, cluster_cidrs: &[ClusterCidr]) -> prometheus::Result<Metrics> {
        let families = Families::register(registry)?;
        Ok(Metrics {
            cluster_cidrs: cluster_cidrs.iter().map(|cidr| families.of(cidr)).collect(),
            seconds_left: SECONDS_LEFT.register(registry)?,
            invalid: INVALID.register(registry)?,
            overlaps: OVERLAPS.register(registry)?,
        })
    }

    /// Counts allocations and releases since the last call, and sets the usage gauges (IPAM-11).
    pub(super) fn count(&self, allocator: &mut Allocator) {
        let happened = allocator.take_counts().into_iter().zip(allocator.usage());
        for (metrics, (tally, usage)) in self.cluster_cidrs.iter().zip(happened) {
            metrics.allocations.inc_by(tally.allocations);
            metrics.releases.inc_by(tally.releases);
            metrics.usage.set(usage.share());
            metrics.free.set(i64::try_from(usage.free()).unwrap_or(i64::MAX));
            if let Some(skipped) = tally.skipped {
                metrics.skipped.observe(skipped as f64);
            }
        }
    }

    /// Sets the time until this cluster CIDR is exhausted.
    pub(super) fn forecast(&self, index: usize, left: Option<Duration>) {
        let Some(cidr) = self.cluster_cidrs.get(index) else { return };
        match left {
            Some(left) => self.seconds_left.with_label_values(&[&cidr.label]).set(left.as_secs_f64()),
            // The error of a series that does not exist is ignored.
            None => drop(self.seconds_left.remove_label_values(&[&cidr.label])),
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

    fn of(&self, range: &ClusterCidr) -> CidrMetrics {
        let label = range.cluster().to_string();
        let labels = &[label.as_str()];
        self.most.with_label_values(labels).set(i64::try_from(range.blocks()).unwrap_or(i64::MAX));
        CidrMetrics {
            allocations: self.allocations.with_label_values(labels),
            releases: self.releases.with_label_values(labels),
            usage: self.usage.with_label_values(labels),
            skipped: self.skipped.with_label_values(labels),
            free: self.free.with_label_values(labels),
            label,
        }
    }
}
