//! Several managers writing one object. Most cases are recordings of a real kube-apiserver.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::resources;
use crate::schema;
use crate::status::ApiError;

const NOW: &str = "2024-01-02T03:04:05Z";
const LATER: &str = "2024-01-02T03:05:00Z";

fn resource(plural: &str) -> &'static Resource {
    resources::RESOURCES.iter().find(|r| r.plural == plural && r.view.is_none()).unwrap()
}

fn writer<'a>(manager: &'a str, plural: &str) -> Writer<'a> {
    Writer { manager, resource: resource(plural), subresource: None, now: NOW }
}

fn canonical(plural: &str, value: &Value) -> Value {
    schema::decode(resource(plural).type_id(), value).unwrap().value
}

fn configmap(metadata: Value, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
}

/// Returns the stored form of a created object.
fn created(manager: &str, plural: &str, object: Value) -> Value {
    let mut object = canonical(plural, &object);
    record_update(writer(manager, plural), None, &mut object).unwrap();
    object["metadata"]["uid"] = json!("u");
    object
}

fn updated(writer: Writer<'_>, live: &Value, change: impl FnOnce(&mut Value)) -> Value {
    let mut new = live.clone();
    change(&mut new);
    let mut new = canonical(writer.resource.plural, &new);
    record_update(writer, Some(live), &mut new).unwrap();
    new
}

fn applied(manager: &str, live: Option<&Value>, config: Value) -> Result<Value, ApiError> {
    apply(writer(manager, "configmaps"), live, &config, false)
}

/// Returns `manager/operation[/subresource]` and fields of every entry, in order.
fn owners(object: &Value) -> Vec<(String, Value)> {
    let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let name = |e: &Value| {
        let parts = ["manager", "operation", "subresource"];
        parts.iter().filter_map(|k| e[k].as_str()).collect::<Vec<_>>().join("/")
    };
    entries.iter().map(|e| (name(e), e["fieldsV1"].clone())).collect()
}

fn owned_by(owner: &str, fields: Value) -> (String, Value) {
    (owner.to_owned(), fields)
}

// === Updates ===

#[test]
fn creator_owns_its_fields_and_new_containers() {
    let node = json!({
        "metadata": {"name": "n", "labels": {"a": "1"}},
        "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]},
        "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]},
    });
    let fields = json!({"f:metadata": {"f:labels": {".": {}, "f:a": {}}}, "f:spec": {"f:taints": {}}});
    assert_eq!(owners(&created("kubelet", "nodes", node)), [owned_by("kubelet/Update", fields)]);
}

#[test]
fn entry_has_all_fields() {
    let object = created("tool", "configmaps", configmap(json!({"name": "a"}), json!({"k": "v"})));
    let entry = json!({"manager": "tool", "operation": "Update", "apiVersion": "v1", "time": NOW,
                       "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {".": {}, "f:k": {}}}});
    assert_eq!(object["metadata"]["managedFields"], json!([entry]));
}

#[test]
fn changing_a_field_transfers_its_ownership() {
    let live = created("tool", "configmaps", configmap(json!({"name": "a"}), json!({"k": "v"})));
    let new = updated(writer("Other", "configmaps"), &live, |o| o["data"]["k"] = json!("w"));
    assert_eq!(
        owners(&new),
        [owned_by("Other/Update", json!({"f:data": {"f:k": {}}})), owned_by("tool/Update", json!({"f:data": {}})),]
    );
}

#[test]
fn removed_fields_have_no_owner() {
    let live = created("tool", "configmaps", configmap(json!({"name": "a"}), json!({"k": "v", "l": "w"})));
    let new = updated(writer("other", "configmaps"), &live, |o| o["data"] = json!({"l": "w"}));
    assert_eq!(owners(&new), [owned_by("tool/Update", json!({"f:data": {".": {}, "f:l": {}}}))]);
    let bare = updated(writer("other", "configmaps"), &new, |o| o["data"] = Value::Null);
    assert_eq!(owners(&bare), []);
}

#[test]
fn no_op_write_keeps_entries_and_times() {
    let live = created("tool", "configmaps", configmap(json!({"name": "a"}), json!({"k": "v"})));
    let later = Writer { now: LATER, ..writer("other", "configmaps") };
    let new = updated(later, &live, |o| o["metadata"]["resourceVersion"] = json!("7"));
    assert_eq!(new["metadata"]["managedFields"], live["metadata"]["managedFields"]);
    let without = updated(later, &live, |o| o["metadata"]["managedFields"] = Value::Null);
    assert_eq!(without, live);
}

#[test]
fn manager_has_one_entry_per_subresource_with_the_last_time() {
    let service = json!({"metadata": {"name": "a"}, "spec": {"type": "LoadBalancer"}});
    let live = created("lb", "services", service);
    let status = Writer { subresource: Some("status"), now: LATER, ..writer("lb", "services") };
    let set_ip = |ip: &str| json!({"ingress": [{"ip": ip}]});
    let first = updated(status, &live, |o| o["status"]["loadBalancer"] = set_ip("192.0.2.1"));
    let second = updated(status, &first, |o| o["status"]["loadBalancer"] = set_ip("192.0.2.2"));
    let fields = json!({"f:status": {"f:loadBalancer": {"f:ingress": {}}}});
    let expected = [owned_by("lb/Update", json!({"f:spec": {"f:type": {}}})), owned_by("lb/Update/status", fields)];
    assert_eq!(owners(&second), expected);
    assert_eq!(second["metadata"]["managedFields"][1]["time"], LATER);
}

#[test]
fn writer_does_not_own_fields_its_endpoint_cannot_change() {
    let live = created("a", "services", json!({"metadata": {"name": "a"}, "spec": {"type": "ClusterIP"}}));
    let both = |o: &mut Value| {
        o["spec"]["type"] = json!("NodePort");
        o["status"]["loadBalancer"] = json!({"ingress": [{"ip": "192.0.2.1"}]});
    };
    let status = Writer { subresource: Some("status"), ..writer("b", "services") };
    let fields = json!({"f:status": {"f:loadBalancer": {"f:ingress": {}}}});
    let spec = json!({"f:spec": {"f:type": {}}});
    assert_eq!(
        owners(&updated(status, &live, both)),
        [owned_by("a/Update", spec.clone()), owned_by("b/Update/status", fields)]
    );
    assert_eq!(owners(&updated(writer("b", "services"), &live, both)), [owned_by("b/Update", spec)]);
}

#[test]
fn scaling_is_recorded_without_a_time() {
    let live = created("a", "deployments", json!({"metadata": {"name": "a"}, "spec": {"replicas": 1}}));
    let scale = Writer { subresource: Some("scale"), ..writer("kubectl", "deployments") };
    let new = updated(scale, &live, |o| o["spec"]["replicas"] = json!(2));
    let entry = new["metadata"]["managedFields"].as_array().unwrap().iter().find(|e| e["manager"] == "kubectl");
    assert_eq!(
        entry,
        Some(&json!({"manager": "kubectl", "operation": "Update", "apiVersion": "apps/v1", "subresource": "scale",
                     "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:replicas": {}}}}))
    );
}

#[test]
fn empty_list_or_empty_entry_clears_the_entries() {
    let live = created("tool", "configmaps", configmap(json!({"name": "a"}), json!({"k": "v"})));
    for reset in [json!([{}]), json!([])] {
        let mut new = live.clone();
        new["metadata"]["managedFields"] = reset;
        record_update(writer("x", "configmaps"), Some(&live), &mut new).unwrap();
        assert_eq!(new["metadata"].get("managedFields"), None);
        let next = updated(writer("x", "configmaps"), &new, |o| o["data"]["k"] = json!("w"));
        assert_eq!(owners(&next), []);
    }
}

#[test]
fn invalid_entries_are_ignored() {
    let live = created("tool", "configmaps", configmap(json!({"name": "a"}), json!({"k": "v"})));
    let new = updated(writer("x", "configmaps"), &live, |o| {
        o["metadata"]["managedFields"] = json!([{"manager": "m", "operation": "Frob", "apiVersion": "v1"}]);
    });
    assert_eq!(owners(&new), owners(&live));
}

#[test]
fn client_entries_replace_stored_ones_except_through_a_subresource() {
    let live = created("tool", "services", json!({"metadata": {"name": "a"}, "spec": {"type": "ClusterIP"}}));
    let sent = json!([
        {"manager": "m", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
         "fieldsV1": {"f:spec": {"f:type": {}}}},
        {"manager": "old", "operation": "Update", "apiVersion": "v9", "fieldsType": "FieldsV1",
         "fieldsV1": {"f:spec": {"f:type": {}}}},
    ]);
    let send = |o: &mut Value| o["metadata"]["managedFields"] = sent.clone();
    let new = updated(writer("x", "services"), &live, send);
    assert_eq!(owners(&new), [owned_by("m/Apply", json!({"f:spec": {"f:type": {}}}))]);
    let status = Writer { subresource: Some("status"), ..writer("x", "services") };
    assert_eq!(owners(&updated(status, &live, send)), owners(&live));
}

#[test]
fn empty_manager_name_becomes_unknown() {
    let object = created("", "configmaps", configmap(json!({"name": "a"}), json!({"k": "v"})));
    assert_eq!(object["metadata"]["managedFields"][0]["manager"], "unknown");
}

#[test]
fn equality_ignores_times_only() {
    let a = created("tool", "configmaps", configmap(json!({"name": "a"}), json!({"k": "v"})));
    let mut b = a.clone();
    b["metadata"]["managedFields"][0]["time"] = json!(LATER);
    assert!(equal_ignoring_times(&a, &b) && equal_ignoring_times(&a, &a));
    b["metadata"]["managedFields"][0]["manager"] = json!("x");
    assert!(!equal_ignoring_times(&a, &b));
    let mut c = a.clone();
    c["data"]["k"] = json!("w");
    assert!(!equal_ignoring_times(&a, &c));
}

// === Apply ===

#[test]
fn apply_creates_and_owns_leaves_only() {
    let object = applied("m1", None, configmap(json!({"name": "a"}), json!({"k": "v"}))).unwrap();
    assert_eq!(object["data"], json!({"k": "v"}));
    assert_eq!(owners(&object), [owned_by("m1/Apply", json!({"f:data": {"f:k": {}}}))]);
    assert_eq!(object["metadata"]["managedFields"][0]["time"], NOW);
}

#[test]
fn applying_the_same_configuration_keeps_the_time() {
    let config = || configmap(json!({"name": "a"}), json!({"k": "v"}));
    let object = applied("m1", None, config()).unwrap();
    let again = apply(Writer { now: LATER, ..writer("m1", "configmaps") }, Some(&object), &config(), false).unwrap();
    assert_eq!(again, object);
}

#[test]
fn changing_a_field_of_another_manager_is_a_conflict_unless_forced() {
    let live = applied("m1", None, configmap(json!({"name": "a"}), json!({"k": "v"}))).unwrap();
    let config = configmap(json!({"name": "a"}), json!({"k": "w"}));
    let error = applied("m2", Some(&live), config.clone()).unwrap_err();
    assert_eq!(error.message, "Apply failed with 1 conflict: conflict with \"m1\": .data.k");
    let forced = apply(writer("m2", "configmaps"), Some(&live), &config, true).unwrap();
    assert_eq!(forced["data"], json!({"k": "w"}));
    assert_eq!(owners(&forced), [owned_by("m2/Apply", json!({"f:data": {"f:k": {}}}))]);
}

#[test]
fn conflicts_with_multiple_managers_are_listed() {
    let live = applied("m1", None, configmap(json!({"name": "a"}), json!({"k": "v"}))).unwrap();
    let live = applied("m2", Some(&live), configmap(json!({"name": "a"}), json!({"j": "v"}))).unwrap();
    let error = applied("m3", Some(&live), configmap(json!({"name": "a"}), json!({"k": "w", "j": "w"}))).unwrap_err();
    assert_eq!(
        error.message,
        "Apply failed with 2 conflicts: conflicts with \"m1\":\n- .data.k\nconflicts with \"m2\":\n- .data.j"
    );
}

#[test]
fn equal_values_are_shared_without_conflict() {
    let config = || configmap(json!({"name": "a"}), json!({"k": "v"}));
    let live = applied("m1", None, config()).unwrap();
    let shared = applied("m2", Some(&live), config()).unwrap();
    let fields = json!({"f:data": {"f:k": {}}});
    assert_eq!(owners(&shared), [owned_by("m2/Apply", fields.clone()), owned_by("m1/Apply", fields.clone())]);
    let left = applied("m1", Some(&shared), configmap(json!({"name": "a"}), json!({}))).unwrap();
    assert_eq!(left["data"], json!({"k": "v"}));
}

#[test]
fn fields_no_longer_applied_are_removed_unless_another_manager_owns_them() {
    let live = created("upd", "configmaps", configmap(json!({"name": "a"}), json!({"k": "v"})));
    let live = applied("m1", Some(&live), configmap(json!({"name": "a"}), json!({"j": "w"}))).unwrap();
    assert_eq!(live["data"], json!({"j": "w", "k": "v"}));
    let left = applied("m1", Some(&live), configmap(json!({"name": "a"}), json!({}))).unwrap();
    assert_eq!(left["data"], json!({"k": "v"}));
    assert_eq!(
        owners(&left),
        [owned_by("m1/Apply", json!({"f:data": {}})), owned_by("upd/Update", json!({"f:data": {".": {}, "f:k": {}}})),]
    );
}

#[test]
fn unowned_fields_belong_to_before_first_apply() {
    let live = canonical(
        "nodes",
        &json!({
            "metadata": {"name": "n", "uid": "u"},
            "spec": {"taints": [{"key": "not-ready", "effect": "NoSchedule"}]},
        }),
    );
    let config = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"},
                        "spec": {"taints": [{"key": "mine", "effect": "NoSchedule"}]}});
    let error = apply(writer("m1", "nodes"), Some(&live), &config, false).unwrap_err();
    assert_eq!(
        error.message,
        "Apply failed with 1 conflict: conflict with \"before-first-apply\" using v1: .spec.taints"
    );
    let forced = apply(writer("m1", "nodes"), Some(&live), &config, true).unwrap();
    assert_eq!(owners(&forced), [owned_by("m1/Apply", json!({"f:spec": {"f:taints": {}}}))]);
}

#[test]
fn items_of_keyed_lists_and_sets_have_separate_owners() {
    let config = |port: u16, name: &str| {
        let finalizer = format!("ex.com/{name}");
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a", "finalizers": [finalizer]},
               "spec": {"ports": [{"name": name, "port": port, "protocol": "TCP"}]}})
    };
    let apply_as = |manager: &str, live: Option<&Value>, config: Value| {
        apply(writer(manager, "services"), live, &config, false).unwrap()
    };
    let one = apply_as("m1", None, config(80, "a"));
    let two = apply_as("m2", Some(&one), config(81, "b"));
    let ports =
        |o: &Value| o["spec"]["ports"].as_array().unwrap().iter().map(|p| p["port"].clone()).collect::<Vec<_>>();
    assert_eq!(ports(&two), [80, 81]);
    assert_eq!(two["metadata"]["finalizers"], json!(["ex.com/a", "ex.com/b"]));
    let three = apply_as("m1", Some(&two), config(82, "c"));
    assert_eq!(ports(&three), [81, 82]);
    assert_eq!(three["metadata"]["finalizers"], json!(["ex.com/b", "ex.com/c"]));
}

#[test]
fn status_is_applied_through_its_subresource() {
    let live = created("oracle", "services", json!({"metadata": {"name": "a"}, "spec": {"type": "LoadBalancer"}}));
    let config = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": {"type": "NodePort"},
                        "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}});
    let status = Writer { subresource: Some("status"), ..writer("m1", "services") };
    let new = apply(status, Some(&live), &config, false).unwrap();
    assert_eq!(
        owners(&new)[0],
        owned_by("m1/Apply/status", json!({"f:status": {"f:loadBalancer": {"f:ingress": {}}}}))
    );
    let error = apply(writer("m1", "services"), Some(&live), &config, false).unwrap_err();
    assert_eq!(error.message, "Apply failed with 1 conflict: conflict with \"oracle\" using v1: .spec.type");
}

#[test]
fn null_in_a_map_becomes_an_owned_empty_string() {
    let object = applied("m1", None, configmap(json!({"name": "a"}), json!({"k": null, "j": "1"}))).unwrap();
    assert_eq!(object["data"], json!({"j": "1", "k": ""}));
    assert_eq!(owners(&object), [owned_by("m1/Apply", json!({"f:data": {"f:j": {}, "f:k": {}}}))]);
}

#[test]
fn invalid_bodies_are_rejected_with_upstream_messages() {
    let rejected = |config: Value| applied("m1", None, config).unwrap_err();
    let with = |key: &str, value: Value| {
        let mut config = configmap(json!({"name": "a"}), json!({}));
        config[key] = value;
        config
    };
    let cases = [
        (with("kind", json!("Secret")), 400, "invalid object type: /v1, Kind=Secret"),
        (json!({"metadata": {"name": "a"}}), 400, "invalid object type: /, Kind="),
        (with("apiVersion", json!("v9")), 400, "invalid object type: /v9, Kind=ConfigMap"),
        (with("apiVersion", json!("a/b/c")), 400, "invalid object type: /, Kind="),
        (with("metadata", json!({"name": "a", "managedFields": []})), 400, "metadata.managedFields must be nil"),
        (
            with("bogus", json!(1)),
            500,
            "failed to create typed patch object (/a; /v1, Kind=ConfigMap): .bogus: field not declared in schema",
        ),
        (
            with("metadata", json!({"name": "a", "creationTimestamp": "x"})),
            500,
            "failed to convert new object (/a; /v1, Kind=ConfigMap) to proper version: unable to convert unstructured \
             object to /v1, Kind=ConfigMap: parsing time \"x\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"x\" as \"2006\"",
        ),
    ];
    for (config, code, message) in cases {
        let error = rejected(config);
        assert_eq!((error.code.as_u16(), error.message.as_str()), (code, message));
    }
}

#[test]
fn kubectl_takes_over_its_client_side_applied_fields() {
    let last = |data: Value| {
        let text = configmap(json!({"name": "a"}), data).to_string();
        json!({"name": "a", "annotations": {"kubectl.kubernetes.io/last-applied-configuration": text}})
    };
    let live = created(
        "kubectl-client-side-apply",
        "configmaps",
        configmap(last(json!({"k": "v"})), json!({"k": "v", "l": "1"})),
    );
    let config = |k: &str, l: &str| configmap(json!({"name": "a"}), json!({"k": k, "l": l}));
    let new = applied("kubectl", Some(&live), config("w", "1")).unwrap();
    assert_eq!(new["data"]["k"], "w");
    let text = new["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"].as_str().unwrap();
    assert_eq!(text, config("w", "1").to_string() + "\n");
    let error = applied("kubectl", Some(&live), config("w", "2")).unwrap_err();
    assert_eq!(
        error.message,
        "Apply failed with 1 conflict: conflict with \"kubectl-client-side-apply\" using v1: .data.l"
    );
    assert!(applied("other", Some(&live), config("w", "1")).is_err());
}

// === Properties ===

fn any_config() -> impl Strategy<Value = Value> {
    let texts = || prop::collection::btree_map("[a-c]", "[xyz]", 0..4);
    let ports = prop::collection::btree_map(1u16..5, "[xyz]", 0..4);
    (texts(), prop::collection::btree_set("[a-d]", 0..4), ports, texts()).prop_map(
        |(labels, finalizers, ports, selector)| {
            let ports: Vec<Value> = ports.iter().map(|(port, name)| json!({"port": port, "name": name})).collect();
            json!({
                "apiVersion": "v1", "kind": "Service",
                "metadata": {"name": "a", "labels": labels, "finalizers": finalizers},
                "spec": {"ports": ports, "selector": selector},
            })
        },
    )
}

fn force(manager: &str, live: Option<&Value>, config: &Value) -> Value {
    apply(writer(manager, "services"), live, config, true).unwrap()
}

proptest! {
    #[test]
    fn apply_is_idempotent(a in any_config(), b in any_config()) {
        let live = force("m1", None, &a);
        let once = force("m2", Some(&live), &b);
        let twice = force("m2", Some(&once), &b);
        prop_assert!(equal_ignoring_times(&once, &twice));
        prop_assert!(apply(writer("m2", "services"), Some(&once), &b, false).is_ok());
    }

    #[test]
    fn sole_applier_gets_the_applied_configuration(a in any_config(), b in any_config()) {
        let live = force("m1", None, &a);
        let after = force("m1", Some(&live), &b);
        let fresh = force("m1", None, &b);
        let sorted = |mut o: Value| {
            for path in ["/metadata/finalizers", "/spec/ports"] {
                if let Some(Value::Array(items)) = o.pointer_mut(path) {
                    items.sort_by_key(Value::to_string);
                }
            }
            o
        };
        prop_assert!(equal_ignoring_times(&sorted(after), &sorted(fresh)));
    }

    #[test]
    fn removing_own_fields_keeps_those_of_other_managers(a in any_config(), b in any_config()) {
        let live = force("m1", None, &a);
        let both = force("m2", Some(&live), &b);
        let nothing = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}});
        let remaining = force("m1", Some(&both), &nothing);
        let again = apply(writer("m2", "services"), Some(&remaining), &b, false).unwrap();
        prop_assert!(equal_ignoring_times(&remaining, &again));
    }

    #[test]
    fn every_changed_field_has_exactly_one_update_owner(a in any_config(), b in any_config()) {
        let live = created("m1", "services", a);
        let new = updated(writer("m2", "services"), &live, |o| {
            o["spec"] = b["spec"].clone();
            o["metadata"]["labels"] = b["metadata"]["labels"].clone();
        });
        let sets: Vec<_> = new["metadata"]["managedFields"].as_array().into_iter().flatten()
            .map(|e| set::FieldSet::from_stored(&e["fieldsV1"])).collect();
        for (i, one) in sets.iter().enumerate() {
            for other in sets.iter().skip(i + 1) {
                prop_assert!(one.intersection(other).is_empty());
            }
        }
    }
}
