//! Conditions of agents are Events of Services that name the cause and the fix. Needs no privileges: the agent listens on loopback.

use crate::support::cluster::Cluster;
use crate::support::simulated::QUICK;
use crate::support::{Program, Scratch};

/// Reason of the Event for a Service without a load balancer.
const FAILED: &str = "SyncLoadBalancerFailed";

/// Address of the only Node, and of load balancers.
fn address(last: u8) -> String {
    format!("127.{}.78.{last}", 1 + std::process::id() % 250)
}

/// Starts the only agent of its group, with this pool, and the state of an earlier one.
fn start_agent(files: &Scratch, pool: &[String]) -> Program {
    let config = format!(
        "name: this-host\nlisten: unix:{socket}\nstateFile: {state}\npool: {pool:?}\nroutes: {{enabled: false}}\nmetricsListen: \"\"\n",
        socket = files.path("agent.sock").display(),
        state = files.path("agent.json").display(),
    );
    let config = format!("--config={}", files.file("agent.yaml", config).display());
    Program::start("agent-problems", &["lb-agent", &config])
}

fn start_manager(files: &Scratch, cluster: &Cluster) -> Program {
    let inventory = format!("machines:\n  - {{name: node-1, id: n-1, addresses: [{}]}}\n", address(10));
    let inventory = files.file("inventory.yaml", inventory);
    let config = format!(
        "backend: inventory\ninventoryFile: {}\nloadBalancer: agent\nagent: {{endpoints: [\"unix:{}\"]}}\n",
        inventory.display(),
        files.path("agent.sock").display()
    );
    let config = format!("--cloud-config={}", files.file("cloudlycke.yaml", config).display());
    let kubeconfig = format!("--kubeconfig={}", cluster.server.kubeconfig().display());
    Program::start("agent-problems", &[&["--cloud-provider=cloudlycke", &config, &kubeconfig][..], &QUICK].concat())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_without_addresses_a_pool_with_a_node_and_a_stopped_agent_are_events_with_a_fix() {
    let (files, cluster) = (Scratch::new("agent-problems"), Cluster::start("agent-problems").await);
    let mut agent = start_agent(&files, &[address(200)]);
    let mut manager = start_manager(&files, &cluster);
    cluster.register("node-1").await;
    cluster.initialised(&manager, "node-1").await;
    cluster.create("first").await;
    assert_eq!(cluster.address(&manager, "first").await, address(200));

    cluster.create("exhausted").await;
    let words = ["the pool has no IPv4 address left; fix: add addresses to `pool`"];
    cluster.warned(&manager, "exhausted", FAILED, &words).await;
    cluster.delete(&manager, "exhausted").await;

    assert!(agent.stop("-TERM").success(), "{}", agent.output());
    agent = start_agent(&files, &[address(200), address(10)]);
    cluster.create("overlapping").await;
    let node = format!("the Node \"node-1\" has the address {}, which is in the pool", address(10));
    cluster.warned(&manager, "overlapping", FAILED, &[&node, "fix: remove it from `pool`"]).await;
    cluster.delete(&manager, "overlapping").await;
    assert_eq!(cluster.address(&manager, "first").await, address(200), "the other Service keeps its address");

    agent.stop("-KILL");
    cluster.create("unreachable").await;
    let socket = format!("unix:{}: ", files.path("agent.sock").display());
    cluster.warned(&manager, "unreachable", FAILED, &[&socket, "; fix: start the agent"]).await;
    // Nothing is deleted: the agent that returns has the load balancer.
    let _agent = start_agent(&files, &[address(200), address(201)]);
    assert_eq!(cluster.address(&manager, "unreachable").await, address(201));
    assert_eq!(cluster.address(&manager, "first").await, address(200));
    assert!(manager.stop("-TERM").success(), "{}", manager.output());
}
