//! Targets of a load balancer: the changes from those that the cloud has to those that a Service wants, found in one pass
//! over both, once for all Services that have and want the same ones.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use bowline_core::{Address, AddressType, FieldChange, Merged, ProviderId, TargetNode, TargetSet, merge_sorted};

use crate::Config;
use crate::balancers::{BalancerTarget, TargetChange, Targets, family_of};

use super::plan::field;

/// Maximum number of targets that a step lists by name; it counts the others.
const SHOWN: usize = 10;

/// Plans that are kept: Services with different Nodes, and their targets before and after an update.
const KEPT: usize = 8;

/// Rules by which Nodes become targets, and the latest plans.
pub(crate) struct TargetPlans {
    /// Prefix of the provider IDs of this cloud's machines.
    prefix: String,
    /// Whether a target that is leaving may keep its connections.
    drain: bool,
    latest: Mutex<VecDeque<(Versions, Arc<TargetPlan>)>>,
}

/// Versions of the targets that the cloud has, and of those that are wanted.
type Versions = (u64, u64);

/// Changes of targets, for the cloud and for people.
#[derive(Default)]
pub(super) struct TargetPlan {
    pub(super) change: TargetChange,
    shown: Vec<FieldChange>,
    others: usize,
}

impl TargetPlans {
    pub(crate) fn new(config: &Config) -> TargetPlans {
        let (prefix, drain) = (config.id_prefix.clone(), config.load_balancers.drain);
        TargetPlans { prefix, drain, latest: Mutex::default() }
    }

    /// Plans the way from the targets that the cloud has to those that are wanted.
    pub(super) fn get(&self, now: &Targets, then: &TargetSet) -> Arc<TargetPlan> {
        let versions: Versions = (now.version(), then.version());
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, plan)) = latest.iter().find(|(of, _)| *of == versions) {
            return plan.clone();
        }
        let plan = Arc::new(self.plan(now, then));
        latest.truncate(KEPT - 1);
        latest.push_front((versions, plan.clone()));
        plan
    }

    /// Compares the targets that the cloud has with those that are wanted. A target that is leaving stays where it is, if it
    /// may, and joins no other load balancer.
    fn plan(&self, now: &Targets, then: &TargetSet) -> TargetPlan {
        let (mut plan, mut set) = (TargetPlan::default(), Vec::new());
        let mut put = |plan: &mut TargetPlan, now: Option<&BalancerTarget>, then: &TargetNode| {
            let then = target(then, &self.prefix);
            plan.show(now, Some(&then));
            set.push(then);
        };
        for merged in merge_sorted(by_name(now), then, |now, then| now.name.as_str().cmp(then.node.as_str())) {
            match merged {
                Merged::Left(now) => plan.remove(now),
                Merged::Both(now, then) if then.draining && !self.drain => plan.remove(now),
                Merged::Both(now, then) if !is_as_wanted(now, then, &self.prefix) => put(&mut plan, Some(now), then),
                Merged::Permission(then) if !then.draining => put(&mut plan, None, then),
                Merged::Both(..) | Merged::Permission(_) => {}
            }
        }
        plan.change.set = set.into();
        plan
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

    /// Changes for people: the first ones by name, and the number of the others.
    pub(super) fn fields(&self) -> impl Iterator<Item = FieldChange> {
        let others =
            (self.others > 0).then(|| field("further targets", None, Some(format!("{} changes", self.others))));
        self.shown.iter().cloned().chain(others)
    }
}

/// Targets by name, one for each: a load balancer that was made by hand may have them in any order.
fn by_name(targets: &[BalancerTarget]) -> Vec<&BalancerTarget> {
    let mut targets: Vec<&BalancerTarget> = targets.iter().collect();
    targets.sort_by(|one, other| one.name.cmp(&other.name));
    targets.dedup_by(|later, earlier| later.name == earlier.name);
    targets
}

fn is_as_wanted(now: &BalancerTarget, then: &TargetNode, prefix: &str) -> bool {
    now.machine.as_deref() == machine(then, prefix)
        && now.draining == then.draining
        && now.addresses == reached_at(&then.addresses)
}

fn target(node: &TargetNode, prefix: &str) -> BalancerTarget {
    BalancerTarget {
        name: node.node.as_str().to_owned(),
        machine: machine(node, prefix).map(str::to_owned),
        addresses: reached_at(&node.addresses),
        draining: node.draining,
    }
}

/// ID of the machine, if it is one of this cloud.
fn machine<'a>(node: &'a TargetNode, prefix: &str) -> Option<&'a str> {
    node.provider_id.as_ref().filter(|id| id.prefix() == Some(prefix)).and_then(ProviderId::rest)
}

/// The first internal address of each family; external ones if there are no internal ones.
fn reached_at(addresses: &[Address]) -> Vec<IpAddr> {
    let of_kind = |kind: AddressType| {
        let mut first: Vec<IpAddr> = Vec::new();
        for ip in
            addresses.iter().filter(|address| address.kind == kind).filter_map(|address| address.address.parse().ok())
        {
            if !first.iter().any(|seen| family_of(seen) == family_of(&ip)) {
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
        TargetPlans { prefix: "fake".to_owned(), drain, latest: Mutex::default() }
    }

    fn plan(now: &Targets, then: &TargetSet) -> Arc<TargetPlan> {
        plans(true).get(now, then)
    }

    fn wanted(nodes: impl Iterator<Item = u32>) -> TargetSet {
        nodes.map(|number| testing::target(&format!("n{number:05}"))).collect()
    }

    fn made(nodes: &TargetSet) -> Targets {
        plan(&Targets::default(), nodes).change.set.clone()
    }

    #[test]
    fn a_node_that_joins_5000_is_one_target_in_the_change() {
        let now = made(&wanted(0..5_000));
        let joined = plan(&now, &wanted(0..5_001));
        let names: Vec<_> = joined.change.set.iter().map(|target| target.name.as_str()).collect();
        assert_eq!((names, joined.change.remove.len()), (vec!["n05000"], 0));
        assert_eq!(joined.fields().map(|field| field.field).collect::<Vec<_>>(), ["target n05000"]);
    }

    #[test]
    fn services_with_the_same_targets_share_one_plan() {
        let (plans, before, after) = (plans(true), wanted(0..5_000), wanted(0..5_100));
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
        let fields: Vec<_> = plan(&Targets::default(), &wanted(0..5_000)).fields().collect();
        assert_eq!(fields.len(), SHOWN + 1);
        assert_eq!(fields[SHOWN].to.as_deref(), Some("4990 changes"));
        let bytes: usize = fields.iter().map(|field| field.to_string().len()).sum();
        assert!(bytes < 1_000, "{bytes} bytes");
    }

    #[test]
    fn applied_changes_make_the_targets_that_are_wanted_whatever_their_order_was() {
        let now = Targets::from(made(&wanted(0..10)).iter().rev().cloned().collect::<Vec<_>>());
        let then = wanted((5..15).filter(|number| *number != 7));
        let now = plan(&now, &then).change.apply(&now);
        assert_eq!(now, made(&then));
        assert_eq!(plan(&now, &then).change, TargetChange::default());
    }

    #[test]
    fn a_target_that_is_leaving_stays_only_where_it_is_and_where_it_may() {
        let (now, mut then) = (made(&wanted(0..2)), wanted(0..3));
        then.edit(|targets| targets.iter_mut().for_each(|target| target.draining = true));
        let kept = &plan(&now, &then).change;
        assert_eq!((kept.set.len(), kept.remove.len()), (2, 0));
        let gone = &plans(false).get(&now, &then).change;
        assert_eq!((gone.set.len(), &*gone.remove), (0, &["n00000".to_owned(), "n00001".to_owned()][..]));
    }
}
