//! The reference page of the metrics, from their declarations.

use std::fmt::Write as _;

use bowline_cloud::Registry;
use bowline_runtime::{Metric, Shape, Stability};

use super::declared;

const HEAD: &str = "\
# Metrics

<!-- Made by `cargo xtask generate` from the declarations in the code; change those instead. -->

What `/metrics` tells. Names, types, labels and buckets of the first list are those of the Go managers, so that dashboards and \
alerts for them go on working; those that start with `bowline_` are ours. A metric with labels is absent until something has \
happened that it tells of, and the metrics of a controller that is switched off, or of webhooks where there are none, are absent, \
too.

Of queues (`workqueue_*`, label `name`) there are `Nodes`, `service`, `Routes` and `cidrallocator_node`. There is no `node`: \
the Go service controller has a second queue of that name, with one key for all Services; here Nodes that come and go put the \
Services concerned into the queue `service`, and a series that is 0 for ever would tell nothing. With several clouds, there is a \
queue of routes for each, and one series for all of them: of their work the sum, of their ages the largest.

`rest_client_*` counts requests to the API server; `kubernetes_build_info` has the version of this program, and leaves \
`go_version` empty. `registered_metrics_total` counts the metrics on this page.

`deploy/grafana/bowline.json` is a dashboard made of these metrics, and `deploy/prometheus/alerts.yaml` has alerts; a test holds \
both to this page.
";

/// The reference page of all metrics, with those of these providers.
pub fn page(providers: &Registry) -> String {
    let (ours, known): (Vec<_>, Vec<_>) =
        declared(providers).into_iter().partition(|metric| metric.name.starts_with("bowline_"));
    let mut page = HEAD.to_owned();
    section(&mut page, "Known from the Go managers", &known);
    section(&mut page, "Ours", &ours);
    section(&mut page, "Of health checks, under `/metrics/slis`", bowline_serving::CHECK_METRICS);
    page
}

fn section(page: &mut String, title: &str, metrics: &[Metric]) {
    push(
        page,
        format_args!("\n## {title}\n\n| metric | type | labels | stability | meaning |\n|---|---|---|---|---|\n"),
    );
    metrics.iter().for_each(|metric| row(page, metric));
}

fn row(page: &mut String, metric: &Metric) {
    let labels: Vec<_> = metric.owner.iter().chain(metric.labels).map(|label| format!("`{label}`")).collect();
    let stability = if metric.stability == Stability::Unsaid { "–" } else { metric.stability.word() };
    let (kind, buckets) = match metric.shape {
        Shape::Counter => ("counter", String::new()),
        Shape::Gauge => ("gauge", String::new()),
        Shape::Histogram(bounds) => {
            let bounds: Vec<_> = bounds.values().iter().map(ToString::to_string).collect();
            ("histogram", format!(" Buckets: {}.", bounds.join(", ")))
        }
    };
    let text = metric.text.trim_end_matches('.').replace('|', "\\|");
    let cells =
        [format!("`{}`", metric.name), kind.into(), labels.join(", "), stability.into(), format!("{text}.{buckets}")];
    push(page, format_args!("| {} |\n", cells.join(" | ")));
}

/// Writing to a `String` cannot fail.
fn push(page: &mut String, text: std::fmt::Arguments<'_>) {
    let _ = page.write_fmt(text);
}
