//! Traffic with health checks, with real sockets on loopback addresses.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::time::Duration;

use crate::support::*;
use bowline_l4::{DataPlane, Health, HealthCheck, HealthProbe, LoadBalancerConfig, Target};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// Health-check node port, the same on each node.
const CHECK_PORT: u16 = 18_256;

/// A node: a target and a server on the health-check node port.
struct Node {
    echo: Echo,
    status: Arc<AtomicU16>,
    probes: Arc<AtomicU64>,
}

impl Node {
    async fn start(status: u16) -> Node {
        let (echo, probes, status) = (Echo::start().await, Arc::default(), Arc::new(AtomicU16::new(status)));
        let listener = TcpListener::bind((echo.address.ip(), CHECK_PORT)).await.unwrap();
        tokio::spawn(answer(listener, Arc::clone(&status), Arc::clone(&probes)));
        Node { echo, status, probes }
    }

    fn set_status(&self, status: u16) {
        self.status.store(status, Ordering::Relaxed);
    }
}

async fn answer(listener: TcpListener, status: Arc<AtomicU16>, probes: Arc<AtomicU64>) {
    while let Ok((mut stream, _)) = listener.accept().await {
        probes.fetch_add(1, Ordering::Relaxed);
        let _ = stream.read(&mut [0; 1024]).await;
        let status = status.load(Ordering::Relaxed);
        let _ = stream.write_all(format!("HTTP/1.1 {status} Whatever\r\nContent-Length: 0\r\n\r\n").as_bytes()).await;
    }
}

fn check() -> HealthCheck {
    HealthCheck {
        probe: HealthProbe::Http { path: "/healthz".to_owned() },
        port: Some(CHECK_PORT),
        interval: Duration::from_millis(20),
        timeout: TIMEOUT,
        rise: 1,
        fall: 2,
    }
}

fn checked(nodes: &[&Node]) -> LoadBalancerConfig {
    let targets: Vec<_> = nodes.iter().map(|node| node.echo.address).collect();
    let mut config = load_balancer(fresh_address(), &targets);
    config.listeners[0].health = Some(check());
    config
}

async fn wait_for_health(plane: &DataPlane, healths: &[Health]) {
    let now = || targets(plane).iter().map(|target| target.health).collect::<Vec<_>>();
    eventually(&format!("{healths:?}"), || now() == healths).await;
}

#[tokio::test]
async fn new_connections_follow_the_healthy_nodes() {
    let (plane, first, second) = (plane(), Node::start(200).await, Node::start(503).await);
    let config = checked(&[&first, &second]);
    plane.set("a", config.clone()).await.unwrap();
    wait_for_health(&plane, &[Health::Healthy, Health::Unhealthy]).await;
    for _ in 0..4 {
        assert_eq!(Client::connect(config.addresses[0]).await.target, first.echo.address);
    }
    let mut old = Client::connect(config.addresses[0]).await;
    first.set_status(503);
    second.set_status(200);
    wait_for_health(&plane, &[Health::Unhealthy, Health::Healthy]).await;
    for _ in 0..4 {
        assert_eq!(Client::connect(config.addresses[0]).await.target, second.echo.address);
    }
    old.echo("an unhealthy target keeps its connections").await.unwrap();
}

#[tokio::test]
async fn without_a_healthy_target_clients_are_reset() {
    let (plane, node) = (plane(), Node::start(503).await);
    let config = checked(&[&node]);
    plane.set("a", config.clone()).await.unwrap();
    wait_for_health(&plane, &[Health::Unhealthy]).await;
    assert!(reset(SocketAddr::new(config.addresses[0], PORT)).await);
    assert_eq!(counters(&plane).failed, 1);
}

#[tokio::test]
async fn health_survives_changes() {
    let (plane, unhealthy, new) = (plane(), Node::start(503).await, Node::start(200).await);
    let mut config = checked(&[&unhealthy]);
    plane.set("a", config.clone()).await.unwrap();
    wait_for_health(&plane, &[Health::Unhealthy]).await;
    config.listeners[0].targets.push(Target::new(new.echo.address));
    config.listeners[0].health = Some(HealthCheck { interval: Duration::from_secs(1000), ..check() });
    let status = plane.set("a", config).await.unwrap();
    let healths: Vec<_> = status.listeners[0].targets.iter().map(|target| target.health).collect();
    assert_eq!(healths, [Health::Unhealthy, Health::Unknown]);
}

#[tokio::test]
async fn a_removed_load_balancer_probes_no_target() {
    let (plane, node) = (plane(), Node::start(200).await);
    let config = checked(&[&node]);
    plane.set("a", config.clone()).await.unwrap();
    wait_for_health(&plane, &[Health::Healthy]).await;
    plane.remove("a", Duration::ZERO).await;
    // Meanwhile another load balancer probes another node several times.
    let other = Node::start(200).await;
    plane.set("a", checked(&[&other])).await.unwrap();
    eventually("some probes", || other.probes.load(Ordering::Relaxed) > 2).await;
    let probes = node.probes.load(Ordering::Relaxed);
    eventually("more probes", || other.probes.load(Ordering::Relaxed) > 8).await;
    assert_eq!(node.probes.load(Ordering::Relaxed), probes);
}
