//! Flaws in load balancers.

use std::collections::{BTreeMap, BTreeSet};

use bowline_cloud::{Applied, Capabilities, Error, ErrorKind, LoadBalancerCapabilities, LoadBalancerKind, Result};
use bowline_core::annotations::DeletionPolicy;
use bowline_core::{
    DesiredLoadBalancer, IpFamily, LoadBalancerKey, LoadBalancerState, Opaque, Operation, Plan, Progress, Protocol,
    SessionAffinity, Step, TargetSet, Verb, Warning,
};
use futures::FutureExt;

use crate::flaws::broken::Break::{
    Apply, Claims, Error as Failure, Key, Keys, Kind, Observe, Owner, Plan as Planned, Poll, Settings, Spec,
};
use crate::flaws::broken::{Broken, Flaw, fails, flaws, later};

fn group(claims: &mut Capabilities) -> &mut LoadBalancerCapabilities {
    claims.load_balancers.as_mut().unwrap()
}

/// Capabilities of the first kind of load balancer.
fn claims(claims: &mut Capabilities) -> &mut LoadBalancerKind {
    group(claims).kinds.first_mut().unwrap()
}

/// Empty plan if the Service requests another kind than before.
fn kept(it: &Broken, desired: &DesiredLoadBalancer, plan: Result<Plan>) -> Result<Plan> {
    let is_other = |last: &DesiredLoadBalancer| last.settings.internal != desired.settings.internal;
    let changes = desired.spec.is_some() && it.memory().wanted.get(&desired.key.uid).is_some_and(is_other);
    if changes { Ok(Plan::default()) } else { plan }
}

fn gone(desired: &DesiredLoadBalancer) -> DesiredLoadBalancer {
    DesiredLoadBalancer { spec: None, ..desired.clone() }
}

/// Plan that deletes and creates everything.
fn rebuilt(it: &Broken, desired: &DesiredLoadBalancer, state: Option<&LoadBalancerState>) -> Result<Plan> {
    let mut plan = it.balancers().plan(&gone(desired), state)?;
    plan.steps.extend(it.balancers().plan(desired, None)?.steps);
    Ok(plan)
}

/// Deletes the load balancer that causes a clash, and makes the caller observe again.
fn overwrite_clash(it: &Broken, desired: &DesiredLoadBalancer, plan: Result<Plan>) -> Result<Plan> {
    let Err(error) = &plan else { return plan };
    let text = error.to_string();
    let others = it.cloud.balancers().into_iter().filter(|one| one.owner.as_ref() != Some(&desired.key));
    let mut clashing = others.filter(|one| text.contains(&format!("{:?}", one.name)));
    match clashing.next() {
        Some(one) if error.kind() == ErrorKind::AlreadyExists => {
            it.cloud.delete_balancer(&one.id).unwrap();
            fails(ErrorKind::Conflict)
        }
        _ => plan,
    }
}

async fn real(it: &Broken, key: &LoadBalancerKey, step: &Step) -> Result<Applied> {
    it.balancers().apply(key, step, None).await
}

/// Makes a second call after the step; if that fails, a resource is left.
async fn in_two_calls(it: &Broken, key: &LoadBalancerKey, step: &Step) -> Result<Applied> {
    let applied = real(it, key, step).await?;
    it.call().await.inspect_err(|_| it.leave())?;
    Ok(applied)
}

/// Key with only a name, which is derived from the UID.
fn named(key: &LoadBalancerKey) -> LoadBalancerKey {
    let (namespace, uid) = (String::new(), String::new());
    LoadBalancerKey { cluster: key.cluster.clone(), namespace, service: format!("lb-{}", key.uid), uid }
}

/// Replaces a key with only a name by the key that the name was derived from.
fn unnamed(it: &Broken, key: &mut LoadBalancerKey) {
    let owner = it.memory().wanted.values().map(|desired| &desired.key).find(|owner| named(owner) == *key).cloned();
    *key = owner.unwrap_or_else(|| key.clone());
}

/// A correct provider whose marks are only names.
pub(crate) static NAMES: Flaw = Flaw {
    name: "marks with names",
    cases: &[],
    breaks: &[
        Key(unnamed),
        Keys(later!(|it, cluster| { Ok(it.balancers().list(cluster).await?.iter().map(named).collect()) })),
        Owner(|listed, desired| *listed == named(&desired.key)),
    ],
};

/// A correct provider for one cluster, the first one that it sees.
pub(crate) static ONE_CLUSTER: Flaw = Flaw {
    name: "one cluster",
    cases: &[],
    breaks: &[Key(|it, key| {
        let first = it.memory().wanted.values().next().map(|desired| desired.key.cluster.clone());
        key.cluster = first.unwrap_or_else(|| key.cluster.clone());
    })],
};

/// A correct provider whose load balancers keep their kind.
pub(crate) static FIXED_KIND: Flaw = Flaw {
    name: "fixed kinds",
    cases: &[],
    breaks: &[Claims(|all| group(all).fixed_kind = true), Planned(|it, desired, _, plan| kept(it, desired, plan))],
};

/// A correct provider that checks the spec itself: it warns of session affinity and rejects everything else.
pub(crate) static CHECKS_SPEC: Flaw = Flaw {
    name: "checks the spec",
    cases: &[],
    breaks: &[
        Claims(|all| (claims(all).checks_spec, claims(all).session_affinity) = (true, false)),
        Planned(|_, desired, _, plan| {
            let Some(spec) = &desired.spec else { return plan };
            if spec.ports.iter().any(|port| port.protocol == Protocol::Sctp || port.node_port.is_none()) {
                return fails(ErrorKind::InvalidConfig);
            }
            let mut plan = plan?;
            if spec.session_affinity != SessionAffinity::None {
                let message = "session affinity is ignored".to_owned();
                plan.warnings.push(Warning { reason: "SessionAffinityIgnored".to_owned(), message });
            }
            Ok(plan)
        }),
    ],
};

flaws! {
    "observes in another order", [one_state_each],
        Observe(later!(|it, wanted| { it.balancers().observe(wanted).await.into_iter().rev().collect() }));
    "observes one by one", [observing_many_saves_calls],
        Observe(later!(|it, wanted| {
            let mut states = Vec::new();
            for desired in wanted {
                states.extend(it.balancers().observe(std::slice::from_ref(desired)).await);
            }
            states
        }));
    "lists only complete load balancers", [list_returns_every_owner],
        Keys(later!(|it, cluster| {
            let mut keys = it.balancers().list(cluster).await?;
            keys.retain(|key| it.balancer(key).is_some());
            Ok(keys)
        }));
    "lists only the first page of load balancers", [list_reads_every_page],
        Keys(later!(|it, cluster| { Ok(it.balancers().list(cluster).await?.into_iter().take(7).collect()) }));
    "takes every Service for the owner", [list_returns_every_owner], Owner(|_, _| true);
    "lists keys that it does not find", [listed_key_is_enough_to_delete],
        Keys(later!(|it, cluster| { Ok(it.balancers().list(cluster).await?.iter().map(named).collect()) })),
        Owner(|listed, desired| *listed == named(&desired.key));
    "lists all clusters", [clusters_are_isolated],
        Keys(later!(|it, _asked| { Ok(it.cloud.balancers().into_iter().filter_map(|one| one.owner).collect()) }));
    "ignores the failure of its second call", [deletion_survives_every_crash],
        Observe(later!(|it, wanted| {
            let states = it.balancers().observe(wanted).await;
            let is_whole = it.call().await.is_ok();
            states.into_iter().map(|state| state.map(|state| state.filter(|_| is_whole))).collect()
        }));
    "reports an error as an absent load balancer", [failed_observation_is_no_answer],
        Observe(later!(|it, wanted| {
            let states = it.balancers().observe(wanted).await;
            states.into_iter().map(|state| state.or(Ok(None))).collect()
        }));
    "uses only the first target", [load_balancer_matches_desired_state], Spec(|_, _, spec| spec.targets.edit(|targets| targets.truncate(1)));
    "makes a call to plan", [plan_is_pure], Planned(|it, _, _, plan| { drop(it.call().now_or_never()); plan });
    "depends on the order of ports", [applied_plan_is_empty],
        Planned(|it, desired, _, plan| match &desired.spec {
            Some(spec) if !spec.ports.is_sorted_by_key(|port| port.port) => it.balancers().plan(desired, None),
            _ => plan,
        });
    "fails to create a second time", [apply_is_repeatable],
        Apply(later!(|it, key, step| {
            match (step.verb, it.balancer(key)) {
                (Verb::Create, Some(_)) => fails(ErrorKind::AlreadyExists),
                _ => real(it, key, step).await,
            }
        }));
    "writes twice", [one_write_per_step],
        Apply(later!(|it, key, step| { real(it, key, step).await?; real(it, key, step).await }));
    "returns the state before the step", [applied_state_matches_observe],
        Apply(later!(|it, key, step| {
            let before = it.balancers().observe(&[it.last(key).unwrap()]).await.pop().unwrap()?;
            real(it, key, step).await.map(|_| Applied::Observed(before))
        }));
    "ignores work in progress", [in_progress_is_reported],
        Planned(|_, _, _, plan| match plan {
            Err(error) if error.kind() == ErrorKind::InProgress => Ok(Plan::default()),
            plan => plan,
        });
    "hides the pending operation", [pending_operation_is_observed],
        Observe(later!(|it, wanted| {
            let mut states = it.balancers().observe(wanted).await;
            for state in states.iter_mut().flatten().flatten() {
                state.pending = None;
            }
            states
        }));
    "has operations without a deadline", [pending_operation_is_observed started_operations_end],
        Observe(later!(|it, wanted| {
            let mut states = it.balancers().observe(wanted).await;
            for state in states.iter_mut().flatten().flatten() {
                if let Some(pending) = &mut state.pending {
                    pending.deadline = std::time::Duration::ZERO;
                }
            }
            states
        })),
        Apply(later!(|it, key, step| {
            Ok(match real(it, key, step).await? {
                Applied::Started(operation) => {
                    Applied::Started(Operation { deadline: std::time::Duration::ZERO, ..operation })
                }
                applied => applied,
            })
        }));
    "reports a running operation as ended", [started_operations_end], Poll(|_| Ok(Progress::Done(Opaque::default())));
    "reports a failed operation as ended", [failed_operation_is_no_success],
        Apply(later!(|it, key, step| {
            Ok(match real(it, key, step).await? {
                Applied::Started(operation) => Applied::Started(Operation { observable: false, ..operation }),
                applied => applied,
            })
        })),
        Poll(|progress| progress.or(Ok(Progress::Done(Opaque::default()))));
    "takes an accepted request for its result", [failed_operation_is_no_success],
        Planned(|it, desired, _, plan| match it.memory().created.contains(&desired.key.uid) {
            true if desired.spec.is_some() => Ok(Plan::default()),
            _ => plan,
        }),
        Apply(later!(|it, key, step| {
            let applied = real(it, key, step).await?;
            if step.verb == Verb::Create && step.kind == "load balancer" {
                it.memory().created.insert(key.uid.clone());
            }
            Ok(applied)
        }));
    "plans one step at a time and returns no pending operation", [busy_step_writes_nothing],
        Planned(|_, _, _, plan| {
            let mut plan = plan?;
            plan.steps.truncate(1);
            Ok(plan)
        }),
        Failure(|error| match error.kind() {
            ErrorKind::InProgress => Error::new(ErrorKind::InProgress, error.operation(), error.message()),
            _ => error,
        });
    "returns no pending operation", [busy_step_writes_nothing],
        Failure(|error| match error.kind() {
            ErrorKind::InProgress => Error::new(ErrorKind::InProgress, error.operation(), error.message()),
            _ => error,
        });
    "accepts states of other providers", [foreign_values_are_refused],
        Planned(|it, desired, _, plan| match plan {
            Err(error) if error.kind() == ErrorKind::Unexpected => it.balancers().plan(desired, None),
            plan => plan,
        });
    "plans a creation to delete an absent load balancer", [nothing_left_is_an_empty_plan],
        Planned(|it, desired, state, plan| match (it.last(&desired.key), state) {
            (Some(last), None) if desired.spec.is_none() => it.balancers().plan(&last, None),
            _ => plan,
        });
    "deletes in the wrong order", [service_type_changes_and_back],
        Planned(|_, desired, _, plan| {
            let mut plan = plan?;
            if desired.spec.is_none() {
                plan.steps.reverse();
            }
            Ok(plan)
        });
    "leaves half-built load balancers", [half_built_is_deleted],
        Planned(|it, desired, _, plan| match it.balancer(&desired.key) {
            None if desired.spec.is_none() => Ok(Plan::default()),
            _ => plan,
        });
    "builds only once", [half_deleted_is_rebuilt],
        Planned(|_, _, state, plan| {
            let mut plan = plan?;
            plan.steps.retain(|step| state.is_none() || step.verb != Verb::Create);
            Ok(plan)
        });
    "fails to delete a deleted load balancer", [deleting_twice_succeeds],
        Apply(later!(|it, key, step| {
            match (step.verb, it.balancer(key)) {
                (Verb::Delete, None) => fails(ErrorKind::NotFound),
                _ => real(it, key, step).await,
            }
        }));
    "keeps old ports", [ports_follow_the_service],
        Spec(|it, key, spec| {
            let last = it.last(key).and_then(|last| last.spec).map(|last| last.ports.clone()).unwrap_or_default();
            let new = spec.ports.clone();
            spec.ports.extend(last.into_iter().filter(|old| !new.iter().any(|new| new.port == old.port)));
        });
    "keeps old node ports", [ports_follow_the_service],
        Spec(|it, key, spec| {
            let Some(last) = it.last(key).and_then(|last| last.spec) else { return };
            for port in &mut spec.ports {
                let old = last.ports.iter().find(|old| old.port == port.port);
                port.node_port = old.map_or(port.node_port, |old| old.node_port);
            }
        });
    "rebuilds for port names", [port_names_change_nothing],
        Planned(|it, desired, state, plan| {
            let names = |desired: &DesiredLoadBalancer| -> Option<Vec<String>> {
                Some(desired.spec.as_ref()?.ports.iter().map(|port| port.name.clone()).collect())
            };
            match it.last(&desired.key) {
                Some(last) if desired.spec.is_some() && names(&last) != names(desired) => rebuilt(it, desired, state),
                _ => plan,
            }
        });
    "uses UDP only", [tcp_is_balanced],
        Spec(|_, _, spec| spec.ports.iter_mut().for_each(|port| port.protocol = Protocol::Udp));
    "uses TCP only", [udp_is_balanced sctp_is_balanced protocol_changes],
        Claims(|all| claims(all).sctp = true),
        Spec(|_, _, spec| spec.ports.iter_mut().for_each(|port| port.protocol = Protocol::Tcp));
    "ignores the protocol of a port", [protocols_mix_on_one_port], Spec(|_, _, spec| spec.ports.dedup_by_key(|port| port.port));
    "needs node ports", [node_ports_are_optional], Claims(|all| claims(all).without_node_ports = true);
    "claims one port too many", [port_limit_is_reached],
        Claims(|all| claims(all).max_ports = Some(4)),
        Planned(|_, desired, _, plan| match &desired.spec {
            Some(spec) if spec.ports.len() > 3 => fails(ErrorKind::QuotaExceeded),
            _ => plan,
        });
    "claims one target too many", [target_limit_is_reached],
        Claims(|all| claims(all).max_targets = Some(4)),
        Planned(|_, desired, _, plan| match &desired.spec {
            Some(spec) if spec.targets.len() > 3 => fails(ErrorKind::QuotaExceeded),
            _ => plan,
        });
    "keeps the last targets", [targets_follow_the_nodes],
        Spec(|it, key, spec| {
            let last = it.last(key).and_then(|last| last.spec);
            if let Some(last) = last.filter(|_| spec.targets.is_empty()) {
                spec.targets = last.targets.clone();
            }
        });
    "rebuilds for Nodes", [target_change_is_small],
        Planned(|it, desired, state, plan| {
            let targets = |desired: &DesiredLoadBalancer| desired.spec.as_ref().map(|spec| spec.targets.clone());
            match it.last(&desired.key) {
                Some(last) if desired.spec.is_some() && targets(&last) != targets(desired) => rebuilt(it, desired, state),
                _ => plan,
            }
        });
    "removes draining targets", [a_leaving_node_is_drained],
        Spec(|_, _, spec| spec.targets.edit(|targets| targets.retain(|target| !target.draining)));
    "adds draining targets", [a_leaving_node_is_not_added],
        Spec(|_, _, spec| spec.targets.edit(|all| all.iter_mut().for_each(|target| target.draining = false)));
    "drains without claiming it", [without_draining_a_leaving_node_is_removed], Claims(|all| claims(all).drain = false);
    "never removes source ranges", [source_ranges_are_enforced],
        Spec(|it, key, spec| {
            let last = it.last(key).and_then(|last| last.spec);
            if let Some(last) = last.filter(|_| spec.source_ranges.is_empty()) {
                spec.source_ranges = last.source_ranges.clone();
            }
        });
    "ignores the timeout of session affinity", [session_affinity_is_applied],
        Spec(|_, _, spec| {
            if spec.session_affinity != SessionAffinity::None {
                spec.session_affinity = SessionAffinity::ClientIp { timeout_seconds: 10800 };
            }
        });
    "never removes the health check", [local_policy_uses_the_health_check_port],
        Spec(|it, key, spec| {
            let last = it.last(key).and_then(|last| last.spec);
            spec.health_check = spec.health_check.take().or_else(|| last?.health_check.clone());
        });
    "ignores the PROXY protocol", [proxy_protocol_is_applied], Settings(|_, settings| settings.proxy_protocol = None);
    "shows its token in internal load balancers", [secrets_stay_secret],
        Observe(later!(|it, wanted| {
            let mut states = it.balancers().observe(wanted).await;
            let internal = wanted.iter().zip(&mut states).filter(|(desired, _)| desired.settings.internal);
            for state in internal.filter_map(|(_, state)| state.as_mut().ok()?.as_mut()) {
                state.annotations.insert("local.example/token".to_owned(), crate::flaws::bench::SECRET.to_owned());
            }
            states
        }));
    "reports any 404 as an absent internal load balancer", [foreign_404_is_no_answer],
        Observe(later!(|it, wanted| {
            let states = it.balancers().observe(wanted).await;
            let is_absent = |desired: &DesiredLoadBalancer, error: &Error| {
                desired.settings.internal && error.to_string().contains("404")
            };
            let edited = |(desired, state): (&DesiredLoadBalancer, Result<_>)| match state {
                Err(error) if is_absent(desired, &error) => Ok(None),
                state => state,
            };
            wanted.iter().zip(states).map(edited).collect()
        }));
    "knows one kind", [kind_is_as_declared], Kind(|_| None);
    "keeps the kind", [kind_changes], Planned(|it, desired, _, plan| kept(it, desired, plan));
    "changes a fixed kind", [fixed_kind_is_kept], Claims(|all| group(all).fixed_kind = true);
    "ignores unsupported fields of the spec", [unsupported_is_rejected_without_a_call],
        Claims(|all| (claims(all).checks_spec, claims(all).session_affinity) = (true, false));
    "ignores internal", [internal_is_not_public], Settings(|_, settings| settings.internal = false);
    "ignores the idle timeout", [idle_timeout_is_applied], Settings(|_, settings| settings.idle_timeout = None);
    "ignores health check settings", [health_check_settings_are_applied],
        Settings(|_, settings| settings.health_check_path = None);
    "assigns IPv6 only", [ipv4_address_is_assigned], Spec(|_, _, spec| spec.ip_families = vec![IpFamily::IPv6]);
    "assigns IPv4 only", [ipv6_address_is_assigned dual_stack_has_both],
        Spec(|_, _, spec| spec.ip_families = vec![IpFamily::IPv4]);
    "assigns the last IP family", [first_family_is_served],
        Claims(|all| (claims(all).dual_stack, claims(all).first_family) = (false, true)),
        Spec(|_, _, spec| spec.ip_families = spec.ip_families.last().copied().into_iter().collect());
    "ignores the requested address", [requested_address_is_assigned], Spec(|_, _, spec| spec.requested_address = None);
    "assigns another address for a taken one", [requested_address_is_assigned],
        Spec(|it, key, spec| {
            let taken =
                |ip: &String| it.cloud.addresses().iter().any(|one| one.ip.to_string() == *ip && !one.is_owned_by(key));
            spec.requested_address = spec.requested_address.take().filter(|ip| !taken(ip));
        });
    "claims to need a target and needs none", [targets_follow_the_nodes],
        Claims(|all| claims(all).needs_targets = true);
    "shares nothing", [share_group_has_one_address], Settings(|_, settings| settings.share_group = None);
    "deletes all load balancers of the share group", [share_group_has_one_address],
        Apply(later!(|it, key, step| {
            let own = it.balancer(key).filter(|_| step.verb == Verb::Delete);
            let applied = real(it, key, step).await;
            let shares =
                |other: &bowline_local::Balancer| own.as_ref().is_some_and(|own| own.addresses == other.addresses);
            for other in it.cloud.balancers().into_iter().filter(shares) {
                it.cloud.delete_balancer(&other.id).unwrap();
            }
            applied
        }));
    "shares with other namespaces", [share_group_has_one_address], Key(|_, key| "default".clone_into(&mut key.namespace));
    "takes over ports of the share group", [share_group_ports_are_unique], Planned(|it, desired, _, plan| overwrite_clash(it, desired, plan));
    "identifies by UID only", [foreign_is_untouched clusters_are_isolated],
        Key(|it, key| {
            let marks = it.cloud.balancers().into_iter().filter_map(|one| one.owner);
            *key = marks.into_iter().find(|mark| mark.uid == key.uid).unwrap_or_else(|| key.clone());
        });
    "identifies by name only", [recreated_service_is_another],
        Key(|it, key| {
            let mut marks = it.cloud.balancers().into_iter().filter_map(|one| one.owner);
            let named = marks.find(|mark| mark.cluster == key.cluster && mark.service == key.service);
            *key = named.unwrap_or_else(|| key.clone());
        });
    "marks the UID without claiming it", [without_uid_marks_the_name_is_the_owner],
        Claims(|all| group(all).marks_uid = false);
    "takes over by name", [clash_names_the_owner], Planned(|it, desired, _, plan| overwrite_clash(it, desired, plan));
    "plans without checking for a clash", [clash_is_found_by_plan],
        Planned(|it, desired, _, plan| match plan {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => it.balancers().plan(desired, None),
            plan => plan,
        });
    "hides the owner", [clash_names_the_owner],
        Planned(|_, _, _, plan| plan.map_err(|error| Error::new(error.kind(), "plan", "there is another")));
    "adopts without a request", [only_adoption_takes_over],
        Settings(|it, settings| {
            let free = it.cloud.balancers().into_iter().find(|one| one.owner.is_none());
            settings.adopt = settings.adopt.take().or_else(|| free.map(|free| free.name));
        });
    "adopts load balancers of other owners", [owned_is_not_adopted], Planned(|it, desired, _, plan| overwrite_clash(it, desired, plan));
    "names no locks", [shared_resources_are_locked],
        Planned(|_, _, _, plan| Ok(Plan { locks: BTreeSet::new(), ..plan? }));
    "names locks only to join a share group", [shared_resources_are_locked],
        Planned(|_, desired, _, plan| match &desired.spec {
            Some(_) => plan,
            None => Ok(Plan { locks: BTreeSet::new(), ..plan? }),
        });
    "deletes retained load balancers", [retained_is_released], Settings(|_, settings| settings.policy = DeletionPolicy::Delete);
    "keeps its mark on retained load balancers", [retained_is_released],
        Planned(|_, desired, _, plan| match desired.settings.policy {
            DeletionPolicy::Retain if desired.spec.is_none() => Ok(Plan::default()),
            _ => plan,
        });
    "marks in a second call", [creation_survives_every_crash],
        Apply(later!(|it, key, step| { in_two_calls(it, key, step).await }));
    "owns only what this process has created", [creation_survives_every_crash],
        Planned(|it, desired, _, plan| match it.balancer(&desired.key) {
            Some(own) if !it.memory().created.contains(&own.id) => fails(ErrorKind::AlreadyExists),
            _ => plan,
        }),
        Apply(later!(|it, key, step| {
            let applied = real(it, key, step).await;
            it.memory().created.extend(it.balancer(key).map(|own| own.id));
            applied
        }));
    "compares only the ports and changes the targets later", [update_survives_every_crash],
        Planned(|it, desired, state, plan| {
            let (Some(own), Some(spec)) = (it.balancer(&desired.key), &desired.spec) else { return plan };
            let same = spec.ports.iter().all(|port| own.settings.listeners.iter().any(|one| one.port == port.port));
            if same {
                return Ok(Plan::default());
            }
            let mut first = desired.clone();
            std::sync::Arc::make_mut(first.spec.as_mut().unwrap()).targets = TargetSet::default();
            let mut both = it.balancers().plan(&first, state)?;
            both.steps.extend(plan?.steps);
            Ok(both)
        });
    "removes the mark first", [deletion_survives_every_crash],
        Apply(later!(|it, key, step| { in_two_calls(it, key, step).await }));
    "reports a lost response as a failure", [lost_response_makes_no_duplicate],
        Failure(|error| Error::new(error.kind(), error.operation(), error.message()).retry(error.retry_advice()));
    "creates hidden resources again", [stale_listing_makes_no_duplicate],
        Apply(later!(|it, key, step| {
            if step.verb == Verb::Create && it.balancer(key).is_some() {
                it.leave();
            }
            real(it, key, step).await
        }));
    "chooses addresses without a reservation", [concurrent_services_are_isolated],
        Spec(|it, key, spec| {
            let free = format!("127.0.40.{}", it.cloud.balancers().len() + 1);
            spec.requested_address = it.balancer(key).is_none().then_some(free);
        }),
        Observe(later!(|it, wanted| { tokio::task::yield_now().await; it.balancers().observe(wanted).await }));
    "stays busy after a dropped call", [calls_are_cancel_safe],
        Apply(later!(|it, key, step| {
            if std::mem::replace(&mut it.memory().in_progress, 1) > 0 {
                return fails(ErrorKind::InProgress);
            }
            tokio::task::yield_now().await;
            it.memory().in_progress = 0;
            real(it, key, step).await
        }));
    "releases in two calls", [release_survives_every_crash],
        Apply(later!(|it, key, step| { in_two_calls(it, key, step).await }));
    "forgets what it adopted", [adoption_survives_every_crash],
        Planned(|it, desired, _, plan| match it.balancer(&desired.key) {
            Some(_) if desired.settings.adopt.is_some() && desired.spec.is_some() => Ok(Plan::default()),
            _ => plan,
        });
    "keeps an annotation that identifies a deleted load balancer", [annotations_identify_the_load_balancer],
        Observe(later!(|it, wanted| {
            let mut states = it.balancers().observe(wanted).await;
            for (desired, state) in wanted.iter().zip(&mut states).filter(|(desired, _)| desired.spec.is_some()) {
                let Ok(Some(state)) = state else { continue };
                state
                    .annotations
                    .extend(it.balancer(&desired.key).map(|own| ("local.example/id".to_owned(), own.id)));
            }
            states
        })),
        Planned(|it, desired, _, plan| match desired.annotations.get("local.example/id") {
            Some(id) if desired.spec.is_some() && it.cloud.balancer(id).is_err() => fails(ErrorKind::NotFound),
            _ => plan,
        });
    "returns other annotations from steps than from its state", [annotations_identify_the_load_balancer],
        Apply(later!(|it, key, step| {
            real(it, key, step).await?;
            Ok(Applied::Annotated(BTreeMap::from([("local.example/id".to_owned(), "?".to_owned())])))
        }));
    "has a warning with a sentence as its reason", [warnings_are_valid_events],
        Planned(|_, _, _, plan| {
            let mut plan = plan?;
            plan.warnings.push(Warning { reason: "well, maybe".to_owned(), message: "It works.".to_owned() });
            Ok(plan)
        });
}
