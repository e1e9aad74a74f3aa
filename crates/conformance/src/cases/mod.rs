//! All cases, one for each rule.

mod calls;
mod faults;
mod listing;
mod load_balancers;
mod lookup;
mod loops;
mod pod_cidrs;
mod provider;
mod routes;
mod secrets;
mod webhooks;

use bowline_cloud::Capabilities;
use futures::future::BoxFuture;

use crate::capability::Capability::{
    AdditionalAnnotations, AdditionalLabels, Adoption, AssignPodCidrs, BatchLookup, BatchObserve, BatchRoutes, Drain,
    DualStack, FirstFamily, FixedKind, HealthCheckSettings, IdleTimeout, Instances, Internal, Ipv4, Ipv6, Kinds,
    Listing, LoadBalancers, LocalTrafficPolicy, LookupByName, MaxPorts, MaxRoutes, MaxTargets, MixedProtocols,
    Parallel, ParallelRoutes, PodCidrs, ProxyProtocol, RequestedAddress, Retention, RouteIpv4, RouteIpv6,
    RouteMachines, RouteUidMarks, Routes, Sctp, SessionAffinity, Shared, ShutdownState, SourceRanges, Tcp, Udp,
    UidMarks, UniqueIds, WithoutNodePorts, Zones,
};
use crate::capability::Need::{self, Has, Lacks};
use crate::context::{CaseContext, CaseResult};

/// Test of one rule of the provider contract.
pub struct Case {
    /// Name of the rule.
    pub name: &'static str,
    /// Capabilities that the provider must claim, or must not claim, for the rule to apply.
    pub needs: &'static [Need],
    pub(crate) run: for<'a> fn(&'a CaseContext) -> BoxFuture<'a, CaseResult>,
}

impl Case {
    /// First need that these capabilities do not meet with any kind of load balancer.
    pub fn unmet(&self, capabilities: &Capabilities) -> Option<Need> {
        Need::kinds_that_meet(self.needs, capabilities).err()
    }
}

/// All cases, in the order in which they run.
pub fn cases() -> &'static [Case] {
    CASES
}

/// Declares a case, implemented by the async function with the same name.
macro_rules! case {
    ($module:ident::$name:ident, [$($need:expr),*]) => {
        Case { name: stringify!($name), needs: &[$($need),*], run: |context| Box::pin($module::$name(context)) }
    };
    ($group:ident::$module:ident::$name:ident, [$($need:expr),*]) => {
        Case { name: stringify!($name), needs: &[$($need),*], run: |context| Box::pin($group::$module::$name(context)) }
    };
}

static CASES: &[Case] = &[
    case!(provider::capabilities_match_traits, []),
    case!(provider::start_is_repeatable, []),
    case!(provider::start_errors_have_a_kind, []),
    case!(provider::facts_only_lower_capabilities, []),
    case!(provider::check_calls_the_cloud, []),
    case!(provider::prefix_is_owned, [Has(Instances)]),
    case!(calls::foreign_404_is_no_answer, []),
    case!(calls::failed_calls_are_not_repeated, []),
    case!(calls::secrets_stay_secret, []),
    case!(calls::no_call_blocks_the_thread, []),
    case!(secrets::secrets_are_declared, []),
    case!(secrets::bad_secret_is_refused, []),
    case!(secrets::rotated_secret_is_used, []),
    case!(webhooks::webhooks_are_declared, []),
    case!(webhooks::empty_review_is_not_allowed, []),
    case!(webhooks::endpoints_are_declared, []),
    case!(loops::loops_are_declared, []),
    case!(loops::loops_follow_the_cluster, []),
    case!(loops::paused_nodes_stay_as_they_are, []),
    case!(loops::loop_plans_write_nothing, []),
    case!(loops::applied_loop_plan_is_empty, []),
    case!(loops::loops_are_repeatable, []),
    case!(loops::loops_write_nothing_foreign, []),
    case!(loops::loop_errors_have_a_kind, []),
    case!(loops::loops_survive_every_crash, []),
    case!(lookup::one_answer_each, [Has(Instances)]),
    case!(lookup::empty_lookup_makes_no_call, [Has(Instances)]),
    case!(lookup::stopped_is_not_gone, [Has(Instances)]),
    case!(lookup::stopped_is_reported, [Has(ShutdownState)]),
    case!(lookup::id_before_name, [Has(Instances)]),
    case!(lookup::id_is_recognised, [Has(Instances)]),
    case!(lookup::foreign_id_is_not_mine, [Has(Instances)]),
    case!(lookup::malformed_id_is_an_error, [Has(Instances)]),
    case!(lookup::name_finds_the_machine, [Has(LookupByName)]),
    case!(lookup::ambiguous_name_is_an_error, [Has(LookupByName)]),
    case!(lookup::without_name_lookup_nothing_is_found, [Lacks(LookupByName)]),
    case!(lookup::provider_id_is_stable, [Has(Instances)]),
    case!(lookup::deleted_then_recreated_same_name_is_another_id, [Has(UniqueIds)]),
    case!(lookup::addresses_keep_their_order, [Has(Instances)]),
    case!(lookup::zones_are_reported, [Has(Zones)]),
    case!(lookup::labels_are_reported, [Has(AdditionalLabels)]),
    case!(lookup::annotations_are_reported, [Has(AdditionalAnnotations)]),
    case!(lookup::mixed_batch, [Has(Instances)]),
    case!(lookup::batch_limit_is_honoured, [Has(BatchLookup)]),
    case!(lookup::concurrent_lookups, [Has(Parallel)]),
    case!(pod_cidrs::pod_cidrs_are_reported, [Has(PodCidrs)]),
    case!(pod_cidrs::assigned_pod_cidr_is_reported, [Has(AssignPodCidrs)]),
    case!(pod_cidrs::assignment_survives_every_crash, [Has(AssignPodCidrs)]),
    case!(pod_cidrs::assignment_errors_have_a_kind, [Has(AssignPodCidrs)]),
    case!(pod_cidrs::without_assignment_it_is_unsupported, [Lacks(AssignPodCidrs)]),
    case!(listing::listing_agrees_with_find, [Has(Listing)]),
    case!(listing::pages_are_complete, [Has(Listing)]),
    case!(listing::absence_is_as_declared, [Has(Listing)]),
    case!(listing::without_listing_it_is_unsupported, [Lacks(Listing)]),
    case!(faults::gone_is_certain, [Has(Instances)]),
    case!(faults::error_is_no_answer, [Has(Instances)]),
    case!(faults::errors_have_a_kind, [Has(Instances)]),
    case!(faults::listing_errors_have_a_kind, [Has(Listing)]),
    case!(faults::throttling_carries_its_delay, [Has(Instances)]),
    case!(load_balancers::observation::one_state_each, [Has(LoadBalancers)]),
    case!(load_balancers::observation::observing_many_saves_calls, [Has(BatchObserve)]),
    case!(load_balancers::observation::list_returns_every_owner, [Has(LoadBalancers)]),
    case!(load_balancers::observation::list_reads_every_page, [Has(LoadBalancers)]),
    case!(load_balancers::observation::listed_key_is_enough_to_delete, [Has(LoadBalancers)]),
    case!(load_balancers::lifecycle::load_balancer_matches_desired_state, [Has(LoadBalancers)]),
    case!(load_balancers::lifecycle::plan_is_pure, [Has(LoadBalancers)]),
    case!(load_balancers::lifecycle::applied_plan_is_empty, [Has(LoadBalancers)]),
    case!(load_balancers::lifecycle::apply_is_repeatable, [Has(LoadBalancers)]),
    case!(load_balancers::lifecycle::one_write_per_step, [Has(LoadBalancers)]),
    case!(load_balancers::lifecycle::applied_state_matches_observe, [Has(LoadBalancers)]),
    case!(load_balancers::reporting::annotations_identify_the_load_balancer, [Has(LoadBalancers)]),
    case!(load_balancers::reporting::warnings_are_valid_events, [Has(LoadBalancers)]),
    case!(load_balancers::lifecycle::in_progress_is_reported, [Has(LoadBalancers)]),
    case!(load_balancers::operations::pending_operation_is_observed, [Has(LoadBalancers)]),
    case!(load_balancers::operations::started_operations_end, [Has(LoadBalancers)]),
    case!(load_balancers::operations::failed_operation_is_no_success, [Has(LoadBalancers)]),
    case!(load_balancers::operations::busy_step_writes_nothing, [Has(LoadBalancers)]),
    case!(load_balancers::operations::foreign_values_are_refused, [Has(LoadBalancers)]),
    case!(load_balancers::lifecycle::nothing_left_is_an_empty_plan, [Has(LoadBalancers)]),
    case!(load_balancers::lifecycle::service_type_changes_and_back, [Has(LoadBalancers)]),
    case!(load_balancers::lifecycle::half_built_is_deleted, [Has(LoadBalancers)]),
    case!(load_balancers::lifecycle::half_deleted_is_rebuilt, [Has(LoadBalancers)]),
    case!(load_balancers::lifecycle::deleting_twice_succeeds, [Has(LoadBalancers)]),
    case!(load_balancers::kinds::kind_is_as_declared, [Has(LoadBalancers)]),
    case!(load_balancers::kinds::kind_changes, [Has(Kinds), Lacks(FixedKind)]),
    case!(load_balancers::kinds::fixed_kind_is_kept, [Has(Kinds), Has(FixedKind)]),
    case!(load_balancers::ports::ports_follow_the_service, [Has(LoadBalancers)]),
    case!(load_balancers::ports::port_names_change_nothing, [Has(LoadBalancers)]),
    case!(load_balancers::ports::tcp_is_balanced, [Has(Tcp)]),
    case!(load_balancers::ports::udp_is_balanced, [Has(Udp)]),
    case!(load_balancers::ports::sctp_is_balanced, [Has(Sctp)]),
    case!(load_balancers::ports::protocol_changes, [Has(Tcp), Has(Udp)]),
    case!(load_balancers::ports::protocols_mix_on_one_port, [Has(MixedProtocols)]),
    case!(load_balancers::ports::node_ports_are_optional, [Has(WithoutNodePorts)]),
    case!(load_balancers::ports::port_limit_is_reached, [Has(MaxPorts)]),
    case!(load_balancers::ports::target_limit_is_reached, [Has(MaxTargets)]),
    case!(load_balancers::targets::targets_follow_the_nodes, [Has(LoadBalancers)]),
    case!(load_balancers::targets::target_change_is_small, [Has(LoadBalancers)]),
    case!(load_balancers::targets::a_leaving_node_is_drained, [Has(Drain)]),
    case!(load_balancers::targets::a_leaving_node_is_not_added, [Has(LoadBalancers)]),
    case!(load_balancers::targets::without_draining_a_leaving_node_is_removed, [Lacks(Drain)]),
    case!(load_balancers::settings::source_ranges_are_enforced, [Has(SourceRanges)]),
    case!(load_balancers::settings::session_affinity_is_applied, [Has(SessionAffinity)]),
    case!(load_balancers::settings::local_policy_uses_the_health_check_port, [Has(LocalTrafficPolicy)]),
    case!(load_balancers::settings::proxy_protocol_is_applied, [Has(ProxyProtocol)]),
    case!(load_balancers::settings::internal_is_not_public, [Has(Internal)]),
    case!(load_balancers::settings::idle_timeout_is_applied, [Has(IdleTimeout)]),
    case!(load_balancers::settings::health_check_settings_are_applied, [Has(HealthCheckSettings)]),
    case!(load_balancers::settings::ipv4_address_is_assigned, [Has(Ipv4)]),
    case!(load_balancers::settings::ipv6_address_is_assigned, [Has(Ipv6)]),
    case!(load_balancers::settings::dual_stack_has_both, [Has(DualStack)]),
    case!(load_balancers::settings::first_family_is_served, [Has(FirstFamily)]),
    case!(load_balancers::settings::requested_address_is_assigned, [Has(RequestedAddress)]),
    case!(load_balancers::settings::share_group_has_one_address, [Has(Shared)]),
    case!(load_balancers::settings::share_group_ports_are_unique, [Has(Shared)]),
    case!(load_balancers::settings::unsupported_is_rejected_without_a_call, [Has(LoadBalancers)]),
    case!(load_balancers::owners::foreign_is_untouched, [Has(LoadBalancers)]),
    case!(load_balancers::owners::clash_names_the_owner, [Has(UidMarks)]),
    case!(load_balancers::owners::clash_is_found_by_plan, [Has(LoadBalancers)]),
    case!(load_balancers::owners::clusters_are_isolated, [Has(LoadBalancers)]),
    case!(load_balancers::owners::recreated_service_is_another, [Has(UidMarks)]),
    case!(load_balancers::owners::without_uid_marks_the_name_is_the_owner, [Lacks(UidMarks)]),
    case!(load_balancers::owners::only_adoption_takes_over, [Has(Adoption)]),
    case!(load_balancers::owners::owned_is_not_adopted, [Has(Adoption)]),
    case!(load_balancers::owners::shared_resources_are_locked, [Has(LoadBalancers)]),
    case!(load_balancers::owners::retained_is_released, [Has(Retention)]),
    case!(load_balancers::faults::creation_survives_every_crash, [Has(LoadBalancers)]),
    case!(load_balancers::faults::update_survives_every_crash, [Has(LoadBalancers)]),
    case!(load_balancers::faults::deletion_survives_every_crash, [Has(LoadBalancers)]),
    case!(load_balancers::faults::release_survives_every_crash, [Has(Retention)]),
    case!(load_balancers::faults::adoption_survives_every_crash, [Has(Adoption)]),
    case!(load_balancers::faults::calls_are_cancel_safe, [Has(LoadBalancers)]),
    case!(load_balancers::faults::failed_observation_is_no_answer, [Has(LoadBalancers)]),
    case!(load_balancers::faults::load_balancer_errors_have_a_kind, [Has(LoadBalancers)]),
    case!(load_balancers::faults::load_balancer_throttling_carries_its_delay, [Has(LoadBalancers)]),
    case!(load_balancers::faults::lost_response_makes_no_duplicate, [Has(LoadBalancers)]),
    case!(load_balancers::faults::stale_listing_makes_no_duplicate, [Has(LoadBalancers)]),
    case!(load_balancers::faults::concurrent_services_are_isolated, [Has(LoadBalancers)]),
    case!(routes::table::list_returns_only_our_routes, [Has(Routes)]),
    case!(routes::table::routes_carry_the_cluster_uid, [Has(RouteUidMarks)]),
    case!(routes::table::created_route_is_listed, [Has(Routes)]),
    case!(routes::table::route_listing_is_complete, [Has(Routes)]),
    case!(routes::writes::create_is_idempotent, [Has(Routes)]),
    case!(routes::writes::taken_destination_is_reported, [Has(Routes)]),
    case!(routes::writes::delete_is_idempotent, [Has(Routes)]),
    case!(routes::writes::delete_is_exact, [Has(Routes)]),
    case!(routes::writes::ipv4_routes_are_created, [Has(RouteIpv4)]),
    case!(routes::writes::ipv6_routes_are_created, [Has(RouteIpv6)]),
    case!(routes::writes::parallel_writes_all_take_effect, [Has(ParallelRoutes)]),
    case!(routes::writes::locked_route_writes_do_not_overlap, [Has(Routes)]),
    case!(routes::batches::one_route_answer_each, [Has(Routes)]),
    case!(routes::batches::batched_routes_save_calls, [Has(BatchRoutes)]),
    case!(routes::writes::route_limit_is_reported, [Has(MaxRoutes)]),
    case!(routes::machines::route_uses_id_before_name, [Has(Routes)]),
    case!(routes::machines::route_of_a_deleted_machine_is_reported, [Has(RouteMachines)]),
    case!(routes::machines::route_to_a_missing_machine_is_an_error, [Has(RouteMachines)]),
    case!(routes::faults::route_writes_survive_every_crash, [Has(Routes)]),
    case!(routes::faults::route_errors_have_a_kind, [Has(Routes)]),
];
