//! Layer that records the spans of our own crates.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::mpsc;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use super::settings::Sampler;
use super::span::{Kind, Span, Value};

/// Field with the span kind, as in OpenTelemetry.
const KIND: &str = "otel.kind";

/// Records spans without blocking.
pub struct Recorder {
    sampler: Sampler,
    sender: mpsc::Sender<Span>,
    dropped: Arc<AtomicU64>,
}

/// An open span. An unsampled span is kept without data, so that its children are not sampled, either.
struct Live {
    span: Option<Span>,
    clock: Clock,
    trace: u128,
    id: u64,
}

/// Times of the spans of one trace. The wall clock is read once for each trace; spans add the elapsed time of the monotonic clock, so
/// that a child never begins before its parent or ends after it.
#[derive(Clone, Copy)]
struct Clock {
    /// Nanoseconds since the Unix epoch.
    wall: u64,
    monotonic: Instant,
}

/// What a new span takes from its parent.
#[derive(Clone, Copy)]
struct Parent {
    trace: u128,
    id: u64,
    is_sampled: bool,
    clock: Clock,
}

impl Clock {
    fn start() -> Clock {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
        Clock { wall, monotonic: Instant::now() }
    }

    fn now(self) -> u64 {
        self.wall.saturating_add(self.monotonic.elapsed().as_nanos() as u64)
    }
}

impl Live {
    fn as_parent(&self) -> Parent {
        Parent { trace: self.trace, id: self.id, is_sampled: self.span.is_some(), clock: self.clock }
    }
}

impl Recorder {
    pub(super) fn new(sampler: Sampler, sender: mpsc::Sender<Span>, dropped: Arc<AtomicU64>) -> Recorder {
        Recorder { sampler, sender, dropped }
    }

    /// Whether a span is recorded: our own spans, regardless of the log filter.
    pub fn is_recorded(metadata: &Metadata<'_>) -> bool {
        metadata.is_span() && *metadata.level() <= Level::DEBUG && metadata.target().starts_with("bowline")
    }

    /// Decides by the lower half of the trace ID, as OpenTelemetry does, so that all samplers agree about a trace.
    fn is_sampled(&self, trace: u128) -> bool {
        let Sampler(share) = self.sampler;
        share >= 1.0 || (((trace as u64) >> 1) as f64) < share * (1_u64 << 63) as f64
    }

    fn begin(&self, attributes: &Attributes<'_>, parent: Option<Parent>) -> Live {
        let clock = parent.map_or_else(Clock::start, |parent| parent.clock);
        let trace = parent.map_or_else(|| fastrand::u128(1..), |parent| parent.trace);
        let is_sampled = parent.map_or_else(|| self.is_sampled(trace), |parent| parent.is_sampled);
        let id = fastrand::u64(1..);
        let span = is_sampled.then(|| {
            let start = clock.now();
            let mut span = Span {
                trace,
                id,
                parent: parent.map(|parent| parent.id),
                name: attributes.metadata().name(),
                kind: Kind::Internal,
                start,
                end: start,
                attributes: Vec::new(),
                error: None,
            };
            attributes.record(&mut span);
            span
        });
        Live { span, clock, trace, id }
    }
}

impl<S> Layer<S> for Recorder
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let parent = span.parent().and_then(|parent| parent.extensions().get::<Live>().map(Live::as_parent));
        span.extensions_mut().replace(self.begin(attributes, parent));
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(Live { span: Some(span), .. }) = span.extensions_mut().get_mut() {
            values.record(span);
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let live = context.span(&id).and_then(|span| span.extensions_mut().remove::<Live>());
        let Some(Live { span: Some(mut span), clock, .. }) = live else { return };
        span.end = clock.now();
        if self.sender.try_send(span).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Span {
    fn set(&mut self, field: &Field, value: Value) {
        match (field.name(), value) {
            (KIND, Value::Text(kind)) if kind == "client" => self.kind = Kind::Client,
            (KIND, _) => {}
            ("error", Value::Text(error)) => self.error = Some(error),
            (name, value) => match self.attributes.iter_mut().find(|(known, _)| *known == name) {
                Some((_, old)) => *old = value,
                None => self.attributes.push((name, value)),
            },
        }
    }
}

impl Visit for Span {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field, Value::Text(value.to_owned()));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.set(field, Value::Text(format!("{value:?}")));
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.set(field, Value::Text(bowline_core::with_causes(value)));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field, Value::Integer(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field, i64::try_from(value).map_or_else(|_| Value::Text(value.to_string()), Value::Integer));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field, Value::Bool(value));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.set(field, Value::Number(value));
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::filter::filter_fn;
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    fn recorded(share: f64, capacity: usize, act: impl FnOnce()) -> (Vec<Span>, u64) {
        let (sender, mut receiver) = mpsc::channel(capacity);
        let dropped = Arc::new(AtomicU64::new(0));
        let recorder =
            Recorder::new(Sampler(share), sender, dropped.clone()).with_filter(filter_fn(Recorder::is_recorded));
        tracing::subscriber::with_default(tracing_subscriber::registry().with(recorder), act);
        let spans = std::iter::from_fn(|| receiver.try_recv().ok()).collect();
        (spans, dropped.load(Ordering::Relaxed))
    }

    fn act() {
        let outer = tracing::info_span!("sync", key = "default/web", outcome = tracing::field::Empty);
        outer.in_scope(|| {
            tracing::debug_span!(target: "kube_client", "HTTP").in_scope(|| {
                let inner =
                    tracing::info_span!("cloud", otel.kind = "client", attempt = 2, error = tracing::field::Empty);
                inner.record("error", "busy");
            });
        });
        outer.record("outcome", "retry");
    }

    #[test]
    fn a_nested_span_is_a_child() {
        let (spans, dropped) = recorded(1.0, 8, act);
        let [inner, outer] = spans.as_slice() else { panic!("{spans:?}") };
        assert_eq!((inner.trace, inner.parent, outer.parent), (outer.trace, Some(outer.id), None));
        assert_eq!((inner.name, inner.kind, inner.error.as_deref()), ("cloud", Kind::Client, Some("busy")));
        assert_eq!(inner.attributes, [("attempt", Value::Integer(2))]);
        let text = |text: &str| Value::Text(text.to_owned());
        assert_eq!(outer.attributes, [("key", text("default/web")), ("outcome", text("retry"))]);
        assert!(outer.start <= inner.start && inner.end <= outer.end && outer.kind == Kind::Internal);
        assert_eq!(dropped, 0);
    }

    #[test]
    fn spans_are_dropped_and_counted_when_the_buffer_is_full() {
        let (spans, dropped) = recorded(1.0, 3, || (0..5).for_each(|_| act()));
        assert_eq!((spans.len(), dropped), (3, 7));
    }

    #[test]
    fn a_trace_is_sampled_completely_or_not_at_all() {
        assert!(recorded(0.0, 8, act).0.is_empty());
        let (spans, _) = recorded(0.5, 1000, || (0..200).for_each(|_| act()));
        assert!((20..380).contains(&spans.len()) && spans.len().is_multiple_of(2), "{}", spans.len());
    }
}
