//! Numbers of calls: those of the table in `docs/guides/aws.md`, which this module reads.

use std::collections::BTreeMap;
use std::time::Duration;

use bowline_aws::Aws;
use bowline_aws_simulator::{NewInstance, Options, Simulator};
use bowline_cloud::{CloudProvider as _, LoadBalancers, Routes};
use bowline_core::testing::service_port;
use bowline_core::{DesiredLoadBalancer, Protocol, RouteSpec, Service};
use bowline_simulator::drive::Desired as _;

use crate::world::{CLUSTER_TAG, Kept, NLB, STATIC, World, counts, node, provider, web};

const GUIDE: &str = include_str!("../../../../docs/guides/aws.md");

/// Returns the calls in the row of the guide that begins with this operation: columns "reads" and "writes".
pub(crate) fn of_guide(operation: &str) -> BTreeMap<String, u64> {
    let cells = |line: &'static str| line.split('|').map(str::trim).collect::<Vec<_>>();
    let rows = GUIDE.lines().map(cells);
    let row = rows.into_iter().find(|cells| cells.get(1) == Some(&operation) && cells.len() == 6);
    let row = row.unwrap_or_else(|| panic!("the guide has no row {operation:?}"));
    let items = row[2..4].iter().flat_map(|cell| cell.split(", ")).filter(|item| *item != "none");
    let item = |item: &str| {
        let (count, action) =
            item.split_once(' ').unwrap_or_else(|| panic!("{operation}: {item:?} is not a number and an action"));
        (action.to_owned(), count.parse().unwrap_or_else(|_| panic!("{operation}: {count:?} is not a number")))
    };
    items.map(item).collect()
}

/// Compares the calls since the last time with a row of the guide.
#[track_caller]
fn check(cloud: &Simulator, operation: &str) {
    let calls = counts(cloud);
    assert_eq!(calls, of_guide(operation), "{operation}");
    cloud.forget_calls();
}

/// A provider that has cached nothing yet, on an account with some Nodes.
async fn fresh() -> World {
    let world = World::new().await;
    let provider = provider(&world.cloud, &STATIC, "");
    provider.start().await.unwrap();
    world.cloud.forget_calls();
    World { provider, ..world }
}

/// Plans and applies once.
async fn apply(world: &World, service: &mut Kept) {
    let plan = world.planned(service).await.unwrap();
    world.driver().apply_all(service, &plan).await.unwrap();
}

fn two_ports(service: Service) -> Service {
    Service { ports: vec![service_port(Protocol::Tcp, 80), service_port(Protocol::Tcp, 443)], ..service }
}

/// Services of one kind, each with its own UID.
fn services(world: &World, kind: Option<(&str, &str)>, count: usize) -> Vec<Kept> {
    let offset = if kind.is_some() { 500 } else { 0 };
    let one = |at: usize| {
        let annotations: Vec<_> = kind.into_iter().collect();
        let number = at + offset;
        let name = format!("web-{number}");
        let ports = vec![service_port(Protocol::Tcp, u16::try_from(8000 + number).unwrap())];
        let service =
            Service { ports, uid: format!("{number:08x}-e4f5-0617-2839-4a5b6c7d8e9f"), name, ..web(&annotations) };
        world.kept(service)
    };
    (0..count).map(one).collect()
}

async fn observe(provider: &Aws, services: &[Kept]) {
    let desired: Vec<DesiredLoadBalancer> = services.iter().map(Kept::desired).collect();
    let observed = LoadBalancers::observe(provider, &desired).await;
    assert!(observed.iter().all(Result::is_ok), "{observed:?}");
}

// ---- start and steady state

#[tokio::test(start_paused = true)]
async fn a_start_makes_one_call_or_none() {
    let cloud = Simulator::new(Options::default());
    provider(&cloud, &STATIC, "").start().await.unwrap();
    check(&cloud, "start on an instance");
    let lines = "Region = us-east-1\nVPC = vpc-1\nSubnetID = subnet-1\nKubernetesClusterID = demo\n";
    provider(&cloud, &STATIC, lines).start().await.unwrap();
    check(&cloud, "start elsewhere");
}

// ---- one load balancer

#[tokio::test(start_paused = true)]
async fn a_classic_load_balancer_takes_the_fewest_calls() {
    let world = fresh().await;
    let mut service = world.kept(web(&[]));
    apply(&world, &mut service).await;
    let writes: Vec<_> = world.cloud.writes().iter().map(crate::world::action).collect();
    let expected = [
        "CreateSecurityGroup",
        "AuthorizeSecurityGroupIngress",
        "CreateLoadBalancer",
        "ConfigureHealthCheck",
        "AuthorizeSecurityGroupIngress",
        "RegisterInstancesWithLoadBalancer",
    ];
    assert_eq!(writes, expected, "the order");
    check(&world.cloud, "new Classic Load Balancer");
    assert!(world.planned(&mut service).await.unwrap().is_empty());
    world.cloud.forget_calls();
    service.is_deleted = true;
    apply(&world, &mut service).await;
    check(&world.cloud, "deletion of a Classic Load Balancer");
}

#[tokio::test(start_paused = true)]
async fn a_network_load_balancer_takes_the_fewest_calls() {
    let world = fresh().await;
    let mut service = world.kept(two_ports(web(&[NLB])));
    apply(&world, &mut service).await;
    let writes: Vec<_> = world.cloud.writes().iter().map(crate::world::action).collect();
    let port = ["CreateTargetGroup", "RegisterTargets", "CreateListener"];
    let expected = [&["CreateLoadBalancer"][..], &port, &port, &["AuthorizeSecurityGroupIngress"]].concat();
    assert_eq!(writes, expected, "the order");
    check(&world.cloud, "new Network Load Balancer with 2 ports");
    assert!(world.planned(&mut service).await.unwrap().is_empty());
    world.cloud.forget_calls();
    service.is_deleted = true;
    apply(&world, &mut service).await;
    check(&world.cloud, "deletion of a Network Load Balancer with 2 ports");
}

// ---- many load balancers

#[tokio::test(start_paused = true)]
async fn new_services_share_the_reads() {
    let world = fresh().await;
    observe(&world.provider, &services(&world, None, 10)).await;
    check(&world.cloud, "reads for ten new Services at once");
}

#[tokio::test(start_paused = true)]
async fn twenty_load_balancers_are_compared_in_one_batch() {
    for (kind, operation) in [
        (None, "comparison of 20 Classic Load Balancers with the cloud"),
        (Some(NLB), "comparison of 20 Network Load Balancers with the cloud"),
    ] {
        let world = fresh().await;
        let mut all = services(&world, kind, 20);
        for service in &mut all {
            world.synced(service).await;
        }
        // Later than every cache.
        tokio::time::sleep(Duration::from_secs(3600)).await;
        world.cloud.forget_calls();
        observe(&world.provider, &all).await;
        check(&world.cloud, operation);
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_node_is_one_write_for_each_load_balancer_and_target_group() {
    for (kind, operation) in
        [(None, "new Node with 20 Classic Load Balancers"), (Some(NLB), "new Node with 20 Network Load Balancers")]
    {
        let world = fresh().await;
        let mut all = services(&world, kind, 20);
        for service in &mut all {
            world.synced(service).await;
        }
        tokio::time::sleep(Duration::from_secs(60)).await;
        let added = node(&world.cloud, "node-3");
        all.iter_mut().for_each(|service| service.nodes.push(added.clone()));
        world.cloud.forget_calls();
        let desired: Vec<DesiredLoadBalancer> = all.iter().map(Kept::desired).collect();
        let observed = LoadBalancers::observe(&world.provider, &desired).await;
        for ((service, desired), observed) in all.iter_mut().zip(&desired).zip(observed) {
            let plan = LoadBalancers::plan(&world.provider, desired, observed.unwrap().as_ref()).unwrap();
            world.driver().apply_all(service, &plan).await.unwrap();
        }
        check(&world.cloud, operation);
    }
}

// ---- routes

#[tokio::test(start_paused = true)]
async fn a_route_needs_the_table_once_and_one_write_after_the_first_for_an_instance() {
    let world = fresh().await;
    let spec = |at: u8, id: &str| RouteSpec {
        name_hint: format!("uid-{at}"),
        node: format!("node-{at}").as_str().into(),
        provider_id: bowline_core::ProviderId::new(&format!("aws:///us-east-1a/{id}")),
        node_addresses: Vec::new(),
        destination: format!("10.1.{at}.0/24").parse().unwrap(),
        cluster_uid: None,
    };
    let add = |at: u8| spec(at, &world.cloud.add_instance(NewInstance::named("node").tagged(CLUSTER_TAG, "owned")));
    let specs: Vec<_> = (0..50).map(add).collect();
    let created = world.provider.create(&"kubernetes".into(), &specs).await;
    assert!(created.iter().all(Result::is_ok), "{created:?}");
    check(&world.cloud, "50 new routes at once");
    let listed = Routes::list(&world.provider, &"kubernetes".into()).await.unwrap();
    assert_eq!(listed.len(), 50);
    check(&world.cloud, "list of the routes, every 10 seconds");
    let deleted = world.provider.delete(&"kubernetes".into(), &listed).await;
    assert!(deleted.iter().all(Result::is_ok), "{deleted:?}");
    check(&world.cloud, "deletion of 50 routes at once");
    assert!(world.cloud.routes(&world.cloud.fixture().node_table).iter().all(|route| route["origin"] != "CreateRoute"));
}
