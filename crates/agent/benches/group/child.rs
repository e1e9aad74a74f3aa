//! Processes on the hosts: programs, and this program in other roles.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use bowline_agent::network::{Network, NetworkOptions};
use bowline_l4::{DataPlane, Limits, ListenerConfig, LoadBalancerConfig, Target, Transport};

use crate::load::{self, Result};
use crate::net::{Host, INTERFACE};
use crate::process::{cpu_time, end_with_parent, ready, with_open_files};
use crate::{addresses, agents, net};

const ROLE: &str = "BOWLINE_GROUP_BENCH_ROLE";

pub(crate) const PORT: u16 = 8080;

/// Address of the agent's load balancer.
pub(crate) const SERVICE: [u8; 4] = [192, 0, 2, 200];

/// Renewals of the addresses.
pub(crate) const RENEWAL: Duration = Duration::from_millis(500);

// === Starting them ===

/// Process group on a host. Killed at the end of this value.
pub(crate) struct Running {
    id: u32,
    stdout: Option<ChildStdout>,
    /// Kept open: a role ends when it is closed.
    _stdin: Option<ChildStdin>,
}

impl Running {
    /// Starts a program in the network namespace of a host.
    pub(crate) async fn start(host: &Host, mut command: Command) -> Result<Running> {
        command.process_group(0).stdin(Stdio::piped());
        let mut child = host.namespace.run(async move { command.spawn() }).await?;
        let running = Running { id: child.id(), stdout: child.stdout.take(), _stdin: child.stdin.take() };
        // Without this, a killed process would still exist for those who check it.
        std::thread::spawn(move || child.wait());
        Ok(running)
    }

    /// Starts this program in another role, and waits until it is ready.
    pub(crate) async fn start_role(host: &Host, role: String) -> Result<Running> {
        let mut command = with_open_files(std::env::current_exe()?);
        command.args(std::env::args().skip(1)).env(ROLE, &role).stdout(Stdio::piped());
        let mut running = Running::start(host, command).await?;
        let mut line = String::new();
        BufReader::new(running.stdout.take().ok_or("no output")?).read_line(&mut line)?;
        if line.trim() == "ready" { Ok(running) } else { Err(format!("the {role} did not start").into()) }
    }

    pub(crate) async fn start_backend(host: &Host) -> Result<(Running, SocketAddr)> {
        let address = SocketAddr::from((host.addresses[0], PORT));
        Ok((Running::start_role(host, format!("backend {address}")).await?, address))
    }

    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// CPU time so far, in milliseconds.
    pub(crate) fn cpu_time(&self) -> Result<f64> {
        cpu_time(self.id)
    }

    /// Sends a signal to all processes of the group.
    pub(crate) fn signal(&self, signal: &str) -> Result<()> {
        let group = format!("-{}", self.id);
        let status = Command::new("kill").args(["-s", signal, "--", &group]).stderr(Stdio::null()).status()?;
        if status.success() { Ok(()) } else { Err(format!("cannot send {signal}").into()) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.signal("KILL");
    }
}

/// Folder with the files of a program. Exists as long as this value.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(program: &str, host: &Host) -> Result<Folder> {
        let name = format!("bowline-group-bench-{}-{program}-{}", std::process::id(), host.addresses[0]);
        let folder = Folder(std::env::temp_dir().join(name));
        std::fs::create_dir_all(&folder.0)?;
        Ok(folder)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        std::fs::write(self.path(name), text)?;
        Ok(self.path(name))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Starts HAProxy on a host.
pub(crate) async fn start_haproxy(
    host: &Host,
    program: &Path,
    bind: &str,
    target: SocketAddr,
) -> Result<(Running, Folder)> {
    let config = format!(
        "global\n  nbthread 1\n  maxconn 5000\ndefaults\n  mode tcp\n  timeout connect 5s\n  timeout client 1h\n  \
         timeout server 1h\n  backlog 4096\nlisten bench\n  bind {bind}\n  server one {target}\n"
    );
    let folder = Folder::new("haproxy", host)?;
    let file = folder.write("config", &config)?;
    let mut command = with_open_files(program.to_path_buf());
    command.args(["-q", "-db", "-f"]).arg(file);
    Ok((Running::start(host, command).await?, folder))
}

/// Waits until a server answers.
pub(crate) async fn until_served(client: &Host, address: IpAddr) -> Result<()> {
    let address = SocketAddr::from((address, PORT));
    for _ in 0..1000 {
        let asked = tokio::time::timeout(Duration::from_millis(200), load::request(address, load::ONCE));
        if client.namespace.run(asked).await.is_ok_and(|stream| stream.is_ok()) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Err(format!("{address} does not answer").into())
}

// === Their roles ===

pub(crate) fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// Runs in a role: a word and its arguments.
pub(crate) async fn run(role: &str) -> Result<()> {
    end_with_parent();
    match role.split(' ').collect::<Vec<_>>()[..] {
        ["backend", address] => load::backend(address.parse()?, ready).await,
        ["data-plane", target] => data_plane(target.parse()?).await,
        ["holder", count] => addresses::hold(count.parse()?).await,
        ["agent", config] => agents::run(config).await,
        ["flood"] => addresses::flood().await,
        _ => Err(format!("unknown role {role:?}").into()),
    }
}

pub(crate) fn network() -> Result<Network> {
    let pools = vec!["192.0.2.200-192.0.2.210".parse()?];
    Ok(Network::open(NetworkOptions { interface: net::INTERFACE.to_owned(), pools })?)
}

/// Holds the service address, and forwards its connections to a target.
async fn data_plane(target: SocketAddr) -> Result<()> {
    let network = network()?;
    let addresses = BTreeSet::from([IpAddr::from(SERVICE)]);
    let report = network.hold(&addresses, true).await;
    if let Some(problem) = report.problems.first() {
        return Err(format!("{INTERFACE}: {problem}").into());
    }
    let plane = DataPlane::new(Limits { threads: 1, ..Limits::default() });
    let config = LoadBalancerConfig {
        addresses: addresses.iter().copied().collect(),
        listeners: vec![ListenerConfig::new(Transport::Tcp, PORT, vec![Target::new(target)])],
        allow: Vec::new(),
        drain: Duration::ZERO,
    };
    let status = plane.set("bench", config).await?;
    if let Some(error) = status.listeners.iter().find_map(|listener| listener.error.clone()) {
        return Err(error.into());
    }
    ready();
    loop {
        tokio::time::sleep(RENEWAL).await;
        network.hold(&addresses, true).await;
    }
}
