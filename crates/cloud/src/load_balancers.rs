//! Load balancers: observe, plan, apply.

mod typed;

use std::collections::BTreeMap;

use async_trait::async_trait;
use bowline_core::annotations::{LoadBalancerSettings, Mistake};
use bowline_core::{
    ClusterName, DesiredLoadBalancer, LoadBalancerKey, LoadBalancerState, Opaque, Operation, Plan, Progress, Step,
};

use crate::Result;

pub use typed::TypedLoadBalancers;

/// What came of a step.
#[derive(Debug, Clone, PartialEq)]
pub enum Applied<S = Opaque> {
    /// It is done; what the cloud has now must be observed.
    Done,
    /// It is done, and this is all that the cloud has for the balancer now; `None` if that is nothing.
    Observed(Option<LoadBalancerState<S>>),
    /// It is done; what the cloud has now must be observed, and whatever comes of that, the Service's annotations are to say
    /// this from now on. It is what a balancer can be found by if all else goes wrong.
    Noted(BTreeMap<String, String>),
    /// It is written, and the cloud is at work on it. The next step that is not [independent](Step::independent) is applied once a
    /// [poll](LoadBalancers::poll) says that the operation has ended.
    Started(Operation),
}

/// Balances load, in three moves of which only two touch the cloud.
///
/// A provider implements [`TypedLoadBalancers`], the same methods with types of its own, and has this trait by that.
///
/// ```text
///  observe(wish) ──► state ──► plan(wish, state) ──► Plan ──► apply(step) for each step, in order ──► observe again
/// ```
///
/// No method waits for the cloud. A state names the operation that the cloud is at work on (`pending`), and nothing is planned
/// until it has ended. A step that finds the cloud at work writes nothing and fails with
/// [`Error::pending`](crate::Error::pending); it is applied again once the operation has ended, and the rest of the plan after it,
/// without an observation in between as long as the desired state is the same. A step that begins an operation returns it
/// ([`Applied::Started`]). The framework polls at the operation's own pace, occupies no worker meanwhile, and fails the sync after
/// the operation's deadline. After the last step, and after any other error, the framework observes and plans again. A plan may have
/// problems beside its steps: the sync fails with the first of them once all steps are applied.
///
/// A plan names the things that other Services may use, too ([`Plan::locks`]). The framework applies no two plans with a common
/// lock at the same time, and holds the locks until the plan is applied and its operations have ended. If another Service had a
/// lock after the observation, it observes and plans again before the first step.
///
/// What a state says that the Service's annotations are to say is written to the Service at the end of a pass, also if it
/// fails, and so is what a step [notes](Applied::Noted). Before a balancer is removed whose Service stays, those that the
/// state of the wish without spec names are taken off it: what leads to something that is about to go. An annotation that
/// the user put there to name a balancer that stays is not among them.
///
/// Rules, each with a conformance case of the same name. About questions:
/// - `one_state_each`: `observe` gives one answer for each wish, in their order. For a wish without spec it is `None` if, and
///   only if, the cloud has nothing. For one with spec there may be a state before anything is made: what was looked up for
///   the plan, with an empty status and without annotations.
/// - `observing_many_saves_calls`: where `batch_observe` is more than one, several at once take fewer calls than each alone.
/// - `list_names_what_is_ours`: `list` names each key of this cluster once for which there is anything, half-built or whole.
/// - `list_reads_every_page`: however many load balancers there are, `list` names all of them.
/// - `failed_observation_is_no_answer`: a cloud that does not answer, or answers nonsense, is an error, never "nothing".
///
/// About plans and steps:
/// - `balancer_is_as_wished`: what is wished is so in the cloud, the status says where, and deletion leaves nothing.
/// - `plan_is_pure`: `plan` makes no call; the same wish and state give the same plan.
/// - `applied_plan_is_empty`: after all steps, and once the cloud is done with them, `observe` and `plan` give an empty plan,
///   whatever the order of nodes, ports and ranges.
/// - `apply_is_repeatable`: a step that was carried out already, or whose thing is gone already, succeeds. It may be cut
///   off at any time and come again.
/// - `one_write_per_step`: a step makes at most one writing call.
/// - `seen_is_what_observe_says`: what [`Applied::Observed`] tells is what `observe` would.
/// - `annotations_lead_back`: a Service that says what its state says is to be said has the same balancer and nothing to do;
///   once those are taken off that its removal takes off, it gets a new one.
/// - `remarks_can_be_told`: reasons of notices and of dispensable steps are CamelCase words, notices have a message, and
///   annotations have a prefix.
/// - `in_progress_is_told`: while the cloud is at work, there is no plan and no empty plan but `InProgress`.
/// - `pending_is_observed`: while the cloud is at work on a load balancer, its state names the operation, with an ID, words, a pause
///   between polls and a deadline; afterwards it names none.
/// - `started_operations_end`: a poll of an operation that a step has started says `Running` until the cloud has finished.
/// - `failed_operation_is_no_success`: after an operation that the cloud fails, a poll fails or, if it is
///   [observable](Operation::observable), the state shows what is missing. No sync succeeds before the load balancer is as desired,
///   and deletion leaves nothing.
/// - `busy_step_writes_nothing`: a step that finds the cloud at work writes nothing and fails with
///   [`Error::pending`](crate::Error::pending).
/// - `foreign_values_are_refused`: a state or step of another provider is `Unexpected`, without a call.
/// - `nothing_left_is_nothing_to_do`: for a wish without spec and a state of `None` the plan is empty.
/// - `type_changes_and_back`: a balancer that is removed and wished again is made again, and others do not notice.
/// - `half_built_is_deleted`: after any number of steps of creation, deletion leaves nothing.
/// - `half_deleted_is_rebuilt`: after any number of steps of deletion, the balancer can be made whole, without doubles.
/// - `gone_is_deleted`: to delete what somebody else deleted already is a success.
///
/// About what a Service wishes, each if it is claimed:
/// - `ports_follow_the_service`: ports come, go and change; the address stays.
/// - `port_names_change_nothing`: the name of a port is no reason to build it anew.
/// - `tcp_is_balanced`: each protocol that is claimed works, first of all TCP.
/// - `udp_is_balanced`: the same for UDP.
/// - `sctp_is_balanced`: the same for SCTP.
/// - `protocol_changes`: a port may change its protocol; the address stays.
/// - `protocols_mix_on_one_port`: TCP and UDP on the same number do not disturb each other.
/// - `node_ports_are_not_needed`: a Service without node ports has a balancer as well, which leads nowhere if there is no other
///   way to a node.
/// - `port_limit_is_reached`: as many ports as claimed fit on a balancer.
/// - `target_limit_is_reached`: as many targets as claimed fit behind a balancer.
/// - `targets_follow_the_nodes`: nodes come and go, all of them if need be.
/// - `target_change_is_small`: a node that comes or goes costs at most one write for each port, and one for its machine.
/// - `a_leaving_node_is_drained`: a target that is draining gets no new connections, and may come back.
/// - `a_leaving_node_is_not_taken_in`: a target that is draining is kept where the balancer has it, and not added where it
///   does not.
/// - `without_draining_a_leaving_node_goes`: where nothing can be drained, a target that is leaving is left out.
/// - `source_ranges_are_enforced`: the ranges that may connect can be set, changed and removed.
/// - `affinity_is_kept`: affinity can be turned on, with its timeout where the cloud has one, and off.
/// - `local_policy_asks_the_node`: with the policy Local, nodes are asked on the Service's health check port, else not.
/// - `proxy_protocol_is_spoken`: the PROXY protocol can be turned on and off.
/// - `internal_stays_inside`: an internal balancer is one.
/// - `idle_timeout_is_set`: the idle timeout can be set and changed.
/// - `health_check_is_as_chosen`: path, port and interval of the check are as the user chose.
/// - `ipv4_address_is_given`: a Service of this family has such an address.
/// - `ipv6_address_is_given`: a Service of this family has such an address.
/// - `dual_stack_has_both`: a Service of two families has an address of each.
/// - `first_family_is_served`: where `first_family` is claimed, a Service of two families has an address of the first.
/// - `requested_address_is_given`: the address that the user asked for is given; if it is another's, that is
///   `AlreadyExists`.
/// - `a_group_shares_an_address`: Services of a share group have one address, which stays until the last one goes.
/// - `a_group_has_a_port_once`: a port that another of the group has is `AlreadyExists`.
/// - `kind_is_as_declared`: a Service that requests a kind by its annotations gets that kind; one that requests none, the first.
/// - `kind_changes`: the load balancer of a Service that requests another kind becomes one of that kind.
/// - `unclaimed_is_refused_without_a_call`: what is not claimed, or is beyond a limit, is `Unsupported` before any call.
///
/// About owners:
/// - `foreign_is_untouched`: a thing without our mark appears in no plan.
/// - `clash_names_the_owner`: where UIDs are marked: if such a thing stands in the way, `plan` fails with `AlreadyExists` and names its owner or,
///   if it has none, the thing.
/// - `clash_is_found_by_plan`: if a name, address or port is taken, `plan` fails, not a step of it.
/// - `clusters_do_not_meet`: a Service of the same name and UID in another cluster is another. Nothing is told of its
///   balancer, and if the name is taken by it, that is `AlreadyExists`.
/// - `a_new_service_of_the_name_is_another`: where UIDs are marked, so is a Service of the same name with another UID.
/// - `without_uid_marks_the_name_is_the_owner`: where they are not, a Service of the same name has what an earlier one left,
///   and what is listed has no UID.
/// - `only_adoption_takes_over`: an existing thing without an owner becomes ours only if `settings.adopt` names it.
/// - `the_owned_is_not_adopted`: one that carries another owner's mark never does: that is `AlreadyExists`; to adopt what
///   does not exist is `NotFound` or `InvalidConfig`.
/// - `shared_things_are_locked`: plans of two Services that write the same thing, because they are of one share group or adopt
///   the same load balancer, have a lock in common ([`Plan::locks`]).
/// - `retained_is_released`: with the policy `Retain`, a balancer that is to go loses our mark and nothing else.
///
/// About trouble:
/// - `creation_survives_every_crash`: if the manager crashes after any call, the next one finds what is there and leaves
///   nothing doubled.
/// - `update_survives_every_crash`: the same, and the address stays.
/// - `deletion_survives_every_crash`: the same, and nothing is left.
/// - `release_survives_every_crash`: what is let go in several steps is let go in the end, all of it.
/// - `adoption_survives_every_crash`: what is taken over in several steps is taken over in the end, all of it.
/// - `a_dropped_call_is_forgotten`: a call may be dropped at any `await`; the next one finds what is there.
/// - `balancer_errors_have_a_kind`: refused credentials, refused rights, throttling, a broken cloud and a garbled answer
///   are told apart.
/// - `balancer_throttling_carries_its_delay`: the delay that the cloud asks for is passed on as advice.
/// - `unanswered_create_makes_no_double`: if the answer to a creation is lost, the error says that its outcome is unknown
///   ([`Error::is_outcome_unknown`](crate::Error::is_unanswered)), and the next plan continues with what was created.
/// - `late_listing_makes_no_double`: what was made and is not shown yet is not made again.
/// - `services_at_once_have_their_own`: Services that are worked on at the same time do not get in each other's way.
#[async_trait]
pub trait LoadBalancers: Send + Sync {
    /// What a Service wishes in words that every cloud shares, where this cloud's own annotations or configuration say
    /// something about that, too: whether it is internal, which Nodes are behind it. Pure. Where the cloud's own say
    /// something, they count.
    fn settings(
        &self,
        annotations: &BTreeMap<String, String>,
        common: LoadBalancerSettings,
    ) -> std::result::Result<LoadBalancerSettings, Vec<Mistake>> {
        let _ = annotations;
        Ok(common)
    }

    /// Kind of the load balancer that this Service requests, one of [`kinds`](crate::LoadBalancerCapabilities::kinds); `None` is the
    /// first of them. Pure. It decides what the Service may ask for.
    fn kind(&self, desired: &DesiredLoadBalancer) -> Option<&'static str> {
        let _ = desired;
        None
    }

    /// What the cloud has for these; `None` if nothing at all is left or was ever made. Half-built counts as something. What
    /// was looked up for a plan may be told before there is anything, if a balancer is wished.
    ///
    /// The wish is there for what has to be looked up because of it: a network or flavour that an annotation names, the
    /// subnets of the machines. All that `plan` has to know is in the state. There are at most as many wishes as
    /// [`batch_observe`](crate::LoadBalancerCapabilities::batch_observe) says.
    async fn observe(&self, wanted: &[DesiredLoadBalancer]) -> Vec<Result<Option<LoadBalancerState>>>;

    /// All keys of this cluster for which the cloud has anything with our mark.
    async fn list(&self, cluster: &ClusterName) -> Result<Vec<LoadBalancerKey>>;

    /// How to get from `state` to what is wished.
    fn plan(&self, desired: &DesiredLoadBalancer, state: Option<&LoadBalancerState>) -> Result<Plan>;

    /// Carries out one step: at most one writing call. A thing that an earlier step has made is found by its mark, because
    /// its ID was not known when the plan was made.
    ///
    /// What the cloud has for this balancer afterwards, if its answer tells all of it: then nobody need ask. `None` if it
    /// does not.
    ///
    /// `polled` is what the last [poll](LoadBalancers::poll) returned, if an operation has ended right before this step.
    async fn apply(&self, key: &LoadBalancerKey, step: &Step, polled: Option<&Opaque>) -> Result<Applied>;

    /// Whether an operation that a step has [started](Applied::Started) has ended. One that has failed is an error. A provider
    /// that starts none need not implement it.
    async fn poll(&self, key: &LoadBalancerKey, operation: &Operation) -> Result<Progress> {
        let _ = (key, operation);
        Ok(Progress::Done(Opaque::default()))
    }
}
