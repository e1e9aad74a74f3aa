//! The time as Kubernetes writes it, and how fast it passes in a playground.

use std::time::Duration;

use jiff::Timestamp;

/// The time of day as `metav1.Time` is written: whole seconds.
pub(crate) fn now() -> String {
    format!("{:.0}", Timestamp::now())
}

/// The time of day as `metav1.MicroTime` is written.
pub(crate) fn now_micro() -> String {
    format!("{:.6}", Timestamp::now())
}

/// How often kubelets speak, and how soon their silence is noticed.
///
/// A real cluster has 10 s and 40 s. A playground has the same ratio and a twentieth of the time, or more if there are so
/// many Nodes that the heartbeats alone would keep the machine busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Between two renewals of a kubelet's Lease.
    pub lease_period: Duration,
    /// How long a Lease may stay as it is before the Node counts as unreachable.
    pub silence: Duration,
}

/// No more renewals than this per second, over all Nodes.
const RENEWALS_PER_SECOND: f64 = 400.0;

impl Pace {
    /// The pace for this many Nodes.
    pub fn for_nodes(nodes: usize) -> Pace {
        let seconds = (nodes as f64 / RENEWALS_PER_SECOND).clamp(0.5, 10.0);
        let lease_period = Duration::from_secs_f64(seconds);
        Pace { lease_period, silence: lease_period * 4 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_kubernetes_writes_them() {
        assert_eq!(now().len(), "2026-01-02T03:04:05Z".len());
        assert_eq!(now_micro().len(), "2026-01-02T03:04:05.000000Z".len());
    }

    #[test]
    fn few_nodes_go_fast_and_many_as_in_a_real_cluster() {
        let seconds = |nodes| Pace::for_nodes(nodes).lease_period.as_secs_f64();
        assert_eq!([seconds(3), seconds(400), seconds(2_000), seconds(100_000)], [0.5, 1.0, 5.0, 10.0]);
        assert_eq!(Pace::for_nodes(100_000).silence, Duration::from_secs(40));
    }
}
