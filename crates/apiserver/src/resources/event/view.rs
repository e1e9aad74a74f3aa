//! Conversion between the two forms of an Event, which differ in field names.

use serde_json::{Map, Value};

use crate::schema::{fill_always, schema};

/// Field names under `core/v1` and `events.k8s.io/v1`, where they differ.
const RENAMED: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// Fields that `core/v1` always serialises and `events.k8s.io/v1` omits when empty.
const OMITTED_IF_EMPTY: &[&str] = &["reportingController", "reportingInstance"];

/// Converts the `events.k8s.io/v1` form to the stored one. An object in the stored form is returned unchanged.
pub(super) fn to_core(event: Value) -> Value {
    let Value::Object(mut event) = event else { return event };
    let renames = RENAMED.iter().map(|(core, new)| (*new, *core));
    rename(&mut event, renames);
    if let Some(Value::Object(series)) = event.get_mut("series")
        && series.get("count").is_some_and(|count| count == 0)
    {
        series.remove("count");
    }
    finish(event, "v1", "core/v1.Event")
}

/// Converts the stored form to the `events.k8s.io/v1` one.
pub(super) fn from_core(event: Value) -> Value {
    let Value::Object(mut event) = event else { return event };
    rename(&mut event, RENAMED.iter().copied());
    event.retain(|key, value| !(OMITTED_IF_EMPTY.contains(&key.as_str()) && *value == ""));
    if let Some(Value::Object(series)) = event.get_mut("series") {
        series.entry("count").or_insert_with(|| 0.into());
    }
    finish(event, "events.k8s.io/v1", "events/v1.Event")
}

fn rename<'a>(event: &mut Map<String, Value>, names: impl Iterator<Item = (&'a str, &'a str)>) {
    for (from, to) in names {
        if let Some(value) = event.remove(from) {
            event.insert(to.to_owned(), value);
        }
    }
}

/// Sets the apiVersion and adds the fields that the form always serialises.
fn finish(mut event: Map<String, Value>, api_version: &str, ty: &str) -> Value {
    if let Some(value) = event.get_mut("apiVersion") {
        *value = api_version.into();
    }
    fill_always(schema().id(ty), &mut event);
    Value::Object(event)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn core() -> Value {
        json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": "a"}, "eventTime": null,
            "involvedObject": {"kind": "Service"}, "message": "M", "count": 1, "reason": "R",
            "source": {"component": "x"}, "firstTimestamp": "2024-01-02T03:04:05Z", "lastTimestamp": null,
            "reportingComponent": "", "reportingInstance": "",
        })
    }

    #[test]
    fn view_renames_fields_and_omits_empty_reporters() {
        let new = json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "a"}, "eventTime": null,
            "regarding": {"kind": "Service"}, "note": "M", "deprecatedCount": 1, "reason": "R",
            "deprecatedSource": {"component": "x"}, "deprecatedFirstTimestamp": "2024-01-02T03:04:05Z",
            "deprecatedLastTimestamp": null,
        });
        assert_eq!(from_core(core()), new);
        assert_eq!(to_core(new), core());
    }

    #[test]
    fn stored_form_is_returned_unchanged() {
        assert_eq!(to_core(core()), core());
    }

    #[test]
    fn series_without_a_count_is_zero_in_the_view_only() {
        let mut event = core();
        event["series"] = json!({"lastObservedTime": null});
        let viewed = from_core(event.clone());
        assert_eq!(viewed["series"], json!({"count": 0, "lastObservedTime": null}));
        assert_eq!(to_core(viewed), event);
    }
}
