//! Tests of Node writes by the controllers for pod CIDRs and routes.

use bowline_apiserver::{ApiServer, Options};
use http::{Method, Request};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use crate::Failure;

const NODES: &str = "/api/v1/nodes";
const JSON: &str = "application/json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const MERGE: &str = "application/merge-patch+json";

/// The error for a change of a pod CIDR that is already set.
const IMMUTABLE: &str = r#"spec.podCIDRs: Forbidden: node updates may not change podCIDR except from "" to valid"#;

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

    async fn send(&self, method: Method, path: &str, kind: &str, body: &Value) -> Result<(u16, Value), Failure> {
        let request = Request::builder().method(method).uri(path).header("content-type", kind);
        let response = self.client.send(request.body(Body::from(serde_json::to_vec(body)?))?).await?;
        let code = response.status().as_u16();
        Ok((code, serde_json::from_slice(&response.into_body().collect_bytes().await?)?))
    }

    async fn create(&self, name: &str, spec: Value) -> Result<(u16, Value), Failure> {
        self.send(Method::POST, NODES, JSON, &json!({"metadata": {"name": name}, "spec": spec})).await
    }

    async fn patch(&self, name: &str, kind: &str, patch: &Value) -> Result<(u16, Value), Failure> {
        self.send(Method::PATCH, &format!("{NODES}/{name}"), kind, patch).await
    }

    async fn patch_status(&self, name: &str, patch: &Value) -> Result<(u16, Value), Failure> {
        self.send(Method::PATCH, &format!("{NODES}/{name}/status"), STRATEGIC, patch).await
    }
}

/// The pod CIDRs of a Node, or reason and message of the error.
fn pod_cidrs((code, response): &(u16, Value)) -> (u16, Value) {
    match code {
        200 | 201 => (*code, json!([response["spec"]["podCIDR"], response["spec"]["podCIDRs"]])),
        _ => (*code, json!([response["reason"], response["message"]])),
    }
}

/// The error for an invalid Node.
fn invalid(name: &str, why: &str) -> (u16, Value) {
    (422, json!(["Invalid", format!("Node \"{name}\" is invalid: {why}")]))
}

#[tokio::test]
async fn pod_cidr_and_pod_cidrs_are_kept_consistent() -> Result<(), Failure> {
    let cluster = TestServer::start().await?;
    let (v4, v6) = ("10.244.1.0/24", "fd00:1::/64");
    let cases = [
        ("neither", json!({}), (201, json!([null, null]))),
        ("the-first-alone", json!({"podCIDR": v4}), (201, json!([v4, [v4]]))),
        ("the-list-alone", json!({"podCIDRs": [v6, v4]}), (201, json!([v6, [v6, v4]]))),
        ("both", json!({"podCIDR": v4, "podCIDRs": [v4, v6]}), (201, json!([v4, [v4, v6]]))),
        ("spelt-oddly", json!({"podCIDR": "fd00:0::/64"}), (201, json!(["fd00:0::/64", ["fd00:0::/64"]]))),
        // upstream: podCIDR takes precedence over a podCIDRs list that starts with another CIDR.
        ("at-odds", json!({"podCIDR": v4, "podCIDRs": [v6]}), (201, json!([v4, [v4]]))),
    ];
    for (name, spec, expected) in cases {
        assert_eq!(pod_cidrs(&cluster.create(name, spec).await?), expected, "{name}");
    }
    Ok(())
}

#[tokio::test]
async fn a_node_has_at_most_one_valid_pod_cidr_per_ip_family() -> Result<(), Failure> {
    let cluster = TestServer::start().await?;
    let family = "may specify no more than one CIDR for each IP family";
    let cidr = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
    let cases = [
        (
            "not-a-cidr",
            json!({"podCIDR": "10.244.1.0"}),
            format!(r#"spec.podCIDRs[0]: Invalid value: "10.244.1.0": {cidr}"#),
        ),
        (
            "host-bits",
            json!({"podCIDR": "10.244.1.1/24"}),
            r#"spec.podCIDRs[0]: Invalid value: "10.244.1.1/24": must not have bits set beyond the prefix length"#
                .into(),
        ),
        (
            "twice",
            json!({"podCIDRs": ["10.244.1.0/24", "10.244.1.0/24"]}),
            format!(r#"spec.podCIDRs: Invalid value: ["10.244.1.0/24","10.244.1.0/24"]: {family}"#),
        ),
        (
            "one-family",
            json!({"podCIDRs": ["10.244.1.0/24", "10.244.2.0/24"]}),
            format!(r#"spec.podCIDRs: Invalid value: ["10.244.1.0/24","10.244.2.0/24"]: {family}"#),
        ),
        (
            "three",
            json!({"podCIDRs": ["10.244.1.0/24", "fd00:1::/64", "10.244.2.0/24"]}),
            format!(r#"spec.podCIDRs: Invalid value: ["10.244.1.0/24","fd00:1::/64","10.244.2.0/24"]: {family}"#),
        ),
    ];
    for (name, spec, why) in cases {
        assert_eq!(pod_cidrs(&cluster.create(name, spec).await?), invalid(name, &why), "{name}");
    }
    Ok(())
}

#[tokio::test]
async fn pod_cidrs_are_set_by_strategic_and_merge_patches() -> Result<(), Failure> {
    let cluster = TestServer::start().await?;
    let (v4, v6) = ("10.244.1.0/24", "fd00:1::/64");
    let cases = [
        ("first", json!({"podCIDR": v4}), json!([v4, [v4]])),
        ("list", json!({"podCIDRs": [v4]}), json!([v4, [v4]])),
        ("both", json!({"podCIDR": v4, "podCIDRs": [v4]}), json!([v4, [v4]])),
        // The list keeps the order of the IP families, although it merges as a set.
        ("two", json!({"podCIDR": v6, "podCIDRs": [v6, v4]}), json!([v6, [v6, v4]])),
    ];
    for (name, spec, expected) in cases {
        for (suffix, kind) in [("s", STRATEGIC), ("m", MERGE)] {
            let name = format!("{name}-{suffix}");
            let (_, node) = cluster.create(&name, json!({})).await?;
            let patch = json!({"metadata": {"uid": node["metadata"]["uid"]}, "spec": spec});
            let response = cluster.patch(&name, kind, &patch).await?;
            assert_eq!(pod_cidrs(&response), (200, expected.clone()), "{name}");
            let again = cluster.patch(&name, kind, &patch).await?;
            assert_eq!(pod_cidrs(&again), (200, expected.clone()), "{name}, again");
            let version = |(_, node): &(u16, Value)| node["metadata"]["resourceVersion"].clone();
            assert_eq!(version(&again), version(&response), "{name}: repeating the patch changes nothing");
        }
    }
    Ok(())
}

#[tokio::test]
async fn pod_cidrs_are_immutable_once_set() -> Result<(), Failure> {
    let cluster = TestServer::start().await?;
    let (old, other, v6) = ("10.244.1.0/24", "10.244.2.0/24", "fd00:1::/64");
    cluster.create("n", json!({"podCIDR": old})).await?;
    // upstream: a strategic merge patch adds to the list, so a second CIDR of the same IP family is one too many.
    let added = format!(
        "[spec.podCIDRs: Invalid value: [\"{other}\",\"{old}\"]: may specify no more than one CIDR for each IP family, {IMMUTABLE}]"
    );
    let cases = [
        (STRATEGIC, json!({"podCIDR": other, "podCIDRs": [other]}), invalid("n", &added)),
        (STRATEGIC, json!({"podCIDR": other}), invalid("n", IMMUTABLE)),
        (STRATEGIC, json!({"podCIDR": old, "podCIDRs": [old, v6]}), invalid("n", IMMUTABLE)),
        (STRATEGIC, json!({"podCIDR": null, "podCIDRs": null}), invalid("n", IMMUTABLE)),
        (MERGE, json!({"podCIDR": other, "podCIDRs": [other]}), invalid("n", IMMUTABLE)),
        (MERGE, json!({"podCIDR": other, "podCIDRs": [other, v6]}), invalid("n", IMMUTABLE)),
        // Either field restores the other.
        (MERGE, json!({"podCIDR": null}), (200, json!([old, [old]]))),
        (MERGE, json!({"podCIDRs": null}), (200, json!([old, [old]]))),
    ];
    for (kind, spec, expected) in cases {
        let response = cluster.patch("n", kind, &json!({"spec": spec})).await?;
        assert_eq!(pod_cidrs(&response), expected, "{kind} {spec}");
    }
    let (_, error) = cluster.patch("n", MERGE, &json!({"spec": {"podCIDR": other}})).await?;
    let cause = json!({
        "reason": "FieldValueForbidden", "field": "spec.podCIDRs",
        "message": "Forbidden: node updates may not change podCIDR except from \"\" to valid",
    });
    assert_eq!(error["details"]["causes"], json!([cause]));
    Ok(())
}

#[tokio::test]
async fn a_patch_with_the_uid_of_another_node_is_rejected() -> Result<(), Failure> {
    let cluster = TestServer::start().await?;
    cluster.create("n", json!({})).await?;
    let uid = "00000000-0000-0000-0000-000000000000";
    let why = format!("metadata.uid: Invalid value: \"{uid}\": field is immutable");
    let spec = json!({"metadata": {"uid": uid}, "spec": {"podCIDR": "10.244.1.0/24"}});
    assert_eq!(pod_cidrs(&cluster.patch("n", STRATEGIC, &spec).await?), invalid("n", &why));
    let conditions = json!([{"type": "NetworkUnavailable", "status": "False"}]);
    let status = json!({"metadata": {"uid": uid}, "status": {"conditions": conditions}});
    assert_eq!(pod_cidrs(&cluster.patch_status("n", &status).await?), invalid("n", &why));
    Ok(())
}

#[tokio::test]
async fn conditions_merge_by_type_and_a_status_patch_keeps_pod_cidrs() -> Result<(), Failure> {
    let cluster = TestServer::start().await?;
    let condition = |kind: &str, status: &str, reason: &str| json!({"type": kind, "status": status, "reason": reason});
    let ready = condition("Ready", "True", "KubeletReady");
    let unavailable = condition("NetworkUnavailable", "True", "NoRouteCreated");
    let node = json!({"metadata": {"name": "n"}, "status": {"conditions": [unavailable, ready]}});
    cluster.send(Method::POST, NODES, JSON, &node).await?;
    cluster.patch("n", STRATEGIC, &json!({"spec": {"podCIDR": "10.244.1.0/24"}})).await?;

    let available = condition("NetworkUnavailable", "False", "RouteCreated");
    let patch = json!({"spec": {"podCIDR": "10.244.9.0/24"}, "status": {"conditions": [available]}});
    let (code, node) = cluster.patch_status("n", &patch).await?;
    assert_eq!(code, 200, "{node}");
    assert_eq!(node["spec"]["podCIDRs"], json!(["10.244.1.0/24"]), "a status patch does not change the spec");
    let conditions_of = |node: &Value| -> Vec<Value> {
        let conditions = node["status"]["conditions"].as_array().into_iter().flatten();
        conditions.map(condition_of).collect()
    };
    assert_eq!(conditions_of(&node), [available.clone(), ready.clone()]);

    // A status patch of the kubelet does not contain this condition and keeps it.
    let (_, node) = cluster.patch_status("n", &json!({"status": {"conditions": [ready]}})).await?;
    assert_eq!(conditions_of(&node), [available, ready]);
    Ok(())
}

/// The condition without its timestamps.
fn condition_of(condition: &Value) -> Value {
    json!({"type": condition["type"], "status": condition["status"], "reason": condition["reason"]})
}
