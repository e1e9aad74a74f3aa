//! The conformance suite on a simulated vCenter.
mod bench;

use bowline_conformance::{Bench, Report, run};

use bench::SimulatedBench;

fn check(report: &Report) {
    println!("{report}\n");
    assert_eq!(report.violations(), [], "{report}");
}

#[tokio::test(start_paused = true)]
async fn the_provider_conforms() {
    check(&run(|| async { Box::new(SimulatedBench::new("")) as Box<dyn Bench> }).await);
}

#[tokio::test(start_paused = true)]
async fn the_provider_conforms_with_zones() {
    let labels = "[Labels]\nregion = k8s-region\nzone = k8s-zone\n";
    check(&run(|| async { Box::new(SimulatedBench::new(labels)) as Box<dyn Bench> }).await);
}
