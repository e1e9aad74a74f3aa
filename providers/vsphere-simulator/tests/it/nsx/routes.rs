//! Static routes and search.

use std::time::Duration;

use bowline_vsphere_simulator::nsx::{Options, Work};
use serde_json::{Value, json};
use tokio::time::advance;

use super::{Client, code, column};

const SCOPE: &str = "vsphere.k8s.io/cluster-name";

fn route(network: &str, cluster: &str) -> Value {
    let tags = json!([{"scope": SCOPE, "tag": cluster}, {"scope": "vsphere.k8s.io/node-name", "tag": "node-1"}]);
    json!({"network": network, "next_hops": [{"ip_address": "172.50.0.13"}], "tags": tags})
}

impl Client {
    async fn search(&self, query: &str) -> (u16, Value) {
        let query: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
        self.get(&format!("/search/query?query={query}")).await
    }

    async fn found(&self, query: &str) -> Vec<String> {
        let (status, answer) = self.search(query).await;
        assert_eq!(status, 200, "{query}: {answer}");
        column(&answer, "id")
    }
}

#[tokio::test]
async fn a_static_route_is_created_by_patch_below_each_kind_of_gateway() {
    let client = Client::over_http(Options { realization: Work::Instantly, ..Options::default() }).await;
    for gateway in ["/infra/tier-1s/t1", "/infra/tier-0s/t0", "/orgs/default/projects/blue/infra/tier-1s/t1"] {
        let path = format!("{gateway}/static-routes/uid_100.96.0.0_24");
        assert_eq!(code(client.patch(&path, route("100.96.0.0/24", "c1")).await), (400, 500_012), "{gateway}");
        client.nsx.add_gateway(gateway);
        assert_eq!(client.patch(&path, route("100.96.0.0/24", "c1")).await, (200, Value::Null));
        let (_, created) = client.get(&path).await;
        assert_eq!((&created["resource_type"], &created["parent_path"]), (&json!("StaticRoutes"), &json!(gateway)));
        assert_eq!(created["next_hops"][0], json!({"ip_address": "172.50.0.13", "admin_distance": 1}));
        let root = gateway.split_once("/tier-").unwrap().0;
        let (_, realized) = client.get(&format!("{root}/realized-state/realized-entities?intent_path={path}")).await;
        assert_eq!(realized["results"][0]["state"], "REALIZED");
        let other = client.get(&format!("/infra/realized-state/realized-entities?intent_path={path}")).await;
        assert_eq!(other.0, if root == "/infra" { 200 } else { 404 }, "a project has an endpoint of its own");
        assert_eq!(client.delete(&path).await.0, 200);
        assert_eq!(code(client.delete(&path).await), (404, 600));
    }
}

#[tokio::test]
async fn a_patch_of_a_static_route_keeps_other_fields() {
    let client = Client::over_http(Options::default()).await;
    let path = format!("{}/static-routes/r", client.nsx.add_tier1("t1"));
    client.patch(&path, route("100.96.0.0/24", "c1")).await;
    client.patch(&path, json!({"next_hops": [{"ip_address": "172.50.0.14"}]})).await;
    let (_, changed) = client.get(&path).await;
    assert_eq!((&changed["network"], &changed["_revision"]), (&json!("100.96.0.0/24"), &json!(1)));
    assert_eq!(changed["next_hops"][0]["ip_address"], "172.50.0.14");
}

#[tokio::test]
async fn a_static_route_is_validated() {
    let client = Client::over_http(Options::default()).await;
    let path = format!("{}/static-routes/r", client.nsx.add_tier1("t1"));
    for change in [json!({"network": "100.96.0.0"}), json!({"next_hops": []}), json!({"next_hops": [{"scope": []}]})] {
        let mut body = route("100.96.0.0/24", "c1");
        body.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        assert_eq!(code(client.patch(&path, body).await), (400, 255), "{change}");
    }
    assert_eq!(client.patch(&path, route("21DA:00D3:0000:2F3B::/64", "c1")).await.0, 200);
    assert_eq!(client.get(&path).await.1["network"], "21DA:00D3:0000:2F3B::/64");
}

#[tokio::test]
async fn search_finds_by_type_and_tags() {
    let client = Client::over_http(Options::default()).await;
    client.nsx.add_tier1("t1");
    for (id, cluster) in [("a", "c1"), ("b", "c2"), ("c", "C1"), ("d", "c(1)")] {
        client.patch(&format!("/infra/tier-1s/t1/static-routes/{id}"), route("100.96.0.0/24", cluster)).await;
    }
    client.nsx.put("/infra/lb-pools/pool", json!({"tags": [{"scope": SCOPE, "tag": "c1"}]}));
    let scope = r"tags.scope:vsphere.k8s.io\/cluster-name";
    let routes = format!("resource_type:StaticRoutes AND {scope}");
    assert_eq!(client.found(&format!("{routes} AND tags.tag:c1")).await, ["a", "c"], "the case does not matter");
    assert_eq!(client.found(&format!("{scope} AND tags.tag:c1 AND NOT id:c")).await, ["a", "pool"]);
    assert_eq!(client.found(&format!(r"{routes} AND tags.tag:c\(1\)")).await, ["d"]);
    assert_eq!(client.found(&format!("{routes} AND tags.tag:\"c(1)\"")).await, ["d"]);
    assert_eq!(client.found(&format!("{routes} AND tags.tag:node*")).await.len(), 4, "scope and tag are independent");
    assert_eq!(client.found(&format!("{routes} AND (id:b OR id:d)")).await, ["b", "d"]);
    assert_eq!(client.found(&format!("{routes} AND id:?  AND marked_for_delete:false")).await.len(), 4);
    assert_eq!(client.found("unknown_field:x").await, Vec::<String>::new());
}

#[tokio::test]
async fn search_refuses_what_is_not_escaped() {
    let client = Client::over_http(Options::default()).await;
    let invalid = [
        "tags.scope:a/b",
        "tags.tag:c(1)",
        "id:",
        "id",
        "id:a AND",
        "id:a id:b",
        "(id:a",
        "id:a OR AND id:b",
        ":a",
        r"id:a\",
        "id:\"a",
    ];
    for query in invalid {
        assert_eq!(code(client.search(query).await), (400, 60_501), "{query}");
    }
    assert_eq!(client.get("/search/query").await.0, 400);
    assert_eq!(client.get("/search/query?query=id:a&size=3").await.0, 400);
}

#[tokio::test]
async fn search_has_a_cursor_on_its_last_page() {
    let client = Client::over_http(Options { max_page: 2, ..Options::default() }).await;
    for id in ["a", "b", "c"] {
        client.nsx.put(&format!("/infra/lb-pools/{id}"), json!({}));
    }
    let mut cursor = String::new();
    for (expected, count) in [(vec!["a", "b"], json!(3)), (vec!["c"], Value::Null), (vec![], Value::Null)] {
        let (_, page) = client.get(&format!("/search/query?query=resource_type:LBPool{cursor}")).await;
        assert_eq!(
            (column(&page, "id"), &page["result_count"]),
            (expected.iter().map(|id| (*id).to_owned()).collect(), &count)
        );
        let next: String = page["cursor"].as_str().unwrap().bytes().map(|byte| format!("%{byte:02X}")).collect();
        cursor = format!("&cursor={next}");
    }
}

#[tokio::test]
async fn the_search_index_lags_behind() {
    let lag = Duration::from_secs(2);
    let client =
        Client::paused(Options { index_lag: Work::Taking(lag), purge: Work::Taking(lag), ..Options::default() });
    client.create("/infra/lb-pools/p", json!({})).await;
    assert_eq!(client.found("id:p").await, Vec::<String>::new());
    advance(lag).await;
    assert_eq!(client.found("id:p").await, ["p"]);
    client.delete("/infra/lb-pools/p").await;
    assert_eq!(client.found("id:p AND marked_for_delete:false").await, ["p"]);
    advance(lag).await;
    assert_eq!(client.found("id:p AND marked_for_delete:true").await, ["p"]);
    advance(lag).await;
    assert_eq!(client.found("id:p").await, Vec::<String>::new());
}
