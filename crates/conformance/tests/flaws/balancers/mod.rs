//! A cloud of balancers, and what may be wrong with its provider.

mod bench;
mod cloud;
mod plan;
mod provider;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use bowline_cloud::LoadBalancerCapabilities;
use bowline_conformance::{Bench, Capability, Complaint, Group, Need, Outcome, Report, cases, run, run_one};
use bowline_core::IpFamily;

use bench::ToyBench;
use provider::Toy;

/// What is wrong with the provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flaw {
    None,
    AnswersInItsOwnOrder,
    ObservesOneByOne,
    ListsOnlyWhole,
    ListsAllClusters,
    ErrorIsNothing,
    TakesOneTarget,
    PlansWithACall,
    MindsTheOrder,
    RefusesTheSecondTime,
    WritesTwice,
    SeesTooEarly,
    IgnoresWork,
    RemovesNothing,
    DeletesInTheWrongOrder,
    LeavesTheBare,
    BuildsOnlyOnce,
    GoneIsAnError,
    KeepsOldPorts,
    IgnoresNodePorts,
    BuildsAnewForNames,
    SpeaksTcpOnly,
    SpeaksUdpOnly,
    GoesByPortAlone,
    NeedsNodePorts,
    ClaimsOnePortTooMany,
    ClaimsOneTargetTooMany,
    KeepsTheLastTargets,
    BuildsAnewForNodes,
    DropsTheLeaving,
    TakesInTheLeaving,
    DrainsWithoutClaim,
    NeverOpensAgain,
    ForgetsTheTimeout,
    KeepsAsking,
    SpeaksNoProxyProtocol,
    IgnoresInternal,
    IgnoresIdleTimeout,
    IgnoresHealthSettings,
    GivesIpv4Only,
    GivesIpv6Only,
    GivesAnyAddress,
    GivesOutTakenAddresses,
    SharesNothing,
    FirstOneTakesAll,
    OverwritesTheGroup,
    FindsByUid,
    FindsByName,
    TakesOverByName,
    HidesTheOwner,
    AdoptsUnasked,
    AdoptsTheOwned,
    RetainDeletes,
    RetainKeepsTheMark,
    MarksLater,
    Remembers,
    LooksAtTheFirst,
    UnmarksFirst,
    EverythingUnexpected,
    ForgetsDelay,
    NamesNothing,
    ChoosesAddressesItself,
    SharesWithOtherNamespaces,
    StaysBusy,
    ReleasesFromTheTop,
    ForgetsWhatItAdopted,
    LeadsToTheGone,
    NotesSomethingElse,
    Mumbles,
    MarksTheUid,
    GivesTheLastFamily,
}

fn everything() -> LoadBalancerCapabilities {
    LoadBalancerCapabilities {
        tcp: true,
        udp: true,
        sctp: true,
        mixed_protocols: true,
        source_ranges: true,
        session_affinity: true,
        local_traffic_policy: true,
        proxy_protocol: true,
        requested_address: true,
        drain: true,
        shared: true,
        internal: true,
        idle_timeout: true,
        health_check_settings: true,
        adoption: true,
        retention: true,
        without_node_ports: true,
        ip_families: vec![IpFamily::IPv4, IpFamily::IPv6],
        dual_stack: true,
        first_family: false,
        marks_uid: true,
        batch_observe: 3,
        max_ports: Some(5),
        max_targets: Some(7),
    }
}

/// As some clouds are: what things are called is whose they are, and of two families the first is served.
fn by_name() -> LoadBalancerCapabilities {
    LoadBalancerCapabilities { dual_stack: false, first_family: true, marks_uid: false, ..everything() }
}

/// TCP to node ports on an IPv4 address, and nothing else.
fn least() -> LoadBalancerCapabilities {
    LoadBalancerCapabilities {
        tcp: true,
        ip_families: vec![IpFamily::IPv4],
        marks_uid: true,
        ..LoadBalancerCapabilities::default()
    }
}

async fn bench(flaw: Flaw, numbers: LoadBalancerCapabilities, can: bool) -> Box<dyn Bench> {
    Box::new(ToyBench { toy: Arc::new(Toy::new(flaw, numbers)), machines: AtomicU64::default(), can })
}

async fn report(flaw: Flaw, numbers: LoadBalancerCapabilities) -> Report {
    run(|| bench(flaw, numbers.clone(), true)).await
}

/// Each flaw of a provider that claims everything, and a case that is there to catch it.
const CAUGHT: [(Flaw, &str); 71] = [
    (Flaw::AnswersInItsOwnOrder, "one_state_each"),
    (Flaw::ObservesOneByOne, "observing_many_saves_calls"),
    (Flaw::ListsOnlyWhole, "list_names_what_is_ours"),
    (Flaw::ListsAllClusters, "clusters_do_not_meet"),
    (Flaw::ErrorIsNothing, "failed_observation_is_no_answer"),
    (Flaw::TakesOneTarget, "balancer_is_as_wished"),
    (Flaw::PlansWithACall, "plan_is_pure"),
    (Flaw::MindsTheOrder, "applied_plan_is_empty"),
    (Flaw::RefusesTheSecondTime, "apply_is_repeatable"),
    (Flaw::WritesTwice, "one_write_per_step"),
    (Flaw::SeesTooEarly, "seen_is_what_observe_says"),
    (Flaw::IgnoresWork, "in_progress_is_told"),
    (Flaw::RemovesNothing, "nothing_left_is_nothing_to_do"),
    (Flaw::DeletesInTheWrongOrder, "type_changes_and_back"),
    (Flaw::LeavesTheBare, "half_built_is_deleted"),
    (Flaw::BuildsOnlyOnce, "half_deleted_is_rebuilt"),
    (Flaw::GoneIsAnError, "gone_is_deleted"),
    (Flaw::KeepsOldPorts, "ports_follow_the_service"),
    (Flaw::IgnoresNodePorts, "ports_follow_the_service"),
    (Flaw::BuildsAnewForNames, "port_names_change_nothing"),
    (Flaw::SpeaksUdpOnly, "tcp_is_balanced"),
    (Flaw::SpeaksTcpOnly, "udp_is_balanced"),
    (Flaw::SpeaksTcpOnly, "sctp_is_balanced"),
    (Flaw::SpeaksTcpOnly, "protocol_changes"),
    (Flaw::GoesByPortAlone, "protocols_mix_on_one_port"),
    (Flaw::NeedsNodePorts, "node_ports_are_not_needed"),
    (Flaw::ClaimsOnePortTooMany, "port_limit_is_reached"),
    (Flaw::ClaimsOneTargetTooMany, "target_limit_is_reached"),
    (Flaw::KeepsTheLastTargets, "targets_follow_the_nodes"),
    (Flaw::BuildsAnewForNodes, "target_change_is_small"),
    (Flaw::DropsTheLeaving, "a_leaving_node_is_drained"),
    (Flaw::TakesInTheLeaving, "a_leaving_node_is_not_taken_in"),
    (Flaw::NeverOpensAgain, "source_ranges_are_enforced"),
    (Flaw::ForgetsTheTimeout, "affinity_is_kept"),
    (Flaw::KeepsAsking, "local_policy_asks_the_node"),
    (Flaw::SpeaksNoProxyProtocol, "proxy_protocol_is_spoken"),
    (Flaw::IgnoresInternal, "internal_stays_inside"),
    (Flaw::IgnoresIdleTimeout, "idle_timeout_is_set"),
    (Flaw::IgnoresHealthSettings, "health_check_is_as_chosen"),
    (Flaw::GivesIpv6Only, "ipv4_address_is_given"),
    (Flaw::GivesIpv4Only, "ipv6_address_is_given"),
    (Flaw::GivesIpv4Only, "dual_stack_has_both"),
    (Flaw::GivesAnyAddress, "requested_address_is_given"),
    (Flaw::GivesOutTakenAddresses, "requested_address_is_given"),
    (Flaw::SharesNothing, "a_group_shares_an_address"),
    (Flaw::FirstOneTakesAll, "a_group_shares_an_address"),
    (Flaw::OverwritesTheGroup, "a_group_has_a_port_once"),
    (Flaw::FindsByUid, "foreign_is_untouched"),
    (Flaw::FindsByUid, "clusters_do_not_meet"),
    (Flaw::FindsByName, "a_new_service_of_the_name_is_another"),
    (Flaw::TakesOverByName, "clash_names_the_owner"),
    (Flaw::HidesTheOwner, "clash_names_the_owner"),
    (Flaw::AdoptsUnasked, "only_adoption_takes_over"),
    (Flaw::AdoptsTheOwned, "the_owned_is_not_adopted"),
    (Flaw::RetainDeletes, "retained_is_released"),
    (Flaw::RetainKeepsTheMark, "retained_is_released"),
    (Flaw::MarksLater, "creation_survives_every_crash"),
    (Flaw::Remembers, "creation_survives_every_crash"),
    (Flaw::LooksAtTheFirst, "update_survives_every_crash"),
    (Flaw::UnmarksFirst, "deletion_survives_every_crash"),
    (Flaw::EverythingUnexpected, "balancer_errors_have_a_kind"),
    (Flaw::ForgetsDelay, "balancer_throttling_carries_its_delay"),
    (Flaw::NamesNothing, "late_listing_makes_no_double"),
    (Flaw::ChoosesAddressesItself, "services_at_once_have_their_own"),
    (Flaw::SharesWithOtherNamespaces, "a_group_shares_an_address"),
    (Flaw::StaysBusy, "a_dropped_call_is_forgotten"),
    (Flaw::ReleasesFromTheTop, "release_survives_every_crash"),
    (Flaw::ForgetsWhatItAdopted, "adoption_survives_every_crash"),
    (Flaw::LeadsToTheGone, "annotations_lead_back"),
    (Flaw::NotesSomethingElse, "annotations_lead_back"),
    (Flaw::Mumbles, "remarks_can_be_told"),
];

/// The same of a provider that goes by names.
const CAUGHT_BY_NAME: [(Flaw, &str); 2] = [
    (Flaw::MarksTheUid, "without_uid_marks_the_name_is_the_owner"),
    (Flaw::GivesTheLastFamily, "first_family_is_served"),
];

#[tokio::test]
async fn a_sound_provider_has_nothing_to_answer_for() {
    for numbers in [everything(), by_name(), least()] {
        let report = report(Flaw::None, numbers).await;
        assert_eq!(report.complaints(), [], "{report}");
    }
}

#[tokio::test]
async fn each_flaw_is_caught_by_the_case_for_it() {
    for (flaw, case) in CAUGHT {
        let outcome = run_one(case, || bench(flaw, everything(), true)).await;
        assert!(matches!(outcome, Some(Outcome::Failed(_))), "{flaw:?} gets past {case}: {outcome:?}");
    }
    for (flaw, case) in CAUGHT_BY_NAME {
        let outcome = run_one(case, || bench(flaw, by_name(), true)).await;
        assert!(matches!(outcome, Some(Outcome::Failed(_))), "{flaw:?} gets past {case}: {outcome:?}");
    }
    let report = report(Flaw::DrainsWithoutClaim, least()).await;
    assert_eq!(report.failed(), ["without_draining_a_leaving_node_goes"], "{report}");
}

#[test]
fn every_case_about_balancers_has_a_flaw_that_it_catches() {
    let caught: Vec<_> = CAUGHT.iter().chain(&CAUGHT_BY_NAME).map(|(_, case)| *case).collect();
    let about = cases().iter().filter(|case| case.needs.iter().any(|need| need.group() == Group::LoadBalancers));
    let uncaught: Vec<_> = about.map(|case| case.name).filter(|name| !caught.contains(name)).collect();
    // The first is tried on a provider that claims less. The second is about the check that stands before all providers.
    assert_eq!(uncaught, ["without_draining_a_leaving_node_goes", "unclaimed_is_refused_without_a_call"]);
}

#[tokio::test]
async fn a_flaw_in_one_thing_is_not_held_against_others() {
    for (flaw, cases) in [
        (Flaw::ForgetsDelay, vec!["balancer_throttling_carries_its_delay"]),
        (Flaw::IgnoresInternal, vec!["internal_stays_inside"]),
        (Flaw::HidesTheOwner, vec!["clash_names_the_owner"]),
        (Flaw::GivesAnyAddress, vec!["requested_address_is_given"]),
    ] {
        assert_eq!(report(flaw, everything()).await.failed(), cases, "{flaw:?}");
    }
}

#[tokio::test]
async fn a_bench_that_cannot_break_its_cloud_shows_less_and_says_so() {
    let report = run(|| bench(Flaw::None, everything(), false)).await;
    let complaints = report.complaints();
    assert!(complaints.iter().all(|complaint| matches!(complaint, Complaint::BenchCannot(..))), "{complaints:?}");
    for case in ["creation_survives_every_crash", "in_progress_is_told", "late_listing_makes_no_double"] {
        assert!(matches!(report.outcome(case), Some(Outcome::BenchCannot(_))), "{case}\n{report}");
    }
    assert_eq!(report.failed(), [""; 0]);
}

#[tokio::test]
async fn the_least_of_providers_skips_what_it_does_not_claim() {
    let report = report(Flaw::None, least()).await;
    assert_eq!(report.outcome("udp_is_balanced"), Some(&Outcome::Skipped(Need::Has(Capability::Udp))));
    let wanted: Vec<_> = cases()
        .iter()
        .filter(|case| case.needs.iter().any(|need| need.group() == Group::LoadBalancers))
        .filter(|case| {
            !matches!(
                case.needs,
                [Need::Has(Capability::LoadBalancers | Capability::Tcp | Capability::Ipv4 | Capability::UidMarks)]
            )
        })
        .map(|case| case.name)
        .filter(|name| *name != "without_draining_a_leaving_node_goes")
        .collect();
    assert_eq!(report.skipped(), wanted);
    let (text, absent) = (report.to_string(), report.absent());
    assert!(matches!(absent.as_slice(), [(Group::Instances, cases), (Group::Routes, _)] if *cases > 20), "{absent:?}");
    assert!(text.contains("no instances: ") && !text.contains("stopped_is_told"), "{text}");
}
