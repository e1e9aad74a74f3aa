//! Load balancers: observe, plan and apply.

mod typed;

use std::collections::BTreeMap;

use async_trait::async_trait;
use bowline_core::annotations::{FieldError, LoadBalancerSettings};
use bowline_core::{
    ClusterName, DesiredLoadBalancer, LoadBalancerKey, LoadBalancerState, Opaque, Operation, Plan, Progress, Step,
};

use crate::Result;

pub use typed::TypedLoadBalancers;
pub(crate) use typed::downcast;

/// Outcome of a step that the cloud accepted.
#[derive(Debug, Clone, PartialEq)]
pub enum Applied<S = Opaque> {
    /// The step is complete. The new state must be observed.
    Done,
    /// The step is complete, and this is the whole state of the load balancer in the cloud; `None` if nothing is left.
    Observed(Option<LoadBalancerState<S>>),
    /// The step is complete, and these annotations must be written to the Service whatever happens next: they identify the load
    /// balancer if nothing else does. The new state must be observed.
    Annotated(BTreeMap<String, String>),
    /// The cloud accepted the change and is still working on it. The next step that is not [independent](Step::independent) is
    /// applied once a [poll](LoadBalancers::poll) reports the end of the operation.
    Started(Operation),
}

/// Manages the cloud's load balancers in three stages: observe, plan, apply. Planning makes no call.
///
/// A provider implements [`TypedLoadBalancers`], which has the same methods with the provider's own types, and gets this trait
/// from it.
///
/// ```text
///  observe(desired) ──► state ──► plan(desired, state) ──► Plan ──► apply(step) for each step, in order ──► observe again
/// ```
///
/// **Operations.** No method waits for the cloud to finish an operation.
///
/// - A state names the operation that is in progress (`pending`). The framework does not plan until it has ended.
/// - A step that finds an operation in progress writes nothing and fails with [`Error::pending`](crate::Error::pending). The
///   framework applies it again after the operation, followed by the rest of the plan, without another observation as long as the
///   desired state is unchanged.
/// - A step that starts an operation returns it ([`Applied::Started`]).
///
/// The framework polls with the operation's own interval, occupies no worker meanwhile, and fails the sync after the operation's
/// deadline. After the last step, and after any other error, it observes and plans again. If a plan has errors in addition to its
/// steps, the sync fails with the first of them after all steps are applied.
///
/// **Locks.** A plan names the resources that it shares with other Services ([`Plan::locks`]). The framework never applies two
/// plans with a common lock concurrently, and holds the locks until the plan is applied and its operations have ended. If another
/// Service held one of the locks after the observation, the framework observes and plans again before the first step.
///
/// **Annotations.** The framework writes the annotations of a state to the Service at the end of a sync, even of a failed one, and
/// those of [`Applied::Annotated`] as well. Before it deletes the load balancer of a Service that stays, it removes the
/// annotations that the state of the desired load balancer without spec has, because they refer to a resource that is about to be
/// deleted. An annotation in which the user names a load balancer that stays is not among them.
///
/// Rules, each with a conformance case of the same name.
///
/// Observation:
/// - `one_state_each`: `observe` returns one result for each desired load balancer, in the same order. Without a spec, it is `None`
///   if and only if the cloud has no resource for the load balancer. With a spec, there may be a state before any resource
///   exists: data that was looked up for the plan, with an empty status and without annotations.
/// - `observing_many_saves_calls`: with `batch_observe` above 1, observing several load balancers takes fewer calls than observing
///   each alone.
/// - `list_returns_every_owner`: `list` returns each key of this cluster for which the cloud has a resource, complete or not, once.
///   `is_owner` is true for its Service and for no other.
/// - `listed_key_is_enough_to_delete`: a listed key, without annotations, identifies the load balancer to be deleted.
/// - `list_reads_every_page`: `list` returns all load balancers, however many there are.
/// - `failed_observation_is_no_answer`: an unavailable cloud or an invalid response is an error, never `None`.
///
/// Plans and steps:
/// - `load_balancer_matches_desired_state`: after a sync, the load balancer is as desired and the status has its address. Deletion
///   leaves no resource.
/// - `plan_is_pure`: `plan` makes no call, and the same desired load balancer and state give the same plan.
/// - `applied_plan_is_empty`: after all steps and operations, `observe` and `plan` give an empty plan, whatever the order of
///   Nodes, ports and source ranges.
/// - `apply_is_repeatable`: a step that was already applied, or whose resource is already gone, succeeds. A step may be
///   interrupted at any time and applied again.
/// - `one_write_per_step`: a step makes at most one write call.
/// - `applied_state_matches_observe`: the state in [`Applied::Observed`] is the state that `observe` would return.
/// - `annotations_identify_the_load_balancer`: a Service with the annotations of its state keeps its load balancer and has an empty
///   plan. Without the annotations that are removed before a deletion, it gets a new load balancer.
/// - `warnings_are_valid_events`: reasons of warnings and of dispensable steps are CamelCase, warnings have a message, and
///   annotations have a prefix.
/// - `in_progress_is_reported`: while an operation is in progress, `plan` fails with `InProgress`. It returns no plan, not even an
///   empty one.
/// - `pending_operation_is_observed`: while an operation is in progress, the state names it with an ID, a description, a poll
///   interval and a deadline. Afterwards it names none.
/// - `started_operations_end`: a poll of an operation that a step started returns `Running` until the cloud has finished it.
/// - `failed_operation_is_no_success`: after an operation that the cloud failed, the poll fails or, if the operation is
///   [observable](Operation::observable), the state shows what is missing. No sync succeeds before the load balancer is as desired,
///   and deletion leaves no resource.
/// - `busy_step_writes_nothing`: a step that finds an operation in progress writes nothing and fails with
///   [`Error::pending`](crate::Error::pending).
/// - `foreign_values_are_refused`: a state or step of another provider is `Unexpected`, without a call.
/// - `nothing_left_is_an_empty_plan`: the plan for a desired load balancer without spec and a state of `None` is empty.
/// - `service_type_changes_and_back`: a load balancer that was deleted and is desired again is created again, without an effect on
///   other load balancers.
/// - `half_built_is_deleted`: after any number of creation steps, deletion leaves no resource.
/// - `half_deleted_is_rebuilt`: after any number of deletion steps, a sync restores the load balancer without duplicates.
/// - `deleting_twice_succeeds`: deleting a load balancer that another client already deleted succeeds.
///
/// Features of Services, each if it is claimed:
/// - `ports_follow_the_service`: ports can be added, removed and changed. The address stays.
/// - `port_names_change_nothing`: a changed port name does not recreate the port.
/// - `tcp_is_balanced`: TCP ports work.
/// - `udp_is_balanced`: UDP ports work.
/// - `sctp_is_balanced`: SCTP ports work.
/// - `protocol_changes`: a port can change its protocol. The address stays.
/// - `protocols_mix_on_one_port`: TCP and UDP on the same port number work independently.
/// - `node_ports_are_optional`: a Service without node ports gets a load balancer. It has no targets if the cloud cannot reach
///   Nodes in another way.
/// - `port_limit_is_reached`: a load balancer accepts the claimed maximum number of ports.
/// - `target_limit_is_reached`: a load balancer accepts the claimed maximum number of targets.
/// - `targets_follow_the_nodes`: targets can be added and removed, even all of them; with `needs_targets`, a load balancer keeps its
///   last targets instead, and the sync fails until there is a target.
/// - `target_change_is_small`: adding or removing a Node takes at most one write per port, and one for its machine.
/// - `a_leaving_node_is_drained`: a draining target gets no new connections, and can become active again.
/// - `a_leaving_node_is_not_added`: a draining target is kept if the load balancer has it, and is not added otherwise.
/// - `without_draining_a_leaving_node_is_removed`: if the cloud cannot drain, a draining target is removed.
/// - `source_ranges_are_enforced`: source ranges can be set, changed and removed.
/// - `session_affinity_is_applied`: session affinity can be enabled, with its timeout if the cloud supports one, and disabled.
/// - `local_policy_uses_the_health_check_port`: with the traffic policy Local, health checks use the Service's health check node
///   port; otherwise they do not.
/// - `proxy_protocol_is_applied`: the PROXY protocol can be enabled and disabled.
/// - `internal_is_not_public`: an internal load balancer is reachable only from inside the cloud's network.
/// - `idle_timeout_is_applied`: the idle timeout can be set and changed.
/// - `health_check_settings_are_applied`: path, port and interval of the health check are as configured.
/// - `ipv4_address_is_assigned`: an IPv4 Service gets an IPv4 address.
/// - `ipv6_address_is_assigned`: an IPv6 Service gets an IPv6 address.
/// - `dual_stack_has_both`: a dual-stack Service gets an address of each family.
/// - `first_family_is_served`: with `first_family`, a dual-stack Service gets an address of its first family.
/// - `requested_address_is_assigned`: the Service gets the address that the user requested. If another load balancer has it, that
///   is `AlreadyExists`.
/// - `share_group_has_one_address`: the Services of a share group have one address, which stays until the last one is deleted.
/// - `share_group_ports_are_unique`: a port that another Service of the group already has is `AlreadyExists`.
/// - `kind_is_as_declared`: a Service that requests a kind by its annotations gets that kind; one that requests none gets the
///   first.
/// - `kind_changes`: without `fixed_kind`, if a Service requests another kind, its load balancer is changed to that kind.
/// - `fixed_kind_is_kept`: with `fixed_kind`, if a Service requests another kind, its load balancer, the address and the kind stay.
///   The sync succeeds, or fails with `InvalidConfig` or `Unsupported`. If the Service requests its kind again, there is nothing to
///   do.
/// - `unsupported_is_rejected_without_a_call`: a feature that is not claimed, or a number above a limit, is `Unsupported` without a
///   call. With `checks_spec`, an unsupported field of the spec reaches the provider instead: `plan` fails with `Unsupported` or
///   `InvalidConfig`, or the plan has a warning.
///
/// Ownership:
/// - `foreign_is_untouched`: no plan contains a resource without this cluster's mark.
/// - `clash_names_the_owner`: with `marks_uid`, if such a resource blocks a name or an address, `plan` fails with `AlreadyExists`
///   and names its owner or, if it has none, the resource.
/// - `clash_is_found_by_plan`: if a name, address or port is taken, `plan` fails, not a step.
/// - `clusters_are_isolated`: a Service with the same name and UID in another cluster is a different Service. Its load balancer is
///   never reported, and if it has taken the name, that is `AlreadyExists`.
/// - `recreated_service_is_another`: with `marks_uid`, a Service with the same name and another UID is a different Service.
/// - `without_uid_marks_the_name_is_the_owner`: without `marks_uid`, a Service takes over what an earlier Service of the same name
///   left behind, and listed keys have no UID.
/// - `only_adoption_takes_over`: an existing resource without an owner is adopted only if `settings.adopt` names it.
/// - `owned_is_not_adopted`: a resource with another owner's mark is never adopted; that is `AlreadyExists`. Adopting a resource
///   that does not exist is `NotFound` or `InvalidConfig`.
/// - `shared_resources_are_locked`: plans of two Services that write the same resource, because they are in one share group or
///   adopt the same load balancer, have a lock in common ([`Plan::locks`]).
/// - `retained_is_released`: with the policy `Retain`, deletion removes this cluster's mark from the load balancer and changes
///   nothing else.
///
/// Errors and crashes:
/// - `creation_survives_every_crash`: if the manager crashes after any call, the next sync continues with what exists and creates
///   no duplicate.
/// - `update_survives_every_crash`: the same, and the address stays.
/// - `deletion_survives_every_crash`: the same, and no resource is left.
/// - `release_survives_every_crash`: a release that takes several steps is completed.
/// - `adoption_survives_every_crash`: an adoption that takes several steps is completed.
/// - `calls_are_cancel_safe`: a call may be dropped at any `await`. The next call continues with what exists.
/// - `load_balancer_errors_have_a_kind`: rejected credentials, missing permissions, throttling, an unavailable cloud and an invalid
///   response are errors of different kinds.
/// - `load_balancer_throttling_carries_its_delay`: if the cloud requests a delay, the retry advice of the error contains it.
/// - `lost_response_makes_no_duplicate`: if the response to a creation is lost, the error has an unknown outcome
///   ([`Error::is_outcome_unknown`](crate::Error::is_outcome_unknown)), and the next plan continues with what was created.
/// - `stale_listing_makes_no_duplicate`: a resource that was created but is not listed yet is not created again.
/// - `concurrent_services_are_isolated`: concurrent syncs of different Services do not affect each other.
#[async_trait]
pub trait LoadBalancers: Send + Sync {
    /// Returns the common settings of a Service, with those replaced that this cloud's own annotations or configuration determine:
    /// whether the load balancer is internal, which Nodes are its targets. Pure. `common` are the settings from the common
    /// annotations; the cloud's own take precedence.
    ///
    /// If an annotation makes the load balancer [unmanaged](LoadBalancerSettings::unmanaged), no call is made for the Service, not
    /// even for its deletion. Return the settings then whatever the other annotations contain: after an error the load balancer
    /// would be deleted with its Service. An invalid value of that annotation itself must also be an error of
    /// [`plan`](LoadBalancers::plan) without a spec, so that nothing is deleted until it is corrected.
    fn settings(
        &self,
        annotations: &BTreeMap<String, String>,
        common: LoadBalancerSettings,
    ) -> std::result::Result<LoadBalancerSettings, Vec<FieldError>> {
        let _ = annotations;
        Ok(common)
    }

    /// Returns the kind of load balancer that a Service requests, one of [`kinds`](crate::LoadBalancerCapabilities::kinds); `None`
    /// for the first. Pure. The capabilities of the kind decide which features the Service may request.
    fn kind(&self, desired: &DesiredLoadBalancer) -> Option<&'static str> {
        let _ = desired;
        None
    }

    /// Observes load balancers, at most [`batch_observe`](crate::LoadBalancerCapabilities::batch_observe) at once. Returns `None`
    /// for one without any resource in the cloud; a partly created one has a state. For a desired load balancer with a spec, a
    /// state may be returned before any resource exists, with data that was looked up for the plan.
    ///
    /// The state must contain everything that `plan` needs. Whatever has to be looked up for it follows from `desired`: a network
    /// or flavour that an annotation names, the subnets of the machines.
    async fn observe(&self, desired: &[DesiredLoadBalancer]) -> Vec<Result<Option<LoadBalancerState>>>;

    /// Returns the keys of this cluster for which the cloud has a resource with the cluster's mark. Where a mark is only the name of
    /// the load balancer, the key has this name as its `service`, and an empty namespace and UID.
    ///
    /// A listed key may come back without annotations and without a spec, in [`observe`](LoadBalancers::observe), `plan` and
    /// `apply`: `bowline orphans` deletes by it.
    async fn list(&self, cluster: &ClusterName) -> Result<Vec<LoadBalancerKey>>;

    /// Returns whether a listed key is that of this Service's load balancer. Pure. The desired load balancer has no spec, and its
    /// annotations may be invalid. Override it if marks are only names: compare the name that the Service's load balancer has, and
    /// what its annotations refer to.
    fn is_owner(&self, listed: &LoadBalancerKey, desired: &DesiredLoadBalancer) -> bool {
        listed.matches(&desired.key)
    }

    /// Returns the steps from `state` to the desired state. Pure.
    fn plan(&self, desired: &DesiredLoadBalancer, state: Option<&LoadBalancerState>) -> Result<Plan>;

    /// Applies one step, with at most one write call. Find a resource that an earlier step created by its mark: its ID was not
    /// known when the plan was made.
    ///
    /// If the cloud's response contains the whole state of the load balancer, return it as [`Applied::Observed`]. This saves an
    /// observation.
    ///
    /// `polled` is the result of the last [poll](LoadBalancers::poll), if an operation ended right before this step.
    async fn apply(&self, key: &LoadBalancerKey, step: &Step, polled: Option<&Opaque>) -> Result<Applied>;

    /// Returns whether an operation that a step [started](Applied::Started) has ended; an error if it failed. A provider that
    /// starts no operations need not implement it.
    async fn poll(&self, key: &LoadBalancerKey, operation: &Operation) -> Result<Progress> {
        let _ = (key, operation);
        Ok(Progress::Done(Opaque::default()))
    }
}
