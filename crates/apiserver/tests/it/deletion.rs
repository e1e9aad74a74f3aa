//! Tests of DELETE requests and their options.

use bowline_apiserver::{ApiServer, Options};
use http::{Method, Request};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use crate::Failure;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";

/// A server without controllers.
struct TestServer {
    _server: ApiServer,
    client: Client,
}

impl TestServer {
    async fn start() -> Result<TestServer, Failure> {
        let server = ApiServer::start(Options { built_in_controllers: false, ..Options::default() }).await?;
        let client = server.client().await?;
        Ok(TestServer { _server: server, client })
    }

    async fn send(&self, method: Method, path: &str, body: Value) -> Result<(u16, Value), Failure> {
        let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        let body = if body.is_null() { Vec::new() } else { serde_json::to_vec(&body)? };
        let response = self.client.send(request.body(Body::from(body))?).await?;
        let code = response.status().as_u16();
        Ok((code, serde_json::from_slice(&response.into_body().collect_bytes().await?)?))
    }

    async fn post(&self, path: &str, body: Value) -> Result<Value, Failure> {
        match self.send(Method::POST, path, body).await? {
            (201, object) => Ok(object),
            (code, error) => Err(format!("{path}: {code} {error}").into()),
        }
    }

    async fn delete(&self, path: &str, body: Value) -> Result<(u16, Value), Failure> {
        self.send(Method::DELETE, path, body).await
    }

    async fn code(&self, path: &str) -> Result<u16, Failure> {
        Ok(self.send(Method::GET, path, Value::Null).await?.0)
    }
}

fn map(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}

fn held(name: &str) -> Value {
    json!({"metadata": {"name": name, "finalizers": ["example.com/hold"]}})
}

#[tokio::test]
async fn a_second_deletion_changes_the_propagation_policy() -> Result<(), Failure> {
    let server = TestServer::start().await?;
    server.post(MAPS, held("a")).await?;
    let path = format!("{MAPS}/a");
    let steps = [
        (json!({"orphanDependents": false}), 202, json!(["example.com/hold"])),
        (json!({"propagationPolicy": "Orphan"}), 200, json!(["example.com/hold", "orphan"])),
        (Value::Null, 200, json!(["example.com/hold", "orphan"])),
        (json!({"propagationPolicy": "Foreground"}), 200, json!(["example.com/hold", "foregroundDeletion"])),
        (json!({"propagationPolicy": "Background"}), 200, json!(["example.com/hold"])),
    ];
    for (options, code, finalizers) in steps {
        let (found, object) = server.delete(&path, options.clone()).await?;
        assert_eq!((found, &object["metadata"]["finalizers"]), (code, &finalizers), "{options}");
    }
    server.post(MAPS, map("b")).await?;
    server.delete(&format!("{MAPS}/b?propagationPolicy=Orphan"), Value::Null).await?;
    let (_, response) = server.delete(&format!("{MAPS}/b?propagationPolicy=Background"), Value::Null).await?;
    assert_eq!(response["status"], "Success", "no finalizer is left");
    assert_eq!(server.code(&format!("{MAPS}/b")).await?, 404);
    Ok(())
}

#[tokio::test]
async fn a_limited_collection_is_deleted_page_by_page() -> Result<(), Failure> {
    let server = TestServer::start().await?;
    for name in ["a", "b", "c"] {
        server.post(MAPS, map(name)).await?;
    }
    let (_, page) = server.delete(&format!("{MAPS}?limit=2"), Value::Null).await?;
    let names: Vec<&Value> = page["items"].as_array().into_iter().flatten().map(|i| &i["metadata"]["name"]).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(page["metadata"]["remainingItemCount"], 1);
    let token = page["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
    let (_, rest) = server.delete(&format!("{MAPS}?limit=2&continue={token}"), Value::Null).await?;
    assert_eq!(rest["items"][0]["metadata"]["name"], "c");
    assert_eq!(rest["metadata"].get("continue"), None);
    assert_eq!(server.delete(&format!("{MAPS}?continue=x"), Value::Null).await?.0, 400);
    Ok(())
}

#[tokio::test]
async fn delete_options_in_the_body_override_the_query() -> Result<(), Failure> {
    let server = TestServer::start().await?;
    server.post(MAPS, map("a")).await?;
    let path = format!("{MAPS}/a?dryRun=All&propagationPolicy=Orphan");
    let (_, response) = server.delete(&path, json!({"propagationPolicy": "Background"})).await?;
    assert_eq!(response["status"], "Success");
    assert_eq!(server.code(&format!("{MAPS}/a")).await?, 404);
    Ok(())
}

#[tokio::test]
async fn invalid_delete_options_are_rejected() -> Result<(), Failure> {
    let server = TestServer::start().await?;
    server.post(MAPS, map("a")).await?;
    let unsafely = "ignoreStoreReadErrorWithClusterBreakingPotential";
    let cases = [
        (json!({"propagationPolicy": "Sideways"}), 422),
        (json!({"propagationPolicy": "Orphan", "orphanDependents": true}), 422),
        (json!({"dryRun": ["Some"]}), 422),
        (json!({unsafely: true, "gracePeriodSeconds": 1}), 422),
        (json!({unsafely: true}), 409),
        (json!({"preconditions": {"uid": "x"}}), 409),
        (json!({"kind": "Pod", "apiVersion": "v1"}), 400),
        (json!([]), 400),
    ];
    for (options, code) in cases {
        assert_eq!(server.delete(&format!("{MAPS}/a"), options.clone()).await?.0, code, "{options}");
    }
    assert_eq!(server.code(&format!("{MAPS}/a")).await?, 200);
    Ok(())
}

#[tokio::test]
async fn the_grace_period_of_a_pod_can_only_be_shortened() -> Result<(), Failure> {
    let server = TestServer::start().await?;
    server.post("/api/v1/namespaces/default/serviceaccounts", map("default")).await?;
    let spec = json!({"nodeName": "n", "containers": [{"name": "c", "image": "i"}]});
    server.post(PODS, json!({"metadata": {"name": "a"}, "spec": spec})).await?;
    let path = format!("{PODS}/a");
    for (requested, left) in [(None, 30), (None, 30), (Some(40), 30), (Some(10), 10), (Some(-1), 1), (Some(0), 0)] {
        let (_, pod) = server.delete(&path, json!({"gracePeriodSeconds": requested})).await?;
        assert_eq!(pod["metadata"]["deletionGracePeriodSeconds"], left, "{requested:?}");
        assert_eq!(pod["metadata"]["generation"], 2);
    }
    assert_eq!(server.code(&path).await?, 404);
    Ok(())
}

#[tokio::test]
async fn a_terminating_namespace_rejects_new_content() -> Result<(), Failure> {
    let server = TestServer::start().await?;
    server.post("/api/v1/namespaces", map("a")).await?;
    server.post("/api/v1/namespaces/a/serviceaccounts", map("bot")).await?;
    let (code, error) = server.delete("/api/v1/namespaces/a", json!({"preconditions": {"uid": "x"}})).await?;
    assert_eq!((code, &error["details"]["kind"]), (409, &json!("namespaces")));
    let (code, marked) = server.delete("/api/v1/namespaces/a", json!({"orphanDependents": false})).await?;
    assert_eq!((code, &marked["metadata"]["finalizers"]), (202, &json!(["foregroundDeletion"])));
    assert_eq!(marked["metadata"].get("deletionGracePeriodSeconds"), None);
    let posts = [
        ("configmaps", json!({"metadata": {"generateName": "gen-"}}), "gen-"),
        ("serviceaccounts/bot/token", json!({"spec": {}}), "bot"),
        ("pods/p/eviction", json!({"metadata": {"name": "p"}}), "p"),
    ];
    for (path, body, name) in posts {
        let (code, error) = server.send(Method::POST, &format!("/api/v1/namespaces/a/{path}"), body).await?;
        assert_eq!((code, &error["details"]["name"]), (403, &json!(name)), "{path}");
    }
    Ok(())
}

#[tokio::test]
async fn events_have_no_dependents() -> Result<(), Failure> {
    let server = TestServer::start().await?;
    let events = "/api/v1/namespaces/default/events";
    server.post(events, json!({"metadata": {"name": "e"}, "involvedObject": {"namespace": "default"}})).await?;
    let (_, response) = server.delete(&format!("{events}/e?propagationPolicy=Orphan"), Value::Null).await?;
    assert_eq!(response["status"], "Success");
    Ok(())
}
