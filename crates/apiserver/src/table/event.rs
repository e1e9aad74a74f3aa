//! Events, in the form of either group.

use serde_json::Value;

use super::age::Clock;
use super::{Column, NAME, Printer, name, or, text, wide};
use crate::value::Json;

pub(super) static CORE: Printer = Printer::new(COLUMNS, |event, clock| cells(event, &CORE_FORM, clock));
pub(super) static NEW: Printer = Printer::new(COLUMNS, |event, clock| cells(event, &NEW_FORM, clock));

const COLUMNS: &[Column] = &[
    text("Last Seen", "How long ago it was last observed."),
    text("Type", "Normal or Warning."),
    text("Reason", "The machine-readable cause."),
    text("Object", "The kind and name it is about."),
    wide("Subobject", "The part of the object it is about."),
    wide("Source", "Which component reported it, and from where."),
    text("Message", "What happened, in words."),
    wide("First Seen", "How long ago it was first observed."),
    wide("Count", "How often it was observed."),
    Column { priority: 1, ..NAME },
];

/// Where the two groups keep the same facts.
struct Form {
    object: &'static str,
    message: &'static str,
    first: &'static str,
    last: &'static str,
    count: &'static str,
    source: &'static str,
    reporter: &'static str,
}

static CORE_FORM: Form = Form {
    object: "involvedObject",
    message: "message",
    first: "firstTimestamp",
    last: "lastTimestamp",
    count: "count",
    source: "source",
    reporter: "reportingComponent",
};

static NEW_FORM: Form = Form {
    object: "regarding",
    message: "note",
    first: "deprecatedFirstTimestamp",
    last: "deprecatedLastTimestamp",
    count: "deprecatedCount",
    source: "deprecatedSource",
    reporter: "reportingController",
};

fn cells(event: &Value, form: &Form, clock: Clock) -> Vec<Value> {
    let first = first_set([event.at(form.first), event.at("eventTime")]);
    let object = event.at(form.object);
    vec![
        clock.since(last_seen(event, form, first)).into(),
        event.text("type").into(),
        event.text("reason").into(),
        target(object).into(),
        object.text("fieldPath").into(),
        source(event, form).into(),
        event.text(form.message).trim().into(),
        clock.since(first).into(),
        occurrences(event, form).into(),
        name(event),
    ]
}

fn first_set(times: [&Value; 2]) -> &Value {
    let [time, otherwise] = times;
    if time.is_null() { otherwise } else { time }
}

fn last_seen<'a>(event: &'a Value, form: &Form, first: &'a Value) -> &'a Value {
    match event.has("series") {
        true => event.at("series.lastObservedTime"),
        false => first_set([event.at(form.last), first]),
    }
}

fn occurrences(event: &Value, form: &Form) -> i64 {
    match event.has("series") {
        true => event.int("series.count").unwrap_or(0),
        // An event that happened once need not count.
        false => event.int(form.count).filter(|&n| n != 0).unwrap_or(1),
    }
}

fn target(object: &Value) -> String {
    let kind = object.text("kind").to_lowercase();
    match object.text("name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    }
}

fn source(event: &Value, form: &Form) -> String {
    let source = event.at(form.source);
    let component = or(source.text("component"), event.text(form.reporter));
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
    fn a_core_event_counts_from_its_timestamps() {
        let event = json!({
            "metadata": {"name": "a"}, "type": "Normal", "reason": "R", "message": " M\n", "count": 5,
            "involvedObject": {"kind": "Service", "name": "s", "fieldPath": "spec"}, "source": {"component": "x"},
            "firstTimestamp": "2024-01-01T00:00:00Z", "lastTimestamp": "2024-01-01T00:00:50Z", "eventTime": null});
        assert_eq!(row(&CORE, event), json!(["10s", "Normal", "R", "service/s", "spec", "x", "M", "60s", 5, "a"]));
    }

    #[test]
    fn a_new_event_counts_from_its_event_time() {
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
