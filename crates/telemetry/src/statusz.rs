//! `/statusz`: the status board as text and as JSON, with the same content.

use std::fmt::Write as _;

use bowline_runtime::{Entry, Kind, StatusBoard};
use jiff::{SpanRound, Timestamp, Unit};
use serde_json::{Map, Value, json};

/// Kinds of components in the order of the page, with title and JSON key.
const KINDS: [(Kind, &str, &str); 6] = [
    (Kind::Lease, "Leases", "leases"),
    (Kind::Controller, "Controllers", "controllers"),
    (Kind::Queue, "Queues", "queues"),
    (Kind::Watch, "Watches", "watches"),
    (Kind::Cloud, "Clouds", "clouds"),
    (Kind::Credentials, "Credentials", "credentials"),
];

/// Information about the process.
#[derive(Debug, Clone, Copy)]
pub struct About {
    /// Start time.
    pub started: Timestamp,
}

/// Renders the page as text and as JSON.
pub fn page(board: &StatusBoard, about: About, now: Timestamp) -> (String, Value) {
    let document = document(&board.entries(), about, now);
    (text(&document), document)
}

fn document(entries: &[Entry], about: About, now: Timestamp) -> Value {
    let mut document = json!({
        "program": "bowline",
        "version": concat!("v", env!("CARGO_PKG_VERSION")),
        "time": now.to_string(),
        "started": about.started.to_string(),
        "uptimeSeconds": now.duration_since(about.started).as_secs(),
        "healthy": entries.iter().all(|entry| entry.component.health().is_ok()),
    });
    for (kind, _, key) in KINDS {
        let parts = entries.iter().filter(|entry| entry.kind == kind);
        document[key] = parts.map(|entry| (entry.name.clone(), status(entry))).collect::<Map<_, _>>().into();
    }
    document
}

/// Status and health of a component.
fn status(entry: &Entry) -> Value {
    let mut status = match entry.component.status() {
        Value::Object(status) => status,
        other => Map::from_iter([("status".to_owned(), other)]),
    };
    let error = entry.component.health().err();
    status.insert("healthy".to_owned(), error.is_none().into());
    status.insert("ailment".to_owned(), error.into());
    Value::Object(status)
}

// ---- as text

fn text(document: &Value) -> String {
    let mut page = Page(String::new());
    let word = |key: &str| document[key].as_str().unwrap_or_default().to_owned();
    page.line(format_args!("bowline {}", word("version")));
    page.line(format_args!("started {}, up {}", word("started"), duration(document["uptimeSeconds"].as_f64())));
    page.line(format_args!("now     {}", word("time")));
    page.line(format_args!("health  {}", if document["healthy"] == true { "ok" } else { "FAILING, see below" }));
    for (_, title, key) in KINDS {
        page.section(title, &document[key]);
    }
    page.0
}

struct Page(String);

impl Page {
    fn line(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a `String` cannot fail.
        let _ = writeln!(self.0, "{text}");
    }

    fn section(&mut self, title: &str, parts: &Value) {
        let Some(parts) = parts.as_object().filter(|parts| !parts.is_empty()) else { return };
        self.line(format_args!("\n{title}"));
        for (name, part) in parts {
            let health = match part["ailment"].as_str() {
                None => "ok".to_owned(),
                Some(error) => format!("FAILING: {error}"),
            };
            self.line(format_args!("  {name}  [{health}]"));
            self.fields(part, 4);
        }
    }

    /// Prints scalars on one line, without unknown ones, and then nested values.
    fn fields(&mut self, part: &Value, indent: usize) {
        let fields = || in_order(part).into_iter().filter(|(key, _)| !is_in_heading(key));
        let plain = fields().filter_map(|(key, value)| label_and_value(key, value));
        let plain: Vec<String> = plain.collect();
        if !plain.is_empty() {
            self.line(format_args!("{:indent$}{}", "", plain.join(", ")));
        }
        for (key, value) in fields() {
            match value {
                Value::Array(rows) if !rows.is_empty() => self.table(&words(key), rows, indent),
                Value::Object(_) => self.titled(&words(key), value, indent),
                _ => {}
            }
        }
    }

    /// Prints a title and the nested value; nothing if the value is empty.
    fn titled(&mut self, title: &str, value: &Value, indent: usize) {
        let before = self.0.len();
        self.line(format_args!("{:indent$}{title}:", ""));
        let behind = self.0.len();
        self.inside(value, indent + 2);
        if self.0.len() == behind {
            self.0.truncate(before);
        }
    }

    /// Prints the named parts of an object, or its fields if it has no parts.
    fn inside(&mut self, value: &Value, indent: usize) {
        let parts: Vec<_> = value.as_object().into_iter().flatten().filter(|(_, part)| part.is_object()).collect();
        if parts.is_empty() {
            return self.fields(value, indent);
        }
        for (name, part) in parts {
            // Queues have their own section.
            if part.get("recent").is_none() {
                self.line(format_args!("{:indent$}{name}:", ""));
                self.fields(part, indent + 2);
            }
        }
    }

    /// Prints one line per row, with aligned columns and the error last, because it is long.
    fn table(&mut self, title: &str, rows: &[Value], indent: usize) {
        self.line(format_args!("{:indent$}{title}:", ""));
        let keys: Vec<String> = rows.iter().filter_map(|row| Some(row["key"].as_str()?.to_owned())).collect();
        let width = keys.iter().map(|key| key.chars().count()).max().unwrap_or_default();
        for row in rows {
            let key = row["key"].as_str().unwrap_or_default();
            let error = row["error"].as_str().map(|error| format!(": {error}")).unwrap_or_default();
            let rest = in_order(row).into_iter().filter(|(name, value)| is_relevant(name, value));
            let rest: Vec<_> = rest.filter_map(|(name, value)| label_and_value(name, value)).collect();
            let outcome = match (row.get("error"), error.is_empty()) {
                (None, _) => "",
                (Some(_), true) => "ok      ",
                (Some(_), false) => "FAILED  ",
            };
            let line = format!("{:indent$}  {key:width$}  {outcome}{}{error}", "", rest.join(", "));
            self.line(format_args!("{}", line.trim_end()));
        }
    }
}

/// Fields to print first; the others follow by name.
const FIRST: [&str; 17] = [
    "kind",
    "message",
    "state",
    "running",
    "working",
    "synced",
    "objects",
    "waiting",
    "oldestWaitingSeconds",
    "inWork",
    "delayed",
    "finished",
    "failed",
    "secondsAgo",
    "tookSeconds",
    "failures",
    "nextTryInSeconds",
];

fn in_order(part: &Value) -> Vec<(&String, &Value)> {
    let mut fields: Vec<_> = part.as_object().into_iter().flatten().collect();
    fields.sort_by_key(|(key, _)| FIRST.iter().position(|first| first == key).unwrap_or(FIRST.len()));
    fields
}

/// Whether a field of a row is printed: not key and error, which have their own columns, and no zeros.
fn is_relevant(name: &str, value: &Value) -> bool {
    !matches!(name, "key" | "error") && *value != json!(0)
}

/// Whether the field is printed next to the name of the component.
fn is_in_heading(key: &str) -> bool {
    matches!(key, "healthy" | "ailment")
}

/// Converts a JSON key to words. `lastEventSecondsAgo` becomes `last event … ago`: the unit is printed with the value.
fn words(key: &str) -> String {
    let key = key.trim_end_matches("SecondsAgo").trim_end_matches("secondsAgo").trim_end_matches("Seconds");
    let key = if key == "seconds" { "for" } else { key };
    let mut words = String::new();
    for letter in key.chars() {
        if letter.is_uppercase() {
            words.push(' ');
        }
        words.extend(letter.to_lowercase());
    }
    words.trim().to_owned()
}

/// Formats a scalar with its label.
fn label_and_value(key: &str, value: &Value) -> Option<String> {
    Some(format!("{} {}", words(key), formatted(key, value)?).trim().to_owned())
}

/// Formats a scalar; `None` for null and nested values.
fn formatted(key: &str, value: &Value) -> Option<String> {
    let is_ago = key.ends_with("secondsAgo") || key.ends_with("SecondsAgo");
    match value {
        Value::Null | Value::Array(_) | Value::Object(_) => None,
        Value::Bool(true) => Some("yes".to_owned()),
        Value::Bool(false) => Some("no".to_owned()),
        Value::Number(number) if is_ago => Some(format!("{} ago", duration(number.as_f64()))),
        Value::Number(number) if key.ends_with("econds") => Some(duration(number.as_f64())),
        Value::Number(number) => Some(number.to_string()),
        Value::String(text) => Some(text.clone()),
    }
}

/// Formats a duration: `3d 4h 5m`, `12s`, `0.25s`.
pub fn duration(seconds: Option<f64>) -> String {
    let seconds = seconds.unwrap_or_default();
    if seconds < 10.0 {
        return format!("{}s", (seconds * 100.0).round() / 100.0);
    }
    let whole = jiff::SignedDuration::from_secs_f64(seconds.min(1e11).round());
    let largest = SpanRound::new().largest(Unit::Day).days_are_24_hours();
    let span = jiff::Span::try_from(whole).and_then(|span| span.round(largest));
    let printer = jiff::fmt::friendly::SpanPrinter::new().spacing(jiff::fmt::friendly::Spacing::BetweenUnits);
    span.map_or_else(|_| format!("{seconds:.0}s"), |span| printer.span_to_string(&span))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bowline_runtime::Component;

    use super::*;

    struct Fixed(Value, Result<(), String>);

    impl Component for Fixed {
        fn status(&self) -> Value {
            self.0.clone()
        }

        fn health(&self) -> Result<(), String> {
            self.1.clone()
        }
    }

    fn board() -> StatusBoard {
        let board = StatusBoard::new();
        let queue = json!({
            "working": true, "waiting": 1, "oldestWaitingSeconds": 2.5, "delayed": 0, "inWork": 1,
            "longestInWork": [{"key": "default/slow", "seconds": 125.0}],
            "recent": [
                {"key": "default/web", "secondsAgo": 3.0, "tookSeconds": 0.25, "error": "forbidden", "failures": 2,
                 "nextTryInSeconds": 12.0},
                {"key": "a/b", "secondsAgo": 90.0, "tookSeconds": 0.001, "error": null, "failures": 0,
                 "nextTryInSeconds": null},
            ],
        });
        let look = json!({"state": "resting", "forSeconds": 3.0, "turns": 17, "lastTurnSecondsAgo": 3.0});
        let parts = json!({"running": true, "parts": {"service": queue, "look": look}});
        let cloud = json!({"callsUnderWay": 0, "lastSuccessSecondsAgo": 100_000.0,
            "lastError": {"kind": "rate_limited", "message": "slow down", "secondsAgo": 1.0}});
        let failing = Err("service: no key was finished for 901s".to_owned());
        let credentials = json!({"sources": [{"key": "/etc/kc", "writtenSecondsAgo": 7200.0},
            {"key": "Secret a/b", "writtenSecondsAgo": null}], "inUseSeconds": 60.0, "expires": "2030-01-01T00:00:00Z",
            "lastRenewal": {"time": "2026-01-02T03:03:05Z", "secondsAgo": 60.0, "result": "success", "error": null}});
        board.put(Kind::Credentials, "cluster", Arc::new(Fixed(credentials, Ok(()))));
        board.put(Kind::Cloud, "local", Arc::new(Fixed(cloud, Ok(()))));
        board.put(Kind::Queue, "service", Arc::new(Fixed(queue, Ok(()))));
        board.put(Kind::Controller, "service-lb-controller", Arc::new(Fixed(parts, failing)));
        board
    }

    #[test]
    fn text_and_json_have_the_same_content() {
        let started: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let now: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        let (text, document) = page(&board(), About { started }, now);
        assert_eq!(document["healthy"], false);
        assert_eq!(document["uptimeSeconds"], 97_445);
        assert_eq!(document["queues"]["service"]["recent"][0]["error"], "forbidden");
        assert_eq!(document["leases"], json!({}));
        assert_eq!(document["controllers"]["service-lb-controller"]["healthy"], false);
        let expected = format!(
            "\
bowline v{}
started 2026-01-01T00:00:00Z, up 1d 3h 4m 5s
now     2026-01-02T03:04:05Z
health  FAILING, see below

Controllers
  service-lb-controller  [FAILING: service: no key was finished for 901s]
    running yes
    parts:
      look:
        state resting, for 3s, last turn 3s ago, turns 17

Queues
  service  [ok]
    working yes, waiting 1, oldest waiting 2.5s, in work 1, delayed 0
    longest in work:
      default/slow  for 2m 5s
    recent:
      default/web  FAILED  3s ago, took 0.25s, failures 2, next try in 12s: forbidden
      a/b          ok      1m 30s ago, took 0s

Clouds
  local  [ok]
    calls under way 0, last success 1d 3h 46m 40s ago
    last error:
      kind rate_limited, message slow down, 1s ago

Credentials
  cluster  [ok]
    expires 2030-01-01T00:00:00Z, in use 1m
    last renewal:
      1m ago, result success, time 2026-01-02T03:03:05Z
    sources:
      /etc/kc     written 2h ago
      Secret a/b
",
            env!("CARGO_PKG_VERSION")
        );
        assert_eq!(text, expected);
    }

    #[test]
    fn a_controller_with_only_a_queue_has_no_parts_on_the_page() {
        let board = StatusBoard::new();
        let parts = json!({"running": true, "parts": {"service": {"working": true, "recent": []}}});
        board.put(Kind::Controller, "service-lb-controller", Arc::new(Fixed(parts, Ok(()))));
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let (text, _) = page(&board, About { started: start }, start);
        assert!(text.ends_with("Controllers\n  service-lb-controller  [ok]\n    running yes\n"), "{text}");
    }
}
