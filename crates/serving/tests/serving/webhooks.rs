//! Calls a webhook as the API server does.

use std::sync::Arc;

use async_trait::async_trait;
use bowline_serving::AccessControl;
use bowline_serving::webhook::{self, Webhook, WebhookMetrics};
use http::Method;
use prometheus::Registry;
use serde_json::{Value, json};

use crate::world::{Running, ServerSpec};

/// Allows ships only.
struct Harbour;

#[async_trait]
impl Webhook for Harbour {
    fn name(&self) -> &str {
        "harbour"
    }

    fn path(&self) -> &str {
        "/validate-ships"
    }

    async fn review(&self, request: Value) -> Result<Value, String> {
        Ok(json!({ "allowed": request["kind"]["kind"] == "Ship" }))
    }
}

#[tokio::test]
async fn a_review_needs_no_authentication_and_is_counted_by_status() {
    let (mut options, hooks): (_, [Arc<dyn Webhook>; 1]) = (ServerSpec::without_reviews().serving, [Arc::new(Harbour)]);
    options.tls.pair_name = "cloud-controller-manager-webhook".to_owned();
    options.port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let registry = Registry::new();
    let router = webhook::router(&hooks, &WebhookMetrics::register(&registry).unwrap());
    let server = webhook::bind(&options, &hooks).unwrap().unwrap();
    let running = Running::start(server, router, AccessControl::open());
    let review = json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "request": { "uid": "705ab4f5", "kind": { "group": "", "version": "v1", "kind": "Ship" }, "operation": "CREATE" },
    });
    let json = [("content-type", "application/json")];
    let response =
        running.client().request(Method::POST, "/validate-ships?timeout=10s", &json, &review.to_string()).await;
    let answer: Value = serde_json::from_str(&response.body).unwrap();
    assert_eq!(answer["response"], json!({ "uid": "705ab4f5", "allowed": true }));
    assert_eq!(response.headers["content-type"], "application/json");
    assert_eq!(running.client().request(Method::POST, "/validate-ships", &[], "{}").await.status, 400);
    assert_eq!(running.client().get("/healthz").await.status, 404);

    let family = registry.gather().into_iter().find(|family| family.name().ends_with("_total")).unwrap();
    let counts: Vec<_> = family
        .get_metric()
        .iter()
        .map(|metric| (metric.get_label()[0].value().to_owned(), metric.get_counter().get_value()))
        .collect();
    assert_eq!(counts, [("200".to_owned(), 1.0), ("400".to_owned(), 1.0)]);
}
