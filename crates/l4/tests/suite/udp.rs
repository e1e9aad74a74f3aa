//! UDP through a data plane: real sockets on loopback addresses. What a flow does by itself is tested beside its code.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::support::*;
use bowline_l4::{BalancerConfig, DataPlane, Limits, ListenerConfig, Target, Transport};
use tokio::net::UdpSocket;

fn datagrams(address: IpAddr, targets: &[SocketAddr]) -> BalancerConfig {
    let mut config = balancer(address, targets);
    config.listeners[0].transport = Transport::Udp;
    config.drain = Duration::ZERO;
    config
}

#[tokio::test]
async fn datagrams_find_a_target_on_any_thread() {
    for threads in [0, 2] {
        let plane = DataPlane::new(Limits { threads, ..Limits::default() });
        let (address, echo) = (fresh_address(), UdpEcho::start().await);
        plane.set("a", datagrams(address, &[echo.address])).await.unwrap();
        let client = UdpClient::connect(address).await;
        for _ in 0..10 {
            assert_eq!(client.ask("hello").await, echo.address);
        }
        assert_eq!((counters(&plane).accepted, counters(&plane).open), (1, 1));
        plane.remove("a", Duration::ZERO).await;
    }
}

#[tokio::test]
async fn one_port_takes_both_transports_with_targets_of_their_own() {
    let (plane, address) = (plane(), fresh_address());
    let (stream, datagram) = (Echo::start().await, UdpEcho::start().await);
    let mut config = balancer(address, &[stream.address]);
    config.listeners.push(ListenerConfig::new(Transport::Udp, PORT, vec![Target::new(datagram.address)]));
    plane.set("a", config).await.unwrap();
    assert_eq!(Client::connect(address).await.target, stream.address);
    assert_eq!(UdpClient::connect(address).await.ask("hello").await, datagram.address);
}

#[tokio::test]
async fn a_flow_stays_with_a_target_that_stays() {
    let (plane, address) = (plane(), fresh_address());
    let (kept, gone, new) = (UdpEcho::start().await, UdpEcho::start().await, UdpEcho::start().await);
    plane.set("a", datagrams(address, &[kept.address, gone.address])).await.unwrap();
    let clients = [UdpClient::connect(address).await, UdpClient::connect(address).await];
    assert_eq!(clients[0].ask("one").await, kept.address);
    assert_eq!(clients[1].ask("two").await, gone.address);
    plane.set("a", datagrams(address, &[new.address, kept.address])).await.unwrap();
    eventually("ended", || counters(&plane).open == 1).await;
    assert_eq!(clients[0].ask("three").await, kept.address);
    assert_ne!(clients[1].ask("four").await, gone.address);
    assert_eq!(counters(&plane).accepted, 3);
}

#[tokio::test]
async fn a_flow_of_a_removed_target_may_go_on_for_the_drain_time() {
    let (plane, address) = (plane(), fresh_address());
    let (old, new) = (UdpEcho::start().await, UdpEcho::start().await);
    plane.set("a", datagrams(address, &[old.address])).await.unwrap();
    let client = UdpClient::connect(address).await;
    assert_eq!(client.ask("one").await, old.address);
    let mut config = datagrams(address, &[new.address]);
    config.drain = PATIENCE * 10;
    plane.set("a", config).await.unwrap();
    assert_eq!(client.ask("two").await, old.address);
    assert_eq!(UdpClient::connect(address).await.ask("three").await, new.address);
}

#[tokio::test]
async fn a_listener_can_go_and_come_back_at_once() {
    let (plane, address, echo) = (plane(), fresh_address(), UdpEcho::start().await);
    let client = UdpClient::connect(address).await;
    for _ in 0..20 {
        let status = plane.set("a", datagrams(address, &[echo.address])).await.unwrap();
        assert_eq!(status.listeners[0].error, None);
        assert_eq!(client.ask("hello").await, echo.address);
        plane.remove("a", PATIENCE).await;
        UdpSocket::bind((address, PORT)).await.expect("nothing listens any more");
    }
}

#[tokio::test]
async fn a_client_that_is_not_allowed_is_not_heard_until_it_is() {
    let (plane, address, echo) = (plane(), fresh_address(), UdpEcho::start().await);
    let mut config = datagrams(address, &[echo.address]);
    config.allow = vec!["192.0.2.0/24".parse().unwrap()];
    plane.set("a", config.clone()).await.unwrap();
    let client = UdpClient::connect(address).await;
    client.send("anybody?").await;
    eventually("denied", || counters(&plane).denied == 1).await;
    config.allow.push("127.0.0.0/8".parse().unwrap());
    plane.set("a", config).await.unwrap();
    assert_eq!(client.ask("hello").await, echo.address, "and what was sent before was not kept");
}

#[tokio::test]
async fn the_limit_of_flows_holds() {
    let plane = DataPlane::new(Limits { flows: 3, ..Limits::default() });
    let (address, echo) = (fresh_address(), UdpEcho::start().await);
    plane.set("a", datagrams(address, &[echo.address])).await.unwrap();
    for _ in 0..10 {
        UdpClient::connect(address).await.ask("hello").await;
        assert!(counters(&plane).open <= 3);
    }
    assert_eq!((counters(&plane).accepted, counters(&plane).open), (10, 3));
    assert_eq!(targets(&plane)[0].open, 3);
}
