//! Structural validation of pods and pod templates: the fields that controllers and kubectl rely on.
//!
//! kube-apiserver validates far more. The fields not validated here only matter to a kubelet or a scheduler, and this
//! server has neither.

use serde_json::Value;

use crate::resources::check::{ErrorList, Path};
use crate::validation;
use crate::value::Json;

/// Validates a Pod except for its metadata, on create and on update.
pub(super) fn pod(pod: &Value, errors: &mut ErrorList) {
    validate_spec(pod.at("spec"), Path::new("spec"), errors);
}

/// Validates a Pod template.
pub(crate) fn template(template: &Value, at: Path<'_>, errors: &mut ErrorList) {
    // upstream: both are reported without `metadata` in the path.
    errors.extend(validation::labels(&at.child("labels").to_string(), template.map("metadata.labels")));
    errors.extend(validation::annotations(&at.child("annotations").to_string(), template.map("metadata.annotations")));
    validate_spec(template.at("spec"), at.child("spec"), errors);
}

fn validate_spec(spec: &Value, at: Path<'_>, errors: &mut ErrorList) {
    validate_volumes(spec.list("volumes"), at.child("volumes"), errors);
    if spec.list("containers").is_empty() {
        errors.required(at.child("containers"), "");
    }
    let mut names = Vec::new();
    for list in ["containers", "initContainers"] {
        let list_at = at.child(list);
        for (i, value) in spec.list(list).iter().enumerate() {
            validate_container(value, &mut names, list_at.index(i), errors);
        }
    }
    const RESTART_POLICIES: &[&str] = &["Always", "OnFailure", "Never"];
    errors.required_one_of(at.child("restartPolicy"), spec.text("restartPolicy"), RESTART_POLICIES);
    errors.extend(validation::labels(&at.child("nodeSelector").to_string(), spec.map("nodeSelector")));
    for field in ["serviceAccountName", "nodeName"] {
        let name = spec.text(field);
        if !name.is_empty() {
            errors.invalid_each(at.child(field), name, validation::dns_subdomain(name));
        }
    }
}

fn validate_volumes(volumes: &[Value], at: Path<'_>, errors: &mut ErrorList) {
    let mut names = Vec::new();
    for (i, volume) in volumes.iter().enumerate() {
        validate_unique_label(volume.text("name"), &mut names, at.index(i), errors);
    }
}

fn validate_container<'a>(container: &'a Value, names: &mut Vec<&'a str>, at: Path<'_>, errors: &mut ErrorList) {
    validate_unique_label(container.text("name"), names, at, errors);
    if container.text("image").is_empty() {
        errors.required(at.child("image"), "");
    }
    let ports = at.child("ports");
    for (i, value) in container.list("ports").iter().enumerate() {
        validate_port(value, ports.index(i), errors);
    }
}

fn validate_port(port: &Value, at: Path<'_>, errors: &mut ErrorList) {
    let name = port.text("name");
    if !name.is_empty() {
        errors.invalid_each(at.child("name"), name, validation::is_valid_port_name(name));
    }
    match port.int("containerPort").unwrap_or(0) {
        0 => errors.required(at.child("containerPort"), ""),
        number => errors.in_range(at.child("containerPort"), number, 1, 65535),
    }
    errors.required_one_of(at.child("protocol"), port.text("protocol"), validation::PROTOCOLS);
}

/// Validates the `name` of a list item: required, a DNS label, and unique in its list.
fn validate_unique_label<'a>(name: &'a str, names: &mut Vec<&'a str>, item: Path<'_>, errors: &mut ErrorList) {
    let at = item.child("name");
    match name {
        "" => errors.required(at, ""),
        name if names.contains(&name) => errors.duplicate(at, name),
        name => {
            errors.invalid_each(at, name, validation::dns_label(name));
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
        let mut errors = ErrorList::default();
        pod(&object, &mut errors);
        errors.into_vec().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn pod_needs_a_container_with_a_name_and_an_image() {
        assert_eq!(errors(json!({"containers": [{"name": "c", "image": "i"}]})), Vec::<String>::new());
        assert_eq!(errors(json!({})), ["spec.containers: Required value"]);
        assert_eq!(
            errors(json!({"containers": [{}]})),
            ["spec.containers[0].name: Required value", "spec.containers[0].image: Required value"]
        );
    }

    #[test]
    fn names_are_unique_dns_labels() {
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
    fn ports_are_validated() {
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
