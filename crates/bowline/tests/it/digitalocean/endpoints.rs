//! HTTP endpoints that the configuration requests: `/healthz`, `/metrics`, and the admission server.

use std::time::Duration;

use bowline_http::{Client, Options as HttpOptions, Proxies, Roots, Tls};
use bytes::Bytes;
use http::{Request, Response};
use serde_json::{Value, json};

use crate::digitalocean::scene::{FIREWALL, Scene};
use crate::support::Program;
use crate::support::cluster::service;

/// Sends a request; `roots` are the CA certificates that it trusts.
async fn send(request: Request<Bytes>, roots: Roots) -> Response<Bytes> {
    let tls = Tls { roots, ..Tls::default() };
    let options = HttpOptions { tls, proxies: Proxies::default(), timeout: Duration::from_secs(30) };
    Client::new(options).unwrap().send(request).await.unwrap()
}

async fn get(url: String) -> (u16, String, Option<String>) {
    let response = send(Request::get(url).body(Bytes::new()).unwrap(), Roots::None).await;
    let kind = response.headers().get("content-type").map(|kind| kind.to_str().unwrap().to_owned());
    (response.status().as_u16(), String::from_utf8_lossy(response.body()).into_owned(), kind)
}

/// Address in the log line of an endpoint.
fn address_of(manager: &mut Program, purpose: &str) -> String {
    manager.wait_for(&format!("purpose=\"{purpose}\" address=")).trim_matches('"').to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_debug_and_metrics_addresses_answer_as_in_the_go_manager() {
    let scene = Scene::new("endpoints").await;
    let addresses = [("DEBUG_ADDR", "127.0.0.1:0"), ("METRICS_ADDR", "127.0.0.1:0")];
    let mut manager = scene.manager_with("endpoints", &[&FIREWALL[..], &addresses].concat(), &[]);
    let health = format!("http://{}", address_of(&mut manager, "Health"));
    let metrics = format!("http://{}", address_of(&mut manager, "Metrics"));
    scene.called(&manager, "POST firewalls").await;

    assert_eq!(get(format!("{health}/healthz")).await, (200, String::new(), None));
    assert_eq!(get(format!("{health}/other")).await.0, 404);
    scene.cloud.configure(|options| options.token = "replaced".to_owned());
    let (status, body, kind) = get(format!("{health}/healthz")).await;
    assert_eq!((status, kind.as_deref()), (500, Some("text/plain; charset=utf-8")), "{body}");
    let start = format!("health check failed: GET {}/v2/account: 401 (request \"", scene.cloud.url());
    assert!(body.starts_with(&start) && body.ends_with("Unable to authenticate you.\n"), "{body}");

    let (status, body, _) = get(format!("{metrics}/metrics")).await;
    assert_eq!(status, 200);
    for part in [
        "firewall_api_operations_total{http_response_code=\"200\",operation=\"get_by_list\",result=\"succeeded\"} 1",
        "firewall_api_operations_total{http_response_code=\"202\",operation=\"create\",result=\"succeeded\"} 1",
        "firewall_api_operation_duration_seconds_count{http_response_code=\"202\",operation=\"create\",result=\"succeeded\"} 1",
        "firewall_resource_syncs_total{result=\"updated\"} 1",
        "firewall_resource_sync_duration_seconds_count{result=\"updated\"} 1",
        "firewall_reconciles_total{error_type=\"\",result=\"reconciled\"} 1",
        "firewall_reconcile_duration_seconds_count{error_type=\"\",result=\"reconciled\"} 1",
    ] {
        assert!(body.contains(part), "{part} is missing: {body}");
    }
    scene.stop(&mut manager);
}

/// Result of reviewing the creation of a Service with this port: whether it is allowed, code and message.
async fn review(url: &str, certificate: &str, port: u16) -> (bool, u64, String) {
    let mut object = service("web");
    object["spec"]["ports"][0]["port"] = json!(port);
    let request = json!({"uid": "7", "operation": "CREATE", "namespace": "default", "name": "web", "object": object});
    let review = json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request});
    let request = Request::post(url).header("content-type", "application/json").body(review.to_string().into());
    let response = send(request.unwrap(), Roots::Pem(certificate.to_owned())).await;
    let response = serde_json::from_slice::<Value>(response.body()).unwrap()["response"].clone();
    assert_eq!(response["uid"], "7");
    let (status, allowed) = (&response["status"], response["allowed"].as_bool().unwrap());
    (allowed, status["code"].as_u64().unwrap(), status["message"].as_str().unwrap().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_admission_server_validates_services_with_the_api() {
    let scene = Scene::without_nodes("admission", Default::default()).await;
    let pair = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let certificate = pair.cert.pem();
    let scratch = &scene.server.scratch;
    let file = scratch.file("tls.crt", &certificate);
    scratch.file("tls.key", pair.signing_key.serialize_pem());
    let mut server = scene.admission_server("admission", &file.parent().unwrap().display().to_string());
    let line = server.wait_for("serving admission webhooks");
    assert!(line.contains("/lb-service"), "{line}");
    let (_, address) = line.split_once("address=").unwrap();
    let address = address.split([' ', '"']).find(|word| !word.is_empty()).unwrap();
    let url = format!("https://{address}/lb-service?timeout=10s");
    scene.called(&server, "GET regions").await;
    assert_eq!(review(&url, &certificate, 80).await, (true, 200, "valid load balancer definition".to_owned()));
    let (allowed, code, message) = review(&url, &certificate, 50053).await;
    assert_eq!((allowed, code), (false, 403), "{message}");
    let start = format!("invalid load balancer definition: POST {}/v2/load_balancers: 422 ", scene.cloud.url());
    assert!(message.starts_with(&start) && message.ends_with("entry port is invalid"), "{message}");
    assert_eq!(scene.load_balancers(), [], "a validation creates nothing");
    scene.stop(&mut server);
}
