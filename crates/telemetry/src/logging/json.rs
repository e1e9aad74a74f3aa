//! Lines as the JSON format of the Go managers has them: `ts` in milliseconds, `caller`, `msg`, `v` unless it is an error,
//! and the fields.

use std::fmt::Write as _;

use jiff::Zoned;
use tracing::Level;

use super::fields::{Fields, Value};
use super::place::Place;

/// Names that a field must not have, as JSON has each once.
const TAKEN: [&str; 5] = ["ts", "caller", "msg", "v", "level"];

/// Writes one line.
pub(super) fn write(line: &mut String, place: &Place<'_>, fields: &Fields, now: &Zoned) {
    let nanos = now.timestamp().as_nanosecond();
    let (millis, rest) = (nanos / 1_000_000, nanos % 1_000_000);
    let _ = write!(line, "{{\"ts\":{millis}.{rest:06},\"caller\":");
    string(line, &caller(place));
    line.push_str(",\"msg\":");
    string(line, fields.message());
    level(line, place.level);
    for (name, value) in fields.iter() {
        line.push(',');
        if TAKEN.contains(&name) {
            string(line, &format!("{name}_"));
        } else {
            string(line, name);
        }
        line.push(':');
        match value {
            Value::Bare(text) => line.push_str(text),
            Value::Text(text) => string(line, text),
        }
    }
    line.push_str("}\n");
}

/// The verbosity from which on such a line is shown. upstream: an error has none, and a warning cannot be told from
/// information; here it can.
fn level(line: &mut String, level: Level) {
    line.push_str(match level {
        Level::ERROR => "",
        Level::WARN => ",\"v\":0,\"level\":\"warn\"",
        Level::INFO => ",\"v\":0",
        Level::DEBUG => ",\"v\":4",
        Level::TRACE => ",\"v\":6",
    });
}

/// The file and its folder, and the line.
fn caller(place: &Place<'_>) -> String {
    let path = place.path;
    let start = path.rmatch_indices('/').nth(1).map_or(0, |(slash, _)| slash + 1);
    format!("{}:{}", path.get(start..).unwrap_or(path), place.line)
}

fn string(line: &mut String, text: &str) {
    // A string can always be written.
    line.push_str(&serde_json::to_string(text).unwrap_or_default());
}
