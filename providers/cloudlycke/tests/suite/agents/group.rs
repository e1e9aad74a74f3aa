//! A group of real agents, each behind a proxy that injects faults.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bowline_agent::{Agent, Config, NewCertificates, create_certificates};
use bowline_agent_client::{API_HEADER, API_VERSION, AgentRole, AgentStatus, Balancer, CloudAddress, RouteRecord};
use bowline_config::ConfigFile;
use bowline_http::{Client, ClientCertificate, Options, Proxies, Roots, Tls};
use bowline_runtime::Shutdown;
use bytes::Bytes;
use http::{Method, Request};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::runtime::{Builder, Runtime};

use super::proxy::{Faults, Proxy};
use crate::host::Folder;

/// Time in which an agent must become active.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// Agents `lb-1`, `lb-2`, ….
pub(super) struct Group {
    folder: Folder,
    nodes: Vec<Node>,
    proxies: Vec<Proxy>,
    pub(super) faults: Arc<Faults>,
    /// Client with a certificate that may read the whole state.
    reader: Client,
}

/// A running agent.
struct Node {
    address: SocketAddr,
    runtime: Option<Runtime>,
}

/// State of an agent.
#[derive(Debug, Deserialize)]
pub(super) struct State {
    pub(super) addresses: Vec<CloudAddress>,
    pub(super) balancers: Vec<Balancer>,
    pub(super) routes: BTreeMap<String, Vec<RouteRecord>>,
}

impl Group {
    /// Starts this number of agents, and waits until one is active.
    pub(super) async fn start(count: usize) -> Group {
        let folder = Folder::new();
        let names: Vec<_> = (1..=count).map(|number| format!("lb-{number}")).collect();
        let hosts = vec!["127.0.0.1".to_owned()];
        let agents = names.iter().map(String::as_str).chain(["proxy"]);
        let new = NewCertificates {
            directory: folder.0.clone(),
            agents: agents.map(|name| (name.to_owned(), hosts.clone())).collect(),
            clients: ["bowline", "reader"].map(str::to_owned).into(),
            days: 1,
        };
        create_certificates(&new).unwrap();
        let addresses: Vec<_> = names.iter().map(|_| free_address()).collect();
        let mut nodes = Vec::new();
        for (name, address) in names.iter().zip(&addresses) {
            let peers: Vec<_> = names.iter().zip(&addresses).filter(|(other, _)| *other != name).collect();
            let config = config(&folder, name, *address, &peers);
            nodes.push(Node { address: *address, runtime: Some(run(&config).await) });
        }
        let faults = Arc::new(Faults::default());
        let mut proxies = Vec::new();
        for address in addresses {
            proxies.push(Proxy::start(&folder.0, address, faults.clone()).await);
        }
        let reader = client(&folder, "reader");
        let group = Group { folder, nodes, proxies, faults, reader };
        group.active().await;
        group
    }

    /// Settings of a provider that uses the proxies.
    pub(super) fn settings(&self) -> String {
        let endpoints: Vec<_> = self.proxies.iter().map(|proxy| format!("https://{}", proxy.address)).collect();
        let (endpoints, folder) = (endpoints.join(", "), self.folder.0.display());
        format!(
            "loadBalancer: agent\nroutes: agent\nagent:\n  endpoints: [{endpoints}]\n  caFile: {folder}/ca.crt\n  \
             certificateFile: {folder}/bowline.crt\n  keyFile: {folder}/bowline.key\n"
        )
    }

    /// Client of the manager, directly to an agent.
    pub(super) fn client(&self) -> Client {
        client(&self.folder, "bowline")
    }

    /// Lines of the key of the manager.
    pub(super) fn secrets(&self) -> Vec<String> {
        let key = fs::read_to_string(self.folder.0.join("bowline.key")).unwrap();
        key.lines().filter(|line| !line.starts_with('-')).map(str::to_owned).collect()
    }

    /// Waits until an agent is active, and returns its index and address.
    pub(super) async fn active(&self) -> (usize, SocketAddr) {
        let begun = Instant::now();
        loop {
            for (index, node) in self.nodes.iter().enumerate().filter(|(_, node)| node.runtime.is_some()) {
                let status: Option<AgentStatus> = self.get(node.address, "/v1/status").await;
                if status.is_some_and(|status| status.role == AgentRole::Active) {
                    return (index, node.address);
                }
            }
            assert!(begun.elapsed() < PATIENCE, "no agent is active");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// State of the active agent.
    pub(super) async fn state(&self) -> State {
        loop {
            let (_, address) = self.active().await;
            // Another agent may have become active.
            if let Some(state) = self.get(address, "/v1/peer/state").await {
                return state;
            }
        }
    }

    /// Ends an agent as SIGKILL does.
    pub(super) fn kill(&mut self, index: usize) {
        if let Some(runtime) = self.nodes[index].runtime.take() {
            runtime.shutdown_background();
        }
    }

    async fn get<T: DeserializeOwned>(&self, address: SocketAddr, path: &str) -> Option<T> {
        let request = Request::builder().method(Method::GET).uri(format!("https://{address}{path}"));
        let response = self.reader.send(request.header(API_HEADER, API_VERSION).body(Bytes::new()).unwrap()).await;
        serde_json::from_slice(response.ok()?.body()).ok()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            node.runtime.take().into_iter().for_each(Runtime::shutdown_background);
        }
    }
}

/// Address of the loopback interface that is free at this moment.
fn free_address() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn config(folder: &Folder, name: &str, address: SocketAddr, peers: &[(&String, &SocketAddr)]) -> String {
    let folder = folder.0.display();
    let peers: String =
        peers.iter().map(|(peer, address)| format!("\n  {peer}: {{endpoint: \"https://{address}\"}}")).collect();
    let peers = if peers.is_empty() { " {}".to_owned() } else { peers };
    format!(
        "name: {name}\nlisten: {address}\nstateFile: {folder}/{name}/state.json\nmetricsListen: ''\nroutes: {{enabled: false}}\n\
         tls: {{certificateFile: {folder}/{name}.crt, keyFile: {folder}/{name}.key, clientCaFile: {folder}/ca.crt}}\n\
         clients: [bowline]\nfollowers: [reader]\npeers:{peers}\n\
         pool: [127.64.0.0/20, \"fd00:1::/112\"]\ninternalPool: [127.65.0.0/20, \"fd00:2::/112\"]\n"
    )
}

/// Runs an agent on a runtime of its own, so that it can be killed.
async fn run(config: &str) -> Runtime {
    let config = Config::read(&ConfigFile::from_text("agent.yaml", config)).unwrap();
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let agent = runtime.spawn(Agent::open(config)).await.unwrap().unwrap();
    runtime.spawn(agent.run(Shutdown::new()));
    runtime
}

fn client(folder: &Folder, name: &str) -> Client {
    let read = |file: String| fs::read_to_string(folder.0.join(file)).unwrap();
    let certificate =
        ClientCertificate { chain: read(format!("{name}.crt")), key: read(format!("{name}.key")).as_str().into() };
    let tls = Tls { roots: Roots::Pem(read("ca.crt".to_owned())), client: Some(certificate), ..Tls::default() };
    Client::new(Options { tls, proxies: Proxies::default(), timeout: Duration::from_secs(10) }).unwrap()
}
