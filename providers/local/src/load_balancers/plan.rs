//! From what there is to what is wanted, as steps. Nothing here makes a call.

use std::collections::BTreeSet;
use std::sync::Arc;

use bowline_cloud::{Error, ErrorKind, Result};
use bowline_core::annotations::DeletionPolicy;
use bowline_core::{DesiredLoadBalancer, FieldChange, IpMode, LoadBalancerKey, LoadBalancerSpec, Plan, Step, Verb};

use crate::balancers::{
    AddressWish, Adoptee, Asking, Balancer, BalancerSettings, Change, CloudAddress, Listener, Observation, Standing,
    Whose, has_another, other_group_address, outside_pool,
};

use super::targets::{TargetPlan, TargetPlans};
use super::wanted;
use super::{PLAN, Payload, ip_mode};

const ADDRESS: &str = "address";
const BALANCER: &str = "balancer";
/// The field of a mark.
const OWNER: &str = "owner";

/// What is wanted, in terms of the cloud.
struct Wanted {
    name: String,
    addresses: Vec<AddressWish>,
    settings: BalancerSettings,
}

/// Steps under construction: all of one asker.
struct Steps {
    asking: Asking,
    ip_mode: IpMode,
    plan: Plan<Payload>,
}

/// How to get from what is seen to what is wished.
pub(super) fn plan(desired: &DesiredLoadBalancer, seen: Observation, targets: &TargetPlans) -> Result<Plan<Payload>> {
    let asking = wanted::asking(desired).map_err(|error| error.explain(PLAN))?;
    let mut steps =
        Steps { asking, ip_mode: ip_mode(desired), plan: Plan { locks: locks(desired), ..Plan::default() } };
    match &desired.spec {
        Some(spec) => steps.build(desired, spec, seen, targets)?,
        None if desired.settings.policy == DeletionPolicy::Retain => steps.release(&seen),
        None => steps.tear_down(&seen),
    }
    Ok(steps.plan)
}

/// The addresses of a share group are made and removed by all Services of the group, and two Services may adopt the same load
/// balancer.
fn locks(desired: &DesiredLoadBalancer) -> BTreeSet<String> {
    let group =
        desired.settings.share_group.as_ref().map(|group| format!("share group {}/{group}", desired.key.namespace));
    let adopted = desired.settings.adopt.as_ref().map(|name| format!("load balancer {name}"));
    group.into_iter().chain(adopted).collect()
}

impl Steps {
    fn push(&mut self, verb: Verb, kind: &str, name: &str, changes: Vec<FieldChange>, change: Change) {
        let payload = Payload { asking: self.asking.clone(), change, ip_mode: self.ip_mode };
        // The cloud gives the same owner the same thing again.
        let step = Step { repeatable: true, ..Step::new(verb, kind, name, changes, payload) };
        self.plan.steps.push(step);
    }

    // ---- making and changing

    fn build(
        &mut self,
        desired: &DesiredLoadBalancer,
        spec: &LoadBalancerSpec,
        mut seen: Observation,
        targets: &TargetPlans,
    ) -> Result<()> {
        let wanted = Wanted {
            name: self.asking.name.clone().unwrap_or_default(),
            addresses: self.asking.addresses.clone(),
            settings: wanted::settings(desired, spec).map_err(|error| error.explain(PLAN))?,
        };
        self.adopt(desired, &mut seen)?;
        check_way(&wanted, &seen)?;
        self.create_addresses(&wanted, &seen);
        let had = seen.balancer.as_ref().map(|balancer| balancer.targets.clone()).unwrap_or_default();
        let targets = targets.get(&had, &spec.targets);
        match &seen.balancer {
            None => self.create_balancer(&wanted, &targets),
            Some(balancer) => self.update_balancer(&wanted, &seen, balancer, &targets),
        }
        self.delete_addresses(seen.addresses.iter().filter(|address| !wanted.has(address)));
        Ok(())
    }

    /// A balancer that is to be adopted is planned with as if it were the asker's already.
    fn adopt(&mut self, desired: &DesiredLoadBalancer, seen: &mut Observation) -> Result<()> {
        let Some(adopt) = &desired.settings.adopt else { return Ok(()) };
        let Some(adoptee) = seen.adoptee.take() else { return check_adopted(adopt, seen) };
        check_adoptee(&adoptee, seen)?;
        let Adoptee { balancer, addresses } = adoptee;
        let changes = vec![field(OWNER, None, Some(mark(&desired.key)))];
        let change = Change::AdoptBalancer { id: balancer.id.clone() };
        self.push(Verb::Update, BALANCER, &balancer.name, changes, change);
        seen.namesake = seen.namesake.take().filter(|namesake| namesake.id != balancer.id);
        seen.addresses.extend(addresses);
        seen.balancer = Some(balancer);
        Ok(())
    }

    fn create_addresses(&mut self, wanted: &Wanted, seen: &Observation) {
        for desired in &wanted.addresses {
            if seen.addresses.iter().any(|address| desired.fits(address)) {
                continue;
            }
            let name = desired.ip.map_or_else(|| format!("({:?})", desired.family), |ip| ip.to_string());
            let mut changes = vec![field(OWNER, None, Some(mark(&seen.key)))];
            changes.extend(desired.share_group.clone().map(|group| field("share group", None, Some(group))));
            changes.extend(desired.internal.then(|| field("internal", None, Some("true".to_owned()))));
            self.push(Verb::Create, ADDRESS, &name, changes, Change::CreateAddress { desired: desired.clone() });
        }
    }

    fn create_balancer(&mut self, wanted: &Wanted, targets: &TargetPlan) {
        let Wanted { name, settings, .. } = wanted;
        let mut changes = vec![field(OWNER, None, Some(mark(&self.asking.key)))];
        changes.extend(settings_changes(&BalancerSettings::default(), settings));
        changes.extend(targets.fields());
        let targets = targets.change.set.clone();
        let change = Change::CreateBalancer { name: name.clone(), settings: settings.clone(), targets };
        self.push(Verb::Create, BALANCER, name, changes, change);
    }

    fn update_balancer(&mut self, wanted: &Wanted, seen: &Observation, balancer: &Balancer, targets: &TargetPlan) {
        let mut changes = wanted.address_changes(seen, balancer);
        changes.extend(settings_changes(&balancer.settings, &wanted.settings));
        let targets_alone = changes.is_empty();
        changes.extend(targets.fields());
        if changes.is_empty() {
            return;
        }
        let (id, targets) = (balancer.id.clone(), targets.change.clone());
        let change = match targets_alone {
            true => Change::UpdateTargets { id, targets },
            false => Change::UpdateBalancer { id, settings: wanted.settings.clone(), targets },
        };
        self.push(Verb::Update, BALANCER, &balancer.name, changes, change);
    }

    // ---- removing and leaving behind

    fn tear_down(&mut self, seen: &Observation) {
        if let Some(balancer) = &seen.balancer {
            self.push(
                Verb::Delete,
                BALANCER,
                &balancer.name,
                Vec::new(),
                Change::DeleteBalancer { id: balancer.id.clone() },
            );
        }
        self.delete_addresses(seen.addresses.iter());
    }

    fn delete_addresses<'a>(&mut self, addresses: impl Iterator<Item = &'a Arc<CloudAddress>>) {
        for address in addresses {
            let change = Change::DeleteAddress { id: address.id.clone() };
            self.push(Verb::Delete, ADDRESS, &address.ip.to_string(), Vec::new(), change);
        }
    }

    /// The balancer goes with its addresses; those that no balancer has are left one by one.
    fn release(&mut self, seen: &Observation) {
        let released = || vec![field(OWNER, Some(mark(&seen.key)), None)];
        if let Some(balancer) = &seen.balancer {
            let change = Change::ReleaseBalancer { id: balancer.id.clone() };
            self.push(Verb::Update, BALANCER, &balancer.name, released(), change);
        }
        let listens = |address: &CloudAddress| seen.balancer.iter().any(|own| own.addresses.contains(&address.id));
        for address in seen.addresses.iter().filter(|address| !listens(address)) {
            let change = Change::ReleaseAddress { id: address.id.clone() };
            self.push(Verb::Update, ADDRESS, &address.ip.to_string(), released(), change);
        }
    }
}

impl Wanted {
    fn has(&self, address: &CloudAddress) -> bool {
        self.addresses.iter().any(|desired| desired.fits(address))
    }

    /// What changes if the balancer has the addresses that are wanted, which are those there are and new ones.
    fn address_changes(&self, seen: &Observation, balancer: &Balancer) -> Vec<FieldChange> {
        let found = |desired: &AddressWish| seen.addresses.iter().find(|address| desired.fits(address));
        let wanted: Vec<_> = self.addresses.iter().map(found).collect();
        if wanted.iter().map(|address| address.map(|found| &found.id)).eq(balancer.addresses.iter().map(Some)) {
            return Vec::new();
        }
        let ip =
            |id: &String| seen.addresses.iter().find(|address| address.id == *id).map(|found| found.ip.to_string());
        let now: Vec<_> = balancer.addresses.iter().filter_map(ip).collect();
        let then =
            wanted.iter().map(|address| address.map_or_else(|| "a new one".to_owned(), |found| found.ip.to_string()));
        vec![field("addresses", Some(now.join(", ")), Some(then.collect::<Vec<_>>().join(", ")))]
    }
}

// ---- what stands in the way

fn check_way(wanted: &Wanted, seen: &Observation) -> Result<()> {
    if let (None, Some(namesake)) = (&seen.balancer, &seen.namesake) {
        let hint = if namesake.owner.is_none() { "; the annotation bowline.dev/adopt takes it over" } else { "" };
        let owner = Whose(namesake.owner.as_ref());
        return Err(in_the_way(format!(
            "there is a balancer {:?} already, which belongs to {owner}{hint}",
            namesake.name
        )));
    }
    let own = |desired: &AddressWish| seen.addresses.iter().any(|address| desired.fits(address));
    for (desired, standing) in wanted.addresses.iter().zip(&seen.standings) {
        if !own(desired) {
            check_address(&seen.key, desired, standing)?;
        }
        check_ports(standing, &wanted.settings.listeners)?;
    }
    Ok(())
}

/// Whether the address that is asked for can be had.
fn check_address(key: &LoadBalancerKey, desired: &AddressWish, standing: &Standing) -> Result<()> {
    let invalid = |message: String| Error::new(ErrorKind::InvalidConfig, PLAN, message);
    match (&standing.address, desired.ip) {
        (Some(there), _) if desired.is_of_group(key, there) && desired.fits(there) => Ok(()),
        (Some(there), _) if desired.is_of_group(key, there) => Err(invalid(other_group_address(desired, there))),
        (Some(there), _) => {
            Err(in_the_way(format!("the address {} belongs to {}", there.ip, Whose(there.owners.first()))))
        }
        (None, Some(ip)) if standing.outside_pool => Err(invalid(outside_pool(&ip, desired.internal))),
        (None, _) => Ok(()),
    }
}

/// Whether somebody else listens on one of the ports.
fn check_ports(standing: &Standing, listeners: &[Listener]) -> Result<()> {
    let clash = standing.taken.iter().find(|taken| listeners.iter().any(|listener| listener.clashes(&taken.listener)));
    let Some(clash) = clash else { return Ok(()) };
    let (port, protocol) = (clash.listener.port, clash.listener.protocol);
    let (balancer, owner) = (&clash.balancer, Whose(clash.owner.as_ref()));
    Err(in_the_way(format!(
        "port {port}/{protocol} of the shared address is taken by the balancer {balancer:?} of {owner}"
    )))
}

/// The balancer to adopt is not to be seen, or is the asker's own.
fn check_adopted(adopt: &str, seen: &Observation) -> Result<()> {
    if seen.balancer.is_some() {
        return Ok(());
    }
    let message = format!("there is no balancer {adopt:?} to adopt; name one that exists, or remove the annotation");
    Err(Error::new(ErrorKind::NotFound, PLAN, message))
}

fn check_adoptee(adoptee: &Adoptee, seen: &Observation) -> Result<()> {
    let name = &adoptee.balancer.name;
    let owned = adoptee.addresses.iter().find_map(|address| address.owners.first());
    if let Some(owner) = adoptee.balancer.owner.as_ref().or(owned) {
        return Err(in_the_way(format!(
            "the balancer {name:?} cannot be adopted: it belongs to {}",
            Whose(Some(owner))
        )));
    }
    match &seen.balancer {
        Some(own) => Err(Error::new(ErrorKind::InvalidConfig, PLAN, has_another(&own.name, name))),
        None => Ok(()),
    }
}

fn in_the_way(message: String) -> Error {
    Error::new(ErrorKind::AlreadyExists, PLAN, message)
}

// ---- what changes, for people

pub(super) fn field(name: &str, from: Option<String>, to: Option<String>) -> FieldChange {
    FieldChange { field: name.to_owned(), from, to }
}

fn mark(key: &LoadBalancerKey) -> String {
    format!("{}/{} ({})", key.namespace, key.service, key.cluster)
}

/// The fields whose texts differ. Fields with the same text are the same: the texts say all.
fn settings_changes(now: &BalancerSettings, then: &BalancerSettings) -> Vec<FieldChange> {
    let pairs = described(now).into_iter().zip(described(then));
    let differing = pairs.filter(|((_, now), (_, then))| now != then);
    differing.map(|((name, now), (_, then))| field(name, now, then)).collect()
}

fn described(settings: &BalancerSettings) -> [(&'static str, Option<String>); 7] {
    let BalancerSettings { internal, listeners, source_ranges, affinity_seconds, .. } = settings;
    let check = settings.health_check.as_ref().map(|check| {
        let what = check.path.as_ref().map_or_else(|| "TCP".to_owned(), |path| format!("GET {path}"));
        let port = check.port.map_or_else(|| "the node port".to_owned(), |port| format!("port {port}"));
        format!("{what} on {port} every {} ms", check.interval_millis)
    });
    [
        ("internal", internal.then(|| "true".to_owned())),
        ("listeners", joined(listeners, |port| format!("{}/{} to {}", port.port, port.protocol, port.node_port))),
        ("source ranges", joined(source_ranges, ToString::to_string)),
        ("affinity", affinity_seconds.map(|seconds| format!("by client address for {seconds} s"))),
        ("health check", check),
        ("PROXY protocol", settings.proxy_protocol.map(|version| format!("{version:?}"))),
        ("idle timeout", settings.idle_timeout_millis.map(|millis| format!("{millis} ms"))),
    ]
}

fn joined<T>(items: &[T], text: impl Fn(&T) -> String) -> Option<String> {
    (!items.is_empty()).then(|| items.iter().map(text).collect::<Vec<_>>().join(", "))
}
