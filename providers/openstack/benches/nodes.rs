//! What it costs to know of thousands of servers: calls and time, through all layers, on the simulator with 20 ms a call.
//!
//! `cargo bench -p bowline-openstack --bench nodes [-- NODES…]`
//!
//! The floor is the same number of calls one after the other, with nothing done in between. Machines here are shared, so
//! that times are for comparing; what must hold is the number of calls.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bowline_cloud::layers::{LayerOptions, Layered};
use bowline_cloud::{CloudProvider, Freshness};
use bowline_core::{InstanceRef, InstanceState, ProviderId};
use bowline_openstack::config::{Credential, Global, Scope, User};
use bowline_openstack::{Config, OpenStack};
use bowline_openstack_simulator::{NewServer, Options, Simulator};

/// What every call takes.
const LATENCY: Duration = Duration::from_millis(20);

/// The most calls that a thousand Nodes may take.
const MOST_CALLS: u64 = 40;

/// How many flavors the servers are of.
const FLAVORS: usize = 5;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    let chosen: Vec<usize> = std::env::args().skip(1).filter_map(|text| text.parse().ok()).collect();
    let sizes = if chosen.is_empty() { vec![1_000, 5_000] } else { chosen };
    let mut is_sound = true;
    for size in sizes {
        is_sound &= measure(size).await;
    }
    if is_sound { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Nodes that register, then Nodes that are looked after, then one alone. Says whether the calls were few enough.
async fn measure(size: usize) -> bool {
    let simulator = Simulator::new(Options { latency: LATENCY, ..Options::default() });
    let ids = furnish(&simulator, size);
    let cloud = Layered::new(provider(&simulator), "openstack", &LayerOptions::default(), &prometheus::Registry::new());
    let names: Vec<_> = (0..size).map(|index| question(index, None)).collect();
    let with_ids: Vec<_> = ids.iter().enumerate().map(|(index, id)| question(index, Some(id))).collect();
    let most = MOST_CALLS * size.div_ceil(1_000) as u64;
    let one = with_ids.get(..1).unwrap_or_default();
    let mut is_sound = true;
    for (what, asked) in [("initialised, by name", &names[..]), ("looked after, by ID", &with_ids), ("one alone", one)]
    {
        let calls = report(&simulator, &cloud, &format!("{size} servers, {what}"), asked).await;
        is_sound &= calls.is_some_and(|calls| calls <= most);
    }
    is_sound
}

/// Asks, and prints what that took; the number of calls, if all servers were found.
async fn report(simulator: &Simulator, cloud: &Layered, what: &str, asked: &[InstanceRef]) -> Option<u64> {
    simulator.forget_calls();
    let begin = Instant::now();
    let answers = cloud.find_instances(asked, Freshness::Now).await;
    let (took, calls) = (begin.elapsed(), simulator.calls());
    let found = answers.iter().filter(|answer| matches!(answer, Ok(InstanceState::Running(_)))).count();
    let floor = LATENCY * u32::try_from(calls).unwrap_or(u32::MAX);
    let ratio = took.as_secs_f64() / floor.as_secs_f64();
    println!(
        "{what}: {found} found, {calls} calls, {:.3} s; as many calls one after the other {:.3} s: {ratio:.2}x {:?}",
        took.as_secs_f64(),
        floor.as_secs_f64(),
        simulator.counts(),
    );
    (found == asked.len()).then_some(calls)
}

/// Servers of some flavors; their IDs.
fn furnish(simulator: &Simulator, size: usize) -> Vec<String> {
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

fn question(index: usize, id: Option<&String>) -> InstanceRef {
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
