//! Declarations of metrics: registration, reference page and dashboard checks use the same constant.
//!
//! ```
//! use bowline_runtime::{Metric, metrics};
//! use prometheus::{IntCounterVec, Registry};
//!
//! metrics! {
//!     /// Metrics of this module.
//!     pub METRICS;
//!     KNOTS = Metric::counter("bowline_knots_total", "Knots tied, by kind.").labels(&["kind"]);
//! }
//!
//! # fn main() -> prometheus::Result<()> {
//! let registry = Registry::new();
//! let knots: IntCounterVec = KNOTS.register(&registry)?;
//! knots.with_label_values(&["bowline"]).inc();
//! assert_eq!(METRICS[0].name, registry.gather()[0].name());
//! # Ok(()) }
//! ```

use std::collections::HashMap;

use prometheus::core::Collector;
use prometheus::{
    Counter, CounterVec, Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry, exponential_buckets, linear_buckets,
};

/// Stability level of a metric's name and labels, as Kubernetes defines it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stability {
    /// May change in any release.
    Alpha,
    /// Changes only after a deprecation.
    Beta,
    /// Does not change.
    Stable,
    /// No stability level, for names that are conventions of Prometheus (`process_…`).
    Unspecified,
}

/// Type of a metric.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Shape {
    /// A value that only increases.
    Counter,
    /// A value that increases and decreases.
    Gauge,
    /// Counts of observations by bucket.
    Histogram(Buckets),
}

/// Buckets of a histogram.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Buckets {
    /// These upper bounds.
    Listed(&'static [f64]),
    /// Linear buckets, each `width` above the previous one.
    Linear {
        /// First upper bound.
        first: f64,
        /// Difference between two bounds.
        width: f64,
        /// Number of buckets.
        count: usize,
    },
    /// Exponential buckets, each `factor` times the previous one.
    Exponential {
        /// First upper bound.
        first: f64,
        /// Factor between two bounds.
        factor: f64,
        /// Number of buckets.
        count: usize,
    },
}

/// Declaration of a metric.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Metric {
    /// Name.
    pub name: &'static str,
    /// Help text, without the stability level that [`help`](Metric::help) prepends.
    pub text: &'static str,
    /// Type.
    pub shape: Shape,
    /// Names of the variable labels.
    pub labels: &'static [&'static str],
    /// Name of the constant label, whose value is set when the metric is created, such as the cloud.
    pub const_label: Option<&'static str>,
    /// Stability level.
    pub stability: Stability,
}

/// A collector of the `prometheus` crate that can be created from a declaration.
pub trait Instrument: Collector + Clone + 'static {
    /// Creates the collector; `owner` is the value of the constant label. Fails if the declaration is of another type.
    fn make(metric: &Metric, owner: Option<&str>) -> prometheus::Result<Self>;
}

impl Metric {
    /// Declares a counter: alpha and without labels by default.
    pub const fn counter(name: &'static str, text: &'static str) -> Metric {
        Metric::new(name, text, Shape::Counter)
    }

    /// Declares a gauge: alpha and without labels by default.
    pub const fn gauge(name: &'static str, text: &'static str) -> Metric {
        Metric::new(name, text, Shape::Gauge)
    }

    /// Declares a histogram: alpha and without labels by default.
    pub const fn histogram(name: &'static str, text: &'static str, bounds: Buckets) -> Metric {
        Metric::new(name, text, Shape::Histogram(bounds))
    }

    const fn new(name: &'static str, text: &'static str, shape: Shape) -> Metric {
        Metric { name, text, shape, labels: &[], const_label: None, stability: Stability::Alpha }
    }

    /// Sets the variable labels.
    pub const fn labels(self, labels: &'static [&'static str]) -> Metric {
        Metric { labels, ..self }
    }

    /// Sets the constant label, whose value is set when the metric is created.
    pub const fn const_label(self, label: &'static str) -> Metric {
        Metric { const_label: Some(label), ..self }
    }

    /// Sets the stability level Beta.
    pub const fn beta(self) -> Metric {
        Metric { stability: Stability::Beta, ..self }
    }

    /// Sets the stability level Stable.
    pub const fn stable(self) -> Metric {
        Metric { stability: Stability::Stable, ..self }
    }

    /// Removes the stability level.
    pub const fn without_stability(self) -> Metric {
        Metric { stability: Stability::Unspecified, ..self }
    }

    /// Returns the text of the `# HELP` line.
    pub fn help(&self) -> String {
        match self.stability.label() {
            "" => self.text.to_owned(),
            label => format!("[{label}] {}", self.text),
        }
    }

    /// Creates and registers the collector.
    pub fn register<I: Instrument>(&self, registry: &Registry) -> prometheus::Result<I> {
        let instrument = I::make(self, None)?;
        registry.register(Box::new(instrument.clone()))?;
        Ok(instrument)
    }

    /// Returns the names of all samples.
    pub fn sample_names(&self) -> Vec<String> {
        match self.shape {
            Shape::Counter | Shape::Gauge => vec![self.name.to_owned()],
            Shape::Histogram(_) => {
                ["_bucket", "_sum", "_count"].map(|suffix| format!("{}{suffix}", self.name)).to_vec()
            }
        }
    }

    fn opts(&self, owner: Option<&str>) -> Opts {
        let owner = self.const_label.map(|label| (label.to_owned(), owner.unwrap_or_default().to_owned()));
        Opts::new(self.name, self.help()).const_labels(owner.into_iter().collect::<HashMap<_, _>>())
    }

    fn histogram_opts(&self, owner: Option<&str>) -> prometheus::Result<HistogramOpts> {
        let Shape::Histogram(bounds) = self.shape else { return Err(self.wrong_type("histogram")) };
        Ok(HistogramOpts::from(self.opts(owner)).buckets(bounds.values()))
    }

    fn wrong_type(&self, shape: &str) -> prometheus::Error {
        prometheus::Error::Msg(format!("{} is declared as {:?}, not as a {shape}", self.name, self.shape))
    }

    fn check(&self, shape: Shape, name: &str) -> prometheus::Result<()> {
        if self.shape == shape { Ok(()) } else { Err(self.wrong_type(name)) }
    }
}

impl Stability {
    /// Returns the label in front of a help text; empty for no stability level.
    pub fn label(self) -> &'static str {
        match self {
            Stability::Alpha => "ALPHA",
            Stability::Beta => "BETA",
            Stability::Stable => "STABLE",
            Stability::Unspecified => "",
        }
    }
}

impl Buckets {
    /// Returns the upper bounds. Exponential buckets are computed by repeated multiplication, as in Go: some differ slightly from
    /// the round number, and existing time series have those values in their labels.
    pub fn values(self) -> Vec<f64> {
        match self {
            Buckets::Listed(values) => values.to_vec(),
            // Both fail only for invalid numbers, and the tests create all declared metrics.
            Buckets::Linear { first, width, count } => linear_buckets(first, width, count).unwrap_or_default(),
            Buckets::Exponential { first, factor, count } => {
                exponential_buckets(first, factor, count).unwrap_or_default()
            }
        }
    }
}

macro_rules! instruments {
    ($($alone:ident, $vec:ident: $shape:ident $name:literal;)*) => {$(
        impl Instrument for $alone {
            fn make(metric: &Metric, owner: Option<&str>) -> prometheus::Result<Self> {
                metric.check(Shape::$shape, $name)?;
                $alone::with_opts(metric.opts(owner))
            }
        }

        impl Instrument for $vec {
            fn make(metric: &Metric, owner: Option<&str>) -> prometheus::Result<Self> {
                metric.check(Shape::$shape, $name)?;
                $vec::new(metric.opts(owner), metric.labels)
            }
        }
    )*};
}

instruments! {
    Counter, CounterVec: Counter "counter";
    IntCounter, IntCounterVec: Counter "counter";
    Gauge, GaugeVec: Gauge "gauge";
    IntGauge, IntGaugeVec: Gauge "gauge";
}

impl Instrument for Histogram {
    fn make(metric: &Metric, owner: Option<&str>) -> prometheus::Result<Self> {
        Histogram::with_opts(metric.histogram_opts(owner)?)
    }
}

impl Instrument for HistogramVec {
    fn make(metric: &Metric, owner: Option<&str>) -> prometheus::Result<Self> {
        HistogramVec::new(metric.histogram_opts(owner)?, metric.labels)
    }
}

/// Declares metrics as constants, together with a list of all of them.
#[macro_export]
macro_rules! metrics {
    ($(#[$doc:meta])* $visibility:vis $list:ident; $($(#[$each:meta])* $name:ident = $metric:expr;)*) => {
        $($(#[$each])* const $name: $crate::Metric = $metric;)*

        $(#[$doc])*
        $visibility const $list: &[$crate::Metric] = &[$($name),*];
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOTS: Metric = Metric::counter("knots_total", "Knots.").labels(&["kind"]).beta();
    const DELAY: Metric =
        Metric::histogram("delay_seconds", "Delay.", Buckets::Listed(&[1.0, 4.0])).const_label("cloud");

    #[test]
    fn a_metric_is_registered_as_it_is_declared() {
        let registry = Registry::new();
        let knots: IntCounterVec = KNOTS.register(&registry).unwrap();
        knots.with_label_values(&["bowline"]).inc();
        let family = registry.gather().remove(0);
        assert_eq!((family.name(), family.help()), ("knots_total", "[BETA] Knots."));
        assert!(KNOTS.register::<IntCounterVec>(&registry).is_err(), "already registered");
    }

    #[test]
    fn a_collector_of_another_type_is_rejected() {
        assert!(IntGaugeVec::make(&KNOTS, None).is_err());
        assert!(Histogram::make(&KNOTS, None).is_err());
        assert!(CounterVec::make(&KNOTS, None).is_ok());
    }

    #[test]
    fn a_histogram_has_its_buckets_and_its_constant_label() {
        let delay = Histogram::make(&DELAY, Some("local")).unwrap();
        let family = delay.collect().remove(0);
        let label = &family.get_metric()[0].get_label()[0];
        assert_eq!((label.name(), label.value()), ("cloud", "local"));
        assert_eq!(family.get_metric()[0].get_histogram().get_bucket().len(), 2);
        assert_eq!(DELAY.sample_names(), ["delay_seconds_bucket", "delay_seconds_sum", "delay_seconds_count"]);
    }

    #[test]
    fn linear_buckets_have_equal_distances() {
        assert_eq!(Buckets::Linear { first: 1.0, width: 4.5, count: 3 }.values(), [1.0, 5.5, 10.0]);
    }
}
