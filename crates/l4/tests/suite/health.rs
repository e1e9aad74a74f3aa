//! Who gets traffic when targets are asked whether they work: real sockets on loopback addresses.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::time::Duration;

use crate::support::*;
use bowline_l4::{BalancerConfig, DataPlane, Health, HealthCheck, HealthProbe, Target};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// The health-check node port, the same at each node.
const CHECK_PORT: u16 = 18_256;

/// A node: a target, and a server on the health-check port beside it.
struct Node {
    echo: Echo,
    status: Arc<AtomicU16>,
    asked: Arc<AtomicU64>,
}

impl Node {
    async fn start(status: u16) -> Node {
        let (echo, asked, status) = (Echo::start().await, Arc::default(), Arc::new(AtomicU16::new(status)));
        let listener = TcpListener::bind((echo.address.ip(), CHECK_PORT)).await.unwrap();
        tokio::spawn(answer(listener, Arc::clone(&status), Arc::clone(&asked)));
        Node { echo, status, asked }
    }

    fn says(&self, status: u16) {
        self.status.store(status, Ordering::Relaxed);
    }
}

async fn answer(listener: TcpListener, status: Arc<AtomicU16>, asked: Arc<AtomicU64>) {
    while let Ok((mut stream, _)) = listener.accept().await {
        asked.fetch_add(1, Ordering::Relaxed);
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
        timeout: PATIENCE,
        rise: 1,
        fall: 2,
    }
}

fn checked(nodes: &[&Node]) -> BalancerConfig {
    let targets: Vec<_> = nodes.iter().map(|node| node.echo.address).collect();
    let mut config = balancer(fresh_address(), &targets);
    config.listeners[0].health = Some(check());
    config
}

async fn until(plane: &DataPlane, healths: &[Health]) {
    let now = || targets(plane).iter().map(|target| target.health).collect::<Vec<_>>();
    eventually(&format!("{healths:?}"), || now() == healths).await;
}

#[tokio::test]
async fn traffic_follows_the_pods_from_node_to_node() {
    let (plane, first, second) = (plane(), Node::start(200).await, Node::start(503).await);
    let config = checked(&[&first, &second]);
    plane.set("a", config.clone()).await.unwrap();
    until(&plane, &[Health::Healthy, Health::Unhealthy]).await;
    for _ in 0..4 {
        assert_eq!(Client::connect(config.addresses[0]).await.target, first.echo.address);
    }
    let mut old = Client::connect(config.addresses[0]).await;
    first.says(503);
    second.says(200);
    until(&plane, &[Health::Unhealthy, Health::Healthy]).await;
    for _ in 0..4 {
        assert_eq!(Client::connect(config.addresses[0]).await.target, second.echo.address);
    }
    old.talk("an unhealthy target keeps what it has").await.unwrap();
}

#[tokio::test]
async fn without_a_healthy_target_clients_are_turned_away() {
    let (plane, node) = (plane(), Node::start(503).await);
    let config = checked(&[&node]);
    plane.set("a", config.clone()).await.unwrap();
    until(&plane, &[Health::Unhealthy]).await;
    assert!(reset(SocketAddr::new(config.addresses[0], PORT)).await);
    assert_eq!(counters(&plane).failed, 1);
}

#[tokio::test]
async fn what_is_known_survives_changes() {
    let (plane, sick, new) = (plane(), Node::start(503).await, Node::start(200).await);
    let mut config = checked(&[&sick]);
    plane.set("a", config.clone()).await.unwrap();
    until(&plane, &[Health::Unhealthy]).await;
    config.listeners[0].targets.push(Target::new(new.echo.address));
    config.listeners[0].health = Some(HealthCheck { interval: Duration::from_secs(1000), ..check() });
    let status = plane.set("a", config).await.unwrap();
    let healths: Vec<_> = status.listeners[0].targets.iter().map(|target| target.health).collect();
    assert_eq!(healths, [Health::Unhealthy, Health::Unknown]);
}

#[tokio::test]
async fn a_balancer_that_is_gone_asks_nobody() {
    let (plane, node) = (plane(), Node::start(200).await);
    let config = checked(&[&node]);
    plane.set("a", config.clone()).await.unwrap();
    until(&plane, &[Health::Healthy]).await;
    plane.remove("a", Duration::ZERO).await;
    // Another one at another node asks many times meanwhile.
    let other = Node::start(200).await;
    plane.set("a", checked(&[&other])).await.unwrap();
    eventually("some rounds", || other.asked.load(Ordering::Relaxed) > 2).await;
    let asked = node.asked.load(Ordering::Relaxed);
    eventually("more rounds", || other.asked.load(Ordering::Relaxed) > 8).await;
    assert_eq!(node.asked.load(Ordering::Relaxed), asked);
}
