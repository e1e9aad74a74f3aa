//! Plans the steps from the observed to the desired state. Pure code, without calls.

use std::collections::BTreeSet;
use std::sync::Arc;

use bowline_cloud::{Error, ErrorKind, Result};
use bowline_core::annotations::DeletionPolicy;
use bowline_core::{
    DesiredLoadBalancer, FieldChange, IpMode, LoadBalancerKey, LoadBalancerSpec, Plan, Step, Verb, Warning,
};

use crate::calls::{AddressRequest, Change, Query};
use crate::conflicts::{has_another, other_group_address, outside_pool};
use crate::observation::{AddressStatus, Adoptee, Observation};
use crate::records::{Balancer, BalancerSettings, CloudAddress, Listener, OwnerName};

use super::desired;
use super::targets::{TargetPlan, TargetPlans};
use super::{PLAN, Payload, ip_mode};

const ADDRESS: &str = "address";
const BALANCER: &str = "load balancer";
/// Reason of the Events for conditions of the agents.
const AGENT_WARNING: &str = "LoadBalancerAgentWarning";
/// Field of the ownership mark.
const OWNER: &str = "owner";

/// Desired state in terms of the cloud.
struct Desired {
    name: String,
    addresses: Vec<AddressRequest>,
    settings: BalancerSettings,
}

/// Builder of the steps for one Service.
struct Steps {
    query: Query,
    ip_mode: IpMode,
    plan: Plan<Payload>,
}

/// Plans the steps from the observed to the desired state.
pub(super) fn plan(
    desired: &DesiredLoadBalancer,
    observed: Observation,
    targets: &TargetPlans,
) -> Result<Plan<Payload>> {
    let query = desired::query(desired).map_err(|error| error.to_error(PLAN))?;
    let (locks, warnings) = (locks(desired), agent_warnings(&observed));
    let mut steps = Steps { query, ip_mode: ip_mode(desired), plan: Plan { locks, warnings, ..Plan::default() } };
    match &desired.spec {
        Some(spec) => steps.build(desired, spec, observed, targets)?,
        None if desired.settings.policy == DeletionPolicy::Retain => steps.release(&observed),
        None => steps.tear_down(&observed),
    }
    Ok(steps.plan)
}

/// Conditions of the agents, which become Events. They are no errors of the state: those are ports that do not work, and make the
/// Service not ready.
fn agent_warnings(observed: &Observation) -> Vec<Warning> {
    let warning = |message: &String| Warning { reason: AGENT_WARNING.to_owned(), message: message.clone() };
    observed.warnings.iter().map(warning).collect()
}

/// Locks of a plan: all Services of a share group create and delete its addresses, and two Services may adopt the same load
/// balancer.
fn locks(desired: &DesiredLoadBalancer) -> BTreeSet<String> {
    let group =
        desired.settings.share_group.as_ref().map(|group| format!("share group {}/{group}", desired.key.namespace));
    let adopted = desired.settings.adopt.as_ref().map(|name| format!("load balancer {name}"));
    group.into_iter().chain(adopted).collect()
}

impl Steps {
    fn push(&mut self, verb: Verb, kind: &str, name: &str, changes: Vec<FieldChange>, change: Change) {
        let payload = Payload { query: self.query.clone(), change, ip_mode: self.ip_mode };
        // Calls are idempotent: the cloud returns the existing resource of the same owner.
        let step = Step { repeatable: true, ..Step::new(verb, kind, name, changes, payload) };
        self.plan.steps.push(step);
    }

    // ---- creating and updating

    fn build(
        &mut self,
        desired: &DesiredLoadBalancer,
        spec: &LoadBalancerSpec,
        mut observed: Observation,
        targets: &TargetPlans,
    ) -> Result<()> {
        let target_state = Desired {
            name: self.query.name.clone().unwrap_or_default(),
            addresses: self.query.addresses.clone(),
            settings: desired::settings(desired, spec).map_err(|error| error.to_error(PLAN))?,
        };
        self.adopt(desired, &mut observed)?;
        check_conflicts(&target_state, &observed)?;
        self.create_addresses(&target_state, &observed);
        let current = observed.balancer.as_ref().map(|balancer| balancer.targets.clone()).unwrap_or_default();
        let targets = targets.get(&current, &spec.targets);
        self.plan.warnings.extend(targets.warning());
        match &observed.balancer {
            None => self.create_balancer(&target_state, &targets),
            Some(balancer) => self.update_balancer(&target_state, &observed, balancer, &targets),
        }
        self.delete_addresses(observed.addresses.iter().filter(|address| !target_state.has(address)));
        Ok(())
    }

    /// Plans the adoption, and treats the adopted load balancer as owned from here on.
    fn adopt(&mut self, desired: &DesiredLoadBalancer, observed: &mut Observation) -> Result<()> {
        let Some(adopt) = &desired.settings.adopt else { return Ok(()) };
        let Some(adoptee) = observed.adoptee.take() else { return check_adopted(adopt, observed) };
        check_adoptee(&adoptee, observed)?;
        let Adoptee { balancer, addresses } = adoptee;
        let changes = vec![field(OWNER, None, Some(mark(&desired.key)))];
        let change = Change::AdoptBalancer { id: balancer.id.clone() };
        self.push(Verb::Update, BALANCER, &balancer.name, changes, change);
        observed.namesake = observed.namesake.take().filter(|namesake| namesake.id != balancer.id);
        observed.addresses.extend(addresses);
        observed.balancer = Some(balancer);
        Ok(())
    }

    fn create_addresses(&mut self, desired: &Desired, observed: &Observation) {
        for request in &desired.addresses {
            if observed.addresses.iter().any(|address| request.matches(address)) {
                continue;
            }
            let name = request.ip.map_or_else(|| format!("({:?})", request.family), |ip| ip.to_string());
            let mut changes = vec![field(OWNER, None, Some(mark(&observed.key)))];
            changes.extend(request.share_group.clone().map(|group| field("share group", None, Some(group))));
            changes.extend(request.internal.then(|| field("internal", None, Some("true".to_owned()))));
            self.push(Verb::Create, ADDRESS, &name, changes, Change::CreateAddress { desired: request.clone() });
        }
    }

    fn create_balancer(&mut self, desired: &Desired, targets: &TargetPlan) {
        let Desired { name, settings, .. } = desired;
        let mut changes = vec![field(OWNER, None, Some(mark(&self.query.key)))];
        changes.extend(settings_changes(&BalancerSettings::default(), settings));
        changes.extend(targets.fields());
        let targets = targets.change.set.clone();
        let change = Change::CreateBalancer { name: name.clone(), settings: settings.clone(), targets };
        self.push(Verb::Create, BALANCER, name, changes, change);
    }

    fn update_balancer(
        &mut self,
        desired: &Desired,
        observed: &Observation,
        balancer: &Balancer,
        targets: &TargetPlan,
    ) {
        let mut changes = desired.address_changes(observed, balancer);
        changes.extend(settings_changes(&balancer.settings, &desired.settings));
        let targets_alone = changes.is_empty();
        changes.extend(targets.fields());
        if changes.is_empty() {
            return;
        }
        let (id, targets) = (balancer.id.clone(), targets.change.clone());
        let change = match targets_alone {
            true => Change::UpdateTargets { id, targets },
            false => Change::UpdateBalancer { id, settings: desired.settings.clone(), targets },
        };
        self.push(Verb::Update, BALANCER, &balancer.name, changes, change);
    }

    // ---- deleting and releasing

    fn tear_down(&mut self, observed: &Observation) {
        if let Some(balancer) = &observed.balancer {
            self.push(
                Verb::Delete,
                BALANCER,
                &balancer.name,
                Vec::new(),
                Change::DeleteBalancer { id: balancer.id.clone() },
            );
        }
        self.delete_addresses(observed.addresses.iter());
    }

    fn delete_addresses<'a>(&mut self, addresses: impl Iterator<Item = &'a Arc<CloudAddress>>) {
        for address in addresses {
            let change = Change::DeleteAddress { id: address.id.clone() };
            self.push(Verb::Delete, ADDRESS, &address.ip.to_string(), Vec::new(), change);
        }
    }

    /// Releases the load balancer with its addresses; addresses without a load balancer are released one by one.
    fn release(&mut self, observed: &Observation) {
        let released = || vec![field(OWNER, Some(mark(&observed.key)), None)];
        if let Some(balancer) = &observed.balancer {
            let change = Change::ReleaseBalancer { id: balancer.id.clone() };
            self.push(Verb::Update, BALANCER, &balancer.name, released(), change);
        }
        let listens =
            |address: &CloudAddress| observed.balancer.iter().any(|balancer| balancer.addresses.contains(&address.id));
        for address in observed.addresses.iter().filter(|address| !listens(address)) {
            let change = Change::ReleaseAddress { id: address.id.clone() };
            self.push(Verb::Update, ADDRESS, &address.ip.to_string(), released(), change);
        }
    }
}

impl Desired {
    fn has(&self, address: &CloudAddress) -> bool {
        self.addresses.iter().any(|request| request.matches(address))
    }

    /// Change of the addresses of the load balancer to the desired ones, existing or new.
    fn address_changes(&self, observed: &Observation, balancer: &Balancer) -> Vec<FieldChange> {
        let found = |request: &AddressRequest| observed.addresses.iter().find(|address| request.matches(address));
        let desired: Vec<_> = self.addresses.iter().map(found).collect();
        if desired.iter().map(|address| address.map(|found| &found.id)).eq(balancer.addresses.iter().map(Some)) {
            return Vec::new();
        }
        let ip =
            |id: &String| observed.addresses.iter().find(|address| address.id == *id).map(|found| found.ip.to_string());
        let from: Vec<_> = balancer.addresses.iter().filter_map(ip).collect();
        let to = desired.iter().map(|address| address.map_or_else(|| "(new)".to_owned(), |found| found.ip.to_string()));
        vec![field("addresses", Some(from.join(", ")), Some(to.collect::<Vec<_>>().join(", ")))]
    }
}

// ---- conflicts

fn check_conflicts(desired: &Desired, observed: &Observation) -> Result<()> {
    if let (None, Some(namesake)) = (&observed.balancer, &observed.namesake) {
        let hint = if namesake.owner.is_none() { "; the annotation bowline.dev/adopt adopts it" } else { "" };
        let owner = OwnerName(namesake.owner.as_ref());
        return Err(conflict(format!(
            "the load balancer {:?} already exists and belongs to {owner}{hint}",
            namesake.name
        )));
    }
    let is_owned = |request: &AddressRequest| observed.addresses.iter().any(|address| request.matches(address));
    for (request, status) in desired.addresses.iter().zip(&observed.standings) {
        if !is_owned(request) {
            check_address(&observed.key, request, status)?;
        }
        check_ports(status, &desired.settings.listeners)?;
    }
    Ok(())
}

/// Checks that the requested address is available.
fn check_address(key: &LoadBalancerKey, request: &AddressRequest, status: &AddressStatus) -> Result<()> {
    let invalid = |message: String| Error::new(ErrorKind::InvalidConfig, PLAN, message);
    match (&status.address, request.ip) {
        (Some(found), _) if request.is_of_group(key, found) && request.matches(found) => Ok(()),
        (Some(found), _) if request.is_of_group(key, found) => Err(invalid(other_group_address(request, found))),
        (Some(found), _) => {
            Err(conflict(format!("the address {} belongs to {}", found.ip, OwnerName(found.owners.first()))))
        }
        (None, Some(ip)) if status.outside_pool => Err(invalid(outside_pool(&ip, request.internal))),
        (None, _) => Ok(()),
    }
}

/// Checks that no other load balancer uses one of the ports.
fn check_ports(status: &AddressStatus, listeners: &[Listener]) -> Result<()> {
    let conflicting =
        status.taken.iter().find(|taken| listeners.iter().any(|listener| listener.conflicts_with(&taken.listener)));
    let Some(taken) = conflicting else { return Ok(()) };
    let (port, protocol) = (taken.listener.port, taken.listener.protocol);
    let (balancer, owner) = (&taken.balancer, OwnerName(taken.owner.as_ref()));
    Err(conflict(format!(
        "port {port}/{protocol} of the shared address is in use by the load balancer {balancer:?} of {owner}"
    )))
}

/// Checks that a missing adoptee is already owned by the Service.
fn check_adopted(adopt: &str, observed: &Observation) -> Result<()> {
    if observed.balancer.is_some() {
        return Ok(());
    }
    let message =
        format!("there is no load balancer {adopt:?} to adopt; set the annotation to an existing one, or remove it");
    Err(Error::new(ErrorKind::NotFound, PLAN, message))
}

fn check_adoptee(adoptee: &Adoptee, observed: &Observation) -> Result<()> {
    let name = &adoptee.balancer.name;
    let owned = adoptee.addresses.iter().find_map(|address| address.owners.first());
    if let Some(owner) = adoptee.balancer.owner.as_ref().or(owned) {
        return Err(conflict(format!(
            "cannot adopt the load balancer {name:?}: it belongs to {}",
            OwnerName(Some(owner))
        )));
    }
    match &observed.balancer {
        Some(own) => Err(Error::new(ErrorKind::InvalidConfig, PLAN, has_another(&own.name, name))),
        None => Ok(()),
    }
}

fn conflict(message: String) -> Error {
    Error::new(ErrorKind::AlreadyExists, PLAN, message)
}

// ---- field changes

pub(super) fn field(name: &str, from: Option<String>, to: Option<String>) -> FieldChange {
    FieldChange { field: name.to_owned(), from, to }
}

fn mark(key: &LoadBalancerKey) -> String {
    format!("{}/{} ({})", key.namespace, key.service, key.cluster)
}

/// Fields whose texts differ. The texts are complete, so equal texts mean equal values.
fn settings_changes(now: &BalancerSettings, then: &BalancerSettings) -> Vec<FieldChange> {
    let pairs = field_texts(now).into_iter().zip(field_texts(then));
    let differing = pairs.filter(|((_, now), (_, then))| now != then);
    differing.map(|((name, now), (_, then))| field(name, now, then)).collect()
}

fn field_texts(settings: &BalancerSettings) -> [(&'static str, Option<String>); 7] {
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

#[cfg(test)]
mod tests {
    use bowline_core::testing;

    use super::*;

    #[test]
    fn conditions_of_the_agents_are_warnings_and_no_steps() {
        let (desired, plans) = (testing::desired("shop/web", &[]), TargetPlans::new(None, true));
        let observed = Observation::empty(desired.key.clone());
        let json = serde_json::to_value(&observed).unwrap();
        assert!(json.get("warnings").is_none(), "as before, without warnings: {json}");
        let warned = Observation { warnings: vec!["lb-2 is unreachable".to_owned()], ..observed.clone() };
        let [calm, warned] = [observed, warned].map(|observed| plan(&desired, observed, &plans).unwrap());
        assert_eq!((calm.warnings.len(), &calm.steps), (0, &warned.steps));
        let warning = Warning { reason: AGENT_WARNING.to_owned(), message: "lb-2 is unreachable".to_owned() };
        assert_eq!(warned.warnings, [warning]);
    }
}
