//! Time without service when the active host fails.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::agents::{self, Group};
use crate::child::{Folder, PORT, Running, SERVICE, start_haproxy, until_served};
use crate::load::{self, Result};
use crate::net::{Host, hosts};
use crate::process;
use crate::settings::Settings;
use crate::table::{Pair, heading};

/// Interval of the client's connections.
const INTERVAL: Duration = Duration::from_millis(20);

/// Time of normal service before the fault.
const BEFORE: Duration = Duration::from_secs(1);

/// Time of a round: the agent needs less than two seconds, keepalived with its defaults less than four.
const ROUND: Duration = Duration::from_secs(8);

/// Timeout of a connection. Repetitions of TCP must not hide that service is back.
const TIMEOUT: Duration = Duration::from_millis(200);

/// Address of keepalived.
const THEIRS: [u8; 4] = [192, 0, 2, 201];

/// Failure of the active host.
#[derive(Clone, Copy)]
enum Fault {
    /// The programs are stopped in an orderly way.
    Stop,
    /// The load balancer is killed.
    Crash,
    /// The host loses its network.
    Lost,
}

pub(crate) async fn measure(settings: &Settings) -> Result<()> {
    heading("time without service, ms (client every 20 ms)", "keepalived");
    let faults = [(Fault::Stop, "stopped"), (Fault::Crash, "killed"), (Fault::Lost, "host lost")];
    let programs = process::haproxy().filter(|_| has_keepalived());
    for (fault, name) in faults {
        let (mut gaps, mut failed) = (Pair::default(), Pair::default());
        for _ in 0..settings.rounds {
            let gap = group_of_agents(fault).await?;
            gaps.add(0, gap.time.as_secs_f64() * 1000.0);
            failed.add(0, gap.failed);
            if let Some(haproxy) = &programs {
                let gap = keepalived(haproxy, fault).await?;
                gaps.add(1, gap.time.as_secs_f64() * 1000.0);
                failed.add(1, gap.failed);
            }
        }
        gaps.print(name);
        failed.print("  failed connections");
    }
    Ok(())
}

// === Agents ===

/// Measures a group of two agents.
async fn group_of_agents(fault: Fault) -> Result<Gap> {
    let Some([client, target, one, two]) = hosts().await else { return Err("no namespaces".into()) };
    let (_backend, target) = Running::start_backend(&target).await?;
    let pair = [&one, &two];
    let group = Group::start(pair).await?;
    group.create(&client, pair, target).await?;
    until_served(&client, SERVICE.into()).await?;
    // The standby has copied the state.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let active = agents::active(pair).await?;
    fault_and_gap(&client, SERVICE.into(), async || match fault {
        Fault::Stop => group.agent(active).signal("TERM"),
        Fault::Crash => group.agent(active).signal("KILL"),
        Fault::Lost => {
            pair[active].set_cable(false).await;
            Ok(())
        }
    })
    .await
}

// === keepalived ===

fn has_keepalived() -> bool {
    let version = Command::new("keepalived").arg("-v").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if version.is_err() {
        eprintln!("SKIPPED: keepalived is not in PATH");
    }
    version.is_ok()
}

/// Measures two hosts with HAProxy and keepalived, with an advertisement interval of one second, the default.
async fn keepalived(haproxy: &Path, fault: Fault) -> Result<Gap> {
    let Some([client, target, one, two]) = hosts().await else { return Err("no namespaces".into()) };
    let (_backend, target) = Running::start_backend(&target).await?;
    let (mut programs, mut folders) = (Vec::new(), Vec::new());
    for (host, priority) in [(&one, 150), (&two, 100)] {
        let (haproxy, folder) = start_haproxy(host, haproxy, &format!("*:{PORT}"), target).await?;
        folders.push(folder);
        let folder = Folder::new("keepalived", host)?;
        folder.write("config", &keepalived_config(priority, haproxy.id()))?;
        programs.push([Running::start(host, keepalived_command(&folder)).await?, haproxy]);
        folders.push(folder);
    }
    until_served(&client, THEIRS.into()).await?;
    // The host with the higher priority takes over from the other one, if that was first.
    tokio::time::sleep(Duration::from_secs(5)).await;
    fault_and_gap(&client, THEIRS.into(), async || match (fault, &programs[0]) {
        (Fault::Stop, active) => active.iter().try_for_each(|program| program.signal("TERM")),
        (Fault::Crash, [_, haproxy]) => haproxy.signal("KILL"),
        (Fault::Lost, _) => {
            one.set_cable(false).await;
            Ok(())
        }
    })
    .await
}

fn keepalived_command(folder: &Folder) -> Command {
    let mut command = Command::new("keepalived");
    command.args(["--dont-fork", "--vrrp"]).arg("--use-file").arg(folder.path("config"));
    command.arg("--pid").arg(folder.path("pid")).arg("--vrrp_pid").arg(folder.path("vrrp-pid"));
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// The script is the usual check of HAProxy, with half of the usual interval.
fn keepalived_config(priority: u8, haproxy: u32) -> String {
    let address = IpAddr::from(THEIRS);
    format!(
        "global_defs {{\n  script_user root\n}}\nvrrp_script haproxy {{\n  script \"/bin/kill -0 {haproxy}\"\n  interval 1\n}}\n\
         vrrp_instance bench {{\n  state BACKUP\n  interface eth1\n  virtual_router_id 51\n  priority {priority}\n  \
         virtual_ipaddress {{\n    {address}/32 dev eth1\n  }}\n  track_script {{\n    haproxy\n  }}\n}}\n"
    )
}

// === The client ===

/// Result of a round.
struct Gap {
    /// Longest time between two connections that were served.
    time: Duration,
    failed: f64,
}

/// Causes a fault while a client connects every 20 ms.
async fn fault_and_gap(client: &Host, address: IpAddr, fault: impl AsyncFn() -> Result<()>) -> Result<Gap> {
    let address = SocketAddr::from((address, PORT));
    let (report, connected) = tokio::sync::oneshot::channel();
    client.namespace.start(async move {
        let _ = report.send(connect_all(address).await);
    });
    tokio::time::sleep(BEFORE).await;
    fault().await?;
    let served = connected.await?;
    let mut times: Vec<Instant> = served.iter().flatten().copied().collect();
    times.sort();
    // Service that does not come back is a gap until the end.
    times.push(Instant::now() - TIMEOUT);
    let gaps = times.windows(2).map(|pair| pair[1] - pair[0]);
    let failed = served.iter().filter(|served| served.is_none()).count();
    Ok(Gap { time: gaps.max().ok_or("no connection was served")?, failed: failed as f64 })
}

/// Connects regularly. Returns the time of each response.
async fn connect_all(address: SocketAddr) -> Vec<Option<Instant>> {
    let (begun, mut tasks) = (Instant::now(), Vec::new());
    let mut interval = tokio::time::interval(INTERVAL);
    while begun.elapsed() < ROUND {
        interval.tick().await;
        tasks.push(tokio::spawn(tokio::time::timeout(TIMEOUT, connect(address))));
    }
    let mut served = Vec::new();
    for task in tasks {
        served.push(task.await.ok().and_then(std::result::Result::ok).and_then(Result::ok));
    }
    served
}

async fn connect(address: SocketAddr) -> Result<Instant> {
    use tokio::io::AsyncReadExt as _;
    let mut stream = load::request(address, load::ONCE).await?;
    if stream.read_u8().await? != load::ONCE {
        return Err("unexpected response".into());
    }
    Ok(Instant::now())
}
