//! Lists: pages, order and filters.

use bowline_vsphere_simulator::nsx::{Fault, FaultSpec, Options, Work};
use serde_json::{Value, json};

use super::{Client, code, column};

/// Percent-encodes a query value.
fn escaped(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

#[tokio::test]
async fn a_list_has_pages_and_counts_on_the_first_one_only() {
    let client = Client::over_http(Options { max_page: 2, ..Options::default() }).await;
    for number in [3, 1, 5, 2, 4] {
        client.create(&format!("/infra/lb-pools/p{number}"), json!({"display_name": format!("pool {number}")})).await;
    }
    let (_, mut page) = client.get("/infra/lb-pools").await;
    assert_eq!((&page["result_count"], &page["sort_by"]), (&json!(5), &json!("display_name")));
    let mut found = column(&page, "id");
    let mut pages = 1;
    while let Some(cursor) = page["cursor"].as_str() {
        page = client.get(&format!("/infra/lb-pools?cursor={}", escaped(cursor))).await.1;
        assert!(page.get("result_count").is_none());
        found.extend(column(&page, "id"));
        pages += 1;
    }
    assert_eq!((pages, found), (3, ["p1", "p2", "p3", "p4", "p5"].map(str::to_owned).to_vec()));
    assert_eq!(code(client.get("/infra/lb-pools?cursor=x").await), (400, 255));
}

#[tokio::test]
async fn an_object_deleted_between_two_pages_moves_no_other() {
    let client = Client::over_http(Options::default()).await;
    for id in ["a", "b", "c", "d"] {
        client.create(&format!("/infra/lb-pools/{id}"), json!({})).await;
    }
    let (_, page) = client.get("/infra/lb-pools?page_size=2").await;
    client.delete("/infra/lb-pools/b").await;
    let cursor = escaped(page["cursor"].as_str().unwrap());
    let (_, next) = client.get(&format!("/infra/lb-pools?page_size=2&cursor={cursor}")).await;
    assert_eq!(column(&next, "id"), ["c", "d"]);
    assert!(next.get("cursor").is_none());
}

#[tokio::test]
async fn a_page_of_the_default_size_has_a_thousand_objects() {
    let client = Client::over_http(Options::default()).await;
    for number in 0..1001 {
        client.nsx.put(&format!("/infra/lb-pools/p{number}"), json!({}));
    }
    let (_, page) = client.get("/infra/lb-pools").await;
    assert_eq!((page["results"].as_array().unwrap().len(), &page["result_count"]), (1000, &json!(1001)));
    for size in ["1001", "-1", "many"] {
        assert_eq!(client.get(&format!("/infra/lb-pools?page_size={size}")).await.0, 400, "{size}");
    }
}

#[tokio::test]
async fn a_list_can_be_sorted_and_reduced() {
    let client = Client::over_http(Options::default()).await;
    for (id, name) in [("a", "z"), ("b", "y")] {
        client.create(&format!("/infra/lb-pools/{id}"), json!({"display_name": name})).await;
    }
    assert_eq!(column(&client.get("/infra/lb-pools").await.1, "id"), ["b", "a"]);
    assert_eq!(column(&client.get("/infra/lb-pools?sort_by=id").await.1, "id"), ["a", "b"]);
    assert_eq!(column(&client.get("/infra/lb-pools?sort_ascending=false").await.1, "id"), ["a", "b"]);
    let (_, whole) = client.get("/infra/lb-pools?included_fields=id,path").await;
    assert_eq!(whole["results"][0]["display_name"], "y", "only a search reduces its results");
    let (_, reduced) = client.get("/search/query?query=id:b&included_fields=id,path").await;
    assert_eq!(reduced["results"], json!([{"id": "b", "path": "/infra/lb-pools/b"}]));
}

#[tokio::test]
async fn an_empty_list_counts_zero() {
    let client = Client::over_http(Options::default()).await;
    let (status, list) = client.get("/infra/lb-virtual-servers").await;
    assert_eq!((status, &list["results"], &list["result_count"]), (200, &json!([]), &json!(0)));
    let (_, profiles) = client.get("/infra/lb-app-profiles").await;
    assert_eq!(column(&profiles, "resource_type"), ["LBHttpProfile", "LBFastTcpProfile", "LBFastUdpProfile"]);
    client.nsx.inject(FaultSpec::always(Fault::Empty).times(1));
    assert_eq!(client.get("/infra/lb-app-profiles").await.1["result_count"], 0);
}

#[tokio::test]
async fn deleted_objects_are_listed_on_request_until_they_are_purged() {
    let client = Client::over_http(Options { purge: Work::Manual, ..Options::default() }).await;
    client.create("/infra/lb-pools/p", json!({})).await;
    client.delete("/infra/lb-pools/p").await;
    assert_eq!(client.get("/infra/lb-pools").await.1["results"], json!([]));
    let (_, list) = client.get("/infra/lb-pools?include_mark_for_delete_objects=true").await;
    assert_eq!(list["results"][0]["marked_for_delete"], true);
    assert_eq!(code(client.put("/infra/lb-pools/p", json!({})).await), (400, 500_045));
    client.nsx.finish_work();
    client.create("/infra/lb-pools/p", json!({})).await;
}

#[tokio::test]
async fn allocations_are_listed_per_pool() {
    let client = Client::over_http(Options::default()).await;
    for pool in ["blue", "red"] {
        let path = client.nsx.add_ip_pool(pool, "10.0.0.5-10.0.0.9");
        assert_eq!(client.patch(&format!("{path}/ip-allocations/same"), json!({})).await, (200, Value::Null));
    }
    let (_, list) = client.get("/infra/ip-pools/red/ip-allocations").await;
    assert_eq!(column(&list, "path"), ["/infra/ip-pools/red/ip-allocations/same"]);
    assert_eq!(column(&list, "parent_path"), ["/infra/ip-pools/red"]);
    assert_eq!(client.nsx.objects("ip-allocations").len(), 2);
}
