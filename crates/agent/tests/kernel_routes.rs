//! Kernel routes of the host that the process runs on, in a network namespace of the test.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![cfg(target_os = "linux")]

use std::io::{self, Write as _};
use std::net::IpAddr;
use std::thread;

use bowline_agent::{DesiredRoutes, Hop, KernelRoutes, Routes};
use futures::TryStreamExt as _;
use nix::sched::{CloneFlags, unshare};
use rtnetlink::RouteMessageBuilder;
use rtnetlink::packet_route::route::{RouteMessage, RouteProtocol, RouteType};
use tokio::runtime::{Builder, Handle};

/// Protocol number of the routes.
const OURS: RouteProtocol = RouteProtocol::Other(0xb0);

/// Runs the test on a thread with an own network namespace, or reports that this requires root.
fn in_namespace(test: impl AsyncFnOnce() + Send + 'static) {
    let run = || {
        unshare(CloneFlags::CLONE_NEWNET)?;
        // One thread, because the namespace belongs to the thread.
        Builder::new_current_thread().enable_all().build().unwrap().block_on(test());
        Ok::<_, nix::Error>(())
    };
    if let Err(error) = thread::spawn(run).join().unwrap() {
        // Bypasses the capture of the test runner, in the format that the CI gate counts.
        let line = format!("\nSKIPPED: a network namespace requires root ({error})\n1 skipped\n");
        io::stderr().write_all(line.as_bytes()).unwrap();
    }
}

async fn routes() -> Vec<RouteMessage> {
    let (connection, kernel, _) = rtnetlink::new_connection().unwrap();
    tokio::spawn(connection);
    kernel.route().get(RouteMessageBuilder::<std::net::Ipv4Addr>::new().build()).execute().try_collect().await.unwrap()
}

async fn destinations(protocol: RouteProtocol) -> Vec<u8> {
    let all = routes().await.into_iter().filter(|route| route.header.protocol == protocol);
    all.filter(|route| route.header.kind == RouteType::BlackHole)
        .map(|route| route.header.destination_prefix_length)
        .collect()
}

fn blackholes(destinations: &[&str]) -> DesiredRoutes {
    let routes = destinations.iter().map(|destination| (destination.parse().unwrap(), Hop::Blackhole));
    DesiredRoutes::of_host(routes.collect())
}

#[test]
fn routes_of_the_own_namespace_are_synced_and_those_of_other_programs_kept() {
    in_namespace(async || {
        let (connection, kernel, _) = rtnetlink::new_connection().unwrap();
        tokio::spawn(connection);
        let foreign = RouteMessageBuilder::<std::net::Ipv4Addr>::new()
            .destination_prefix([10, 9, 0, 0].into(), 16)
            .kind(RouteType::BlackHole)
            .build();
        kernel.route().add(foreign).execute().await.unwrap();
        let routes = KernelRoutes::of_host(Handle::current()).unwrap();
        assert!(routes.sync(|| blackholes(&["10.0.0.0/24", "10.0.4.0/22"])).await, "{:?}", routes.problems());
        assert_eq!(destinations(OURS).await, [24, 22]);
        // Another process with the same routes takes them over.
        let routes = KernelRoutes::of_host(Handle::current()).unwrap();
        assert!(routes.sync(|| blackholes(&["10.0.4.0/22", "10.1.0.0/20"])).await, "{:?}", routes.problems());
        assert_eq!(destinations(OURS).await, [22, 20]);
        assert!(routes.sync(|| blackholes(&[])).await);
        assert_eq!((destinations(OURS).await, destinations(RouteProtocol::Static).await), (vec![], vec![16]));
    });
}

#[test]
fn an_unreachable_next_hop_is_a_problem_of_this_host() {
    in_namespace(async || {
        let routes = KernelRoutes::of_host(Handle::current()).unwrap();
        let via = Hop::Via(IpAddr::from([192, 0, 2, 1]));
        let desired = || DesiredRoutes::of_host(Routes::from([("10.0.0.0/24".parse().unwrap(), via)]));
        assert!(!routes.sync(desired).await);
        let problems: Vec<_> = routes.problems().iter().map(ToString::to_string).collect();
        assert!(
            problems[0].starts_with("route to 10.0.0.0/24: 192.0.2.1 is on no network of this host; "),
            "{problems:?}"
        );
        assert!(routes.sync(|| blackholes(&["10.0.0.0/24"])).await && routes.problems().is_empty());
    });
}
