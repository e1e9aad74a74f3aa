//! A group of agents, its clients and its targets.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use bowline_agent::{Agent, Config, NewCertificates, OpenError, create_certificates};
use bowline_agent_client::{AgentRole, AgentStatus};
use bowline_config::ConfigFile;
use bowline_http::{Client, ClientCertificate, Options, Proxies, Roots, Tls};
use bowline_runtime::Shutdown;
use bytes::Bytes;
use http::{Method, Request, StatusCode};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::JoinHandle;

use crate::link::Link;

/// Temporary directory that is removed after the test.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A group of agents `lb-1`, `lb-2`, ….
pub(crate) struct Group {
    pub(crate) scratch: Scratch,
    pub(crate) nodes: Vec<Node>,
    /// Links from one agent to another, by their indexes.
    pub(crate) links: BTreeMap<(usize, usize), Link>,
    /// Third byte of the addresses of this group.
    net: u8,
    /// Agents have deadlines, so few groups run at the same time.
    _permit: SemaphorePermit<'static>,
}

static GROUPS: Semaphore = Semaphore::const_new(2);

/// An agent, running or not.
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) address: SocketAddr,
    pub(crate) config: String,
    running: Option<Running>,
}

struct Running {
    runtime: Runtime,
    shutdown: Shutdown,
    task: JoinHandle<Result<(), bowline_runtime::TaskFailure>>,
    pub(crate) metrics: SocketAddr,
}

/// A response: status and body.
pub(crate) type Reply = (StatusCode, Value);

impl Group {
    /// Creates a group of this size with `options` in each configuration, and starts all agents.
    pub(crate) async fn start(count: usize, options: &str) -> Group {
        let mut group = Group::new(count, options).await;
        for index in 0..count {
            group.run(index).await.unwrap();
        }
        group
    }

    pub(crate) async fn new(count: usize, options: &str) -> Group {
        let permit = GROUPS.acquire().await.unwrap();
        static NEXT: AtomicU32 = AtomicU32::new(0);
        static NET: AtomicU8 = AtomicU8::new(100);
        let name = format!("bowline-agents-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::SeqCst));
        let scratch = Scratch(std::env::temp_dir().join(name));
        let net = NET.fetch_add(1, Ordering::SeqCst);
        let names: Vec<_> = (1..=count).map(|number| format!("lb-{number}")).collect();
        let mut hosts = vec!["127.0.0.1".to_owned()];
        hosts.extend((1..=count).map(|number| format!("127.{}.{net}.{number}", process())));
        let new = NewCertificates {
            directory: scratch.0.join("pki"),
            agents: names.iter().map(|name| (name.clone(), hosts.clone())).collect(),
            clients: ["bowline", "intruder"].map(str::to_owned).to_vec(),
            days: 1,
        };
        create_certificates(&new).unwrap();
        let addresses: Vec<_> = (1..=count).map(|number| free_port(net, number as u8)).collect();
        let mut links = BTreeMap::new();
        for from in 0..count {
            for to in (0..count).filter(|to| *to != from) {
                links.insert((from, to), Link::to(addresses[to]).await);
            }
        }
        let mut group = Group { scratch, nodes: Vec::new(), links, net, _permit: permit };
        for (index, name) in names.iter().enumerate() {
            let config = group.config(index, &names, addresses[index], options);
            let node = Node { name: name.clone(), address: addresses[index], config, running: None };
            group.nodes.push(node);
        }
        group
    }

    fn config(&self, index: usize, names: &[String], address: SocketAddr, options: &str) -> String {
        let (name, pki) = (&names[index], self.scratch.0.join("pki").display().to_string());
        let state = self.state_file(name).display().to_string();
        let peers = names.iter().enumerate().filter(|(other, _)| *other != index);
        let peers = peers.map(|(to, peer)| {
            let endpoint = format!("https://{}", self.links[&(index, to)].address);
            format!("  {peer}: {{endpoint: {endpoint:?}}}\n")
        });
        let peers: String = peers.collect();
        let peers = if peers.is_empty() { peers } else { format!("peers:\n{peers}") };
        format!(
            "name: {name}\nlisten: {address}\nstateFile: {state}\nmetricsListen: 127.0.0.1:0\nroutes: {{enabled: false}}\n\
             tls:\n  certificateFile: {pki}/{name}.crt\n  keyFile: {pki}/{name}.key\n  clientCaFile: {pki}/ca.crt\n\
             pool: [127.{}.{}.0/24]\n{peers}{options}",
            process() + 1,
            self.net
        )
    }

    pub(crate) fn state_file(&self, name: &str) -> PathBuf {
        self.scratch.0.join(name).join("state.json")
    }

    /// Starts an agent on a runtime of its own.
    pub(crate) async fn run(&mut self, index: usize) -> Result<(), OpenError> {
        let node = &mut self.nodes[index];
        let config = Config::read(&ConfigFile::from_text("agent.yaml", &node.config)).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let opened = runtime.spawn(Agent::open(config)).await.unwrap();
        let agent = match opened {
            Ok(agent) => agent,
            Err(error) => {
                runtime.shutdown_background();
                return Err(error);
            }
        };
        let (shutdown, metrics) = (Shutdown::new(), agent.metrics_address().unwrap());
        let task = runtime.spawn(agent.run(shutdown.clone()));
        node.running = Some(Running { runtime, shutdown, task, metrics });
        Ok(())
    }

    /// Ends an agent as SIGKILL does.
    pub(crate) fn kill(&mut self, index: usize) {
        if let Some(running) = self.nodes[index].running.take() {
            // Waits for file operations only, so that the lock of the file is released.
            tokio::task::block_in_place(|| running.runtime.shutdown_timeout(Duration::from_secs(5)));
        }
    }

    /// Ends an agent as SIGTERM does.
    pub(crate) async fn stop(&mut self, index: usize) {
        if let Some(running) = self.nodes[index].running.take() {
            running.shutdown.request();
            running.task.await.unwrap().unwrap();
            running.runtime.shutdown_background();
        }
    }

    /// Breaks or repairs all links between two agents.
    pub(crate) fn set_cut(&self, one: usize, other: usize, is_cut: bool) {
        self.links[&(one, other)].set_broken(is_cut);
        self.links[&(other, one)].set_broken(is_cut);
    }

    pub(crate) fn client(&self, name: &str) -> Client {
        client(&self.scratch.0.join("pki"), Some(name))
    }

    /// Sends a request to an agent, as the manager.
    pub(crate) async fn post(&self, index: usize, path: &str, body: &Value) -> Result<Reply, String> {
        send(&self.client("bowline"), self.nodes[index].address, Method::POST, path, Some(body)).await
    }

    /// Sends a request to one agent after the other until one is active, and repeats it while none is ready, as the manager does.
    pub(crate) async fn post_active(&self, path: &str, body: &Value) -> Result<Value, String> {
        let start = Instant::now();
        loop {
            let mut last = String::new();
            for index in 0..self.nodes.len() {
                match self.post(index, path, body).await {
                    Ok((StatusCode::OK, value)) => return Ok(value),
                    Ok((status @ (StatusCode::MISDIRECTED_REQUEST | StatusCode::SERVICE_UNAVAILABLE), value)) => {
                        last = format!("{last} {}: {status} {value}", self.nodes[index].name);
                    }
                    Ok((status, value)) => return Err(format!("{}: {status} {value}", self.nodes[index].name)),
                    Err(error) => last = format!("{last} {}: {error}", self.nodes[index].name),
                }
            }
            if start.elapsed() > Duration::from_secs(30) {
                return Err(last);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Sends a change to one agent, and repeats it while that agent is not ready: on a busy machine it may be fenced for a moment.
    pub(crate) async fn change(&self, index: usize, change: &Value) {
        let last = std::sync::Mutex::new(String::new());
        let is_done = async || {
            let reply = self.post(index, "/v1/balancers/change", change).await;
            *last.lock().unwrap() = format!("{reply:?}");
            reply.is_ok_and(|(status, _)| status == StatusCode::OK)
        };
        eventually(is_done, || last.lock().unwrap().clone()).await;
    }

    pub(crate) async fn status(&self, index: usize) -> Result<AgentStatus, String> {
        let (_, value) =
            send(&self.client("bowline"), self.nodes[index].address, Method::GET, "/v1/status", None).await?;
        serde_json::from_value(value).map_err(|error| error.to_string())
    }

    /// Indexes of the active agents.
    pub(crate) async fn active(&self) -> Vec<usize> {
        let mut active = Vec::new();
        for index in 0..self.nodes.len() {
            if self.nodes[index].running.is_some()
                && self.status(index).await.is_ok_and(|it| it.role == AgentRole::Active)
            {
                active.push(index);
            }
        }
        active
    }

    /// Waits until one agent is active, and all running ones know it and have its state; returns it and the time.
    pub(crate) async fn settled(&self) -> (usize, Duration) {
        let start = Instant::now();
        loop {
            let mut all = Vec::new();
            for index in (0..self.nodes.len()).filter(|index| self.nodes[*index].running.is_some()) {
                all.extend(self.status(index).await.map(|status| (index, status)));
            }
            if let Some(active) = self.settled_on(&all) {
                return (active, start.elapsed());
            }
            assert!(start.elapsed() < Duration::from_secs(30), "{all:#?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    fn settled_on(&self, all: &[(usize, AgentStatus)]) -> Option<usize> {
        let running = self.nodes.iter().filter(|node| node.running.is_some()).count();
        let mut active = all.iter().filter(|(_, status)| status.role == AgentRole::Active);
        let (index, leader) = active.next().filter(|_| all.len() == running)?;
        let follows = |status: &AgentStatus| {
            let knows = status.peers.iter().any(|peer| peer.name == leader.name && peer.reachable);
            let is_standby = matches!(status.role, AgentRole::Standby | AgentRole::Follower);
            knows && is_standby && (&status.state, status.term) == (&leader.state, leader.term)
        };
        let is_alive = |name: &str| leader.peers.iter().all(|peer| peer.name != name || peer.reachable);
        let others = all.iter().filter(|(other, _)| other != index);
        let mut others = others.map(|(_, status)| follows(status) && is_alive(&status.name));
        (active.next().is_none() && others.all(|settled| settled)).then_some(*index)
    }

    /// Creates a load balancer with one port and these targets; returns its address.
    pub(crate) async fn create(&self, service: &str, port: u16, targets: &[SocketAddr]) -> Result<String, String> {
        let asking = asking(service);
        let desired = json!({"family": "IPv4"});
        let change = json!({"asking": asking, "change": {"call": "create-address", "desired": desired}});
        self.post_active("/v1/balancers/change", &change).await?;
        let node_port = targets.first().map_or(30_000, SocketAddr::port);
        let listeners = json!([{"protocol": "TCP", "port": port, "nodePort": node_port}]);
        let targets: Vec<_> = targets
            .iter()
            .map(|target| json!({"name": format!("node-{}", target.ip()), "addresses": [target.ip()]}))
            .collect();
        let create = json!({"call": "create-balancer", "name": service, "settings": {"listeners": listeners}, "targets": targets});
        let observed = self.post_active("/v1/balancers/change", &json!({"asking": asking, "change": create})).await?;
        assert_eq!(observed.get("errors"), None, "{observed}");
        Ok(observed["addresses"][0]["ip"].as_str().unwrap().to_owned())
    }

    /// Observes a Service.
    pub(crate) async fn observe(&self, service: &str) -> Result<Value, String> {
        let found = self.post_active("/v1/balancers/find", &json!({"asking": [asking(service)]})).await?;
        Ok(found["found"][0].clone())
    }

    pub(crate) async fn metrics(&self, index: usize, path: &str) -> (StatusCode, String) {
        let address = self.nodes[index].running.as_ref().unwrap().metrics;
        let tls = Tls { roots: Roots::None, ..Tls::default() };
        let options = Options { tls, proxies: Proxies::default(), timeout: Duration::from_secs(5) };
        let request = Request::get(format!("http://{address}{path}")).body(Bytes::new()).unwrap();
        let response = Client::new(options).unwrap().send(request).await.unwrap();
        (response.status(), String::from_utf8(response.body().to_vec()).unwrap())
    }

    /// Value of a metric.
    pub(crate) async fn metric(&self, index: usize, name: &str) -> f64 {
        let (_, text) = self.metrics(index, "/metrics").await;
        let line = text.lines().find(|line| line.starts_with(&format!("{name} ")));
        line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or_else(|| panic!("no {name} in {text}"))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            if let Some(running) = node.running.take() {
                running.runtime.shutdown_background();
            }
        }
    }
}

/// Waits until the check succeeds; fails with the text otherwise.
pub(crate) async fn eventually(check: impl AsyncFn() -> bool, text: impl Fn() -> String) {
    let start = Instant::now();
    while !check().await {
        assert!(start.elapsed() < Duration::from_secs(60), "{}", text());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

pub(crate) fn asking(service: &str) -> Value {
    let key = json!({"cluster": "c", "namespace": "web", "service": service, "uid": format!("uid-{service}")});
    json!({"key": key, "addresses": [{"family": "IPv4"}]})
}

/// Client with the certificate of this name, or without one.
pub(crate) fn client(pki: &Path, name: Option<&str>) -> Client {
    let read = |file: String| std::fs::read_to_string(pki.join(file)).unwrap();
    let certificate =
        |name| ClientCertificate { chain: read(format!("{name}.crt")), key: read(format!("{name}.key")).into() };
    let tls = Tls { roots: Roots::Pem(read("ca.crt".to_owned())), client: name.map(certificate), ..Tls::default() };
    Client::new(Options { tls, proxies: Proxies::default(), timeout: Duration::from_secs(10) }).unwrap()
}

pub(crate) async fn send(
    client: &Client,
    address: SocketAddr,
    method: Method,
    path: &str,
    body: Option<&Value>,
) -> Result<Reply, String> {
    let request = Request::builder().method(method).uri(format!("https://{address}{path}"));
    let request = request.header("Bowline-Agent-API", "1").header("Content-Type", "application/json");
    let body = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
    let response = client.send(request.body(body).unwrap()).await.map_err(|error| error.to_string())?;
    assert_eq!(response.headers()["bowline-agent-api"], "1");
    let value = serde_json::from_slice(response.body()).map_err(|error| error.to_string())?;
    Ok((response.status(), value))
}

/// Second byte of the agents' addresses; those of the pools have the next one. Other processes with the same tests have others.
fn process() -> u8 {
    let number = u8::try_from(std::process::id() % 120).unwrap_or_default();
    2 + 2 * number
}

fn free_port(net: u8, host: u8) -> SocketAddr {
    let listener = std::net::TcpListener::bind((Ipv4Addr::new(127, process(), net, host), 0)).unwrap();
    listener.local_addr().unwrap()
}
