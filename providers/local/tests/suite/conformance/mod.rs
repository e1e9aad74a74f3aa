//! Conformance suite of the local provider: in process and over HTTP, with every capability enabled and with each one disabled.
mod bench;
mod settings;

use std::collections::BTreeSet;
use std::time::Duration;

use bowline_conformance::{Bench, Report, cases, run};
use bowline_local::{CloudOptions, Config, LocalCloud};

use bench::{LocalBench, records};
use settings::{Setting, settings};

fn check(report: &Report, setting: &Setting) {
    println!("{report}\n");
    assert_eq!(report.violations(), [], "{report}\n{:?}", setting.config);
    let skipped: BTreeSet<_> = report.skipped().into_iter().collect();
    assert_eq!(skipped, setting.skipped, "{:?}", setting.config);
    assert_eq!(report.outcomes().len(), cases().len());
}

fn boxed(bench: LocalBench) -> Box<dyn Bench> {
    Box::new(bench)
}

#[tokio::test]
async fn the_provider_conforms_in_process() {
    for setting in settings() {
        let bench = || async { boxed(LocalBench::with_secret(setting.config.clone())) };
        check(&run(bench).await, &setting);
    }
}

#[tokio::test]
async fn the_provider_conforms_over_http() {
    // Disabled capabilities are the same over HTTP, so every fourth setting is enough.
    for setting in settings().into_iter().step_by(4) {
        let bench = || async { boxed(LocalBench::over_http(setting.config.clone()).await) };
        check(&run(bench).await, &setting);
    }
}

#[tokio::test]
async fn a_cloud_with_latency_conforms() {
    let latency = Duration::from_millis(1);
    let cloud =
        || LocalCloud::open(CloudOptions { latency, page_size: 7, balancers: records(), ..CloudOptions::default() });
    let bench = || async { boxed(LocalBench::in_process(cloud().unwrap(), Config::default())) };
    assert_eq!(run(bench).await.violations(), []);
}
