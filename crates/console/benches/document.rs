//! Cost of publishing a large document: serialising it the first time, and comparing it with the one before from then on.
//!
//! `cargo bench -p bowline-console --bench document [-- NODES SERVICES]`
//!
//! No figure fails the benchmark. `cargo bench -p bowline-controllers --bench console` measures a real manager.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bowline_console::document::{Document, Health, Node, PlanStep, Service, Target, Work};
use bowline_console::{Changes, Position, Publisher, Sources};
use bowline_runtime::Clock;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Longer than two readers of the document share one.
const PAUSE: Duration = Duration::from_millis(450);

/// Number of the zone of the Node that changes.
static ZONE: AtomicUsize = AtomicUsize::new(0);

fn main() -> serde_json::Result<()> {
    let mut sizes = std::env::args().skip(1).filter_map(|text| text.parse().ok());
    let (nodes, services) = (sizes.next().unwrap_or(5_000), sizes.next().unwrap_or(1_000));
    let sources = Sources::new();
    sources.add(move |document: &mut Document| {
        document.node.extend((0..nodes).map(|index| (name(index), node(index))));
        document.service.extend((0..services).map(|index| (format!("default/service-{index:04}"), service(index))));
    });
    let publisher = Publisher::new(sources.clone(), Clock::system());
    let begin = Instant::now();
    let complete = publisher.changes(&Position::default())?;
    println!("{nodes} nodes, {services} services: first document {:.2?}", begin.elapsed());
    println!("  {} items, {} kB", complete.items.len(), serde_json::to_vec(&complete)?.len() / 1000);
    let mut position = position(&complete);
    for _ in 0..5 {
        ZONE.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(PAUSE);
        let begin = Instant::now();
        let changes = publisher.changes(&position)?;
        let took = begin.elapsed();
        println!(
            "  one node changed: {took:.2?}, {} items, {} bytes",
            changes.items.len(),
            serde_json::to_vec(&changes)?.len()
        );
        position = self::position(&changes);
    }
    let begin = Instant::now();
    let document = sources.read();
    println!("  of which building {} values: {:.2?}", document.node.len() + document.service.len(), begin.elapsed());
    Ok(())
}

fn position(changes: &Changes) -> Position {
    Position { epoch: changes.epoch.to_string(), revision: changes.revision }
}

fn name(index: usize) -> String {
    format!("node-{index:05}")
}

fn node(index: usize) -> Node {
    let zone = if index == 7 { ZONE.load(Ordering::Relaxed) } else { 0 };
    Node {
        health: Health::ok(),
        cloud: Some("local".to_owned()),
        provider_id: Some(format!("local://i-{index}")),
        machine: Some(format!("i-{index}")),
        machine_state: "running".to_owned(),
        instance_type: Some("medium".to_owned()),
        zone: Some(format!("zone-{zone}")),
        region: Some("region".to_owned()),
        ready: "True".to_owned(),
        addresses: vec![
            format!("InternalIP 192.168.{}.{}", index / 250, index % 250),
            format!("Hostname {}", name(index)),
        ],
        pod_cidrs: vec![format!("10.{}.{}.0/24", index / 250, index % 250)],
        work: [("cloud-node-controller".to_owned(), Work::default())].into(),
        ..Node::default()
    }
}

fn service(index: usize) -> Service {
    let target = |index| Target { node: name(index), draining: false };
    let step = PlanStep {
        verb: "create".to_owned(),
        kind: "load balancer".to_owned(),
        name: format!("lb-{index}"),
        ..PlanStep::default()
    };
    let plan = bowline_console::document::LastPlan { steps: vec![step; 4], step_count: 4, ..Default::default() };
    Service {
        health: Health::ok(),
        cloud: Some("local".to_owned()),
        kind: "LoadBalancer".to_owned(),
        ports: vec!["http TCP 80 → 30080".to_owned(), "https TCP 443 → 30443".to_owned()],
        traffic_policy: "Cluster".to_owned(),
        finalizer: true,
        addresses: vec!["192.0.2.7".to_owned()],
        targets: (0..50).map(target).collect(),
        target_count: 5_000,
        plan: Some(plan),
        ..Service::default()
    }
}
