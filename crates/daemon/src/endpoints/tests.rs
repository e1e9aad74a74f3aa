//! Endpoints on loopback sockets, and webhooks behind the manager's router.

use std::sync::Arc;
use std::sync::Mutex;

use async_trait::async_trait;
use bowline_cloud::layers::LayerOptions;
use bowline_cloud::{
    AdmissionRequest, AdmissionResponse, Capabilities, CloudProvider, Error, ErrorKind, ProviderInfo, Webhook,
};
use bowline_serving::IncomingRequest;
use bowline_serving::webhook::{WebhookMetrics, router};
use bowline_settings::webhooks;
use http::{HeaderValue, Method, Uri};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::*;

/// A cloud with endpoints, whose check has this outcome: `None` hangs.
struct Harbour {
    info: ProviderInfo,
    endpoints: Vec<Endpoint>,
    check: Mutex<Option<bowline_cloud::Result<()>>>,
}

impl Harbour {
    fn new(endpoints: &[(&str, EndpointPurpose)]) -> Arc<Harbour> {
        let info = ProviderInfo { name: "harbour".to_owned(), id_prefixes: Vec::new() };
        let endpoint = |(address, purpose): &(&str, _)| Endpoint { address: (*address).to_owned(), purpose: *purpose };
        let endpoints = endpoints.iter().map(endpoint).collect();
        Arc::new(Harbour { info, endpoints, check: Mutex::new(Some(Ok(()))) })
    }

    fn clouds(self: &Arc<Harbour>) -> Clouds {
        Clouds::with_layers([self.clone() as Arc<dyn CloudProvider>], &LayerOptions::default(), &Registry::new())
    }
}

#[async_trait]
impl CloudProvider for Harbour {
    fn info(&self) -> &ProviderInfo {
        &self.info
    }

    fn capabilities(&self) -> &Capabilities {
        const { &Capabilities { instances: None, load_balancers: None, routes: None } }
    }

    fn webhooks(&self) -> Vec<Arc<dyn Webhook>> {
        vec![Arc::new(Hook)]
    }

    fn endpoints(&self) -> Vec<Endpoint> {
        self.endpoints.clone()
    }

    async fn check(&self) -> bowline_cloud::Result<()> {
        let outcome = self.check.lock().unwrap().clone();
        match outcome {
            Some(outcome) => outcome,
            None => std::future::pending().await,
        }
    }
}

/// Denies every request, and fails for one without an object.
struct Hook;

#[async_trait]
impl Webhook for Hook {
    fn name(&self) -> &str {
        "hook"
    }

    fn path(&self) -> &str {
        "/hook"
    }

    async fn review(&self, request: AdmissionRequest) -> AdmissionResponse {
        match request.service() {
            Ok(service) => AdmissionResponse::deny(format!("no {}", service.name)),
            Err(error) => AdmissionResponse::error(400, error.to_string()),
        }
    }
}

/// An address that is free for the moment.
async fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string()
}

/// Sends a request as soon as the server listens, and returns head and body of the response.
async fn send(address: &str, request_line: &str) -> (String, String) {
    for _ in 0..200 {
        let Ok(mut stream) = TcpStream::connect(address).await else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        let request = format!("{request_line} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        return (head.to_owned(), body.to_owned());
    }
    panic!("no server on {address}")
}

#[tokio::test]
async fn the_health_endpoint_checks_the_cloud() {
    let address = free_address().await;
    let harbour = Harbour::new(&[(&address, EndpointPurpose::Health)]);
    let shutdown = Shutdown::new();
    let serving = tokio::spawn(serve(harbour.clouds(), Registry::new(), shutdown.clone()));
    for request in ["GET /healthz", "POST /healthz", "DELETE /healthz?verbose"] {
        let (head, body) = send(&address, request).await;
        assert!(head.starts_with("HTTP/1.1 200 ") && body.is_empty(), "{head} {body}");
    }
    for path in ["/", "/healthz/", "/metrics"] {
        assert!(send(&address, &format!("GET {path}")).await.0.starts_with("HTTP/1.1 404 "), "{path}");
    }
    *harbour.check.lock().unwrap() = Some(Err(Error::new(ErrorKind::Unauthenticated, "account_get", "unknown token")));
    let (head, body) = send(&address, "GET /healthz").await;
    assert!(head.starts_with("HTTP/1.1 500 ") && head.contains("content-type: text/plain; charset=utf-8"), "{head}");
    assert_eq!(body, "health check failed: unknown token\n");
    shutdown.request();
    serving.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_health_check_fails_after_15_seconds() {
    let harbour = Harbour::new(&[]);
    *harbour.check.lock().unwrap() = None;
    let (clouds, begin) = (harbour.clouds(), tokio::time::Instant::now());
    let answer = health(clouds.iter().next().unwrap()).await;
    assert_eq!((answer.status().as_u16(), begin.elapsed()), (500, CHECK_TIMEOUT));
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, "health check failed: the cloud did not answer within 15 s\n");
}

#[tokio::test]
async fn an_endpoint_that_cannot_listen_does_not_affect_the_others() {
    let (taken, address) = (TcpListener::bind("127.0.0.1:0").await.unwrap(), free_address().await);
    let taken = taken.local_addr().unwrap().to_string();
    let endpoints = [
        (taken.as_str(), EndpointPurpose::Health),
        ("no port", EndpointPurpose::Metrics),
        (address.as_str(), EndpointPurpose::Metrics),
    ];
    let registry = Registry::new();
    registry.register(Box::new(prometheus::IntGauge::new("boats", "Boats.").unwrap())).unwrap();
    let shutdown = Shutdown::new();
    let serving = tokio::spawn(serve(Harbour::new(&endpoints).clouds(), registry, shutdown.clone()));
    let (head, body) = send(&address, "GET /metrics").await;
    assert!(head.starts_with("HTTP/1.1 200 ") && body.contains("boats 0"), "{head} {body}");
    assert!(!serving.is_finished(), "the endpoints are optional");
    shutdown.request();
    serving.await.unwrap().unwrap();
}

#[tokio::test]
async fn addresses_have_the_forms_that_go_accepts() {
    for address in ["127.0.0.1:0", "localhost:0", ":0"] {
        bind(address).await.unwrap();
    }
    match TcpListener::bind("[::1]:0").await {
        Ok(_) => assert!(bind("[::1]:0").await.unwrap().address().is_ipv6()),
        Err(error) => eprintln!("SKIPPED: no IPv6 here: {error}"),
    }
    for address in ["", "127.0.0.1", "::1:80", "localhost:port", "127.0.0.1:65536"] {
        let error = bind(address).await.map(drop).unwrap_err().to_string();
        assert!(error.starts_with(&format!("cannot listen on {address:?}: ")), "{error}");
    }
}

#[tokio::test]
async fn a_webhook_of_a_cloud_answers_reviews_of_the_manager() {
    let metrics = WebhookMetrics::register(&Registry::new()).unwrap();
    let router = router(&webhooks::of(&Harbour::new(&[]).clouds()), &metrics);
    let review = |object: Value| {
        let request = json!({"uid": "7", "object": object});
        json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}).to_string()
    };
    let send = async |body: String| {
        let mut request = IncomingRequest::new(Method::POST, &Uri::from_static("/hook"));
        request.headers.insert("content-type", HeaderValue::from_static("application/json"));
        request.body = body.into();
        let answer = router.answer(request).await;
        let status = answer.status().as_u16();
        (status, String::from_utf8(answer.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap())
    };
    let (status, body) = send(review(json!({"kind": "Service", "metadata": {"name": "boats"}}))).await;
    let body: Value = serde_json::from_str(&body).unwrap();
    let denied = json!({"code": 403, "message": "no boats", "reason": "Forbidden"});
    assert_eq!((status, &body["response"]), (200, &json!({"uid": "7", "allowed": false, "status": denied})));
    let failed = "error generating admission response: there is no content to decode\n".to_owned();
    assert_eq!(send(review(Value::Null)).await, (500, failed));
}
