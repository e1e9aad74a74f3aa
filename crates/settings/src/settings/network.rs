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

use bowline_config::{ConfigError, ConfigErrors};
use bowline_controllers::node_ipam::AllocatorType;
use bowline_controllers::route::Mode;
use bowline_controllers::{node_ipam, route};
use bowline_core::ClusterName;
use bowline_core::ipam::Allocator;

use super::taken;
use crate::cli::{NetworkArgs, NodeIpamArgs, RouteArgs};
use crate::controllers::Selection;
use crate::feature_gates::FeatureGates;
use masks::Masks;
pub use ranges::{Ranges, pods as pod_ranges};

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
        errors: &mut ConfigErrors,
    ) -> Network {
        let pods = ranges::pods(args.cluster_cidr.as_deref().unwrap_or_default(), errors);
        let mut remarks = Vec::new();
        let node_ipam = node_ipam_options(&args.node_ipam, &pods, selection, &mut remarks, errors);
        let route = route_options(&args.route, gates, cluster, &mut remarks, errors);
        let is_missing = node_ipam.is_some() && pods.is_unset();
        if is_missing {
            errors.push(no_ranges_to_hand_out());
        }
        // One complaint about a flag is enough: where the range is wrong, no controller asks for it again.
        let route = route.filter(|_| selection.has(route::NAME) && pods.is_right() && !is_missing);
        Network { route: route.map(|options| route::Options { ranges: pods.read, ..options }), node_ipam, remarks }
    }
}

// ---- routes

/// `None` if there are to be no routes.
fn route_options(
    args: &RouteArgs,
    gates: &FeatureGates,
    cluster: &ClusterName,
    remarks: &mut Vec<String>,
    errors: &mut ConfigErrors,
) -> Option<route::Options> {
    let is_on = taken(&args.configure_cloud_routes, errors).unwrap_or(false);
    let mode = mode(args, gates, remarks, errors);
    let max_share = taken(&args.route_deletion_max_share, errors).unwrap_or(0.0);
    is_on.then_some(route::Options { cluster: cluster.clone(), ranges: Vec::new(), mode, max_share })
}

/// Each mode has its flag, and the other mode's has no effect.
fn mode(args: &RouteArgs, gates: &FeatureGates, remarks: &mut Vec<String>, errors: &mut ConfigErrors) -> Mode {
    let refresh = args.route_refresh_period.as_ref().and_then(|period| taken(period, errors));
    let period = args.route_reconciliation_period.as_ref().and_then(|period| taken(period, errors));
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

/// `None` if none are to be handed out. Each flag is looked at for itself, and then as far as the others could be read: what
/// is wrong with one of them hides nothing that is wrong between the rest.
fn node_ipam_options(
    args: &NodeIpamArgs,
    pods: &Ranges,
    selection: &Selection,
    remarks: &mut Vec<String>,
    errors: &mut ConfigErrors,
) -> Option<node_ipam::Options> {
    let is_on = taken(&args.allocate_node_cidrs, errors).unwrap_or(false);
    let services = ranges::services(args.service_cluster_ip_range.as_deref().unwrap_or_default(), errors);
    let masks = Masks::resolve(args, errors);
    let allocator = allocator_type(&args.cidr_allocator_type, errors).unwrap_or_default();
    if !is_on || !selection.has(node_ipam::NAME) {
        return None;
    }
    let ranges = masks.cut(pods, errors);
    ranges::compare(&pods.read, &services.read, remarks, errors);
    let options = node_ipam::Options { ranges, services: services.read, allocator };
    errors.extend(used_up(&options));
    Some(options)
}

/// Services inside a pod range, in so few and large blocks that they have a part of each.
fn used_up(options: &node_ipam::Options) -> ConfigErrors {
    let mut errors = ConfigErrors::new();
    let usage = Allocator::new(&options.ranges, &options.services).usage();
    for (range, _) in options.ranges.iter().zip(&usage).filter(|(range, usage)| {
        let is_covered = options.services.iter().any(|services| services.contains(&range.cluster()));
        usage.free() == 0 && !is_covered
    }) {
        let message = format!(
            "Services have a part of each block of /{} of --cluster-cidr {}, so that nothing is left for pods",
            range.node_mask(),
            range.cluster()
        );
        let hint = "give Services and pods ranges of their own, or cut the pods' range into smaller blocks";
        errors.push(ConfigError::flag("service-cluster-ip-range", message).hint(hint));
    }
    errors
}

fn allocator_type(text: &str, errors: &mut ConfigErrors) -> Option<AllocatorType> {
    match text {
        "RangeAllocator" => Some(AllocatorType::Range),
        "CloudAllocator" | "IPAMFromCloud" => Some(AllocatorType::FromCloud),
        "IPAMFromCluster" => Some(AllocatorType::FromCluster),
        _ => {
            let hint = "known are RangeAllocator, IPAMFromCluster, IPAMFromCloud and CloudAllocator";
            // upstream: these words.
            let message = format!("invalid CIDR allocator type: {text}");
            errors.push(ConfigError::flag("cidr-allocator-type", message).hint(hint));
            None
        }
    }
}

fn no_ranges_to_hand_out() -> ConfigError {
    ConfigError::flag("cluster-cidr", "it is not given, and --allocate-node-cidrs has nothing to hand out")
        .hint("set --cluster-cidr=<range of the pods>, such as 10.244.0.0/16, or --allocate-node-cidrs=false")
}

#[cfg(test)]
mod tests;
