//! Mutation tests of the suite: the local provider passes, and each planted flaw is caught by its case.
#[path = "../../../../../providers/local/tests/suite/conformance/bench/mod.rs"]
mod bench;
mod broken;
mod instances;
mod load_balancers;
mod loops;
mod routes;
mod secrets;
mod webhooks;

use std::collections::BTreeSet;
use std::sync::Arc;

use bowline_conformance::{Bench, Capability, Group, Need, Outcome, Report, Violation, cases, run, run_one};
use bowline_local::{CloudOptions, Config, LocalCloud, RouteConfig};

use bench::LocalBench;
use broken::{Broken, Flaw};
use instances::CORRECT;

fn flaws() -> impl Iterator<Item = &'static Flaw> {
    let first = instances::FLAWS.iter().chain(load_balancers::FLAWS).chain(routes::FLAWS);
    first.chain(loops::FLAWS).chain(secrets::FLAWS).chain(webhooks::FLAWS)
}

/// Configuration with every feature enabled.
fn full_config() -> Config {
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
    run(|| bench(flaw, full_config(), true)).await
}

#[tokio::test]
async fn a_correct_provider_passes() {
    let report = run(|| bench(&CORRECT, full_config(), true)).await;
    assert_eq!(report.violations(), [], "{report}");
    assert_eq!(report.not_applicable(), ["locked_route_writes_do_not_overlap"]);
}

/// Flaws that their cases do not catch.
async fn uncaught(flaws: &'static [Flaw]) -> Vec<String> {
    let mut uncaught = Vec::new();
    for flaw in flaws {
        for case in flaw.cases {
            let outcome = run_one(case, || bench(flaw, full_config(), true)).await;
            if !matches!(outcome, Some(Outcome::Failed(_))) {
                uncaught.push(format!("{case} does not catch a provider that {}: {outcome:?}", flaw.name));
            }
        }
    }
    uncaught
}

#[tokio::test]
async fn each_flaw_in_instances_is_caught_by_its_case() {
    assert_eq!(uncaught(instances::FLAWS).await, [""; 0]);
}

#[tokio::test]
async fn each_flaw_in_load_balancers_is_caught_by_its_case() {
    assert_eq!(uncaught(load_balancers::FLAWS).await, [""; 0]);
}

#[tokio::test]
async fn each_flaw_in_routes_is_caught_by_its_case() {
    assert_eq!(uncaught(routes::FLAWS).await, [""; 0]);
}

#[tokio::test]
async fn each_flaw_in_loops_is_caught_by_its_case() {
    assert_eq!(uncaught(loops::FLAWS).await, [""; 0]);
}

#[tokio::test]
async fn each_flaw_in_secrets_is_caught_by_its_case() {
    assert_eq!(uncaught(secrets::FLAWS).await, [""; 0]);
}

#[tokio::test]
async fn each_flaw_in_webhooks_and_endpoints_is_caught_by_its_case() {
    assert_eq!(uncaught(webhooks::FLAWS).await, [""; 0]);
}

/// With a correct lock, read-modify-write of a whole table is safe.
#[tokio::test]
async fn writes_of_a_whole_table_are_safe_with_one_lock() {
    for case in ["locked_route_writes_do_not_overlap", "parallel_writes_all_take_effect"] {
        let outcome = run_one(case, || bench(&routes::WHOLE_TABLE, full_config(), true)).await;
        assert_eq!(outcome, Some(Outcome::Passed), "{case}");
    }
}

#[tokio::test]
async fn the_cluster_may_be_configured() {
    for case in ["clusters_are_isolated", "foreign_is_untouched"] {
        let outcome = run_one(case, || bench(&load_balancers::ONE_CLUSTER, full_config(), true)).await;
        assert_eq!(outcome, Some(Outcome::Passed), "{case}");
    }
}

#[tokio::test]
async fn marks_may_be_only_names() {
    for case in
        ["list_returns_every_owner", "list_reads_every_page", "listed_key_is_enough_to_delete", "clusters_are_isolated"]
    {
        let outcome = run_one(case, || bench(&load_balancers::NAMES, full_config(), true)).await;
        assert_eq!(outcome, Some(Outcome::Passed), "{case}");
    }
}

#[tokio::test]
async fn a_fixed_kind_passes_its_own_case_and_skips_the_other() {
    let outcome = |case| run_one(case, || bench(&load_balancers::FIXED_KIND, full_config(), true));
    assert_eq!(outcome("fixed_kind_is_kept").await, Some(Outcome::Passed));
    assert_eq!(outcome("kind_changes").await, Some(Outcome::Skipped(Need::Lacks(Capability::FixedKind))));
}

#[tokio::test]
async fn a_provider_may_check_the_spec_itself() {
    let case = "unsupported_is_rejected_without_a_call";
    let outcome = run_one(case, || bench(&load_balancers::CHECKS_SPEC, full_config(), true)).await;
    assert_eq!(outcome, Some(Outcome::Passed));
}

/// The cases about loops, Secrets, webhooks, endpoints and locks are not applicable to a provider without them.
#[tokio::test]
async fn cases_that_are_not_applicable_are_skipped_and_counted() {
    let config = Config { tag_machines: false, ..full_config() };
    let cloud =
        || LocalCloud::open(CloudOptions { page_size: 7, balancers: bench::records(), ..CloudOptions::default() });
    let bare = || async { Box::new(LocalBench::in_process(cloud().unwrap(), config.clone())) as Box<dyn Bench> };
    let report = run(bare).await;
    assert_eq!(report.violations(), [], "{report}");
    let skipped = report.not_applicable();
    let count = |subject: &str| skipped.iter().filter(|case| case.contains(subject)).count();
    assert_eq!((count("secret"), count("loop"), count("paused"), count("locked")), (3, 8, 1, 1), "{skipped:?}");
    assert_eq!(skipped.len(), 16, "{skipped:?}");
    let text = report.to_string();
    assert!(text.contains("skipped: no background loops") && text.contains("skipped: no Secrets"), "{text}");
    let skips = skipped.len() + report.skipped().len();
    assert!(text.ends_with(&format!(", 0 failed, {skips} skipped")), "{text}");
}

#[test]
fn every_case_catches_a_flaw() {
    let caught: BTreeSet<_> = flaws().flat_map(|flaw| flaw.cases).collect();
    let uncaught: Vec<_> = cases().iter().map(|case| case.name).filter(|name| !caught.contains(name)).collect();
    assert_eq!(uncaught, [""; 0]);
}

/// A sample of flaws, because each takes a run of the whole suite.
#[tokio::test]
async fn a_flaw_fails_only_its_own_cases() {
    for (flaw, cases) in [
        ("takes pod CIDRs from other machines", ["assigned_pod_cidr_is_reported"].as_slice()),
        ("falls back to the name after the ID", &["id_before_name", "deleted_then_recreated_same_name_is_another_id"]),
        ("ignores the PROXY protocol", &["proxy_protocol_is_applied"]),
        ("lists only the first page of routes", &["route_listing_is_complete"]),
        ("removes tags of other owners", &["loops_write_nothing_foreign"]),
    ] {
        assert_eq!(report(flaw).await.failed(), cases, "{flaw}");
    }
}

#[tokio::test]
async fn a_bench_without_fault_injection_is_reported() {
    let report = run(|| bench(&CORRECT, full_config(), false)).await;
    let violations = report.violations();
    assert!(violations.iter().all(|violation| matches!(violation, Violation::BenchCannot(..))), "{violations:?}");
    for case in
        ["error_is_no_answer", "creation_survives_every_crash", "in_progress_is_reported", "route_errors_have_a_kind"]
    {
        assert!(matches!(report.outcome(case), Some(Outcome::BenchCannot(_))), "{case}\n{report}");
    }
}

#[tokio::test]
async fn cases_of_unclaimed_capabilities_are_skipped() {
    let mut config = full_config();
    (config.listing, config.load_balancers.udp, config.routes.enabled) = (false, false, false);
    let report = run(|| bench(&CORRECT, config.clone(), true)).await;
    for (case, capability) in [
        ("pages_are_complete", Capability::Listing),
        ("udp_is_balanced", Capability::Udp),
        ("list_returns_only_our_routes", Capability::Routes),
    ] {
        assert_eq!(report.outcome(case), Some(&Outcome::Skipped(Need::Has(capability))));
    }
    assert!(
        report.skipped().contains(&"udp_is_balanced") && !report.skipped().contains(&"list_returns_only_our_routes")
    );
    let (text, absent) = (report.to_string(), report.absent());
    assert!(matches!(absent.as_slice(), [(Group::Routes, cases)] if *cases > 10), "{absent:?}");
    assert!(
        text.contains("skipped: no UDP")
            && text.contains("no routes: ")
            && !text.contains("list_returns_only_our_routes"),
        "{text}"
    );
}

#[test]
fn every_capability_has_a_case() {
    for &capability in Capability::ALL {
        let proof = cases().iter().any(|case| case.needs.contains(&Need::Has(capability)));
        assert!(proof, "{capability}");
    }
}
