//! Metrics in the Prometheus text format, with numbers formatted as in Go.
//!
//! The encoder of the `prometheus` crate formats numbers as Rust does. That is the same value, but the bound of a bucket is a
//! label, and labels are compared as text: the series `le="1e-08"` of a Go manager would end, and a new one, `le="0.00000001"`,
//! would begin.

use std::fmt::Write as _;

use prometheus::proto::{Histogram, LabelPair, Metric, MetricFamily, MetricType, Summary};

/// Encodes metric families as text.
pub fn text(families: &[MetricFamily]) -> String {
    let mut text = Text(String::new());
    families.iter().for_each(|family| text.family(family));
    text.0
}

struct Text(String);

/// Base name and common labels of the samples of a metric.
struct Series<'a> {
    name: &'a str,
    labels: &'a [LabelPair],
}

impl Text {
    fn family(&mut self, family: &MetricFamily) {
        let (name, kind) = (family.name(), family.get_field_type());
        if !family.help().is_empty() {
            self.line(format_args!("# HELP {name} {}", escaped(family.help(), false)));
        }
        self.line(format_args!("# TYPE {name} {}", type_name(kind)));
        for metric in family.get_metric() {
            self.metric(&Series { name, labels: metric.get_label() }, kind, metric);
        }
    }

    fn metric(&mut self, series: &Series<'_>, kind: MetricType, metric: &Metric) {
        match kind {
            MetricType::COUNTER => self.sample(series, "", None, metric.get_counter().get_value()),
            MetricType::GAUGE => self.sample(series, "", None, metric.get_gauge().get_value()),
            MetricType::HISTOGRAM => self.histogram(series, metric.get_histogram()),
            MetricType::SUMMARY => self.summary(series, metric.get_summary()),
            // The crate cannot create such a metric.
            MetricType::UNTYPED => {}
        }
    }

    fn histogram(&mut self, series: &Series<'_>, histogram: &Histogram) {
        let count = histogram.get_sample_count() as f64;
        let finite = histogram.get_bucket().iter().filter(|bucket| bucket.upper_bound() != f64::INFINITY);
        for bucket in finite {
            let bound = number(bucket.upper_bound());
            self.sample(series, "_bucket", Some(("le", &bound)), bucket.cumulative_count() as f64);
        }
        self.sample(series, "_bucket", Some(("le", "+Inf")), count);
        self.sample(series, "_sum", None, histogram.get_sample_sum());
        self.sample(series, "_count", None, count);
    }

    fn summary(&mut self, series: &Series<'_>, summary: &Summary) {
        for quantile in summary.get_quantile() {
            self.sample(series, "", Some(("quantile", &number(quantile.quantile()))), quantile.value());
        }
        self.sample(series, "_sum", None, summary.sample_sum());
        self.sample(series, "_count", None, summary.sample_count() as f64);
    }

    fn sample(&mut self, series: &Series<'_>, suffix: &str, last: Option<(&str, &str)>, value: f64) {
        let labels = series.labels.iter().map(|label| (label.name(), label.value())).chain(last);
        let labels: Vec<_> = labels.map(|(name, value)| format!("{name}=\"{}\"", escaped(value, true))).collect();
        let (name, value) = (series.name, number(value));
        match labels.as_slice() {
            [] => self.line(format_args!("{name}{suffix} {value}")),
            labels => self.line(format_args!("{name}{suffix}{{{}}} {value}", labels.join(","))),
        }
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a `String` cannot fail.
        let _ = writeln!(self.0, "{line}");
    }
}

fn type_name(kind: MetricType) -> &'static str {
    match kind {
        MetricType::COUNTER => "counter",
        MetricType::GAUGE => "gauge",
        MetricType::HISTOGRAM => "histogram",
        MetricType::SUMMARY => "summary",
        MetricType::UNTYPED => "untyped",
    }
}

/// Escapes backslashes and newlines, and quotes within quotes.
fn escaped(text: &str, quoted: bool) -> String {
    let text = text.replace('\\', r"\\").replace('\n', r"\n");
    if quoted { text.replace('"', "\\\"") } else { text }
}

/// Formats the shortest text that parses as this number, with an exponent where Go has one: below 0.0001 and from a million on
/// (`strconv.FormatFloat(value, 'g', -1, 64)`).
fn number(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    // Rust finds the same shortest digits, but formats the exponent without sign and zeros.
    let scientific = format!("{value:e}");
    match scientific.split_once('e').and_then(|(digits, exponent)| Some((digits, exponent.parse::<i32>().ok()?))) {
        Some((digits, exponent)) if !(-4..6).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
        }
        _ => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus::{HistogramOpts, HistogramVec, IntGaugeVec, Opts, Registry};

    #[test]
    fn numbers_are_formatted_as_in_go() {
        let cases = [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (-1.5, "-1.5"),
            (0.34, "0.34"),
            (1e-8, "1e-08"),
            (9.999_999_999_999_999e-6, "9.999999999999999e-06"),
            (0.000_1, "0.0001"),
            (0.000_099, "9.9e-05"),
            (15.36, "15.36"),
            (1024.0, "1024"),
            (123_456.0, "123456"),
            (999_999.5, "999999.5"),
            (1_000_000.0, "1e+06"),
            (1_234_567.0, "1.234567e+06"),
            (1e21, "1e+21"),
            (f64::MAX, "1.7976931348623157e+308"),
            (5e-324, "5e-324"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
        ];
        for (value, expected) in cases {
            assert_eq!(number(value), expected);
        }
    }

    #[test]
    fn a_histogram_has_buckets_sum_and_count() {
        let registry = Registry::new();
        let buckets = prometheus::exponential_buckets(1e-8, 10.0, 3).unwrap();
        let opts = HistogramOpts::new("wait_seconds", "How long.").buckets(buckets);
        let histogram = HistogramVec::new(opts, &["name"]).unwrap();
        registry.register(Box::new(histogram.clone())).unwrap();
        histogram.with_label_values(&["Nodes"]).observe(5e-8);
        histogram.with_label_values(&["Nodes"]).observe(2.0);
        let expected = "\
# HELP wait_seconds How long.
# TYPE wait_seconds histogram
wait_seconds_bucket{name=\"Nodes\",le=\"1e-08\"} 0
wait_seconds_bucket{name=\"Nodes\",le=\"1e-07\"} 1
wait_seconds_bucket{name=\"Nodes\",le=\"1e-06\"} 1
wait_seconds_bucket{name=\"Nodes\",le=\"+Inf\"} 2
wait_seconds_sum{name=\"Nodes\"} 2.00000005
wait_seconds_count{name=\"Nodes\"} 2
";
        assert_eq!(text(&registry.gather()), expected);
    }

    #[test]
    fn help_and_label_values_are_escaped() {
        let registry = Registry::new();
        let gauge = IntGaugeVec::new(Opts::new("held", "A \"help\"\nwith a \\."), &["why"]).unwrap();
        registry.register(Box::new(gauge.clone())).unwrap();
        gauge.with_label_values(&["a \"b\"\n\\"]).set(1_000_000);
        let expected =
            "# HELP held A \"help\"\\nwith a \\\\.\n# TYPE held gauge\nheld{why=\"a \\\"b\\\"\\n\\\\\"} 1e+06\n";
        assert_eq!(text(&registry.gather()), expected);
    }
}
