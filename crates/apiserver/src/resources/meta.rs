//! Metadata validation shared by all kinds: names, labels, owner references, finalizers and immutable fields.
//!
//! The request path sets UID, timestamps and generated names, and checks the resourceVersion.

use std::collections::{BTreeSet, HashSet};

use serde_json::Value;

use super::{Resource, WriteCx};
use crate::field_error::{FieldError, typed_json};
use crate::go_text;
use crate::schema::{Ty, schema};
use crate::validation;
use crate::value::Json;

const MANAGER_MAX: usize = 128;
const SUBRESOURCE_MAX: usize = 256;
const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";
/// Finalizers that are valid without a domain.
const STANDARD_FINALIZERS: &[&str] = &["kubernetes", ORPHAN, FOREGROUND];

/// Validates `metadata` of a new object, including name and generateName.
pub(crate) fn validate_create(cx: &WriteCx<'_>, obj: &Value) -> Vec<FieldError> {
    create_errors(cx.resource, obj)
}

/// Validates `metadata` of an update. Kinds that check a changed generateName call [`validate_name`] themselves.
pub(crate) fn validate_update(cx: &WriteCx<'_>, new: &Value, old: &Value) -> Vec<FieldError> {
    update_errors(cx.resource, new, old)
}

fn create_errors(resource: &Resource, obj: &Value) -> Vec<FieldError> {
    let mut errors = validate_name(resource, obj);
    if obj.text("metadata.name").is_empty() {
        errors.push(FieldError::required("metadata.name", "name or generateName is required"));
    }
    errors.extend(common_errors(resource, obj));
    errors.extend(finalizer_domain_errors(resource, obj));
    errors
}

fn update_errors(resource: &Resource, new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = common_errors(resource, new);
    if old.has("metadata.deletionTimestamp") {
        errors.extend(added_finalizers_error(new, old));
    }
    if let (Some(current), Some(previous)) = (new.int("metadata.generation"), old.int("metadata.generation"))
        && current < previous
    {
        errors.push(FieldError::invalid("metadata.generation", current, "must not be decremented"));
    }
    errors.extend(immutable_errors(new, old));
    errors.extend(finalizer_domain_errors(resource, new));
    errors
}

/// Validates name and generateName by the rules of the kind.
pub(crate) fn validate_name(resource: &Resource, obj: &Value) -> Vec<FieldError> {
    let (name, prefix) = (obj.text("metadata.name"), obj.text("metadata.generateName"));
    let mut errors = Vec::new();
    if !prefix.is_empty() {
        let texts = resource.strategy.validate_name(prefix, true);
        errors.extend(validation::invalid_each("metadata.generateName", prefix, texts));
    }
    if !name.is_empty() {
        let texts = resource.strategy.validate_name(name, false);
        errors.extend(validation::invalid_each("metadata.name", name, texts));
    }
    errors
}

/// Returns the errors that creates and updates have in common.
fn common_errors(resource: &Resource, obj: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    errors.extend(namespace_errors(resource, obj.text("metadata.namespace")));
    let generation = obj.int("metadata.generation").unwrap_or_default();
    errors.extend(validation::not_negative("metadata.generation", generation));
    errors.extend(validation::labels("metadata.labels", obj.map("metadata.labels")));
    errors.extend(validation::annotations("metadata.annotations", obj.map("metadata.annotations")));
    errors.extend(owner_references_errors(obj.list("metadata.ownerReferences")));
    errors.extend(finalizers_errors(obj));
    for (i, entry) in obj.list("metadata.managedFields").iter().enumerate() {
        errors.extend(managed_fields_entry_errors(i, entry));
    }
    errors
}

fn namespace_errors(resource: &Resource, namespace: &str) -> Vec<FieldError> {
    const FIELD: &str = "metadata.namespace";
    match (resource.namespaced, namespace) {
        (true, "") => vec![FieldError::required(FIELD, "")],
        (true, _) => validation::invalid_each(FIELD, namespace, validation::dns_label(namespace)),
        (false, "") => Vec::new(),
        (false, _) => vec![FieldError::forbidden(FIELD, "not allowed on this type")],
    }
}

// === Owner references ===

fn owner_references_errors(owners: &[Value]) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut controller: Option<String> = None;
    for (i, owner) in owners.iter().enumerate() {
        errors.extend(owner_reference_errors(i, owner));
        if owner.at("controller") != &Value::Bool(true) {
            continue;
        }
        let this = format!("{}/{}", owner.text("kind"), owner.text("name"));
        match &controller {
            Some(first) => errors.push(multiple_controllers_error(owners, first, &this)),
            None => controller = Some(this),
        }
    }
    errors
}

fn owner_reference_errors(i: usize, owner: &Value) -> Vec<FieldError> {
    let at = |child: &str| format!("metadata.ownerReferences[{i}]{child}");
    let mut errors = Vec::new();
    let api_version = owner.text("apiVersion");
    let version = version_of(api_version);
    if api_version.is_empty() {
        errors.push(FieldError::required(at(".apiVersion"), "must not be empty"));
    } else if version.is_none_or(str::is_empty) {
        errors.push(FieldError::invalid(at(".apiVersion"), api_version, "must be <group>/<version> or <version>"));
    }
    for child in ["kind", "name", "uid"] {
        if owner.text(child).is_empty() {
            errors.push(FieldError::required(at(&format!(".{child}")), "must not be empty"));
        }
    }
    // Events are numerous and expire on their own, so they must not own other objects.
    if owner.text("kind") == "Event" && matches!(api_version, "v1" | "/v1") {
        let shown = typed_json(&owner_type(), owner);
        errors.push(FieldError::invalid_as(at(""), shown, "/v1, Kind=Event is disallowed from being an owner"));
    }
    errors
}

/// Returns the version of `version` or `group/version`.
fn version_of(api_version: &str) -> Option<&str> {
    match api_version.split_once('/') {
        None => Some(api_version),
        Some((_, version)) if !version.contains('/') => Some(version),
        Some(_) => None,
    }
}

fn multiple_controllers_error(owners: &[Value], first: &str, second: &str) -> FieldError {
    let shown = typed_json(&Ty::List(Box::new(owner_type())), &Value::Array(owners.to_vec()));
    let detail = format!(
        "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {second}"
    );
    FieldError::invalid_as("metadata.ownerReferences", shown, detail)
}

fn owner_type() -> Ty {
    Ty::Struct(schema().id("meta/v1.OwnerReference"))
}

// === Finalizers ===

fn finalizers_errors(obj: &Value) -> Vec<FieldError> {
    const FIELD: &str = "metadata.finalizers";
    let names = obj.texts(FIELD);
    let mut errors: Vec<FieldError> =
        names.iter().flat_map(|name| validation::invalid_each(FIELD, name, validation::qualified_name(name))).collect();
    if names.contains(&ORPHAN) && names.contains(&FOREGROUND) {
        let detail = format!("finalizer {ORPHAN} and {FOREGROUND} cannot be both set");
        errors.push(FieldError::invalid(FIELD, obj.at(FIELD).clone(), detail));
    }
    errors
}

/// Finalizers other than the standard ones need the form `domain/name`.
fn finalizer_domain_errors(resource: &Resource, obj: &Value) -> Vec<FieldError> {
    if !finalizers_need_domain(resource) {
        return Vec::new();
    }
    let bare = |name: &str| !name.contains('/') && !STANDARD_FINALIZERS.contains(&name);
    let detail = "name is neither a standard finalizer name nor is it fully qualified";
    let names = obj.texts("metadata.finalizers").into_iter().enumerate();
    names
        .filter(|(_, name)| bare(name))
        .map(|(i, name)| FieldError::invalid(format!("metadata.finalizers[{i}]"), name, detail))
        .collect()
}

// upstream: depends on which helper the validation of each kind calls.
fn finalizers_need_domain(resource: &Resource) -> bool {
    match resource.group {
        "coordination.k8s.io" | "rbac.authorization.k8s.io" => false,
        "" => resource.kind != "Event",
        _ => true,
    }
}

fn added_finalizers_error(new: &Value, old: &Value) -> Option<FieldError> {
    let had = old.texts("metadata.finalizers");
    let added: BTreeSet<&str> =
        new.texts("metadata.finalizers").into_iter().filter(|name| !had.contains(name)).collect();
    if added.is_empty() {
        return None;
    }
    let list: Vec<String> = added.into_iter().map(go_text::quote).collect();
    let detail = format!(
        "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
        list.join(", ")
    );
    Some(FieldError::forbidden("metadata.finalizers", detail))
}

// === Immutable fields ===

/// A field that the update omits keeps its value, and so does a timestamp once set (the `bool`). Any other change of these
/// fields is an error.
fn immutable_errors(new: &Value, old: &Value) -> Vec<FieldError> {
    const FIXED: &[(&str, bool)] = &[
        ("metadata.name", false),
        ("metadata.namespace", false),
        ("metadata.uid", false),
        ("metadata.creationTimestamp", true),
        ("metadata.deletionTimestamp", true),
        ("metadata.deletionGracePeriodSeconds", false),
    ];
    let stays = |field: &str, restored: bool| !new.has(field) || (restored && old.has(field));
    FIXED
        .iter()
        .filter(|(field, restored)| !stays(field, *restored))
        .filter_map(|(field, _)| validation::immutable(field, new.at(field), old.at(field)))
        .collect()
}

// === Managed fields ===

fn managed_fields_entry_errors(i: usize, entry: &Value) -> Vec<FieldError> {
    let at = |child: &str| format!("metadata.managedFields[{i}].{child}");
    let mut errors = Vec::new();
    match entry.text("operation") {
        "Apply" | "Update" => {}
        "" => errors.push(FieldError::required(at("operation"), "must not be empty")),
        other => errors.push(FieldError::not_supported(at("operation"), other, &["Apply", "Update"])),
    }
    let fields_type = entry.text("fieldsType");
    if !matches!(fields_type, "" | "FieldsV1") {
        errors.push(FieldError::invalid(at("fieldsType"), fields_type, "must be `FieldsV1`"));
    }
    errors.extend(validate_manager(|| at("manager"), entry.text("manager")));
    if entry.text("subresource").len() > SUBRESOURCE_MAX {
        errors.push(FieldError::too_long(at("subresource"), SUBRESOURCE_MAX));
    }
    errors
}

/// Validates the name of a field manager.
pub(crate) fn validate_manager(field: impl Fn() -> String, manager: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if manager.len() > MANAGER_MAX {
        errors.push(FieldError::too_long(field(), MANAGER_MAX));
    }
    for (at, c) in manager.char_indices().filter(|(_, c)| !go_text::is_printable(*c)) {
        let detail = format!("invalid character U+{:04X} (at position {at})", u32::from(c));
        errors.push(FieldError::invalid(field(), manager, detail));
    }
    errors
}

// === Duplicate owner references ===

/// Removes duplicate owner references. Returns the texts for `Warning` headers.
pub(crate) fn dedup_owner_references(obj: &mut Value) -> Vec<String> {
    dedup_with_warning(obj, "contains duplicate entries")
}

/// As [`dedup_owner_references`], for the result of a patch.
pub(crate) fn dedup_patched_owner_references(obj: &mut Value) -> Vec<String> {
    dedup_with_warning(obj, "contains duplicate entries after mutating admission happens")
}

fn dedup_with_warning(obj: &mut Value, what: &str) -> Vec<String> {
    let duplicates = remove_duplicate_owners(obj);
    if duplicates.is_empty() {
        return Vec::new();
    }
    vec![format!(
        ".metadata.ownerReferences {what}; API server dedups owner references in 1.20+, and may reject such requests \
         as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
        duplicates.join(", ")
    )]
}

/// Removes references that equal an earlier one and returns their UIDs.
fn remove_duplicate_owners(obj: &mut Value) -> Vec<String> {
    let Some(owners) = obj.list_mut("metadata.ownerReferences") else { return Vec::new() };
    let (mut seen, mut duplicates) = (HashSet::new(), Vec::new());
    owners.retain(|owner| {
        let is_new = seen.insert(owner.to_string());
        if !is_new {
            duplicates.push(owner.text("uid").to_owned());
        }
        is_new
    });
    duplicates
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::{RESOURCES, find};
    use serde_json::json;

    fn config_map(metadata: Value) -> Value {
        let mut obj = json!({"metadata": {"name": "a", "namespace": "n"}});
        for (key, value) in metadata.as_object().into_iter().flatten() {
            obj["metadata"][key] = value.clone();
        }
        obj
    }

    fn resource(plural: &str) -> &'static Resource {
        RESOURCES.iter().find(|r| r.plural == plural).unwrap()
    }

    fn created(plural: &str, metadata: Value) -> Vec<String> {
        texts(create_errors(resource(plural), &config_map(metadata)))
    }

    fn changed(new: Value, old: Value) -> Vec<String> {
        texts(update_errors(resource("configmaps"), &config_map(new), &config_map(old)))
    }

    fn texts(errors: Vec<FieldError>) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    const NONE: [&str; 0] = [];

    #[test]
    fn name_is_required_and_follows_the_rules_of_the_kind() {
        assert_eq!(
            created("configmaps", json!({"name": ""})),
            ["metadata.name: Required value: name or generateName is required"]
        );
        assert_eq!(created("configmaps", json!({"name": "a.b"})), NONE);
        let bad = created("configmaps", json!({"name": "Bad_x", "generateName": "Bad_"}));
        assert!(bad[0].starts_with("metadata.generateName: Invalid value: \"Bad_\": a lowercase RFC 1123"), "{bad:?}");
        assert!(bad[1].starts_with("metadata.name: Invalid value: \"Bad_x\""), "{bad:?}");
    }

    #[test]
    fn finalizers_need_a_domain() {
        assert_eq!(
            created("configmaps", json!({"finalizers": ["noslash"]})),
            [
                "metadata.finalizers[0]: Invalid value: \"noslash\": name is neither a standard finalizer name nor is it fully qualified"
            ]
        );
        assert_eq!(created("leases", json!({"finalizers": ["noslash"]})), NONE);
        assert_eq!(created("configmaps", json!({"finalizers": ["ex.com/a", "orphan"]})), NONE);
        assert_eq!(
            created("configmaps", json!({"finalizers": ["orphan", "foregroundDeletion"]})),
            [
                "metadata.finalizers: Invalid value: [\"orphan\",\"foregroundDeletion\"]: finalizer orphan and foregroundDeletion cannot be both set"
            ]
        );
    }

    #[test]
    fn owner_references_are_validated() {
        let owner = |name: &str, uid: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid, "controller": true});
        assert_eq!(
            created(
                "configmaps",
                json!({"ownerReferences": [{"apiVersion": "a/b/c", "kind": "ConfigMap", "name": "x", "uid": ""}]})
            ),
            [
                "metadata.ownerReferences[0].apiVersion: Invalid value: \"a/b/c\": must be <group>/<version> or <version>",
                "metadata.ownerReferences[0].uid: Required value: must not be empty"
            ]
        );
        assert_eq!(
            created("configmaps", json!({"ownerReferences": [owner("x", "u1"), owner("y", "u2")]})),
            [
                r#"metadata.ownerReferences: Invalid value: [{"apiVersion":"v1","kind":"ConfigMap","name":"x","uid":"u1","controller":true},{"apiVersion":"v1","kind":"ConfigMap","name":"y","uid":"u2","controller":true}]: Only one reference can have Controller set to true. Found "true" in references for ConfigMap/x and ConfigMap/y"#
            ]
        );
        assert_eq!(
            created(
                "configmaps",
                json!({"ownerReferences": [{"apiVersion": "v1", "kind": "Event", "name": "e", "uid": "u"}]})
            ),
            [
                r#"metadata.ownerReferences[0]: Invalid value: {"apiVersion":"v1","kind":"Event","name":"e","uid":"u"}: /v1, Kind=Event is disallowed from being an owner"#
            ]
        );
    }

    #[test]
    fn identity_is_immutable() {
        assert_eq!(
            changed(json!({"uid": "u9"}), json!({"uid": "u1"})),
            ["metadata.uid: Invalid value: \"u9\": field is immutable"]
        );
        assert_eq!(
            changed(json!({"deletionTimestamp": "2001-01-01T00:00:00Z"}), json!({})),
            ["metadata.deletionTimestamp: Invalid value: \"2001-01-01T00:00:00Z\": field is immutable"]
        );
        assert_eq!(changed(json!({}), json!({"uid": "u1", "creationTimestamp": "2001-01-01T00:00:00Z"})), NONE);
    }

    #[test]
    fn finalizers_cannot_be_added_during_deletion() {
        let old = json!({"deletionTimestamp": "2001-01-01T00:00:00Z", "finalizers": ["ex.com/f"]});
        assert_eq!(
            changed(json!({"finalizers": ["ex.com/f", "ex.com/h", "ex.com/g"]}), old.clone()),
            [
                "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{\"ex.com/g\", \"ex.com/h\"}"
            ]
        );
        assert_eq!(changed(json!({"finalizers": []}), old), NONE);
    }

    #[test]
    fn managed_fields_entries_are_validated() {
        assert_eq!(
            created(
                "configmaps",
                json!({"managedFields": [{"manager": "a\u{7}b", "operation": "Do", "fieldsType": "V2"}]})
            ),
            [
                "metadata.managedFields[0].operation: Unsupported value: \"Do\": supported values: \"Apply\", \"Update\"",
                "metadata.managedFields[0].fieldsType: Invalid value: \"V2\": must be `FieldsV1`",
                "metadata.managedFields[0].manager: Invalid value: \"a\\ab\": invalid character U+0007 (at position 1)"
            ]
        );
    }

    #[test]
    fn cluster_scoped_kinds_reject_a_namespace() {
        assert_eq!(created("nodes", json!({})), ["metadata.namespace: Forbidden: not allowed on this type"]);
    }

    #[test]
    fn duplicate_owner_references_are_removed_with_a_warning() {
        let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "u1"});
        let other = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "y", "uid": "u1"});
        let mut obj = config_map(json!({"ownerReferences": [owner, other, owner]}));
        assert_eq!(
            dedup_owner_references(&mut obj),
            [
                ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: u1"
            ]
        );
        assert_eq!(obj.list("metadata.ownerReferences"), [owner, other]);
        assert_eq!(dedup_owner_references(&mut obj), NONE);
    }

    #[test]
    fn finalizer_domain_rule_depends_on_the_kind() {
        let needs = |group, plural| find(group, "v1", plural).map(finalizers_need_domain);
        assert_eq!(needs("", "events"), Some(false));
        assert_eq!(needs("events.k8s.io", "events"), Some(true));
        assert_eq!(needs("rbac.authorization.k8s.io", "roles"), Some(false));
        assert_eq!(needs("apps", "deployments"), Some(true));
    }
}
