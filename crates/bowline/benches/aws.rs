//! AWS calls and time of the whole manager, on the simulator with 20 ms latency per call.
//!
//! `cargo bench -p bowline --bench aws [-- NODES BALANCERS]`

mod simulated;

use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bowline_aws::{Aws, Config};
use bowline_aws_simulator::{
    ACCESS_KEY, Limits, NewInstance, NewInterface, Options, REGION, SECRET_KEY, Simulator, State,
};
use bowline_cloud::{BuildInputs, CloudProvider};
use bowline_config::{ConfigFile, Environment};
use serde_json::{Value, json};
use simulated::{Cloud, Failure, LATENCY, Machine, REFRESH, World, sizes, until};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Annotation that requests a Network Load Balancer.
const TYPE: &str = "service.beta.kubernetes.io/aws-load-balancer-type";

/// Kind of the load balancers of a run.
#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    annotations: &'static [(&'static str, &'static str)],
    /// Most write calls for a load balancer with one port.
    writes: usize,
    /// The only write call of a Node that joins.
    joins: &'static str,
}

/// A group with its rules, the load balancer with its health check and its instances, and a rule of the Nodes.
const CLASSIC: Kind =
    Kind { name: "Classic", annotations: &[], writes: 6, joins: "POST elb RegisterInstancesWithLoadBalancer" };

/// The load balancer, a target group with its targets, a listener, and the rules of the Nodes.
const NETWORK: Kind =
    Kind { name: "Network", annotations: &[(TYPE, "nlb")], writes: 5, joins: "POST elbv2 RegisterTargets" };

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<ExitCode, Failure> {
    let (nodes, balancers) = sizes();
    let passed = [
        many_nodes(nodes).await?,
        one_load_balancer(CLASSIC).await?,
        one_load_balancer(NETWORK).await?,
        many_load_balancers(CLASSIC, balancers).await?,
        many_load_balancers(NETWORK, balancers).await?,
    ];
    Ok(if passed.contains(&false) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Nodes that all register at once, a restart of the manager, and a refresh.
async fn many_nodes(nodes: usize) -> Result<bool, Failure> {
    let (world, calls) = World::initialised(simulator(), nodes).await?;
    let pages = nodes.div_ceil(1_000) as u64;
    let allowed = 10 * pages;
    let is_restarted = |world: &World<Simulator>| world.cloud.calls() <= allowed;
    let is_refreshed = |world: &World<Simulator>| world.cloud.calls() <= pages;
    Ok(world.restarts_and_refreshes(nodes, is_restarted, is_refreshed).await? && calls <= allowed)
}

/// A Service with one port in a cluster of a hundred Nodes.
async fn one_load_balancer(kind: Kind) -> Result<bool, Failure> {
    let world = World::new(simulator(), 100).await?;
    let manager = world.start();
    world.settle().await;
    world.cloud.forget_calls();
    let begin = Instant::now();
    world.add_service("web", 1, kind.annotations).await?;
    world.all_addressed(1).await?;
    let (writes, targets) = (world.cloud.writes().len(), targets(&world));
    world.report(&format!("a {} Load Balancer with one port and {targets} instances", kind.name), begin.elapsed());
    manager.stop().await?;
    Ok(writes <= kind.writes && targets == 100)
}

/// Many load balancers, and a Node that joins all of them.
async fn many_load_balancers(kind: Kind, balancers: usize) -> Result<bool, Failure> {
    let world = World::new(simulator(), 10).await?;
    for number in 0..balancers {
        world.add_service(&format!("web-{number:03}"), 1, kind.annotations).await?;
    }
    let begin = Instant::now();
    let manager = world.start();
    world.all_addressed(balancers).await?;
    world.report(&format!("{balancers} {} Load Balancers are created", kind.name), begin.elapsed());
    let created = world.cloud.writes().len() <= kind.writes * balancers;

    world.settle().await;
    world.cloud.forget_calls();
    let begin = Instant::now();
    world.register(10, false).await?;
    until("the Node is a target of all load balancers", async || Ok(targets(&world) == 11 * balancers)).await?;
    let took = begin.elapsed();
    world.settle().await;
    world.report(&format!("a Node joins {balancers} {} Load Balancers", kind.name), took);
    let (writes, counts) = (world.cloud.writes().len(), world.cloud.counts());
    let joined = writes == balancers && counts.get(kind.joins) == Some(&(balancers as u64));

    world.cloud.forget_calls();
    tokio::time::sleep(REFRESH).await;
    world.report(&format!("nothing changes with {balancers} {} Load Balancers", kind.name), REFRESH);
    let quiet = world.cloud.calls() == 0;
    manager.stop().await?;
    Ok(created && joined && quiet)
}

/// Number of targets of all load balancers.
fn targets(world: &World<Simulator>) -> usize {
    let length = |list: Option<&Value>| list.and_then(Value::as_array).map_or(0, Vec::len);
    let classic = world.cloud.classic_load_balancers();
    let groups = world.cloud.target_groups();
    let classic = classic.iter().map(|one| length(one.get("Instances")));
    classic.chain(groups.iter().map(|one| length(one.get("_targets")))).sum()
}

// ---- cloud

fn simulator() -> Simulator {
    let limits = Limits { classic_load_balancers: 1000, load_balancers: 1000, rules: 1000, ..Limits::default() };
    let cloud = Simulator::new(Options { control_plane: false, limits, ..Options::default() });
    cloud.set_latency(LATENCY);
    cloud
}

/// Configuration of a manager outside AWS.
fn config(cloud: &Simulator) -> String {
    let fixture = cloud.fixture();
    let global = format!(
        "[Global]\nZone = {REGION}a\nVPC = {}\nSubnetID = {}\nKubernetesClusterID = demo\n",
        fixture.vpc, fixture.public_subnets[0]
    );
    let overrides = ["ec2", "elasticloadbalancing"].map(|service| {
        format!(
            "[ServiceOverride \"{service}\"]\nService = {service}\nRegion = {REGION}\nURL = http://aws.test\nSigningRegion = {REGION}\n"
        )
    });
    global + &overrides.concat()
}

impl Cloud for Simulator {
    type State = State;

    fn provider(&self) -> Arc<dyn CloudProvider> {
        let variables = [("AWS_ACCESS_KEY_ID", ACCESS_KEY), ("AWS_SECRET_ACCESS_KEY", SECRET_KEY)];
        let inputs = BuildInputs { environment: Environment::from_iter(variables), ..BuildInputs::default() };
        let (file, cluster) = (ConfigFile::from_text("aws.conf", config(self)), "kubernetes".into());
        let context = inputs.context(Some(&file), &cluster);
        let http = self.client(Duration::from_secs(30));
        match Config::read(&context).and_then(|config| Aws::over(config, http, &cluster)) {
            Ok(provider) => Arc::new(provider),
            Err(errors) => unreachable!("the configuration is valid: {errors}"),
        }
    }

    fn add_machine(&self, number: usize, name: &str) -> Machine {
        let address = Ipv4Addr::from_bits(Ipv4Addr::new(10, 20, 128, 1).to_bits() + number as u32);
        let interfaces = vec![NewInterface { ipv4: vec![address], ipv6: Vec::new() }];
        let new = NewInstance { private_dns_name: name.to_owned(), interfaces, ..NewInstance::named(name) };
        let id = self.add_instance(new.tagged("kubernetes.io/cluster/demo", "owned"));
        let addresses =
            [("InternalIP", address.to_string()), ("InternalDNS", name.to_owned()), ("Hostname", name.to_owned())];
        let addresses = addresses.map(|(kind, address)| json!({"type": kind, "address": address}));
        Machine { provider_id: format!("aws:///{REGION}a/{id}"), addresses: json!(addresses) }
    }
}
