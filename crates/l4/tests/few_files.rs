//! Behaviour at the open-files limit.
//!
//! These tests have their own test binary: they start a process, which between fork and exec holds every socket of its parent, so
//! that a listener which another test has just closed would still be bound.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "suite/support/mod.rs"]
mod support;

use std::future::Future;
use std::time::Duration;

use bowline_l4::Transport;
use support::*;

#[test]
fn accepting_waits_while_there_is_no_file_descriptor_left() {
    with_few_files("accepting_waits_while_there_is_no_file_descriptor_left", connections_with_few_files());
}

async fn connections_with_few_files() {
    let (plane, address, echo) = (plane(), fresh_address(), Echo::start().await);
    plane.set("a", load_balancer(address, &[echo.address])).await.unwrap();
    let mut held = Vec::new();
    while let Ok(file) = std::fs::File::open("/dev/null") {
        held.push(file);
    }
    held.pop();
    let client = tokio::spawn(Client::connect(address));
    // Time in which it would be accepted if a descriptor were free.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(counters(&plane).accepted, 0);
    held.truncate(held.len() - 1);
    // One descriptor for the client's connection, none for the target's: connecting waits as well, and is no failure of the target.
    eventually("accepted", || counters(&plane).accepted == 1).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(counters(&plane).failed, 0);
    drop(held);
    client.await.unwrap().echo("at last").await.unwrap();
}

#[test]
fn the_longest_idle_flow_is_evicted_when_there_is_no_file_descriptor_left() {
    with_few_files(
        "the_longest_idle_flow_is_evicted_when_there_is_no_file_descriptor_left",
        datagrams_with_few_files(),
    );
}

async fn datagrams_with_few_files() {
    let (plane, address, echo) = (plane(), fresh_address(), UdpEcho::start().await);
    let mut config = load_balancer(address, &[echo.address]);
    config.listeners[0].transport = Transport::Udp;
    plane.set("a", config).await.unwrap();
    let clients = [UdpClient::connect(address).await, UdpClient::connect(address).await];
    clients[0].echo("first").await;
    let mut held = Vec::new();
    while let Ok(file) = std::fs::File::open("/dev/null") {
        held.push(file);
    }
    clients[1].send("no descriptor for this one").await;
    eventually("evicted", || counters(&plane).failed == 1 && counters(&plane).open == 0).await;
    assert_eq!(clients[1].echo("second").await, echo.address);
    assert_eq!((counters(&plane).accepted, counters(&plane).open), (2, 1));
}

#[test]
fn the_soft_limit_is_raised_to_the_hard_one() {
    with_limit("-Sn 200", "the_soft_limit_is_raised_to_the_hard_one", async {
        let before = open_files_limits();
        let _plane = plane();
        let [soft, hard] = open_files_limits();
        assert_eq!((before, soft), (["200".to_owned(), hard.clone()], hard));
    });
}

/// Returns the soft and the hard limit.
fn open_files_limits() -> [String; 2] {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
    let mut words = line.split_whitespace().map(str::to_owned);
    [words.next().unwrap(), words.next().unwrap()]
}

fn with_few_files(test: &str, body: impl Future<Output = ()>) {
    with_limit("-n 200", test, body);
}

/// Runs a test in a separate process with this open-files limit: this binary, started again for that test only.
fn with_limit(limit: &str, test: &str, body: impl Future<Output = ()>) {
    const FEW: &str = "BOWLINE_L4_TEST_WITH_FEW_FILES";
    if std::env::var_os(FEW).is_some() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        return runtime.block_on(body);
    }
    let script = format!("ulimit {limit}; exec \"$0\" --exact --nocapture {test}");
    let mut again = std::process::Command::new("sh");
    again.arg("-c").arg(script).arg(std::env::current_exe().unwrap()).env(FEW, "yes");
    let output = again.output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && stdout.contains("1 passed"),
        "{stdout}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
