//! The labels, taints and annotations that Kubernetes, its cloud controller managers and Bowline agreed on.

/// Put on by a kubelet that runs with `--cloud-provider=external`; gone once the cloud has said what the node is.
/// Matched by key alone.
pub const UNINITIALIZED_TAINT: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// Says that the machine is stopped: effect `NoSchedule`, no value, no time.
pub const SHUTDOWN_TAINT: &str = "node.cloudprovider.kubernetes.io/shutdown";

/// The effect of both taints above, as far as we write them.
pub const NO_SCHEDULE: &str = "NoSchedule";

/// The address or the dual-stack pair that a kubelet was told with `--node-ip`.
pub const PROVIDED_NODE_IP: &str = "alpha.kubernetes.io/provided-node-ip";

/// A label that has an old and a new name. The old one is the source of truth.
// upstream: announced to flip in 1.21, and never flipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LabelPair {
    /// The name from before the label was settled.
    pub beta: &'static str,
    /// The name of today.
    pub ga: &'static str,
}

/// The kind of machine.
pub const INSTANCE_TYPE: LabelPair =
    LabelPair { beta: "beta.kubernetes.io/instance-type", ga: "node.kubernetes.io/instance-type" };

/// The failure domain.
pub const ZONE: LabelPair =
    LabelPair { beta: "failure-domain.beta.kubernetes.io/zone", ga: "topology.kubernetes.io/zone" };

/// The region around the failure domain.
pub const REGION: LabelPair =
    LabelPair { beta: "failure-domain.beta.kubernetes.io/region", ga: "topology.kubernetes.io/region" };

/// All labels with two names.
pub const LABEL_PAIRS: [LabelPair; 3] = [INSTANCE_TYPE, ZONE, REGION];

/// Put on a Node by an operator, with the value `true`: the brake and the doubt rules no longer hold its deletion back
/// once the cloud says that its machine is gone.
pub const ALLOW_DELETION: &str = "bowline.dev/allow-deletion";

/// Labels of a Node that is not for a cloud controller manager, with the value that says so. Such a Node is
/// [paused](crate::Node::is_paused) for good.
// Ours, Azure's, Google's and one that was proposed for all, in that order; all are honoured, because nodes outlive the manager that was there before.
pub const UNMANAGED_LABELS: [(&str, &str); 4] = [
    ("bowline.dev/unmanaged", "true"),
    ("kubernetes.azure.com/managed", "false"),
    ("components.gke.io/gke-unmanaged-node", "true"),
    ("node.kubernetes.io/exclude-from-lifecycle-management", "true"),
];

/// The finalizer of a Service that has, or may have, a balancer.
pub const LOAD_BALANCER_CLEANUP: &str = "service.kubernetes.io/load-balancer-cleanup";

/// Put on a Node by the cluster autoscaler before it removes the machine. Matched by key alone.
pub const AUTOSCALER_TAINT: &str = "ToBeDeletedByClusterAutoscaler";

/// A label: this Node is behind no balancer, unless the value is a false boolean.
pub const EXCLUDE_FROM_LOAD_BALANCERS: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// An annotation of a Service, older than `spec.loadBalancerSourceRanges`, which goes before it.
pub const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

/// The type of our condition on a Service: whether its balancer is as the Service wants it, and what blocks it.
pub const LOAD_BALANCER_READY: &str = "bowline.dev/LoadBalancerReady";

/// The type of the condition of a Node that says whether pods on other nodes can be reached.
pub const NETWORK_UNAVAILABLE: &str = "NetworkUnavailable";
