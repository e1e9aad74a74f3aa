//! Defaults of Pods and Pod templates.
//!
//! These depend on the object alone. Admission adds what depends on the cluster: service account, priority, tolerations.

use serde_json::{Map, Value, json};

use crate::quantity;
use crate::value::Json;

/// Lists of containers in a Pod spec.
const CONTAINER_LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

const FILE_MODE: i64 = 0o644;

/// Fills in the defaults of a Pod.
pub(super) fn pod(pod: &mut Value) {
    if let Some(spec) = pod.get_mut("spec") {
        pod_only_defaults(spec);
        spec_defaults(spec);
    }
    if let Some(status) = pod.get_mut("status") {
        mirror_ips(status);
    }
}

/// Fills in the defaults of a Pod template.
pub(crate) fn template(template: &mut Value) {
    if let Some(spec) = template.get_mut("spec") {
        spec_defaults(spec);
    }
}

/// Sets a field that is absent or null.
fn default(object: &mut Value, field: &str, value: impl Into<Value>) {
    let Some(object) = object.as_object_mut() else { return };
    if object.get(field).is_none_or(Value::is_null) {
        object.insert(field.to_owned(), value.into());
    }
}

/// upstream: these defaults are not applied to templates, so that existing templates do not change.
fn pod_only_defaults(spec: &mut Value) {
    if spec.int("terminationGracePeriodSeconds").is_some_and(|s| s < 0) {
        spec.put("terminationGracePeriodSeconds", 1);
    }
    let host_network = spec.at("hostNetwork") == true;
    for list in ["containers", "initContainers"] {
        for container in spec.list_mut(list).into_iter().flatten() {
            requests_from_limits(container);
            if host_network {
                host_ports_from_container_ports(container);
            }
        }
    }
    default(spec, "enableServiceLinks", true);
}

fn requests_from_limits(container: &mut Value) {
    let Some(limits) = container.map("resources.limits").cloned() else { return };
    let resources = container.at_mut("resources").and_then(Value::as_object_mut);
    let Some(resources) = resources else { return };
    let requests = resources.entry("requests").or_insert_with(|| json!({}));
    for (name, amount) in limits {
        default(requests, &name, amount);
    }
}

fn host_ports_from_container_ports(container: &mut Value) {
    for port in container.list_mut("ports").into_iter().flatten() {
        let number = port.at("containerPort").clone();
        default(port, "hostPort", number);
    }
}

/// Makes `podIP` equal to the first of `podIPs`. `podIP` takes precedence.
fn mirror_ips(status: &mut Value) {
    let first = status.list("podIPs").first().map(|ip| ip.text("ip").to_owned());
    match (status.text("podIP"), first) {
        ("", Some(first)) => status.put("podIP", first),
        (ip, first) if !ip.is_empty() && first.as_deref() != Some(ip) => {
            let list = json!([{"ip": ip}]);
            status.put("podIPs", list);
        }
        _ => {}
    }
}

fn spec_defaults(spec: &mut Value) {
    mirror_service_account(spec);
    default(spec, "dnsPolicy", "ClusterFirst");
    default(spec, "restartPolicy", "Always");
    default(spec, "securityContext", json!({}));
    default(spec, "terminationGracePeriodSeconds", 30);
    default(spec, "schedulerName", "default-scheduler");
    for volume in spec.list_mut("volumes").into_iter().flatten() {
        volume_defaults(volume);
    }
    for list in CONTAINER_LISTS {
        for container in spec.list_mut(list).into_iter().flatten() {
            container_defaults(container);
        }
    }
    for list in ["overhead", "resources.limits", "resources.requests"] {
        quantity::round_list(spec.at_mut(list));
    }
}

/// Makes the deprecated `serviceAccount` equal to `serviceAccountName`. `serviceAccountName` takes precedence.
fn mirror_service_account(spec: &mut Value) {
    let name = match (spec.text("serviceAccountName"), spec.text("serviceAccount")) {
        ("", "") => return,
        ("", old) => old.to_owned(),
        (new, _) => new.to_owned(),
    };
    spec.put("serviceAccount", name.clone());
    spec.put("serviceAccountName", name);
}

fn container_defaults(container: &mut Value) {
    let policy = pull_policy(container.text("image"));
    default(container, "imagePullPolicy", policy);
    default(container, "terminationMessagePath", "/dev/termination-log");
    default(container, "terminationMessagePolicy", "File");
    for port in container.list_mut("ports").into_iter().flatten() {
        default(port, "protocol", "TCP");
    }
    for variable in container.list_mut("env").into_iter().flatten() {
        field_ref_defaults(variable.get_mut("valueFrom"));
        if let Some(file) = variable.at_mut("valueFrom.fileKeyRef") {
            default(file, "optional", false);
        }
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.get_mut(probe) {
            probe_defaults(probe);
        }
    }
    for hook in ["lifecycle.postStart.httpGet", "lifecycle.preStop.httpGet"] {
        if let Some(action) = container.at_mut(hook) {
            http_get_defaults(action);
        }
    }
    for list in ["resources.limits", "resources.requests"] {
        quantity::round_list(container.at_mut(list));
    }
}

/// Returns the default pull policy of an image: `Always` for the tag `latest` or without a tag and digest.
fn pull_policy(image: &str) -> &'static str {
    let (name, digest) = image.split_once('@').map_or((image, None), |(name, digest)| (name, Some(digest)));
    let tag = name.rsplit('/').next().and_then(|last| last.split_once(':')).map(|(_, tag)| tag);
    match (tag, digest) {
        (Some("latest"), _) | (None, None) => "Always",
        _ => "IfNotPresent",
    }
}

fn probe_defaults(probe: &mut Value) {
    let numbers = [("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)];
    for (field, number) in numbers {
        default(probe, field, number);
    }
    if let Some(action) = probe.get_mut("httpGet") {
        http_get_defaults(action);
    }
    if let Some(action) = probe.get_mut("grpc") {
        default(action, "service", "");
    }
}

fn http_get_defaults(action: &mut Value) {
    default(action, "path", "/");
    default(action, "scheme", "HTTP");
}

/// Fills in the defaults of the `fieldRef` of an environment variable or a file.
fn field_ref_defaults(holder: Option<&mut Value>) {
    if let Some(reference) = holder.and_then(|h| h.get_mut("fieldRef")) {
        default(reference, "apiVersion", "v1");
    }
}

fn volume_defaults(volume: &mut Value) {
    let has_no_source = volume.as_object().is_some_and(|v| v.keys().all(|key| key == "name"));
    if has_no_source {
        volume.put("emptyDir", Map::new());
    }
    if let Some(path) = volume.get_mut("hostPath") {
        default(path, "type", "");
    }
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = volume.get_mut(source) {
            default(source, "defaultMode", FILE_MODE);
        }
    }
    for file in volume.list_mut("downwardAPI.items").into_iter().flatten() {
        field_ref_defaults(Some(file));
    }
    for source in volume.list_mut("projected.sources").into_iter().flatten() {
        projection_defaults(source);
    }
}

fn projection_defaults(source: &mut Value) {
    for file in source.list_mut("downwardAPI.items").into_iter().flatten() {
        field_ref_defaults(Some(file));
    }
    if let Some(token) = source.get_mut("serviceAccountToken") {
        default(token, "expirationSeconds", 3600);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{decode, schema};

    fn defaulted(spec: Value) -> Value {
        let given = json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a"}, "spec": spec});
        let mut object = decode(schema().id("core/v1.Pod"), &given).expect("decodes").value;
        pod(&mut object);
        object["spec"].take()
    }

    #[test]
    fn defaults_match_the_recording() {
        let got = defaulted(json!({"containers": [{"name": "c", "image": "img:1"}]}));
        assert_eq!(
            got,
            json!({
                "containers": [{
                    "image": "img:1", "imagePullPolicy": "IfNotPresent", "name": "c", "resources": {},
                    "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
                }],
                "dnsPolicy": "ClusterFirst", "enableServiceLinks": true, "restartPolicy": "Always",
                "schedulerName": "default-scheduler", "securityContext": {}, "terminationGracePeriodSeconds": 30,
            })
        );
    }

    #[test]
    fn pull_policy_depends_on_tag_and_digest() {
        let table = [
            ("nginx", "Always"),
            ("nginx:latest", "Always"),
            ("nginx:1.25", "IfNotPresent"),
            ("registry.example.com:5000/team/app", "Always"),
            ("registry.example.com:5000/team/app:2", "IfNotPresent"),
            ("app@sha256:0123", "IfNotPresent"),
            ("app:latest@sha256:0123", "Always"),
        ];
        for (image, expected) in table {
            assert_eq!(pull_policy(image), expected, "{image:?}");
        }
    }

    #[test]
    fn pod_only_defaults_are_not_applied_to_templates() {
        let mut given =
            json!({"spec": {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": "1"}}}]}});
        template(&mut given);
        assert!(!given.has("spec.enableServiceLinks"));
        assert_eq!(given.at("spec.containers")[0]["resources"], json!({"limits": {"cpu": "1"}}));
    }

    #[test]
    fn requests_default_to_limits() {
        let resources = json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}});
        let got = defaulted(json!({"containers": [{"name": "c", "image": "i", "resources": resources}]}));
        assert_eq!(got["containers"][0]["resources"]["requests"], json!({"cpu": "500m", "memory": "1Gi"}));
    }

    #[test]
    fn host_ports_default_to_container_ports_with_host_network() {
        let ports = json!([{"containerPort": 80}, {"containerPort": 81, "hostPort": 81, "protocol": "UDP"}]);
        let got = defaulted(json!({"hostNetwork": true, "containers": [{"name": "c", "image": "i", "ports": ports}]}));
        assert_eq!(
            got["containers"][0]["ports"],
            json!([
                {"containerPort": 80, "hostPort": 80, "protocol": "TCP"},
                {"containerPort": 81, "hostPort": 81, "protocol": "UDP"}
            ])
        );
    }

    #[test]
    fn probes_and_environment_are_defaulted() {
        let got = defaulted(json!({"containers": [{
            "name": "c", "image": "i",
            "livenessProbe": {"httpGet": {"port": 80}},
            "readinessProbe": {"grpc": {"port": 90}, "periodSeconds": 3},
            "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        }]}));
        let container = &got["containers"][0];
        assert_eq!(
            container["livenessProbe"],
            json!({
                "httpGet": {"port": 80, "path": "/", "scheme": "HTTP"},
                "timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3,
            })
        );
        assert_eq!(container["readinessProbe"]["grpc"], json!({"port": 90, "service": ""}));
        assert_eq!(container["readinessProbe"]["periodSeconds"], 3);
        assert_eq!(container["env"][0]["valueFrom"]["fieldRef"]["apiVersion"], "v1");
    }

    #[test]
    fn volumes_are_defaulted() {
        let got = defaulted(json!({"containers": [], "volumes": [
            {"name": "a"},
            {"name": "b", "hostPath": {"path": "/x"}},
            {"name": "c", "configMap": {"name": "m"}},
            {"name": "d", "projected": {"sources": [
                {"serviceAccountToken": {"path": "token"}},
                {"downwardAPI": {"items": [{"path": "p", "fieldRef": {"fieldPath": "metadata.name"}}]}},
            ]}},
        ]}));
        assert_eq!(
            got["volumes"],
            json!([
                {"name": "a", "emptyDir": {}},
                {"name": "b", "hostPath": {"path": "/x", "type": ""}},
                {"name": "c", "configMap": {"name": "m", "defaultMode": 420}},
                {"name": "d", "projected": {"defaultMode": 420, "sources": [
                    {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}},
                    {"downwardAPI": {"items": [
                        {"path": "p", "fieldRef": {"fieldPath": "metadata.name", "apiVersion": "v1"}},
                    ]}},
                ]}},
            ])
        );
    }

    #[test]
    fn service_account_mirrors_service_account_name() {
        assert_eq!(defaulted(json!({"containers": [], "serviceAccount": "x"}))["serviceAccountName"], "x");
        let both = defaulted(json!({"containers": [], "serviceAccount": "x", "serviceAccountName": "y"}));
        assert_eq!((both.text("serviceAccount"), both.text("serviceAccountName")), ("y", "y"));
    }

    #[test]
    fn pod_ip_takes_precedence_over_pod_ips() {
        let table = [
            (json!({"podIP": "1.1.1.1"}), json!({"podIP": "1.1.1.1", "podIPs": [{"ip": "1.1.1.1"}]})),
            (json!({"podIPs": [{"ip": "1.1.1.1"}]}), json!({"podIP": "1.1.1.1", "podIPs": [{"ip": "1.1.1.1"}]})),
            (
                json!({"podIP": "1.1.1.1", "podIPs": [{"ip": "2.2.2.2"}, {"ip": "::1"}]}),
                json!({"podIP": "1.1.1.1", "podIPs": [{"ip": "1.1.1.1"}]}),
            ),
        ];
        for (given, expected) in table {
            let mut object = json!({"status": given});
            pod(&mut object);
            assert_eq!(object["status"], expected);
        }
    }
}
