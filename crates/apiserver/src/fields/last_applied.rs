//! Migration between client-side and server-side `kubectl apply`.
//!
//! Client-side apply stores the last applied configuration in an annotation. When the manager `kubectl` first applies on
//! the server, conflicts about fields in that annotation are ignored, because kubectl set them. An existing annotation is
//! kept up to date, so that users can return to client-side apply.

use serde_json::{Map, Value};

use super::compare::Changes;
use super::element;
use super::extract;
use super::set::FieldSet;
use super::shape::Shape;
use super::validate::validate;
use crate::resources::Resource;

/// The manager that these rules apply to.
pub(super) const MANAGER: &str = "kubectl";

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Maximum total size of the annotations of an object, in bytes.
const MAX_ANNOTATIONS: usize = 256 * 1024;

/// Returns the fields in the annotation of `live` that still have the value that kubectl set.
pub(super) fn kubectl_fields(resource: &Resource, live: &Value) -> Option<FieldSet> {
    let text = annotation(live)?;
    let applied: Value = serde_json::from_str(text).ok()?;
    let shape = Shape::root(resource.type_id());
    if applied.get("apiVersion")?.as_str()? != resource.api_version() || validate(shape, &applied).is_err() {
        return None;
    }
    let changes = Changes::between(shape, &applied, live);
    let mut fields = extract::fields_of(shape, &applied);
    for changed in [&changes.modified, &changes.added, &changes.removed] {
        fields.subtract(changed);
    }
    Some(fields)
}

fn annotation(object: &Value) -> Option<&str> {
    object.get("metadata")?.get("annotations")?.get(ANNOTATION)?.as_str().filter(|text| !text.is_empty())
}

/// Updates the annotation if `object` has it, and removes it if the annotations become too large.
pub(super) fn refresh(object: &mut Value, applied: &Value) {
    if annotation(object).is_none() {
        return;
    }
    let Some(annotations) = annotations_mut(object) else { return };
    annotations.insert(ANNOTATION.to_owned(), Value::String(annotation_value(applied)));
    let size: usize = annotations.iter().map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum();
    if size > MAX_ANNOTATIONS {
        annotations.remove(ANNOTATION);
    }
}

/// Formats the applied object without the annotation itself as a line of JSON.
fn annotation_value(applied: &Value) -> String {
    let mut applied = applied.clone();
    if let Some(annotations) = annotations_mut(&mut applied) {
        annotations.remove(ANNOTATION);
    }
    element::json_text(&applied) + "\n"
}

fn annotations_mut(object: &mut Value) -> Option<&mut Map<String, Value>> {
    object.get_mut("metadata")?.get_mut("annotations")?.as_object_mut()
}
