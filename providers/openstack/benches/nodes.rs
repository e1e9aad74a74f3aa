//! Cost of looking up thousands of servers: calls and time, through all layers, on the simulator with 20 ms per call.
//!
//! `cargo bench -p bowline-openstack --bench nodes [-- NODES…]`
//!
//! The baseline is the same number of sequential calls without any work in between. Machines are shared, so times are for
//! comparison only; the number of calls is asserted.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bowline_cloud::layers::{LayerOptions, Layered};
use bowline_cloud::{CloudProvider, Freshness};
use bowline_core::{InstanceRef, InstanceState, ProviderId};
use bowline_openstack::config::{Credential, Global, Scope, User};
use bowline_openstack::{Config, OpenStack};
use bowline_openstack_simulator::{NewServer, Options, Simulator};

/// Latency of every call.
const LATENCY: Duration = Duration::from_millis(20);

/// Maximum number of calls per thousand Nodes.
const MAX_CALLS: u64 = 40;

/// Number of flavors of the servers.
const FLAVORS: usize = 5;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    let chosen: Vec<usize> = std::env::args().skip(1).filter_map(|text| text.parse().ok()).collect();
    let sizes = if chosen.is_empty() { vec![1_000, 5_000] } else { chosen };
    let mut is_within_limit = true;
    for size in sizes {
        is_within_limit &= measure(size).await;
    }
    if is_within_limit { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Measures the initialisation of Nodes, their monitoring, and one lookup. Returns whether the number of calls is within the limit.
async fn measure(size: usize) -> bool {
    let simulator = Simulator::new(Options { latency: LATENCY, ..Options::default() });
    let ids = add_servers(&simulator, size);
    let cloud = Layered::new(provider(&simulator), "openstack", &LayerOptions::default(), &prometheus::Registry::new());
    let names: Vec<_> = (0..size).map(|index| instance_ref(index, None)).collect();
    let with_ids: Vec<_> = ids.iter().enumerate().map(|(index, id)| instance_ref(index, Some(id))).collect();
    let max = MAX_CALLS * size.div_ceil(1_000) as u64;
    let one = with_ids.get(..1).unwrap_or_default();
    let mut is_within_limit = true;
    for (what, lookups) in
        [("initialisation, by name", &names[..]), ("monitoring, by ID", &with_ids), ("one server", one)]
    {
        let calls = report(&simulator, &cloud, &format!("{size} servers, {what}"), lookups).await;
        is_within_limit &= calls.is_some_and(|calls| calls <= max);
    }
    is_within_limit
}

/// Looks up the servers and prints the cost; returns the number of calls if all were found.
async fn report(simulator: &Simulator, cloud: &Layered, what: &str, lookups: &[InstanceRef]) -> Option<u64> {
    simulator.forget_calls();
    let begin = Instant::now();
    let answers = cloud.find_instances(lookups, Freshness::Now).await;
    let (took, calls) = (begin.elapsed(), simulator.calls());
    let found = answers.iter().filter(|answer| matches!(answer, Ok(InstanceState::Running(_)))).count();
    let floor = LATENCY * u32::try_from(calls).unwrap_or(u32::MAX);
    let ratio = took.as_secs_f64() / floor.as_secs_f64();
    println!(
        "{what}: {found} found, {calls} calls, {:.3} s; the same calls sequentially {:.3} s: {ratio:.2}x {:?}",
        took.as_secs_f64(),
        floor.as_secs_f64(),
        simulator.counts(),
    );
    (found == lookups.len()).then_some(calls)
}

/// Adds servers of several flavors, and returns their IDs.
fn add_servers(simulator: &Simulator, size: usize) -> Vec<String> {
    for flavor in 0..FLAVORS {
        simulator.add_flavor(&format!("flavor-{flavor}"), &format!("m1.size-{flavor}"));
    }
    let server = |index: usize| NewServer {
        flavor: format!("flavor-{}", index % FLAVORS),
        ..NewServer::named(&name(index)).at(address(index))
    };
    (0..size).map(|index| simulator.add_server(server(index))).collect()
}

fn name(index: usize) -> String {
    format!("node-{index:05}")
}

fn address(index: usize) -> std::net::IpAddr {
    let [_, _, high, low] = u32::try_from(index).unwrap_or_default().to_be_bytes();
    std::net::Ipv4Addr::new(10, 10, high + 1, low).into()
}

fn instance_ref(index: usize, id: Option<&String>) -> InstanceRef {
    let provider_id = id.map(|id| ProviderId::of("openstack", &format!("/{id}")));
    InstanceRef { node: name(index).into(), provider_id, system_uuid: None }
}

fn provider(simulator: &Simulator) -> Arc<dyn CloudProvider> {
    let fixture = simulator.fixture();
    let config = Config {
        global: Global {
            auth_url: "http://cloud.example/identity".to_owned(),
            credential: Credential::Password { user: User::Id(fixture.user), password: fixture.password.into() },
            scope: Scope::ProjectId(fixture.project),
            interface: "public".to_owned(),
            ..Global::default()
        },
        ..Config::default()
    };
    let client = simulator.client(config.request_timeout);
    Arc::new(OpenStack::over(config, client))
}
