//! Endpoints from the service catalog: by region and interface, and in the forms that catalogs have.

use bowline_cloud::{CloudProvider as _, ErrorKind};
use serde_json::{Value, json};

use super::{ApiResponse, Cloud, GLOBAL, provider};
use crate::session::Service;

fn endpoint(interface: &str, region: &str, url: &str) -> Value {
    json!({"interface": interface, "region": region, "region_id": region, "url": url})
}

fn service(kind: &str, endpoints: &[Value]) -> Value {
    json!({"type": kind, "name": "a name", "id": "i", "endpoints": endpoints})
}

/// Endpoint of a service with this catalog and these lines in `[Global]`.
async fn found(catalog: Value, lines: &str, service: Service) -> Result<String, String> {
    let cloud = Cloud::answering([]).with_catalog(catalog);
    let access = provider(&cloud, &format!("{GLOBAL}{lines}")).session.access().await.unwrap();
    access.endpoint(service).map_err(|error| error.message().to_owned())
}

#[tokio::test]
async fn case_030_a_region_may_have_only_an_id() {
    let second = json!({"interface": "public", "region": null, "region_id": "R2", "url": "http://nova2/v2.1"});
    let catalog = json!([service("compute", &[endpoint("public", "R1", "http://nova1/v2.1"), second])]);
    let url = found(catalog, "region = R2\n", Service::Compute).await;
    assert_eq!(url.as_deref(), Ok("http://nova2/v2.1/"));
}

#[tokio::test]
async fn case_031_without_a_region_the_first_endpoint_is_used() {
    let endpoints = [endpoint("public", "R2", "http://nova2/v2.1"), endpoint("public", "R1", "http://nova1/v2.1")];
    let url = found(json!([service("compute", &endpoints)]), "", Service::Compute).await;
    assert_eq!(url.as_deref(), Ok("http://nova2/v2.1/"));
}

#[tokio::test]
async fn the_interface_is_public_by_default() {
    let endpoints = ["admin", "internal", "public"].map(|name| endpoint(name, "R1", &format!("http://{name}")));
    for (lines, host) in [("", "public"), ("os-endpoint-type = internal\n", "internal")] {
        let url = found(json!([service("network", &endpoints)]), lines, Service::Network).await;
        assert_eq!(url, Ok(format!("http://{host}/v2.0/")));
    }
}

#[tokio::test]
async fn a_service_may_occur_twice_in_the_catalog() {
    let catalog = json!([
        service("compute", &[]),
        {"type": "compute", "endpoints": null},
        service("compute", &[endpoint("public", "R1", "http://nova/v2.1/p")]),
    ]);
    assert_eq!(found(catalog, "", Service::Compute).await.as_deref(), Ok("http://nova/v2.1/p/"));
}

#[tokio::test]
async fn case_033_versions_in_urls_are_not_duplicated_and_prefixes_are_kept() {
    let table = [
        (Service::Compute, "https://c/compute/v2.1", "https://c/compute/v2.1/"),
        (Service::Compute, "https://c/v2/0123", "https://c/v2/0123/"),
        (Service::Network, "https://c:9696", "https://c:9696/v2.0/"),
        (Service::Network, "https://c:9696/", "https://c:9696/v2.0/"),
        (Service::Network, "https://c/networking", "https://c/networking/v2.0/"),
        (Service::Network, "https://c/networking/v2.0", "https://c/networking/v2.0/"),
        (Service::LoadBalancer, "https://c:9876", "https://c:9876/v2.0/lbaas/"),
        (Service::LoadBalancer, "https://c:9876/v2.0", "https://c:9876/v2.0/lbaas/"),
        (Service::LoadBalancer, "https://c:9876/v2.0/", "https://c:9876/v2.0/lbaas/"),
        (Service::LoadBalancer, "https://c:9876/v2", "https://c:9876/v2.0/lbaas/"),
        (Service::LoadBalancer, "https://c/load-balancer", "https://c/load-balancer/v2.0/lbaas/"),
        (Service::LoadBalancer, "https://c/load-balancer/v2.0/lbaas", "https://c/load-balancer/v2.0/lbaas/"),
        (Service::LoadBalancerRoot, "https://c/load-balancer/v2.0", "https://c/load-balancer/"),
        (Service::KeyManager, "https://c:9311", "https://c:9311/v1/"),
        (Service::KeyManager, "https://c/key-manager/v1/", "https://c/key-manager/v1/"),
    ];
    for (kind, listed, base) in table {
        let catalog = json!([service(kind.kind(), &[endpoint("public", "R1", listed)])]);
        assert_eq!(found(catalog, "", kind).await.as_deref(), Ok(base), "{kind:?} at {listed}");
    }
}

#[tokio::test]
async fn a_missing_endpoint_is_reported_with_the_existing_ones() {
    let catalog = || json!([service("compute", &[endpoint("internal", "R1", "http://n")]), service("identity", &[])]);
    let error = found(catalog(), "region = R2\n", Service::Compute).await.unwrap_err();
    let expected = "Keystone's catalog has no public endpoint of type \"compute\" in region \"R2\"; \
                    available: internal in region \"R1\"";
    assert_eq!(error, expected);
    let error = found(catalog(), "", Service::Network).await.unwrap_err();
    assert!(error.ends_with("the catalog has the services compute, identity"), "{error}");
    let error = found(Value::Null, "", Service::Network).await.unwrap_err();
    assert!(error.ends_with("the catalog has the services none"), "{error}");
}

fn without_balancers() -> Value {
    json!([
        service("compute", &[endpoint("public", "R1", "http://nova/v2.1")]),
        service("network", &[endpoint("public", "R1", "http://neutron")]),
    ])
}

#[tokio::test]
async fn case_032_without_octavia_startup_fails_unless_load_balancers_are_disabled() {
    let cloud = Cloud::answering([]).with_catalog(without_balancers());
    let error = provider(&cloud, GLOBAL).start().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig);
    assert!(error.to_string().contains("enabled = false in [LoadBalancer]"), "{error}");
    let off = provider(&cloud, &format!("{GLOBAL}[LoadBalancer]\nenabled = false\n"));
    off.start().await.unwrap();
    assert!(off.load_balancers().is_none() && off.capabilities().load_balancers.is_none());
}

#[tokio::test]
async fn a_catalog_without_nova_or_barbican_does_not_fail_startup() {
    let octavia = service("load-balancer", &[endpoint("public", "R1", "http://octavia")]);
    let cloud = Cloud::answering([]).with_catalog(json!([octavia]));
    provider(&cloud, GLOBAL).start().await.unwrap();
}

#[tokio::test]
async fn rejected_credentials_fail_startup_permanently_and_an_unavailable_keystone_does_not() {
    let unknown =
        r#"{"error": {"code": 404, "message": "Could not find Application Credential", "title": "Not Found"}}"#;
    let table = [
        (401, "{}", ErrorKind::Unauthenticated),
        (403, "{}", ErrorKind::Unauthenticated),
        (404, unknown, ErrorKind::Unauthenticated),
        // Not Keystone's own: as "not found", it would look like the response for a server.
        (404, "<html>no such page</html>", ErrorKind::Unexpected),
        (503, "{}", ErrorKind::Unavailable),
    ];
    for (status, body, kind) in table {
        let cloud = Cloud::answering([]).rejecting([ApiResponse::new(status, body)]);
        assert_eq!(provider(&cloud, GLOBAL).start().await.unwrap_err().kind(), kind, "{status} {body}");
    }
}
