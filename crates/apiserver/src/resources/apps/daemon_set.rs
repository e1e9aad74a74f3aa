//! DaemonSet strategy.

use serde_json::{Value, json};

use super::default;
use crate::field_error::FieldError;
use crate::resources::check::{ErrorList, Path};
use crate::resources::strategy::{clear_status, keep_all_but_status, keep_status};
use crate::resources::{Strategy, WriteCx, pod};
use crate::value::Json;

pub(crate) struct DaemonSet;

/// upstream: the template generation was a field of the spec in earlier API versions; `apps/v1` has it as an annotation.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

impl Strategy for DaemonSet {
    fn apply_defaults(&self, obj: &mut Value) {
        // Sets the annotation even if the request omits it, and so makes its manager an owner of it. upstream: the
        // internal type has a number that is never absent.
        let generation = template_generation(obj);
        set_template_generation(obj, generation);
        let Some(spec) = obj.get_mut("spec") else { return };
        default(spec, "updateStrategy.type", "RollingUpdate");
        if spec.text("updateStrategy.type") == "RollingUpdate" {
            default(spec, "updateStrategy.rollingUpdate", json!({}));
            default(spec, "updateStrategy.rollingUpdate.maxUnavailable", 1);
            default(spec, "updateStrategy.rollingUpdate.maxSurge", 0);
        }
        default(spec, "revisionHistoryLimit", 10);
        if let Some(template) = spec.get_mut("template") {
            pod::template_defaults(template);
        }
    }

    fn prepare_create(&self, cx: &WriteCx<'_>, obj: &mut Value) {
        clear_status(cx, obj);
        obj.put("metadata.generation", 1);
        let generation = template_generation(obj).max(1);
        set_template_generation(obj, generation);
        pod::drop_disabled_in_template(obj);
    }

    fn prepare_update(&self, cx: &WriteCx<'_>, new: &mut Value, old: &Value) {
        keep_status(cx, new, old);
        pod::drop_disabled_in_template(new);
        let differs = |path: &str| new.at(path) != old.at(path);
        let (template, spec) = (differs("spec.template"), differs("spec"));
        set_template_generation(new, template_generation(old) + i64::from(template));
        pod::bump_generation(new, old, spec);
    }

    fn prepare_status_update(&self, _cx: &WriteCx<'_>, new: &mut Value, old: &Value) {
        keep_all_but_status(new, old);
        set_template_generation(new, template_generation(old));
    }

    fn validate_create(&self, _cx: &WriteCx<'_>, obj: &Value) -> Vec<FieldError> {
        let mut errors = ErrorList::default();
        validate_spec(obj.at("spec"), &mut errors);
        errors.into_vec()
    }

    fn validate_update(&self, _cx: &WriteCx<'_>, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = ErrorList::default();
        errors.extend(super::selector_immutable_error(new, old));
        validate_spec(new.at("spec"), &mut errors);
        errors.into_vec()
    }
}

/// Returns the metadata of an object for tables and PartialObjectMetadata.
///
/// upstream: these are built before the template generation of a DaemonSet becomes an annotation.
pub(crate) fn partial_metadata(object: &Value) -> Value {
    let mut metadata = object.get("metadata").cloned().unwrap_or_else(|| json!({}));
    if object.text("kind") != "DaemonSet" {
        return metadata;
    }
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.remove(TEMPLATE_GENERATION);
        if annotations.is_empty() {
            metadata.take_at("annotations");
        }
    }
    metadata
}

fn template_generation(obj: &Value) -> i64 {
    let text = obj.at("metadata.annotations").get(TEMPLATE_GENERATION).and_then(Value::as_str);
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn set_template_generation(obj: &mut Value, generation: i64) {
    if !obj.at("metadata.annotations").is_object() {
        obj.put("metadata.annotations", json!({}));
    }
    if let Some(annotations) = obj.at_mut("metadata.annotations").and_then(Value::as_object_mut) {
        annotations.insert(TEMPLATE_GENERATION.to_owned(), generation.to_string().into());
    }
}

fn validate_spec(spec: &Value, errors: &mut ErrorList) {
    super::validate_spec(spec, "daemonset", errors);
    let kind = spec.text("updateStrategy.type");
    errors.one_of(Path::new("spec.updateStrategy.type"), kind, &["RollingUpdate", "OnDelete"]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{decode, schema};

    fn daemon_set(spec: Value) -> Value {
        let given = json!({"kind": "DaemonSet", "apiVersion": "apps/v1", "metadata": {"name": "a"}, "spec": spec});
        let mut object = decode(schema().id("apps/v1.DaemonSet"), &given).expect("decodes").value;
        DaemonSet.apply_defaults(&mut object);
        object
    }

    fn minimal() -> Value {
        json!({
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        })
    }

    fn messages(change: impl FnOnce(&mut Value)) -> Vec<String> {
        let mut spec = minimal();
        change(&mut spec);
        let mut errors = ErrorList::default();
        validate_spec(daemon_set(spec).at("spec"), &mut errors);
        errors.into_vec().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn defaults_match_the_recording() {
        let got = daemon_set(minimal());
        assert_eq!(
            got["spec"]["updateStrategy"],
            json!({"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}, "type": "RollingUpdate"})
        );
        assert_eq!(got["spec"]["revisionHistoryLimit"], 10);
    }

    #[test]
    fn template_generation_is_an_annotation() {
        let mut object = daemon_set(minimal());
        assert_eq!(object["metadata"]["annotations"], json!({TEMPLATE_GENERATION: "0"}));
        set_template_generation(&mut object, 2);
        assert_eq!(object["metadata"]["annotations"], json!({TEMPLATE_GENERATION: "2"}));
        assert_eq!(template_generation(&object), 2);
        assert_eq!(partial_metadata(&object), json!({"name": "a"}));
    }

    #[test]
    fn selector_must_match_the_template() {
        assert_eq!(messages(|_| ()), Vec::<String>::new());
        assert_eq!(messages(|spec| spec["template"]["metadata"]["labels"] = json!({})).len(), 1);
        assert_eq!(
            messages(|spec| spec["selector"] = json!({})),
            ["spec.selector: Invalid value: {}: empty selector is invalid for daemonset"]
        );
    }

    #[test]
    fn unknown_update_strategy_is_rejected() {
        let got = messages(|spec| spec["updateStrategy"] = json!({"type": "Odd"}));
        assert_eq!(
            got,
            ["spec.updateStrategy.type: Unsupported value: \"Odd\": supported values: \"RollingUpdate\", \"OnDelete\""]
        );
    }
}
