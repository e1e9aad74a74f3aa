//! Flaws of providers in how they make, change and remove load balancers.

use std::collections::{BTreeMap, BTreeSet};

use bowline_cloud::{Applied, Capabilities, Error, ErrorKind, LoadBalancerCapabilities, LoadBalancerKind, Result};
use bowline_core::annotations::DeletionPolicy;
use bowline_core::{
    DesiredLoadBalancer, IpFamily, LoadBalancerKey, LoadBalancerState, Opaque, Operation, Plan, Progress, Protocol,
    SessionAffinity, Step, TargetSet, Verb, Warning,
};
use futures::FutureExt;

use crate::flaws::broken::Break::{
    Apply, Claims, Error as Failure, Key, Keys, Kind, Observe, Plan as Planned, Poll, Settings, Spec,
};
use crate::flaws::broken::{Broken, Flaw, fails, flaws, later};

fn group(claims: &mut Capabilities) -> &mut LoadBalancerCapabilities {
    claims.load_balancers.as_mut().unwrap()
}

/// Claims of the first kind of load balancer.
fn claims(claims: &mut Capabilities) -> &mut LoadBalancerKind {
    group(claims).kinds.first_mut().unwrap()
}

/// Nothing is done if the Service requests another kind than before.
fn kept(it: &Broken, desired: &DesiredLoadBalancer, plan: Result<Plan>) -> Result<Plan> {
    let is_other = |last: &DesiredLoadBalancer| last.settings.internal != desired.settings.internal;
    let changes = desired.spec.is_some() && it.memory().wanted.get(&desired.key.uid).is_some_and(is_other);
    if changes { Ok(Plan::default()) } else { plan }
}

fn gone(desired: &DesiredLoadBalancer) -> DesiredLoadBalancer {
    DesiredLoadBalancer { spec: None, ..desired.clone() }
}

/// Everything is deleted and made again.
fn rebuilt(it: &Broken, desired: &DesiredLoadBalancer, state: Option<&LoadBalancerState>) -> Result<Plan> {
    let mut plan = it.balancers().plan(&gone(desired), state)?;
    plan.steps.extend(it.balancers().plan(desired, None)?.steps);
    Ok(plan)
}

/// What stands in the way is deleted, and the caller has to observe again.
fn trampled(it: &Broken, desired: &DesiredLoadBalancer, plan: Result<Plan>) -> Result<Plan> {
    let Err(error) = &plan else { return plan };
    let text = error.to_string();
    let others = it.cloud.balancers().into_iter().filter(|one| one.owner.as_ref() != Some(&desired.key));
    let mut in_the_way = others.filter(|one| text.contains(&format!("{:?}", one.name)));
    match in_the_way.next() {
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

/// A second call after the first: if it fails, something is left behind.
async fn in_two_calls(it: &Broken, key: &LoadBalancerKey, step: &Step) -> Result<Applied> {
    let applied = real(it, key, step).await?;
    it.call().await.inspect_err(|_| it.leave())?;
    Ok(applied)
}

flaws! {
    "observes in its own order", [one_state_each],
        Observe(later!(|it, wanted| { it.balancers().observe(wanted).await.into_iter().rev().collect() }));
    "observes one by one", [observing_many_saves_calls],
        Observe(later!(|it, wanted| {
            let mut states = Vec::new();
            for desired in wanted {
                states.extend(it.balancers().observe(std::slice::from_ref(desired)).await);
            }
            states
        }));
    "lists what is whole", [list_names_what_is_ours],
        Keys(later!(|it, cluster| {
            let mut keys = it.balancers().list(cluster).await?;
            keys.retain(|key| it.balancer(key).is_some());
            Ok(keys)
        }));
    "lists the first page of load balancers", [list_reads_every_page],
        Keys(later!(|it, cluster| { Ok(it.balancers().list(cluster).await?.into_iter().take(7).collect()) }));
    "lists all clusters", [clusters_do_not_meet],
        Keys(later!(|it, _asked| { Ok(it.cloud.balancers().into_iter().filter_map(|one| one.owner).collect()) }));
    "passes over its second call", [deletion_survives_every_crash],
        Observe(later!(|it, wanted| {
            let states = it.balancers().observe(wanted).await;
            let is_whole = it.call().await.is_ok();
            states.into_iter().map(|state| state.map(|state| state.filter(|_| is_whole))).collect()
        }));
    "takes an error for nothing", [failed_observation_is_no_answer],
        Observe(later!(|it, wanted| {
            let states = it.balancers().observe(wanted).await;
            states.into_iter().map(|state| state.or(Ok(None))).collect()
        }));
    "takes one target", [balancer_is_as_wished], Spec(|_, _, spec| spec.targets.edit(|targets| targets.truncate(1)));
    "calls to plan", [plan_is_pure], Planned(|it, _, _, plan| { drop(it.call().now_or_never()); plan });
    "minds the order", [applied_plan_is_empty],
        Planned(|it, desired, _, plan| match &desired.spec {
            Some(spec) if !spec.ports.is_sorted_by_key(|port| port.port) => it.balancers().plan(desired, None),
            _ => plan,
        });
    "refuses the second time", [apply_is_repeatable],
        Apply(later!(|it, key, step| {
            match (step.verb, it.balancer(key)) {
                (Verb::Create, Some(_)) => fails(ErrorKind::AlreadyExists),
                _ => real(it, key, step).await,
            }
        }));
    "writes twice", [one_write_per_step],
        Apply(later!(|it, key, step| { real(it, key, step).await?; real(it, key, step).await }));
    "sees too early", [seen_is_what_observe_says],
        Apply(later!(|it, key, step| {
            let before = it.balancers().observe(&[it.last(key).unwrap()]).await.pop().unwrap()?;
            real(it, key, step).await.map(|_| Applied::Observed(before))
        }));
    "ignores work in progress", [in_progress_is_told],
        Planned(|_, _, _, plan| match plan {
            Err(error) if error.kind() == ErrorKind::InProgress => Ok(Plan::default()),
            plan => plan,
        });
    "hides what is under way", [pending_is_observed],
        Observe(later!(|it, wanted| {
            let mut states = it.balancers().observe(wanted).await;
            for state in states.iter_mut().flatten().flatten() {
                state.pending = None;
            }
            states
        }));
    "never has an end", [pending_is_observed started_operations_end],
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
    "ends at once", [started_operations_end], Poll(|_| Ok(Progress::Done(Opaque::default())));
    "takes a failed operation for one that has ended", [failed_operation_is_no_success],
        Apply(later!(|it, key, step| {
            Ok(match real(it, key, step).await? {
                Applied::Started(operation) => Applied::Started(Operation { observable: false, ..operation }),
                applied => applied,
            })
        })),
        Poll(|progress| progress.or(Ok(Progress::Done(Opaque::default()))));
    "takes an order for its result", [failed_operation_is_no_success],
        Planned(|it, desired, _, plan| match it.memory().made.contains(&desired.key.uid) {
            true if desired.spec.is_some() => Ok(Plan::default()),
            _ => plan,
        }),
        Apply(later!(|it, key, step| {
            let applied = real(it, key, step).await?;
            if step.verb == Verb::Create && step.kind == "balancer" {
                it.memory().made.insert(key.uid.clone());
            }
            Ok(applied)
        }));
    "plans one step at a time and does not say what it waits for", [busy_step_writes_nothing],
        Planned(|_, _, _, plan| {
            let mut plan = plan?;
            plan.steps.truncate(1);
            Ok(plan)
        }),
        Failure(|error| match error.kind() {
            ErrorKind::InProgress => Error::new(ErrorKind::InProgress, error.operation(), error.message()),
            _ => error,
        });
    "does not say what it waits for", [busy_step_writes_nothing],
        Failure(|error| match error.kind() {
            ErrorKind::InProgress => Error::new(ErrorKind::InProgress, error.operation(), error.message()),
            _ => error,
        });
    "makes something of everything", [foreign_values_are_refused],
        Planned(|it, desired, _, plan| match plan {
            Err(error) if error.kind() == ErrorKind::Unexpected => it.balancers().plan(desired, None),
            plan => plan,
        });
    "removes nothing", [nothing_left_is_nothing_to_do],
        Planned(|it, desired, state, plan| match (it.last(&desired.key), state) {
            (Some(last), None) if desired.spec.is_none() => it.balancers().plan(&last, None),
            _ => plan,
        });
    "deletes in the wrong order", [type_changes_and_back],
        Planned(|_, desired, _, plan| {
            let mut plan = plan?;
            if desired.spec.is_none() {
                plan.steps.reverse();
            }
            Ok(plan)
        });
    "leaves what is half built", [half_built_is_deleted],
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
    "cannot delete what is gone", [gone_is_deleted],
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
    "builds again for names", [port_names_change_nothing],
        Planned(|it, desired, state, plan| {
            let names = |desired: &DesiredLoadBalancer| -> Option<Vec<String>> {
                Some(desired.spec.as_ref()?.ports.iter().map(|port| port.name.clone()).collect())
            };
            match it.last(&desired.key) {
                Some(last) if desired.spec.is_some() && names(&last) != names(desired) => rebuilt(it, desired, state),
                _ => plan,
            }
        });
    "speaks UDP only", [tcp_is_balanced],
        Spec(|_, _, spec| spec.ports.iter_mut().for_each(|port| port.protocol = Protocol::Udp));
    "speaks TCP only", [udp_is_balanced sctp_is_balanced protocol_changes],
        Claims(|all| claims(all).sctp = true),
        Spec(|_, _, spec| spec.ports.iter_mut().for_each(|port| port.protocol = Protocol::Tcp));
    "goes by the port alone", [protocols_mix_on_one_port], Spec(|_, _, spec| spec.ports.dedup_by_key(|port| port.port));
    "needs node ports", [node_ports_are_not_needed], Claims(|all| claims(all).without_node_ports = true);
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
    "builds again for nodes", [target_change_is_small],
        Planned(|it, desired, state, plan| {
            let targets = |desired: &DesiredLoadBalancer| desired.spec.as_ref().map(|spec| spec.targets.clone());
            match it.last(&desired.key) {
                Some(last) if desired.spec.is_some() && targets(&last) != targets(desired) => rebuilt(it, desired, state),
                _ => plan,
            }
        });
    "drops what is leaving", [a_leaving_node_is_drained],
        Spec(|_, _, spec| spec.targets.edit(|targets| targets.retain(|target| !target.draining)));
    "takes in what is leaving", [a_leaving_node_is_not_taken_in],
        Spec(|_, _, spec| spec.targets.edit(|all| all.iter_mut().for_each(|target| target.draining = false)));
    "drains and does not claim it", [without_draining_a_leaving_node_goes], Claims(|all| claims(all).drain = false);
    "never opens again", [source_ranges_are_enforced],
        Spec(|it, key, spec| {
            let last = it.last(key).and_then(|last| last.spec);
            if let Some(last) = last.filter(|_| spec.source_ranges.is_empty()) {
                spec.source_ranges = last.source_ranges.clone();
            }
        });
    "forgets the timeout", [affinity_is_kept],
        Spec(|_, _, spec| {
            if spec.session_affinity != SessionAffinity::None {
                spec.session_affinity = SessionAffinity::ClientIp { timeout_seconds: 10800 };
            }
        });
    "keeps asking", [local_policy_asks_the_node],
        Spec(|it, key, spec| {
            let last = it.last(key).and_then(|last| last.spec);
            spec.health_check = spec.health_check.take().or_else(|| last?.health_check.clone());
        });
    "speaks no PROXY protocol", [proxy_protocol_is_spoken], Settings(|_, settings| settings.proxy_protocol = None);
    "knows one kind", [kind_is_as_declared], Kind(|_| None);
    "keeps the kind", [kind_changes], Planned(|it, desired, _, plan| kept(it, desired, plan));
    "ignores internal", [internal_stays_inside], Settings(|_, settings| settings.internal = false);
    "ignores the idle timeout", [idle_timeout_is_set], Settings(|_, settings| settings.idle_timeout = None);
    "ignores health check settings", [health_check_is_as_chosen],
        Settings(|_, settings| settings.health_check_path = None);
    "gives IPv6 only", [ipv4_address_is_given], Spec(|_, _, spec| spec.ip_families = vec![IpFamily::IPv6]);
    "gives IPv4 only", [ipv6_address_is_given dual_stack_has_both],
        Spec(|_, _, spec| spec.ip_families = vec![IpFamily::IPv4]);
    "gives the last family", [first_family_is_served],
        Claims(|all| (claims(all).dual_stack, claims(all).first_family) = (false, true)),
        Spec(|_, _, spec| spec.ip_families = spec.ip_families.last().copied().into_iter().collect());
    "gives any address", [requested_address_is_given], Spec(|_, _, spec| spec.requested_address = None);
    "gives another for a taken address", [requested_address_is_given],
        Spec(|it, key, spec| {
            let taken =
                |ip: &String| it.cloud.addresses().iter().any(|one| one.ip.to_string() == *ip && !one.is_owned_by(key));
            spec.requested_address = spec.requested_address.take().filter(|ip| !taken(ip));
        });
    "shares nothing", [a_group_shares_an_address], Settings(|_, settings| settings.share_group = None);
    "deletes the load balancers of the group", [a_group_shares_an_address],
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
    "shares with other namespaces", [a_group_shares_an_address], Key(|_, key| "default".clone_into(&mut key.namespace));
    "overwrites the group", [a_group_has_a_port_once], Planned(|it, desired, _, plan| trampled(it, desired, plan));
    "finds by UID", [foreign_is_untouched clusters_do_not_meet],
        Key(|it, key| {
            let marks = it.cloud.balancers().into_iter().filter_map(|one| one.owner);
            *key = marks.into_iter().find(|mark| mark.uid == key.uid).unwrap_or_else(|| key.clone());
        });
    "finds by name", [a_new_service_of_the_name_is_another],
        Key(|it, key| {
            let mut marks = it.cloud.balancers().into_iter().filter_map(|one| one.owner);
            let named = marks.find(|mark| mark.cluster == key.cluster && mark.service == key.service);
            *key = named.unwrap_or_else(|| key.clone());
        });
    "marks the UID and does not claim it", [without_uid_marks_the_name_is_the_owner],
        Claims(|all| group(all).marks_uid = false);
    "takes over by name", [clash_names_the_owner], Planned(|it, desired, _, plan| trampled(it, desired, plan));
    "plans without looking for a clash", [clash_is_found_by_plan],
        Planned(|it, desired, _, plan| match plan {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => it.balancers().plan(desired, None),
            plan => plan,
        });
    "hides the owner", [clash_names_the_owner],
        Planned(|_, _, _, plan| plan.map_err(|error| Error::new(error.kind(), "plan", "there is another")));
    "adopts unasked", [only_adoption_takes_over],
        Settings(|it, settings| {
            let free = it.cloud.balancers().into_iter().find(|one| one.owner.is_none());
            settings.adopt = settings.adopt.take().or_else(|| free.map(|free| free.name));
        });
    "adopts what is owned", [the_owned_is_not_adopted], Planned(|it, desired, _, plan| trampled(it, desired, plan));
    "names no locks", [shared_things_are_locked],
        Planned(|_, _, _, plan| Ok(Plan { locks: BTreeSet::new(), ..plan? }));
    "locks for coming and not for leaving", [shared_things_are_locked],
        Planned(|_, desired, _, plan| match &desired.spec {
            Some(_) => plan,
            None => Ok(Plan { locks: BTreeSet::new(), ..plan? }),
        });
    "deletes what is to stay", [retained_is_released], Settings(|_, settings| settings.policy = DeletionPolicy::Delete);
    "keeps the mark", [retained_is_released],
        Planned(|_, desired, _, plan| match desired.settings.policy {
            DeletionPolicy::Retain if desired.spec.is_none() => Ok(Plan::default()),
            _ => plan,
        });
    "marks later", [creation_survives_every_crash],
        Apply(later!(|it, key, step| { in_two_calls(it, key, step).await }));
    "remembers what it has made", [creation_survives_every_crash],
        Planned(|it, desired, _, plan| match it.balancer(&desired.key) {
            Some(own) if !it.memory().made.contains(&own.id) => fails(ErrorKind::AlreadyExists),
            _ => plan,
        }),
        Apply(later!(|it, key, step| {
            let applied = real(it, key, step).await;
            it.memory().made.extend(it.balancer(key).map(|own| own.id));
            applied
        }));
    "looks at the ports and changes the targets later", [update_survives_every_crash],
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
    "takes the mark off first", [deletion_survives_every_crash],
        Apply(later!(|it, key, step| { in_two_calls(it, key, step).await }));
    "takes a lost answer for a failure", [unanswered_create_makes_no_double],
        Failure(|error| Error::new(error.kind(), error.operation(), error.message()).retry(error.retry_advice()));
    "makes what is not shown again", [late_listing_makes_no_double],
        Apply(later!(|it, key, step| {
            if step.verb == Verb::Create && it.balancer(key).is_some() {
                it.leave();
            }
            real(it, key, step).await
        }));
    "chooses addresses itself", [services_at_once_have_their_own],
        Spec(|it, key, spec| {
            let free = format!("127.0.40.{}", it.cloud.balancers().len() + 1);
            spec.requested_address = it.balancer(key).is_none().then_some(free);
        }),
        Observe(later!(|it, wanted| { tokio::task::yield_now().await; it.balancers().observe(wanted).await }));
    "stays busy", [a_dropped_call_is_forgotten],
        Apply(later!(|it, key, step| {
            if std::mem::replace(&mut it.memory().under_way, 1) > 0 {
                return fails(ErrorKind::InProgress);
            }
            tokio::task::yield_now().await;
            it.memory().under_way = 0;
            real(it, key, step).await
        }));
    "releases from the top", [release_survives_every_crash],
        Apply(later!(|it, key, step| { in_two_calls(it, key, step).await }));
    "forgets what it adopted", [adoption_survives_every_crash],
        Planned(|it, desired, _, plan| match it.balancer(&desired.key) {
            Some(_) if desired.settings.adopt.is_some() && desired.spec.is_some() => Ok(Plan::default()),
            _ => plan,
        });
    "keeps an annotation that leads to what is gone", [annotations_lead_back],
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
    "notes something else", [annotations_lead_back],
        Apply(later!(|it, key, step| {
            real(it, key, step).await?;
            Ok(Applied::Noted(BTreeMap::from([("local.example/id".to_owned(), "?".to_owned())])))
        }));
    "gives a sentence for a reason", [remarks_can_be_told],
        Planned(|_, _, _, plan| {
            let mut plan = plan?;
            plan.warnings.push(Warning { reason: "well, maybe".to_owned(), message: "It works.".to_owned() });
            Ok(plan)
        });
}
