//! Patches of whole objects. Most cases are recordings of a real kube-apiserver.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::schema::schema;

fn text(patch: &Value) -> Vec<u8> {
    patch.to_string().into_bytes()
}

fn apply(kind: PatchKind, ty: &str, current: &Value, patch: &[u8]) -> ApiResult<Value> {
    Patch::parse(kind, patch)?.apply(schema().id(ty), current)
}

fn strategic_on(ty: &str, current: Value, patch: Value) -> ApiResult<Value> {
    apply(PatchKind::Strategic, ty, &current, &text(&patch))
}

/// Returns code and message of the error.
fn code_and_message<T: std::fmt::Debug>(result: ApiResult<T>) -> (u16, String) {
    let error = result.unwrap_err();
    (error.code.as_u16(), error.message)
}

fn node(addresses: &[(&str, &str)]) -> Value {
    let addresses: Vec<Value> = addresses.iter().map(|(t, a)| json!({"type": t, "address": a})).collect();
    json!({"status": {"addresses": addresses}})
}

fn addresses(patch: Value) -> Vec<String> {
    let current = node(&[("InternalIP", "10.0.0.1"), ("Hostname", "h")]);
    let patched = strategic_on("core/v1.Node", current, json!({"status": patch})).unwrap();
    let items = patched["status"]["addresses"].as_array().unwrap();
    items.iter().map(|a| format!("{}={}", a["type"].as_str().unwrap(), a["address"].as_str().unwrap())).collect()
}

// === Strategic merge patch ===

#[test]
fn keyed_lists_merge_and_new_items_come_first() {
    let item = |t: &str, a: &str| json!({"type": t, "address": a});
    let cases = [
        (json!({"addresses": [item("InternalIP", "2")]}), vec!["InternalIP=2", "Hostname=h"]),
        (json!({"addresses": [item("ExternalIP", "2")]}), vec!["ExternalIP=2", "InternalIP=10.0.0.1", "Hostname=h"]),
        (
            json!({"addresses": [item("Hostname", "x"), item("ExternalIP", "2")]}),
            vec!["InternalIP=10.0.0.1", "Hostname=x", "ExternalIP=2"],
        ),
        (json!({"addresses": [{"$patch": "delete", "type": "Hostname"}]}), vec!["InternalIP=10.0.0.1"]),
        (
            json!({"addresses": [{"$patch": "replace"}, item("InternalIP", "2"), item("InternalIP", "fd00::1")]}),
            vec!["InternalIP=2", "InternalIP=fd00::1"],
        ),
        (
            json!({"$setElementOrder/addresses": [{"type": "Hostname"}, {"type": "ExternalIP"}, {"type": "InternalIP"}],
                   "addresses": [item("ExternalIP", "2")]}),
            vec!["Hostname=h", "ExternalIP=2", "InternalIP=10.0.0.1"],
        ),
        (
            json!({"$setElementOrder/addresses": [{"type": "Hostname"}, {"type": "InternalIP"}]}),
            vec!["Hostname=h", "InternalIP=10.0.0.1"],
        ),
    ];
    for (patch, expected) in cases {
        assert_eq!(addresses(patch.clone()), expected, "{patch}");
    }
}

#[test]
fn only_the_first_item_with_a_key_is_merged() {
    let current = json!({"spec": {"ports": [{"port": 53, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]}});
    let patch = json!({"spec": {"ports": [{"port": 53, "protocol": "UDP", "targetPort": 5353}]}});
    let patched = strategic_on("core/v1.Service", current, patch).unwrap();
    assert_eq!(
        patched["spec"]["ports"],
        json!([{"port": 53, "protocol": "UDP", "targetPort": 5353}, {"port": 53, "protocol": "UDP"}])
    );
}

#[test]
fn lists_of_strings_merge_as_sets() {
    let finalizers = |current: Value, patch: Value| {
        let current = json!({"metadata": {"finalizers": current}});
        let patched = strategic_on("core/v1.ConfigMap", current, json!({"metadata": patch})).unwrap();
        patched["metadata"].get("finalizers").cloned()
    };
    let cases = [
        (json!(["a"]), json!({"finalizers": ["b"]}), Some(json!(["b", "a"]))),
        (json!(["b", "a"]), json!({"$deleteFromPrimitiveList/finalizers": ["a"]}), Some(json!(["b"]))),
        (
            json!(["b"]),
            json!({"$setElementOrder/finalizers": ["c", "b"], "finalizers": ["c"]}),
            Some(json!(["c", "b"])),
        ),
        (json!(["a", "b", "c"]), json!({"finalizers": ["c", "a"]}), Some(json!(["b", "c", "a"]))),
        (json!(["a"]), json!({"finalizers": null}), None),
        (json!(["a"]), json!({"$deleteFromPrimitiveList/finalizers": ["a"], "finalizers": null}), None),
    ];
    for (current, patch, expected) in cases {
        assert_eq!(finalizers(current, patch.clone()), expected, "{patch}");
    }
}

#[test]
fn lists_without_a_merge_strategy_are_replaced() {
    let current = json!({"spec": {"taints": [{"key": "a"}]}, "metadata": {"labels": {"a": "1", "b": "2"}}});
    let patch = json!({
        "kind": "Other",
        "spec": {"taints": [{"key": "b"}], "podCIDRs": ["c"], "configSource": {"configMap": {"name": "x", "uid": null}}},
        "metadata": {"labels": {"a": null, "c": "3"}, "annotations": {"x": null}},
    });
    let patched = strategic_on("core/v1.Node", current, patch).unwrap();
    let expected = json!({
        "spec": {"taints": [{"key": "b"}], "podCIDRs": ["c"], "configSource": {"configMap": {"name": "x"}}},
        "metadata": {"labels": {"b": "2", "c": "3"}, "annotations": {}},
    });
    assert_eq!(patched, expected);
}

#[test]
fn object_directives_replace_clear_or_reduce() {
    let current = || json!({"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}});
    let strategy = |patch: Value| {
        strategic_on("apps/v1.Deployment", current(), json!({"spec": {"strategy": patch}}))
            .map(|o| o["spec"]["strategy"].clone())
    };
    assert_eq!(strategy(json!({"$retainKeys": ["type"], "type": "Recreate"})).unwrap(), json!({"type": "Recreate"}));
    assert_eq!(strategy(json!({"$patch": "replace", "type": "Recreate"})).unwrap(), json!({"type": "Recreate"}));
    assert_eq!(strategy(json!({"$patch": "delete"})).unwrap(), json!({}));
    let conflicting = strategy(json!({"$retainKeys": ["type"], "type": "Recreate", "rollingUpdate": {"maxSurge": 2}}));
    assert_eq!(code_and_message(conflicting), (400, "invalid patch format of retainKeys".into()));
}

#[test]
fn invalid_directives_are_rejected_with_upstream_messages() {
    let current =
        || json!({"metadata": {"finalizers": ["ex.com/a"]}, "spec": {"ports": [{"port": 80}], "type": "ClusterIP"}});
    let cases = [
        (
            json!({"spec": {"ports": [{"name": "x"}]}}),
            500,
            "map: map[name:x] does not contain declared merge key: port",
        ),
        (
            json!({"spec": {"ports": [{"$patch": "delete"}]}}),
            500,
            "map: map[$patch:delete] does not contain declared merge key: port",
        ),
        (
            json!({"spec": {"ports": [{"$patch": "frob", "port": 80}]}}),
            500,
            "unknown patch type: frob in map: map[$patch:frob port:80]",
        ),
        (json!({"spec": {"ports": [{"$patch": "merge"}]}}), 500, "merging lists cannot yet be specified in the patch"),
        (json!({"spec": {"ports": ["x"]}}), 500, "list element types are not identical: [[map[port:80]] [x]]"),
        (json!({"spec": {"$patch": "merge"}}), 500, "unknown patch type: merge in map: map[$patch:merge]"),
        (json!({"spec": {"$patch": 5}}), 500, "unknown patch type: %!s(int64=5) in map: map[$patch:5]"),
        (json!({"spec": {"$retainKeys": "x"}}), 400, "invalid patch format of retainKeys"),
        (json!({"spec": {"$deleteFromPrimitiveList": []}}), 400, "invalid patch format of primitive list"),
        (json!({"spec": {"$setElementOrder": []}}), 400, "invalid patch format of setElementOrder list"),
        (json!({"spec": {"$setElementOrder/ports": "x"}}), 500, "expected a []interface {}, but received a string"),
        (
            json!({"spec": {"$setElementOrder/bogus": []}}),
            500,
            "unable to find api field in struct ServiceSpec for the json field \"bogus\"",
        ),
        (json!({"spec": {"$setElementOrder/ports": [1]}}), 500, "value for key 0 is not a map"),
        (
            json!({"spec": {"$setElementOrder/type": [], "type": []}}),
            500,
            "expected a []interface {}, but received a string",
        ),
        (
            json!({"metadata": {"$setElementOrder/finalizers": ["ex.com/z"], "finalizers": ["ex.com/b"]}}),
            500,
            "The order in patch list:\n[ex.com/b]\n doesn't match $setElementOrder list:\n[ex.com/z]\n",
        ),
        (json!({"metadata": {"finalizers": [["x"]]}}), 500, "list element types are not identical: [[ex.com/a] [[x]]]"),
    ];
    for (patch, code, message) in cases {
        assert_eq!(code_and_message(strategic_on("core/v1.Service", current(), patch)), (code, message.to_owned()));
    }
}

#[test]
fn invalid_patches_are_bad_requests() {
    let doc = json!({"data": {"a": "1"}});
    let message =
        |kind: PatchKind, patch: &str| code_and_message(apply(kind, "core/v1.ConfigMap", &doc, patch.as_bytes()));
    let go_map = "Go value of type map[string]interface {}";
    let cases = [
        (PatchKind::Strategic, "{bad", "invalid JSON patch".to_owned()),
        (PatchKind::Strategic, "[1]", format!("json: cannot unmarshal array into {go_map}")),
        (PatchKind::Strategic, "\"s\"", format!("json: cannot unmarshal string into {go_map}")),
        (PatchKind::Merge, "", "invalid JSON patch".to_owned()),
        (PatchKind::Merge, "null", "Invalid JSON Patch".to_owned()),
        (PatchKind::Merge, "[1]", format!("error decoding patch: json: cannot unmarshal array into {go_map}")),
        (PatchKind::Json, "[{", "invalid JSON patch".to_owned()),
    ];
    for (kind, patch, expected) in cases {
        assert_eq!(message(kind, patch), (400, expected));
    }
    assert_eq!(apply(PatchKind::Strategic, "core/v1.ConfigMap", &doc, b"null").unwrap(), doc);
}

// === Invalid results ===

fn apply_invalid(kind: PatchKind, patch: Value, strict: bool) -> (u16, String) {
    let ty = schema().id("core/v1.Service");
    let current = json!({"apiVersion": "v1", "spec": {"ports": [{"port": 80}]}});
    let text = text(&patch);
    let patch = Patch::parse(kind, &text).unwrap();
    let patched = patch.apply(ty, &current).unwrap();
    let applied = AppliedPatch { patch: &patch, ty, current: &current };
    let error = match crate::schema::decode(ty, &patched) {
        Err(error) => applied.decode_error(&error),
        Ok(decoded) if strict => applied.strict_error(&applied.strict_issues(&decoded.issues)),
        Ok(_) => panic!("the result decodes"),
    };
    (error.code.as_u16(), error.message)
}

#[test]
fn errors_about_the_result_contain_the_patch() {
    let cases = [
        (json!({"spec": {"ports": "x"}}), "\"map[spec:map[ports:x]]\": cannot restore slice from string"),
        (json!({"spec": {"type": 5}}), "\"map[spec:map[type:5]]\": cannot convert int64 to v1.ServiceType"),
        (
            json!({"spec": {"$setElementOrder/ports": [{"port": 80}], "type": 5}}),
            "\"map[spec:map[type:5]]\": cannot convert int64 to v1.ServiceType",
        ),
    ];
    for (patch, expected) in cases {
        let message = format!(" \"\" is invalid: patch: Invalid value: {expected}");
        assert_eq!(apply_invalid(PatchKind::Strategic, patch, false), (422, message));
    }
}

#[test]
fn strict_validation_lists_all_issues() {
    let unknown = json!({"spec": {"foo": 1, "bar": 2}});
    assert_eq!(
        apply_invalid(PatchKind::Strategic, unknown.clone(), true).1,
        " \"\" is invalid: patch: Invalid value: \"map[spec:map[bar:2 foo:1]]\": \
         strict decoding error: unknown field \"spec.bar\", unknown field \"spec.foo\""
    );
    let (code, message) = apply_invalid(PatchKind::Merge, unknown, true);
    assert_eq!(code, 422);
    assert!(message.starts_with(" \"\" is invalid: patch: Invalid value: \"{\\\"apiVersion\\\""), "{message}");
}

#[test]
fn decoder_message_is_kept_if_conversion_has_none() {
    let cm = schema().id("core/v1.ConfigMap");
    let current = json!({"binaryData": {}});
    let text = text(&json!({"binaryData": {"k": "!"}}));
    let patch = Patch::parse(PatchKind::Strategic, &text).unwrap();
    let applied = AppliedPatch { patch: &patch, ty: cm, current: &current };
    let error = applied.decode_error(&DecodeError::Type("illegal base64 data at input byte 0".into()));
    assert!(
        error
            .message
            .ends_with("\"map[binaryData:map[k:!]]\": error decoding from json: illegal base64 data at input byte 0"),
        "{}",
        error.message
    );
}

// === Properties ===

fn any_service() -> impl Strategy<Value = Value> {
    let texts = || prop::collection::btree_map("[a-c]", "[xyz]", 0..4);
    let finalizers =
        Just(vec!["a", "b", "c", "d"]).prop_shuffle().prop_flat_map(|all| prop::sample::subsequence(all, 0..4));
    let ports = Just(vec![1u16, 2, 3, 4]).prop_shuffle().prop_flat_map(|all| prop::sample::subsequence(all, 0..4));
    (texts(), finalizers, ports, "[xyz]").prop_map(|(labels, finalizers, ports, name)| {
        let ports: Vec<Value> = ports.iter().map(|port| json!({"port": port, "name": name})).collect();
        json!({"metadata": {"labels": labels, "finalizers": finalizers}, "spec": {"ports": ports}})
    })
}

/// Returns the patch that a client sends to change `old` to `new`.
fn difference(old: &Value, new: &Value) -> Value {
    let list = |o: &Value, path: &str| o.pointer(path).and_then(Value::as_array).cloned().unwrap_or_default();
    let key = |item: &Value| item["port"].clone();
    let (old_ports, new_ports) = (list(old, "/spec/ports"), list(new, "/spec/ports"));
    let mut ports = new_ports.clone();
    let deleted_port = |p: &&Value| !new_ports.iter().any(|n| key(n) == key(p));
    ports.extend(old_ports.iter().filter(deleted_port).map(|p| json!({"$patch": "delete", "port": key(p)})));
    let order: Vec<Value> = new_ports.iter().map(|p| json!({"port": key(p)})).collect();
    let (old_names, new_names) = (list(old, "/metadata/finalizers"), list(new, "/metadata/finalizers"));
    let deleted: Vec<&Value> = old_names.iter().filter(|n| !new_names.contains(n)).collect();
    let mut labels = new["metadata"]["labels"].clone();
    for key in old["metadata"]["labels"].as_object().unwrap().keys() {
        if labels.get(key).is_none() {
            labels[key] = Value::Null;
        }
    }
    json!({
        "metadata": {"labels": labels, "finalizers": new_names, "$setElementOrder/finalizers": new_names,
                     "$deleteFromPrimitiveList/finalizers": deleted},
        "spec": {"ports": ports, "$setElementOrder/ports": order},
    })
}

proptest! {
    #[test]
    fn applying_the_difference_returns_the_new_object(old in any_service(), new in any_service()) {
        // Empty lists are not stored, and two empty lists have no order.
        let stored = |o: &Value| crate::schema::decode(schema().id("core/v1.Service"), o).unwrap().value;
        let (old, new) = (stored(&old), stored(&new));
        let either = |path: &str| old.pointer(path).is_some() || new.pointer(path).is_some();
        let both = |path: &str| old.pointer(path).is_some() && new.pointer(path).is_some();
        prop_assume!(either("/metadata/finalizers") && either("/spec/ports") && both("/metadata/labels"));
        let patched = strategic_on("core/v1.Service", old.clone(), difference(&old, &new)).unwrap();
        prop_assert_eq!(stored(&patched), new);
    }

    #[test]
    fn patch_without_directives_is_idempotent(doc in any_service(), patch in any_service()) {
        let once = strategic_on("core/v1.Service", doc, patch.clone()).unwrap();
        let twice = strategic_on("core/v1.Service", once.clone(), patch).unwrap();
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn merge_keeps_every_item_of_patch_and_server(doc in any_service(), patch in any_service()) {
        let names = |o: &Value| -> std::collections::BTreeSet<String> {
            o["metadata"]["finalizers"].as_array().unwrap().iter().map(Value::to_string).collect()
        };
        let merged = strategic_on("core/v1.Service", doc.clone(), patch.clone()).unwrap();
        prop_assert_eq!(names(&merged), names(&doc).union(&names(&patch)).cloned().collect());
    }

    #[test]
    fn merge_and_strategic_merge_are_equal_without_lists(a in any_service(), b in any_service()) {
        let labels = |o: &Value| json!({"metadata": {"labels": o["metadata"]["labels"]}});
        let strategic = strategic_on("core/v1.Service", labels(&a), labels(&b)).unwrap();
        let merged = apply(PatchKind::Merge, "core/v1.Service", &labels(&a), &text(&labels(&b))).unwrap();
        prop_assert_eq!(strategic, merged);
    }
}
