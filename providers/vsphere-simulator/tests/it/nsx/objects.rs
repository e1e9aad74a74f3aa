//! Creation, change and deletion of objects.

use bowline_vsphere_simulator::nsx::Options;
use http::Method;
use serde_json::{Value, json};

use super::{Client, code, virtual_server};

#[tokio::test]
async fn a_new_pool_has_the_fields_and_defaults_of_the_server() {
    let client = Client::over_http(Options::default()).await;
    let members = json!([{"admin_state": "ENABLED", "display_name": "c:node-1", "ip_address": "10.1.0.1"}]);
    let body = json!({"display_name": "web", "snat_translation": {"type": "LBSnatAutoMap"}, "members": members,
        "active_monitor_paths": [], "tags": [{"scope": "owner", "tag": "x"}]});
    let created = client.create("/infra/lb-pools/p1", body).await;
    assert_eq!((&created["id"], &created["path"]), (&json!("p1"), &json!("/infra/lb-pools/p1")));
    assert_eq!((&created["relative_path"], &created["parent_path"]), (&json!("p1"), &json!("/infra")));
    assert_eq!((&created["resource_type"], &created["_revision"]), (&json!("LBPool"), &json!(0)));
    assert_eq!((&created["algorithm"], &created["min_active_members"]), (&json!("ROUND_ROBIN"), &json!(1)));
    assert_eq!((&created["members"][0]["weight"], &created["members"][0]["backup_member"]), (&json!(1), &json!(false)));
    assert_eq!((&created["_create_user"], &created["_protection"]), (&json!("admin"), &json!("NOT_PROTECTED")));
    assert!(created["_create_time"].as_i64().unwrap() > 1_700_000_000_000);
    assert_eq!(created["marked_for_delete"], false);
    assert!(created.get("active_monitor_paths").is_none(), "empty lists are left out");
    assert_eq!(client.get("/infra/lb-pools/p1").await, (200, created));
    assert_eq!(client.create("/infra/lb-pools/p2", json!({})).await["display_name"], "p2");
}

#[tokio::test]
async fn a_change_requires_the_current_revision() {
    let client = Client::over_http(Options::default()).await;
    let mut pool = client.create("/infra/lb-pools/p", json!({"description": "old"})).await;
    assert_eq!(code(client.put("/infra/lb-pools/p", json!({"display_name": "no revision"})).await), (412, 604));
    pool["display_name"] = json!("new");
    let changed = client.create("/infra/lb-pools/p", pool.clone()).await;
    assert_eq!((&changed["_revision"], &changed["display_name"]), (&json!(1), &json!("new")));
    assert_eq!(changed["unique_id"], pool["unique_id"]);
    assert_eq!(code(client.put("/infra/lb-pools/p", pool.clone()).await), (412, 604), "the revision is stale");
    assert_eq!(code(client.patch("/infra/lb-pools/p", json!({"_revision": 0})).await), (412, 604));
    client.nsx.configure(|options| options.stale_error = (404, 500_090));
    assert_eq!(code(client.put("/infra/lb-pools/p", pool).await), (404, 500_090));
    let replaced = client.create("/infra/lb-pools/p", json!({"_revision": 1})).await;
    assert!(replaced.get("description").is_none(), "a replacement has only what the request has");
}

#[tokio::test]
async fn a_patch_of_a_pool_needs_no_revision_and_replaces_all_fields() {
    let client = Client::over_http(Options::default()).await;
    assert_eq!(client.patch("/infra/lb-pools/p", json!({"description": "lost"})).await, (200, Value::Null));
    client.patch("/infra/lb-pools/p", json!({"algorithm": "IP_HASH"})).await;
    let (_, pool) = client.get("/infra/lb-pools/p").await;
    assert_eq!((pool.get("description"), &pool["algorithm"]), (None, &json!("IP_HASH")));
    assert_eq!(pool["_revision"], 1);
}

#[tokio::test]
async fn an_unknown_object_is_not_found() {
    let client = Client::over_http(Options::default()).await;
    for collection in ["lb-monitor-profiles", "lb-pools", "lb-virtual-servers", "lb-services", "tier-1s"] {
        let path = format!("/infra/{collection}/unknown");
        assert_eq!(code(client.get(&path).await), (404, 600), "{path}");
        assert_eq!(code(client.delete(&path).await), (404, 600), "{path}");
    }
    assert_eq!(code(client.get("/infra/nonsense").await), (404, 600));
    assert_eq!(client.call(Method::POST, "/infra/lb-pools/p", json!({})).await.0, 405);
}

#[tokio::test]
async fn misspelled_fields_and_wrong_values_are_refused() {
    let client = Client::over_http(Options::default()).await;
    for body in [json!({"displayname": "web"}), json!({"members": [{"ip_adress": "", "ip_address": "10.1.0.1"}]})] {
        assert_eq!(code(client.put("/infra/lb-pools/p", body.clone()).await), (400, 287), "{body}");
    }
    let pools = [
        json!({"members": [{"display_name": "no address"}]}),
        json!({"snat_translation": {"type": "LBSnatAuto"}}),
        json!({"algorithm": 1}),
        json!({"id": "other"}),
        json!({"resource_type": "LBService"}),
        json!({"tags": [{"scope": "x".repeat(129), "tag": ""}]}),
        json!({"tags": [{"scope": "owner", "tag": "x".repeat(257)}]}),
        json!({"display_name": "x".repeat(256)}),
    ];
    for body in pools {
        assert_eq!(code(client.put("/infra/lb-pools/p", body.clone()).await), (400, 255), "{body}");
    }
    let servers = [json!({"ports": [80]}), json!({"ports": []}), json!({"ip_address": "vip"}), json!({"ports": ["0"]})];
    for changes in servers {
        let refused = client.put("/infra/lb-virtual-servers/v", virtual_server(changes.clone())).await;
        assert_eq!(code(refused), (400, 255), "{changes}");
    }
    assert_eq!(code(client.put("/infra/lb-monitor-profiles/m", json!({"monitor_port": 80})).await), (400, 255));
    assert_eq!(code(client.put("/infra/lb-pools/p?x=1", json!({})).await), (400, 255));
    assert_eq!(code(client.get("/infra/lb-pools?page_sise=2").await), (400, 255));
    assert_eq!(code(client.delete("/infra/lb-pools/p?forced=true").await), (400, 255));
    assert!(client.nsx.objects("lb-pools").is_empty());
}

#[tokio::test]
async fn a_monitor_has_the_defaults_of_its_type() {
    let client = Client::over_http(Options::default()).await;
    let body = json!({"resource_type": "LBTcpMonitorProfile", "monitor_port": 30080});
    let monitor = client.create("/infra/lb-monitor-profiles/m", body).await;
    assert_eq!(
        ["fall_count", "rise_count", "interval", "timeout"].map(|field| monitor[field].as_u64().unwrap()),
        [3, 3, 5, 5]
    );
}

#[tokio::test]
async fn objects_of_other_clients_are_stored_without_validation() {
    let client = Client::over_http(Options::default()).await;
    let monitor =
        json!({"resource_type": "LBHttpMonitorProfile", "monitor_port": 80, "_create_user": "alice", "tags": [{}]});
    client.nsx.put("/infra/lb-monitor-profiles/http", monitor);
    let (_, shown) = client.get("/infra/lb-monitor-profiles/http").await;
    assert_eq!((&shown["_create_user"], &shown["tags"]), (&json!("alice"), &json!([{}])));
    assert!(client.nsx.edit("/infra/lb-monitor-profiles/http", |monitor| drop(monitor.remove("tags"))));
    assert!(client.get("/infra/lb-monitor-profiles/http").await.1.get("tags").is_none());
    assert!(client.nsx.remove("/infra/lb-monitor-profiles/http"));
    assert!(!client.nsx.remove("/infra/lb-monitor-profiles/http"));
    assert!(!client.nsx.put("/infra/unknown/x", json!({})));
}

#[tokio::test]
async fn a_tier1_gateway_can_be_read_but_not_written() {
    let client = Client::over_http(Options::default()).await;
    assert_eq!(client.nsx.add_tier1("t1"), "/infra/tier-1s/t1");
    let (status, gateway) = client.get("/infra/tier-1s/t1").await;
    assert_eq!((status, &gateway["resource_type"], &gateway["id"]), (200, &json!("Tier1"), &json!("t1")));
    assert_eq!(client.put("/infra/tier-1s/t2", json!({})).await.0, 403);
}

#[tokio::test]
async fn settings_that_an_administrator_added_are_kept() {
    let client = Client::over_http(Options::default()).await;
    let added =
        json!({"rules": [{"phase": "HTTP_ACCESS"}], "client_ssl_profile_binding": {"certificate_chain_depth": 3}});
    let mut server = client.create("/infra/lb-virtual-servers/v", virtual_server(added.clone())).await;
    server["ports"] = json!(["443"]);
    let changed = client.create("/infra/lb-virtual-servers/v", server).await;
    assert_eq!((&changed["rules"], &changed["ports"]), (&added["rules"], &json!(["443"])));
}
