//! The flags about who leads.

use std::path::PathBuf;
use std::time::Duration;

use bowline_config::format_duration;
use bowline_kube::LeaseOptions;
use clap::Args;

use crate::flags::{self, Given, Switch as _, given};
use crate::migration::Migration;

/// Leader election, and leader migration.
#[derive(Debug, Args)]
#[command(next_help_heading = "Leader election")]
pub struct ElectionArgs {
    /// Run the controllers only while holding a Lease, so that of several replicas one works and the others stand by.
    #[arg(long, default_value = "true", value_parser = given(flags::go_bool), switch())]
    pub(crate) leader_elect: Given<bool>,

    /// How long the others wait, after the leader has last renewed the Lease, before one of them takes over. Longer than the
    /// renew deadline.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = format_duration(defaults().lease_duration),
        value_parser = given(flags::duration),
    )]
    pub(crate) leader_elect_lease_duration: Given<Duration>,

    /// How long the leader tries to renew the Lease before it gives up: the process then ends with exit code 1. Longer than
    /// 1.2 times the retry period.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = format_duration(defaults().renew_deadline),
        value_parser = given(flags::duration),
    )]
    pub(crate) leader_elect_renew_deadline: Given<Duration>,

    /// The pause between two tries to get or to renew the Lease.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = format_duration(defaults().retry_period),
        value_parser = given(flags::duration),
    )]
    pub(crate) leader_elect_retry_period: Given<Duration>,

    /// The kind of object that is held. There is no other than leases.
    #[arg(long, value_name = "KIND", default_value = LEASES)]
    pub(crate) leader_elect_resource_lock: String,

    /// The name of the Lease.
    #[arg(long, value_name = "NAME", default_value_t = defaults().name)]
    pub leader_elect_resource_name: String,

    /// The namespace of the Lease.
    #[arg(long, value_name = "NAMESPACE", default_value_t = defaults().namespace)]
    pub leader_elect_resource_namespace: String,

    /// Run the controllers that are moving from another manager to this one under a second Lease, which both managers share.
    #[arg(long, default_value = "false", value_parser = given(flags::go_bool), switch())]
    pub(crate) enable_leader_migration: Given<bool>,

    /// Which controllers those are: a LeaderMigrationConfiguration (controllermanager.config.k8s.io/v1, v1beta1 or v1alpha1)
    /// in YAML or JSON. Without it they are those for routes, for Services and for the lifecycle of nodes.
    #[arg(long, value_name = "FILE", value_parser = flags::path)]
    pub(crate) leader_migration_config: Option<PathBuf>,

    /// The same from the file of --config. Not a flag itself.
    #[arg(skip)]
    pub migration: Option<Migration>,
}

/// What a Lease is called where it is chosen.
pub(crate) const LEASES: &str = "leases";

fn defaults() -> LeaseOptions {
    LeaseOptions::default()
}
