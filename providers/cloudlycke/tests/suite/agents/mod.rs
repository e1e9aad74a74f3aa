//! Load balancers and routes by real agents, over TLS: the conformance suite with one agent and with a group of two, and a failover.

mod bench;
mod failover;
mod group;
mod proxy;

use bowline_conformance::run;

use bench::AgentBench;

#[tokio::test(flavor = "multi_thread")]
async fn load_balancers_and_routes_of_an_agent_conform() {
    let report = run(|| AgentBench::boxed(1)).await;
    assert_eq!(report.violations(), [], "{report}");
    println!("{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn load_balancers_and_routes_of_a_group_conform() {
    let report = run(|| AgentBench::boxed(2)).await;
    assert_eq!(report.violations(), [], "{report}");
    println!("{report}");
}
