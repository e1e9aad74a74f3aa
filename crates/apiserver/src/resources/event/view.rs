//! The two forms of an event: the same facts under other names.

use serde_json::{Map, Value};

use crate::schema::{fill_always, schema};

/// The name of a field under `core/v1` and under `events.k8s.io/v1`, where they differ.
const RENAMED: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// Fields that one form always writes and the other leaves out when they are empty.
const SHOWN_BY_CORE_ONLY: &[&str] = &["reportingController", "reportingInstance"];

/// From the `events.k8s.io/v1` form to the stored one. The stored form itself passes unchanged.
pub(super) fn to_core(event: Value) -> Value {
    let Value::Object(mut event) = event else { return event };
    let renames = RENAMED.iter().map(|(core, new)| (*new, *core));
    rename(&mut event, renames);
    if let Some(Value::Object(series)) = event.get_mut("series")
        && series.get("count").is_some_and(|count| count == 0)
    {
        series.remove("count");
    }
    dressed(event, "v1", "core/v1.Event")
}

/// From the stored form to the `events.k8s.io/v1` one.
pub(super) fn from_core(event: Value) -> Value {
    let Value::Object(mut event) = event else { return event };
    rename(&mut event, RENAMED.iter().copied());
    event.retain(|key, value| !(SHOWN_BY_CORE_ONLY.contains(&key.as_str()) && *value == ""));
    if let Some(Value::Object(series)) = event.get_mut("series") {
        series.entry("count").or_insert_with(|| 0.into());
    }
    dressed(event, "events.k8s.io/v1", "events/v1.Event")
}

fn rename<'a>(event: &mut Map<String, Value>, names: impl Iterator<Item = (&'a str, &'a str)>) {
    for (from, to) in names {
        if let Some(value) = event.remove(from) {
            event.insert(to.to_owned(), value);
        }
    }
}

/// Names the form and adds what it always writes.
fn dressed(mut event: Map<String, Value>, api_version: &str, ty: &str) -> Value {
    if let Some(stated) = event.get_mut("apiVersion") {
        *stated = api_version.into();
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
    fn the_view_renames_and_leaves_out_empty_reporters() {
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
    fn the_stored_form_passes_unchanged() {
        assert_eq!(to_core(core()), core());
    }

    #[test]
    fn a_series_without_a_count_shows_zero_in_the_view_only() {
        let mut event = core();
        event["series"] = json!({"lastObservedTime": null});
        let viewed = from_core(event.clone());
        assert_eq!(viewed["series"], json!({"count": 0, "lastObservedTime": null}));
        assert_eq!(to_core(viewed), event);
    }
}
