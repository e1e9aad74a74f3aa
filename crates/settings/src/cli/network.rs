//! Flags of pod CIDR allocation and routes.

use std::time::Duration;

use bowline_controllers::route;
use clap::Args;

use crate::flags::{self, Given, Switch as _, given};

/// Flags of pod CIDR allocation and routes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Pod CIDRs")]
pub struct NetworkArgs {
    /// CIDR range for pods in the cluster; for dual-stack, one IPv4 and one IPv6 range separated by a comma without a space.
    /// Required with --allocate-node-cidrs, and for routes in a cloud that has them.
    #[arg(long, value_name = "CIDRS")]
    pub cluster_cidr: Option<String>,

    /// Routes.
    #[command(flatten)]
    pub route: RouteArgs,
    #[command(flatten)]
    pub(crate) node_ipam: NodeIpamArgs,
}

/// Flags of the route controller.
#[derive(Debug, Args)]
#[command(next_help_heading = "node-route-controller")]
pub struct RouteArgs {
    /// Configure a route for the pod CIDRs of each node, in the clouds that have routes.
    #[arg(long, default_value = "true", value_parser = given(flags::go_bool), switch())]
    pub(crate) configure_cloud_routes: Given<bool>,

    /// Interval at which all routes are compared with the cloud, in addition to the syncs that node changes trigger; 0 compares
    /// them at start only. Default: 10m.
    #[arg(long, value_name = "DURATION", value_parser = given(flags::duration))]
    pub(crate) route_refresh_period: Option<Given<Duration>>,

    /// The period for reconciling routes, from start to start. Only used with
    /// --feature-gates=CloudControllerManagerWatchBasedRoutesReconciliation=false, when node changes do not trigger a sync.
    /// Default: 10s.
    #[arg(long, value_name = "DURATION", value_parser = given(flags::pause))]
    pub(crate) route_reconciliation_period: Option<Given<Duration>>,

    /// Maximum share of a cloud's routes, from 0 to 1, that one sync may delete because their nodes are gone. If more would be
    /// deleted, two reads of the API server, a minute apart, must confirm it first; 1 disables the check.
    #[arg(
        long,
        value_name = "SHARE",
        default_value = route::MAX_SHARE.to_string(),
        value_parser = given(flags::share),
    )]
    pub route_deletion_max_share: Given<f64>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "node-ipam-controller")]
pub(crate) struct NodeIpamArgs {
    /// Allocate pod CIDRs from --cluster-cidr and set them on the nodes.
    #[arg(long, default_value = "false", value_parser = given(flags::go_bool), switch())]
    pub(crate) allocate_node_cidrs: Given<bool>,

    /// Type of the CIDR allocator: RangeAllocator (allocate from --cluster-cidr), IPAMFromCluster (allocate, and set the CIDR on
    /// the machine in the cloud), IPAMFromCloud or CloudAllocator (use the CIDR that the cloud assigned). All but RangeAllocator
    /// require support by the cloud.
    #[arg(long, value_name = "TYPE", default_value = "RangeAllocator")]
    pub(crate) cidr_allocator_type: String,

    /// CIDR range for Services in the cluster; for dual-stack, one IPv4 and one IPv6 range separated by a comma. Pod CIDRs that
    /// overlap it are not allocated.
    #[arg(long, value_name = "CIDRS")]
    pub(crate) service_cluster_ip_range: Option<String>,

    /// Mask size for the node CIDR in a single-stack cluster. Default: 24 for IPv4 and 64 for IPv6.
    #[arg(long, value_name = "BITS", value_parser = given(flags::int32))]
    pub(crate) node_cidr_mask_size: Option<Given<i32>>,

    /// Mask size for the IPv4 node CIDR, also in a dual-stack cluster. Default: 24.
    #[arg(long, value_name = "BITS", value_parser = given(flags::int32))]
    pub node_cidr_mask_size_ipv4: Option<Given<i32>>,

    /// Mask size for the IPv6 node CIDR, also in a dual-stack cluster. Default: 64.
    #[arg(long, value_name = "BITS", value_parser = given(flags::int32))]
    pub node_cidr_mask_size_ipv6: Option<Given<i32>>,
}
