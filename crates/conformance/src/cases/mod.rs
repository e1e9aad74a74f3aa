//! The cases, one per rule.

mod balancers;
mod habits;
mod listing;
mod lookup;
mod loops;
mod pod_ranges;
mod provider;
mod routes;
mod secrets;
mod trouble;

use bowline_cloud::Capabilities;
use futures::future::BoxFuture;

use crate::capability::Capability::{
    AdditionalAnnotations, AdditionalLabels, Adoption, AssignPodRanges, BatchLookup, BatchObserve, BatchRoutes, Drain,
    DualStack, FirstFamily, HealthCheckSettings, IdleTimeout, Instances, Internal, Ipv4, Ipv6, Kinds, Listing,
    LoadBalancers, LocalTrafficPolicy, LookupByName, MaxPorts, MaxRoutes, MaxTargets, MixedProtocols, Parallel,
    ParallelRoutes, PodRanges, ProxyProtocol, RequestedAddress, Retention, RouteIpv4, RouteIpv6, RouteUidMarks, Routes,
    Sctp, SessionAffinity, Shared, ShutdownState, SourceRanges, Tcp, Udp, UidMarks, UniqueIds, WithoutNodePorts, Zones,
};
use crate::capability::Need::{self, Has, Lacks};
use crate::scene::{CaseResult, Scene};

/// One rule of the contract, as something that can be tried out.
pub struct Case {
    /// The rule's name.
    pub name: &'static str,
    /// What the provider must claim, or must not, for the rule to say anything about it.
    pub needs: &'static [Need],
    pub(crate) run: for<'a> fn(&'a Scene) -> BoxFuture<'a, CaseResult>,
}

impl Case {
    /// A need that these capabilities do not meet, with no kind of load balancer.
    pub fn unmet(&self, capabilities: &Capabilities) -> Option<Need> {
        Need::kinds_that_meet(self.needs, capabilities).err()
    }
}

/// All cases, in the order in which they run.
pub fn cases() -> &'static [Case] {
    CASES
}

/// A case is an async function of its own name.
macro_rules! case {
    ($module:ident::$name:ident, [$($need:expr),*]) => {
        Case { name: stringify!($name), needs: &[$($need),*], run: |scene| Box::pin($module::$name(scene)) }
    };
    ($group:ident::$module:ident::$name:ident, [$($need:expr),*]) => {
        Case { name: stringify!($name), needs: &[$($need),*], run: |scene| Box::pin($group::$module::$name(scene)) }
    };
}

static CASES: &[Case] = &[
    case!(provider::capabilities_match_traits, []),
    case!(provider::start_may_come_again, []),
    case!(provider::start_tells_why_it_fails, []),
    case!(provider::facts_only_lower_capabilities, []),
    case!(provider::check_asks_the_cloud, []),
    case!(provider::prefix_is_owned, [Has(Instances)]),
    case!(habits::foreign_404_is_no_answer, []),
    case!(habits::failed_calls_are_not_repeated, []),
    case!(habits::secrets_stay_secret, []),
    case!(habits::no_call_blocks_the_thread, []),
    case!(secrets::secrets_are_declared, []),
    case!(secrets::bad_secret_is_refused, []),
    case!(secrets::rotated_secret_is_used, []),
    case!(loops::loops_are_declared, []),
    case!(loops::loops_follow_the_cluster, []),
    case!(loops::loops_are_repeatable, []),
    case!(loops::loops_write_nothing_foreign, []),
    case!(loops::loop_errors_have_a_kind, []),
    case!(loops::loops_survive_every_crash, []),
    case!(lookup::one_answer_each, [Has(Instances)]),
    case!(lookup::empty_question_makes_no_call, [Has(Instances)]),
    case!(lookup::stopped_is_not_gone, [Has(Instances)]),
    case!(lookup::stopped_is_told, [Has(ShutdownState)]),
    case!(lookup::id_before_name, [Has(Instances)]),
    case!(lookup::id_is_recognised, [Has(Instances)]),
    case!(lookup::foreign_id_is_not_mine, [Has(Instances)]),
    case!(lookup::malformed_id_is_an_error, [Has(Instances)]),
    case!(lookup::name_finds_the_machine, [Has(LookupByName)]),
    case!(lookup::two_of_one_name_is_an_error, [Has(LookupByName)]),
    case!(lookup::without_name_lookup_nothing_is_claimed, [Lacks(LookupByName)]),
    case!(lookup::provider_id_is_stable, [Has(Instances)]),
    case!(lookup::deleted_then_recreated_same_name_is_another_id, [Has(UniqueIds)]),
    case!(lookup::addresses_keep_their_order, [Has(Instances)]),
    case!(lookup::zones_are_told, [Has(Zones)]),
    case!(lookup::labels_are_told, [Has(AdditionalLabels)]),
    case!(lookup::annotations_are_reported, [Has(AdditionalAnnotations)]),
    case!(lookup::mixed_batch, [Has(Instances)]),
    case!(lookup::batch_limit_is_honoured, [Has(BatchLookup)]),
    case!(lookup::concurrent_questions, [Has(Parallel)]),
    case!(pod_ranges::pod_ranges_are_told, [Has(PodRanges)]),
    case!(pod_ranges::assigned_pod_range_is_told, [Has(AssignPodRanges)]),
    case!(pod_ranges::assignment_survives_every_crash, [Has(AssignPodRanges)]),
    case!(pod_ranges::assignment_errors_have_a_kind, [Has(AssignPodRanges)]),
    case!(pod_ranges::without_assignment_it_is_unsupported, [Lacks(AssignPodRanges)]),
    case!(listing::listing_agrees_with_find, [Has(Listing)]),
    case!(listing::pages_are_complete, [Has(Listing)]),
    case!(listing::absence_is_as_declared, [Has(Listing)]),
    case!(listing::without_listing_it_is_unsupported, [Lacks(Listing)]),
    case!(trouble::gone_is_certain, [Has(Instances)]),
    case!(trouble::error_is_no_answer, [Has(Instances)]),
    case!(trouble::errors_have_a_kind, [Has(Instances)]),
    case!(trouble::listing_errors_have_a_kind, [Has(Listing)]),
    case!(trouble::throttling_carries_its_delay, [Has(Instances)]),
    case!(balancers::questions::one_state_each, [Has(LoadBalancers)]),
    case!(balancers::questions::observing_many_saves_calls, [Has(BatchObserve)]),
    case!(balancers::questions::list_names_what_is_ours, [Has(LoadBalancers)]),
    case!(balancers::questions::list_reads_every_page, [Has(LoadBalancers)]),
    case!(balancers::life::balancer_is_as_wished, [Has(LoadBalancers)]),
    case!(balancers::life::plan_is_pure, [Has(LoadBalancers)]),
    case!(balancers::life::applied_plan_is_empty, [Has(LoadBalancers)]),
    case!(balancers::life::apply_is_repeatable, [Has(LoadBalancers)]),
    case!(balancers::life::one_write_per_step, [Has(LoadBalancers)]),
    case!(balancers::life::seen_is_what_observe_says, [Has(LoadBalancers)]),
    case!(balancers::notes::annotations_lead_back, [Has(LoadBalancers)]),
    case!(balancers::notes::remarks_can_be_told, [Has(LoadBalancers)]),
    case!(balancers::life::in_progress_is_told, [Has(LoadBalancers)]),
    case!(balancers::operations::pending_is_observed, [Has(LoadBalancers)]),
    case!(balancers::operations::started_operations_end, [Has(LoadBalancers)]),
    case!(balancers::operations::failed_operation_is_no_success, [Has(LoadBalancers)]),
    case!(balancers::operations::busy_step_writes_nothing, [Has(LoadBalancers)]),
    case!(balancers::operations::foreign_values_are_refused, [Has(LoadBalancers)]),
    case!(balancers::life::nothing_left_is_nothing_to_do, [Has(LoadBalancers)]),
    case!(balancers::life::type_changes_and_back, [Has(LoadBalancers)]),
    case!(balancers::life::half_built_is_deleted, [Has(LoadBalancers)]),
    case!(balancers::life::half_deleted_is_rebuilt, [Has(LoadBalancers)]),
    case!(balancers::life::gone_is_deleted, [Has(LoadBalancers)]),
    case!(balancers::kinds::kind_is_as_declared, [Has(LoadBalancers)]),
    case!(balancers::kinds::kind_changes, [Has(Kinds)]),
    case!(balancers::ports::ports_follow_the_service, [Has(LoadBalancers)]),
    case!(balancers::ports::port_names_change_nothing, [Has(LoadBalancers)]),
    case!(balancers::ports::tcp_is_balanced, [Has(Tcp)]),
    case!(balancers::ports::udp_is_balanced, [Has(Udp)]),
    case!(balancers::ports::sctp_is_balanced, [Has(Sctp)]),
    case!(balancers::ports::protocol_changes, [Has(Tcp), Has(Udp)]),
    case!(balancers::ports::protocols_mix_on_one_port, [Has(MixedProtocols)]),
    case!(balancers::ports::node_ports_are_not_needed, [Has(WithoutNodePorts)]),
    case!(balancers::ports::port_limit_is_reached, [Has(MaxPorts)]),
    case!(balancers::ports::target_limit_is_reached, [Has(MaxTargets)]),
    case!(balancers::targets::targets_follow_the_nodes, [Has(LoadBalancers)]),
    case!(balancers::targets::target_change_is_small, [Has(LoadBalancers)]),
    case!(balancers::targets::a_leaving_node_is_drained, [Has(Drain)]),
    case!(balancers::targets::a_leaving_node_is_not_taken_in, [Has(LoadBalancers)]),
    case!(balancers::targets::without_draining_a_leaving_node_goes, [Lacks(Drain)]),
    case!(balancers::settings::source_ranges_are_enforced, [Has(SourceRanges)]),
    case!(balancers::settings::affinity_is_kept, [Has(SessionAffinity)]),
    case!(balancers::settings::local_policy_asks_the_node, [Has(LocalTrafficPolicy)]),
    case!(balancers::settings::proxy_protocol_is_spoken, [Has(ProxyProtocol)]),
    case!(balancers::settings::internal_stays_inside, [Has(Internal)]),
    case!(balancers::settings::idle_timeout_is_set, [Has(IdleTimeout)]),
    case!(balancers::settings::health_check_is_as_chosen, [Has(HealthCheckSettings)]),
    case!(balancers::settings::ipv4_address_is_given, [Has(Ipv4)]),
    case!(balancers::settings::ipv6_address_is_given, [Has(Ipv6)]),
    case!(balancers::settings::dual_stack_has_both, [Has(DualStack)]),
    case!(balancers::settings::first_family_is_served, [Has(FirstFamily)]),
    case!(balancers::settings::requested_address_is_given, [Has(RequestedAddress)]),
    case!(balancers::settings::a_group_shares_an_address, [Has(Shared)]),
    case!(balancers::settings::a_group_has_a_port_once, [Has(Shared)]),
    case!(balancers::settings::unclaimed_is_refused_without_a_call, [Has(LoadBalancers)]),
    case!(balancers::owners::foreign_is_untouched, [Has(LoadBalancers)]),
    case!(balancers::owners::clash_names_the_owner, [Has(UidMarks)]),
    case!(balancers::owners::clash_is_found_by_plan, [Has(LoadBalancers)]),
    case!(balancers::owners::clusters_do_not_meet, [Has(LoadBalancers)]),
    case!(balancers::owners::a_new_service_of_the_name_is_another, [Has(UidMarks)]),
    case!(balancers::owners::without_uid_marks_the_name_is_the_owner, [Lacks(UidMarks)]),
    case!(balancers::owners::only_adoption_takes_over, [Has(Adoption)]),
    case!(balancers::owners::the_owned_is_not_adopted, [Has(Adoption)]),
    case!(balancers::owners::shared_things_are_locked, [Has(LoadBalancers)]),
    case!(balancers::owners::retained_is_released, [Has(Retention)]),
    case!(balancers::trouble::creation_survives_every_crash, [Has(LoadBalancers)]),
    case!(balancers::trouble::update_survives_every_crash, [Has(LoadBalancers)]),
    case!(balancers::trouble::deletion_survives_every_crash, [Has(LoadBalancers)]),
    case!(balancers::trouble::release_survives_every_crash, [Has(Retention)]),
    case!(balancers::trouble::adoption_survives_every_crash, [Has(Adoption)]),
    case!(balancers::trouble::a_dropped_call_is_forgotten, [Has(LoadBalancers)]),
    case!(balancers::trouble::failed_observation_is_no_answer, [Has(LoadBalancers)]),
    case!(balancers::trouble::balancer_errors_have_a_kind, [Has(LoadBalancers)]),
    case!(balancers::trouble::balancer_throttling_carries_its_delay, [Has(LoadBalancers)]),
    case!(balancers::trouble::unanswered_create_makes_no_double, [Has(LoadBalancers)]),
    case!(balancers::trouble::late_listing_makes_no_double, [Has(LoadBalancers)]),
    case!(balancers::trouble::services_at_once_have_their_own, [Has(LoadBalancers)]),
    case!(routes::table::only_ours, [Has(Routes)]),
    case!(routes::table::routes_carry_the_cluster_uid, [Has(RouteUidMarks)]),
    case!(routes::table::created_route_is_listed, [Has(Routes)]),
    case!(routes::table::route_listing_is_complete, [Has(Routes)]),
    case!(routes::writes::create_is_idempotent, [Has(Routes)]),
    case!(routes::writes::taken_destination_is_told, [Has(Routes)]),
    case!(routes::writes::delete_is_idempotent, [Has(Routes)]),
    case!(routes::writes::delete_is_exact, [Has(Routes)]),
    case!(routes::writes::ipv4_ranges_are_led, [Has(RouteIpv4)]),
    case!(routes::writes::ipv6_ranges_are_led, [Has(RouteIpv6)]),
    case!(routes::writes::parallel_writes_all_count, [Has(ParallelRoutes)]),
    case!(routes::writes::locked_route_writes_do_not_overlap, [Has(Routes)]),
    case!(routes::batches::one_route_answer_each, [Has(Routes)]),
    case!(routes::batches::batched_routes_save_calls, [Has(BatchRoutes)]),
    case!(routes::writes::route_limit_is_told, [Has(MaxRoutes)]),
    case!(routes::machines::id_leads_before_name, [Has(Routes)]),
    case!(routes::machines::route_of_a_lost_machine_is_told, [Has(Routes)]),
    case!(routes::machines::route_to_a_missing_machine_is_an_error, [Has(Routes)]),
    case!(routes::trouble::route_writes_survive_every_crash, [Has(Routes)]),
    case!(routes::trouble::route_faults_are_told, [Has(Routes)]),
];
