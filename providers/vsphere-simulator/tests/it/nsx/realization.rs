//! Realized state, and the addresses of IP pools.

use std::time::Duration;

use bowline_vsphere_simulator::nsx::{Options, Work};
use serde_json::{Value, json};
use tokio::time::advance;

use super::{Client, code};

/// Time until a change is realized.
const DELAY: Duration = Duration::from_millis(300);

impl Client {
    /// Requests an address from the pool `vips` and returns the path of the allocation.
    async fn allocate(&self, id: &str, body: Value) -> String {
        let path = format!("/infra/ip-pools/vips/ip-allocations/{id}");
        assert_eq!(self.patch(&path, body).await, (200, Value::Null));
        path
    }

    /// State, address and alarm of an allocation.
    async fn allocated(&self, path: &str) -> (String, Value, Value) {
        let entity = self.realized(path).await.remove(0);
        let address = entity["extended_attributes"][0]["values"][0].clone();
        (entity["state"].as_str().unwrap().to_owned(), address, entity["alarms"][0]["message"].clone())
    }
}

fn realized(address: &str) -> (String, Value, Value) {
    ("REALIZED".to_owned(), json!(address), Value::Null)
}

#[tokio::test]
async fn an_allocation_gets_its_address_after_a_delay() {
    let client = Client::paused(Options::default());
    client.nsx.add_ip_pool("vips", "10.0.0.5-10.0.0.6");
    let path = client.allocate("a", json!({"tags": [{"scope": "service", "tag": "ns/web"}]})).await;
    assert_eq!(client.allocated(&path).await, ("UNREALIZED".to_owned(), Value::Null, Value::Null));
    advance(DELAY).await;
    assert_eq!(client.allocated(&path).await, realized("10.0.0.5"));
    let entity = client.realized(&path).await.remove(0);
    assert_eq!((&entity["entity_type"], &entity["intent_paths"]), (&json!("AllocationIpAddress"), &json!([path])));
    assert_eq!(entity["extended_attributes"][0]["key"], "allocation_ip");
    assert!(client.get(&path).await.1.get("allocation_ip").is_none(), "only a requested address is in the object");
    assert_eq!(client.nsx.allocated_address(&path), Some([10, 0, 0, 5].into()));
}

#[tokio::test]
async fn the_realized_state_of_a_new_object_can_be_empty() {
    let client = Client::paused(Options { unrealized_visible: false, ..Options::default() });
    client.nsx.add_ip_pool("vips", "10.0.0.5");
    let path = client.allocate("a", json!({})).await;
    assert!(client.realized(&path).await.is_empty());
    advance(DELAY).await;
    assert_eq!(client.allocated(&path).await, realized("10.0.0.5"));
    assert_eq!(client.get("/infra/realized-state/realized-entities").await.0, 400);
}

#[tokio::test]
async fn an_exhausted_pool_ends_in_an_alarm_and_reuses_released_addresses() {
    let client = Client::over_http(Options { realization: Work::Instantly, ..Options::default() }).await;
    client.nsx.add_ip_pool("vips", "10.0.0.5-10.0.0.6, fd00::1");
    let mut paths = Vec::new();
    for (id, address) in [("a", "10.0.0.5"), ("b", "10.0.0.6"), ("c", "fd00::1")] {
        paths.push(client.allocate(id, json!({})).await);
        assert_eq!(client.allocated(&paths[paths.len() - 1]).await, realized(address));
    }
    let failed = client.allocate("d", json!({})).await;
    let entity = client.realized(&failed).await.remove(0);
    assert_eq!((&entity["state"], entity.get("extended_attributes")), (&json!("ERROR"), None));
    assert_eq!(entity["alarms"][0]["message"], "Insufficient free IP addresses.");
    assert_eq!(entity["alarms"][0]["error_details"]["error_code"], 5109);
    assert_eq!(client.delete(&paths[0]).await.0, 200);
    let reused = client.allocate("e", json!({})).await;
    assert_eq!(client.allocated(&reused).await, realized("10.0.0.5"));
}

#[tokio::test]
async fn a_released_address_can_be_held_for_some_time() {
    let hold = Duration::from_secs(120);
    let client = Client::paused(Options { release_delay: hold, ..Options::default() });
    client.nsx.add_ip_pool("vips", "10.0.0.5");
    let first = client.allocate("a", json!({})).await;
    advance(DELAY).await;
    assert_eq!(client.allocated(&first).await, realized("10.0.0.5"));
    client.delete(&first).await;
    let second = client.allocate("b", json!({})).await;
    advance(DELAY).await;
    assert_eq!(client.allocated(&second).await.0, "ERROR");
    client.delete(&second).await;
    advance(hold).await;
    let third = client.allocate("c", json!({})).await;
    advance(DELAY).await;
    assert_eq!(client.allocated(&third).await, realized("10.0.0.5"));
}

#[tokio::test]
async fn the_realized_state_remains_until_a_deleted_object_is_removed() {
    let client = Client::over_http(Options { purge: Work::Manual, ..Options::default() }).await;
    let query = |path: &str| format!("/infra/realized-state/realized-entities?intent_path={path}");
    client.create("/infra/lb-pools/p", json!({})).await;
    client.delete("/infra/lb-pools/p").await;
    assert_eq!(client.realized("/infra/lb-pools/p").await.len(), 1);
    client.nsx.finish_work();
    assert_eq!(code(client.get(&query("/infra/lb-pools/p")).await), (404, 600));
}

#[tokio::test]
async fn a_requested_address_in_use_is_accepted_and_fails_later() {
    let client = Client::over_http(Options { realization: Work::Instantly, ..Options::default() }).await;
    client.nsx.add_ip_pool("vips", "10.0.0.5-10.0.0.9");
    let first = client.allocate("a", json!({"allocation_ip": "10.0.0.7"})).await;
    assert_eq!(client.allocated(&first).await, realized("10.0.0.7"));
    assert_eq!(client.get(&first).await.1["allocation_ip"], "10.0.0.7");
    for (id, address) in [("b", "10.0.0.7"), ("c", "10.9.9.9")] {
        let second = client.allocate(id, json!({"allocation_ip": address})).await;
        let (state, address, alarm) = client.allocated(&second).await;
        assert_eq!((state.as_str(), address, alarm.is_string()), ("ERROR", Value::Null, true), "{id}");
    }
}

#[tokio::test]
async fn an_allocation_never_changes() {
    let client = Client::over_http(Options { realization: Work::Instantly, ..Options::default() }).await;
    client.nsx.add_ip_pool("vips", "10.0.0.5-10.0.0.9");
    let path = client.allocate("a", json!({"description": "first"})).await;
    client.allocate("a", json!({"description": "second", "allocation_ip": "10.0.0.9"})).await;
    let (_, allocation) = client.get(&path).await;
    assert_eq!((&allocation["description"], &allocation["_revision"]), (&json!("first"), &json!(0)));
    assert_eq!(client.allocated(&path).await, realized("10.0.0.5"));
}

#[tokio::test]
async fn a_test_can_fail_and_hold_the_realization() {
    let client = Client::over_http(Options { realization: Work::Manual, ..Options::default() }).await;
    client.nsx.fail_realization(1);
    client.create("/infra/lb-pools/p", json!({})).await;
    assert_eq!(client.nsx.realized_state("/infra/lb-pools/p").as_deref(), Some("UNREALIZED"));
    client.nsx.finish_work();
    assert_eq!(client.nsx.realized_state("/infra/lb-pools/p").as_deref(), Some("ERROR"));
    client.nsx.set_realized("/infra/lb-pools/p", "REALIZED", &["High latency"]);
    let entity = client.realized("/infra/lb-pools/p").await.remove(0);
    assert_eq!((&entity["state"], &entity["alarms"][0]["message"]), (&json!("REALIZED"), &json!("High latency")));
}
