//! A group of two agents with one load balancer.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use bowline_agent::{Agent, Config, NewCertificates, create_certificates};
use bowline_config::ConfigFile;
use bowline_http::{Client, ClientCertificate, Options, Proxies, Roots, Tls};
use bowline_runtime::Shutdown;
use bytes::Bytes;
use http::{Request, StatusCode};
use serde_json::{Value, json};

use crate::child::{Folder, PORT, Running, SERVICE};
use crate::load::Result;
use crate::net::Host;
use crate::process::ready;

const API_PORT: u16 = 9470;

/// Name in the certificate of the client.
const CLIENT: &str = "bowline";

/// Time for the first election and for requests.
const PATIENCE: Duration = Duration::from_secs(20);

/// Group of two agents.
pub(crate) struct Group {
    agents: [Running; 2],
    folder: Folder,
}

impl Group {
    /// Starts agents on two hosts.
    pub(crate) async fn start(hosts: [&Host; 2]) -> Result<Group> {
        let folder = Folder::new("agents", hosts[0])?;
        let names = ["lb-1", "lb-2"];
        let agents = names.iter().zip(hosts).map(|(name, host)| {
            let addresses = host.addresses.iter().map(ToString::to_string).collect();
            ((*name).to_owned(), addresses)
        });
        create_certificates(&NewCertificates {
            directory: folder.path("pki"),
            agents: agents.collect(),
            clients: vec![CLIENT.to_owned()],
            days: 1,
        })?;
        let start = async |own: usize| -> Result<Running> {
            let peer = 1 - own;
            let config = config(&folder, (names[own], hosts[own]), (names[peer], hosts[peer]));
            let file = folder.write(names[own], &config)?;
            Running::start_role(hosts[own], format!("agent {}", file.display())).await
        };
        let agents = [start(0).await?, start(1).await?];
        Ok(Group { agents, folder })
    }

    pub(crate) fn agent(&self, index: usize) -> &Running {
        &self.agents[index]
    }

    /// Creates a load balancer for a target.
    pub(crate) async fn create(&self, client: &Host, hosts: [&Host; 2], target: SocketAddr) -> Result<()> {
        let key = json!({"cluster": "c", "namespace": "web", "service": "bench", "uid": "bench"});
        let address = json!({"family": "IPv4"});
        let asking = json!({"key": key, "addresses": [address]});
        let settings = json!({"listeners": [{"protocol": "TCP", "port": PORT, "nodePort": target.port()}]});
        let targets = json!([{"name": "node", "addresses": [target.ip()]}]);
        let changes = [
            json!({"call": "create-address", "desired": address}),
            json!({"call": "create-balancer", "name": "bench", "settings": settings, "targets": targets}),
        ];
        for change in changes {
            self.post_active(client, hosts, json!({"asking": asking, "change": change})).await?;
        }
        Ok(())
    }

    /// Sends a change to the agent that is active.
    async fn post_active(&self, client: &Host, hosts: [&Host; 2], body: Value) -> Result<()> {
        let (begun, mut number) = (Instant::now(), 0);
        loop {
            let endpoint = SocketAddr::from((hosts[number % 2].addresses[0], API_PORT));
            let (pki, body) = (self.folder.path("pki"), body.to_string());
            let response = client.namespace.run(async move { post(pki, endpoint, body).await }).await;
            match response {
                Ok((StatusCode::OK, _)) => return Ok(()),
                Ok((status, text)) if begun.elapsed() > PATIENCE => return Err(format!("{status}: {text}").into()),
                Err(error) if begun.elapsed() > PATIENCE => return Err(error),
                _ => tokio::time::sleep(Duration::from_millis(100)).await,
            }
            number += 1;
        }
    }
}

/// Index of the host that holds the service address.
pub(crate) async fn active(hosts: [&Host; 2]) -> Result<usize> {
    let address = format!("{}/32", IpAddr::from(SERVICE));
    for (index, host) in hosts.into_iter().enumerate() {
        if host.found_addresses().await.contains(&address) {
            return Ok(index);
        }
    }
    Err(format!("no host has the address {address}").into())
}

fn config(folder: &Folder, (name, host): (&str, &Host), (peer, other): (&str, &Host)) -> String {
    let pki = folder.path("pki").display().to_string();
    let (own, other) = (host.addresses[0], other.addresses[0]);
    json!({
        "name": name,
        "listen": SocketAddr::from((own, API_PORT)),
        "stateFile": folder.path(&format!("{name}-state")).join("state.json"),
        "interface": crate::net::INTERFACE,
        "pool": [IpAddr::from(SERVICE)],
        "routes": {"enabled": false},
        "tls": {
            "certificateFile": format!("{pki}/{name}.crt"),
            "keyFile": format!("{pki}/{name}.key"),
            "clientCaFile": format!("{pki}/ca.crt"),
        },
        "peers": {peer: {"endpoint": format!("https://{other}:{API_PORT}")}},
    })
    .to_string()
}

async fn post(pki: PathBuf, endpoint: SocketAddr, body: String) -> Result<(StatusCode, String)> {
    let read = |file: String| std::fs::read_to_string(pki.join(file));
    let certificate =
        ClientCertificate { chain: read(format!("{CLIENT}.crt"))?, key: read(format!("{CLIENT}.key"))?.into() };
    let tls = Tls { roots: Roots::Pem(read("ca.crt".to_owned())?), client: Some(certificate), ..Tls::default() };
    let client = Client::new(Options { tls, proxies: Proxies::default(), timeout: Duration::from_secs(2) })?;
    let request = Request::post(format!("https://{endpoint}/v1/balancers/change"))
        .header("Bowline-Agent-API", "1")
        .header("Content-Type", "application/json")
        .body(Bytes::from(body))?;
    let response = client.send(request).await?;
    Ok((response.status(), String::from_utf8_lossy(response.body()).into_owned()))
}

// === The role ===

/// Runs an agent until SIGTERM.
pub(crate) async fn run(config: &str) -> Result<()> {
    let text = std::fs::read_to_string(config)?;
    let config = Config::read(&ConfigFile::from_text(config, &text)).map_err(|errors| errors.to_string())?;
    let agent = Agent::open(config).await?;
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    let shutdown = Shutdown::new();
    let requested = shutdown.clone();
    tokio::spawn(async move {
        terminate.recv().await;
        requested.request();
    });
    ready();
    Ok(agent.run(shutdown).await?)
}
