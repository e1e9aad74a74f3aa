//! Namespace: phase `Active` until deleted, then `Terminating` until it is empty and has no finalizers.

use serde_json::{Value, json};

use super::check::{ErrorList, Path};
use super::strategy::keep_status;
use super::{Strategy, WriteCx};
use crate::field_error::FieldError;
use crate::status::{ApiError, ApiResult};
use crate::validation;
use crate::value::Json;

pub(crate) struct Namespace;

/// Label that lets namespace selectors match by name.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";
/// Finalizer that blocks the removal until the Namespace is empty.
const KUBERNETES: &str = "kubernetes";
/// Namespaces that cannot be deleted.
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
        // A generated name is not yet known when defaults are applied.
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
        let mut errors = ErrorList::default();
        let at = Path::new("spec.finalizers");
        for finalizer in obj.texts("spec.finalizers") {
            validate_finalizer(finalizer, at, &mut errors);
        }
        errors.into_vec()
    }

    fn validate_update(&self, cx: &WriteCx<'_>, new: &Value, _old: &Value) -> Vec<FieldError> {
        if cx.subresource != Some("finalize") {
            return self.validate_create(cx, new);
        }
        let mut errors = ErrorList::default();
        let at = Path::new("spec.finalizers");
        for (i, finalizer) in new.texts("spec.finalizers").into_iter().enumerate() {
            validate_finalizer(finalizer, at.index(i), &mut errors);
        }
        errors.into_vec()
    }

    fn validate_status_update(&self, _cx: &WriteCx<'_>, new: &Value, _old: &Value) -> Vec<FieldError> {
        phase_error(new).into_iter().collect()
    }

    fn validate_name(&self, name: &str, prefix: bool) -> Vec<String> {
        validation::dns_label(validation::mask_trailing_dash(name, prefix).as_ref())
    }

    fn outlives_deletion(&self) -> bool {
        true
    }

    fn mark_deleted(&self, obj: &mut Value) {
        obj.put("status.phase", "Terminating");
    }

    fn has_spec_finalizers(&self, obj: &Value) -> bool {
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

fn validate_finalizer(name: &str, at: Path<'_>, errors: &mut ErrorList) {
    errors.invalid_each(at, name, validation::qualified_name(name));
    if !name.contains('/') && !matches!(name, KUBERNETES | "orphan" | "foregroundDeletion") {
        errors.invalid(at, name, "name is neither a standard finalizer name nor is it fully qualified");
    }
}

fn phase_error(obj: &Value) -> Option<FieldError> {
    let (expected, timestamp) = match obj.has("metadata.deletionTimestamp") {
        false => ("Active", "empty"),
        true => ("Terminating", "not empty"),
    };
    let phase = obj.text("status.phase");
    (phase != expected).then(|| {
        let detail = format!("may only be '{expected}' if `deletionTimestamp` is {timestamp}");
        // upstream: the field name is capitalised.
        FieldError::invalid("status.Phase", phase, detail)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_label_is_overwritten_with_the_name() {
        let mut object = json!({"metadata": {"name": "n", "labels": {NAME_LABEL: "wrong"}}, "status": {}});
        Namespace.apply_defaults(&mut object);
        assert_eq!(
            object,
            json!({"metadata": {"name": "n", "labels": {NAME_LABEL: "n"}}, "status": {"phase": "Active"}})
        );
    }

    #[test]
    fn finalizers_are_validated() {
        let table = [("kubernetes", 0), ("ex.com/f", 0), ("orphan", 0), ("mine", 1), ("", 3), ("a/b/c", 1)];
        for (name, expected) in table {
            let mut errors = ErrorList::default();
            validate_finalizer(name, Path::new("f"), &mut errors);
            assert_eq!(errors.into_vec().len(), expected, "{name:?}");
        }
    }

    #[test]
    fn phase_follows_the_deletion_timestamp() {
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
        assert!(Namespace.has_spec_finalizers(&object));
    }

    #[test]
    fn name_is_a_dns_label() {
        assert_eq!(Namespace.validate_name("a.b", false), ["must not contain dots"]);
        assert!(Namespace.validate_name("a-", true).is_empty());
    }
}
