//! Well-known labels, taints, annotations, finalizers and condition types of Kubernetes and Bowline.

/// Taint of a Node that no cloud controller manager has initialised. A kubelet with `--cloud-provider=external` sets it; the node
/// controller removes it. Matched by key alone.
pub const UNINITIALIZED_TAINT: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// Taint of a Node whose machine is stopped: effect `NoSchedule`, without a value and without a time.
pub const SHUTDOWN_TAINT: &str = "node.cloudprovider.kubernetes.io/shutdown";

/// Effect of both taints above, as Bowline writes them.
pub const NO_SCHEDULE: &str = "NoSchedule";

/// Node annotation with the value of the kubelet's `--node-ip`: one address or a dual-stack pair.
pub const PROVIDED_NODE_IP: &str = "alpha.kubernetes.io/provided-node-ip";

/// A label with a beta and a GA name. The beta label is the source of truth.
// upstream: announced to flip in 1.21, and never flipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LabelPair {
    /// Beta name.
    pub beta: &'static str,
    /// GA name.
    pub ga: &'static str,
}

/// Instance type of the machine.
pub const INSTANCE_TYPE: LabelPair =
    LabelPair { beta: "beta.kubernetes.io/instance-type", ga: "node.kubernetes.io/instance-type" };

/// Zone (failure domain) of the machine.
pub const ZONE: LabelPair =
    LabelPair { beta: "failure-domain.beta.kubernetes.io/zone", ga: "topology.kubernetes.io/zone" };

/// Region of the machine.
pub const REGION: LabelPair =
    LabelPair { beta: "failure-domain.beta.kubernetes.io/region", ga: "topology.kubernetes.io/region" };

/// All labels with a beta and a GA name.
pub const LABEL_PAIRS: [LabelPair; 3] = [INSTANCE_TYPE, ZONE, REGION];

/// Node annotation with which an operator allows the deletion of the Node: with the value `true`, neither the brake nor a missing
/// witness holds the deletion back once the cloud reports the machine as gone.
pub const ALLOW_DELETION: &str = "bowline.dev/allow-deletion";

/// Labels, with their values, of a Node that no cloud controller manager manages. Such a Node counts as permanently
/// [paused](crate::Node::is_paused).
// In this order: Bowline's, Azure's, Google's, and one that was proposed for all clouds. All are honoured, because Nodes outlive
// the manager that labelled them.
pub const UNMANAGED_LABELS: [(&str, &str); 4] = [
    ("bowline.dev/unmanaged", "true"),
    ("kubernetes.azure.com/managed", "false"),
    ("components.gke.io/gke-unmanaged-node", "true"),
    ("node.kubernetes.io/exclude-from-lifecycle-management", "true"),
];

/// Finalizer of a Service that has, or may have, a load balancer.
pub const LOAD_BALANCER_CLEANUP: &str = "service.kubernetes.io/load-balancer-cleanup";

/// Taint that the cluster autoscaler sets on a Node before it deletes the machine. Matched by key alone.
pub const AUTOSCALER_TAINT: &str = "ToBeDeletedByClusterAutoscaler";

/// Label that excludes a Node from all load balancers, unless its value is a false boolean.
pub const EXCLUDE_FROM_LOAD_BALANCERS: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// Legacy Service annotation for source ranges. `spec.loadBalancerSourceRanges` takes precedence over it.
pub const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

/// Type of Bowline's condition on a Service: whether the load balancer is in the desired state, and if not, why.
pub const LOAD_BALANCER_READY: &str = "bowline.dev/LoadBalancerReady";

/// Type of the Node condition that reports whether the Node's pod network is unavailable.
pub const NETWORK_UNAVAILABLE: &str = "NetworkUnavailable";
