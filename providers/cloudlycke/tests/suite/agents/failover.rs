//! A provider follows the active agent of a group.

use std::time::{Duration, Instant};

use bowline_conformance::Bench as _;
use bowline_core::{Address, AddressType, ClusterName, RouteSpec};

use super::bench::AgentBench;

fn route(number: u8) -> RouteSpec {
    RouteSpec {
        name_hint: String::new(),
        node: format!("node-{number}").into(),
        provider_id: None,
        node_addresses: vec![Address::new(AddressType::InternalIP, format!("10.0.0.{number}"))],
        destination: format!("10.244.{number}.0/24").parse().unwrap(),
        cluster_uid: None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_after_the_end_of_the_active_agent_succeeds_at_the_next_one() {
    let mut bench = AgentBench::new(2).await;
    let (provider, cluster) = (bench.provider(), ClusterName::from("c"));
    let routes = provider.routes().unwrap();
    routes.create(&cluster, &[route(1)]).await.remove(0).unwrap();
    let active = bench.end_active_agent().await;
    let begun = Instant::now();
    while let Err(error) = routes.create(&cluster, &[route(2)]).await.remove(0) {
        assert!(begun.elapsed() < Duration::from_secs(60), "{error}");
        assert!(error.kind().is_transient(), "{error}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let listed = routes.list(&cluster).await.unwrap();
    assert_eq!(listed.len(), 2, "the standby has the route of the agent {active}: {listed:?}");
    let results = provider.diagnose().await;
    let agents: Vec<_> = results.iter().filter(|result| result.subject.starts_with("agent ")).collect();
    assert_eq!(agents.iter().filter(|result| result.outcome.is_ok()).count(), 1, "{results:?}");
    let active = results.iter().find(|result| result.subject == "active agent").unwrap();
    assert!(active.outcome.is_ok(), "{results:?}");
}
