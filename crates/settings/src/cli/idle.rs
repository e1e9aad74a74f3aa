//! The flags that have no effect. They stand in manifests written for the Go managers, so they are taken with their values,
//! and each that is given is told in the log with the first sentence of its text here, which says why.
//!
//! [`IdleArgs`] are those of today's Go managers, [`FormerArgs`] and [`KlogArgs`] those that the Go managers had once, and
//! [`CloudSpecificArgs`] those that one of them has for itself. None of these structs holds another one: the names of
//! their groups are how the flags in them are found.

use std::time::Duration;

use bowline_config::ConfigError;
use clap::Args;

use crate::flags::{self, Given, Switch as _, given};

/// Flags of today's Go managers that nothing here depends on.
#[derive(Debug, Args)]
#[command(next_help_heading = "Without effect")]
pub(crate) struct IdleArgs {
    /// There is no shared cache that is told everything again: each controller looks at its clouds in its own period, see
    /// --node-status-update-frequency, --load-balancer-refresh-period and --route-refresh-period.
    // upstream: a resync hands each controller what it has seen already; what it does then is what these periods do.
    #[arg(long, value_name = "DURATION", default_value = "12h0m0s", value_parser = given(flags::duration))]
    pub(crate) min_resync_period: Given<Duration>,

    /// The API server is spoken to in JSON.
    #[arg(long, value_name = "TYPE", default_value = "application/vnd.kubernetes.protobuf")]
    pub(crate) kube_api_content_type: String,

    /// Nodes are acted on when they change.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = given(flags::duration))]
    pub(crate) node_sync_period: Given<Duration>,

    /// Volumes are no business of a cloud controller manager.
    #[arg(long, value_name = "NAME", default_value = "")]
    pub(crate) external_cloud_volume_plugin: String,

    /// Nothing here waits in a way that such a profile would show.
    #[arg(long, default_value = "false", value_parser = given(flags::go_bool), switch())]
    pub(crate) contention_profiling: Given<bool>,
}

/// Flags that the Go managers had once, or that one of them has for itself.
#[derive(Debug, Args)]
#[command(next_help_heading = "Of old")]
pub(crate) struct FormerArgs {
    /// Nothing is served without TLS any more; see --bind-address.
    #[arg(long, value_name = "IP", hide_short_help = true)]
    pub(crate) address: Option<String>,

    /// Nothing is served without TLS any more; see --secure-port.
    #[arg(long, value_name = "PORT", hide_short_help = true)]
    pub(crate) port: Option<String>,

    /// Metrics are served with the rest; see --secure-port.
    #[arg(long, value_name = "IP:PORT", hide_short_help = true)]
    pub(crate) metrics_bind_addr: Option<String>,

    /// Health is served with the rest; see --secure-port.
    #[arg(long, value_name = "IP:PORT", hide_short_help = true)]
    pub(crate) health_probe_bind_addr: Option<String>,

    /// Images are no business of a cloud controller manager.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) azure_container_registry_config: Option<String>,

    /// Firewalls are set by the provider's own configuration.
    #[arg(long, value_name = "CIDRS", hide_short_help = true)]
    pub(crate) cloud_provider_gce_lb_src_cidrs: Option<String>,

    /// Firewalls are set by the provider's own configuration.
    #[arg(long, value_name = "CIDRS", hide_short_help = true)]
    pub cloud_provider_gce_l7lb_src_cidrs: Option<String>,

    /// Profiles are served with the rest; see --profiling.
    #[arg(long, value_name = "IP:PORT", hide_short_help = true)]
    pub(crate) pprof_bind_addr: Option<String>,
}

/// The flags of klog that Kubernetes took away in 1.26.
#[derive(Debug, Args)]
#[command(next_help_heading = "Of old")]
pub(crate) struct KlogArgs {
    /// Logs go to standard error, and nowhere else.
    #[arg(long, value_parser = given(flags::go_bool), switch(), hide_short_help = true)]
    pub(crate) logtostderr: Option<Given<bool>>,

    /// Logs go to standard error, and nowhere else.
    #[arg(long, value_parser = given(flags::go_bool), switch(), hide_short_help = true)]
    pub(crate) alsologtostderr: Option<Given<bool>>,

    /// Logs go to standard error, all of them.
    #[arg(long, value_name = "SEVERITY", hide_short_help = true)]
    pub(crate) stderrthreshold: Option<String>,

    /// Logs go to standard error, and into no file.
    #[arg(long, value_name = "DIRECTORY", hide_short_help = true)]
    pub(crate) log_dir: Option<String>,

    /// Logs go to standard error, and into no file.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) log_file: Option<String>,

    /// Logs go to standard error, and into no file.
    #[arg(long, value_name = "MEGABYTES", hide_short_help = true)]
    pub(crate) log_file_max_size: Option<String>,

    /// Logs go to standard error, and into no file.
    #[arg(long, value_parser = given(flags::go_bool), switch(), hide_short_help = true)]
    pub(crate) one_output: Option<Given<bool>>,

    /// Each line has its header.
    #[arg(long, value_parser = given(flags::go_bool), switch(), hide_short_help = true)]
    pub(crate) skip_headers: Option<Given<bool>>,

    /// Each line has its header.
    #[arg(long, value_parser = given(flags::go_bool), switch(), hide_short_help = true)]
    pub(crate) skip_log_headers: Option<Given<bool>>,

    /// The header names the file without its directory.
    #[arg(long, value_parser = given(flags::go_bool), switch(), hide_short_help = true)]
    pub(crate) add_dir_header: Option<Given<bool>>,

    /// No line of the log prints a stack.
    #[arg(long, value_name = "FILE:LINE", hide_short_help = true)]
    pub(crate) log_backtrace_at: Option<String>,
}

impl IdleArgs {
    /// What is wrong with the values, which are looked at although nothing is done with them.
    pub(crate) fn errors(&self) -> Vec<ConfigError> {
        let durations = [&self.min_resync_period, &self.node_sync_period].map(|value| value.as_ref().err());
        durations.into_iter().chain([self.contention_profiling.as_ref().err()]).flatten().cloned().collect()
    }
}

impl KlogArgs {
    /// As with [`IdleArgs::problems`]; what is a text may be any.
    pub(crate) fn errors(&self) -> Vec<ConfigError> {
        let switches =
            [&self.logtostderr, &self.alsologtostderr, &self.one_output, &self.skip_headers, &self.skip_log_headers];
        let switches = switches.into_iter().chain([&self.add_dir_header]).flatten();
        switches.filter_map(|switch| switch.as_ref().err()).cloned().collect()
    }
}

/// Flags that one cloud's binary has for itself. What they set belongs in the provider's own configuration here.
#[derive(Debug, Args)]
#[command(next_help_heading = "Of one cloud's Go manager")]
pub(crate) struct CloudSpecificArgs {
    /// Alibaba Cloud's own setting; a provider's settings are in its --cloud-config.
    #[arg(long, value_name = "TYPE", hide_short_help = true)]
    pub(crate) network: Option<String>,

    /// Alibaba Cloud's own setting; a provider's settings are in its --cloud-config.
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub(crate) sg_batch_size: Option<String>,

    /// Alibaba Cloud's own setting; a provider's settings are in its --cloud-config.
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub(crate) node_reconcile_batch_size: Option<String>,

    /// Alibaba Cloud's own setting; a provider's settings are in its --cloud-config.
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub(crate) route_reconcile_batch_size: Option<String>,

    /// Alibaba Cloud's own setting; a provider's settings are in its --cloud-config.
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub(crate) max_concurrent_actions: Option<String>,

    /// Alibaba Cloud's own setting; a provider's settings are in its --cloud-config.
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub(crate) max_throttling_retry_times: Option<String>,

    /// Alibaba Cloud's own setting; a provider's settings are in its --cloud-config.
    #[arg(long, value_name = "SECONDS", hide_short_help = true)]
    pub(crate) node_event_aggregation_wait_seconds: Option<String>,

    /// Alibaba Cloud's own setting; a provider's settings are in its --cloud-config.
    #[arg(long, switch(), hide_short_help = true)]
    pub(crate) skip_disable_source_dest_check: Option<String>,

    /// Alibaba Cloud's own setting; a provider's settings are in its --cloud-config.
    #[arg(long, switch(), hide_short_help = true)]
    pub enable_imdsv2: Option<String>,

    /// Azure's own setting; credentials here are read again when their file changes.
    #[arg(long, switch(), hide_short_help = true)]
    pub(crate) enable_dynamic_reloading: Option<String>,

    /// Azure's own setting; mount the Secret, and name its file in --cloud-config.
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    pub(crate) cloud_config_secret_name: Option<String>,

    /// Azure's own setting; mount the Secret, and name its file in --cloud-config.
    #[arg(long, value_name = "NAMESPACE", hide_short_help = true)]
    pub(crate) cloud_config_secret_namespace: Option<String>,

    /// Azure's own setting; mount the Secret, and name its file in --cloud-config.
    #[arg(long, value_name = "KEY", hide_short_help = true)]
    pub(crate) cloud_config_key: Option<String>,
}
