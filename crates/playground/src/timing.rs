//! Timestamps in the formats of Kubernetes, and the timing of a playground.

use std::time::Duration;

use jiff::Timestamp;

/// Returns the current time in the format of `metav1.Time`: whole seconds.
pub(crate) fn now() -> String {
    format!("{:.0}", Timestamp::now())
}

/// Returns the current time in the format of `metav1.MicroTime`.
pub(crate) fn now_micro() -> String {
    format!("{:.6}", Timestamp::now())
}

/// Intervals of heartbeats and of their supervision.
///
/// A real cluster has 10 s and 40 s. A playground has the same ratio and a twentieth of the time, or more with a large number of
/// Nodes, whose heartbeats alone would keep the machine busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// Interval between two renewals of a kubelet's Lease.
    pub lease_period: Duration,
    /// Time without a Lease renewal after which a Node is unreachable (`--node-monitor-grace-period`).
    pub grace_period: Duration,
}

/// Maximum number of Lease renewals per second, over all Nodes.
const RENEWALS_PER_SECOND: f64 = 400.0;

impl Timing {
    /// Returns the timing for this number of Nodes.
    pub fn for_nodes(nodes: usize) -> Timing {
        let seconds = (nodes as f64 / RENEWALS_PER_SECOND).clamp(0.5, 10.0);
        let lease_period = Duration::from_secs_f64(seconds);
        Timing { lease_period, grace_period: lease_period * 4 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_have_the_formats_of_kubernetes() {
        assert_eq!(now().len(), "2026-01-02T03:04:05Z".len());
        assert_eq!(now_micro().len(), "2026-01-02T03:04:05.000000Z".len());
    }

    #[test]
    fn intervals_grow_with_the_number_of_nodes_up_to_those_of_a_real_cluster() {
        let seconds = |nodes| Timing::for_nodes(nodes).lease_period.as_secs_f64();
        assert_eq!([seconds(3), seconds(400), seconds(2_000), seconds(100_000)], [0.5, 1.0, 5.0, 10.0]);
        assert_eq!(Timing::for_nodes(100_000).grace_period, Duration::from_secs(40));
    }
}
