//! Every event becomes a line.

use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use super::fields::Fields;
use super::place::Place;
use super::sink::Sink;
use super::{Format, json, text, zone};

/// Writes lines.
pub(super) struct Lines {
    format: Format,
    sink: Sink,
    /// upstream: local time. In a container without zones that is UTC.
    zone: TimeZone,
    process: u32,
}

/// What a span says of everything inside it.
struct Around(Fields);

impl Lines {
    pub(super) fn new(format: Format, sink: Sink) -> Lines {
        Lines { format, sink, zone: zone::local(), process: std::process::id() }
    }

    /// The event's own fields, then those of the spans around it, the nearest first.
    fn fields<S>(event: &Event<'_>, context: &Context<'_, S>) -> Fields
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let mut fields = Fields::default();
        event.record(&mut fields);
        for span in context.event_scope(event).into_iter().flatten() {
            if let Some(Around(around)) = span.extensions().get::<Around>() {
                fields.add_missing(around);
            }
        }
        fields.cut();
        fields
    }

    fn line(&self, place: &Place<'_>, fields: &Fields) -> String {
        let now = Zoned::new(Timestamp::now(), self.zone.clone());
        let mut line = String::with_capacity(256);
        match self.format {
            Format::Text => text::write(&mut line, place, fields, &now, self.process),
            Format::Json => json::write(&mut line, place, fields, &now),
        }
        line
    }

    /// What is said when there is room again.
    fn dropped(&self, count: u64) -> String {
        let fields = Fields::of("nobody read the log; lines were dropped", "lines", count);
        self.line(&Place { level: Level::WARN, path: file!(), line: line!(), is_as_written: false }, &fields)
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
            span.extensions_mut().replace(Around(fields));
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(Around(fields)) = span.extensions_mut().get_mut::<Around>() {
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

    /// What is written while `tell` runs.
    fn written(format: Format, tell: impl FnOnce()) -> String {
        let buffer = Arc::new(Mutex::new(Vec::new()));
        let lines = Lines { zone: TimeZone::UTC, process: 12, ..Lines::new(format, Sink::to_memory(buffer.clone())) };
        tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), tell);
        let bytes = buffer.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    fn tell_all() {
        let outer = tracing::info_span!("work", controller = "service-lb-controller", key = "default/web");
        let _outer = outer.enter();
        let error = std::io::Error::other("no \"route\"");
        tracing::info!(target: super::super::AS_WRITTEN, "FLAG: --v={:?}", "2");
        tracing::warn!(count = 3, share = 0.5, is_new = true, key = "other", "two words");
        tracing::info_span!("cloud", op = "create").in_scope(|| tracing::error!(%error, note = "a\nb", "failed"));
    }

    #[test]
    fn text_is_as_klog_writes_it() {
        let text = written(Format::Text, tell_all);
        let mut lines = text.lines();
        let flag = lines.next().unwrap();
        let (head, rest) = flag.split_once("] ").unwrap();
        assert_eq!(rest, "FLAG: --v=\"2\" controller=\"service-lb-controller\" key=\"default/web\"");
        // Lmmdd hh:mm:ss.uuuuuu threadid file:line
        let shape: String = head.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
        assert_eq!(shape.split("layer.rs").next(), Some("I0000 00:00:00.000000      00 "), "{head}");
        let warning = lines.next().unwrap();
        let wanted = "] \"two words\" count=3 share=0.5 is_new=true key=\"other\" controller=\"service-lb-controller\"";
        assert!(warning.starts_with('W') && warning.ends_with(wanted), "{warning}");
        let error: Vec<_> = lines.collect();
        assert!(
            error[0].starts_with('E') && error[0].ends_with("] \"failed\" err=\"no \\\"route\\\"\" note=<"),
            "{error:?}"
        );
        let rest = " > op=\"create\" controller=\"service-lb-controller\" key=\"default/web\"";
        assert_eq!(error[1..], ["\ta", "\tb", rest]);
    }

    #[test]
    fn json_is_as_zapr_writes_it() {
        let text = written(Format::Json, tell_all);
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
    fn long_values_are_cut_and_say_by_how_much() {
        let names = "ü".repeat(165_000);
        let exact = "x".repeat(4_000);
        let line = written(Format::Text, || tracing::warn!(names, exact, "targets"));
        let cut = format!("\"targets\" names=\"{}… (161000 characters cut)\" exact=\"{exact}\"\n", "ü".repeat(4_000));
        assert!(line.ends_with(&cut), "{}", line.get(..200).unwrap_or(&line));
        let all = || tracing::warn!(a = names, b = names, c = names, d = names, message = names.clone());
        let line = written(Format::Json, all);
        let document: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(
            document["d"],
            format!("{}… (164900 characters cut)", "ü".repeat(100)),
            "a line is cut as a whole, too"
        );
        let ascii = "x".repeat(50_000);
        let line = written(Format::Json, || {
            tracing::warn!(a = ascii, b = ascii, c = ascii, d = ascii, e = ascii, message = ascii.clone());
        });
        assert!(line.len() < 16 * 1024, "no more than a container runtime keeps together: {}", line.len());
    }

    /// Names of nodes come from outside, and so do errors.
    #[test]
    fn nothing_that_is_logged_can_pass_for_a_line_of_its_own() {
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
            let tell = || tracing::info!(node = text, error = %text, number = f64::NAN, "{text}");
            let json = written(Format::Json, tell);
            let line: serde_json::Value =
                serde_json::from_str(&json).unwrap_or_else(|error| panic!("{error}: {json:?}"));
            assert_eq!(
                (json.lines().count(), line["node"].as_str(), line["msg"].as_str()),
                (1, Some(&*text), Some(&*text))
            );
            let lines = written(Format::Text, tell);
            let (first, rest) = lines.split_once('\n').unwrap();
            assert!(first.starts_with('I') && rest.lines().all(|line| line.starts_with(['\t', ' '])), "{lines:?}");
            assert!(lines.chars().all(|c| !c.is_control() || c == '\n' || c == '\t'), "{lines:?}");
        }
    }

    #[test]
    fn each_name_is_written_once_and_the_nearest_value_counts() {
        let text = written(Format::Json, tell_all);
        assert_eq!(text.lines().nth(1).unwrap().matches("\"key\":").count(), 1, "{text}");
    }

    #[test]
    fn what_is_recorded_later_counts() {
        let text = written(Format::Text, || {
            let span = tracing::info_span!("work", key = "a", outcome = tracing::field::Empty);
            span.record("outcome", "done");
            span.record("key", "b");
            span.in_scope(|| tracing::info!("x"));
        });
        assert!(text.ends_with("] \"x\" key=\"b\" outcome=\"done\"\n"), "{text}");
    }
}
