//! The conformance suite on a simulated account: in process, and over HTTP.

mod cloud;
mod load_balancers;
mod routes;

use bowline_conformance::{Bench, Report, run};

use cloud::SimulatedBench;

fn check(report: &Report) {
    println!("{report}\n");
    assert_eq!(report.violations(), [], "{report}");
}

#[tokio::test(start_paused = true)]
async fn the_provider_conforms_in_process() {
    check(&run(|| async { Box::new(SimulatedBench::in_process().await) as Box<dyn Bench> }).await);
}

#[tokio::test]
async fn the_provider_conforms_over_http() {
    check(&run(|| async { Box::new(SimulatedBench::over_http().await) as Box<dyn Bench> }).await);
}
