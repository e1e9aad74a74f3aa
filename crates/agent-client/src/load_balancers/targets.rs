//! Plans target changes: from the observed to the desired targets in one pass over both, computed once for all Services with the
//! same observed and desired targets.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use bowline_core::{
    Address, AddressType, FieldChange, Merged, ProviderId, TargetNode, TargetSet, Warning, merge_sorted,
};

use crate::calls::TargetChange;
use crate::records::{BalancerTarget, family_of};
use crate::targets::Targets;

use super::plan::field;

/// Maximum number of targets that a step or a warning lists by name; further ones are counted.
const SHOWN: usize = 10;

/// Reason of the Event for Nodes that are no targets because they have no address.
const NO_ADDRESS: &str = "NodesWithoutAddress";

/// Number of cached plans: Services with different Nodes, and their targets before and after an update.
const CACHED: usize = 8;

/// Target planner with a cache of the latest plans.
pub(super) struct TargetPlans {
    /// Prefix of the provider IDs of the server's machines; `None` if the server has none.
    prefix: Option<String>,
    /// Whether a leaving target is drained.
    drain: bool,
    latest: Mutex<VecDeque<(Versions, Arc<TargetPlan>)>>,
}

/// Versions of the observed and the desired targets.
type Versions = (u64, u64);

/// Change of targets, with its description.
#[derive(Default)]
pub(super) struct TargetPlan {
    pub(super) change: TargetChange,
    shown: Vec<FieldChange>,
    others: usize,
    /// Nodes that would be targets if they had an address.
    without_address: Vec<String>,
}

impl TargetPlans {
    pub(super) fn new(prefix: Option<&str>, drain: bool) -> TargetPlans {
        TargetPlans { prefix: prefix.map(str::to_owned), drain, latest: Mutex::default() }
    }

    /// Returns the plan from the observed to the desired targets, cached if possible.
    pub(super) fn get(&self, now: &Targets, then: &TargetSet) -> Arc<TargetPlan> {
        let versions: Versions = (now.version(), then.version());
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, plan)) = latest.iter().find(|(of, _)| *of == versions) {
            return plan.clone();
        }
        let plan = Arc::new(self.plan(now, then));
        latest.truncate(CACHED - 1);
        latest.push_front((versions, plan.clone()));
        plan
    }

    /// Compares observed and desired targets. A leaving target stays in its load balancer if draining is supported, and is added to
    /// no other one.
    fn plan(&self, now: &Targets, then: &TargetSet) -> TargetPlan {
        let (mut plan, mut set) = (TargetPlan::default(), Vec::new());
        let mut put = |plan: &mut TargetPlan, now: Option<&BalancerTarget>, then: &TargetNode| {
            let then = target(then, self.prefix());
            plan.show(now, Some(&then));
            set.push(then);
        };
        for merged in merge_sorted(by_name(now), then, |now, then| now.name.as_str().cmp(then.node.as_str())) {
            match merged {
                Merged::Left(now) => plan.remove(now),
                Merged::Both(now, then) if then.draining && !self.drain => plan.remove(now),
                Merged::Both(now, then) if self.is_unreachable(then) => {
                    plan.remove(now);
                    plan.without_address.push(then.node.as_str().to_owned());
                }
                Merged::Both(now, then) if !is_up_to_date(now, then, self.prefix()) => put(&mut plan, Some(now), then),
                Merged::Right(then) if then.draining => {}
                Merged::Right(then) if self.is_unreachable(then) => {
                    plan.without_address.push(then.node.as_str().to_owned());
                }
                Merged::Right(then) => put(&mut plan, None, then),
                Merged::Both(..) => {}
            }
        }
        plan.change.set = set.into();
        plan
    }

    fn prefix(&self) -> Option<&str> {
        self.prefix.as_deref()
    }

    /// Whether traffic cannot reach the Node: it has no address, and the server has no machines to look one up.
    fn is_unreachable(&self, node: &TargetNode) -> bool {
        self.prefix.is_none() && target_addresses(&node.addresses).is_empty()
    }
}

impl TargetPlan {
    fn remove(&mut self, now: &BalancerTarget) {
        self.show(Some(now), None);
        self.change.remove.push(now.name.clone());
    }

    fn show(&mut self, now: Option<&BalancerTarget>, then: Option<&BalancerTarget>) {
        if self.shown.len() == SHOWN {
            self.others += 1;
        } else if let Some(target) = now.or(then) {
            self.shown.push(field(&format!("target {}", target.name), now.map(text), then.map(text)));
        }
    }

    /// Field changes: the first targets by name, and the number of further ones.
    pub(super) fn fields(&self) -> impl Iterator<Item = FieldChange> {
        let others =
            (self.others > 0).then(|| field("further targets", None, Some(format!("{} changes", self.others))));
        self.shown.iter().cloned().chain(others)
    }

    /// Warning about Nodes that are no targets because they have no address.
    pub(super) fn warning(&self) -> Option<Warning> {
        let mut names = self.without_address.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
        if self.without_address.len() > SHOWN {
            names.push_str(&format!(" and {} others", self.without_address.len() - SHOWN));
        }
        let message = format!(
            "the load balancer sends no traffic to Nodes without an IP address: {names}; check status.addresses of these Nodes"
        );
        (!names.is_empty()).then(|| Warning { reason: NO_ADDRESS.to_owned(), message })
    }
}

/// Sorts targets by name and removes duplicates: a manually created load balancer may have any order.
fn by_name(targets: &[BalancerTarget]) -> Vec<&BalancerTarget> {
    let mut targets: Vec<&BalancerTarget> = targets.iter().collect();
    targets.sort_by(|one, other| one.name.cmp(&other.name));
    targets.dedup_by(|later, earlier| later.name == earlier.name);
    targets
}

fn is_up_to_date(now: &BalancerTarget, then: &TargetNode, prefix: Option<&str>) -> bool {
    now.machine.as_deref() == machine(then, prefix)
        && now.draining == then.draining
        && now.addresses == target_addresses(&then.addresses)
}

fn target(node: &TargetNode, prefix: Option<&str>) -> BalancerTarget {
    BalancerTarget {
        name: node.node.as_str().to_owned(),
        machine: machine(node, prefix).map(str::to_owned),
        addresses: target_addresses(&node.addresses),
        draining: node.draining,
    }
}

/// ID of the machine, if the server knows it.
fn machine<'a>(node: &'a TargetNode, prefix: Option<&str>) -> Option<&'a str> {
    node.provider_id.as_ref().filter(|id| prefix.is_some() && id.prefix() == prefix).and_then(ProviderId::rest)
}

/// The first internal address of each family; external ones if there are no internal ones.
fn target_addresses(addresses: &[Address]) -> Vec<IpAddr> {
    let of_kind = |kind: AddressType| {
        let mut first: Vec<IpAddr> = Vec::new();
        for ip in
            addresses.iter().filter(|address| address.kind == kind).filter_map(|address| address.address.parse().ok())
        {
            if !first.iter().any(|known| family_of(known) == family_of(&ip)) {
                first.push(ip);
            }
        }
        first
    };
    let internal = of_kind(AddressType::InternalIP);
    if internal.is_empty() { of_kind(AddressType::ExternalIP) } else { internal }
}

fn text(target: &BalancerTarget) -> String {
    let addresses = target.addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let place = if addresses.is_empty() { target.machine.clone().unwrap_or_default() } else { addresses };
    if target.draining { format!("{place} (draining)") } else { place }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bowline_core::testing;

    fn plans(drain: bool) -> TargetPlans {
        TargetPlans::new(Some("fake"), drain)
    }

    fn plan(now: &Targets, then: &TargetSet) -> Arc<TargetPlan> {
        plans(true).get(now, then)
    }

    fn targets(nodes: impl Iterator<Item = u32>) -> TargetSet {
        nodes.map(|number| testing::target(&format!("n{number:05}"))).collect()
    }

    fn created(nodes: &TargetSet) -> Targets {
        plan(&Targets::default(), nodes).change.set.clone()
    }

    #[test]
    fn a_node_that_joins_5000_is_one_target_in_the_change() {
        let now = created(&targets(0..5_000));
        let joined = plan(&now, &targets(0..5_001));
        let names: Vec<_> = joined.change.set.iter().map(|target| target.name.as_str()).collect();
        assert_eq!((names, joined.change.remove.len()), (vec!["n05000"], 0));
        assert_eq!(joined.fields().map(|field| field.field).collect::<Vec<_>>(), ["target n05000"]);
    }

    #[test]
    fn services_with_the_same_targets_share_one_plan() {
        let (plans, before, after) = (plans(true), targets(0..5_000), targets(0..5_100));
        let created = plans.get(&Targets::default(), &before);
        assert!((0..200).all(|_| Arc::ptr_eq(&created, &plans.get(&Targets::default(), &before))));
        let now = created.change.apply(&Targets::default());
        assert_eq!(now.version(), created.change.set.version(), "the cloud returns the list that it was sent");
        let joined = plans.get(&now, &after);
        assert!((0..200).all(|_| Arc::ptr_eq(&joined, &plans.get(&now, &after))));
        assert_eq!((joined.change.set.len(), plans.get(&now, &before).change.set.len()), (100, 0));
    }

    #[test]
    fn a_step_names_some_targets_and_counts_the_others() {
        let fields: Vec<_> = plan(&Targets::default(), &targets(0..5_000)).fields().collect();
        assert_eq!(fields.len(), SHOWN + 1);
        assert_eq!(fields[SHOWN].to.as_deref(), Some("4990 changes"));
        let bytes: usize = fields.iter().map(|field| field.to_string().len()).sum();
        assert!(bytes < 1_000, "{bytes} bytes");
    }

    #[test]
    fn applied_changes_yield_the_desired_targets_whatever_their_order() {
        let now = Targets::from(created(&targets(0..10)).iter().rev().cloned().collect::<Vec<_>>());
        let then = targets((5..15).filter(|number| *number != 7));
        let now = plan(&now, &then).change.apply(&now);
        assert_eq!(now, created(&then));
        assert_eq!(plan(&now, &then).change, TargetChange::default());
    }

    #[test]
    fn a_leaving_target_stays_only_in_its_load_balancer_and_only_with_draining() {
        let (now, mut then) = (created(&targets(0..2)), targets(0..3));
        then.edit(|targets| targets.iter_mut().for_each(|target| target.draining = true));
        let kept = &plan(&now, &then).change;
        assert_eq!((kept.set.len(), kept.remove.len()), (2, 0));
        let gone = &plans(false).get(&now, &then).change;
        assert_eq!((gone.set.len(), &*gone.remove), (0, &["n00000".to_owned(), "n00001".to_owned()][..]));
    }

    #[test]
    fn without_machines_a_node_without_an_address_is_no_target_and_a_warning() {
        let (server, mut then) = (TargetPlans::new(None, true), targets(0..13));
        let address = Address::new(AddressType::InternalIP, "192.0.2.1");
        then.edit(|targets| targets.iter_mut().for_each(|target| target.addresses = vec![address.clone()]));
        let now = server.get(&Targets::default(), &then).change.set.clone();
        assert!(now.len() == 13 && now.iter().all(|target| target.machine.is_none() && !target.addresses.is_empty()));
        then.edit(|targets| targets.iter_mut().skip(1).for_each(|target| target.addresses.clear()));
        for (now, set, remove) in [(&Targets::default(), 1, 0), (&now, 0, 12)] {
            let plan = server.get(now, &then);
            assert_eq!((plan.change.set.len(), plan.change.remove.len()), (set, remove));
            let warning = plan.warning().unwrap().message;
            assert!(warning.contains(": n00001, n00002, ") && warning.contains("n00010 and 2 others;"), "{warning}");
        }
        // A server with machines looks the addresses up.
        let plan = plan(&now, &then);
        assert_eq!((plan.change.remove.len(), plan.warning()), (0, None));
    }
}
