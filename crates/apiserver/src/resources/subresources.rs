//! Subresources with a kind of their own: `deployments/scale`, `pods/binding`, `pods/eviction` and `pods/log`.
//!
//! Functions here only transform values. The verbs read, write and delete objects.
//!
//! ```text
//!  scale     GET: scale_of(deployment)     PUT, PATCH: scale_of ─► change ─► apply_scale ─► ordinary update
//!  binding   POST: label_binding ─► bind(pod) ─► write (no further validation) ─► created_status()
//!  eviction  POST: eviction_options ─► check_preconditions ─► mark_evicted ─► status update ─► DELETE ─► created_status()
//! ```

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::check::{ErrorList, Path};
use super::{Resource, label_selector, pod};
use crate::field_error::FieldError;
use crate::status::{ApiError, ApiResult, Named};
use crate::validation;
use crate::value::Json;
use crate::verbs::now;

/// Status returned for a POST that creates no object.
pub(crate) fn created_status() -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})
}

// === Scale ===

/// Returns the Scale of a Deployment.
pub(crate) fn scale_of(deployment: &Value) -> Value {
    let mut metadata = json!({});
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = deployment.at("metadata").get(field) {
            metadata.put(field, value.clone());
        }
    }
    let mut spec = json!({});
    if let Some(replicas) = deployment.int("spec.replicas").filter(|replicas| *replicas != 0) {
        spec.put("replicas", replicas);
    }
    let mut status = json!({"replicas": deployment.int("status.replicas").unwrap_or(0)});
    let selector = label_selector::text(deployment.at("spec.selector")).unwrap_or_default();
    if !selector.is_empty() {
        status.put("selector", selector);
    }
    json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status,
    })
}

/// Applies a changed Scale to its Deployment. The Deployment takes the Scale's resourceVersion, so that the write that
/// follows detects a conflicting update.
pub(crate) fn apply_scale(deployment: &mut Value, scale: &Value) -> ApiResult<()> {
    let name = deployment.text("metadata.name").to_owned();
    let replicas = scale.int("spec.replicas").unwrap_or(0);
    let mut errors = ErrorList::default();
    errors.not_negative(Path::new("spec.replicas"), replicas);
    let errors = errors.into_vec();
    if !errors.is_empty() {
        return Err(ApiError::invalid(Named { group: "autoscaling", kind: "Scale" }, &name, &errors));
    }
    let (expected, actual) = (scale.text("metadata.uid"), deployment.text("metadata.uid"));
    if !expected.is_empty() && expected != actual {
        let why = format!("Precondition failed: UID in precondition: {expected}, UID in object meta: {actual}");
        return Err(ApiError::conflict(Named { group: "apps", kind: "deployments/scale" }, &name, &why));
    }
    deployment.put("spec.replicas", replicas);
    deployment.put("metadata.resourceVersion", scale.text("metadata.resourceVersion"));
    Ok(())
}

/// Converts an applied Scale to an apply configuration of the Deployment: identity, version and number of replicas.
pub(crate) fn applied_scale(deployments: &Resource, scale: &Value) -> Value {
    let mut config = json!({"apiVersion": deployments.api_version(), "kind": deployments.kind});
    for field in ["name", "namespace", "uid", "resourceVersion"] {
        if let Some(value) = scale.at("metadata").get(field) {
            config.put(&format!("metadata.{field}"), value.clone());
        }
    }
    if let Some(replicas) = scale.at("spec").get("replicas") {
        config.put("spec.replicas", replicas.clone());
    }
    config
}

// === Binding ===

/// Copies the topology labels of the target Node to a Binding. [`bind`] passes them on to the Pod.
pub(crate) fn label_binding(binding: &mut Value, node_labels: &BTreeMap<String, String>) {
    if binding.text("target.kind") == "Node" {
        pod::copy_topology(binding, node_labels);
    }
}

/// Assigns a Pod to the Node that a Binding names.
pub(crate) fn bind(pod: &mut Value, binding: &Value) -> ApiResult<()> {
    let name = pod.text("metadata.name").to_owned();
    if binding.text("metadata.name") != name {
        return Err(ApiError::bad_request("name in URL does not match name in Binding object"));
    }
    check_target(binding.at("target"))?;
    check_binding_preconditions(pod, binding)?;
    if let Some(why) = binding_conflict(pod, &name) {
        return Err(ApiError::conflict(Named { group: "", kind: "pods/binding" }, &name, &why));
    }
    pod.put("spec.nodeName", binding.text("target.name"));
    pod.take_at("status.nominatedNodeName");
    for map in ["metadata.annotations", "metadata.labels"] {
        merge(pod, binding, map);
    }
    if let Some(status) = pod.get_mut("status") {
        pod::set_condition(status, "PodScheduled", "True", None, &now());
    }
    Ok(())
}

/// upstream: these errors are not converted to an Invalid status, so they are plain 500s.
fn check_target(target: &Value) -> ApiResult<()> {
    let mut errors = ErrorList::default();
    let at = Path::new("target");
    let (kind, name) = (target.text("kind"), target.text("name"));
    if !matches!(kind, "" | "Node") {
        errors.one_of(at.child("kind"), kind, &["Node", "<empty>"]);
    }
    match name {
        "" => errors.required(at.child("name"), ""),
        _ if matches!(kind, "" | "Node") => {
            errors.invalid_each(at.child("name"), name, validation::dns_subdomain(name))
        }
        _ => {}
    }
    let texts: Vec<String> = errors.into_vec().iter().map(FieldError::to_string).collect();
    match texts.as_slice() {
        [] => Ok(()),
        [one] => Err(ApiError::plain(one.as_str())),
        many => Err(ApiError::plain(format!("[{}]", many.join(", ")))),
    }
}

/// Checks the preconditions of a Binding: UID and resourceVersion of the Pod.
fn check_binding_preconditions(pod: &Value, binding: &Value) -> ApiResult<()> {
    for (field, word) in [("uid", "UID"), ("resourceVersion", "ResourceVersion")] {
        let (expected, actual) = (binding.at("metadata").text(field), pod.at("metadata").text(field));
        if !expected.is_empty() && expected != actual {
            let (namespace, name) = (pod.text("metadata.namespace"), pod.text("metadata.name"));
            let why = format!(
                "StorageError: invalid object, Code: 4, Key: /registry/pods/{namespace}/{name}, ResourceVersion: 0, \
                 AdditionalErrorMsg: Precondition failed: {word} in precondition: {expected}, {word} in object meta: \
                 {actual}"
            );
            return Err(ApiError::conflict(Named { group: "", kind: "pods" }, name, &why));
        }
    }
    Ok(())
}

fn binding_conflict(pod: &Value, name: &str) -> Option<String> {
    let node = pod.text("spec.nodeName");
    if pod.has("metadata.deletionTimestamp") {
        Some(format!("pod {name} is being deleted, cannot be assigned to a host"))
    } else if !node.is_empty() {
        Some(format!("pod {name} is already assigned to node {node:?}"))
    } else if !pod.list("spec.schedulingGates").is_empty() {
        Some(format!("pod {name} has non-empty .spec.schedulingGates"))
    } else {
        None
    }
}

fn merge(into: &mut Value, from: &Value, map: &str) {
    let Some(entries) = from.map(map).filter(|entries| !entries.is_empty()) else { return };
    if !into.at(map).is_object() {
        into.put(map, json!({}));
    }
    if let Some(target) = into.at_mut(map).and_then(Value::as_object_mut) {
        target.extend(entries.iter().map(|(key, value)| (key.clone(), value.clone())));
    }
}

// === Eviction ===

/// Returns the DeleteOptions of an Eviction of the Pod `name`. `dry_run` is the request's own parameter.
pub(crate) fn eviction_options(name: &str, eviction: &Value, dry_run: bool) -> ApiResult<Value> {
    if eviction.text("metadata.name") != name {
        return Err(ApiError::bad_request("name in URL does not match name in Eviction object"));
    }
    let mut options = match eviction.at("deleteOptions") {
        Value::Null => json!({}),
        given => given.clone(),
    };
    const BREAKING: &str = "ignoreStoreReadErrorWithClusterBreakingPotential";
    if options.at(BREAKING) == true {
        let field = format!("deleteOptions.{BREAKING}");
        let detail = "can not be set for pod eviction, try after removing the option";
        let error = FieldError::invalid(field, true, detail);
        return Err(ApiError::invalid(Named { group: "policy", kind: "Eviction" }, name, &[error]));
    }
    match (dry_run, options.texts("dryRun").as_slice()) {
        (true, [] | ["All"]) => options.put("dryRun", json!(["All"])),
        (true, other) => {
            let why = format!("Non-matching dry-run options in request and content: [All] and [{}]", other.join(" "));
            return Err(ApiError::plain(why));
        }
        (false, _) => {}
    }
    Ok(options)
}

/// Checks the preconditions in the DeleteOptions of an Eviction.
pub(crate) fn check_preconditions(pod: &Value, options: &Value) -> ApiResult<()> {
    const CHECKS: [(&str, &str, &str); 2] =
        [("uid", "UID", "deleted and then recreated"), ("resourceVersion", "ResourceVersion", "modified")];
    for (field, word, fate) in CHECKS {
        let (expected, actual) = (options.at("preconditions").text(field), pod.at("metadata").text(field));
        if !expected.is_empty() && expected != actual {
            let why = format!(
                "the {word} in the precondition ({expected}) does not match the {word} in record ({actual}). The object \
                 might have been {fate}"
            );
            // upstream: the message has the kind; other conflicts have the resource.
            return Err(ApiError::conflict(Named { group: "", kind: "Pod" }, pod.text("metadata.name"), &why));
        }
    }
    Ok(())
}

/// Sets the `DisruptionTarget` condition of an evicted Pod.
pub(crate) fn mark_evicted(pod: &mut Value) {
    if let Some(status) = pod.get_mut("status") {
        let why = ("EvictionByEvictionAPI", "Eviction API: evicting");
        pod::set_condition(status, "DisruptionTarget", "True", Some(why), &now());
    }
}

// === Logs ===

/// Returns the Node that has the logs of a container; `None` while the Pod is not scheduled. An empty name selects the
/// only container.
pub(crate) fn log_source<'a>(pod: &'a Value, container: &str) -> ApiResult<Option<&'a str>> {
    let name = pod.text("metadata.name");
    let lists = ["initContainers", "containers", "ephemeralContainers"];
    let names: Vec<&str> = lists.iter().flat_map(|list| pod.at("spec").list(list)).map(|c| c.text("name")).collect();
    if container.is_empty() && pod.list("spec.containers").len() > 1 {
        let choice = names.join(" ");
        return Err(ApiError::bad_request(format!(
            "a container name must be specified for pod {name}, choose one of: [{choice}]"
        )));
    }
    if !container.is_empty() && !names.contains(&container) {
        return Err(ApiError::bad_request(format!("container {container} is not valid for pod {name}")));
    }
    Ok(Some(pod.text("spec.nodeName")).filter(|node| !node.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment() -> Value {
        json!({
            "kind": "Deployment", "apiVersion": "apps/v1",
            "metadata": {
                "name": "a", "namespace": "n", "uid": "u", "resourceVersion": "5",
                "creationTimestamp": "2026-01-02T03:04:05Z", "labels": {"x": "y"}, "generation": 1,
            },
            "spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}}, "status": {},
        })
    }

    fn message(result: ApiResult<()>) -> String {
        result.expect_err("rejected").message
    }

    #[test]
    fn scale_matches_the_recording() {
        assert_eq!(
            scale_of(&deployment()),
            json!({
                "apiVersion": "autoscaling/v1", "kind": "Scale",
                "metadata": {
                    "creationTimestamp": "2026-01-02T03:04:05Z", "name": "a", "namespace": "n",
                    "resourceVersion": "5", "uid": "u",
                },
                "spec": {"replicas": 1}, "status": {"replicas": 0, "selector": "a=b"},
            })
        );
    }

    #[test]
    fn applying_a_scale_changes_only_replicas() {
        let mut object = deployment();
        let mut scale = scale_of(&object);
        scale["spec"]["replicas"] = 5.into();
        assert_eq!(apply_scale(&mut object, &scale), Ok(()));
        let mut expected = deployment();
        expected["spec"]["replicas"] = 5.into();
        assert_eq!(object, expected);
        scale["spec"] = json!({});
        assert_eq!(apply_scale(&mut object, &scale), Ok(()));
        assert_eq!(object["spec"]["replicas"], 0);
    }

    #[test]
    fn invalid_scale_is_rejected() {
        let mut object = deployment();
        let mut scale = scale_of(&object);
        scale["spec"]["replicas"] = json!(-1);
        assert_eq!(
            message(apply_scale(&mut object, &scale)),
            "Scale.autoscaling \"a\" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0"
        );
        let mut other = scale_of(&object);
        other["metadata"]["uid"] = "v".into();
        assert_eq!(
            message(apply_scale(&mut object, &other)),
            "Operation cannot be fulfilled on deployments/scale.apps \"a\": Precondition failed: UID in precondition: \
             v, UID in object meta: u"
        );
    }

    fn pod_and_binding() -> (Value, Value) {
        let pod = json!({"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": {}, "status": {"phase": "Pending"}});
        let binding =
            json!({"metadata": {"name": "p", "labels": {"l": "1"}}, "target": {"kind": "Node", "name": "node"}});
        (pod, binding)
    }

    #[test]
    fn binding_assigns_a_pod_to_a_node() {
        let (mut pod, mut binding) = pod_and_binding();
        label_binding(&mut binding, &BTreeMap::from([("topology.kubernetes.io/zone".to_owned(), "z".to_owned())]));
        assert_eq!(bind(&mut pod, &binding), Ok(()));
        assert_eq!(pod["spec"], json!({"nodeName": "node"}));
        assert_eq!(pod["metadata"]["labels"], json!({"l": "1", "topology.kubernetes.io/zone": "z"}));
        assert_eq!(pod["status"]["conditions"][0]["type"], "PodScheduled");
        assert_eq!(
            message(bind(&mut pod, &binding)),
            "Operation cannot be fulfilled on pods/binding \"p\": pod p is already assigned to node \"node\""
        );
    }

    #[test]
    fn binding_checks_the_pod_and_the_target() {
        let (mut pod, mut binding) = pod_and_binding();
        binding["metadata"]["uid"] = "other".into();
        assert!(message(bind(&mut pod, &binding)).ends_with("UID in precondition: other, UID in object meta: u"));
        binding["metadata"] = json!({"name": "q"});
        assert_eq!(message(bind(&mut pod, &binding)), "name in URL does not match name in Binding object");
        let (mut pod, mut binding) = pod_and_binding();
        binding["target"] = json!({"kind": "Moon"});
        assert_eq!(
            message(bind(&mut pod, &binding)),
            "[target.kind: Unsupported value: \"Moon\": supported values: \"Node\", \"<empty>\", target.name: Required value]"
        );
    }

    #[test]
    fn eviction_returns_its_delete_options() {
        let eviction = json!({"metadata": {"name": "p"}, "deleteOptions": {"gracePeriodSeconds": 5}});
        assert_eq!(eviction_options("p", &eviction, false), Ok(json!({"gracePeriodSeconds": 5})));
        assert_eq!(eviction_options("p", &eviction, true), Ok(json!({"gracePeriodSeconds": 5, "dryRun": ["All"]})));
        assert_eq!(eviction_options("p", &json!({"metadata": {"name": "p"}}), false), Ok(json!({})));
        assert_eq!(
            eviction_options("q", &eviction, false).map_err(|e| e.message),
            Err("name in URL does not match name in Eviction object".to_owned())
        );
    }

    #[test]
    fn eviction_checks_preconditions() {
        let pod = json!({"metadata": {"name": "p", "uid": "u", "resourceVersion": "3"}});
        assert_eq!(check_preconditions(&pod, &json!({"preconditions": {"uid": "u"}})), Ok(()));
        assert_eq!(
            message(check_preconditions(&pod, &json!({"preconditions": {"resourceVersion": "2"}}))),
            "Operation cannot be fulfilled on Pod \"p\": the ResourceVersion in the precondition (2) does not match the \
             ResourceVersion in record (3). The object might have been modified"
        );
    }

    #[test]
    fn logs_need_one_container() {
        let pod = |containers: Value| json!({"metadata": {"name": "p"}, "spec": {"containers": containers}});
        let one = pod(json!([{"name": "c"}]));
        assert_eq!(log_source(&one, ""), Ok(None));
        assert_eq!(log_source(&one, "d").map_err(|e| e.message), Err("container d is not valid for pod p".to_owned()));
        assert_eq!(
            log_source(&pod(json!([{"name": "c"}, {"name": "d"}])), "").map_err(|e| e.message),
            Err("a container name must be specified for pod p, choose one of: [c d]".to_owned())
        );
        let scheduled = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n", "containers": [{"name": "c"}]}});
        assert_eq!(log_source(&scheduled, "c"), Ok(Some("n")));
    }

    #[test]
    fn evicted_pod_has_the_disruption_condition() {
        let mut pod = json!({"status": {"phase": "Running"}});
        mark_evicted(&mut pod);
        assert_eq!(pod["status"]["conditions"][0]["reason"], "EvictionByEvictionAPI");
    }

    #[test]
    fn applied_scale_has_only_identity_and_replicas() {
        let deployments = crate::resources::RESOURCES.iter().find(|r| r.plural == "deployments").unwrap();
        let scale = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": {"replicas": 3},
            "metadata": {"name": "d", "labels": {"a": "b"}}, "status": {"replicas": 1}});
        let expected = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
            "spec": {"replicas": 3}});
        assert_eq!(applied_scale(deployments, &scale), expected);
    }
}
