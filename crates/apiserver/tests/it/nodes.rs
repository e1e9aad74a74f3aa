//! Nodes as the controllers for pod ranges and routes write them, request by request.

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

/// What an API server says of a range that is given a second time.
const ONCE: &str = r#"spec.podCIDRs: Forbidden: node updates may not change podCIDR except from "" to valid"#;

/// A server on which nothing acts by itself.
struct Quiet {
    _server: ApiServer,
    client: Client,
}

impl Quiet {
    async fn start() -> Result<Quiet, Failure> {
        let server = ApiServer::start(Options { built_in_controllers: false, ..Options::default() }).await?;
        let client = server.client().await?;
        Ok(Quiet { _server: server, client })
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

/// The ranges of a Node, or what was said instead.
fn ranges((code, answer): &(u16, Value)) -> (u16, Value) {
    match code {
        200 | 201 => (*code, json!([answer["spec"]["podCIDR"], answer["spec"]["podCIDRs"]])),
        _ => (*code, json!([answer["reason"], answer["message"]])),
    }
}

/// A refusal of this Node.
fn invalid(name: &str, why: &str) -> (u16, Value) {
    (422, json!(["Invalid", format!("Node \"{name}\" is invalid: {why}")]))
}

#[tokio::test]
async fn a_node_is_registered_with_ranges_that_agree() -> Result<(), Failure> {
    let cluster = Quiet::start().await?;
    let (v4, v6) = ("10.244.1.0/24", "fd00:1::/64");
    let cases = [
        ("neither", json!({}), (201, json!([null, null]))),
        ("the-first-alone", json!({"podCIDR": v4}), (201, json!([v4, [v4]]))),
        ("the-list-alone", json!({"podCIDRs": [v6, v4]}), (201, json!([v6, [v6, v4]]))),
        ("both", json!({"podCIDR": v4, "podCIDRs": [v4, v6]}), (201, json!([v4, [v4, v6]]))),
        ("spelt-oddly", json!({"podCIDR": "fd00:0::/64"}), (201, json!(["fd00:0::/64", ["fd00:0::/64"]]))),
        // upstream: the older field wins over a list that begins with another one.
        ("at-odds", json!({"podCIDR": v4, "podCIDRs": [v6]}), (201, json!([v4, [v4]]))),
    ];
    for (name, spec, expected) in cases {
        assert_eq!(ranges(&cluster.create(name, spec).await?), expected, "{name}");
    }
    Ok(())
}

#[tokio::test]
async fn a_node_has_one_valid_range_of_each_family_at_most() -> Result<(), Failure> {
    let cluster = Quiet::start().await?;
    let family = "may specify no more than one CIDR for each IP family";
    let cidr = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
    let cases = [
        (
            "no-range",
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
        assert_eq!(ranges(&cluster.create(name, spec).await?), invalid(name, &why), "{name}");
    }
    Ok(())
}

#[tokio::test]
async fn ranges_are_given_to_a_node_by_either_kind_of_patch() -> Result<(), Failure> {
    let cluster = Quiet::start().await?;
    let (v4, v6) = ("10.244.1.0/24", "fd00:1::/64");
    let cases = [
        ("first", json!({"podCIDR": v4}), json!([v4, [v4]])),
        ("list", json!({"podCIDRs": [v4]}), json!([v4, [v4]])),
        ("both", json!({"podCIDR": v4, "podCIDRs": [v4]}), json!([v4, [v4]])),
        // The order of the list is the order of the families, although it merges as a set.
        ("two", json!({"podCIDR": v6, "podCIDRs": [v6, v4]}), json!([v6, [v6, v4]])),
    ];
    for (name, spec, expected) in cases {
        for (suffix, kind) in [("s", STRATEGIC), ("m", MERGE)] {
            let name = format!("{name}-{suffix}");
            let (_, node) = cluster.create(&name, json!({})).await?;
            let patch = json!({"metadata": {"uid": node["metadata"]["uid"]}, "spec": spec});
            let answer = cluster.patch(&name, kind, &patch).await?;
            assert_eq!(ranges(&answer), (200, expected.clone()), "{name}");
            let again = cluster.patch(&name, kind, &patch).await?;
            assert_eq!(ranges(&again), (200, expected.clone()), "{name}, again");
            let version = |(_, node): &(u16, Value)| node["metadata"]["resourceVersion"].clone();
            assert_eq!(version(&again), version(&answer), "{name}: the same again is no change");
        }
    }
    Ok(())
}

#[tokio::test]
async fn ranges_are_given_once() -> Result<(), Failure> {
    let cluster = Quiet::start().await?;
    let (old, other, v6) = ("10.244.1.0/24", "10.244.2.0/24", "fd00:1::/64");
    cluster.create("n", json!({"podCIDR": old})).await?;
    // upstream: a strategic patch adds to the list, so that the other range of the same family is one too many.
    let added = format!(
        "[spec.podCIDRs: Invalid value: [\"{other}\",\"{old}\"]: may specify no more than one CIDR for each IP family, {ONCE}]"
    );
    let cases = [
        (STRATEGIC, json!({"podCIDR": other, "podCIDRs": [other]}), invalid("n", &added)),
        (STRATEGIC, json!({"podCIDR": other}), invalid("n", ONCE)),
        (STRATEGIC, json!({"podCIDR": old, "podCIDRs": [old, v6]}), invalid("n", ONCE)),
        (STRATEGIC, json!({"podCIDR": null, "podCIDRs": null}), invalid("n", ONCE)),
        (MERGE, json!({"podCIDR": other, "podCIDRs": [other]}), invalid("n", ONCE)),
        (MERGE, json!({"podCIDR": other, "podCIDRs": [other, v6]}), invalid("n", ONCE)),
        // One of the two fields is as good as both.
        (MERGE, json!({"podCIDR": null}), (200, json!([old, [old]]))),
        (MERGE, json!({"podCIDRs": null}), (200, json!([old, [old]]))),
    ];
    for (kind, spec, expected) in cases {
        let answer = cluster.patch("n", kind, &json!({"spec": spec})).await?;
        assert_eq!(ranges(&answer), expected, "{kind} {spec}");
    }
    let (_, refusal) = cluster.patch("n", MERGE, &json!({"spec": {"podCIDR": other}})).await?;
    let cause = json!({
        "reason": "FieldValueForbidden", "field": "spec.podCIDRs",
        "message": "Forbidden: node updates may not change podCIDR except from \"\" to valid",
    });
    assert_eq!(refusal["details"]["causes"], json!([cause]));
    Ok(())
}

#[tokio::test]
async fn a_write_that_means_another_node_of_the_same_name_is_refused() -> Result<(), Failure> {
    let cluster = Quiet::start().await?;
    cluster.create("n", json!({})).await?;
    let uid = "00000000-0000-0000-0000-000000000000";
    let why = format!("metadata.uid: Invalid value: \"{uid}\": field is immutable");
    let spec = json!({"metadata": {"uid": uid}, "spec": {"podCIDR": "10.244.1.0/24"}});
    assert_eq!(ranges(&cluster.patch("n", STRATEGIC, &spec).await?), invalid("n", &why));
    let conditions = json!([{"type": "NetworkUnavailable", "status": "False"}]);
    let status = json!({"metadata": {"uid": uid}, "status": {"conditions": conditions}});
    assert_eq!(ranges(&cluster.patch_status("n", &status).await?), invalid("n", &why));
    Ok(())
}

#[tokio::test]
async fn conditions_merge_by_type_and_a_status_patch_leaves_the_ranges() -> Result<(), Failure> {
    let cluster = Quiet::start().await?;
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
    assert_eq!(node["spec"]["podCIDRs"], json!(["10.244.1.0/24"]), "spec is not status");
    let told = |node: &Value| -> Vec<Value> {
        let conditions = node["status"]["conditions"].as_array().into_iter().flatten();
        conditions.map(condition_of).collect()
    };
    assert_eq!(told(&node), [available.clone(), ready.clone()]);

    // The kubelet's own words come without this one, and leave it.
    let (_, node) = cluster.patch_status("n", &json!({"status": {"conditions": [ready]}})).await?;
    assert_eq!(told(&node), [available, ready]);
    Ok(())
}

/// Without its times.
fn condition_of(told: &Value) -> Value {
    json!({"type": told["type"], "status": told["status"], "reason": told["reason"]})
}
