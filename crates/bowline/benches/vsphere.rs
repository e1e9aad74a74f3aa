//! vCenter and NSX calls, and time of the whole manager, on the simulators with 20 ms latency per call.
//!
//! `cargo bench -p bowline --bench vsphere [-- NODES BALANCERS]`; without arguments, with 1,000 and with 5,000 virtual machines.

mod simulated;

use std::net::Ipv4Addr;
use std::ops::Deref;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bowline_cloud::{BuildInputs, CloudProvider};
use bowline_config::ConfigFile;
use bowline_http::{Client, Handler, RequestError};
use bowline_vsphere::{Config, Vsphere};
use bowline_vsphere_simulator::nsx::{self, Simulator as Nsx, Work};
use bowline_vsphere_simulator::vcenter::{self, Options, PASSWORD, USER, Vcenter};
use bytes::Bytes;
use http::{Request, Response};
use serde_json::json;
use simulated::{Cloud, Failure, LATENCY, Machine, REFRESH, World, sizes, until};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Most writes for a load balancer with one TCP port: monitor, pool, IP allocation and virtual server. The first one has the LB service,
/// too.
const WRITES: usize = 4;

/// Number of objects on a page of vCenter.
const PAGE: usize = 1_000;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<ExitCode, Failure> {
    let (nodes, balancers) = sizes();
    let more = if std::env::args().any(|argument| argument.parse::<usize>().is_ok()) { nodes } else { 5_000 };
    let passed = [
        many_nodes(nodes).await?,
        more == nodes || many_nodes(more).await?,
        one_load_balancer().await?,
        many_load_balancers(balancers).await?,
    ];
    Ok(if passed.contains(&false) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Nodes that all register at once, a restart of the manager, and a refresh.
async fn many_nodes(nodes: usize) -> Result<bool, Failure> {
    let (world, calls) = World::initialised(Machines::new(), nodes).await?;
    let allowed = 10 * nodes.div_ceil(PAGE) as u64;
    let is_allowed = |world: &World<Machines>| world.cloud.calls() <= allowed;
    Ok(world.restarts_and_refreshes(nodes, is_allowed, is_allowed).await? && calls <= allowed)
}

/// A Service with three ports in a cluster of a hundred Nodes.
async fn one_load_balancer() -> Result<bool, Failure> {
    let world = World::new(Balancers::new(), 100).await?;
    let manager = world.start();
    world.settle().await;
    world.cloud.forget_calls();
    let begin = Instant::now();
    world.add_service("web", 3, &[]).await?;
    world.all_addressed(1).await?;
    let (writes, targets) = (world.cloud.writes().len(), targets(&world));
    world.report(&format!("a load balancer with three ports and {targets} members"), begin.elapsed());
    manager.stop().await?;
    Ok(writes <= 3 * WRITES + 1 && targets == 300)
}

/// Many load balancers, and a Node that joins all of them.
async fn many_load_balancers(balancers: usize) -> Result<bool, Failure> {
    let world = World::new(Balancers::new(), 10).await?;
    for number in 0..balancers {
        world.add_service(&format!("web-{number:03}"), 1, &[]).await?;
    }
    let begin = Instant::now();
    let manager = world.start();
    world.all_addressed(balancers).await?;
    world.report(&format!("{balancers} load balancers are created"), begin.elapsed());
    let created = world.cloud.writes().len() <= WRITES * balancers + 1;

    world.settle().await;
    world.cloud.forget_calls();
    let begin = Instant::now();
    world.register(10, false).await?;
    until("the Node is a member of all load balancers", async || Ok(targets(&world) == 11 * balancers)).await?;
    let took = begin.elapsed();
    world.settle().await;
    world.report(&format!("a Node joins {balancers} load balancers"), took);
    let joined = world.cloud.writes().len() == balancers;

    world.cloud.forget_calls();
    tokio::time::sleep(REFRESH).await;
    world.report(&format!("nothing changes with {balancers} load balancers"), REFRESH);
    let quiet = world.cloud.writes().is_empty();
    manager.stop().await?;
    Ok(created && joined && quiet)
}

/// Number of members of all pools.
fn targets(world: &World<Balancers>) -> usize {
    let pools = world.cloud.nsx.objects("lb-pools");
    pools.iter().filter_map(|pool| Some(pool.get("members")?.as_array()?.len())).sum()
}

// ---- clouds

/// vCenter, whose calls are counted.
struct Machines(Vcenter);

/// NSX manager, whose calls are counted, with the vCenter of the Nodes.
struct Balancers {
    nsx: Nsx,
    vcenter: Vcenter,
}

/// Passes requests on by their host.
struct Network {
    vcenter: Vcenter,
    nsx: Nsx,
}

#[async_trait]
impl Handler for Network {
    async fn handle(&self, request: Request<Bytes>) -> Result<Response<Bytes>, RequestError> {
        match request.uri().host() {
            Some("nsx.test") => self.nsx.handle(request).await,
            _ => self.vcenter.handle(request).await,
        }
    }
}

impl Machines {
    fn new() -> Machines {
        let vcenter = simulated_vcenter();
        vcenter.set_latency(LATENCY);
        Machines(vcenter)
    }
}

impl Balancers {
    fn new() -> Balancers {
        let options = nsx::Options { rate_limit: u32::MAX, realization: Work::Instantly, ..nsx::Options::default() };
        let nsx = Nsx::new(options);
        nsx.add_ip_pool("vips", "10.200.0.1-10.200.7.254");
        nsx.add_tier1("t1");
        nsx.set_latency(LATENCY);
        Balancers { nsx, vcenter: simulated_vcenter() }
    }
}

fn simulated_vcenter() -> Vcenter {
    let vcenter = Vcenter::new(Options::default());
    for (category, tag, kind, name) in
        [("k8s-region", "region-1", "Datacenter", "DC0"), ("k8s-zone", "zone-a", "ClusterComputeResource", "DC0_C0")]
    {
        vcenter.find(kind, name).into_iter().for_each(|object| drop(vcenter.tag(category, tag, &object)));
    }
    vcenter
}

fn provider(vcenter: &Vcenter, nsx: Option<&Nsx>) -> Arc<dyn CloudProvider> {
    let mut settings = json!({
        "vcenter": {"one": {"server": "vcenter.test", "user": USER, "password": PASSWORD, "datacenters": ["DC0"]}},
        "labels": {"region": "k8s-region", "zone": "k8s-zone"},
    });
    if nsx.is_some() {
        settings["nsxt"] = json!({"host": "nsx.test", "user": nsx::USER, "password": nsx::PASSWORD});
        settings["loadBalancer"] = json!({
            "size": "SMALL", "tier1GatewayPath": "/infra/tier-1s/t1", "ipPoolId": "vips",
            "tcpAppProfilePath": "/infra/lb-app-profiles/default-tcp-lb-app-profile",
            "udpAppProfilePath": "/infra/lb-app-profiles/default-udp-lb-app-profile",
        });
    }
    let (file, cluster) = (ConfigFile::from_text("vsphere.conf", settings.to_string()), "kubernetes".into());
    let inputs = BuildInputs::default();
    let context = inputs.context(Some(&file), &cluster);
    let nsx = nsx.cloned().unwrap_or_else(|| Nsx::new(nsx::Options::default()));
    let http = Client::in_process(Arc::new(Network { vcenter: vcenter.clone(), nsx }), Duration::from_secs(30));
    match Config::read(&context).and_then(|config| Vsphere::over(config, http, &cluster)) {
        Ok(provider) => Arc::new(provider),
        Err(errors) => unreachable!("the configuration is valid: {errors}"),
    }
}

/// Adds a virtual machine, as its Node shows it.
fn add_machine(vcenter: &Vcenter, number: usize, name: &str) -> Machine {
    let address = Ipv4Addr::from_bits(Ipv4Addr::new(10, 18, 0, 1).to_bits() + number as u32).to_string();
    vcenter.add_machine(vcenter::Machine::named(name, &address));
    let uuid = vcenter.machine(name).map(|machine| machine.uuid).unwrap_or_default();
    let addresses = [("Hostname", name), ("InternalIP", &address), ("ExternalIP", &address)];
    let addresses = addresses.map(|(kind, address)| json!({"type": kind, "address": address}));
    Machine { provider_id: format!("vsphere://{uuid}"), addresses: json!(addresses) }
}

impl Deref for Machines {
    type Target = bowline_simulator::Simulator<vcenter::State>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Cloud for Machines {
    type State = vcenter::State;

    fn provider(&self) -> Arc<dyn CloudProvider> {
        provider(&self.0, None)
    }

    fn add_machine(&self, number: usize, name: &str) -> Machine {
        add_machine(&self.0, number, name)
    }
}

impl Deref for Balancers {
    type Target = bowline_simulator::Simulator<nsx::State>;

    fn deref(&self) -> &Self::Target {
        &self.nsx
    }
}

impl Cloud for Balancers {
    type State = nsx::State;

    fn provider(&self) -> Arc<dyn CloudProvider> {
        provider(&self.vcenter, Some(&self.nsx))
    }

    fn add_machine(&self, number: usize, name: &str) -> Machine {
        add_machine(&self.vcenter, number, name)
    }
}
