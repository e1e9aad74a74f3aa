//! OpenStack calls and time of the whole manager, on the simulator with 20 ms latency per call and one second for every change of a
//! load balancer.
//!
//! `cargo bench -p bowline --bench openstack [-- NODES BALANCERS]`

mod simulated;

use std::net::IpAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bowline_cloud::CloudProvider;
use bowline_openstack::config::{Class, Credential, Global, LoadBalancer};
use bowline_openstack::{Config, OpenStack};
use bowline_openstack_simulator::{Kind, NewServer, Options, Simulator, State, Work};
use serde_json::json;
use simulated::{Cloud, Failure, LATENCY, Machine, World, sizes, until};

/// Time that the cloud needs for a change of a load balancer.
const WORK: Duration = Duration::from_secs(1);

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<ExitCode, Failure> {
    let (nodes, balancers) = sizes();
    let passed = [initialised(nodes).await?, one_load_balancer().await?, node_change(balancers).await?];
    Ok(if passed.contains(&false) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Nodes that all register at once.
async fn initialised(nodes: usize) -> Result<bool, Failure> {
    let (world, _) = World::initialised(simulator(), nodes).await?;
    Ok(world.cloud.calls() <= 40 * nodes.div_ceil(1_000) as u64)
}

/// A Service with three ports in a cluster of a hundred Nodes.
async fn one_load_balancer() -> Result<bool, Failure> {
    let world = World::new(simulator(), 100).await?;
    let manager = world.start();
    world.settle().await;
    world.cloud.forget_calls();
    let begin = Instant::now();
    world.add_service("web", 3, &[]).await?;
    world.all_addressed(1).await?;
    let (writes, members) = (world.cloud.writes().len(), world.cloud.records(Kind::Member).len());
    world.report(&format!("a load balancer with 3 ports, {members} members in all"), begin.elapsed());
    manager.stop().await?;
    Ok(writes <= 8 && members == 300)
}

/// A Node joins a cluster with many load balancers.
async fn node_change(balancers: usize) -> Result<bool, Failure> {
    let world = World::new(simulator(), 10).await?;
    for number in 0..balancers {
        world.add_service(&format!("web-{number:03}"), 1, &[]).await?;
    }
    let begin = Instant::now();
    let manager = world.start();
    world.all_addressed(balancers).await?;
    world.report(&format!("{balancers} load balancers are created"), begin.elapsed());
    world.settle().await;
    world.cloud.forget_calls();
    let begin = Instant::now();
    world.register(10, false).await?;
    let members = || world.cloud.records(Kind::Member).len();
    until("the Node is a target of all load balancers", async || Ok(members() == 11 * balancers)).await?;
    let took = begin.elapsed();
    world.settle().await;
    world.report(&format!("a Node joins {balancers} load balancers"), took);
    let (writes, counts) = (world.cloud.writes().len(), world.cloud.counts());
    manager.stop().await?;
    Ok(writes == balancers && counts.get("PUT pools/{id}/members") == Some(&(balancers as u64)))
}

// ---- cloud

fn simulator() -> Simulator {
    Simulator::new(Options { latency: LATENCY, work: Work::Taking(WORK), ..Options::default() })
}

impl Cloud for Simulator {
    type State = State;

    fn provider(&self) -> Arc<dyn CloudProvider> {
        let config = config(self);
        let http = self.client(config.request_timeout);
        Arc::new(OpenStack::over(config, http))
    }

    fn add_machine(&self, number: usize, name: &str) -> Machine {
        let [.., high, low] = number.to_be_bytes();
        let address = IpAddr::from([10, 10, high + 1, low]);
        let id = self.add_server(NewServer::named(name).at(address));
        let addresses = json!([{"type": "InternalIP", "address": address}]);
        Machine { provider_id: format!("openstack:///{id}"), addresses }
    }
}

fn config(cloud: &Simulator) -> Config {
    let fixture = cloud.fixture();
    let (id, secret) = (fixture.application_credential, fixture.application_secret.into());
    let placement =
        Class { subnet_id: fixture.subnet, floating_network_id: fixture.external_network, ..Class::default() };
    Config {
        global: Global {
            auth_url: "http://openstack.test/identity".to_owned(),
            credential: Credential::ApplicationCredentialId { id, secret },
            interface: "public".to_owned(),
            ..Global::default()
        },
        load_balancer: LoadBalancer { placement, create_monitor: true, ..LoadBalancer::default() },
        ..Config::default()
    }
}
