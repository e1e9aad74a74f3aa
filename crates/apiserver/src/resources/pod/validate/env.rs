//! Environment variables, and the references to fields that they share with files of the downward API.

use serde_json::Value;

use super::paths;
use crate::quantity;
use crate::resources::check::{Findings, Path};
use crate::validation;
use crate::value::Json;

/// The fields of a pod that a variable can show.
const VARIABLE_FIELDS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

/// The fields of a pod that a file can show.
pub(super) const FILE_FIELDS: &[&str] =
    &["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];

/// All fields that have a name here, whether or not they can be shown.
const KNOWN_FIELDS: &[&str] = &[
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.serviceAccountName",
    "spec.schedulerName",
    "status.phase",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

const RESOURCE_FIELDS: &[&str] = &[
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

pub(super) fn variables(variables: &[Value], at: Path<'_>, found: &mut Findings) {
    for (i, variable) in variables.iter().enumerate() {
        let at = at.index(i);
        match variable.text("name") {
            "" => found.required(at.child("name"), ""),
            name => found.form(at.child("name"), name, validation::env_var_name(name)),
        }
        if variable.has("valueFrom") {
            value_from(variable, at.child("valueFrom"), found);
        }
    }
}

fn value_from(variable: &Value, at: Path<'_>, found: &mut Findings) {
    let from = variable.at("valueFrom");
    type Check = fn(&Value, Path<'_>, &mut Findings);
    let sources: [(&str, Check); 5] = [
        ("fieldRef", |r, at, found| field_ref(r, VARIABLE_FIELDS, at, found)),
        ("resourceFieldRef", |r, at, found| resource_field_ref(r, false, at, found)),
        ("configMapKeyRef", key_ref),
        ("secretKeyRef", key_ref),
        ("fileKeyRef", file_key_ref),
    ];
    let mut given = 0;
    for (name, check) in sources {
        if let Some(source) = from.get(name) {
            given += 1;
            check(source, at.child(name), found);
        }
    }
    if given == 0 {
        let detail =
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`";
        found.invalid(at, "", detail);
    } else if !variable.text("value").is_empty() {
        found.invalid(at, "", "may not be specified when `value` is not empty");
    } else if given > 1 {
        found.invalid(at, "", "may not have more than one field specified at a time");
    }
}

pub(super) fn sources(sources: &[Value], at: Path<'_>, found: &mut Findings) {
    for (i, source) in sources.iter().enumerate() {
        let item = at.index(i);
        let prefix = source.text("prefix");
        if !prefix.is_empty() {
            found.form(item.child("prefix"), prefix, validation::env_var_name(prefix));
        }
        let mut given = 0;
        for kind in ["configMapRef", "secretRef"] {
            if let Some(reference) = source.get(kind) {
                given += 1;
                object_name(reference.text("name"), item.child(kind), found);
            }
        }
        // upstream: these two are reported on the list.
        match given {
            0 => found.invalid(at, "", "must specify one of: `configMapRef` or `secretRef`"),
            1 => {}
            _ => found.invalid(at, "", "may not have more than one field specified at a time"),
        }
    }
}

fn object_name(name: &str, at: Path<'_>, found: &mut Findings) {
    match name {
        "" => found.required(at.child("name"), ""),
        // upstream: checked like the start of a name, so a final dash passes.
        _ => found.form(at.child("name"), name, validation::dns_subdomain(&validation::masked(name, true))),
    }
}

fn key_ref(reference: &Value, at: Path<'_>, found: &mut Findings) {
    let name = reference.text("name");
    found.form(at.child("name"), name, validation::dns_subdomain(name));
    match reference.text("key") {
        "" => found.required(at.child("key"), ""),
        key => found.form(at.child("key"), key, validation::config_key(key)),
    }
}

fn file_key_ref(reference: &Value, at: Path<'_>, found: &mut Findings) {
    match reference.text("key") {
        "" => found.required(at.child("key"), ""),
        key => found.form(at.child("key"), key, validation::env_var_name(key)),
    }
    match reference.text("volumeName") {
        "" => found.required(at.child("volumeName"), ""),
        name => found.form(at.child("volumeName"), name, validation::dns_label(name)),
    }
    match reference.text("path") {
        "" => found.required(at.child("path"), ""),
        path => paths::no_backsteps(path, at.child("path"), found),
    }
}

// === References to fields ===

pub(super) fn field_ref(reference: &Value, allowed: &[&str], at: Path<'_>, found: &mut Findings) {
    let (version, path) = (reference.text("apiVersion"), reference.text("fieldPath"));
    if version.is_empty() {
        return found.required(at.child("apiVersion"), "");
    }
    if path.is_empty() {
        return found.required(at.child("fieldPath"), "");
    }
    let subscripted = split_subscript(path);
    if let Some(why) = unknown_field(version, path, subscripted) {
        return found.invalid(at.child("fieldPath"), path, format!("error converting fieldPath: {why}"));
    }
    match subscripted {
        Some(("metadata.annotations", key)) => {
            let key = key.to_lowercase();
            found.form(at, &key, validation::qualified_name(&key));
        }
        Some((_, key)) => found.form(at, key, validation::qualified_name(key)),
        None => found.one_of(at.child("fieldPath"), path, allowed),
    }
}

/// `metadata.labels['a']` is `metadata.labels` and `a`.
fn split_subscript(path: &str) -> Option<(&str, &str)> {
    path.strip_suffix("']")?.split_once("['").filter(|(field, _)| !field.is_empty())
}

fn unknown_field(version: &str, path: &str, subscripted: Option<(&str, &str)>) -> Option<String> {
    match subscripted {
        _ if version != "v1" => Some(format!("unsupported pod version: {version}")),
        Some(("metadata.annotations" | "metadata.labels", _)) => None,
        Some(_) => Some(format!("field label does not support subscript: {path}")),
        None if path == "spec.host" || KNOWN_FIELDS.contains(&path) => None,
        None => Some(format!("field label not supported: {path}")),
    }
}

/// A reference to what a container asks for; a file must say which container.
pub(super) fn resource_field_ref(reference: &Value, in_file: bool, at: Path<'_>, found: &mut Findings) {
    let resource = reference.text("resource");
    let huge_pages = resource.starts_with("limits.hugepages-") || resource.starts_with("requests.hugepages-");
    if in_file && reference.text("containerName").is_empty() {
        found.required(at.child("containerName"), "");
    } else if resource.is_empty() {
        found.required(at.child("resource"), "");
    } else if !huge_pages {
        found.one_of(at.child("resource"), resource, RESOURCE_FIELDS);
    }
    divisor(resource, reference.text("divisor"), at.child("divisor"), found);
}

fn divisor(resource: &str, divisor: &str, at: Path<'_>, found: &mut Findings) {
    const SIZES: &[&str] = &["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];
    if quantity::sign(divisor).is_eq() {
        return;
    }
    let (name, allowed) = match resource.split_once('.') {
        Some((_, "cpu")) => ("cpu", &["1m", "1"][..]),
        Some((_, "memory")) => ("memory", SIZES),
        Some((_, "ephemeral-storage")) => ("local ephemeral storage", SIZES),
        Some((_, pages)) if pages.starts_with("hugepages-") => ("hugepages", SIZES),
        _ => return,
    };
    if !allowed.contains(&divisor) {
        let list = if name == "cpu" { "1m and 1".to_owned() } else { SIZES.join(", ") };
        found.invalid(at, resource, format!("only divisor's values {list} are supported with the {name} resource"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn complaints(variable: Value) -> Vec<String> {
        let mut found = Findings::default();
        variables(&[variable], Path::new("env"), &mut found);
        found.into_errors().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn names_are_printable() {
        assert_eq!(complaints(json!({"name": ""})), ["env[0].name: Required value"]);
        assert_eq!(complaints(json!({"name": "1 odd-but.fine"})), Vec::<String>::new());
        assert_eq!(complaints(json!({"name": "a=b"})).len(), 1);
    }

    #[test]
    fn a_variable_has_one_source() {
        let field = json!({"apiVersion": "v1", "fieldPath": "metadata.name"});
        let key = json!({"name": "m", "key": "k"});
        let table = [
            (json!({"name": "A", "valueFrom": {"fieldRef": field}}), 0),
            (json!({"name": "A", "valueFrom": {}}), 1),
            (json!({"name": "A", "value": "x", "valueFrom": {"fieldRef": field}}), 1),
            (json!({"name": "A", "valueFrom": {"fieldRef": field, "secretKeyRef": key}}), 1),
            (json!({"name": "A", "valueFrom": {"configMapKeyRef": {"name": "m", "key": ""}}}), 1),
            (json!({"name": "A", "valueFrom": {"configMapKeyRef": {"name": "", "key": "k"}}}), 1),
        ];
        for (variable, expected) in table {
            assert_eq!(complaints(variable.clone()).len(), expected, "{variable}");
        }
    }

    #[test]
    fn only_some_fields_can_be_shown() {
        let with = |path: &str| {
            complaints(json!({"name": "A", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}))
        };
        assert_eq!(with("metadata.labels['a']"), Vec::<String>::new());
        assert_eq!(with("status.phase").len(), 1);
        assert_eq!(
            with("spec.bogus"),
            ["env[0].valueFrom.fieldRef.fieldPath: Invalid value: \"spec.bogus\": error converting fieldPath: field \
              label not supported: spec.bogus"]
        );
        assert_eq!(
            with("spec.nodeName['a']"),
            [
                "env[0].valueFrom.fieldRef.fieldPath: Invalid value: \"spec.nodeName['a']\": error converting fieldPath: \
              field label does not support subscript: spec.nodeName['a']"
            ]
        );
    }

    #[test]
    fn divisors_fit_the_resource() {
        let with = |resource: &str, divisor: &str| {
            let reference = json!({"resource": resource, "divisor": divisor});
            complaints(json!({"name": "A", "valueFrom": {"resourceFieldRef": reference}})).len()
        };
        assert_eq!(with("limits.cpu", "1m"), 0);
        assert_eq!(with("limits.cpu", "10m"), 1);
        assert_eq!(with("limits.memory", "1Mi"), 0);
        assert_eq!(with("limits.memory", "2Mi"), 1);
        assert_eq!(with("limits.bogus", "0"), 1);
        assert_eq!(with("requests.hugepages-2Mi", "1"), 0);
    }

    #[test]
    fn whole_sources_need_a_name() {
        let mut found = Findings::default();
        let list =
            [json!({"configMapRef": {"name": ""}}), json!({}), json!({"prefix": "p=", "secretRef": {"name": "s"}})];
        sources(&list, Path::new("envFrom"), &mut found);
        let texts: Vec<String> = found.into_errors().iter().map(ToString::to_string).collect();
        assert_eq!(texts.len(), 3);
        assert_eq!(texts[0], "envFrom[0].configMapRef.name: Required value");
        assert_eq!(texts[1], "envFrom: Invalid value: \"\": must specify one of: `configMapRef` or `secretRef`");
    }
}
