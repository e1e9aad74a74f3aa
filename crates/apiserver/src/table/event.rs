//! Printers of Event in both API groups.

use serde_json::Value;

use super::age::Clock;
use super::{Column, NAME, Printer, name, or, text, wide};
use crate::value::Json;

pub(super) static CORE: Printer = Printer::new(COLUMNS, |event, clock| cells(event, &CORE_FIELDS, clock));
pub(super) static NEW: Printer = Printer::new(COLUMNS, |event, clock| cells(event, &NEW_FIELDS, clock));

const COLUMNS: &[Column] = &[
    text("Last Seen", "Time since the event was last observed."),
    text("Type", "Type of the event: Normal or Warning."),
    text("Reason", "Machine-readable reason."),
    text("Object", "Kind and name of the object the event is about."),
    wide("Subobject", "Field of the object the event is about."),
    wide("Source", "Component that reported the event, and its host or instance."),
    text("Message", "Human-readable description."),
    wide("First Seen", "Time since the event was first observed."),
    wide("Count", "Number of times the event was observed."),
    Column { priority: 1, ..NAME },
];

/// Field names of an Event in one of the API groups.
struct FieldNames {
    object: &'static str,
    message: &'static str,
    first: &'static str,
    last: &'static str,
    count: &'static str,
    source: &'static str,
    reporter: &'static str,
}

static CORE_FIELDS: FieldNames = FieldNames {
    object: "involvedObject",
    message: "message",
    first: "firstTimestamp",
    last: "lastTimestamp",
    count: "count",
    source: "source",
    reporter: "reportingComponent",
};

static NEW_FIELDS: FieldNames = FieldNames {
    object: "regarding",
    message: "note",
    first: "deprecatedFirstTimestamp",
    last: "deprecatedLastTimestamp",
    count: "deprecatedCount",
    source: "deprecatedSource",
    reporter: "reportingController",
};

fn cells(event: &Value, fields: &FieldNames, clock: Clock) -> Vec<Value> {
    let first = first_set([event.at(fields.first), event.at("eventTime")]);
    let object = event.at(fields.object);
    vec![
        clock.since(last_seen(event, fields, first)).into(),
        event.text("type").into(),
        event.text("reason").into(),
        target(object).into(),
        object.text("fieldPath").into(),
        source(event, fields).into(),
        event.text(fields.message).trim().into(),
        clock.since(first).into(),
        occurrences(event, fields).into(),
        name(event),
    ]
}

fn first_set(times: [&Value; 2]) -> &Value {
    let [time, fallback] = times;
    if time.is_null() { fallback } else { time }
}

fn last_seen<'a>(event: &'a Value, fields: &FieldNames, first: &'a Value) -> &'a Value {
    match event.has("series") {
        true => event.at("series.lastObservedTime"),
        false => first_set([event.at(fields.last), first]),
    }
}

fn occurrences(event: &Value, fields: &FieldNames) -> i64 {
    match event.has("series") {
        true => event.int("series.count").unwrap_or(0),
        // An event without a count happened once.
        false => event.int(fields.count).filter(|&n| n != 0).unwrap_or(1),
    }
}

fn target(object: &Value) -> String {
    let kind = object.text("kind").to_lowercase();
    match object.text("name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    }
}

fn source(event: &Value, fields: &FieldNames) -> String {
    let source = event.at(fields.source);
    let component = or(source.text("component"), event.text(fields.reporter));
    match or(source.text("host"), event.text("reportingInstance")) {
        "" => component.to_owned(),
        instance => format!("{component}, {instance}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn row(printer: &Printer, event: Value) -> Value {
        Value::Array((printer.cells)(&event, Clock::at("2024-01-01T00:01:00Z".parse().unwrap())))
    }

    #[test]
    fn core_event_uses_its_timestamps() {
        let event = json!({
            "metadata": {"name": "a"}, "type": "Normal", "reason": "R", "message": " M\n", "count": 5,
            "involvedObject": {"kind": "Service", "name": "s", "fieldPath": "spec"}, "source": {"component": "x"},
            "firstTimestamp": "2024-01-01T00:00:00Z", "lastTimestamp": "2024-01-01T00:00:50Z", "eventTime": null});
        assert_eq!(row(&CORE, event), json!(["10s", "Normal", "R", "service/s", "spec", "x", "M", "60s", 5, "a"]));
    }

    #[test]
    fn new_event_uses_its_event_time() {
        let event = json!({
            "metadata": {"name": "a"}, "type": "Normal", "reason": "R", "note": "M",
            "regarding": {"kind": "Node"}, "eventTime": "2024-01-01T00:00:30.500000Z",
            "deprecatedFirstTimestamp": null, "deprecatedLastTimestamp": null, "deprecatedSource": {},
            "reportingController": "example.com/c", "reportingInstance": "i-1"});
        let expected = json!(["29s", "Normal", "R", "node", "", "example.com/c, i-1", "M", "29s", 1, "a"]);
        assert_eq!(row(&NEW, event), expected);
    }

    #[test]
    fn a_series_overrides_count_and_last_seen() {
        let event = json!({
            "metadata": {"name": "a"}, "count": 1, "lastTimestamp": "2024-01-01T00:00:01Z",
            "series": {"count": 7, "lastObservedTime": "2024-01-01T00:00:55.000000Z"}});
        let row = row(&CORE, event);
        assert_eq!((&row[0], &row[7], &row[8]), (&json!("5s"), &json!("<unknown>"), &json!(7)));
    }
}
