//! References between objects, and the deletion of objects in use.

use bowline_vsphere_simulator::nsx::Options;
use serde_json::json;

use super::{Client, code, virtual_server};

#[tokio::test]
async fn an_object_in_use_cannot_be_deleted() {
    let client = Client::over_http(Options::default()).await;
    let monitor = json!({"resource_type": "LBTcpMonitorProfile", "monitor_port": 30080});
    client.create("/infra/lb-monitor-profiles/m", monitor).await;
    client.create("/infra/lb-pools/p", json!({"active_monitor_paths": ["/infra/lb-monitor-profiles/m"]})).await;
    client.nsx.add_tier1("t1");
    client.create("/infra/lb-services/s", json!({"connectivity_path": "/infra/tier-1s/t1"})).await;
    let references = json!({"pool_path": "/infra/lb-pools/p", "lb_service_path": "/infra/lb-services/s"});
    client.create("/infra/lb-virtual-servers/v", virtual_server(references)).await;
    let used = ["/infra/lb-monitor-profiles/m", "/infra/lb-pools/p", "/infra/lb-services/s", "/infra/tier-1s/t1"];
    for path in used.into_iter().chain(["/infra/lb-app-profiles/default-tcp-lb-app-profile"]) {
        assert_eq!(code(client.delete(path).await), (400, 500_030), "{path}");
    }
    for path in
        ["/infra/lb-virtual-servers/v", "/infra/lb-pools/p", "/infra/lb-monitor-profiles/m", "/infra/lb-services/s"]
    {
        assert_eq!(client.delete(path).await.0, 200, "{path}");
    }
}

#[tokio::test]
async fn a_forced_deletion_ignores_references() {
    let client = Client::over_http(Options::default()).await;
    client.create("/infra/lb-pools/p", json!({})).await;
    client.create("/infra/lb-virtual-servers/v", virtual_server(json!({"pool_path": "/infra/lb-pools/p"}))).await;
    assert_eq!(client.delete("/infra/lb-pools/p?force=false").await.0, 400);
    assert_eq!(client.delete("/infra/lb-pools/p?force=true").await.0, 200);
}

#[tokio::test]
async fn a_path_to_no_object_is_refused() {
    let client = Client::over_http(Options::default()).await;
    let missing = ["pool_path", "lb_service_path", "application_profile_path", "sorry_pool_path"];
    for field in missing {
        let body = virtual_server(json!({field: "/infra/lb-pools/missing"}));
        assert_eq!(code(client.put("/infra/lb-virtual-servers/v", body).await), (400, 500_012), "{field}");
    }
    let pool = json!({"active_monitor_paths": ["/infra/lb-monitor-profiles/missing"]});
    assert_eq!(code(client.put("/infra/lb-pools/p", pool).await), (400, 500_012));
    let service = json!({"connectivity_path": "/infra/tier-1s/missing"});
    assert_eq!(code(client.put("/infra/lb-services/s", service).await), (400, 500_012));
}

#[tokio::test]
async fn a_project_has_no_load_balancers() {
    let client = Client::over_http(Options::default()).await;
    assert_eq!(client.get("/orgs/default/projects/blue/infra/ip-pools").await.0, 200);
    for collection in ["lb-pools", "lb-services", "tier-0s"] {
        let path = format!("/orgs/default/projects/blue/infra/{collection}");
        assert_eq!(code(client.get(&path).await), (404, 600), "{path}");
    }
}

#[tokio::test]
async fn a_gateway_has_one_load_balancer_service() {
    let client = Client::over_http(Options::default()).await;
    client.nsx.add_tier1("t1");
    let service = json!({"connectivity_path": "/infra/tier-1s/t1", "size": "SMALL"});
    let created = client.create("/infra/lb-services/s1", service.clone()).await;
    assert_eq!((&created["error_log_level"], &created["enabled"]), (&json!("INFO"), &json!(true)));
    assert_eq!(client.put("/infra/lb-services/s2", service.clone()).await.0, 400);
    client.create("/infra/lb-services/s1", created).await;
    client.create("/infra/lb-services/s3", json!({})).await;
    client.delete("/infra/lb-services/s1").await;
    client.create("/infra/lb-services/s2", service).await;
}

#[tokio::test]
async fn an_allocation_requires_its_pool() {
    let client = Client::over_http(Options::default()).await;
    let path = "/infra/ip-pools/missing/ip-allocations";
    assert_eq!(code(client.patch(&format!("{path}/a"), json!({})).await), (400, 500_012));
    assert_eq!(code(client.delete(&format!("{path}/a")).await), (400, 500_012));
    assert_eq!(code(client.get(path).await), (400, 500_012));
    let pool = client.nsx.add_ip_pool("vips", "10.0.0.5");
    client.patch(&format!("{pool}/ip-allocations/a"), json!({})).await;
    assert_eq!(code(client.delete(&pool).await), (400, 500_030));
}
