//! Logs and traces of the manager, and that they contain no secrets.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::{BOWLINE, Program, Server, bowline, within};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{Node, Service, ServiceAccount};
use kube::api::{Api, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};

/// Credentials for the trace collector and for the cloud.
const COLLECTOR_SECRET: &str = "c0llector-s3cr3t-4711";
const CLOUD_SECRET: &str = "cl0ud-s3cr3t-4712";
const WRONG_SECRET: &str = "wr0ng-s3cr3t-4713";

/// Paths of the manager's HTTPS server.
const PATHS: [&str; 8] = [
    "/metrics",
    "/configz",
    "/flagz",
    "/statusz",
    "/healthz?verbose",
    "/livez?verbose",
    "/readyz?verbose",
    "/debug/flags",
];

/// Trace collector that accepts OTLP as JSON.
struct Collector {
    address: String,
    bodies: Arc<Mutex<Vec<Value>>>,
}

impl Collector {
    fn start() -> Collector {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let bodies = Arc::new(Mutex::new(Vec::new()));
        let received = bodies.clone();
        // The thread ends with the test.
        std::thread::spawn(move || listener.incoming().flatten().for_each(|stream| receive(stream, &received)));
        Collector { address, bodies }
    }

    /// All spans so far, by name.
    fn spans(&self, name: &str) -> Vec<Value> {
        let bodies = self.bodies.lock().unwrap();
        let spans = bodies.iter().filter_map(|body| body.pointer("/resourceSpans/0/scopeSpans/0/spans")?.as_array());
        spans.flatten().filter(|span| span["name"] == name).cloned().collect()
    }
}

fn receive(stream: TcpStream, received: &Mutex<Vec<Value>>) {
    let mut reader = BufReader::new(stream);
    let (mut line, mut length, mut is_authorized) = (String::new(), 0, false);
    while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
        let lower = line.to_lowercase();
        length = lower.strip_prefix("content-length: ").map_or(length, |text| text.trim().parse().unwrap());
        is_authorized |= lower.starts_with("authorization:") && line.contains(COLLECTOR_SECRET);
        line.clear();
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    assert!(is_authorized, "the header from the environment is sent");
    received.lock().unwrap().push(serde_json::from_slice(&body).unwrap());
    reader.into_inner().write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}").unwrap();
}

/// API server, cloud with token authentication, and the secrets that must not be logged.
struct World {
    server: Server,
    cloud: Program,
    endpoint: String,
    collector: Collector,
    secrets: Vec<String>,
}

impl World {
    async fn start(test: &str) -> World {
        let server = Server::start(test, &["--debug-endpoints"]);
        let tokens = server.scratch.file("tokens", format!("{CLOUD_SECRET}\n"));
        let tokens = format!("--token-file={}", tokens.display());
        let mut cloud = Program::start(test, &["cloud", "--listen=127.0.0.1:0", "--data-plane=false", &tokens]);
        let endpoint = cloud.wait_for("cloud ready at ");
        let secrets = [COLLECTOR_SECRET, CLOUD_SECRET, WRONG_SECRET].map(str::to_owned).to_vec();
        World { server, cloud, endpoint, collector: Collector::start(), secrets }
    }

    /// Creates a kubeconfig with a bearer token instead of a certificate.
    async fn with_token(&mut self) -> PathBuf {
        let admin = client(&self.server.kubeconfig()).await;
        let accounts: Api<ServiceAccount> = Api::namespaced(admin, "kube-system");
        let account = serde_json::from_value(json!({"metadata": {"name": "manager"}})).unwrap();
        accounts.create(&PostParams::default(), &account).await.unwrap();
        let desired: TokenRequest =
            serde_json::from_value(json!({"spec": {"audiences": [], "expirationSeconds": 3600}})).unwrap();
        let answer = accounts.create_token_request("manager", &PostParams::default(), &desired).await.unwrap();
        let token = answer.status.unwrap().token.unwrap();
        let mut kubeconfig = serde_json::to_value(Kubeconfig::read_from(self.server.kubeconfig()).unwrap()).unwrap();
        kubeconfig["users"][0]["user"] = json!({ "token": token });
        // Each part of the token counts as a secret.
        self.secrets.extend(token.split('.').map(str::to_owned));
        self.server.scratch.file("token.kubeconfig", kubeconfig.to_string())
    }

    /// Returns the kubeconfig with the private key of its client certificate.
    fn with_key(&mut self) -> PathBuf {
        let text = std::fs::read_to_string(self.server.kubeconfig()).unwrap();
        let encoded = text.lines().find_map(|line| line.split_once("client-key-data:")).unwrap().1;
        let encoded = encoded.trim().trim_matches('"').to_owned();
        let key = String::from_utf8(STANDARD.decode(&encoded).unwrap()).unwrap();
        self.secrets.extend(key.lines().filter(|line| !line.starts_with("-----")).map(str::to_owned));
        self.secrets.push(encoded);
        self.server.kubeconfig()
    }

    fn manager(&self, kubeconfig: &Path, credential: &str, flags: &[&str], log: Option<&str>) -> Program {
        let config = format!("endpoint: {}\n{credential}\n", self.endpoint);
        let config = format!("--cloud-config={}", self.server.scratch.file("local.yaml", config).display());
        let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
        let general = ["--leader-elect=false", "--configure-cloud-routes=false", "--v=10"];
        let arguments = ["--cloud-provider=local", &config, &kubeconfig];
        let arguments: Vec<_> = arguments.iter().chain(&general).chain(flags).copied().collect();
        let headers = format!("authorization=Bearer%20{COLLECTOR_SECRET}");
        let mut variables = vec![
            ("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{}", self.collector.address)),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json".to_owned()),
            ("OTEL_EXPORTER_OTLP_HEADERS", headers),
            ("OTEL_BSP_SCHEDULE_DELAY", "50".to_owned()),
        ];
        variables.extend(log.map(|log| ("BOWLINE_LOG", log.to_owned())));
        let mut command = Command::new(BOWLINE);
        command.args(arguments).env_remove("KUBECONFIG").env_remove("BOWLINE_LOG").envs(variables);
        Program::start_command("logs", &mut command)
    }

    /// Creates a machine, a Node and a Service.
    async fn create(&self, name: &str) -> (Api<Node>, Api<Service>) {
        let endpoint = format!("--endpoint={}", self.endpoint);
        assert!(bowline(&["cloud", "add", name, &endpoint, "--address=InternalIP=10.0.0.1"]).status.success());
        let client = client(&self.server.kubeconfig()).await;
        let (nodes, services) = (Api::<Node>::all(client.clone()), Api::<Service>::namespaced(client, "default"));
        let taint =
            json!({"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"});
        let node = json!({"metadata": {"name": name}, "spec": {"taints": [taint]}});
        nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
        let spec = json!({"type": "LoadBalancer", "ports": [{"port": 80}], "selector": {"app": "web"}});
        let service = json!({"metadata": {"name": name}, "spec": spec});
        services.create(&PostParams::default(), &serde_json::from_value(service).unwrap()).await.unwrap();
        (nodes, services)
    }

    /// Creates a Node and a Service, and waits until both are reconciled.
    async fn work(&self, name: &str, manager: &Program) {
        let (nodes, services) = self.create(name).await;
        let deadline = tokio::time::Instant::now() + Duration::from_secs(40);
        while !is_done(&nodes, &services, name).await {
            assert!(tokio::time::Instant::now() < deadline, "not reconciled; log: {}", manager.output());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Checks that a text contains no secret and nothing that looks like a service account token.
    fn check_no_secrets(&self, text: &str, source: &str) {
        for secret in self.secrets.iter().filter(|secret| secret.len() > 8) {
            let before = text.find(secret.as_str()).map(|at| &text[at.saturating_sub(200)..at]);
            assert!(before.is_none(), "{source} contains a secret after {before:?}");
        }
        let token = text.split(|c: char| !c.is_ascii_alphanumeric() && !"-_.".contains(c));
        let token = token.filter(|word| word.starts_with("eyJ") && word.matches('.').count() == 2).count();
        assert_eq!(token, 0, "{source} contains a token");
    }
}

async fn client(kubeconfig: &Path) -> kube::Client {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    kube::Client::try_from(config).unwrap()
}

async fn is_done(nodes: &Api<Node>, services: &Api<Service>, name: &str) -> bool {
    let (node, service) = (nodes.get(name).await.unwrap(), services.get(name).await.unwrap());
    let taints = node.spec.unwrap().taints.unwrap_or_default();
    let is_initialised = taints.iter().all(|taint| taint.key != "node.cloudprovider.kubernetes.io/uninitialized");
    let balancer = service.status.and_then(|status| status.load_balancer);
    is_initialised && balancer.and_then(|balancer| balancer.ingress).is_some_and(|ingress| !ingress.is_empty())
}

/// Fetches all pages of the manager's HTTPS server. Every page must succeed, or the check for secrets would prove nothing.
async fn served(port: u16) -> String {
    let mut config = kube::Config::new(format!("https://127.0.0.1:{port}").parse().unwrap());
    config.accept_invalid_certs = true;
    let client = kube::Client::try_from(config).unwrap();
    let mut all = String::new();
    for path in PATHS {
        let request = hyper::Request::get(path).body(Vec::new()).unwrap();
        let answer = client.request_text(request).await.unwrap_or_else(|error| panic!("{path}: {error}"));
        assert!(!answer.is_empty(), "{path}");
        all += &format!("{path}\n{answer}\n");
    }
    all
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Flags that allow anonymous access to all pages.
fn serving(port: u16) -> Vec<String> {
    let paths: Vec<_> = PATHS.iter().filter_map(|path| path.split('?').next()).collect();
    let paths = format!("--authorization-always-allow-paths={}", paths.join(","));
    vec![format!("--secure-port={port}"), "--bind-address=127.0.0.1".to_owned(), paths]
}

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_is_logged_at_any_verbosity() {
    let mut world = World::start("secrets").await;
    let (key, token) = (world.with_key(), world.with_token().await);
    let file = world.server.scratch.file("cloud-token", format!("{CLOUD_SECRET}\n"));
    let by_file = format!("tokenFile: {}", file.display());
    let everything = "trace,hyper=trace,h2=trace,rustls=trace,kube_client=trace,tower=trace,hyper_util=trace";
    let runs = [
        ("text", key.clone(), format!("token: {CLOUD_SECRET}"), None),
        ("text", token.clone(), by_file.clone(), Some(everything)),
        ("json", token, by_file, None),
    ];
    for (number, (format, kubeconfig, credential, log)) in runs.into_iter().enumerate() {
        let port = free_port();
        let mut flags = serving(port);
        flags.extend((format == "json").then(|| "--logging-format=json".to_owned()));
        flags.push("--use-service-account-credentials".to_owned());
        let flags: Vec<_> = flags.iter().map(String::as_str).collect();
        let mut manager = world.manager(&kubeconfig, &credential, &flags, log);
        world.work(&format!("worker-{number}"), &manager).await;
        let pages = served(port).await;
        assert!(manager.stop("-TERM").success(), "{}", manager.output());
        let printed = manager.output();
        // Requests are logged, in the requested format.
        assert!(
            printed.contains("cloud operation finished") && printed.contains("sent a request to the API server"),
            "{printed}"
        );
        assert!(printed.contains("auditID"), "{printed}");
        let line = printed.lines().find(|line| line.contains("cloud operation finished")).unwrap();
        assert_eq!(serde_json::from_str::<Value>(line).is_ok(), format == "json", "{line}");
        world.check_no_secrets(&printed, "the manager");
        world.check_no_secrets(&pages, "the manager over HTTPS");
    }
    world.check_no_secrets(&world.cloud.output(), "the cloud");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_is_logged_for_invalid_credentials() {
    let mut world = World::start("wrong-secrets").await;
    let key = world.with_key();
    let credential = format!("token: {WRONG_SECRET}");
    world.create("worker-1").await;
    // Malformed credentials are reported before the start, rejected ones while the manager runs.
    for credential in
        [credential.as_str(), &format!("token: '{WRONG_SECRET} and more'"), &format!("token: [{WRONG_SECRET}]")]
    {
        let mut manager = world.manager(&key, credential, &["--secure-port=0"], None);
        let logged = within(Duration::from_secs(20), || {
            let printed = manager.output();
            ["is not a valid token", "expected a string", "unknown token"]
                .iter()
                .any(|message| printed.contains(message))
                .then_some(printed)
        });
        let logged = logged.unwrap_or_else(|| panic!("{}", manager.output()));
        world.check_no_secrets(&logged, "the manager");
        if logged.contains("unknown token") {
            manager.stop("-TERM");
        }
        world.check_no_secrets(&manager.output(), "the manager");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn spans_are_exported_to_a_collector() {
    let mut world = World::start("traces").await;
    let kubeconfig = world.with_key();
    let mut manager = world.manager(&kubeconfig, &format!("token: {CLOUD_SECRET}"), &["--secure-port=0"], None);
    world.work("worker-1", &manager).await;
    assert!(manager.stop("-TERM").success(), "{}", manager.output());
    let attribute = |span: &Value, key: &str| {
        let pairs = span["attributes"].as_array().unwrap();
        let pair = pairs.iter().find(|pair| pair["key"] == key)?;
        pair["value"]["stringValue"].as_str().map(str::to_owned)
    };
    let syncs = world.collector.spans("sync");
    let of_service = syncs.iter().find(|span| attribute(span, "key").as_deref() == Some("default/worker-1"));
    let of_service = of_service.unwrap_or_else(|| panic!("{syncs:#?}; log: {}", manager.output()));
    assert_eq!(attribute(of_service, "controller").as_deref(), Some("service-lb-controller"));
    assert_eq!(attribute(of_service, "outcome").as_deref(), Some("success"));
    let within_it = |name: &str| {
        let spans = world.collector.spans(name).into_iter();
        spans.filter(|span| span["traceId"] == of_service["traceId"]).collect::<Vec<_>>()
    };
    let calls = within_it("cloud");
    assert!(calls.iter().any(|call| call["parentSpanId"] == of_service["spanId"]), "{calls:?}");
    assert!(calls.iter().all(|call| attribute(call, "cloud").as_deref() == Some("local") && call["kind"] == 3));
    assert!(!within_it("call").is_empty(), "each operation makes a call");
    let writes = within_it("write");
    assert!(
        writes.iter().any(|write| attribute(write, "resource").as_deref() == Some("services/status")),
        "{writes:?}"
    );
    let nodes = syncs.iter().filter(|span| attribute(span, "key").as_deref() == Some("worker-1")).count();
    assert!(nodes > 0, "{syncs:?}");
}
