//! The suite can fail: the local provider passes it, and each flaw that is put into it is caught by the case that is there
//! to catch it.
#[path = "../../../../../providers/local/tests/suite/conformance/bench/mod.rs"]
mod bench;
mod broken;
mod instances;
mod load_balancers;
mod loops;
mod routes;
mod secrets;

use std::collections::BTreeSet;
use std::sync::Arc;

use bowline_conformance::{Bench, Capability, Group, Need, Outcome, Report, Violation, cases, run, run_one};
use bowline_local::{CloudOptions, Config, LocalCloud, RouteConfig};

use bench::LocalBench;
use broken::{Broken, Flaw};
use instances::SOUND;

/// Rules that stand before all providers, so that no provider can break them.
const UNBREAKABLE: [&str; 1] = ["unclaimed_is_refused_without_a_call"];

fn flaws() -> impl Iterator<Item = &'static Flaw> {
    instances::FLAWS.iter().chain(load_balancers::FLAWS).chain(routes::FLAWS).chain(loops::FLAWS).chain(secrets::FLAWS)
}

/// A configuration with everything on.
fn everything() -> Config {
    let routes = RouteConfig { node_addresses: true, ..RouteConfig::default() };
    Config { pod_ranges: true, tag_machines: true, routes, ..Config::default() }
}

async fn bench(flaw: &'static Flaw, config: Config, can: bool) -> Box<dyn Bench> {
    let wrap = |real, cloud: &_| Broken::new(flaw, real, LocalCloud::clone(cloud)) as Arc<_>;
    let mut bench = LocalBench::wrapped(flaw.config(config), Box::new(wrap));
    bench.can = can;
    Box::new(bench)
}

async fn report(name: &str) -> Report {
    let flaw = flaws().find(|flaw| flaw.name == name).unwrap();
    run(|| bench(flaw, everything(), true)).await
}

#[tokio::test]
async fn a_sound_provider_passes() {
    let report = run(|| bench(&SOUND, everything(), true)).await;
    assert_eq!(report.violations(), [], "{report}");
    assert_eq!(report.not_applicable(), ["locked_route_writes_do_not_overlap"]);
}

/// Flaws that get past a case that is there to catch them.
async fn uncaught(flaws: &'static [Flaw]) -> Vec<String> {
    let mut uncaught = Vec::new();
    for flaw in flaws {
        for case in flaw.cases {
            let outcome = run_one(case, || bench(flaw, everything(), true)).await;
            if !matches!(outcome, Some(Outcome::Failed(_))) {
                uncaught.push(format!("{case} lets a provider pass that {}: {outcome:?}", flaw.name));
            }
        }
    }
    uncaught
}

#[tokio::test]
async fn each_flaw_in_instances_is_caught_by_the_case_for_it() {
    assert_eq!(uncaught(instances::FLAWS).await, [""; 0]);
}

#[tokio::test]
async fn each_flaw_in_load_balancers_is_caught_by_the_case_for_it() {
    assert_eq!(uncaught(load_balancers::FLAWS).await, [""; 0]);
}

#[tokio::test]
async fn each_flaw_in_routes_is_caught_by_the_case_for_it() {
    assert_eq!(uncaught(routes::FLAWS).await, [""; 0]);
}

#[tokio::test]
async fn each_flaw_in_loops_is_caught_by_the_case_for_it() {
    assert_eq!(uncaught(loops::FLAWS).await, [""; 0]);
}

#[tokio::test]
async fn each_flaw_in_secrets_is_caught_by_the_case_for_it() {
    assert_eq!(uncaught(secrets::FLAWS).await, [""; 0]);
}

/// A lock that is named rightly makes such writes safe.
#[tokio::test]
async fn writes_of_a_whole_table_are_safe_under_one_lock() {
    for case in ["locked_route_writes_do_not_overlap", "parallel_writes_all_count"] {
        let outcome = run_one(case, || bench(&routes::WHOLE_TABLE, everything(), true)).await;
        assert_eq!(outcome, Some(Outcome::Passed), "{case}");
    }
}

/// Without loops, Secrets and a lock, nothing is shown about them.
#[tokio::test]
async fn a_case_without_its_subject_is_skipped_and_counted() {
    let config = Config { tag_machines: false, ..everything() };
    let cloud =
        || LocalCloud::open(CloudOptions { page_size: 7, balancers: bench::records(), ..CloudOptions::default() });
    let bare = || async { Box::new(LocalBench::in_process(cloud().unwrap(), config.clone())) as Box<dyn Bench> };
    let report = run(bare).await;
    assert_eq!(report.violations(), [], "{report}");
    let skipped = report.not_applicable();
    let about = |subject: &str| skipped.iter().filter(|case| case.contains(subject)).count();
    assert_eq!((about("secret"), about("loop"), about("locked")), (3, 6, 1), "{skipped:?}");
    assert_eq!(skipped.len(), 10, "{skipped:?}");
    let text = report.to_string();
    assert!(text.contains("skipped: no background loops") && text.contains("skipped: no Secrets"), "{text}");
    let skips = skipped.len() + report.skipped().len();
    assert!(text.ends_with(&format!(", 0 failed, {skips} skipped")), "{text}");
}

#[test]
fn every_case_has_a_flaw_that_it_catches() {
    let caught: BTreeSet<_> = flaws().flat_map(|flaw| flaw.cases).collect();
    let uncaught: Vec<_> = cases().iter().map(|case| case.name).filter(|name| !caught.contains(name)).collect();
    assert_eq!(uncaught, UNBREAKABLE);
}

/// A sample: each of these costs a run of the whole suite.
#[tokio::test]
async fn a_flaw_in_one_thing_is_not_held_against_others() {
    for (flaw, cases) in [
        ("takes pod ranges from others", ["assigned_pod_range_is_told"].as_slice()),
        ("tries the name after the ID", &["id_before_name", "deleted_then_recreated_same_name_is_another_id"]),
        ("speaks no PROXY protocol", &["proxy_protocol_is_spoken"]),
        ("lists one page of routes", &["route_listing_is_complete"]),
        ("takes off the tags of others", &["loops_write_nothing_foreign"]),
    ] {
        assert_eq!(report(flaw).await.failed(), cases, "{flaw}");
    }
}

#[tokio::test]
async fn a_bench_that_cannot_break_its_cloud_shows_less_and_says_so() {
    let report = run(|| bench(&SOUND, everything(), false)).await;
    let violations = report.violations();
    assert!(violations.iter().all(|complaint| matches!(complaint, Violation::BenchCannot(..))), "{violations:?}");
    for case in ["error_is_no_answer", "creation_survives_every_crash", "in_progress_is_told", "route_faults_are_told"]
    {
        assert!(matches!(report.outcome(case), Some(Outcome::BenchCannot(_))), "{case}\n{report}");
    }
}

#[tokio::test]
async fn a_provider_that_claims_little_skips_the_rest() {
    let mut config = everything();
    (config.listing, config.load_balancers.udp, config.routes.enabled) = (false, false, false);
    let report = run(|| bench(&SOUND, config.clone(), true)).await;
    for (case, capability) in [
        ("pages_are_complete", Capability::Listing),
        ("udp_is_balanced", Capability::Udp),
        ("only_ours", Capability::Routes),
    ] {
        assert_eq!(report.outcome(case), Some(&Outcome::Skipped(Need::Has(capability))));
    }
    assert!(report.skipped().contains(&"udp_is_balanced") && !report.skipped().contains(&"only_ours"));
    let (text, absent) = (report.to_string(), report.absent());
    assert!(matches!(absent.as_slice(), [(Group::Routes, cases)] if *cases > 10), "{absent:?}");
    assert!(text.contains("skipped: no UDP") && text.contains("no routes: ") && !text.contains("only_ours"), "{text}");
}

#[test]
fn every_capability_has_a_case_that_runs_because_of_it() {
    for &capability in Capability::ALL {
        let proof = cases().iter().any(|case| case.needs.contains(&Need::Has(capability)));
        assert!(proof, "{capability}");
    }
}
