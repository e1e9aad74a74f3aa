//! Tokens, scopes, rate limits, errors and pages.

use std::time::Duration;

use bowline_digitalocean_simulator::{Fault, FaultSpec, NewDroplet, Options, error_fault};
use http::Method;
use serde_json::{Value, json};

use crate::client::Client;

#[tokio::test]
async fn a_token_can_be_replaced() {
    let mut client = Client::new(Options::default());
    client.cloud.configure(|options| options.token = "next".to_owned());
    let (status, error) = client.get("/v2/account").await;
    assert_eq!((status, &error["id"]), (401, &json!("unauthorized")));
    assert_eq!(error["message"], "Unable to authenticate you.");
    client.token = "next".to_owned();
    assert_eq!(client.get("/v2/account").await.1["account"]["status"], "active");
}

#[tokio::test]
async fn a_missing_scope_is_forbidden() {
    let client = Client::new(Options::default());
    let withhold = |scope: &str| client.cloud.configure(|options| options.withheld_scopes = [scope.to_owned()].into());
    withhold("load_balancer:create");
    let (status, error) = client.post("/v2/load_balancers", client.web(json!({}))).await;
    assert_eq!((status, &error["id"]), (403, &json!("forbidden")));
    assert_eq!(client.get("/v2/load_balancers").await.0, 200);
    withhold("regions:read");
    assert_eq!(client.get("/v2/regions").await.0, 403);
    withhold("droplet:update");
    client.cloud.put("tags", json!({"id": "k8s"}));
    let resource = json!({"resources": [{"resource_id": client.droplets[0].to_string(), "resource_type": "droplet"}]});
    assert_eq!(client.post("/v2/tags/k8s/resources", resource).await.0, 403);
}

#[tokio::test]
async fn every_answer_has_a_request_id_and_the_rate_limit() {
    let client = Client::new(Options::default());
    for (path, remaining) in [("/v2/account", "4999"), ("/v2/droplets/1", "4998"), ("/v2/nonsense", "4997")] {
        let (status, headers, body) = client.send(Method::GET, path, Value::Null).await;
        assert_eq!(
            (&headers["ratelimit-limit"], &headers["ratelimit-remaining"]),
            (&"5000".parse().unwrap(), &remaining.parse().unwrap())
        );
        assert!(headers["ratelimit-reset"].to_str().unwrap().parse::<u64>().unwrap() > 1_700_000_000);
        if status == 404 {
            assert_eq!(
                (&body["id"], &body["request_id"]),
                (&json!("not_found"), &json!(headers["x-request-id"].to_str().unwrap()))
            );
        }
    }
}

#[tokio::test]
async fn the_hourly_limit_ends_after_an_hour() {
    tokio::time::pause();
    let client = Client::new(Options { hourly_limit: 2, ..Options::default() });
    for status in [200, 200, 429] {
        assert_eq!(client.get("/v2/account").await.0, status);
    }
    let (_, headers, error) = client.send(Method::GET, "/v2/account", Value::Null).await;
    assert_eq!((&headers["ratelimit-remaining"], &error["id"]), (&"0".parse().unwrap(), &json!("too_many_requests")));
    tokio::time::advance(Duration::from_secs(3600)).await;
    assert_eq!(client.get("/v2/account").await.0, 200);
}

#[tokio::test]
async fn faults_answer_in_the_format_of_the_api() {
    let client = Client::new(Options::default());
    let path = format!("/v2/droplets/{}", client.droplets[0]);
    client.cloud.inject(FaultSpec::always(error_fault(503, "maintenance")).on(Method::GET, "droplets/{id}").times(1));
    client.cloud.inject(FaultSpec::always(Fault::Throttled(Some(Duration::from_secs(7)))).times(1));
    let (status, error) = client.get(&path).await;
    assert_eq!((status, &error["id"], &error["message"]), (503, &json!("service_unavailable"), &json!("maintenance")));
    let (status, headers, _) = client.send(Method::GET, &path, Value::Null).await;
    assert_eq!((status, &headers["retry-after"]), (429, &"7".parse().unwrap()));
    assert_eq!(client.get(&path).await.0, 200);
    assert_eq!(client.cloud.counts()["GET droplets/{id}"], 3);
}

#[tokio::test]
async fn lists_have_pages_with_absolute_links() {
    let client = Client::new(Options::default());
    for number in 3..=250 {
        client
            .cloud
            .add_droplet(NewDroplet { tags: vec!["k8s:x".to_owned()], ..NewDroplet::named(&format!("node-{number}")) });
    }
    let (_, page) = client.get("/v2/droplets").await;
    assert_eq!((page["droplets"].as_array().unwrap().len(), &page["meta"]["total"]), (20, &json!(250)));
    let (_, page) = client.get("/v2/droplets?per_page=1000").await;
    assert_eq!(page["droplets"].as_array().unwrap().len(), 200);
    let (_, page) = client.get("/v2/droplets?tag_name=k8s:x&page=2&per_page=100").await;
    let link = |number: u32| json!(format!("http://do.test/v2/droplets?tag_name=k8s%3Ax&page={number}&per_page=100"));
    assert_eq!(page["links"]["pages"], json!({"first": link(1), "prev": link(1), "next": link(3), "last": link(3)}));
    assert_eq!(page["droplets"][0]["name"], "node-103");
    assert_eq!(client.get("/v2/droplets?page=9").await.1["droplets"].as_array().unwrap().len(), 20);
    assert_eq!(client.get("/v2/droplets?page=14").await.1["droplets"], json!([]));
    assert_eq!(client.get("/v2/droplets?page=x").await.0, 400);
    assert_eq!(client.get("/v2/regions").await.1["links"], json!({}));
}

#[tokio::test]
async fn a_droplet_reads_its_region_without_a_token() {
    let mut client = Client::new(Options { region: "fra1".to_owned(), ..Options::default() });
    client.token.clear();
    let request = http::Request::get("http://169.254.169.254/metadata/v1/region").body(Vec::new().into()).unwrap();
    assert_eq!(client.cloud.answer(request).await.unwrap().body(), "fra1");
    assert_eq!(client.get("/v2/account").await.0, 401);
}

#[tokio::test]
async fn a_body_that_is_no_json_object_is_rejected() {
    let client = Client::new(Options::default());
    assert_eq!(client.post("/v2/tags", Value::Null).await.0, 400);
    assert_eq!(client.post("/v2/tags", json!(["k8s"])).await.0, 422);
    assert_eq!(client.call(Method::PATCH, "/v2/tags", json!({})).await.0, 404);
}
