//! Structural validation of pods and pod templates: the fields that controllers and kubectl rely on.
//!
//! kube-apiserver checks far more. Fields that are not checked here only matter to a kubelet or a scheduler, and this
//! server has neither.

use serde_json::Value;

use crate::resources::check::{Findings, Path};
use crate::validation;
use crate::value::Json;

/// Checks a pod except for its metadata, on create and on update.
pub(super) fn pod(pod: &Value, found: &mut Findings) {
    spec(pod.at("spec"), Path::new("spec"), found);
}

/// Checks a pod template.
pub(crate) fn template(template: &Value, at: Path<'_>, found: &mut Findings) {
    // upstream: both are reported as if they stood beside `metadata`.
    found.extend(validation::labels(&at.child("labels").to_string(), template.map("metadata.labels")));
    found.extend(validation::annotations(&at.child("annotations").to_string(), template.map("metadata.annotations")));
    spec(template.at("spec"), at.child("spec"), found);
}

fn spec(spec: &Value, at: Path<'_>, found: &mut Findings) {
    volumes(spec.list("volumes"), at.child("volumes"), found);
    if spec.list("containers").is_empty() {
        found.required(at.child("containers"), "");
    }
    let mut names = Vec::new();
    for list in ["containers", "initContainers"] {
        let list_at = at.child(list);
        for (i, value) in spec.list(list).iter().enumerate() {
            container(value, &mut names, list_at.index(i), found);
        }
    }
    const RESTART_POLICIES: &[&str] = &["Always", "OnFailure", "Never"];
    found.required_one_of(at.child("restartPolicy"), spec.text("restartPolicy"), RESTART_POLICIES);
    found.extend(validation::labels(&at.child("nodeSelector").to_string(), spec.map("nodeSelector")));
    for field in ["serviceAccountName", "nodeName"] {
        let name = spec.text(field);
        if !name.is_empty() {
            found.form(at.child(field), name, validation::dns_subdomain(name));
        }
    }
}

fn volumes(volumes: &[Value], at: Path<'_>, found: &mut Findings) {
    let mut names = Vec::new();
    for (i, volume) in volumes.iter().enumerate() {
        unique_label(volume.text("name"), &mut names, at.index(i), found);
    }
}

fn container<'a>(container: &'a Value, names: &mut Vec<&'a str>, at: Path<'_>, found: &mut Findings) {
    unique_label(container.text("name"), names, at, found);
    if container.text("image").is_empty() {
        found.required(at.child("image"), "");
    }
    let ports = at.child("ports");
    for (i, value) in container.list("ports").iter().enumerate() {
        port(value, ports.index(i), found);
    }
}

fn port(port: &Value, at: Path<'_>, found: &mut Findings) {
    let name = port.text("name");
    if !name.is_empty() {
        found.form(at.child("name"), name, validation::is_valid_port_name(name));
    }
    match port.int("containerPort").unwrap_or(0) {
        0 => found.required(at.child("containerPort"), ""),
        number => found.in_range(at.child("containerPort"), number, 1, 65535),
    }
    found.required_one_of(at.child("protocol"), port.text("protocol"), validation::PROTOCOLS);
}

/// Checks the `name` of a list item: required, a DNS label, and unique in its list.
fn unique_label<'a>(name: &'a str, names: &mut Vec<&'a str>, item: Path<'_>, found: &mut Findings) {
    let at = item.child("name");
    match name {
        "" => found.required(at, ""),
        name if names.contains(&name) => found.duplicate(at, name),
        name => {
            found.form(at, name, validation::dns_label(name));
            names.push(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn errors(spec: Value) -> Vec<String> {
        let mut object = json!({"metadata": {"name": "a"}, "spec": spec});
        super::super::defaults::pod(&mut object);
        let mut found = Findings::default();
        pod(&object, &mut found);
        found.into_errors().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_pod_needs_a_container_with_a_name_and_an_image() {
        assert_eq!(errors(json!({"containers": [{"name": "c", "image": "i"}]})), Vec::<String>::new());
        assert_eq!(errors(json!({})), ["spec.containers: Required value"]);
        assert_eq!(
            errors(json!({"containers": [{}]})),
            ["spec.containers[0].name: Required value", "spec.containers[0].image: Required value"]
        );
    }

    #[test]
    fn names_are_unique_labels() {
        let container = json!({"name": "c", "image": "i"});
        assert_eq!(
            errors(json!({"containers": [container], "initContainers": [container]})),
            ["spec.initContainers[0].name: Duplicate value: \"c\""]
        );
        assert_eq!(errors(json!({"containers": [{"name": "Bad_", "image": "i"}]})).len(), 1);
        let volumes = json!([{"name": "v"}, {"name": "v"}, {"name": ""}]);
        assert_eq!(errors(json!({"containers": [container], "volumes": volumes})).len(), 2);
    }

    #[test]
    fn ports_are_checked() {
        let table = [
            (json!({"containerPort": 80, "name": "http"}), 0),
            (json!({"name": "http"}), 1),
            (json!({"containerPort": 65536}), 1),
            (json!({"containerPort": 80, "name": "not_a_name"}), 1),
            (json!({"containerPort": 80, "protocol": "ICMP"}), 1),
        ];
        for (port, expected) in table {
            let got = errors(json!({"containers": [{"name": "c", "image": "i", "ports": [port.clone()]}]}));
            assert_eq!(got.len(), expected, "{port} {got:?}");
        }
    }
}
