//! Event in its two API groups.
//!
//! ```text
//!  core/v1            the stored form; lenient validation for old clients
//!  events.k8s.io/v1   a view with other field names ([`view`]); strict validation, whose errors use the core names
//! ```
//!
//! In both groups an Event with an eventTime is a "new" one and must have a reporting component, an instance and an action.

mod view;

use serde_json::Value;

use super::{Strategy, View, WriteCx, meta};
use crate::field_error::{FieldError, go_struct};
use crate::go_text;
use crate::validation;
use crate::value::Json;

/// `events.k8s.io` shows the same objects with other field names.
pub(crate) const VIEW: View = View { to_stored: view::to_core, from_stored: view::from_core };

const SHORT_TEXT_MAX: usize = 128;
const MESSAGE_MAX: usize = 1024;

/// Events under `core/v1`.
pub(crate) struct CoreEvent;

impl Strategy for CoreEvent {
    fn has_dependents(&self) -> bool {
        false
    }

    /// Validates metadata only if there are no other errors.
    fn validate_new(&self, cx: &WriteCx<'_>, obj: &Value) -> Vec<FieldError> {
        match basic_errors(obj, "reportingComponent") {
            none if none.is_empty() => meta::validate_create(cx, obj),
            errors => errors,
        }
    }

    fn validate_update(&self, _cx: &WriteCx<'_>, new: &Value, _old: &Value) -> Vec<FieldError> {
        basic_errors(new, "reportingComponent")
    }

    fn validate_name(&self, name: &str, prefix: bool) -> Vec<String> {
        validation::path_segment(name, prefix)
    }

    fn field_labels(&self) -> Option<&'static [&'static str]> {
        Some(CORE_LABELS)
    }

    fn field_value(&self, obj: &Value, label: &str) -> String {
        label_value(obj, label)
    }
}

/// Events under `events.k8s.io/v1`. Objects are in the form of that group.
pub(crate) struct NewEvent;

impl Strategy for NewEvent {
    fn has_dependents(&self) -> bool {
        false
    }

    /// Reports metadata errors between those common to both groups and those of this group.
    fn validate_new(&self, cx: &WriteCx<'_>, obj: &Value) -> Vec<FieldError> {
        let event = view::to_core(obj.clone());
        let mut errors = basic_errors(&event, "reportingController");
        errors.extend(meta::validate_create(cx, obj));
        errors.extend(strict_errors(&event));
        errors
    }

    fn validate_update(&self, _cx: &WriteCx<'_>, new: &Value, old: &Value) -> Vec<FieldError> {
        strict_update_errors(&view::to_core(new.clone()), &view::to_core(old.clone()))
    }

    /// Labels of the stored form, so that field selectors match an Event in either group.
    fn field_labels(&self) -> Option<&'static [&'static str]> {
        Some(CORE_LABELS)
    }

    fn field_value(&self, obj: &Value, label: &str) -> String {
        label_value(obj, label)
    }

    /// Maps the names of this group to the stored ones. The core names are unknown here.
    fn field_alias<'l>(&self, label: &'l str) -> &'l str {
        match NEW_LABELS.iter().find(|(new, _)| *new == label) {
            Some((_, core)) => core,
            None if label.starts_with("metadata.") => label,
            None => "",
        }
    }
}

// === Field labels ===

const CORE_LABELS: &[&str] = &[
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
];

/// Labels under `events.k8s.io` and their names in the stored form.
const NEW_LABELS: &[(&str, &str)] = &[
    ("reason", "reason"),
    ("regarding.kind", "involvedObject.kind"),
    ("regarding.namespace", "involvedObject.namespace"),
    ("regarding.name", "involvedObject.name"),
    ("regarding.uid", "involvedObject.uid"),
    ("regarding.apiVersion", "involvedObject.apiVersion"),
    ("regarding.resourceVersion", "involvedObject.resourceVersion"),
    ("regarding.fieldPath", "involvedObject.fieldPath"),
    ("reportingController", "reportingComponent"),
    ("type", "type"),
];

/// Returns the value of a label from the stored form. `source` is `source.component`, else `reportingComponent`.
fn label_value(obj: &Value, label: &str) -> String {
    let value = match label {
        "source" if obj.text("source.component").is_empty() => obj.text("reportingComponent"),
        "source" => obj.text("source.component"),
        _ => obj.text(label),
    };
    value.to_owned()
}

// === Validation of the core form ===

/// Returns the errors common to both groups. `reporter` is the field name of the reporting component in errors.
fn basic_errors(event: &Value, reporter: &str) -> Vec<FieldError> {
    let is_new = event.has("eventTime");
    let mut errors: Vec<FieldError> = namespace_error(event, is_new).into_iter().collect();
    if is_new {
        errors.extend(reporter_errors(event, reporter));
    }
    errors
}

fn namespace_error(event: &Value, is_new: bool) -> Option<FieldError> {
    let (own, involved) = (event.text("metadata.namespace"), event.text("involvedObject.namespace"));
    let matches = match (is_new, involved) {
        (false, "") => matches!(own, "" | "default"),
        (false, _) => own == involved,
        (true, "") => matches!(own, "default" | "kube-system"),
        (true, _) => true,
    };
    (!matches).then(|| FieldError::invalid("involvedObject.namespace", involved, "does not match event.namespace"))
}

fn reporter_errors(event: &Value, reporter: &str) -> Vec<FieldError> {
    let component = event.text("reportingComponent");
    let mut errors = Vec::new();
    if component.is_empty() {
        errors.push(FieldError::required(reporter, ""));
    }
    errors.extend(validation::invalid_each(reporter, component, validation::qualified_name(component)));
    for field in ["reportingInstance", "action", "reason"] {
        match event.text(field) {
            "" => errors.push(FieldError::required(field, "")),
            text => errors.extend(length_error(field, text, SHORT_TEXT_MAX)),
        }
    }
    errors.extend(length_error("message", event.text("message"), MESSAGE_MAX));
    errors
}

fn length_error(field: &str, text: &str, max: usize) -> Option<FieldError> {
    (text.len() > max).then(|| FieldError::invalid(field, "", format!("can have at most {max} characters")))
}

/// Validates a new Event under `events.k8s.io`: deprecated fields must be unset.
fn strict_errors(event: &Value) -> Vec<FieldError> {
    let mut errors = series_errors(event);
    if !event.has("eventTime") {
        errors.push(FieldError::required("eventTime", ""));
    }
    let kind = event.text("type");
    if !matches!(kind, "Normal" | "Warning") {
        errors.push(FieldError::invalid("type", "", format!("has invalid value: {kind}")));
    }
    let source_set = !event.text("source.component").is_empty() || !event.text("source.host").is_empty();
    let deprecated = [
        ("firstTimestamp", event.has("firstTimestamp")),
        ("lastTimestamp", event.has("lastTimestamp")),
        ("count", event.has("count")),
        ("source", source_set),
    ];
    let set = deprecated.iter().filter(|(_, is_set)| *is_set);
    errors.extend(set.map(|(field, _)| FieldError::invalid(*field, "", "needs to be unset")));
    errors
}

fn series_errors(event: &Value) -> Vec<FieldError> {
    if !event.has("series") {
        return Vec::new();
    }
    let mut errors = Vec::new();
    if event.int("series.count").unwrap_or_default() < 2 {
        errors.push(FieldError::invalid("series.count", "", "should be at least 2"));
    }
    if !event.has("series.lastObservedTime") {
        errors.push(FieldError::required("series.lastObservedTime", ""));
    }
    errors
}

/// Validates an update under `events.k8s.io`: only `series` and metadata may change.
fn strict_update_errors(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = basic_errors(new, "reportingController");
    if new.at("series") != old.at("series") {
        errors.extend(series_errors(new));
    }
    let changed = IMMUTABLE.iter().filter(|field| new.at(field.path) != old.at(field.path));
    errors.extend(changed.map(|field| {
        FieldError::invalid_as(field.name_in_errors, (field.format)(new.at(field.path)), validation::FIELD_IMMUTABLE)
    }));
    errors
}

/// A field that may not change, its name in errors, and the format of its value there.
struct ImmutableField {
    path: &'static str,
    name_in_errors: &'static str,
    format: fn(&Value) -> String,
}

const fn immutable(path: &'static str, format: fn(&Value) -> String) -> ImmutableField {
    ImmutableField { path, name_in_errors: path, format }
}

const IMMUTABLE: &[ImmutableField] = &[
    immutable("involvedObject", format_reference),
    immutable("reason", format_text),
    immutable("message", format_text),
    immutable("source", format_source),
    immutable("firstTimestamp", format_json),
    immutable("lastTimestamp", format_json),
    immutable("count", format_number),
    immutable("type", format_text),
    immutable("eventTime", format_json),
    immutable("action", format_text),
    immutable("related", format_reference),
    ImmutableField { path: "reportingComponent", name_in_errors: "reportingController", format: format_text },
    immutable("reportingInstance", format_text),
];

fn format_text(value: &Value) -> String {
    go_text::quote(value.as_str().unwrap_or_default())
}

fn format_number(value: &Value) -> String {
    value.as_i64().unwrap_or_default().to_string()
}

fn format_json(value: &Value) -> String {
    value.to_string()
}

fn format_source(value: &Value) -> String {
    go_struct(&[("Component", value.text("component").into()), ("Host", value.text("host").into())])
}

fn format_reference(value: &Value) -> String {
    const PARTS: &[(&str, &str)] = &[
        ("Kind", "kind"),
        ("Namespace", "namespace"),
        ("Name", "name"),
        ("UID", "uid"),
        ("APIVersion", "apiVersion"),
        ("ResourceVersion", "resourceVersion"),
        ("FieldPath", "fieldPath"),
    ];
    if value.is_null() {
        return "null".to_owned();
    }
    let parts: Vec<(&str, Value)> = PARTS.iter().map(|(go, json)| (*go, value.text(json).into())).collect();
    go_struct(&parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn texts(errors: Vec<FieldError>) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    /// Returns a valid Event with an eventTime, with the given changes.
    fn event(changes: Value) -> Value {
        let mut event = json!({
            "metadata": {"name": "a", "namespace": "n"},
            "involvedObject": {"kind": "Service", "namespace": "n", "name": "s", "apiVersion": "v1"},
            "reason": "R", "message": "M", "type": "Normal", "eventTime": "2024-01-02T03:04:05.123456Z",
            "reportingComponent": "example.com/c", "reportingInstance": "i-1", "action": "Do",
            "source": {}, "firstTimestamp": null, "lastTimestamp": null,
        });
        for (key, value) in changes.as_object().into_iter().flatten() {
            event[key] = value.clone();
        }
        event
    }

    #[test]
    fn event_without_event_time_is_in_the_namespace_of_its_object() {
        let old = |own: &str, involved: &str| {
            let event =
                json!({"metadata": {"namespace": own}, "involvedObject": {"namespace": involved}, "eventTime": null});
            texts(basic_errors(&event, "reportingComponent"))
        };
        assert_eq!(old("n", "n"), [""; 0]);
        assert_eq!(old("default", ""), [""; 0]);
        assert_eq!(old("n", ""), ["involvedObject.namespace: Invalid value: \"\": does not match event.namespace"]);
        assert_eq!(
            old("n", "other"),
            ["involvedObject.namespace: Invalid value: \"other\": does not match event.namespace"]
        );
    }

    #[test]
    fn event_with_event_time_needs_a_reporter() {
        assert_eq!(texts(basic_errors(&event(json!({})), "reportingController")), [""; 0]);
        for field in ["reportingInstance", "action", "reason"] {
            assert_eq!(
                texts(basic_errors(&event(json!({field: ""})), "reportingController")),
                [format!("{field}: Required value")]
            );
        }
        let long = event(json!({"action": "x".repeat(129), "message": "x".repeat(1025)}));
        let long = texts(basic_errors(&long, "reportingController"));
        assert_eq!(
            long,
            [
                "action: Invalid value: \"\": can have at most 128 characters",
                "message: Invalid value: \"\": can have at most 1024 characters"
            ]
        );
        let errors = texts(basic_errors(&event(json!({"reportingComponent": ""})), "reportingComponent"));
        assert_eq!(errors[0], "reportingComponent: Required value");
        assert_eq!(errors[1], "reportingComponent: Invalid value: \"\": name part must be non-empty");
    }

    #[test]
    fn events_group_rejects_deprecated_fields() {
        let errors = texts(strict_errors(&event(json!({
            "eventTime": null, "type": "Odd", "count": 1, "source": {"host": "h"}, "firstTimestamp": "2024-01-02T03:04:05Z",
            "series": {"lastObservedTime": null},
        }))));
        assert_eq!(
            errors,
            [
                "series.count: Invalid value: \"\": should be at least 2",
                "series.lastObservedTime: Required value",
                "eventTime: Required value",
                "type: Invalid value: \"\": has invalid value: Odd",
                "firstTimestamp: Invalid value: \"\": needs to be unset",
                "count: Invalid value: \"\": needs to be unset",
                "source: Invalid value: \"\": needs to be unset",
            ]
        );
    }

    #[test]
    fn events_group_allows_only_the_series_to_change() {
        let old = event(json!({}));
        let series = json!({"series": {"count": 3, "lastObservedTime": "2024-01-02T03:04:09.000000Z"}});
        assert_eq!(strict_update_errors(&event(series), &old), []);
        assert_eq!(
            texts(strict_update_errors(&event(json!({"message": "changed"})), &old)),
            ["message: Invalid value: \"changed\": field is immutable"]
        );
        let changes = json!({"involvedObject": {"kind": "K", "namespace": "n"}, "related": {"name": "r"}, "count": 2, "source": {"host": "h"}, "reportingComponent": "ex.com/d"});
        assert_eq!(
            texts(strict_update_errors(&event(changes), &old)),
            [
                r#"involvedObject: Invalid value: {"Kind":"K","Namespace":"n","Name":"","UID":"","APIVersion":"","ResourceVersion":"","FieldPath":""}: field is immutable"#,
                r#"source: Invalid value: {"Component":"","Host":"h"}: field is immutable"#,
                "count: Invalid value: 2: field is immutable",
                r#"related: Invalid value: {"Kind":"","Namespace":"","Name":"r","UID":"","APIVersion":"","ResourceVersion":"","FieldPath":""}: field is immutable"#,
                "reportingController: Invalid value: \"ex.com/d\": field is immutable",
            ]
        );
    }

    #[test]
    fn both_groups_select_by_the_stored_fields() {
        let stored = event(json!({"source": {"component": "x"}}));
        assert_eq!(CoreEvent.field_value(&stored, "involvedObject.kind"), "Service");
        assert_eq!(CoreEvent.field_value(&stored, "source"), "x");
        assert_eq!(CoreEvent.field_value(&event(json!({})), "source"), "example.com/c");
        assert_eq!(NewEvent.field_alias("regarding.name"), "involvedObject.name");
        assert_eq!(NewEvent.field_value(&stored, "involvedObject.name"), "s");
        assert_eq!(NewEvent.field_value(&stored, "reportingComponent"), "example.com/c");
        assert_eq!(NewEvent.field_value(&stored, "reason"), "R");
    }
}
