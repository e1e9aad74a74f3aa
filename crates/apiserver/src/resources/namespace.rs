//! Namespaces: active until deleted, then terminating until everything in them is gone and nobody holds them.

use serde_json::{Value, json};

use super::check::{Findings, Path};
use super::strategy::keep_status;
use super::{Strategy, WriteCx};
use crate::field_error::FieldError;
use crate::status::{ApiError, ApiResult};
use crate::validation;
use crate::value::Json;

pub(crate) struct Namespace;

/// A label that lets selectors name a namespace.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";
/// Holds a namespace until it is empty.
const KUBERNETES: &str = "kubernetes";
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

impl Strategy for Namespace {
    fn apply_defaults(&self, obj: &mut Value) {
        label_with_name(obj);
        if obj.text("status.phase").is_empty() {
            obj.put("status.phase", "Active");
        }
    }

    fn admit_delete(&self, cx: &WriteCx<'_>, old: &Value) -> ApiResult<()> {
        let name = old.text("metadata.name");
        match IMMORTAL.contains(&name) {
            true => Err(ApiError::forbidden(cx.resource.named(), name, "this namespace may not be deleted")),
            false => Ok(()),
        }
    }

    fn prepare_create(&self, _cx: &WriteCx<'_>, obj: &mut Value) {
        // A generated name was not known when defaults were applied.
        label_with_name(obj);
        obj.put("status", json!({"phase": "Active"}));
        let mut finalizers: Vec<Value> = obj.list("spec.finalizers").to_vec();
        if !finalizers.iter().any(|finalizer| finalizer == KUBERNETES) {
            finalizers.push(KUBERNETES.into());
        }
        obj.put("spec.finalizers", finalizers);
    }

    fn prepare_update(&self, cx: &WriteCx<'_>, new: &mut Value, old: &Value) {
        keep_status(cx, new, old);
        if cx.subresource != Some("finalize") {
            keep_finalizers(new, old);
        }
        label_with_name(new);
    }

    fn validate_create(&self, _cx: &WriteCx<'_>, obj: &Value) -> Vec<FieldError> {
        let mut found = Findings::default();
        let at = Path::new("spec.finalizers");
        for finalizer in obj.texts("spec.finalizers") {
            finalizer_name(finalizer, at, &mut found);
        }
        found.into_errors()
    }

    fn validate_update(&self, cx: &WriteCx<'_>, new: &Value, _old: &Value) -> Vec<FieldError> {
        if cx.subresource != Some("finalize") {
            return self.validate_create(cx, new);
        }
        let mut found = Findings::default();
        let at = Path::new("spec.finalizers");
        for (i, finalizer) in new.texts("spec.finalizers").into_iter().enumerate() {
            finalizer_name(finalizer, at.index(i), &mut found);
        }
        found.into_errors()
    }

    fn validate_status_update(&self, _cx: &WriteCx<'_>, new: &Value, _old: &Value) -> Vec<FieldError> {
        phase_error(new).into_iter().collect()
    }

    fn validate_name(&self, name: &str, prefix: bool) -> Vec<String> {
        validation::dns_label(validation::masked(name, prefix).as_ref())
    }

    fn outlives_deletion(&self) -> bool {
        true
    }

    fn mark_deleted(&self, obj: &mut Value) {
        obj.put("status.phase", "Terminating");
    }

    fn is_held(&self, obj: &Value) -> bool {
        !obj.list("spec.finalizers").is_empty()
    }

    fn field_labels(&self) -> Option<&'static [&'static str]> {
        Some(&["status.phase"])
    }
}

fn label_with_name(obj: &mut Value) {
    let name = obj.text("metadata.name").to_owned();
    if name.is_empty() {
        return;
    }
    if !obj.at("metadata.labels").is_object() {
        obj.put("metadata.labels", json!({}));
    }
    if let Some(labels) = obj.at_mut("metadata.labels").and_then(Value::as_object_mut) {
        labels.insert(NAME_LABEL.to_owned(), name.into());
    }
}

fn keep_finalizers(new: &mut Value, old: &Value) {
    match old.at("spec").get("finalizers") {
        Some(finalizers) => new.put("spec.finalizers", finalizers.clone()),
        None => {
            new.take_at("spec.finalizers");
        }
    }
}

fn finalizer_name(name: &str, at: Path<'_>, found: &mut Findings) {
    found.form(at, name, validation::qualified_name(name));
    if !name.contains('/') && !matches!(name, KUBERNETES | "orphan" | "foregroundDeletion") {
        found.invalid(at, name, "name is neither a standard finalizer name nor is it fully qualified");
    }
}

fn phase_error(obj: &Value) -> Option<FieldError> {
    let (wanted, state) = match obj.has("metadata.deletionTimestamp") {
        false => ("Active", "empty"),
        true => ("Terminating", "not empty"),
    };
    let phase = obj.text("status.phase");
    (phase != wanted).then(|| {
        let detail = format!("may only be '{wanted}' if `deletionTimestamp` is {state}");
        // upstream: the field is spelt with a capital.
        FieldError::invalid("status.Phase", phase, detail)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_label_tells_the_truth() {
        let mut object = json!({"metadata": {"name": "n", "labels": {NAME_LABEL: "liar"}}, "status": {}});
        Namespace.apply_defaults(&mut object);
        assert_eq!(
            object,
            json!({"metadata": {"name": "n", "labels": {NAME_LABEL: "n"}}, "status": {"phase": "Active"}})
        );
    }

    #[test]
    fn finalizers_are_qualified() {
        let table = [("kubernetes", 0), ("ex.com/f", 0), ("orphan", 0), ("mine", 1), ("", 3), ("a/b/c", 1)];
        for (name, expected) in table {
            let mut found = Findings::default();
            finalizer_name(name, Path::new("f"), &mut found);
            assert_eq!(found.into_errors().len(), expected, "{name:?}");
        }
    }

    #[test]
    fn the_phase_follows_the_deletion() {
        let bogus = json!({"metadata": {}, "status": {"phase": "Bogus"}});
        assert_eq!(
            phase_error(&bogus).map(|e| e.to_string()).as_deref(),
            Some("status.Phase: Invalid value: \"Bogus\": may only be 'Active' if `deletionTimestamp` is empty")
        );
        let mut object = json!({"metadata": {}, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}});
        assert_eq!(phase_error(&object), None);
        object.put("metadata.deletionTimestamp", "2026-01-02T03:04:05Z");
        Namespace.mark_deleted(&mut object);
        assert_eq!(phase_error(&object), None);
        assert_eq!(object["status"]["phase"], "Terminating");
        assert!(Namespace.is_held(&object));
    }

    #[test]
    fn a_name_is_a_label() {
        assert_eq!(Namespace.validate_name("a.b", false), ["must not contain dots"]);
        assert!(Namespace.validate_name("a-", true).is_empty());
    }
}
