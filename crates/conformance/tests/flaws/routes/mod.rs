//! A cloud of routes, and what may be wrong with its provider.

mod bench;
mod cloud;
mod provider;

use std::sync::Arc;

use bowline_cloud::RouteCapabilities;
use bowline_conformance::{Bench, Capability, Complaint, Group, Need, Outcome, Report, cases, run, run_one};
use bowline_core::IpFamily;

use bench::ToyBench;
use cloud::Kind;
use provider::Toy;

/// What is wrong with the provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flaw {
    None,
    ListsAllClusters,
    StampsEverything,
    HidesWhatItDidNotMake,
    TellsLessAtFirst,
    TellsOneAddress,
    ListsOnePage,
    GoesByTheHint,
    RefusesTheSecondTime,
    TakesOver,
    AnyMachineWillDo,
    TakenIsUnexpected,
    GoneIsAnError,
    DeletesByRange,
    DeletesByFirstAddress,
    LeadsOneFamilyOnly(IpFamily),
    RewritesTheTable,
    ClaimsOneRouteTooMany,
    QuotaIsUnexpected,
    CountsWhatIsThere,
    NameBeforeId,
    TellsTheMachinesName,
    ForgetsNames,
    TheLostLooksWell,
    DeletesOnlyWhatIsWhole,
    DeletesOnlyAsListed,
    LeadsNowhere,
    NameAfterId,
    MarksLater,
    EverythingUnexpected,
    ErrorIsAnEmptyTable,
    ForgetsDelay,
}

/// More than any case has but the one about it.
const MOST: usize = 201;

const MARKED: Kind = Kind { marks: true, exclusive: true, most: MOST };

fn everything() -> RouteCapabilities {
    RouteCapabilities { ip_families: vec![IpFamily::IPv4, IpFamily::IPv6], max_routes: Some(MOST), max_parallel: 4 }
}

/// One family, one by one, and no limit that is known.
fn least() -> RouteCapabilities {
    RouteCapabilities { ip_families: vec![IpFamily::IPv6], max_routes: None, max_parallel: 1 }
}

async fn bench(flaw: Flaw, kind: Kind, mut numbers: RouteCapabilities, can: bool) -> Box<dyn Bench> {
    if flaw == Flaw::LeadsOneFamilyOnly(IpFamily::IPv6) {
        // The cases that are about no family in particular take the first.
        numbers.ip_families.reverse();
    }
    Box::new(ToyBench { toy: Arc::new(Toy::new(flaw, kind, numbers)), can })
}

async fn report(flaw: Flaw, kind: Kind, numbers: RouteCapabilities) -> Report {
    run(|| bench(flaw, kind, numbers.clone(), true)).await
}

/// The cases about routes.
fn about_routes() -> impl Iterator<Item = &'static str> {
    let about = cases().iter().filter(|case| case.needs.iter().any(|need| need.group() == Group::Routes));
    about.map(|case| case.name)
}

/// The cases about routes that catch this flaw.
async fn catching(flaw: Flaw, kind: Kind) -> Vec<&'static str> {
    let mut caught = Vec::new();
    for case in about_routes() {
        let outcome = run_one(case, || bench(flaw, kind, everything(), true)).await;
        if matches!(outcome, Some(Outcome::Failed(_))) {
            caught.push(case);
        }
    }
    caught
}

/// Each flaw, and the cases that catch it: the one that is there for it, and those that cannot but stumble over it.
const CAUGHT: [(Flaw, &[&str]); 32] = [
    (Flaw::ListsAllClusters, &["only_ours"]),
    (Flaw::StampsEverything, &["only_ours"]),
    (Flaw::HidesWhatItDidNotMake, &["only_ours", "route_writes_survive_every_crash"]),
    (Flaw::TellsLessAtFirst, &["created_route_is_listed"]),
    (Flaw::TellsOneAddress, &["created_route_is_listed"]),
    (Flaw::ListsOnePage, &["route_listing_is_complete"]),
    (Flaw::GoesByTheHint, &["create_is_idempotent"]),
    (Flaw::RefusesTheSecondTime, &["create_is_idempotent", "route_limit_is_told", "route_writes_survive_every_crash"]),
    (Flaw::TakesOver, &["taken_destination_is_told"]),
    (Flaw::AnyMachineWillDo, &["taken_destination_is_told"]),
    (Flaw::TakenIsUnexpected, &["only_ours", "taken_destination_is_told"]),
    (Flaw::GoneIsAnError, &["delete_is_idempotent", "delete_is_exact", "route_writes_survive_every_crash"]),
    (Flaw::DeletesByRange, &["delete_is_exact"]),
    (Flaw::DeletesByFirstAddress, &["delete_is_exact"]),
    (Flaw::LeadsOneFamilyOnly(IpFamily::IPv6), &["ipv4_ranges_are_led"]),
    (Flaw::LeadsOneFamilyOnly(IpFamily::IPv4), &["ipv6_ranges_are_led"]),
    (Flaw::RewritesTheTable, &["parallel_writes_all_count"]),
    (Flaw::ClaimsOneRouteTooMany, &["route_limit_is_told"]),
    (Flaw::QuotaIsUnexpected, &["route_limit_is_told"]),
    (Flaw::CountsWhatIsThere, &["route_limit_is_told"]),
    (Flaw::NameBeforeId, &["id_leads_before_name", "route_to_a_missing_machine_is_an_error"]),
    (Flaw::TellsTheMachinesName, &["id_leads_before_name"]),
    (Flaw::ForgetsNames, &["id_leads_before_name"]),
    (Flaw::TheLostLooksWell, &["route_of_a_lost_machine_is_told"]),
    (Flaw::DeletesOnlyWhatIsWhole, &["route_of_a_lost_machine_is_told"]),
    (Flaw::DeletesOnlyAsListed, &["route_of_a_lost_machine_is_told"]),
    (Flaw::LeadsNowhere, &["route_to_a_missing_machine_is_an_error"]),
    (Flaw::NameAfterId, &["route_to_a_missing_machine_is_an_error"]),
    (Flaw::MarksLater, &["route_writes_survive_every_crash"]),
    (Flaw::EverythingUnexpected, &["route_faults_are_told"]),
    (Flaw::ErrorIsAnEmptyTable, &["route_faults_are_told"]),
    (Flaw::ForgetsDelay, &["route_faults_are_told"]),
];

#[tokio::test]
async fn a_sound_provider_has_nothing_to_answer_for() {
    for (marks, exclusive, numbers) in
        [(true, true, everything()), (true, false, everything()), (false, true, everything()), (false, false, least())]
    {
        let report = report(Flaw::None, Kind { marks, exclusive, most: MOST }, numbers).await;
        assert_eq!(report.complaints(), [], "{report}");
    }
}

#[tokio::test]
async fn each_flaw_is_caught_by_the_case_for_it_and_not_held_against_others() {
    for (flaw, wanted) in CAUGHT {
        // Only where there are no marks is all to be listed.
        let marks = flaw != Flaw::HidesWhatItDidNotMake;
        assert_eq!(catching(flaw, Kind { marks, ..MARKED }).await, wanted, "{flaw:?}");
    }
}

#[test]
fn every_case_about_routes_has_a_flaw_that_it_catches() {
    let caught: Vec<_> = CAUGHT.iter().flat_map(|(_, cases)| *cases).copied().collect();
    let uncaught: Vec<_> = about_routes().filter(|name| !caught.contains(name)).collect();
    assert_eq!(uncaught, [""; 0]);
}

#[tokio::test]
async fn a_bench_that_cannot_break_its_cloud_shows_less_and_says_so() {
    let report = run(|| bench(Flaw::None, MARKED, everything(), false)).await;
    let complaints = report.complaints();
    assert!(complaints.iter().all(|complaint| matches!(complaint, Complaint::BenchCannot(..))), "{complaints:?}");
    for case in ["route_writes_survive_every_crash", "route_faults_are_told"] {
        assert!(matches!(report.outcome(case), Some(Outcome::BenchCannot(_))), "{case}\n{report}");
    }
}

#[tokio::test]
async fn the_least_of_providers_skips_what_it_does_not_claim() {
    let report = report(Flaw::None, MARKED, least()).await;
    let skipped = [
        ("ipv4_ranges_are_led", Capability::RouteIpv4),
        ("parallel_writes_all_count", Capability::ParallelRoutes),
        ("route_limit_is_told", Capability::MaxRoutes),
    ];
    for (case, capability) in skipped {
        assert_eq!(report.outcome(case), Some(&Outcome::Skipped(Need::Has(capability))));
    }
    let about: Vec<_> = about_routes().filter(|case| report.skipped().contains(case)).collect();
    assert_eq!(about, skipped.map(|(case, _)| case));
    assert!(matches!(report.absent().as_slice(), [(Group::LoadBalancers, _)]), "{report}");
}
