//! What happens to connections when balancers change, fail to listen, and go: real sockets on loopback addresses.

use std::net::SocketAddr;
use std::time::Duration;

use crate::support::*;
use bowline_l4::Target;
use tokio::net::TcpListener;

const SHORT: Duration = Duration::from_millis(300);

#[tokio::test]
async fn nothing_that_is_set_disturbs_an_established_connection() {
    let (plane, address, echo) = (plane(), fresh_address(), Echo::start().await);
    let other = Echo::start().await;
    let before = balancer(address, &[echo.address]);
    plane.set("a", before.clone()).await.unwrap();
    let mut client = Client::connect(address).await;
    type Change = fn(&mut bowline_l4::BalancerConfig, SocketAddr);
    let changes: [(&str, Change); 10] = [
        ("the same again", |_, _| {}),
        ("a target more", |config, other| config.listeners[0].targets.push(Target::new(other))),
        ("another order", |config, other| config.listeners[0].targets.insert(0, Target::new(other))),
        ("another weight", |config, _| config.listeners[0].targets[0].weight = 7),
        ("no weight", |config, _| config.listeners[0].targets[0].weight = 0),
        ("draining", |config, _| config.listeners[0].targets[0].draining = true),
        ("a listener more", |config, other| config.listeners.insert(0, listener(PORT + 1, &[other]))),
        ("an address more", |config, _| config.addresses.insert(0, fresh_address())),
        ("not allowed any more", |config, _| config.allow = vec!["192.0.2.0/24".parse().unwrap()]),
        ("other ways", |config, _| {
            config.listeners[0].algorithm = bowline_l4::Algorithm::LeastConnections;
            config.listeners[0].affinity = Some(PATIENCE);
            config.listeners[0].idle_timeout = Duration::from_secs(1000);
        }),
    ];
    for (what, change) in changes {
        let mut config = before.clone();
        config.drain = Duration::ZERO;
        change(&mut config, other.address);
        let status = plane.set("a", config).await.unwrap();
        assert!(status.listeners.iter().all(|listener| listener.error.is_none()), "{what}: {status:?}");
        client.talk(what).await.unwrap_or_else(|error| panic!("{what}: {error}"));
    }
    plane.set("a", before).await.unwrap();
    assert_eq!((targets(&plane)[0].open, targets(&plane)[0].total), (1, 1));
}

#[tokio::test]
async fn new_connections_follow_what_was_set_last() {
    let (plane, address) = (plane(), fresh_address());
    let (old, new) = (Echo::start().await, Echo::start().await);
    plane.set("a", balancer(address, &[old.address])).await.unwrap();
    assert_eq!(Client::connect(address).await.target, old.address);
    let mut draining = balancer(address, &[old.address, new.address]);
    draining.listeners[0].targets[0].draining = true;
    plane.set("a", draining).await.unwrap();
    for _ in 0..3 {
        assert_eq!(Client::connect(address).await.target, new.address);
    }
    let mut weightless = balancer(address, &[old.address, new.address]);
    weightless.listeners[0].targets[1].weight = 0;
    plane.set("a", weightless).await.unwrap();
    for _ in 0..3 {
        assert_eq!(Client::connect(address).await.target, old.address);
    }
    plane.set("a", balancer(address, &[new.address])).await.unwrap();
    assert_eq!(Client::connect(address).await.target, new.address);
}

#[tokio::test]
async fn the_allow_list_can_be_changed_while_it_listens() {
    let (plane, address, echo) = (plane(), fresh_address(), Echo::start().await);
    let open = balancer(address, &[echo.address]);
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
async fn an_address_that_is_added_is_listened_on_and_one_that_is_removed_is_not() {
    let (plane, first, second, echo) = (plane(), fresh_address(), fresh_address(), Echo::start().await);
    let mut config = balancer(first, &[echo.address]);
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
async fn connections_of_a_removed_target_go_on_for_the_drain_time() {
    let (plane, address, echo) = (plane(), fresh_address(), Echo::start().await);
    plane.set("a", balancer(address, &[echo.address])).await.unwrap();
    let mut client = Client::connect(address).await;
    let mut without = balancer(address, &[]);
    plane.set("a", without.clone()).await.unwrap();
    client.talk("still here").await.unwrap();
    assert!(reset(SocketAddr::new(address, PORT)).await);
    // It is named again and leaves again, with little time this time.
    plane.set("a", balancer(address, &[echo.address])).await.unwrap();
    assert_eq!(targets(&plane)[0].open, 1);
    without.drain = SHORT;
    plane.set("a", without).await.unwrap();
    client.cut().await;
    eventually("closed", || counters(&plane).open == 0).await;
    assert_eq!(counters(&plane).idled, 0);
}

#[tokio::test]
async fn without_a_drain_time_connections_of_a_removed_target_are_closed() {
    let (plane, address, echo) = (plane(), fresh_address(), Echo::start().await);
    let kept = Echo::start().await;
    plane.set("a", balancer(address, &[echo.address])).await.unwrap();
    let client = Client::connect(address).await;
    let mut without = balancer(address, &[kept.address]);
    without.drain = Duration::ZERO;
    plane.set("a", without).await.unwrap();
    client.cut().await;
}

#[tokio::test]
async fn a_removed_listener_lets_nobody_in_and_its_connections_drain() {
    let (plane, address, echo) = (plane(), fresh_address(), Echo::start().await);
    let mut config = balancer(address, &[echo.address]);
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
    quick.cut().await;
    slow.talk("still here").await.unwrap();
    kept.talk("not concerned").await.unwrap();
}

#[tokio::test]
async fn a_listener_that_comes_back_can_listen_at_once_while_old_connections_drain() {
    let (plane, address, echo) = (plane(), fresh_address(), Echo::start().await);
    plane.set("a", balancer(address, &[echo.address])).await.unwrap();
    let mut old = Client::connect(address).await;
    plane.remove("a", PATIENCE).await;
    let status = plane.set("a", balancer(address, &[echo.address])).await.unwrap();
    assert_eq!(status.listeners[0].error, None);
    Client::connect(address).await.talk("new").await.unwrap();
    old.talk("old").await.unwrap();
}

#[tokio::test]
async fn connections_of_a_removed_balancer_drain() {
    let (plane, address, echo) = (plane(), fresh_address(), Echo::start().await);
    plane.set("a", balancer(address, &[echo.address])).await.unwrap();
    let mut client = Client::connect(address).await;
    plane.remove("a", PATIENCE * 10).await;
    assert!(refused(address).await);
    assert_eq!((plane.status("a"), plane.names()), (None, vec![]));
    client.talk("still here").await.unwrap();
    // One that is not there is removed already, and what drains is not concerned.
    plane.remove("a", Duration::ZERO).await;
    client.talk("still here").await.unwrap();
}

#[tokio::test]
async fn connections_of_a_removed_balancer_are_closed_when_its_drain_time_is_up() {
    let (plane, address, echo) = (plane(), fresh_address(), Echo::start().await);
    plane.set("a", balancer(address, &[echo.address])).await.unwrap();
    let client = Client::connect(address).await;
    plane.remove("a", SHORT).await;
    client.cut().await;
}

#[tokio::test]
async fn balancers_are_known_by_name() {
    let (plane, echo) = (plane(), Echo::start().await);
    let (first, second) = (fresh_address(), fresh_address());
    plane.set("b", balancer(second, &[echo.address])).await.unwrap();
    plane.set("a", balancer(first, &[echo.address])).await.unwrap();
    assert_eq!(plane.names(), ["a", "b"]);
    plane.remove("b", Duration::ZERO).await;
    assert_eq!(plane.names(), ["a"]);
    Client::connect(first).await;
    assert!(refused(second).await);
}

#[tokio::test]
async fn a_configuration_that_is_refused_changes_nothing() {
    let (plane, address, echo) = (plane(), fresh_address(), Echo::start().await);
    plane.set("a", balancer(address, &[echo.address])).await.unwrap();
    let mut wrong = balancer(address, &[]);
    wrong.listeners[0].port = 0;
    let error = plane.set("a", wrong).await.unwrap_err();
    assert_eq!(error.place, "listeners[0].port");
    assert_eq!(Client::connect(address).await.target, echo.address);
}

#[tokio::test]
async fn an_address_in_use_is_told_and_tried_again_while_the_rest_works() {
    let (plane, echo) = (plane(), Echo::start().await);
    let (taken, free) = (fresh_address(), fresh_address());
    let squatter = TcpListener::bind((taken, PORT)).await.unwrap();
    let mut config = balancer(taken, &[echo.address]);
    config.addresses.push(free);
    let status = plane.set("a", config.clone()).await.unwrap();
    let error = status.listeners[0].error.clone().unwrap();
    assert!(error.contains("address in use"), "{error}");
    assert_eq!(status.listeners[1].error, None);
    let mut client = Client::connect(free).await;
    drop(squatter);
    let status = plane.set("a", config).await.unwrap();
    assert!(status.listeners.iter().all(|listener| listener.error.is_none()), "{status:?}");
    Client::connect(taken).await;
    client.talk("undisturbed").await.unwrap();
}

#[tokio::test]
async fn two_balancers_at_one_spot_are_told_of_each_other() {
    let (plane, address, echo) = (plane(), fresh_address(), Echo::start().await);
    plane.set("first", balancer(address, &[echo.address])).await.unwrap();
    let status = plane.set("second", balancer(address, &[echo.address])).await.unwrap();
    let error = status.listeners[0].error.clone().unwrap();
    assert!(error.contains("\"first\""), "{error}");
    plane.remove("first", Duration::ZERO).await;
    let status = plane.set("second", balancer(address, &[echo.address])).await.unwrap();
    assert_eq!(status.listeners[0].error, None);
}

#[tokio::test]
async fn shutdown_waits_for_connections_that_end() {
    let (plane, address, echo) = (plane(), fresh_address(), Echo::start().await);
    plane.set("a", balancer(address, &[echo.address])).await.unwrap();
    let mut client = Client::connect(address).await;
    let ending = tokio::spawn({
        let plane = plane.clone();
        async move { plane.shutdown(PATIENCE * 10).await }
    });
    eventually("forgotten", || plane.names().is_empty()).await;
    client.talk("still here").await.unwrap();
    assert!(!ending.is_finished());
    drop(client);
    soon("shutdown", ending).await.unwrap();
    assert!(refused(address).await);
}

#[tokio::test]
async fn shutdown_closes_connections_that_do_not_end() {
    let (plane, address, echo) = (plane(), fresh_address(), Echo::start().await);
    plane.set("a", balancer(address, &[echo.address])).await.unwrap();
    let client = Client::connect(address).await;
    let mut drained = balancer(fresh_address(), &[echo.address]);
    plane.set("b", drained.clone()).await.unwrap();
    let leaving = Client::connect(drained.addresses[0]).await;
    drained.addresses = vec![fresh_address()];
    plane.set("b", drained).await.unwrap();
    soon("shutdown", plane.shutdown(SHORT)).await;
    client.cut().await;
    leaving.cut().await;
}

#[tokio::test]
async fn everything_is_closed_when_the_last_clone_is_dropped() {
    for threads in [0, 2] {
        let plane = bowline_l4::DataPlane::new(bowline_l4::Limits { threads, ..bowline_l4::Limits::default() });
        let (address, echo) = (fresh_address(), Echo::start().await);
        plane.set("a", balancer(address, &[echo.address])).await.unwrap();
        let clone = plane.clone();
        drop(plane);
        let client = Client::connect(address).await;
        drop(clone);
        client.cut().await;
        let closing = async {
            while !refused(address).await {
                tokio::task::yield_now().await;
            }
        };
        soon("refusal", closing).await;
    }
}
