//! Tests of the documents as clients read them.

use super::*;
use crate::value::Json;

fn read(path: &str) -> Value {
    serde_json::from_slice(&document(path).unwrap().0).unwrap()
}

fn schema_named(document: &Value, name: &str) -> Value {
    document["components"]["schemas"][name].clone()
}

fn names(parameters: &Value) -> Vec<&str> {
    parameters.as_array().into_iter().flatten().map(|p| p.text("name")).collect()
}

/// Every `$ref` in a value.
fn references(value: &Value) -> Vec<&str> {
    match value {
        Value::Object(map) => {
            let own = map.get("$ref").and_then(Value::as_str);
            own.into_iter().chain(map.values().flat_map(references)).collect()
        }
        Value::Array(items) => items.iter().flat_map(references).collect(),
        _ => Vec::new(),
    }
}

#[test]
fn the_index_lists_every_document_with_its_hash() {
    let index: Value = serde_json::from_slice(&index()).unwrap();
    let paths = index["paths"].as_object().unwrap();
    assert_eq!(paths.len(), 9);
    let url = paths["apis/apps/v1"].text("serverRelativeURL");
    let hash = url.strip_prefix("/openapi/v3/apis/apps/v1?hash=").unwrap();
    assert!(hash.len() == 128 && hash.chars().all(|c| c.is_ascii_hexdigit()), "{hash}");
}

#[test]
fn an_unknown_document_is_absent() {
    assert_eq!(document("apis/absent/v1"), None);
}

#[test]
fn every_reference_has_a_definition() {
    for entry in DOCUMENTS.iter() {
        let document = read(&entry.path);
        let schemas = document["components"]["schemas"].as_object().unwrap();
        for reference in references(&document) {
            let name = reference.strip_prefix("#/components/schemas/").unwrap();
            assert!(schemas.contains_key(name), "{name} in {}", entry.path);
        }
    }
}

#[test]
fn common_parameters_are_listed_on_the_path() {
    let document = read("apis/coordination.k8s.io/v1");
    let root = "/apis/coordination.k8s.io/v1";
    let item = &document["paths"][format!("{root}/namespaces/{{namespace}}/leases/{{name}}")];
    assert_eq!(names(&item["parameters"]), ["name", "namespace", "pretty"]);
    assert_eq!(names(&item["patch"]["parameters"]), ["dryRun", "fieldManager", "fieldValidation", "force"]);
    assert_eq!(item["get"].get("parameters"), None);
    let everywhere = &document["paths"][format!("{root}/leases")];
    assert_eq!(names(&everywhere["parameters"]).len(), parameters::LIST.len() + 1);
    assert_eq!(everywhere["get"].get("parameters"), None);
}

#[test]
fn operations_have_action_kind_and_id() {
    let document = read("api/v1");
    let pods = "/api/v1/namespaces/{namespace}/pods";
    let eviction = &document["paths"][format!("{pods}/{{name}}/eviction")]["post"];
    assert_eq!(eviction["x-kubernetes-action"], "post");
    let kind = json!({"group": "policy", "version": "v1", "kind": "Eviction"});
    assert_eq!(eviction["x-kubernetes-group-version-kind"], kind);
    assert_eq!(eviction["operationId"], "createCoreV1NamespacedPodEviction");
    let collection = &document["paths"][pods];
    assert_eq!(collection["delete"]["operationId"], "deleteCoreV1CollectionNamespacedPod");
    assert_eq!(collection["get"]["x-kubernetes-action"], "list");
    assert_eq!(document["paths"]["/api/v1/namespaces"].get("delete"), None);
}

#[test]
fn reviews_support_only_create() {
    let document = read("apis/authorization.k8s.io/v1");
    let paths = document["paths"].as_object().unwrap();
    assert_eq!(paths.len(), 4);
    let local = &paths["/apis/authorization.k8s.io/v1/namespaces/{namespace}/localsubjectaccessreviews"];
    let keys: Vec<&str> = local.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, ["parameters", "post"]);
}

#[test]
fn lists_have_merge_extensions() {
    let spec = schema_named(&read("api/v1"), "io.k8s.api.core.v1.ServiceSpec");
    let mut ports = spec["properties"]["ports"].clone();
    ports.take_at("description");
    let expected = json!({
        "type": "array",
        "items": {"$ref": "#/components/schemas/io.k8s.api.core.v1.ServicePort"},
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["port", "protocol"],
        "x-kubernetes-patch-strategy": "merge",
        "x-kubernetes-patch-merge-key": "port",
    });
    assert_eq!(ports, expected);
    assert_eq!(spec["properties"]["selector"]["x-kubernetes-map-type"], "atomic");
    let volumes = &schema_named(&read("api/v1"), "io.k8s.api.core.v1.PodSpec")["properties"]["volumes"];
    assert_eq!(volumes["x-kubernetes-patch-strategy"], "merge,retainKeys");
}

#[test]
fn references_with_defaults_are_wrapped_in_all_of() {
    let lease = schema_named(&read("apis/coordination.k8s.io/v1"), "io.k8s.api.coordination.v1.Lease");
    let spec = &lease["properties"]["spec"];
    assert_eq!(spec["allOf"], json!([{"$ref": "#/components/schemas/io.k8s.api.coordination.v1.LeaseSpec"}]));
    assert_eq!(spec["default"], json!({}));
    let kinds = json!([{"group": "coordination.k8s.io", "version": "v1", "kind": "Lease"}]);
    assert_eq!(lease["x-kubernetes-group-version-kind"], kinds);
}

#[test]
fn delete_options_exist_in_every_group() {
    let kinds = |path| {
        let options = schema_named(&read(path), "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions");
        options.list("x-kubernetes-group-version-kind").len()
    };
    assert_eq!(kinds("api/v1"), 1);
    assert_eq!(kinds("apis/apps/v1"), 2);
}

#[test]
fn fields_have_descriptions() {
    let document = read("api/v1");
    let spec = schema_named(&document, "io.k8s.api.core.v1.ServiceSpec");
    assert_eq!(spec["properties"]["type"]["enum"], json!(["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"]));
    for (name, field) in spec["properties"].as_object().unwrap() {
        assert!(field.has("description"), "{name}");
    }
    let service = schema_named(&document, "io.k8s.api.core.v1.Service");
    assert!(service["properties"]["metadata"].has("description"));
}
