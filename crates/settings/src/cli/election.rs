//! Leader election flags.

use std::path::PathBuf;
use std::time::Duration;

use bowline_config::format_duration;
use bowline_kube::LeaseOptions;
use clap::Args;

use crate::flags::{self, Given, Switch as _, given};
use crate::migration::Migration;

/// Flags of leader election and leader migration.
#[derive(Debug, Args)]
#[command(next_help_heading = "Leader election")]
pub struct ElectionArgs {
    /// Acquire a Lease before running the controllers. Enable this when running several replicas for high availability.
    #[arg(long, default_value = "true", value_parser = given(flags::go_bool), switch())]
    pub(crate) leader_elect: Given<bool>,

    /// Duration that standby replicas wait after the last renewal they observed before they try to acquire the Lease. Must be
    /// greater than --leader-elect-renew-deadline.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = format_duration(defaults().lease_duration),
        value_parser = given(flags::duration),
    )]
    pub(crate) leader_elect_lease_duration: Given<Duration>,

    /// Duration that the leader keeps trying to renew the Lease before it stops leading and exits with code 1. Must be greater than
    /// 1.2 times --leader-elect-retry-period.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = format_duration(defaults().renew_deadline),
        value_parser = given(flags::duration),
    )]
    pub(crate) leader_elect_renew_deadline: Given<Duration>,

    /// Duration between attempts to acquire or renew the Lease.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = format_duration(defaults().retry_period),
        value_parser = given(flags::duration),
    )]
    pub(crate) leader_elect_retry_period: Given<Duration>,

    /// Type of the resource object used for locking. The only supported value is "leases".
    #[arg(long, value_name = "KIND", default_value = LEASES)]
    pub(crate) leader_elect_resource_lock: String,

    /// Name of the Lease.
    #[arg(long, value_name = "NAME", default_value_t = defaults().name)]
    pub leader_elect_resource_name: String,

    /// Namespace of the Lease.
    #[arg(long, value_name = "NAMESPACE", default_value_t = defaults().namespace)]
    pub leader_elect_resource_namespace: String,

    /// Enable controller leader migration: controllers that move between managers run under a second Lease that both managers
    /// share.
    #[arg(long, default_value = "false", value_parser = given(flags::go_bool), switch())]
    pub(crate) enable_leader_migration: Given<bool>,

    /// Path of the leader migration configuration, a LeaderMigrationConfiguration (controllermanager.config.k8s.io/v1, v1beta1 or
    /// v1alpha1) in YAML or JSON. Default: migrate the route, Service and node lifecycle controllers.
    #[arg(long, value_name = "FILE", value_parser = flags::path)]
    pub(crate) leader_migration_config: Option<PathBuf>,

    /// Leader migration configuration from the --config file. Not a flag itself.
    #[arg(skip)]
    pub migration: Option<Migration>,
}

/// Value of `--leader-elect-resource-lock` for a Lease.
pub(crate) const LEASES: &str = "leases";

fn defaults() -> LeaseOptions {
    LeaseOptions::default()
}
