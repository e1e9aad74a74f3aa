//! Authorization of clients.

use bowline_apiserver::{Effect, FaultRule};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::client::{Response, TestClient};
use crate::world::{Cluster, MANAGER, ServerSpec};

async fn get_as(client: &TestClient, token: &str, path: &str) -> Response {
    client.get_with(path, &[("authorization", &format!("Bearer {token}"))]).await
}

#[tokio::test]
async fn v2_v3_without_reviews_anonymous_clients_get_health_checks_only() {
    let running = ServerSpec::without_reviews().start().await;
    let response = running.client().get("/healthz").await;
    assert_eq!((response.status, response.body.as_str()), (200, "ok"));
    assert_eq!(response.headers["cache-control"], "no-cache, private");
    assert_eq!(response.headers["x-content-type-options"], "nosniff");
    let response = running.client().get("/metrics").await;
    assert_eq!((response.status, &response.headers["content-type"]), (403, &"application/json".parse().unwrap()));
    let expected = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "forbidden: User \"system:anonymous\" cannot get path \"/metrics\"",
        "reason": "Forbidden", "details": {}, "code": 403,
    });
    assert_eq!(serde_json::from_str::<Value>(&response.body).unwrap(), expected);
    assert_eq!(response.headers["x-content-type-options"], "nosniff");
    // An unauthorized client does not learn which paths exist.
    assert_eq!(running.client().get("/nothing").await.status, 403);
}

#[tokio::test]
async fn a_403_is_indented_for_curl_and_one_line_for_other_clients() {
    let running = ServerSpec::without_reviews().start().await;
    let lines = |response: Response| response.body.lines().count();
    assert_eq!(lines(running.client().get_with("/metrics", &[("user-agent", "curl/8.5.0")]).await), 10);
    assert_eq!(lines(running.client().get_with("/metrics", &[("user-agent", "Prometheus/3")]).await), 1);
}

#[tokio::test]
async fn v4_the_api_server_authorizes_and_its_decisions_are_cached() {
    let cluster = Cluster::start().await;
    let running = ServerSpec::with_reviews(&cluster, MANAGER).start().await;
    assert_eq!(running.client().get("/healthz").await.status, 200);
    assert_eq!(cluster.created("subjectaccessreviews"), 0);
    for _ in 0..3 {
        assert_eq!(get_as(&running.client(), "scraper-token", "/metrics").await.body, "knots 1\n");
    }
    assert_eq!(cluster.created("subjectaccessreviews"), 1);
    for _ in 0..3 {
        let response = get_as(&running.client(), "other-token", "/metrics").await;
        assert!(response.status == 403 && response.body.contains("User \\\"other\\\" cannot get path"), "{response:?}");
    }
    assert_eq!(cluster.created("subjectaccessreviews"), 2);
    // Another path or another verb needs another review.
    assert_eq!(get_as(&running.client(), "scraper-token", "/who").await.status, 403);
    let token = [("authorization", "Bearer scraper-token")];
    assert_eq!(running.client().request(Method::POST, "/metrics", &token, "").await.status, 403);
    assert_eq!(cluster.created("subjectaccessreviews"), 4);
    // system:masters needs no review.
    assert_eq!(get_as(&running.client(), "master-token", "/who").await.status, 200);
    assert_eq!(get_as(&running.client(), "master-token", "/nothing").await.status, 404);
    assert_eq!(cluster.created("subjectaccessreviews"), 4);
}

#[tokio::test]
async fn decisions_for_very_long_paths_are_not_cached() {
    let cluster = Cluster::start().await;
    let running = ServerSpec::with_reviews(&cluster, MANAGER).start().await;
    for (length, asked) in [(1_000, 1), (2_000, 3)] {
        let path = format!("/{}", "x".repeat(length));
        for _ in 0..2 {
            assert_eq!(get_as(&running.client(), "other-token", &path).await.status, 403);
        }
        assert_eq!(cluster.created("subjectaccessreviews"), asked, "{length}");
    }
}

#[tokio::test]
async fn concurrent_requests_share_one_review() {
    let cluster = Cluster::start().await;
    let running = ServerSpec::with_reviews(&cluster, MANAGER).start().await;
    let client = running.client();
    let response = futures::future::join_all((0..20).map(|_| get_as(&client, "scraper-token", "/metrics"))).await;
    assert!(response.iter().all(|response| response.status == 200));
    assert_eq!((cluster.created("tokenreviews"), cluster.created("subjectaccessreviews")), (1, 1));
}

#[tokio::test]
async fn v5_v6_without_permission_to_review_always_allowed_paths_are_served() {
    let cluster = Cluster::without_permissions().await;
    let mut spec = ServerSpec::with_reviews(&cluster, "unprivileged");
    let running = spec.start().await;
    assert_eq!(running.client().get("/healthz").await.status, 200);
    let response = running.client().get("/metrics").await;
    assert!(
        response.status == 500 && response.body.starts_with("Internal Server Error: \"/metrics\": "),
        "{response:?}"
    );
    spec.authorization.always_allow_paths = ["/healthz", "/metrics"].map(str::to_owned).to_vec();
    let running = spec.start().await;
    assert_eq!(running.client().get("/metrics").await.status, 200);
}

#[tokio::test]
async fn a_transient_failure_of_a_review_is_retried() {
    let cluster = Cluster::start().await;
    let status = Effect::Status { code: StatusCode::SERVICE_UNAVAILABLE, message: String::new(), retry_after: None };
    let rule =
        json!({ "resource": "subjectaccessreviews", "effect": serde_json::to_value(status).unwrap(), "times": 1 });
    cluster.api.faults().add(serde_json::from_value::<FaultRule>(rule).unwrap());
    let running = ServerSpec::with_reviews(&cluster, MANAGER).start().await;
    assert_eq!(get_as(&running.client(), "scraper-token", "/metrics").await.status, 200);
    assert_eq!(cluster.created("subjectaccessreviews"), 2);
}

#[tokio::test]
async fn c2_without_always_allowed_paths_health_needs_authorization() {
    let mut spec = ServerSpec::without_reviews();
    spec.authorization.always_allow_paths.clear();
    let running = spec.start().await;
    assert_eq!(running.client().get("/healthz").await.status, 403);
}

#[tokio::test]
async fn authorization_and_routing_use_the_same_path() {
    let mut spec = ServerSpec::without_reviews();
    spec.authorization.always_allow_paths = vec!["/healthz*".to_owned()];
    let running = spec.start().await;
    let client = running.client();
    for path in ["/healthz/../metrics", "/healthz/%2e%2e/metrics", "/healthz%2f..%2fmetrics"] {
        assert_eq!(client.get(path).await.status, 404, "{path}");
    }
    for path in ["/%6detrics", "//healthz", "/Healthz"] {
        assert_eq!(client.get(path).await.status, 403, "{path}");
    }
    assert_eq!(client.get("/%68ealthz").await.status, 200);
}
