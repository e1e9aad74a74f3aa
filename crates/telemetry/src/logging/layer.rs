//! Layer that writes every event as a line.

use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use super::callsite::Callsite;
use super::fields::Fields;
use super::sink::Sink;
use super::{Format, json, text, zone};

/// Writes events as log lines.
pub(super) struct Lines {
    format: Format,
    sink: Sink,
    /// upstream: local time, which is UTC in a container without time zones.
    zone: TimeZone,
    process: u32,
}

/// Fields of a span, added to the events inside it.
struct SpanFields(Fields);

impl Lines {
    pub(super) fn new(format: Format, sink: Sink) -> Lines {
        Lines { format, sink, zone: zone::local(), process: std::process::id() }
    }

    /// Collects the fields of the event, and then those of its spans, the innermost first.
    fn fields<S>(event: &Event<'_>, context: &Context<'_, S>) -> Fields
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let mut fields = Fields::default();
        event.record(&mut fields);
        for span in context.event_scope(event).into_iter().flatten() {
            if let Some(SpanFields(span_fields)) = span.extensions().get::<SpanFields>() {
                fields.add_missing(span_fields);
            }
        }
        fields.truncate();
        fields
    }

    fn line(&self, callsite: &Callsite<'_>, fields: &Fields) -> String {
        let now = Zoned::new(Timestamp::now(), self.zone.clone());
        let mut line = String::with_capacity(256);
        match self.format {
            Format::Text => text::write(&mut line, callsite, fields, &now, self.process),
            Format::Json => json::write(&mut line, callsite, fields, &now),
        }
        line
    }

    /// Log line about dropped lines, written when the stream accepts writes again.
    fn dropped(&self, count: u64) -> String {
        let fields = Fields::of("log output was blocked; lines were dropped", "lines", count);
        self.line(&Callsite { level: Level::WARN, path: file!(), line: line!(), is_as_written: false }, &fields)
    }
}

impl<S> Layer<S> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        if let Some(span) = context.span(id) {
            span.extensions_mut().replace(SpanFields(fields));
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(SpanFields(fields)) = span.extensions_mut().get_mut::<SpanFields>() {
            values.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let fields = Lines::fields(event, &context);
        let line = self.line(&event.metadata().into(), &fields);
        self.sink.write(*event.metadata().level(), &line, |count| self.dropped(count));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    /// Returns the text that is logged while `act` runs.
    fn logged(format: Format, act: impl FnOnce()) -> String {
        let buffer = Arc::new(Mutex::new(Vec::new()));
        let lines = Lines { zone: TimeZone::UTC, process: 12, ..Lines::new(format, Sink::to_memory(buffer.clone())) };
        tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), act);
        let bytes = buffer.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    fn log_all() {
        let outer = tracing::info_span!("work", controller = "service-lb-controller", key = "default/web");
        let _outer = outer.enter();
        let error = std::io::Error::other("no \"route\"");
        tracing::info!(target: super::super::AS_WRITTEN, "FLAG: --v={:?}", "2");
        tracing::warn!(count = 3, share = 0.5, is_new = true, key = "other", "two words");
        tracing::info_span!("cloud", op = "create").in_scope(|| tracing::error!(%error, note = "a\nb", "failed"));
    }

    #[test]
    fn text_has_the_format_of_klog() {
        let text = logged(Format::Text, log_all);
        let mut lines = text.lines();
        let flag = lines.next().unwrap();
        let (head, rest) = flag.split_once("] ").unwrap();
        assert_eq!(rest, "FLAG: --v=\"2\" controller=\"service-lb-controller\" key=\"default/web\"");
        // Lmmdd hh:mm:ss.uuuuuu threadid file:line
        let shape: String = head.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
        assert_eq!(shape.split("layer.rs").next(), Some("I0000 00:00:00.000000      00 "), "{head}");
        let warning = lines.next().unwrap();
        let expected =
            "] \"two words\" count=3 share=0.5 is_new=true key=\"other\" controller=\"service-lb-controller\"";
        assert!(warning.starts_with('W') && warning.ends_with(expected), "{warning}");
        let error: Vec<_> = lines.collect();
        assert!(
            error[0].starts_with('E') && error[0].ends_with("] \"failed\" err=\"no \\\"route\\\"\" note=<"),
            "{error:?}"
        );
        let rest = " > op=\"create\" controller=\"service-lb-controller\" key=\"default/web\"";
        assert_eq!(error[1..], ["\ta", "\tb", rest]);
    }

    #[test]
    fn json_has_the_format_of_zapr() {
        let text = logged(Format::Json, log_all);
        let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(text.starts_with("{\"ts\":1") && lines[0]["ts"].as_f64().unwrap() > 1.7e12, "{text}");
        assert!(lines[0]["caller"].as_str().unwrap().starts_with("logging/layer.rs:"), "{text}");
        assert_eq!((&lines[0]["msg"], &lines[0]["v"]), (&"FLAG: --v=\"2\"".into(), &0.into()));
        assert_eq!(
            (&lines[1]["count"], &lines[1]["key"], &lines[1]["level"]),
            (&3.into(), &"other".into(), &"warn".into())
        );
        assert_eq!(lines[2]["v"], serde_json::Value::Null);
        assert_eq!((&lines[2]["err"], &lines[2]["key"]), (&"no \"route\"".into(), &"default/web".into()));
    }

    #[test]
    fn long_values_are_truncated_with_the_number_of_omitted_characters() {
        let names = "ü".repeat(165_000);
        let exact = "x".repeat(4_000);
        let line = logged(Format::Text, || tracing::warn!(names, exact, "targets"));
        let truncated =
            format!("\"targets\" names=\"{}… (161000 characters omitted)\" exact=\"{exact}\"\n", "ü".repeat(4_000));
        assert!(line.ends_with(&truncated), "{}", line.get(..200).unwrap_or(&line));
        let all = || tracing::warn!(a = names, b = names, c = names, d = names, message = names.clone());
        let line = logged(Format::Json, all);
        let document: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(
            document["d"],
            format!("{}… (164900 characters omitted)", "ü".repeat(100)),
            "the line has a limit, too"
        );
        let ascii = "x".repeat(50_000);
        let line = logged(Format::Json, || {
            tracing::warn!(a = ascii, b = ascii, c = ascii, d = ascii, e = ascii, message = ascii.clone());
        });
        assert!(line.len() < 16 * 1024, "larger than a line of a container runtime: {}", line.len());
    }

    /// Names of nodes and error messages are untrusted input.
    #[test]
    fn logged_values_cannot_forge_log_lines() {
        let parts = [
            "a",
            "\n",
            "\r",
            "\t",
            "\u{1b}[2J",
            "\"",
            "\\",
            "E1115 01:02:03.000004       1 x.rs:1] ",
            "\u{85}",
            "ü",
            "\0",
        ];
        let mut random = fastrand::Rng::with_seed(6);
        for _ in 0..500 {
            let text: String = (0..random.usize(..8)).map(|_| parts[random.usize(..parts.len())]).collect();
            let act = || tracing::info!(node = text, error = %text, number = f64::NAN, "{text}");
            let json = logged(Format::Json, act);
            let line: serde_json::Value =
                serde_json::from_str(&json).unwrap_or_else(|error| panic!("{error}: {json:?}"));
            assert_eq!(
                (json.lines().count(), line["node"].as_str(), line["msg"].as_str()),
                (1, Some(&*text), Some(&*text))
            );
            let lines = logged(Format::Text, act);
            let (first, rest) = lines.split_once('\n').unwrap();
            assert!(first.starts_with('I') && rest.lines().all(|line| line.starts_with(['\t', ' '])), "{lines:?}");
            assert!(lines.chars().all(|c| !c.is_control() || c == '\n' || c == '\t'), "{lines:?}");
        }
    }

    #[test]
    fn each_field_is_written_once_with_the_innermost_value() {
        let text = logged(Format::Json, log_all);
        assert_eq!(text.lines().nth(1).unwrap().matches("\"key\":").count(), 1, "{text}");
    }

    #[test]
    fn fields_recorded_later_are_logged() {
        let text = logged(Format::Text, || {
            let span = tracing::info_span!("work", key = "a", outcome = tracing::field::Empty);
            span.record("outcome", "done");
            span.record("key", "b");
            span.in_scope(|| tracing::info!("x"));
        });
        assert!(text.ends_with("] \"x\" key=\"b\" outcome=\"done\"\n"), "{text}");
    }
}
