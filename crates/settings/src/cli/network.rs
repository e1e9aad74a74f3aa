//! The flags about pod ranges: where they lie, who hands them out, and the routes to them.

use std::time::Duration;

use bowline_controllers::route;
use clap::Args;

use crate::flags::{self, Given, Switch as _, given};

/// Flags about pod CIDRs and routes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Pod ranges")]
pub struct NetworkArgs {
    /// Where pods may live: a range, or one of each family, separated by a comma and no blank. Routes need it in a cloud
    /// that has them, and so does --allocate-node-cidrs.
    #[arg(long, value_name = "CIDRS")]
    pub cluster_cidr: Option<String>,

    /// Routes.
    #[command(flatten)]
    pub route: RouteArgs,
    #[command(flatten)]
    pub(crate) node_ipam: NodeIpamArgs,
}

/// Flags about routes.
#[derive(Debug, Args)]
#[command(next_help_heading = "node-route-controller")]
pub struct RouteArgs {
    /// Lead the pod range of each node to its machine, in the clouds that have routes.
    #[arg(long, default_value = "true", value_parser = given(flags::go_bool), switch())]
    pub(crate) configure_cloud_routes: Given<bool>,

    /// How often all routes are compared with the cloud while changes of nodes are acted on at once; 0 for never again
    /// after the start. 10m unless given.
    #[arg(long, value_name = "DURATION", value_parser = given(flags::duration))]
    pub(crate) route_refresh_period: Option<Given<Duration>>,

    /// With --feature-gates=CloudControllerManagerWatchBasedRoutesReconciliation=false, changes of nodes are not acted on
    /// at once: all routes are compared with the cloud, from one beginning to the next this often. 10s unless given.
    #[arg(long, value_name = "DURATION", value_parser = given(flags::pause))]
    pub(crate) route_reconciliation_period: Option<Given<Duration>>,

    /// The share of a cloud's routes, from 0 to 1, that may go at once because their nodes are gone. If more would go,
    /// the API server must confirm it first, twice, a minute apart; 1 switches this off.
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
    /// Give each node a pod range of its own out of --cluster-cidr.
    #[arg(long, default_value = "false", value_parser = given(flags::go_bool), switch())]
    pub(crate) allocate_node_cidrs: Given<bool>,

    /// Who decides on the range of a node: RangeAllocator (this program), IPAMFromCluster (this program, and the cloud is
    /// told), IPAMFromCloud or CloudAllocator (the cloud). All but the first need a cloud that can do it.
    #[arg(long, value_name = "TYPE", default_value = "RangeAllocator")]
    pub(crate) cidr_allocator_type: String,

    /// The addresses of Services: a range, or one of each family, separated by a comma. What of it lies in --cluster-cidr
    /// is not handed out.
    #[arg(long, value_name = "CIDRS")]
    pub(crate) service_cluster_ip_range: Option<String>,

    /// The length of the prefix of a node's range, with one --cluster-cidr; 24 for IPv4 and 64 for IPv6 unless given.
    #[arg(long, value_name = "BITS", value_parser = given(flags::int32))]
    pub(crate) node_cidr_mask_size: Option<Given<i32>>,

    /// The same for IPv4, which may also be given beside the one for IPv6; 24 unless given.
    #[arg(long, value_name = "BITS", value_parser = given(flags::int32))]
    pub node_cidr_mask_size_ipv4: Option<Given<i32>>,

    /// The same for IPv6, which may also be given beside the one for IPv4; 64 unless given.
    #[arg(long, value_name = "BITS", value_parser = given(flags::int32))]
    pub node_cidr_mask_size_ipv6: Option<Given<i32>>,
}
