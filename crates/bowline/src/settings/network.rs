//! What the flags about pod ranges and routes come to (ROUTE-1, IPAM-1 to IPAM-4).
//!
//! ```text
//!  --cluster-cidr ──► ranges ──┬───────────────────────────────► route::Options
//!  --node-cidr-mask-size… ─────┼─► masks ──► ClusterRange ──┐
//!  --service-cluster-ip-range ─┴─► ranges ──────────────────┴──► node_ipam::Options
//! ```
//!
//! Whether routes need a `--cluster-cidr` depends on the clouds, which are not known here: [`reach`](crate::reach) looks.

mod masks;
mod ranges;

use std::time::Duration;

use bowline_config::{Problem, Problems};
use bowline_controllers::node_ipam::AllocatorType;
use bowline_controllers::route::Mode;
use bowline_controllers::{node_ipam, route};
use bowline_core::ClusterName;
use ipnet::IpNet;

use super::taken;
use crate::cli::{NetworkArgs, NodeIpamArgs, RouteArgs};
use crate::controllers::Selection;
use crate::feature_gates::FeatureGates;
pub(crate) use ranges::pods as pod_ranges;

/// The pause from one beginning to the next, unless given.
// upstream: the default of --route-reconciliation-period.
const RECONCILIATION_PERIOD: Duration = Duration::from_secs(10);

/// How the two controllers run, if they do, and what a person should know about it.
pub(super) struct Network {
    pub(super) route: Option<route::Options>,
    pub(super) node_ipam: Option<node_ipam::Options>,
    pub(super) remarks: Vec<String>,
}

impl Network {
    pub(super) fn resolve(
        args: &NetworkArgs,
        selection: &Selection,
        gates: &FeatureGates,
        cluster: &ClusterName,
        problems: &mut Problems,
    ) -> Network {
        let pods = pod_ranges(args.cluster_cidr.as_deref().unwrap_or_default(), problems);
        let mut remarks = Vec::new();
        let node_ipam = Ipam::resolve(&args.node_ipam, problems);
        let node_ipam = node_ipam.filter(|ipam| ipam.is_on && selection.has(node_ipam::NAME));
        let is_missing = node_ipam.is_some() && pods.as_ref().is_some_and(Vec::is_empty);
        if is_missing {
            problems.push(no_ranges_to_hand_out());
        }
        let route = route_options(&args.route, gates, cluster, &mut remarks, problems);
        // One complaint about a flag is enough: where the range is wrong, no controller asks for it again.
        let pods = pods.filter(|_| !is_missing);
        Network {
            route: route.filter(|_| selection.has(route::NAME)).zip(pods.clone()).map(with_ranges),
            node_ipam: node_ipam.zip(pods).and_then(|(ipam, pods)| ipam.options(&pods, &mut remarks, problems)),
            remarks,
        }
    }
}

// ---- routes

/// `None` if there are to be no routes, or something is wrong.
fn route_options(
    args: &RouteArgs,
    gates: &FeatureGates,
    cluster: &ClusterName,
    remarks: &mut Vec<String>,
    problems: &mut Problems,
) -> Option<route::Options> {
    let is_on = taken(&args.configure_cloud_routes, problems);
    let mode = mode(args, gates, remarks, problems);
    let max_share = taken(&args.route_deletion_max_share, problems);
    is_on?.then_some(route::Options { cluster: cluster.clone(), ranges: Vec::new(), mode, max_share: max_share? })
}

fn with_ranges((options, ranges): (route::Options, Vec<IpNet>)) -> route::Options {
    route::Options { ranges, ..options }
}

/// Each mode has its flag, and the other mode's has no effect.
fn mode(args: &RouteArgs, gates: &FeatureGates, remarks: &mut Vec<String>, problems: &mut Problems) -> Mode {
    let refresh = args.route_refresh_period.as_ref().and_then(|period| taken(period, problems));
    let period = args.route_reconciliation_period.as_ref().and_then(|period| taken(period, problems));
    match gates.watches_routes() {
        true => {
            remarks.extend(period.map(|_| {
                "--route-reconciliation-period has no effect: routes are seen to when a node changes, and compared with \
                 the cloud every --route-refresh-period"
                    .to_owned()
            }));
            refresh.map_or_else(Mode::default, |refresh| Mode::Watch { refresh })
        }
        false => {
            remarks.extend(refresh.map(|_| {
                "--route-refresh-period has no effect: all routes are compared with the cloud every \
                 --route-reconciliation-period"
                    .to_owned()
            }));
            Mode::Periodic { period: period.unwrap_or(RECONCILIATION_PERIOD) }
        }
    }
}

// ---- pod ranges

/// What is known without the ranges.
struct Ipam {
    is_on: bool,
    services: Vec<IpNet>,
    masks: masks::Masks,
    allocator: AllocatorType,
}

impl Ipam {
    /// `None` if something is wrong.
    fn resolve(args: &NodeIpamArgs, problems: &mut Problems) -> Option<Ipam> {
        let is_on = taken(&args.allocate_node_cidrs, problems);
        let services = ranges::services(args.service_cluster_ip_range.as_deref().unwrap_or_default(), problems);
        let masks = masks::Masks::resolve(args, problems);
        let allocator = allocator_type(&args.cidr_allocator_type, problems);
        Some(Ipam { is_on: is_on?, services: services?, masks: masks?, allocator: allocator? })
    }

    fn options(self, pods: &[IpNet], remarks: &mut Vec<String>, problems: &mut Problems) -> Option<node_ipam::Options> {
        ranges::compare(pods, &self.services, remarks, problems);
        let ranges = self.masks.cut(pods, problems)?;
        Some(node_ipam::Options { ranges, services: self.services, allocator: self.allocator })
    }
}

fn allocator_type(text: &str, problems: &mut Problems) -> Option<AllocatorType> {
    match text {
        "RangeAllocator" => Some(AllocatorType::Range),
        "CloudAllocator" | "IPAMFromCloud" => Some(AllocatorType::FromCloud),
        "IPAMFromCluster" => Some(AllocatorType::FromCluster),
        _ => {
            let hint = "known are RangeAllocator, IPAMFromCluster, IPAMFromCloud and CloudAllocator";
            // upstream: these words.
            let message = format!("invalid CIDR allocator type: {text}");
            problems.push(Problem::flag("cidr-allocator-type", message).hint(hint));
            None
        }
    }
}

fn no_ranges_to_hand_out() -> Problem {
    Problem::flag("cluster-cidr", "it is not given, and --allocate-node-cidrs has nothing to hand out")
        .hint("set --cluster-cidr=<range of the pods>, such as 10.244.0.0/16, or --allocate-node-cidrs=false")
}

#[cfg(test)]
mod tests;
