//! Reviews of Services by the API.

use bowline_cloud::{AdmissionRequest, AdmissionResponse, CloudProvider as _};
use bowline_digitalocean_simulator::{Fault, FaultSpec, error_fault};
use serde_json::{Value, json};

use crate::world::{ID, TYPE, World};

fn service(annotations: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "web", "namespace": "default", "uid": crate::world::UID, "annotations": annotations},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80, "nodePort": 30080, "protocol": "TCP", "targetPort": 80}]}})
}

async fn review(world: &World, object: Option<Value>, old: Option<Value>) -> AdmissionResponse {
    let request = json!({"uid": "1", "operation": if old.is_some() { "UPDATE" } else { "CREATE" },
        "namespace": "default", "name": "web", "object": object, "oldObject": old});
    let request: AdmissionRequest = serde_json::from_value(request).unwrap();
    let webhooks = world.provider.webhooks();
    assert_eq!((webhooks.len(), webhooks[0].path()), (1, "/lb-service"));
    webhooks[0].review(request).await
}

async fn created(world: &World, annotations: Value) -> AdmissionResponse {
    review(world, Some(service(annotations)), None).await
}

#[tokio::test(start_paused = true)]
async fn a_valid_service_is_allowed_and_nothing_is_created() {
    let world = World::new().await;
    assert_eq!(created(&world, json!({})).await, AdmissionResponse::allow("valid load balancer definition"));
    assert_eq!(world.calls(), ["POST load_balancers"]);
    assert_eq!(world.cloud.records("load_balancers").len(), 0);
}

#[tokio::test(start_paused = true)]
async fn services_that_need_no_load_balancer_are_allowed_without_a_call() {
    let world = World::new().await;
    let mut other = service(json!({}));
    other["spec"]["type"] = json!("ClusterIP");
    let response = review(&world, Some(other), None).await;
    assert_eq!(response, AdmissionResponse::allow("allowing service that is not a load balancer"));
    let mut deleted = service(json!({}));
    deleted["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let response = review(&world, Some(deleted), None).await;
    assert_eq!(response, AdmissionResponse::allow("allowing service that is being deleted"));
    assert_eq!(world.cloud.calls(), 0);
}

#[tokio::test(start_paused = true)]
async fn undecodable_objects_are_errors() {
    let world = World::new().await;
    let missing = review(&world, None, None).await;
    assert_eq!(
        (missing.code(), missing.message()),
        (500, "failed to decode admission request: there is no content to decode")
    );
    let old = review(&world, Some(service(json!({}))), Some(json!(5))).await;
    assert_eq!(old.code(), 400);
    assert!(old.message().starts_with("failed to decode old object: "), "{}", old.message());
}

#[tokio::test(start_paused = true)]
async fn a_request_that_cannot_be_built_is_denied_without_a_call() {
    let world = World::new().await;
    let response = created(&world, json!({TYPE: "bogus"})).await;
    let message = "failed to build DO API request: failed to build base load balancer request: \
                   only LB types supported are (REGIONAL, REGIONAL_NETWORK)";
    assert_eq!(response, AdmissionResponse::deny(message));
    assert_eq!(world.cloud.calls(), 0);
}

#[tokio::test(start_paused = true)]
async fn do_55_an_irrelevant_change_is_allowed_without_a_call() {
    let world = World::new().await;
    let mut labelled = service(json!({}));
    labelled["metadata"]["labels"] = json!({"a": "b"});
    let response = review(&world, Some(labelled), Some(service(json!({})))).await;
    assert_eq!(response, AdmissionResponse::allow("new service has irrelevant changes"));
    assert_eq!(world.cloud.calls(), 0);
}

#[tokio::test(start_paused = true)]
async fn do_56_to_58_the_response_of_the_api_decides() {
    let world = World::new().await;
    for (fault, code, message) in [
        (
            error_fault(429, "slow down"),
            403,
            "invalid load balancer definition: POST http://do.test/v2/load_balancers: 429",
        ),
        (error_fault(422, "bad"), 403, "invalid load balancer definition: POST"),
        (
            error_fault(503, "down"),
            200,
            "received unexpected status code (503) from DO API, allowing to prevent blocking: POST",
        ),
        (Fault::Lost, 500, "failed to get a response from DO API: "),
        (Fault::Garbled, 500, "failed to get a response from DO API: "),
    ] {
        world.cloud.inject(FaultSpec::always(fault));
        let response = created(&world, json!({})).await;
        assert_eq!(response.code(), code, "{}", response.message());
        assert!(response.message().starts_with(message), "{}", response.message());
        world.cloud.repair_all();
    }
}

#[tokio::test(start_paused = true)]
async fn do_59_an_existing_load_balancer_is_validated_by_its_id() {
    let world = World::new().await;
    let id = world.cloud.put("load_balancers", json!({"name": "one"}));
    let new = service(json!({ID: id}));
    review(&world, Some(new.clone()), Some(service(json!({TYPE: "REGIONAL"})))).await;
    assert_eq!(world.calls(), ["PUT load_balancers/{id}"]);
    let mut changed = service(json!({}));
    changed["spec"]["ports"][0]["port"] = json!(81);
    review(&world, Some(changed), Some(new)).await;
    assert_eq!(world.calls(), ["PUT load_balancers/{id}"], "the ID of the old object");
    let before = world.cloud.records("load_balancers");
    assert_eq!(before[0]["forwarding_rules"], world.cloud.records("load_balancers")[0]["forwarding_rules"]);
}
