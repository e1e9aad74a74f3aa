//! Injected faults, the rate limit and the journal.

use std::time::Duration;

use bowline_vsphere_simulator::nsx::{Fault, FaultSpec, Options, error_fault, html_fault};
use http::Method;
use serde_json::json;
use tokio::time::advance;

use super::{Client, code};

#[tokio::test]
async fn requests_above_the_rate_limit_are_refused() {
    let client = Client::paused(Options { rate_limit: 2, ..Options::default() });
    for status in [200, 200, 429] {
        assert_eq!(client.get("/infra/lb-pools").await.0, status);
    }
    advance(Duration::from_secs(1)).await;
    assert_eq!(client.get("/infra/lb-pools").await.0, 200);
}

#[tokio::test]
async fn faults_answer_in_the_format_of_the_api_or_of_a_proxy() {
    let client = Client::over_http(Options::default()).await;
    client.nsx.inject(FaultSpec::always(error_fault(503, 99, "overloaded")).on(Method::GET, "infra/lb-pools").times(1));
    assert_eq!(code(client.get("/infra/lb-pools").await), (503, 99));
    client.nsx.inject(FaultSpec::always(html_fault(502)).times(1));
    let (status, _, body) = client.send(Method::GET, "/policy/api/v1/infra/lb-pools", "").await.unwrap();
    assert!(status == 502 && body.starts_with("<html>"), "{status} {body}");
    assert_eq!(client.get("/infra/lb-pools").await.0, 200);
}

#[tokio::test]
async fn a_hanging_request_ends_with_the_timeout_of_the_client() {
    let client = Client::paused(Options::default());
    client.nsx.inject(FaultSpec::always(Fault::Hanging).times(1));
    assert!(client.send(Method::GET, "/policy/api/v1/infra/lb-pools", "").await.is_err());
    assert_eq!(client.get("/infra/lb-pools").await.0, 200);
}

#[tokio::test]
async fn another_client_can_delete_an_object_first() {
    let client = Client::over_http(Options::default()).await;
    client.create("/infra/lb-pools/p", json!({})).await;
    client.nsx.vanish_on_delete("/infra/lb-pools/p");
    assert_eq!(client.get("/infra/lb-pools/p").await.0, 200);
    assert_eq!(code(client.delete("/infra/lb-pools/p").await), (404, 600));
    assert!(client.nsx.objects("lb-pools").is_empty());
}

#[tokio::test]
async fn the_journal_names_each_kind_of_call() {
    let client = Client::over_http(Options::default()).await;
    let pool = client.nsx.add_ip_pool("vips", "10.0.0.5");
    client.patch(&format!("{pool}/ip-allocations/web"), json!({})).await;
    client.realized(&format!("{pool}/ip-allocations/web")).await;
    client.get("/search/query?query=id:x").await;
    client.get("/orgs/default/projects/blue/infra/tier-1s/t1").await;
    let counts = client.nsx.counts();
    for template in [
        "PATCH infra/ip-pools/{id}/ip-allocations/{id}",
        "GET infra/realized-state/realized-entities",
        "GET search/query",
        "GET orgs/{id}/projects/{id}/infra/tier-1s/{id}",
    ] {
        assert_eq!(counts.get(template), Some(&1), "{template} in {counts:?}");
    }
    let writes = client.nsx.writes();
    assert_eq!((writes.len(), writes[0].path.as_str()), (1, "infra/ip-pools/vips/ip-allocations/web"));
}
