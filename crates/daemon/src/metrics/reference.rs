//! Reference page of the metrics, generated from their declarations.

use std::fmt::Write as _;

use bowline_cloud::Registry;
use bowline_runtime::{Metric, metric_table};

use super::declared;

const HEAD: &str = "\
# Metrics

<!-- Made by `cargo xtask generate` from the declarations in the code; change those instead. -->

Metrics that `/metrics` exposes. Names, types, labels and buckets in the first table are those of the Go managers, so that existing \
dashboards and alerts keep working; metrics that start with `bowline_` are Bowline's own. A metric with labels is absent until it is \
first recorded. The metrics of disabled controllers, and of webhooks if there are none, are absent, too.

Work queues (`workqueue_*`, label `name`) are `Nodes`, `service`, `Routes` and `cidrallocator_node`. There is no queue `node`: \
the Go service controller has a second queue of that name, with one key for all Services; here, a new or deleted Node adds the \
affected Services to the queue `service`, and the series would always be 0. With several clouds, each has its own queue of routes, \
and one series covers all of them: counts are summed up, and ages are the maximum.

`rest_client_*` counts requests to the API server; `kubernetes_build_info` has the version of this program, with an empty \
`go_version`. `registered_metrics_total` counts the metrics on this page.

`deploy/grafana/bowline.json` is a dashboard with these metrics, and `deploy/prometheus/alerts.yaml` has alerts; a test checks both \
against this page.
";

/// Renders the reference page of all metrics, including those of these providers.
pub fn page(providers: &Registry) -> String {
    let (ours, known): (Vec<_>, Vec<_>) =
        declared(providers).into_iter().partition(|metric| metric.name.starts_with("bowline_"));
    let mut page = HEAD.to_owned();
    section(&mut page, "Metrics of the Go managers", &known);
    section(&mut page, "Bowline metrics", &ours);
    section(&mut page, "Health check metrics, under `/metrics/slis`", bowline_serving::CHECK_METRICS);
    page
}

fn section(page: &mut String, title: &str, metrics: &[Metric]) {
    // Writing to a `String` cannot fail.
    let _ = write!(page, "\n## {title}\n\n{}", metric_table(metrics));
}
