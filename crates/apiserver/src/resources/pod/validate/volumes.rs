//! The volumes of a pod.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{paths, projections};
use crate::field_error::FieldError;
use crate::quantity;
use crate::resources::check::{Findings, Path};
use crate::validation;
use crate::value::Json;

/// The sound volumes of a pod by name, for containers to refer to.
pub(super) type Volumes<'a> = BTreeMap<&'a str, &'a Value>;

type Check = fn(&Value, Path<'_>, &mut Findings);

enum Rule {
    /// These fields must be there.
    Required(&'static [&'static str]),
    Check(Check),
}

/// The sources in the order they are looked at; the first one found counts, any other is one too many.
/// Of sources that no node has a driver for any more, only the required fields are checked.
const SOURCES: &[(&str, Rule)] = &[
    ("emptyDir", Rule::Check(empty_dir)),
    ("hostPath", Rule::Check(host_path)),
    ("gitRepo", Rule::Check(git_repo)),
    ("gcePersistentDisk", Rule::Required(&["pdName"])),
    ("awsElasticBlockStore", Rule::Required(&["volumeID"])),
    ("secret", Rule::Check(secret)),
    ("nfs", Rule::Check(nfs)),
    ("iscsi", Rule::Required(&["targetPortal", "iqn"])),
    ("glusterfs", Rule::Required(&["endpoints", "path"])),
    ("flocker", Rule::Check(flocker)),
    ("persistentVolumeClaim", Rule::Required(&["claimName"])),
    ("rbd", Rule::Required(&["monitors", "image"])),
    ("cinder", Rule::Required(&["volumeID"])),
    ("cephfs", Rule::Required(&["monitors"])),
    ("quobyte", Rule::Required(&["registry", "volume"])),
    ("downwardAPI", Rule::Check(projections::downward_api)),
    ("fc", Rule::Required(&[])),
    ("flexVolume", Rule::Required(&["driver"])),
    ("configMap", Rule::Check(config_map)),
    ("azureFile", Rule::Required(&["secretName", "shareName"])),
    ("vsphereVolume", Rule::Required(&["volumePath"])),
    ("photonPersistentDisk", Rule::Required(&["pdID"])),
    ("portworxVolume", Rule::Required(&["volumeID"])),
    ("azureDisk", Rule::Required(&["diskName", "diskURI"])),
    ("storageos", Rule::Required(&[])),
    ("projected", Rule::Check(projections::projected)),
    ("scaleIO", Rule::Required(&["gateway", "system", "volumeName"])),
    ("csi", Rule::Check(csi)),
    ("ephemeral", Rule::Check(ephemeral)),
    ("image", Rule::Check(image)),
];

/// Checks all volumes and answers those without errors. `pod_name` is known for real pods only.
pub(super) fn validate<'a>(
    volumes: &'a [Value],
    pod_name: Option<&str>,
    at: Path<'_>,
    found: &mut Findings,
) -> Volumes<'a> {
    let mut sound = Volumes::new();
    for (i, volume) in volumes.iter().enumerate() {
        let at = at.index(i);
        let before = found.len();
        one_source(volume, pod_name, at, found);
        let name = volume.text("name");
        match name {
            "" => found.required(at.child("name"), ""),
            _ => found.form(at.child("name"), name, validation::dns_label(name)),
        }
        if sound.contains_key(name) {
            found.duplicate(at.child("name"), name);
        }
        if found.len() == before {
            sound.insert(name, volume);
        }
        claimed_twice(volume, volumes, pod_name, at, found);
    }
    sound
}

fn one_source(volume: &Value, pod_name: Option<&str>, at: Path<'_>, found: &mut Findings) {
    let mut taken = false;
    for (name, rule) in SOURCES {
        let Some(source) = volume.get(name) else { continue };
        if taken {
            found.forbidden(at.child(misspelt(name)), "may not specify more than 1 volume type");
            continue;
        }
        taken = true;
        let source_at = at.child(if *name == "gcePersistentDisk" { "persistentDisk" } else { name });
        match rule {
            Rule::Required(fields) => required_fields(source, fields, source_at, found),
            Rule::Check(check) => check(source, source_at, found),
        }
        if *name == "ephemeral" {
            claim_name(volume.text("name"), pod_name, at, found);
        }
    }
    if !taken {
        found.required(at, "must specify a volume type");
    }
}

/// upstream: two sources are misspelt when they are one too many, and GCE disks when something in them is wrong.
fn misspelt(source: &'static str) -> &'static str {
    match source {
        "cephfs" => "cephFS",
        "downwardAPI" => "downwarAPI",
        _ => source,
    }
}

pub(super) fn required_fields(source: &Value, fields: &[&str], at: Path<'_>, found: &mut Findings) {
    let blank = |value: &Value| value.is_null() || value == "" || value.as_array().is_some_and(Vec::is_empty);
    for field in fields.iter().filter(|field| blank(source.at(field))) {
        found.required(at.child(field), "");
    }
}

// === The claims that ephemeral volumes create ===

fn created_claim(pod_name: &str, volume: &str) -> String {
    format!("{pod_name}-{volume}")
}

fn claim_name(volume: &str, pod_name: Option<&str>, at: Path<'_>, found: &mut Findings) {
    let Some(pod_name) = pod_name.filter(|name| !name.is_empty() && !volume.is_empty()) else { return };
    let claim = created_claim(pod_name, volume);
    for complaint in validation::dns_subdomain(&claim) {
        found.invalid(at.child("name"), volume, format!("PVC name {claim:?}: {complaint}"));
    }
}

fn claimed_twice(volume: &Value, volumes: &[Value], pod_name: Option<&str>, at: Path<'_>, found: &mut Findings) {
    let claim = volume.text("persistentVolumeClaim.claimName");
    let Some(pod_name) = pod_name.filter(|name| !name.is_empty() && !claim.is_empty()) else { return };
    let created = |v: &Value| v.has("ephemeral") && created_claim(pod_name, v.text("name")) == claim;
    if volumes.iter().any(created) {
        let detail = "must not reference a PVC that gets created for an ephemeral volume";
        found.invalid(at.child("persistentVolumeClaim.claimName"), claim, detail);
    }
}

// === Sources ===

fn empty_dir(source: &Value, at: Path<'_>, found: &mut Findings) {
    if quantity::is_negative(source.text("sizeLimit")) {
        found.forbidden(at.child("sizeLimit"), "SizeLimit field must be a valid resource quantity");
    }
}

fn host_path(source: &Value, at: Path<'_>, found: &mut Findings) {
    const TYPES: &[&str] =
        &["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];
    let path = source.text("path");
    if path.is_empty() {
        return found.required(at.child("path"), "");
    }
    paths::no_backsteps(path, at.child("path"), found);
    found.one_of(at.child("type"), source.text("type"), TYPES);
}

fn git_repo(source: &Value, at: Path<'_>, found: &mut Findings) {
    required_fields(source, &["repository"], at, found);
    paths::descending(source.text("directory"), at.child("directory"), found);
}

fn secret(source: &Value, at: Path<'_>, found: &mut Findings) {
    required_fields(source, &["secretName"], at, found);
    key_files(source, at, found);
}

fn config_map(source: &Value, at: Path<'_>, found: &mut Findings) {
    required_fields(source, &["name"], at, found);
    key_files(source, at, found);
}

fn key_files(source: &Value, at: Path<'_>, found: &mut Findings) {
    file_mode(source.int("defaultMode"), at.child("defaultMode"), found);
    let items = at.child("items");
    for (i, item) in source.list("items").iter().enumerate() {
        key_to_path(item, items.index(i), found);
    }
}

pub(super) fn key_to_path(item: &Value, at: Path<'_>, found: &mut Findings) {
    required_fields(item, &["key", "path"], at, found);
    paths::unreserved(item.text("path"), at.child("path"), found);
    file_mode(item.int("mode"), at.child("mode"), found);
}

pub(super) fn file_mode(mode: Option<i64>, at: Path<'_>, found: &mut Findings) {
    if let Some(mode) = mode.filter(|mode| !(0..=0o777).contains(mode)) {
        found.invalid(at, mode, "must be a number between 0 and 0777 (octal), both inclusive");
    }
}

fn nfs(source: &Value, at: Path<'_>, found: &mut Findings) {
    required_fields(source, &["server", "path"], at, found);
    let path = source.text("path");
    if !path.starts_with('/') {
        found.invalid(at.child("path"), path, "must be an absolute path");
    }
}

fn flocker(source: &Value, at: Path<'_>, found: &mut Findings) {
    match (source.text("datasetName"), source.text("datasetUUID")) {
        ("", "") => found.required(at, "one of datasetName and datasetUUID is required"),
        (name, uuid) if !name.is_empty() && !uuid.is_empty() => {
            found.invalid(at, "resource", "datasetName and datasetUUID can not be specified simultaneously");
        }
        (name, _) if name.contains('/') => found.invalid(at.child("datasetName"), name, "must not contain '/'"),
        _ => {}
    }
}

fn csi(source: &Value, at: Path<'_>, found: &mut Findings) {
    let driver = source.text("driver");
    if driver.is_empty() {
        found.required(at.child("driver"), "");
    } else {
        if driver.len() > 63 {
            found.push(FieldError::too_long(at.child("driver"), 63));
        }
        found.form(at.child("driver"), driver, validation::dns_subdomain(&driver.to_lowercase()));
    }
    if source.has("nodePublishSecretRef") {
        required_fields(source.at("nodePublishSecretRef"), &["name"], at.child("nodePublishSecretRef"), found);
    }
}

fn ephemeral(source: &Value, at: Path<'_>, found: &mut Findings) {
    const MODES: &[&str] = &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
    let claim = source.at("volumeClaimTemplate");
    if claim.is_null() {
        return found.required(at.child("volumeClaimTemplate"), "");
    }
    let spec = claim.at("spec");
    let at = at.child("volumeClaimTemplate.spec");
    let modes = spec.texts("accessModes");
    if modes.is_empty() {
        found.required(at.child("accessModes"), "at least 1 access mode is required");
    }
    for mode in modes {
        found.one_of(at.child("accessModes"), mode, MODES);
    }
    let resources = at.child("resources");
    match spec.text("resources.requests.storage") {
        "" => found.required(resources.key("storage"), ""),
        size if quantity::sign(size).is_le() => found.invalid(resources.key("storage"), size, validation::POSITIVE),
        _ => {}
    }
    found.one_of(at.child("volumeMode"), spec.text("volumeMode"), &["Block", "Filesystem"]);
}

fn image(source: &Value, at: Path<'_>, found: &mut Findings) {
    required_fields(source, &["reference"], at, found);
    found.required_one_of(at.child("pullPolicy"), source.text("pullPolicy"), super::PULL_POLICIES);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn complaints(volumes: Value) -> Vec<String> {
        let mut found = Findings::default();
        let list = volumes.as_array().cloned().unwrap_or_default();
        validate(&list, Some("pod"), Path::new("v"), &mut found);
        found.into_errors().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn names_are_unique_labels() {
        let good = json!({"name": "a", "emptyDir": {}});
        assert_eq!(complaints(json!([good])), Vec::<String>::new());
        assert_eq!(complaints(json!([good, good])), ["v[1].name: Duplicate value: \"a\""]);
        assert_eq!(complaints(json!([{"name": "", "emptyDir": {}}])), ["v[0].name: Required value"]);
        assert_eq!(complaints(json!([{"name": "a.b", "emptyDir": {}}])).len(), 1);
    }

    #[test]
    fn a_volume_has_one_source() {
        assert_eq!(
            complaints(json!([{"name": "a", "emptyDir": {}, "secret": {"secretName": "s"}, "cephfs": {}}])),
            [
                "v[0].secret: Forbidden: may not specify more than 1 volume type",
                "v[0].cephFS: Forbidden: may not specify more than 1 volume type"
            ]
        );
        assert_eq!(complaints(json!([{"name": "a"}])), ["v[0]: Required value: must specify a volume type"]);
    }

    #[test]
    fn sources_are_checked() {
        let table = [
            (json!({"hostPath": {"path": "/a/../b", "type": "Odd"}}), 2),
            (json!({"hostPath": {"path": "", "type": ""}}), 1),
            (json!({"secret": {"secretName": "", "defaultMode": 4096}}), 2),
            (json!({"configMap": {"name": "m", "items": [{"key": "k", "path": "../x", "mode": -1}]}}), 2),
            (json!({"persistentVolumeClaim": {"claimName": ""}}), 1),
            (json!({"nfs": {"server": "s", "path": "rel"}}), 1),
            (json!({"ephemeral": {}}), 1),
            (json!({"csi": {"driver": "Some.Driver"}}), 0),
        ];
        for (source, expected) in table {
            let mut volume = source.clone();
            volume["name"] = "a".into();
            assert_eq!(complaints(json!([volume])).len(), expected, "{source}");
        }
    }

    #[test]
    fn a_claim_that_an_ephemeral_volume_makes_cannot_be_used_too() {
        let spec = json!({"accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem", "resources": {"requests": {"storage": "1Gi"}}});
        let got = complaints(json!([
            {"name": "a", "ephemeral": {"volumeClaimTemplate": {"spec": spec}}},
            {"name": "b", "persistentVolumeClaim": {"claimName": "pod-a"}},
        ]));
        assert_eq!(got.len(), 1, "{got:?}");
    }
}
