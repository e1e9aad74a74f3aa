//! Connections during changes, bind errors and removal of load balancers, with real sockets on loopback addresses.

use std::net::SocketAddr;
use std::time::Duration;

use crate::support::*;
use bowline_l4::Target;
use tokio::net::TcpListener;

const SHORT: Duration = Duration::from_millis(300);

#[tokio::test]
async fn an_established_connection_survives_all_changes() {
    let (plane, address, echo) = (plane(), fresh_address(), Echo::start().await);
    let other = Echo::start().await;
    let before = load_balancer(address, &[echo.address]);
    plane.set("a", before.clone()).await.unwrap();
    let mut client = Client::connect(address).await;
    type Change = fn(&mut bowline_l4::LoadBalancerConfig, SocketAddr);
    let changes: [(&str, Change); 10] = [
        ("the same again", |_, _| {}),
        ("another target", |config, other| config.listeners[0].targets.push(Target::new(other))),
        ("another order", |config, other| config.listeners[0].targets.insert(0, Target::new(other))),
        ("another weight", |config, _| config.listeners[0].targets[0].weight = 7),
        ("weight 0", |config, _| config.listeners[0].targets[0].weight = 0),
        ("draining", |config, _| config.listeners[0].targets[0].draining = true),
        ("another listener", |config, other| config.listeners.insert(0, listener(PORT + 1, &[other]))),
        ("another address", |config, _| config.addresses.insert(0, fresh_address())),
        ("no longer allowed", |config, _| config.allow = vec!["192.0.2.0/24".parse().unwrap()]),
        ("other settings", |config, _| {
            config.listeners[0].algorithm = bowline_l4::Algorithm::LeastConnections;
            config.listeners[0].affinity = Some(TIMEOUT);
            config.listeners[0].idle_timeout = Duration::from_secs(1000);
        }),
    ];
    for (what, change) in changes {
        let mut config = before.clone();
        config.drain = Duration::ZERO;
        change(&mut config, other.address);
        let status = plane.set("a", config).await.unwrap();
        assert!(status.listeners.iter().all(|listener| listener.error.is_none()), "{what}: {status:?}");
        client.echo(what).await.unwrap_or_else(|error| panic!("{what}: {error}"));
    }
    plane.set("a", before).await.unwrap();
    assert_eq!((targets(&plane)[0].open, targets(&plane)[0].total), (1, 1));
}

#[tokio::test]
async fn new_connections_use_the_latest_configuration() {
    let (plane, address) = (plane(), fresh_address());
    let (old, new) = (Echo::start().await, Echo::start().await);
    plane.set("a", load_balancer(address, &[old.address])).await.unwrap();
    assert_eq!(Client::connect(address).await.target, old.address);
    let mut draining = load_balancer(address, &[old.address, new.address]);
    draining.listeners[0].targets[0].draining = true;
    plane.set("a", draining).await.unwrap();
    for _ in 0..3 {
        assert_eq!(Client::connect(address).await.target, new.address);
    }
    let mut weightless = load_balancer(address, &[old.address, new.address]);
    weightless.listeners[0].targets[1].weight = 0;
    plane.set("a", weightless).await.unwrap();
    for _ in 0..3 {
        assert_eq!(Client::connect(address).await.target, old.address);
    }
    plane.set("a", load_balancer(address, &[new.address])).await.unwrap();
    assert_eq!(Client::connect(address).await.target, new.address);
}

#[tokio::test]
async fn the_allow_list_can_change_while_listening() {
    let (plane, address, echo) = (plane(), fresh_address(), Echo::start().await);
    let open = load_balancer(address, &[echo.address]);
    let mut closed = open.clone();
    closed.allow = vec!["192.0.2.0/24".parse().unwrap()];
    plane.set("a", closed.clone()).await.unwrap();
    assert!(reset(SocketAddr::new(address, PORT)).await);
    plane.set("a", open).await.unwrap();
    Client::connect(address).await;
    closed.allow.push("127.0.0.0/8".parse().unwrap());
    plane.set("a", closed).await.unwrap();
    Client::connect(address).await;
}

#[tokio::test]
async fn an_added_address_is_bound_and_a_removed_one_is_closed() {
    let (plane, first, second, echo) = (plane(), fresh_address(), fresh_address(), Echo::start().await);
    let mut config = load_balancer(first, &[echo.address]);
    plane.set("a", config.clone()).await.unwrap();
    assert!(refused(second).await);
    config.addresses.push(second);
    let status = plane.set("a", config.clone()).await.unwrap();
    assert_eq!(status.listeners.iter().map(|listener| listener.address).collect::<Vec<_>>(), [first, second]);
    Client::connect(second).await;
    config.addresses.remove(0);
    plane.set("a", config).await.unwrap();
    assert!(refused(first).await);
    Client::connect(second).await;
}

#[tokio::test]
async fn connections_of_a_removed_target_drain() {
    let (plane, address, echo) = (plane(), fresh_address(), Echo::start().await);
    plane.set("a", load_balancer(address, &[echo.address])).await.unwrap();
    let mut client = Client::connect(address).await;
    let mut without = load_balancer(address, &[]);
    plane.set("a", without.clone()).await.unwrap();
    client.echo("still here").await.unwrap();
    assert!(reset(SocketAddr::new(address, PORT)).await);
    // The target is added and removed again, this time with a short drain timeout.
    plane.set("a", load_balancer(address, &[echo.address])).await.unwrap();
    assert_eq!(targets(&plane)[0].open, 1);
    without.drain = SHORT;
    plane.set("a", without).await.unwrap();
    client.expect_reset().await;
    eventually("closed", || counters(&plane).open == 0).await;
    assert_eq!(counters(&plane).idled, 0);
}

#[tokio::test]
async fn without_a_drain_timeout_connections_of_a_removed_target_are_closed() {
    let (plane, address, echo) = (plane(), fresh_address(), Echo::start().await);
    let kept = Echo::start().await;
    plane.set("a", load_balancer(address, &[echo.address])).await.unwrap();
    let client = Client::connect(address).await;
    let mut without = load_balancer(address, &[kept.address]);
    without.drain = Duration::ZERO;
    plane.set("a", without).await.unwrap();
    client.expect_reset().await;
}

#[tokio::test]
async fn a_removed_listener_refuses_connections_and_its_existing_ones_drain() {
    let (plane, address, echo) = (plane(), fresh_address(), Echo::start().await);
    let mut config = load_balancer(address, &[echo.address]);
    config.listeners.push(listener(PORT + 1, &[echo.address]));
    config.listeners.push(listener(PORT + 2, &[echo.address]));
    plane.set("a", config.clone()).await.unwrap();
    let mut slow = Client::connect(address).await;
    let quick = Client::try_connect(SocketAddr::new(address, PORT + 1)).await.unwrap();
    let mut kept = Client::try_connect(SocketAddr::new(address, PORT + 2)).await.unwrap();
    config.listeners.remove(0);
    plane.set("a", config.clone()).await.unwrap();
    assert!(refused(address).await);
    config.listeners.remove(0);
    config.drain = SHORT;
    plane.set("a", config).await.unwrap();
    quick.expect_reset().await;
    slow.echo("still here").await.unwrap();
    kept.echo("still here").await.unwrap();
}

#[tokio::test]
async fn a_listener_can_be_added_again_while_its_old_connections_drain() {
    let (plane, address, echo) = (plane(), fresh_address(), Echo::start().await);
    plane.set("a", load_balancer(address, &[echo.address])).await.unwrap();
    let mut old = Client::connect(address).await;
    plane.remove("a", TIMEOUT).await;
    let status = plane.set("a", load_balancer(address, &[echo.address])).await.unwrap();
    assert_eq!(status.listeners[0].error, None);
    Client::connect(address).await.echo("new").await.unwrap();
    old.echo("old").await.unwrap();
}

#[tokio::test]
async fn connections_of_a_removed_load_balancer_drain() {
    let (plane, address, echo) = (plane(), fresh_address(), Echo::start().await);
    plane.set("a", load_balancer(address, &[echo.address])).await.unwrap();
    let mut client = Client::connect(address).await;
    plane.remove("a", TIMEOUT * 10).await;
    assert!(refused(address).await);
    assert_eq!((plane.status("a"), plane.names()), (None, vec![]));
    client.echo("still here").await.unwrap();
    // Removing it again does not affect draining connections.
    plane.remove("a", Duration::ZERO).await;
    client.echo("still here").await.unwrap();
}

#[tokio::test]
async fn connections_of_a_removed_load_balancer_are_closed_when_the_drain_timeout_expires() {
    let (plane, address, echo) = (plane(), fresh_address(), Echo::start().await);
    plane.set("a", load_balancer(address, &[echo.address])).await.unwrap();
    let client = Client::connect(address).await;
    plane.remove("a", SHORT).await;
    client.expect_reset().await;
}

#[tokio::test]
async fn load_balancers_are_identified_by_name() {
    let (plane, echo) = (plane(), Echo::start().await);
    let (first, second) = (fresh_address(), fresh_address());
    plane.set("b", load_balancer(second, &[echo.address])).await.unwrap();
    plane.set("a", load_balancer(first, &[echo.address])).await.unwrap();
    assert_eq!(plane.names(), ["a", "b"]);
    plane.remove("b", Duration::ZERO).await;
    assert_eq!(plane.names(), ["a"]);
    Client::connect(first).await;
    assert!(refused(second).await);
}

#[tokio::test]
async fn an_invalid_configuration_changes_nothing() {
    let (plane, address, echo) = (plane(), fresh_address(), Echo::start().await);
    plane.set("a", load_balancer(address, &[echo.address])).await.unwrap();
    let mut wrong = load_balancer(address, &[]);
    wrong.listeners[0].port = 0;
    let error = plane.set("a", wrong).await.unwrap_err();
    assert_eq!(error.field, "listeners[0].port");
    assert_eq!(Client::connect(address).await.target, echo.address);
}

#[tokio::test]
async fn an_address_in_use_is_reported_and_retried_while_the_rest_works() {
    let (plane, echo) = (plane(), Echo::start().await);
    let (taken, free) = (fresh_address(), fresh_address());
    let other = TcpListener::bind((taken, PORT)).await.unwrap();
    let mut config = load_balancer(taken, &[echo.address]);
    config.addresses.push(free);
    let status = plane.set("a", config.clone()).await.unwrap();
    let error = status.listeners[0].error.clone().unwrap();
    assert!(error.contains("address in use"), "{error}");
    assert_eq!(status.listeners[1].error, None);
    let mut client = Client::connect(free).await;
    drop(other);
    let status = plane.set("a", config).await.unwrap();
    assert!(status.listeners.iter().all(|listener| listener.error.is_none()), "{status:?}");
    Client::connect(taken).await;
    client.echo("undisturbed").await.unwrap();
}

#[tokio::test]
async fn a_conflict_of_two_load_balancers_names_the_other_one() {
    let (plane, address, echo) = (plane(), fresh_address(), Echo::start().await);
    plane.set("first", load_balancer(address, &[echo.address])).await.unwrap();
    let status = plane.set("second", load_balancer(address, &[echo.address])).await.unwrap();
    let error = status.listeners[0].error.clone().unwrap();
    assert!(error.contains("\"first\""), "{error}");
    plane.remove("first", Duration::ZERO).await;
    let status = plane.set("second", load_balancer(address, &[echo.address])).await.unwrap();
    assert_eq!(status.listeners[0].error, None);
}

#[tokio::test]
async fn shutdown_waits_until_connections_end() {
    let (plane, address, echo) = (plane(), fresh_address(), Echo::start().await);
    plane.set("a", load_balancer(address, &[echo.address])).await.unwrap();
    let mut client = Client::connect(address).await;
    let ending = tokio::spawn({
        let plane = plane.clone();
        async move { plane.shutdown(TIMEOUT * 10).await }
    });
    eventually("removed", || plane.names().is_empty()).await;
    client.echo("still here").await.unwrap();
    assert!(!ending.is_finished());
    drop(client);
    within_timeout("shutdown", ending).await.unwrap();
    assert!(refused(address).await);
}

#[tokio::test]
async fn shutdown_closes_connections_after_its_timeout() {
    let (plane, address, echo) = (plane(), fresh_address(), Echo::start().await);
    plane.set("a", load_balancer(address, &[echo.address])).await.unwrap();
    let client = Client::connect(address).await;
    let mut drained = load_balancer(fresh_address(), &[echo.address]);
    plane.set("b", drained.clone()).await.unwrap();
    let leaving = Client::connect(drained.addresses[0]).await;
    drained.addresses = vec![fresh_address()];
    plane.set("b", drained).await.unwrap();
    within_timeout("shutdown", plane.shutdown(SHORT)).await;
    client.expect_reset().await;
    leaving.expect_reset().await;
}

#[tokio::test]
async fn everything_is_closed_when_the_last_clone_is_dropped() {
    for threads in [0, 2] {
        let plane = bowline_l4::DataPlane::new(bowline_l4::Limits { threads, ..bowline_l4::Limits::default() });
        let (address, echo) = (fresh_address(), Echo::start().await);
        plane.set("a", load_balancer(address, &[echo.address])).await.unwrap();
        let clone = plane.clone();
        drop(plane);
        let client = Client::connect(address).await;
        drop(clone);
        client.expect_reset().await;
        let closing = async {
            while !refused(address).await {
                tokio::task::yield_now().await;
            }
        };
        within_timeout("refusal", closing).await;
    }
}
