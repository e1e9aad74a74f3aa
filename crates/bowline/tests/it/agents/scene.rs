//! Hosts on one segment: two agents, the control plane, two Nodes and a client.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, timeout};

use super::net::{self, Host};
use crate::support::{Program, Scratch, bowline};

/// Node port of the Service.
pub(super) const NODE_PORT: u16 = 30080;

/// Addresses of load balancers: one of each family.
pub(super) const POOL: [&str; 2] = ["192.0.2.200/31", "2001:db8::200/127"];

/// Names of the agents, as in their certificates.
pub(super) const AGENTS: [&str; 2] = ["lb-1", "lb-2"];

/// Port of the agents' API.
const PORT: u16 = 9470;

/// The hosts, and the files of the programs on them.
pub(super) struct Scene {
    pub(super) agents: [Arc<Host>; 2],
    pub(super) control: Arc<Host>,
    pub(super) nodes: [Arc<Host>; 2],
    pub(super) client: Arc<Host>,
    pub(super) files: Scratch,
}

impl Scene {
    /// Creates the hosts; `None` without privileges.
    pub(super) async fn new() -> Option<Scene> {
        let [first, second, control, one, two, client] = net::hosts::<6>().await?.map(Arc::new);
        let scene =
            Scene { agents: [first, second], control, nodes: [one, two], client, files: Scratch::new("agents") };
        scene.create_certificates();
        Some(scene)
    }

    fn create_certificates(&self) {
        let [first, second] = [0, 1].map(|index| format!("{}={}", AGENTS[index], self.agents[index].addresses[0]));
        let directory = format!("--directory={}", self.files.path("pki").display());
        let output = bowline(&["lb-agent", "certificates", &directory, &first, &second]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Path of a file of the certificates.
    fn pki(&self, name: &str) -> String {
        self.files.path("pki").join(name).display().to_string()
    }

    fn endpoint(&self, index: usize) -> String {
        format!("https://{}:{PORT}", self.agents[index].addresses[0])
    }

    /// Starts an agent, whose state file survives it.
    pub(super) async fn start_agent(&self, index: usize) -> Program {
        let name = AGENTS[index];
        let peers = [0, 1].map(|peer| format!("  {}: {{endpoint: \"{}\"}}\n", AGENTS[peer], self.endpoint(peer)));
        let config = format!(
            "name: {name}\nlisten: {address}:{PORT}\nstateFile: {state}\ninterface: {interface}\npool: {POOL:?}\n\
             tls: {{certificateFile: {certificate}, keyFile: {key}, clientCaFile: {ca}}}\npeers:\n{peers}",
            address = self.agents[index].addresses[0],
            state = self.files.path(&format!("{name}.json")).display(),
            interface = net::INTERFACE,
            certificate = self.pki(&format!("{name}.crt")),
            key = self.pki(&format!("{name}.key")),
            ca = self.pki("ca.crt"),
            peers = peers.concat(),
        );
        let config = self.files.file(&format!("{name}.yaml"), config);
        start(&self.agents[index], vec!["lb-agent".to_owned(), format!("--config={}", config.display())]).await
    }

    /// Writes the provider's configuration: machines from an inventory, load balancers and routes of the agents. Returns its path.
    pub(super) fn provider_config(&self) -> String {
        let machine = |(index, host): (usize, &Arc<Host>)| {
            let [v4, v6] = host.addresses;
            format!("  - {{name: node-{n}, id: n-{n}, addresses: [\"{v4}\", \"{v6}\"]}}\n", n = index + 1)
        };
        let machines: String = self.nodes.iter().enumerate().map(machine).collect();
        let inventory = self.files.file("inventory.yaml", format!("machines:\n{machines}"));
        let config = format!(
            "backend: inventory\ninventoryFile: {inventory}\nloadBalancer: agent\nroutes: agent\nagent:\n  endpoints: [{first}, {second}]\n  \
             caFile: {ca}\n  certificateFile: {certificate}\n  keyFile: {key}\n",
            inventory = inventory.display(),
            first = self.endpoint(0),
            second = self.endpoint(1),
            ca = self.pki("ca.crt"),
            certificate = self.pki("bowline.crt"),
            key = self.pki("bowline.key"),
        );
        self.files.file("cloudlycke.yaml", config).display().to_string()
    }

    /// Starts a server on the node port of each Node, which responds with the name of the Node.
    pub(super) async fn serve_node_ports(&self) {
        for (index, host) in self.nodes.iter().enumerate() {
            for address in host.addresses {
                let name = format!("node-{}", index + 1);
                let listener = host.namespace.run(TcpListener::bind((address, NODE_PORT))).await.unwrap();
                host.namespace.start(respond(listener, name));
            }
        }
    }

    /// Connects from the client, and returns the response.
    pub(super) async fn request(&self, address: IpAddr, port: u16) -> Option<String> {
        self.client.namespace.run(request(SocketAddr::new(address, port))).await
    }

    /// Connects from the client until there is a response; returns the time that this took.
    pub(super) async fn until_response(&self, address: IpAddr, port: u16) -> Duration {
        let start = Instant::now();
        while self.request(address, port).await.is_none() {
            assert!(start.elapsed() < Duration::from_secs(30), "{address} does not respond");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        start.elapsed()
    }

    /// Index of the only agent whose interface has the address, once there is one.
    pub(super) async fn holder(&self, address: IpAddr) -> usize {
        let end = Instant::now() + Duration::from_secs(30);
        loop {
            let mut holders = Vec::new();
            for index in 0..self.agents.len() {
                let found = self.agents[index].found_addresses().await;
                if found.iter().any(|found| found.split('/').next() == Some(address.to_string().as_str())) {
                    holders.push(index);
                }
            }
            match holders[..] {
                [holder] => return holder,
                _ => assert!(Instant::now() < end, "holders of {address}: {holders:?}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Starts the binary on a host.
pub(super) async fn start(host: &Host, arguments: Vec<String>) -> Program {
    let started = async move {
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        Program::start("agents", &arguments)
    };
    host.namespace.run(started).await
}

pub(super) async fn respond(listener: TcpListener, name: String) {
    while let Ok((mut stream, _)) = listener.accept().await {
        // The client closes first, so that no address of the server stays in TIME_WAIT.
        let _ = stream.write_all(name.as_bytes()).await;
        let _ = stream.shutdown().await;
    }
}

pub(super) async fn request(address: SocketAddr) -> Option<String> {
    let exchange = async {
        let mut text = String::new();
        TcpStream::connect(address).await.ok()?.read_to_string(&mut text).await.ok()?;
        Some(text).filter(|text| !text.is_empty())
    };
    timeout(Duration::from_millis(500), exchange).await.ok()?
}
