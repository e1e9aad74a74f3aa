//! Calls a webhook as the API server does.

use std::sync::Arc;

use bowline_serving::webhook::{self, Webhook, WebhookMetrics};
use bowline_serving::{AccessControl, Server};
use futures::FutureExt as _;
use http::Method;
use prometheus::Registry;
use serde_json::{Map, Value, json};

use crate::world::{Running, ServerSpec};

/// Allows ships only.
fn harbour() -> Webhook {
    let review = |request: Map<String, Value>| {
        let is_ship = request.get("kind").is_some_and(|kind| kind["kind"] == "Ship");
        Ok(Map::from_iter([("allowed".to_owned(), is_ship.into())]))
    };
    Webhook {
        name: "harbour".to_owned(),
        path: "/validate-ships".to_owned(),
        review: Arc::new(move |request| std::future::ready(review(request)).boxed()),
    }
}

#[tokio::test]
async fn a_review_needs_no_authentication_and_is_counted_by_status() {
    let (mut options, hooks) = (ServerSpec::without_reviews().serving, [harbour()]);
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

#[tokio::test]
async fn a_standalone_server_answers_every_request_with_status_200() {
    let server = Server::bind(&ServerSpec::without_reviews().serving).unwrap();
    let running = Running::start(server, webhook::standalone_router(&[harbour()]), AccessControl::open());
    let json = [("content-type", "application/json")];
    let ship = json!({ "uid": "1", "kind": { "kind": "Ship" } });
    let review = json!({ "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1beta1", "request": ship });
    for protocol in [&b"h2"[..], b"http/1.1"] {
        let client = running.client().with_alpn(protocol);
        let response = client.request(Method::POST, "/validate-ships", &json, &review.to_string()).await;
        assert_eq!((response.status, response.http2), (200, protocol == b"h2"));
        let answer: Value = serde_json::from_str(&response.body).unwrap();
        assert_eq!((&answer["apiVersion"], &answer["response"]["allowed"]), (&review["apiVersion"], &json!(true)));
        let empty = client.request(Method::POST, "/validate-ships", &json, "").await;
        assert!(empty.status == 200 && empty.body.contains("request body is empty"), "{empty:?}");
    }
    let client = running.client().with_alpn(b"h2");
    for size in [(7 << 20) + 1, 9 << 20] {
        let large = client.request(Method::POST, "/validate-ships", &json, &" ".repeat(size)).await;
        let is_rejected = large.body.contains("request entity is too large; limit is 7340032 bytes");
        assert!(large.status == 200 && is_rejected, "{size}: {} {}", large.status, large.body);
    }
    assert_eq!(client.request(Method::POST, "/other", &json, "{}").await.status, 404);
}
