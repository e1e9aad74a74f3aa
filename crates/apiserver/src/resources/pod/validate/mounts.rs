//! The volumes that a container mounts or uses as devices.

use serde_json::Value;

use super::paths;
use super::volumes::Volumes;
use crate::resources::check::{Findings, Path};
use crate::value::Json;

pub(super) fn validate(container: &Value, volumes: &Volumes<'_>, at: Path<'_>, found: &mut Findings) {
    mounts(container, volumes, at.child("volumeMounts"), found);
    devices(container, volumes, at.child("volumeDevices"), found);
}

fn mounts(container: &Value, volumes: &Volumes<'_>, at: Path<'_>, found: &mut Findings) {
    let devices = container.list("volumeDevices");
    let mut taken: Vec<&str> = Vec::new();
    for (i, mount) in container.list("volumeMounts").iter().enumerate() {
        let item = at.index(i);
        let (name, path) = (mount.text("name"), mount.text("mountPath"));
        if name.is_empty() {
            found.required(item.child("name"), "");
        }
        if !volumes.contains_key(name) {
            found.not_found(item.child("name"), name);
        }
        if path.is_empty() {
            found.required(item.child("mountPath"), "");
        }
        if taken.contains(&path) {
            found.invalid(item.child("mountPath"), path, "must be unique");
        }
        taken.push(path);
        if devices.iter().any(|device| device.text("name") == name) {
            found.invalid(item.child("name"), name, "must not already exist in volumeDevices");
        }
        if devices.iter().any(|device| device.text("devicePath") == path) {
            found.invalid(item.child("mountPath"), path, "must not already exist as a path in volumeDevices");
        }
        sub_path(mount, item, at, found);
        propagation(mount, container, at, found);
    }
}

/// upstream: from here on, errors are reported on the list instead of the item.
fn sub_path(mount: &Value, item: Path<'_>, list: Path<'_>, found: &mut Findings) {
    let (plain, expression) = (mount.text("subPath"), mount.text("subPathExpr"));
    paths::descending(plain, list.child("subPath"), found);
    if !plain.is_empty() && !expression.is_empty() {
        found.invalid(item.child("subPathExpr"), expression, "subPathExpr and subPath are mutually exclusive");
    }
    paths::descending(expression, list.child("subPathExpr"), found);
}

fn propagation(mount: &Value, container: &Value, list: Path<'_>, found: &mut Findings) {
    let at = list.child("mountPropagation");
    let mode = mount.get("mountPropagation").and_then(Value::as_str);
    if let Some(mode) = mode {
        found.one_of(at, mode, &["Bidirectional", "HostToContainer", "None"]);
        if mode == "Bidirectional" && container.at("securityContext.privileged") != true {
            found.forbidden(at, "Bidirectional mount propagation is available only to privileged containers");
        }
    }
    let at = list.child("recursiveReadOnly");
    match mount.get("recursiveReadOnly").and_then(Value::as_str) {
        None | Some("Disabled") => {}
        Some("Enabled" | "IfPossible") => {
            if mount.at("readOnly") != true {
                found.forbidden(at, "may only be specified when readOnly is true");
            }
            if mode.is_some_and(|mode| mode != "None") {
                found.forbidden(at, "may only be specified when mountPropagation is None or not specified");
            }
        }
        Some(other) => found.one_of(at, other, &["Disabled", "Enabled", "IfPossible"]),
    }
}

fn devices(container: &Value, volumes: &Volumes<'_>, at: Path<'_>, found: &mut Findings) {
    let mounts = container.list("volumeMounts");
    let (mut names, mut taken): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
    for (i, device) in container.list("volumeDevices").iter().enumerate() {
        let at = at.index(i);
        let (name, path) = (device.text("name"), device.text("devicePath"));
        device_name(name, &names, volumes, at.child("name"), found);
        let path_at = at.child("devicePath");
        if path.is_empty() {
            found.required(path_at, "");
        }
        if taken.contains(&path) {
            found.invalid(path_at, path, "must be unique");
        }
        match paths::has_backsteps(path) {
            true => found.invalid(path_at, path, "can not contain backsteps ('..')"),
            false => taken.push(path),
        }
        if mounts.iter().any(|mount| mount.text("name") == name) {
            found.invalid(at.child("name"), name, "must not already exist in volumeMounts");
        }
        if mounts.iter().any(|mount| mount.text("mountPath") == path) {
            found.invalid(path_at, path, "must not already exist as a path in volumeMounts");
        }
        if !name.is_empty() {
            names.push(name);
        }
    }
}

fn device_name(name: &str, seen: &[&str], volumes: &Volumes<'_>, at: Path<'_>, found: &mut Findings) {
    if name.is_empty() {
        found.required(at, "");
    }
    if seen.contains(&name) {
        found.invalid(at, name, "must be unique");
    }
    match volumes.get(name) {
        None => found.not_found(at, name),
        Some(volume) if !volume.has("persistentVolumeClaim") && !volume.has("ephemeral") => {
            let detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
            found.invalid(at, name, detail);
        }
        Some(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn complaints(container: Value) -> Vec<String> {
        let (plain, claim) = (json!({"emptyDir": {}}), json!({"persistentVolumeClaim": {"claimName": "c"}}));
        let volumes = Volumes::from([("v", &plain), ("c", &claim)]);
        let mut found = Findings::default();
        validate(&container, &volumes, Path::new("c"), &mut found);
        found.into_errors().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn mounts_name_volumes_of_the_pod() {
        assert_eq!(complaints(json!({"volumeMounts": [{"name": "v", "mountPath": "/a"}]})), Vec::<String>::new());
        assert_eq!(
            complaints(json!({"volumeMounts": [{"name": "x", "mountPath": ""}]})),
            ["c.volumeMounts[0].name: Not found: \"x\"", "c.volumeMounts[0].mountPath: Required value"]
        );
        let twice = json!([{"name": "v", "mountPath": "/a"}, {"name": "v", "mountPath": "/a"}]);
        assert_eq!(
            complaints(json!({"volumeMounts": twice})),
            ["c.volumeMounts[1].mountPath: Invalid value: \"/a\": must be unique"]
        );
    }

    #[test]
    fn parts_of_volumes_stay_inside() {
        let mount = json!({"name": "v", "mountPath": "/a", "subPath": "/x", "subPathExpr": "../y"});
        assert_eq!(complaints(json!({"volumeMounts": [mount]})).len(), 3);
    }

    #[test]
    fn devices_are_claims() {
        assert_eq!(complaints(json!({"volumeDevices": [{"name": "c", "devicePath": "/d"}]})), Vec::<String>::new());
        assert_eq!(complaints(json!({"volumeDevices": [{"name": "v", "devicePath": "/d"}]})).len(), 1);
        assert_eq!(complaints(json!({"volumeDevices": [{"name": "x", "devicePath": "../d"}]})).len(), 2);
    }

    #[test]
    fn only_privileged_containers_mount_both_ways() {
        let mount = json!([{"name": "v", "mountPath": "/a", "mountPropagation": "Bidirectional"}]);
        assert_eq!(complaints(json!({"volumeMounts": mount})).len(), 1);
        let privileged = json!({"volumeMounts": mount, "securityContext": {"privileged": true}});
        assert_eq!(complaints(privileged), Vec::<String>::new());
    }
}
