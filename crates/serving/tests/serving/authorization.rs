//! Who may do what.

use bowline_apiserver::{Effect, FaultRule};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::visitor::{Told, Visitor};
use crate::world::{Cluster, MANAGER, Wanted};

async fn gets_as(visitor: &Visitor, token: &str, path: &str) -> Told {
    visitor.gets_with(path, &[("authorization", &format!("Bearer {token}"))]).await
}

#[tokio::test]
async fn v2_v3_without_reviews_anonymous_gets_health_and_nothing_else() {
    let running = Wanted::alone().start().await;
    let told = running.visitor().gets("/healthz").await;
    assert_eq!((told.status, told.body.as_str()), (200, "ok"));
    assert_eq!(told.headers["cache-control"], "no-cache, private");
    assert_eq!(told.headers["x-content-type-options"], "nosniff");
    let told = running.visitor().gets("/metrics").await;
    assert_eq!((told.status, &told.headers["content-type"]), (403, &"application/json".parse().unwrap()));
    let expected = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "forbidden: User \"system:anonymous\" cannot get path \"/metrics\"",
        "reason": "Forbidden", "details": {}, "code": 403,
    });
    assert_eq!(serde_json::from_str::<Value>(&told.body).unwrap(), expected);
    assert_eq!(told.headers["x-content-type-options"], "nosniff");
    // Nobody learns what is there and what is not.
    assert_eq!(running.visitor().gets("/nothing").await.status, 403);
}

#[tokio::test]
async fn people_get_a_refusal_indented_and_programs_in_a_line() {
    let running = Wanted::alone().start().await;
    let lines = |told: Told| told.body.lines().count();
    assert_eq!(lines(running.visitor().gets_with("/metrics", &[("user-agent", "curl/8.5.0")]).await), 10);
    assert_eq!(lines(running.visitor().gets_with("/metrics", &[("user-agent", "Prometheus/3")]).await), 1);
}

#[tokio::test]
async fn v4_the_api_server_says_who_may_and_its_word_is_kept_for_a_while() {
    let cluster = Cluster::start().await;
    let running = Wanted::asking(&cluster, MANAGER).start().await;
    assert_eq!(running.visitor().gets("/healthz").await.status, 200);
    assert_eq!(cluster.asked("subjectaccessreviews"), 0);
    for _ in 0..3 {
        assert_eq!(gets_as(&running.visitor(), "scraper-token", "/metrics").await.body, "knots 1\n");
    }
    assert_eq!(cluster.asked("subjectaccessreviews"), 1);
    for _ in 0..3 {
        let told = gets_as(&running.visitor(), "other-token", "/metrics").await;
        assert!(told.status == 403 && told.body.contains("User \\\"other\\\" cannot get path"), "{told:?}");
    }
    assert_eq!(cluster.asked("subjectaccessreviews"), 2);
    // Another path, another verb: other questions.
    assert_eq!(gets_as(&running.visitor(), "scraper-token", "/who").await.status, 403);
    let token = [("authorization", "Bearer scraper-token")];
    assert_eq!(running.visitor().asks(Method::POST, "/metrics", &token, "").await.status, 403);
    assert_eq!(cluster.asked("subjectaccessreviews"), 4);
    // Masters need no word.
    assert_eq!(gets_as(&running.visitor(), "master-token", "/who").await.status, 200);
    assert_eq!(gets_as(&running.visitor(), "master-token", "/nothing").await.status, 404);
    assert_eq!(cluster.asked("subjectaccessreviews"), 4);
}

#[tokio::test]
async fn answers_to_very_long_questions_are_not_kept() {
    let cluster = Cluster::start().await;
    let running = Wanted::asking(&cluster, MANAGER).start().await;
    for (length, asked) in [(1_000, 1), (2_000, 3)] {
        let path = format!("/{}", "x".repeat(length));
        for _ in 0..2 {
            assert_eq!(gets_as(&running.visitor(), "other-token", &path).await.status, 403);
        }
        assert_eq!(cluster.asked("subjectaccessreviews"), asked, "{length}");
    }
}

#[tokio::test]
async fn many_at_once_are_one_question() {
    let cluster = Cluster::start().await;
    let running = Wanted::asking(&cluster, MANAGER).start().await;
    let visitor = running.visitor();
    let told = futures::future::join_all((0..20).map(|_| gets_as(&visitor, "scraper-token", "/metrics"))).await;
    assert!(told.iter().all(|told| told.status == 200));
    assert_eq!((cluster.asked("tokenreviews"), cluster.asked("subjectaccessreviews")), (1, 1));
}

#[tokio::test]
async fn v5_v6_with_broken_credentials_what_is_always_allowed_still_is() {
    let cluster = Cluster::without_rights().await;
    let mut wanted = Wanted::asking(&cluster, "nobody");
    let running = wanted.start().await;
    assert_eq!(running.visitor().gets("/healthz").await.status, 200);
    let told = running.visitor().gets("/metrics").await;
    assert!(told.status == 500 && told.body.starts_with("Internal Server Error: \"/metrics\": "), "{told:?}");
    wanted.authorization.always_allow_paths = ["/healthz", "/metrics"].map(str::to_owned).to_vec();
    let running = wanted.start().await;
    assert_eq!(running.visitor().gets("/metrics").await.status, 200);
}

#[tokio::test]
async fn a_review_that_fails_for_a_moment_is_tried_again() {
    let cluster = Cluster::start().await;
    let status = Effect::Status { code: StatusCode::SERVICE_UNAVAILABLE, message: String::new(), retry_after: None };
    let rule =
        json!({ "resource": "subjectaccessreviews", "effect": serde_json::to_value(status).unwrap(), "times": 1 });
    cluster.api.faults().add(serde_json::from_value::<FaultRule>(rule).unwrap());
    let running = Wanted::asking(&cluster, MANAGER).start().await;
    assert_eq!(gets_as(&running.visitor(), "scraper-token", "/metrics").await.status, 200);
    assert_eq!(cluster.asked("subjectaccessreviews"), 2);
}

#[tokio::test]
async fn c2_with_no_path_always_allowed_health_needs_a_right() {
    let mut wanted = Wanted::alone();
    wanted.authorization.always_allow_paths.clear();
    let running = wanted.start().await;
    assert_eq!(running.visitor().gets("/healthz").await.status, 403);
}

#[tokio::test]
async fn a_path_is_the_same_for_who_decides_and_for_who_answers() {
    let mut wanted = Wanted::alone();
    wanted.authorization.always_allow_paths = vec!["/healthz*".to_owned()];
    let running = wanted.start().await;
    let visitor = running.visitor();
    for path in ["/healthz/../metrics", "/healthz/%2e%2e/metrics", "/healthz%2f..%2fmetrics"] {
        assert_eq!(visitor.gets(path).await.status, 404, "{path}");
    }
    for path in ["/%6detrics", "//healthz", "/Healthz"] {
        assert_eq!(visitor.gets(path).await.status, 403, "{path}");
    }
    assert_eq!(visitor.gets("/%68ealthz").await.status, 200);
}
