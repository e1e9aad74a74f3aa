//! The conformance suite for load balancers and routes: managed mode in process, unmanaged mode over HTTP.

mod bench;
mod load_balancers;
mod routes;

use bowline_conformance::{Bench, Report, run};

use bench::{Mode, SimulatedBench};

fn check(report: &Report) {
    println!("{report}\n");
    assert_eq!(report.violations(), [], "{report}");
}

#[tokio::test(start_paused = true)]
async fn managed_load_balancers_conform_in_process() {
    check(&run(|| async { Box::new(SimulatedBench::new(Mode::Managed)) as Box<dyn Bench> }).await);
}

#[tokio::test(start_paused = true)]
async fn load_balancers_at_an_existing_lb_service_conform_in_process() {
    check(&run(|| async { Box::new(SimulatedBench::new(Mode::Existing)) as Box<dyn Bench> }).await);
}
