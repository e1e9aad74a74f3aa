//! Table of metrics for a reference page.

use std::fmt::Write as _;

use crate::{Metric, Shape, Stability};

/// Returns a Markdown table with a row for each metric.
pub fn metric_table(metrics: &[Metric]) -> String {
    let mut table = "| metric | type | labels | stability | meaning |\n|---|---|---|---|---|\n".to_owned();
    metrics.iter().for_each(|metric| row(&mut table, metric));
    table
}

fn row(table: &mut String, metric: &Metric) {
    let labels: Vec<_> = metric.const_label.iter().chain(metric.labels).map(|label| format!("`{label}`")).collect();
    let stability = if metric.stability == Stability::Unspecified { "–" } else { metric.stability.label() };
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
    // Writing to a `String` cannot fail.
    let _ = writeln!(table, "| {} |", cells.join(" | "));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Buckets;

    #[test]
    fn a_row_has_type_labels_stability_and_meaning() {
        let delay = Metric::histogram("delay_seconds", "Delay.", Buckets::Listed(&[1.0, 4.0])).labels(&["kind"]).beta();
        let count = Metric::counter("process_total", "A|B.").without_stability();
        let expected = "\
| metric | type | labels | stability | meaning |
|---|---|---|---|---|
| `delay_seconds` | histogram | `kind` | BETA | Delay. Buckets: 1, 4. |
| `process_total` | counter |  | – | A\\|B. |
";
        assert_eq!(metric_table(&[delay, count]), expected);
    }
}
