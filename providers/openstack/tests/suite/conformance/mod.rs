//! The conformance suite on a simulated OpenStack: in process, and over HTTP.
mod balancers;
mod cloud;
mod routes;

use bowline_conformance::{Bench, Report, run};

use cloud::{Setting, SimulatedBench};

fn check(report: &Report) {
    println!("{report}\n");
    assert_eq!(report.violations(), [], "{report}");
}

#[tokio::test(start_paused = true)]
async fn the_provider_conforms_in_process() {
    check(&run(|| async { Box::new(SimulatedBench::in_process(Setting::Everything)) as Box<dyn Bench> }).await);
}

/// With one of the two kinds of load balancers: HTTP is the same for both.
#[tokio::test]
async fn the_provider_conforms_over_http() {
    check(&run(|| async { Box::new(SimulatedBench::over_http(Setting::InternalOnly).await) as Box<dyn Bench> }).await);
}

#[tokio::test(start_paused = true)]
async fn the_provider_conforms_without_load_balancers_and_routes() {
    check(&run(|| async { Box::new(SimulatedBench::in_process(Setting::MachinesOnly)) as Box<dyn Bench> }).await);
}

#[tokio::test(start_paused = true)]
async fn the_provider_conforms_with_routes_one_by_one_and_all_at_once() {
    for setting in [Setting::Routes, Setting::ClassicRoutes] {
        check(&run(move || async move { Box::new(SimulatedBench::in_process(setting)) as Box<dyn Bench> }).await);
    }
}
