//! Resolves the flags of pod CIDR allocation and routes (ROUTE-1, IPAM-1 to IPAM-4).
//!
//! ```text
//!  --cluster-cidr ───► cidrs ──┬──────────────────────────────► route::Options
//!  --node-cidr-mask-size… ─────┼─► masks ──► ClusterCidr ──┐
//!  --service-cluster-ip-range ─┴─► cidrs ──────────────────┴──► node_ipam::Options
//! ```
//!
//! Routes require `--cluster-cidr` only if a cloud has routes, which [`reach`](crate::reach) checks.

mod cidrs;
mod masks;

use std::time::Duration;

use bowline_config::{ConfigError, ConfigErrors};
use bowline_controllers::node_ipam::AllocatorType;
use bowline_controllers::route::Mode;
use bowline_controllers::{node_ipam, route};
use bowline_core::ClusterName;
use bowline_core::ipam::Allocator;

use super::valid;
use crate::cli::{NetworkArgs, NodeIpamArgs, RouteArgs};
use crate::controllers::Selection;
use crate::feature_gates::FeatureGates;
pub use cidrs::{CidrFlag, parse_cluster_cidr};
use masks::Masks;

/// Default interval of the periodic mode, from start to start.
// upstream: the default of --route-reconciliation-period.
const RECONCILIATION_PERIOD: Duration = Duration::from_secs(10);

/// Options of the two controllers, and warnings about them.
pub(super) struct Network {
    pub(super) route: Option<route::Options>,
    pub(super) node_ipam: Option<node_ipam::Options>,
    pub(super) warnings: Vec<String>,
}

impl Network {
    pub(super) fn resolve(
        args: &NetworkArgs,
        selection: &Selection,
        gates: &FeatureGates,
        cluster: &ClusterName,
        errors: &mut ConfigErrors,
    ) -> Network {
        let pods = cidrs::parse_cluster_cidr(args.cluster_cidr.as_deref().unwrap_or_default(), errors);
        let mut warnings = Vec::new();
        let node_ipam = node_ipam_options(&args.node_ipam, &pods, selection, &mut warnings, errors);
        let route = route_options(&args.route, gates, cluster, &mut warnings, errors);
        let is_missing = node_ipam.is_some() && pods.is_unset();
        if is_missing {
            errors.push(missing_cluster_cidr());
        }
        // An invalid or missing --cluster-cidr is reported once, not for each controller.
        let route = route.filter(|_| selection.has(route::NAME) && pods.is_valid() && !is_missing);
        Network {
            route: route.map(|options| route::Options { cluster_cidrs: pods.cidrs, ..options }),
            node_ipam,
            warnings,
        }
    }
}

// ---- routes

/// Resolves the route options; `None` if routes are disabled.
fn route_options(
    args: &RouteArgs,
    gates: &FeatureGates,
    cluster: &ClusterName,
    warnings: &mut Vec<String>,
    errors: &mut ConfigErrors,
) -> Option<route::Options> {
    let is_on = valid(&args.configure_cloud_routes, errors).unwrap_or(false);
    let mode = mode(args, gates, warnings, errors);
    let max_share = valid(&args.route_deletion_max_share, errors).unwrap_or(0.0);
    is_on.then_some(route::Options { cluster: cluster.clone(), cluster_cidrs: Vec::new(), mode, max_share })
}

/// Resolves the mode. Each mode has its flag; the flag of the other mode has no effect.
fn mode(args: &RouteArgs, gates: &FeatureGates, warnings: &mut Vec<String>, errors: &mut ConfigErrors) -> Mode {
    let refresh = args.route_refresh_period.as_ref().and_then(|period| valid(period, errors));
    let period = args.route_reconciliation_period.as_ref().and_then(|period| valid(period, errors));
    match gates.watches_routes() {
        true => {
            warnings.extend(period.map(|_| {
                "--route-reconciliation-period has no effect: routes are reconciled when a node changes, and compared with \
                 the cloud every --route-refresh-period"
                    .to_owned()
            }));
            refresh.map_or_else(Mode::default, |refresh| Mode::Watch { refresh })
        }
        false => {
            warnings.extend(refresh.map(|_| {
                "--route-refresh-period has no effect: all routes are compared with the cloud every \
                 --route-reconciliation-period"
                    .to_owned()
            }));
            Mode::Periodic { period: period.unwrap_or(RECONCILIATION_PERIOD) }
        }
    }
}

// ---- pod CIDRs

/// Resolves the allocation of pod CIDRs; `None` if it is disabled. Flags are validated separately and then together as far as they
/// could be parsed, so that one invalid flag does not hide errors in the others.
fn node_ipam_options(
    args: &NodeIpamArgs,
    pods: &CidrFlag,
    selection: &Selection,
    warnings: &mut Vec<String>,
    errors: &mut ConfigErrors,
) -> Option<node_ipam::Options> {
    let is_on = valid(&args.allocate_node_cidrs, errors).unwrap_or(false);
    let services = cidrs::parse_service_cidr(args.service_cluster_ip_range.as_deref().unwrap_or_default(), errors);
    let masks = Masks::resolve(args, errors);
    let allocator = allocator_type(&args.cidr_allocator_type, errors).unwrap_or_default();
    if !is_on || !selection.has(node_ipam::NAME) {
        return None;
    }
    let cluster_cidrs = masks.split(pods, errors);
    cidrs::compare(&pods.cidrs, &services.cidrs, warnings, errors);
    let options = node_ipam::Options { cluster_cidrs, service_cidrs: services.cidrs, allocator };
    errors.extend(exhausted(&options));
    Some(options)
}

/// Reports cluster CIDRs in which the Service CIDR overlaps every block.
fn exhausted(options: &node_ipam::Options) -> ConfigErrors {
    let mut errors = ConfigErrors::new();
    let usage = Allocator::new(&options.cluster_cidrs, &options.service_cidrs).usage();
    for (range, _) in options.cluster_cidrs.iter().zip(&usage).filter(|(range, usage)| {
        let is_covered = options.service_cidrs.iter().any(|services| services.contains(&range.cluster()));
        usage.free() == 0 && !is_covered
    }) {
        let message = format!(
            "overlaps every /{} block of --cluster-cidr {}, so that no pod CIDR can be allocated",
            range.node_mask(),
            range.cluster()
        );
        let hint = "use separate ranges for Services and pods, or a larger --node-cidr-mask-size";
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
            let hint = "use RangeAllocator, IPAMFromCluster, IPAMFromCloud or CloudAllocator";
            // upstream: this message.
            let message = format!("invalid CIDR allocator type: {text}");
            errors.push(ConfigError::flag("cidr-allocator-type", message).hint(hint));
            None
        }
    }
}

fn missing_cluster_cidr() -> ConfigError {
    ConfigError::flag("cluster-cidr", "required with --allocate-node-cidrs")
        .hint("set --cluster-cidr=<pod network>, such as 10.244.0.0/16, or --allocate-node-cidrs=false")
}

#[cfg(test)]
mod tests;
