//! UDP through a data plane, with real sockets on loopback addresses. The unit tests of `udp` cover single flows.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::support::*;
use bowline_l4::{DataPlane, Limits, ListenerConfig, LoadBalancerConfig, Target, Transport};
use tokio::net::UdpSocket;

fn datagrams(address: IpAddr, targets: &[SocketAddr]) -> LoadBalancerConfig {
    let mut config = load_balancer(address, targets);
    config.listeners[0].transport = Transport::Udp;
    config.drain = Duration::ZERO;
    config
}

#[tokio::test]
async fn datagrams_are_forwarded_on_any_thread() {
    for threads in [0, 2] {
        let plane = DataPlane::new(Limits { threads, ..Limits::default() });
        let (address, echo) = (fresh_address(), UdpEcho::start().await);
        plane.set("a", datagrams(address, &[echo.address])).await.unwrap();
        let client = UdpClient::connect(address).await;
        for _ in 0..10 {
            assert_eq!(client.echo("hello").await, echo.address);
        }
        assert_eq!((counters(&plane).accepted, counters(&plane).open), (1, 1));
        plane.remove("a", Duration::ZERO).await;
    }
}

#[tokio::test]
async fn tcp_and_udp_listeners_can_share_a_port() {
    let (plane, address) = (plane(), fresh_address());
    let (stream, datagram) = (Echo::start().await, UdpEcho::start().await);
    let mut config = load_balancer(address, &[stream.address]);
    config.listeners.push(ListenerConfig::new(Transport::Udp, PORT, vec![Target::new(datagram.address)]));
    plane.set("a", config).await.unwrap();
    assert_eq!(Client::connect(address).await.target, stream.address);
    assert_eq!(UdpClient::connect(address).await.echo("hello").await, datagram.address);
}

#[tokio::test]
async fn a_flow_stays_with_an_unchanged_target() {
    let (plane, address) = (plane(), fresh_address());
    let (kept, gone, new) = (UdpEcho::start().await, UdpEcho::start().await, UdpEcho::start().await);
    plane.set("a", datagrams(address, &[kept.address, gone.address])).await.unwrap();
    let clients = [UdpClient::connect(address).await, UdpClient::connect(address).await];
    assert_eq!(clients[0].echo("one").await, kept.address);
    assert_eq!(clients[1].echo("two").await, gone.address);
    plane.set("a", datagrams(address, &[new.address, kept.address])).await.unwrap();
    eventually("ended", || counters(&plane).open == 1).await;
    assert_eq!(clients[0].echo("three").await, kept.address);
    assert_ne!(clients[1].echo("four").await, gone.address);
    assert_eq!(counters(&plane).accepted, 3);
}

#[tokio::test]
async fn a_flow_of_a_removed_target_drains() {
    let (plane, address) = (plane(), fresh_address());
    let (old, new) = (UdpEcho::start().await, UdpEcho::start().await);
    plane.set("a", datagrams(address, &[old.address])).await.unwrap();
    let client = UdpClient::connect(address).await;
    assert_eq!(client.echo("one").await, old.address);
    let mut config = datagrams(address, &[new.address]);
    config.drain = TIMEOUT * 10;
    plane.set("a", config).await.unwrap();
    assert_eq!(client.echo("two").await, old.address);
    assert_eq!(UdpClient::connect(address).await.echo("three").await, new.address);
}

#[tokio::test]
async fn a_listener_can_be_removed_and_added_again_at_once() {
    let (plane, address, echo) = (plane(), fresh_address(), UdpEcho::start().await);
    let client = UdpClient::connect(address).await;
    for _ in 0..20 {
        let status = plane.set("a", datagrams(address, &[echo.address])).await.unwrap();
        assert_eq!(status.listeners[0].error, None);
        assert_eq!(client.echo("hello").await, echo.address);
        plane.remove("a", TIMEOUT).await;
        UdpSocket::bind((address, PORT)).await.expect("the port is free");
    }
}

#[tokio::test]
async fn datagrams_of_a_denied_client_are_dropped() {
    let (plane, address, echo) = (plane(), fresh_address(), UdpEcho::start().await);
    let mut config = datagrams(address, &[echo.address]);
    config.allow = vec!["192.0.2.0/24".parse().unwrap()];
    plane.set("a", config.clone()).await.unwrap();
    let client = UdpClient::connect(address).await;
    client.send("dropped").await;
    eventually("denied", || counters(&plane).denied == 1).await;
    config.allow.push("127.0.0.0/8".parse().unwrap());
    plane.set("a", config).await.unwrap();
    assert_eq!(client.echo("hello").await, echo.address, "the first datagram was not queued");
}

#[tokio::test]
async fn the_flow_limit_is_enforced() {
    let plane = DataPlane::new(Limits { flows: 3, ..Limits::default() });
    let (address, echo) = (fresh_address(), UdpEcho::start().await);
    plane.set("a", datagrams(address, &[echo.address])).await.unwrap();
    for _ in 0..10 {
        UdpClient::connect(address).await.echo("hello").await;
        assert!(counters(&plane).open <= 3);
    }
    assert_eq!((counters(&plane).accepted, counters(&plane).open), (10, 3));
    assert_eq!(targets(&plane)[0].open, 3);
}
