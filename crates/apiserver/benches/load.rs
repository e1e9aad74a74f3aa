//! Measures throughput, memory and start-up time of the server. The server runs in a separate process and receives its
//! load over loopback TLS. The benchmark prints figures and asserts no timings.
//!
//! ```text
//! cargo bench -p bowline-apiserver --bench load [-- --seconds 10 --nodes 10000 --watchers 50 --clients 50]
//! ```

use std::error::Error;
use std::io::{BufRead, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bowline_apiserver::{ApiServer, Options};
use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// The same allocator as in the `bowline` binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const SERVER: &str = "BOWLINE_BENCH_SERVER";

fn main() -> Result<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    if std::env::var_os(SERVER).is_some() {
        return runtime.block_on(serve());
    }
    runtime.block_on(measure(&Settings::from_arguments()))
}

struct Settings {
    seconds: u64,
    nodes: usize,
    watchers: usize,
    clients: usize,
}

impl Settings {
    fn from_arguments() -> Settings {
        let arguments: Vec<String> = std::env::args().collect();
        let value = |name: &str, default: u64| {
            let at = arguments.iter().position(|a| a == name);
            at.and_then(|i| arguments.get(i + 1)).and_then(|v| v.parse().ok()).unwrap_or(default)
        };
        Settings {
            seconds: value("--seconds", 10),
            nodes: value("--nodes", 10_000) as usize,
            watchers: value("--watchers", 50) as usize,
            clients: value("--clients", 50) as usize,
        }
    }
}

// === Server process ===

async fn serve() -> Result<()> {
    let server = ApiServer::start(Options::default()).await?;
    println!("{}", BASE64.encode(server.kubeconfig()));
    std::io::stdout().flush()?;
    // The parent process closes stdin to stop the server.
    let _ = tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new())).await;
    server.shutdown().await;
    Ok(())
}

struct Server {
    child: Child,
    target: Target,
    start_up: Duration,
}

impl Server {
    async fn start() -> Result<Server> {
        let begin = Instant::now();
        let mut child = Command::new(std::env::current_exe()?)
            .env(SERVER, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().ok_or("no output")?).read_line(&mut line)?;
        let target = Target::from_kubeconfig(&String::from_utf8(BASE64.decode(line.trim())?)?)?;
        target.connect().await?.call(Method::GET, "/readyz", "", Bytes::new()).await?;
        Ok(Server { child, target, start_up: begin.elapsed() })
    }

    /// Current and peak resident memory in MiB.
    fn memory(&self) -> Result<(u64, u64)> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let field = |name: &str| {
            let line = status.lines().find(|l| l.starts_with(name))?;
            line.split_whitespace().nth(1)?.parse::<u64>().ok()
        };
        Ok((field("VmRSS:").unwrap_or(0) / 1024, field("VmHWM:").unwrap_or(0) / 1024))
    }

    fn stop(mut self) -> Result<()> {
        drop(self.child.stdin.take());
        self.child.wait()?;
        Ok(())
    }
}

// === Minimal HTTP client ===

#[derive(Clone)]
struct Target {
    address: String,
    tls: TlsConnector,
}

struct Connection {
    sender: SendRequest<Full<Bytes>>,
}

impl Target {
    fn from_kubeconfig(text: &str) -> Result<Target> {
        let field = |name: &str| -> Result<String> {
            let line = text.lines().find(|l| l.trim().starts_with(name)).ok_or("incomplete kubeconfig")?;
            Ok(line.split_once(": ").ok_or("incomplete kubeconfig")?.1.trim().to_owned())
        };
        let pem = |name: &str| -> Result<Vec<u8>> { Ok(BASE64.decode(field(name)?)?) };
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(&pem("certificate-authority-data")?)?)?;
        let certificate = CertificateDer::from_pem_slice(&pem("client-certificate-data")?)?;
        let key = PrivateKeyDer::from_pem_slice(&pem("client-key-data")?)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_client_auth_cert(vec![certificate], key)?;
        let address = field("server")?.trim_start_matches("https://").to_owned();
        Ok(Target { address, tls: TlsConnector::from(Arc::new(config)) })
    }

    async fn connect(&self) -> Result<Connection> {
        let stream = TcpStream::connect(&self.address).await?;
        stream.set_nodelay(true)?;
        let stream = self.tls.connect(ServerName::try_from("127.0.0.1")?, stream).await?;
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Connection { sender })
    }
}

impl Connection {
    async fn call(&mut self, method: Method, path: &str, content_type: &str, body: Bytes) -> Result<Bytes> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "127.0.0.1")
            .header("content-type", content_type)
            .body(Full::new(body))?;
        let response = self.sender.send_request(request).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        match status {
            StatusCode::OK | StatusCode::CREATED => Ok(body),
            _ => Err(format!("{path}: {status}: {}", String::from_utf8_lossy(&body)).into()),
        }
    }
}

// === Measurement ===

async fn measure(settings: &Settings) -> Result<()> {
    println!(
        "{} clients, {} watchers, {} s each, {} cores",
        settings.clients,
        settings.watchers,
        settings.seconds,
        std::thread::available_parallelism()?
    );
    let small = run(settings, settings.nodes / 10).await?;
    let large = run(settings, settings.nodes).await?;
    println!("cost per write, {} against {} nodes: {:.2}x", settings.nodes, settings.nodes / 10, small / large);
    Ok(())
}

/// Fills a server with Nodes, then patches them with and without watches. Returns writes per second.
async fn run(settings: &Settings, nodes: usize) -> Result<f64> {
    let server = Server::start().await?;
    println!("\n{nodes} nodes\n  start to first answer        {:>9.1} ms", server.start_up.as_secs_f64() * 1e3);
    let begin = Instant::now();
    let size = fill(&server.target, settings.clients, nodes).await?;
    println!(
        "  create                       {:>9.0} /s ({size} bytes each)",
        nodes as f64 / begin.elapsed().as_secs_f64()
    );
    println!("  memory with the nodes        {:>9} MiB", server.memory()?.0);
    list(&server.target, nodes).await?;

    let alone = patch(settings, &server.target, nodes).await?;
    println!("  PATCH, no watchers           {alone:>9.0} /s");
    let watched = Watched::start(settings, &server.target).await?;
    let rate = patch(settings, &server.target, nodes).await?;
    let (events, bytes) = watched.stop().await;
    println!("  PATCH, {} watchers           {rate:>9.0} /s", settings.watchers);
    println!("  events delivered             {:>9.0} /s ({:.0} MB/s)", events, bytes / 1e6);
    let (now, peak) = server.memory()?;
    println!("  memory now / peak            {now:>5} / {peak} MiB");
    server.stop()?;
    Ok(rate)
}

async fn fill(target: &Target, clients: usize, nodes: usize) -> Result<usize> {
    let next = Arc::new(AtomicU64::new(0));
    let mut tasks = Vec::new();
    for _ in 0..clients {
        let (target, next) = (target.clone(), next.clone());
        tasks.push(tokio::spawn(async move {
            let mut connection = target.connect().await?;
            loop {
                let i = next.fetch_add(1, Ordering::Relaxed) as usize;
                if i >= nodes {
                    return Result::Ok(());
                }
                connection.call(Method::POST, "/api/v1/nodes", "application/json", node(i).to_string().into()).await?;
            }
        }));
    }
    for task in tasks {
        task.await??;
    }
    let stored = target.connect().await?.call(Method::GET, "/api/v1/nodes/node-00000", "", Bytes::new()).await?;
    Ok(stored.len())
}

async fn list(target: &Target, nodes: usize) -> Result<()> {
    let begin = Instant::now();
    let body = target.connect().await?.call(Method::GET, "/api/v1/nodes", "", Bytes::new()).await?;
    let seconds = begin.elapsed().as_secs_f64();
    println!(
        "  list of all                  {:>9.1} ms ({:.1} MB, {nodes} items)",
        seconds * 1e3,
        body.len() as f64 / 1e6
    );
    Ok(())
}

/// Patches random Nodes from many clients. Returns writes per second.
async fn patch(settings: &Settings, target: &Target, nodes: usize) -> Result<f64> {
    let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut tasks = Vec::new();
    for client in 0..settings.clients {
        let (target, stop, done) = (target.clone(), stop.clone(), done.clone());
        tasks.push(tokio::spawn(async move {
            let mut connection = target.connect().await?;
            let mut at = client * 7919;
            while !stop.load(Ordering::Relaxed) {
                at = (at * 1_103_515_245 + 12_345) % (1 << 31);
                let path = format!("/api/v1/nodes/node-{:05}/status", at % nodes);
                connection.call(Method::PATCH, &path, "application/strategic-merge-patch+json", heartbeat(at)).await?;
                done.fetch_add(1, Ordering::Relaxed);
            }
            Result::Ok(())
        }));
    }
    let begin = Instant::now();
    tokio::time::sleep(Duration::from_secs(settings.seconds)).await;
    let rate = done.load(Ordering::Relaxed) as f64 / begin.elapsed().as_secs_f64();
    stop.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await??;
    }
    Ok(rate)
}

/// Open watches of all Nodes, with counters of events and bytes.
struct Watched {
    events: Arc<AtomicU64>,
    bytes: Arc<AtomicU64>,
    begin: Instant,
    tasks: Vec<tokio::task::JoinHandle<Result<()>>>,
}

impl Watched {
    async fn start(settings: &Settings, target: &Target) -> Result<Watched> {
        let head = target.connect().await?.call(Method::GET, "/api/v1/nodes?limit=1", "", Bytes::new()).await?;
        let head: Value = serde_json::from_slice(&head)?;
        let version = head["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
        let (events, bytes) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let mut tasks = Vec::new();
        for _ in 0..settings.watchers {
            let mut connection = target.connect().await?;
            let path = format!("/api/v1/nodes?watch=true&allowWatchBookmarks=true&resourceVersion={version}");
            let request = Request::get(path).header("host", "127.0.0.1").body(Full::new(Bytes::new()))?;
            let mut body = connection.sender.send_request(request).await?.into_body();
            let (events, bytes) = (events.clone(), bytes.clone());
            tasks.push(tokio::spawn(async move {
                let _connection = connection;
                while let Some(frame) = body.frame().await {
                    let Ok(data) = frame?.into_data() else { continue };
                    bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
                    events.fetch_add(memchr::memchr_iter(b'\n', &data).count() as u64, Ordering::Relaxed);
                }
                Result::Ok(())
            }));
        }
        Ok(Watched { events, bytes, begin: Instant::now(), tasks })
    }

    /// Events and bytes per second.
    async fn stop(self) -> (f64, f64) {
        let seconds = self.begin.elapsed().as_secs_f64();
        let ended = self.tasks.iter().filter(|t| t.is_finished()).count();
        if ended > 0 {
            println!("  watches that fell behind     {ended:>9}");
        }
        self.tasks.iter().for_each(|t| t.abort());
        let per_second = |count: &AtomicU64| count.load(Ordering::Relaxed) as f64 / seconds;
        (per_second(&self.events), per_second(&self.bytes))
    }
}

// === Objects ===

/// A Node as a kubelet registers it, about 4 KiB of JSON.
fn node(i: usize) -> Value {
    let condition = |kind: &str, status: &str, reason: &str| {
        json!({
            "type": kind, "status": status, "reason": reason, "message": format!("kubelet reports {reason}"),
            "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    };
    let images: Vec<Value> = (0..7)
        .map(|n| json!({"names": [format!("registry.example/team/component-{n}@sha256:{:064x}", i * 7 + n)], "sizeBytes": 12_345_678 + n}))
        .collect();
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": format!("node-{i:05}"),
            "labels": {
                "kubernetes.io/hostname": format!("node-{i:05}"),
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "node.kubernetes.io/instance-type": "m.large",
                "topology.kubernetes.io/region": "region-1",
                "topology.kubernetes.io/zone": format!("zone-{}", i % 3),
            },
            "annotations": {"node.alpha.kubernetes.io/ttl": "0", "example.com/generation": "1"},
        },
        "spec": {"podCIDR": format!("10.{}.{}.0/24", i / 256 % 256, i % 256), "providerID": format!("local:///machine-{i:05}")},
        "status": {
            "capacity": {"cpu": "4", "memory": "16Gi", "pods": "110", "ephemeral-storage": "100Gi"},
            "allocatable": {"cpu": "3900m", "memory": "15Gi", "pods": "110", "ephemeral-storage": "90Gi"},
            "conditions": [
                condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
                condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
                condition("PIDPressure", "False", "KubeletHasSufficientPID"),
                condition("Ready", "True", "KubeletReady"),
            ],
            "addresses": [
                {"type": "InternalIP", "address": format!("10.200.{}.{}", i / 256 % 256, i % 256)},
                {"type": "Hostname", "address": format!("node-{i:05}")},
            ],
            "nodeInfo": {
                "machineID": format!("{i:032x}"), "systemUUID": format!("{i:032x}"), "bootID": format!("{i:032x}"),
                "kernelVersion": "6.1.0", "osImage": "Linux", "containerRuntimeVersion": "containerd://2.0.0",
                "kubeletVersion": "v1.36.0", "kubeProxyVersion": "", "operatingSystem": "linux", "architecture": "amd64",
            },
            "images": images,
        },
    })
}

/// The status patch of a kubelet heartbeat.
fn heartbeat(n: usize) -> Bytes {
    let time = format!("2026-01-{:02}T{:02}:{:02}:{:02}Z", n % 28 + 1, n / 28 % 24, n / 672 % 60, n / 40_320 % 60);
    json!({"status": {"conditions": [{"type": "Ready", "lastHeartbeatTime": time}]}}).to_string().into()
}
