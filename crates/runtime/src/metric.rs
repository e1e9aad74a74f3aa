//! Metrics, each declared once: what is registered, what the reference page says and what dashboards may ask for are the same
//! constant.
//!
//! ```
//! use bowline_runtime::{Metric, metrics};
//! use prometheus::{IntCounterVec, Registry};
//!
//! metrics! {
//!     /// What is counted here.
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
    IntGaugeVec, Opts, Registry, exponential_buckets,
};

/// How far a metric's name and labels can be relied on, in the words of Kubernetes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stability {
    /// It may change with any version.
    Alpha,
    /// It changes only with notice.
    Beta,
    /// It stays.
    Stable,
    /// It is named by those who read all processes alike (`process_…`), and says nothing of this.
    Unsaid,
}

/// What kind of numbers a metric has.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Shape {
    /// It only grows.
    Counter,
    /// It goes up and down.
    Gauge,
    /// How many were below each of some bounds.
    Histogram(Bounds),
}

/// The bounds of a histogram.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bounds {
    /// These.
    Listed(&'static [f64]),
    /// So many, each `factor` times the one before.
    Powers {
        /// The first one.
        first: f64,
        /// What the next one is multiplied with.
        factor: f64,
        /// How many there are.
        count: usize,
    },
}

/// A metric as it is declared.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// What it tells, without the stability that is put before it.
    pub text: &'static str,
    /// What kind of numbers it has.
    pub shape: Shape,
    /// By what its series are told apart.
    pub labels: &'static [&'static str],
    /// The one of them, in front of the others, that is fixed where the metric is made: each cloud has series of its own.
    pub owner: Option<&'static str>,
    /// How far it can be relied on.
    pub stability: Stability,
}

/// A value of the `prometheus` crate that can be made from a declaration.
pub trait Instrument: Collector + Clone + 'static {
    /// Makes it; an error if the declaration is of another shape.
    fn make(metric: &Metric, owner: Option<&str>) -> prometheus::Result<Self>;
}

impl Metric {
    /// A counter, alpha and without labels as long as nothing else is said.
    pub const fn counter(name: &'static str, text: &'static str) -> Metric {
        Metric::new(name, text, Shape::Counter)
    }

    /// A gauge, likewise.
    pub const fn gauge(name: &'static str, text: &'static str) -> Metric {
        Metric::new(name, text, Shape::Gauge)
    }

    /// A histogram, likewise.
    pub const fn histogram(name: &'static str, text: &'static str, bounds: Bounds) -> Metric {
        Metric::new(name, text, Shape::Histogram(bounds))
    }

    const fn new(name: &'static str, text: &'static str, shape: Shape) -> Metric {
        Metric { name, text, shape, labels: &[], owner: None, stability: Stability::Alpha }
    }

    /// With these labels.
    pub const fn labels(self, labels: &'static [&'static str]) -> Metric {
        Metric { labels, ..self }
    }

    /// With this label in front of the others, whose value is fixed when the metric is made.
    pub const fn owned_by(self, owner: &'static str) -> Metric {
        Metric { owner: Some(owner), ..self }
    }

    /// It changes only with notice.
    pub const fn beta(self) -> Metric {
        Metric { stability: Stability::Beta, ..self }
    }

    /// It stays.
    pub const fn stable(self) -> Metric {
        Metric { stability: Stability::Stable, ..self }
    }

    /// Its stability is not said.
    pub const fn without_stability(self) -> Metric {
        Metric { stability: Stability::Unsaid, ..self }
    }

    /// The line behind `# HELP`.
    pub fn help(&self) -> String {
        match self.stability.word() {
            "" => self.text.to_owned(),
            word => format!("[{word}] {}", self.text),
        }
    }

    /// Makes it, and registers it.
    pub fn register<I: Instrument>(&self, registry: &Registry) -> prometheus::Result<I> {
        let instrument = I::make(self, None)?;
        registry.register(Box::new(instrument.clone()))?;
        Ok(instrument)
    }

    /// All names under which its samples are found.
    pub fn sample_names(&self) -> Vec<String> {
        match self.shape {
            Shape::Counter | Shape::Gauge => vec![self.name.to_owned()],
            Shape::Histogram(_) => ["_bucket", "_sum", "_count"].map(|end| format!("{}{end}", self.name)).to_vec(),
        }
    }

    fn opts(&self, owner: Option<&str>) -> Opts {
        let owner = self.owner.map(|label| (label.to_owned(), owner.unwrap_or_default().to_owned()));
        Opts::new(self.name, self.help()).const_labels(owner.into_iter().collect::<HashMap<_, _>>())
    }

    fn histogram_opts(&self, owner: Option<&str>) -> prometheus::Result<HistogramOpts> {
        let Shape::Histogram(bounds) = self.shape else { return Err(self.is_no("histogram")) };
        Ok(HistogramOpts::from(self.opts(owner)).buckets(bounds.values()))
    }

    fn is_no(&self, shape: &str) -> prometheus::Error {
        prometheus::Error::Msg(format!("{} is declared as {:?}, and not as a {shape}", self.name, self.shape))
    }

    fn check(&self, shape: Shape, name: &str) -> prometheus::Result<()> {
        if self.shape == shape { Ok(()) } else { Err(self.is_no(name)) }
    }
}

impl Stability {
    /// As it stands in front of a help text; empty if nothing does.
    pub fn word(self) -> &'static str {
        match self {
            Stability::Alpha => "ALPHA",
            Stability::Beta => "BETA",
            Stability::Stable => "STABLE",
            Stability::Unsaid => "",
        }
    }
}

impl Bounds {
    /// Multiplied up one from the other, as Go does it: some are a hair off the round number, and recorded series have that in
    /// their labels.
    pub fn values(self) -> Vec<f64> {
        match self {
            Bounds::Listed(values) => values.to_vec(),
            // Only a first bound or a factor out of reason fails, and the tests make all that are declared.
            Bounds::Powers { first, factor, count } => exponential_buckets(first, factor, count).unwrap_or_default(),
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

/// Declares metrics as constants, and a list that none of them can be missing from.
#[macro_export]
macro_rules! metrics {
    ($(#[$doc:meta])* $sight:vis $list:ident; $($(#[$each:meta])* $name:ident = $metric:expr;)*) => {
        $($(#[$each])* const $name: $crate::Metric = $metric;)*

        $(#[$doc])*
        $sight const $list: &[$crate::Metric] = &[$($name),*];
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOTS: Metric = Metric::counter("knots_total", "Knots.").labels(&["kind"]).beta();
    const DELAY: Metric = Metric::histogram("delay_seconds", "Delay.", Bounds::Listed(&[1.0, 4.0])).owned_by("cloud");

    #[test]
    fn a_metric_is_registered_as_it_is_declared() {
        let registry = Registry::new();
        let knots: IntCounterVec = KNOTS.register(&registry).unwrap();
        knots.with_label_values(&["bowline"]).inc();
        let family = registry.gather().remove(0);
        assert_eq!((family.name(), family.help()), ("knots_total", "[BETA] Knots."));
        assert!(KNOTS.register::<IntCounterVec>(&registry).is_err(), "it is there");
    }

    #[test]
    fn what_is_declared_as_one_thing_cannot_be_made_another() {
        assert!(IntGaugeVec::make(&KNOTS, None).is_err());
        assert!(Histogram::make(&KNOTS, None).is_err());
        assert!(CounterVec::make(&KNOTS, None).is_ok());
    }

    #[test]
    fn a_histogram_has_its_bounds_and_its_owner() {
        let delay = Histogram::make(&DELAY, Some("local")).unwrap();
        let family = delay.collect().remove(0);
        let label = &family.get_metric()[0].get_label()[0];
        assert_eq!((label.name(), label.value()), ("cloud", "local"));
        assert_eq!(family.get_metric()[0].get_histogram().get_bucket().len(), 2);
        assert_eq!(DELAY.sample_names(), ["delay_seconds_bucket", "delay_seconds_sum", "delay_seconds_count"]);
    }
}
