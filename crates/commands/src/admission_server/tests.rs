//! An admission server on loopback, called as the API server does.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use async_trait::async_trait;
use bowline_cloud::{
    AdmissionRequest, AdmissionResponse, BuildContext, Capabilities, Error, ErrorKind, Factory, Facts, ProviderInfo,
};
use bowline_http::{Client, Options, Proxies, Tls};
use bowline_serving::{ServingOptions, TlsOptions};
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::*;
use crate::cli;

/// Longest time that a test waits for something to happen.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the tests control of the cloud.
struct Harbour {
    has_started: AtomicBool,
    /// Permits for requests named `slow`.
    permits: Semaphore,
}

impl Harbour {
    fn new() -> Arc<Harbour> {
        Arc::new(Harbour { has_started: AtomicBool::new(true), permits: Semaphore::new(0) })
    }
}

/// A cloud whose configuration file is the message of its responses.
struct Cloud {
    info: ProviderInfo,
    message: String,
    harbour: Arc<Harbour>,
}

#[async_trait]
impl CloudProvider for Cloud {
    fn info(&self) -> &ProviderInfo {
        &self.info
    }

    fn capabilities(&self) -> &Capabilities {
        const { &Capabilities { instances: None, load_balancers: None, routes: None } }
    }

    fn webhooks(&self) -> Vec<Arc<dyn bowline_cloud::Webhook>> {
        vec![Arc::new(Hook(self.message.clone(), self.harbour.clone()))]
    }

    async fn start(&self) -> bowline_cloud::Result<Facts> {
        match self.harbour.has_started.load(Ordering::SeqCst) {
            true => Ok(Facts::default()),
            false => Err(Error::new(ErrorKind::Unavailable, "region", "no answer")),
        }
    }

    async fn check(&self) -> bowline_cloud::Result<()> {
        Ok(())
    }
}

/// Allows Services, and denies other objects.
struct Hook(String, Arc<Harbour>);

#[async_trait]
impl bowline_cloud::Webhook for Hook {
    fn name(&self) -> &str {
        "services"
    }

    fn path(&self) -> &str {
        "/lb-service"
    }

    async fn review(&self, request: AdmissionRequest) -> AdmissionResponse {
        if request.name == "slow" {
            self.1.permits.acquire().await.unwrap().forget();
        }
        match request.service() {
            Ok(_) => AdmissionResponse::allow(&self.0),
            Err(error) => AdmissionResponse::deny(error.to_string()),
        }
    }
}

fn registry(harbour: &Arc<Harbour>) -> Arc<Registry> {
    let harbour = harbour.clone();
    let build = move |context: &BuildContext<'_>| {
        let info = ProviderInfo { name: "harbour".to_owned(), id_prefixes: vec!["harbour".to_owned()] };
        let message = context.config.map(|file| file.text().trim().to_owned()).unwrap_or_default();
        Ok(Arc::new(Cloud { info, message, harbour: harbour.clone() }) as _)
    };
    let plain = |_: &BuildContext<'_>| Err(ConfigErrors::new());
    let registry = Registry::default().with(Factory::new("harbour", "for tests", String::new, build));
    Arc::new(registry.with(Factory::new("other", "for tests", String::new, plain)))
}

/// A directory with a certificate, deleted at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let directory = std::env::temp_dir().join(format!("bowline-admission-{name}-{}", std::process::id()));
        let tls =
            TlsOptions { directory: Some(directory.clone()), pair_name: "tls".to_owned(), ..TlsOptions::default() };
        let bind_address = Ipv4Addr::LOCALHOST.into();
        Server::bind(&ServingOptions { bind_address, port: 0, tls, ..ServingOptions::default() }).unwrap();
        Scratch(directory)
    }

    fn bound(&self, harbour: &Arc<Harbour>, flags: &[&str]) -> anyhow::Result<Bound> {
        bound(&self.0, harbour, flags)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn bound(certificates: &Path, harbour: &Arc<Harbour>, flags: &[&str]) -> anyhow::Result<Bound> {
    let registry = registry(harbour);
    let certificates = format!("--cert-dir={}", certificates.display());
    let fixed = ["bowline", "admission-server", "--port=0", "--bind-address=127.0.0.1", &certificates];
    let argv: Vec<_> = fixed.iter().chain(flags).map(std::ffi::OsString::from).collect();
    let crate::Invocation::Command(crate::Task(cli::Command::AdmissionServer(args))) =
        crate::Invocation::read(argv, &registry)
    else {
        panic!("another command")
    };
    let mut errors = ConfigErrors::new();
    let settings = AdmissionServer::resolve(&args, &mut errors);
    Bound::new(&settings, &registry, errors)
}

/// A server that runs until it is dropped.
struct Running {
    address: SocketAddr,
    shutdown: Shutdown,
    ended: tokio::task::JoinHandle<anyhow::Result<()>>,
}

impl Running {
    fn start(bound: Bound) -> Running {
        let (address, shutdown) = (bound.server.address(), Shutdown::new());
        let ended = tokio::spawn(bound.serve(shutdown.clone()));
        Running { address, shutdown, ended }
    }

    /// Status of the response to a review of this object.
    fn review(&self, name: &str, object: Value) -> impl Future<Output = Value> + 'static {
        let request = json!({"uid": "7", "namespace": "default", "name": name, "object": object});
        let review = json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request});
        let request = http::Request::post(format!("https://{}/lb-service?timeout=10s", self.address));
        let request = request.header("content-type", "application/json").body(Bytes::from(review.to_string()));
        async move {
            let tls = Tls { insecure: true, ..Tls::default() };
            let client = Client::new(Options { tls, proxies: Proxies::default(), timeout: PATIENCE }).unwrap();
            let answer = client.send(request.unwrap()).await.unwrap();
            assert_eq!(answer.status(), 200);
            let review: Value = serde_json::from_slice(answer.body()).unwrap();
            assert_eq!(review["response"]["uid"], "7");
            review["response"]["status"].clone()
        }
    }

    /// Waits until a review of a Service has this status.
    async fn until(&self, status: &Value) {
        let begin = Instant::now();
        loop {
            let got = self.review("web", json!({"kind": "Service"})).await;
            if got == *status {
                return;
            }
            assert!(begin.elapsed() < PATIENCE, "{got} and not {status}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn stop(self) {
        self.shutdown.request();
        self.ended.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn reviews_fail_until_the_cloud_has_started() {
    let (scratch, harbour) = (Scratch::new("start"), Harbour::new());
    harbour.has_started.store(false, Ordering::SeqCst);
    let running = Running::start(scratch.bound(&harbour, &["--cloud-provider=harbour"]).unwrap());
    let status = running.review("web", json!({"kind": "Service"})).await;
    let message = status["message"].as_str().unwrap();
    assert!(status["code"] == 500 && message.contains("harbour is not ready: region: no answer"), "{status}");
    harbour.has_started.store(true, Ordering::SeqCst);
    running.until(&json!({"code": 200, "message": ""})).await;
    let denied = json!({"code": 403, "reason": "Forbidden", "message": "there is no content to decode"});
    assert_eq!(running.review("web", Value::Null).await, denied);
    running.stop().await;
}

#[tokio::test]
async fn a_changed_configuration_is_used_by_later_reviews() {
    let (scratch, harbour) = (Scratch::new("reload"), Harbour::new());
    let file = scratch.0.join("cloud.conf");
    std::fs::write(&file, "old").unwrap();
    let config = format!("--cloud-config={}", file.display());
    let mut bound = scratch.bound(&harbour, &["--cloud-provider", "harbour", &config, "-v=0"]).unwrap();
    bound.reloader = bound.reloader.with_period(Duration::from_millis(10));
    let running = Running::start(bound);
    running.until(&json!({"code": 200, "message": "old"})).await;
    std::fs::write(&file, "new").unwrap();
    running.until(&json!({"code": 200, "message": "new"})).await;
    running.stop().await;
}

#[tokio::test]
async fn an_open_request_is_answered_after_the_signal() {
    let (scratch, harbour) = (Scratch::new("drain"), Harbour::new());
    let running = Running::start(scratch.bound(&harbour, &["--cloud-provider=harbour"]).unwrap());
    running.until(&json!({"code": 200, "message": ""})).await;
    let open = tokio::spawn(running.review("slow", json!({"kind": "Service"})));
    // The review waits for its permit longer than the default grace period of a server.
    tokio::time::sleep(Duration::from_millis(200)).await;
    running.shutdown.request();
    tokio::time::sleep(Duration::from_millis(2500)).await;
    harbour.permits.add_permits(1);
    assert_eq!(open.await.unwrap()["code"], 200);
    running.stop().await;
}

#[tokio::test]
async fn a_server_that_cannot_start_names_the_cause() {
    let (scratch, harbour) = (Scratch::new("errors"), Harbour::new());
    let error = |certificates: &Path, flags: &[&str]| {
        let error = bound(certificates, &harbour, flags).map(drop).unwrap_err();
        (error.is::<BadInput>(), format!("{error:#}"))
    };
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = format!("--port={}", taken.local_addr().unwrap().port());
    let harbour_flag = "--cloud-provider=harbour";
    let cases: [(&Path, &[&str], bool, &str); 6] = [
        (&scratch.0, &[], true, "failed to start admission server: --cloud-provider cannot be empty"),
        (&scratch.0, &["--cloud-provider=harbor"], true, "unknown cloud provider \"harbor\""),
        (&scratch.0, &[harbour_flag, "--knots=8"], true, "failed to start admission server: --knots: unknown flag"),
        (&scratch.0, &[harbour_flag, "--cloud-config=/nowhere/cloud.conf"], true, "/nowhere/cloud.conf"),
        (Path::new("/nowhere"), &[harbour_flag], false, "failed to serve webhook server: /nowhere/tls.crt: "),
        (&scratch.0, &[harbour_flag, &port], false, "failed to serve webhook server: cannot listen on 127.0.0.1:"),
    ];
    for (certificates, flags, is_bad_input, part) in cases {
        let (got, message) = error(certificates, flags);
        assert!(message.starts_with("failed to start admission server: ") && message.contains(part), "{message}");
        assert_eq!(got, is_bad_input, "{message}");
    }
    let two = ["--cloud-provider=harbour,harbour"];
    assert!(error(&scratch.0, &two).1.contains("both harbour and harbour claim nodes"));
}
