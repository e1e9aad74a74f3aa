//! Metrics of the process, the list of all declared metrics, and the reference page generated from it.
//!
//! Metrics in dashboards, alerts and pages are checked against [`declared()`]; a test compares the list with what a manager
//! registers.

mod reference;

use bowline_runtime::{Fence, Instrument, Metric, Stability, metrics};
use bowline_telemetry::process;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry};

pub use reference::page;

metrics! {
    /// Metrics of the program itself.
    pub(crate) METRICS;
    BUILD_INFO = Metric::gauge(
        "kubernetes_build_info",
        "A metric with a constant '1' value labeled by major, minor, git version, git commit, git tree state, build date, Go \
         version, and compiler from which this program was built, and platform on which it is running.",
    ).labels(&[
        "major", "minor", "git_version", "git_commit", "git_tree_state", "build_date", "go_version", "compiler", "platform",
    ]).beta();
    REGISTERED = Metric::counter(
        "registered_metrics_total",
        "The count of registered metrics broken by stability level and deprecation version.",
    ).labels(&["stability_level", "deprecated_version"]).beta();
    DISABLED = Metric::counter("disabled_metrics_total", "The count of disabled metrics.").beta();
    HIDDEN = Metric::counter("hidden_metrics_total", "The count of hidden metrics.").beta();
    FENCE_OPEN = Metric::gauge(
        "bowline_fence_open",
        "1 while this process holds all required leases and may write to the cluster and the clouds, otherwise 0.",
    );
}

/// All metrics that a manager can expose under `/metrics`, in the order of the reference page.
pub(crate) fn declared(providers: &bowline_cloud::Registry) -> Vec<Metric> {
    let here = [
        METRICS,
        process::METRICS,
        bowline_cloud::layers::METRICS,
        bowline_cloud::calls::METRICS,
        bowline_serving::WEBHOOK_METRICS,
    ];
    let lists = here.iter().chain(&[bowline_runtime::QUEUE_METRICS, bowline_runtime::RELOAD_METRICS]);
    let all = lists.chain(bowline_controllers::METRICS).chain(bowline_kube::METRICS).copied().flatten();
    let mut all: Vec<Metric> = all.copied().collect();
    all.extend(of_providers(providers));
    all.sort_by_key(|metric| metric.name);
    all
}

/// Metrics of single providers, which are registered only if the provider is used.
fn of_providers(providers: &bowline_cloud::Registry) -> Vec<Metric> {
    providers.iter().flat_map(|factory| factory.metrics).copied().collect()
}

/// Registers the metrics of the process. All writes pass `fence`.
pub(crate) fn register(
    registry: &Registry,
    fence: Fence,
    providers: &bowline_cloud::Registry,
) -> prometheus::Result<()> {
    let build: IntGaugeVec = BUILD_INFO.register(registry)?;
    build.with_label_values(&build_info()).set(1);
    let registered: IntCounterVec = REGISTERED.register(registry)?;
    let declared = declared(providers);
    for stability in [Stability::Alpha, Stability::Beta, Stability::Stable] {
        let count = declared.iter().filter(|metric| metric.stability == stability).count();
        registered.with_label_values(&[stability.label(), ""]).inc_by(count as u64);
    }
    DISABLED.register::<IntCounter>(registry)?;
    HIDDEN.register::<IntCounter>(registry)?;
    registry.register(Box::new(FenceOpen { fence, gauge: IntGauge::make(&FENCE_OPEN, None)? }))?;
    process::register(registry)
}

/// Label values of the build info, in the order of the labels. The version is this program's; labels that do not apply are empty.
fn build_info() -> [&'static str; 9] {
    let platform = match (std::env::consts::OS, std::env::consts::ARCH) {
        ("linux", "x86_64") => "linux/amd64",
        ("linux", "aarch64") => "linux/arm64",
        _ => std::env::consts::OS,
    };
    [
        env!("CARGO_PKG_VERSION_MAJOR"),
        env!("CARGO_PKG_VERSION_MINOR"),
        concat!("v", env!("CARGO_PKG_VERSION")),
        option_env!("BOWLINE_GIT_COMMIT").unwrap_or_default(),
        "",
        option_env!("BOWLINE_BUILD_DATE").unwrap_or_default(),
        "",
        "rustc",
        platform,
    ]
}

/// Collector of the state of the fence.
struct FenceOpen {
    fence: Fence,
    gauge: IntGauge,
}

impl Collector for FenceOpen {
    fn desc(&self) -> Vec<&Desc> {
        self.gauge.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.gauge.set(i64::from(self.fence.check().is_ok()));
        self.gauge.collect()
    }
}

#[cfg(test)]
mod tests;
