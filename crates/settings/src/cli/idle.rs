//! Flags without effect. Manifests written for the Go managers set them, so they are accepted with their values. For each flag
//! that is set, the manager logs a warning with its help text, which gives the reason.
//!
//! [`IdleArgs`] are flags of the current Go managers, [`FormerArgs`] and [`KlogArgs`] flags that the Go managers removed, and
//! [`CloudSpecificArgs`] flags of a single Go manager. None of these structs contains another one, because their flags are found by
//! the names of their clap groups.

use std::time::Duration;

use bowline_config::ConfigError;
use clap::Args;

use crate::flags::{self, Given, Switch as _, given};

/// Flags of the current Go managers that have no effect here.
#[derive(Debug, Args)]
#[command(next_help_heading = "Flags without effect")]
pub(crate) struct IdleArgs {
    /// Informers are not resynced: each controller compares its objects with the cloud at its own interval, see
    /// --node-status-update-frequency, --load-balancer-refresh-period and --route-refresh-period.
    // upstream: a resync passes each controller the objects it has already seen, which it then compares with the cloud.
    #[arg(long, value_name = "DURATION", default_value = "12h0m0s", value_parser = given(flags::duration))]
    pub(crate) min_resync_period: Given<Duration>,

    /// Requests to the API server are always in JSON.
    #[arg(long, value_name = "TYPE", default_value = "application/vnd.kubernetes.protobuf")]
    pub(crate) kube_api_content_type: String,

    /// Nodes are synced when they change.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = given(flags::duration))]
    pub(crate) node_sync_period: Given<Duration>,

    /// A cloud controller manager does not manage volumes.
    #[arg(long, value_name = "NAME", default_value = "")]
    pub(crate) external_cloud_volume_plugin: String,

    /// Lock contention profiles are not supported.
    #[arg(long, default_value = "false", value_parser = given(flags::go_bool), switch())]
    pub(crate) contention_profiling: Given<bool>,
}

/// Flags that the Go managers removed.
#[derive(Debug, Args)]
#[command(next_help_heading = "Removed upstream flags without effect")]
pub(crate) struct FormerArgs {
    /// Insecure serving was removed; see --bind-address.
    #[arg(long, value_name = "IP", hide_short_help = true)]
    pub(crate) address: Option<String>,

    /// Insecure serving was removed; see --secure-port.
    #[arg(long, value_name = "PORT", hide_short_help = true)]
    pub(crate) port: Option<String>,

    /// Metrics are served on --secure-port, and on --metrics-listen if it is set.
    #[arg(long, value_name = "IP:PORT", hide_short_help = true)]
    pub(crate) metrics_bind_addr: Option<String>,

    /// Health checks are served on --secure-port.
    #[arg(long, value_name = "IP:PORT", hide_short_help = true)]
    pub(crate) health_probe_bind_addr: Option<String>,

    /// A cloud controller manager does not pull images.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) azure_container_registry_config: Option<String>,

    /// Firewalls are configured in the provider's --cloud-config.
    #[arg(long, value_name = "CIDRS", hide_short_help = true)]
    pub(crate) cloud_provider_gce_lb_src_cidrs: Option<String>,

    /// Firewalls are configured in the provider's --cloud-config.
    #[arg(long, value_name = "CIDRS", hide_short_help = true)]
    pub cloud_provider_gce_l7lb_src_cidrs: Option<String>,

    /// Profiles are served on --secure-port; see --profiling.
    #[arg(long, value_name = "IP:PORT", hide_short_help = true)]
    pub(crate) pprof_bind_addr: Option<String>,
}

/// Flags of klog, which Kubernetes 1.26 removed.
#[derive(Debug, Args)]
#[command(next_help_heading = "Removed upstream flags without effect")]
pub(crate) struct KlogArgs {
    /// Logs are always written to standard error.
    #[arg(long, value_parser = given(flags::go_bool), switch(), hide_short_help = true)]
    pub(crate) logtostderr: Option<Given<bool>>,

    /// Logs are always written to standard error.
    #[arg(long, value_parser = given(flags::go_bool), switch(), hide_short_help = true)]
    pub(crate) alsologtostderr: Option<Given<bool>>,

    /// Logs of all severities are written to standard error.
    #[arg(long, value_name = "SEVERITY", hide_short_help = true)]
    pub(crate) stderrthreshold: Option<String>,

    /// Logs are written to standard error, not to files.
    #[arg(long, value_name = "DIRECTORY", hide_short_help = true)]
    pub(crate) log_dir: Option<String>,

    /// Logs are written to standard error, not to files.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) log_file: Option<String>,

    /// Logs are written to standard error, not to files.
    #[arg(long, value_name = "MEGABYTES", hide_short_help = true)]
    pub(crate) log_file_max_size: Option<String>,

    /// Logs are written to standard error, not to files.
    #[arg(long, value_parser = given(flags::go_bool), switch(), hide_short_help = true)]
    pub(crate) one_output: Option<Given<bool>>,

    /// Log lines always have headers.
    #[arg(long, value_parser = given(flags::go_bool), switch(), hide_short_help = true)]
    pub(crate) skip_headers: Option<Given<bool>>,

    /// Log lines always have headers.
    #[arg(long, value_parser = given(flags::go_bool), switch(), hide_short_help = true)]
    pub(crate) skip_log_headers: Option<Given<bool>>,

    /// Log headers have the file name without its directory.
    #[arg(long, value_parser = given(flags::go_bool), switch(), hide_short_help = true)]
    pub(crate) add_dir_header: Option<Given<bool>>,

    /// Logging with stack traces is not supported.
    #[arg(long, value_name = "FILE:LINE", hide_short_help = true)]
    pub(crate) log_backtrace_at: Option<String>,
}

impl IdleArgs {
    /// Errors in the values, which are validated although they have no effect.
    pub(crate) fn errors(&self) -> Vec<ConfigError> {
        let durations = [&self.min_resync_period, &self.node_sync_period].map(|value| value.as_ref().err());
        durations.into_iter().chain([self.contention_profiling.as_ref().err()]).flatten().cloned().collect()
    }
}

impl KlogArgs {
    /// Errors in the values, as with [`IdleArgs::errors`]. Text values are not validated.
    pub(crate) fn errors(&self) -> Vec<ConfigError> {
        let switches =
            [&self.logtostderr, &self.alsologtostderr, &self.one_output, &self.skip_headers, &self.skip_log_headers];
        let switches = switches.into_iter().chain([&self.add_dir_header]).flatten();
        switches.filter_map(|switch| switch.as_ref().err()).cloned().collect()
    }
}

/// Flags of the Go manager of a single cloud. Their settings belong into the provider's own configuration here.
#[derive(Debug, Args)]
#[command(next_help_heading = "Cloud-specific upstream flags without effect")]
pub(crate) struct CloudSpecificArgs {
    /// Specific to Alibaba Cloud; provider settings are in --cloud-config.
    #[arg(long, value_name = "TYPE", hide_short_help = true)]
    pub(crate) network: Option<String>,

    /// Specific to Alibaba Cloud; provider settings are in --cloud-config.
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub(crate) sg_batch_size: Option<String>,

    /// Specific to Alibaba Cloud; provider settings are in --cloud-config.
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub(crate) node_reconcile_batch_size: Option<String>,

    /// Specific to Alibaba Cloud; provider settings are in --cloud-config.
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub(crate) route_reconcile_batch_size: Option<String>,

    /// Specific to Alibaba Cloud; provider settings are in --cloud-config.
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub(crate) max_concurrent_actions: Option<String>,

    /// Specific to Alibaba Cloud; provider settings are in --cloud-config.
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub(crate) max_throttling_retry_times: Option<String>,

    /// Specific to Alibaba Cloud; provider settings are in --cloud-config.
    #[arg(long, value_name = "SECONDS", hide_short_help = true)]
    pub(crate) node_event_aggregation_wait_seconds: Option<String>,

    /// Specific to Alibaba Cloud; provider settings are in --cloud-config.
    #[arg(long, switch(), hide_short_help = true)]
    pub(crate) skip_disable_source_dest_check: Option<String>,

    /// Specific to Alibaba Cloud; provider settings are in --cloud-config.
    #[arg(long, switch(), hide_short_help = true)]
    pub enable_imdsv2: Option<String>,

    /// Specific to Azure; credentials are always reloaded when their files change.
    #[arg(long, switch(), hide_short_help = true)]
    pub(crate) enable_dynamic_reloading: Option<String>,

    /// Specific to Azure; mount the Secret and set --cloud-config to its file.
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    pub(crate) cloud_config_secret_name: Option<String>,

    /// Specific to Azure; mount the Secret and set --cloud-config to its file.
    #[arg(long, value_name = "NAMESPACE", hide_short_help = true)]
    pub(crate) cloud_config_secret_namespace: Option<String>,

    /// Specific to Azure; mount the Secret and set --cloud-config to its file.
    #[arg(long, value_name = "KEY", hide_short_help = true)]
    pub(crate) cloud_config_key: Option<String>,
}
