//! Implements [`LoadBalancers`](bowline_cloud::LoadBalancers): one kind, TCP only. A load balancer is one resource of the cloud, with
//! its ports, its servers and a mark that names its owner.

use std::fmt::Display;

use async_trait::async_trait;
use bowline_cloud::{Applied, Error, ErrorKind, Result, TypedLoadBalancers};
use bowline_core::annotations::DeletionPolicy;
use bowline_core::{
    ClusterName, DesiredLoadBalancer, FieldChange, FieldChanges, Ingress, LoadBalancerKey, LoadBalancerSpec,
    LoadBalancerState, LoadBalancerStatus, Plan, PortSpec, Step, Verb,
};

use crate::client::{LoadBalancer, Port};
use crate::{Acme, NAME, instances};

const OBSERVE: &str = "find load balancer";
const ADOPT: &str = "adopt load balancer";

/// Payload of one plan step: one write call.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// Creates the load balancer and records its owner on it.
    Create(Vec<Port>),
    /// Records the owner on the load balancer with this ID.
    Adopt(String),
    SetPorts(Vec<Port>),
    SetServers(Vec<String>),
    /// Removes the owner from the load balancer with this ID.
    Release(String),
    Delete(String),
}

#[async_trait]
impl TypedLoadBalancers for Acme {
    /// The load balancer of the Service or, as long as it has none, the one to adopt.
    type State = LoadBalancer;
    type Change = Change;
    type Polled = ();

    async fn observe(&self, wanted: &[DesiredLoadBalancer]) -> Vec<Result<Option<LoadBalancerState<LoadBalancer>>>> {
        let mut states = Vec::with_capacity(wanted.len());
        for desired in wanted {
            states.push(self.observe_one(desired).await);
        }
        states
    }

    async fn list(&self, cluster: &ClusterName) -> Result<Vec<LoadBalancerKey>> {
        let all = self.client.load_balancers(&[("cluster", cluster.as_str())]).await?;
        Ok(all.into_iter().filter_map(|one| one.owner).collect())
    }

    fn plan(&self, desired: &DesiredLoadBalancer, state: Option<&LoadBalancer>) -> Result<Plan<Change>> {
        match (&desired.spec, state) {
            (Some(spec), None) => Ok(Plan::of(creation(desired, spec))),
            (Some(spec), Some(own)) if own.is_of(&desired.key) => Ok(Plan::of(update(desired, spec, own))),
            (Some(spec), Some(other)) => adoption(desired, spec, other),
            (None, Some(own)) if own.is_of(&desired.key) => Ok(Plan::of(vec![removal(desired, own)])),
            (None, _) => Ok(Plan::default()),
        }
    }

    async fn apply(&self, key: &LoadBalancerKey, change: &Change, _: Option<&()>) -> Result<Applied<LoadBalancer>> {
        let own = match change {
            Change::Create(ports) => self.client.create_load_balancer(key, ports).await?,
            Change::Adopt(id) => self.client.set_owner(id, Some(key)).await?,
            Change::SetPorts(ports) => self.client.set_ports(&self.own_id(key).await?, ports).await?,
            Change::SetServers(servers) => self.client.set_servers(&self.own_id(key).await?, servers).await?,
            Change::Release(id) => return self.client.set_owner(id, None).await.map(|_| Applied::Done),
            Change::Delete(id) => return self.client.delete_load_balancer(id).await.map(|()| Applied::Done),
        };
        Ok(Applied::Observed(Some(state(key, own))))
    }
}

impl Acme {
    async fn observe_one(&self, desired: &DesiredLoadBalancer) -> Result<Option<LoadBalancerState<LoadBalancer>>> {
        let mut found = self.client.load_balancer_of(&desired.key).await?;
        if let (None, Some(_), Some(adopt)) = (&found, &desired.spec, &desired.settings.adopt) {
            found = Some(self.to_adopt(adopt).await?);
        }
        Ok(found.map(|found| state(&desired.key, found)))
    }

    /// Returns the load balancer with this name or ID. Names are not unique in this cloud.
    async fn to_adopt(&self, text: &str) -> Result<LoadBalancer> {
        let mut named = self.client.load_balancers(&[("name", text)]).await?;
        if named.is_empty() && instances::is_id(text) {
            named.extend(self.client.load_balancer(text).await?);
        }
        match named.pop() {
            Some(only) if named.is_empty() => Ok(only),
            Some(_) => {
                let message = format!("several load balancers are named {text:?}; fix: set bowline.dev/adopt to an ID");
                Err(Error::new(ErrorKind::InvalidConfig, ADOPT, message))
            }
            None => {
                Err(Error::new(ErrorKind::NotFound, ADOPT, format!("no load balancer has the name or ID {text:?}")))
            }
        }
    }

    /// Returns the ID of the owner's load balancer. It is read again because an earlier step of the plan may have created it.
    async fn own_id(&self, key: &LoadBalancerKey) -> Result<String> {
        let gone = || Error::new(ErrorKind::Conflict, OBSERVE, "the load balancer was deleted in the meantime");
        Ok(self.client.load_balancer_of(key).await?.ok_or_else(gone)?.id)
    }
}

impl LoadBalancer {
    fn is_of(&self, key: &LoadBalancerKey) -> bool {
        self.owner.as_ref().is_some_and(|owner| owner.matches(key))
    }
}

/// Converts a load balancer. One that is still to be adopted has an empty status.
fn state(key: &LoadBalancerKey, found: LoadBalancer) -> LoadBalancerState<LoadBalancer> {
    let address = found.is_of(key).then(|| Ingress { ip: Some(found.ip.clone()), ..Ingress::default() });
    LoadBalancerState::new(LoadBalancerStatus { ingress: address.into_iter().collect() }, found)
}

fn creation(desired: &DesiredLoadBalancer, spec: &LoadBalancerSpec) -> Vec<Step<Change>> {
    let (ports, servers) = (ports(spec), servers(spec));
    let create = step(desired, Verb::Create, changes("ports", &[], &ports), Change::Create(ports));
    [create].into_iter().chain(server_change(desired, &[], servers)).collect()
}

/// Plans a step for each field that differs.
fn update(desired: &DesiredLoadBalancer, spec: &LoadBalancerSpec, own: &LoadBalancer) -> Vec<Step<Change>> {
    let ports = ports(spec);
    let port_change = (own.ports != ports)
        .then(|| step(desired, Verb::Update, changes("ports", &own.ports, &ports), Change::SetPorts(ports)));
    port_change.into_iter().chain(server_change(desired, &own.servers, servers(spec))).collect()
}

fn server_change(desired: &DesiredLoadBalancer, old: &[String], new: Vec<String>) -> Option<Step<Change>> {
    (old != new).then(|| step(desired, Verb::Update, changes("servers", old, &new), Change::SetServers(new)))
}

/// Plans to mark a load balancer that has no owner, and then to change it. The lock keeps two Services from adopting the same one.
fn adoption(desired: &DesiredLoadBalancer, spec: &LoadBalancerSpec, other: &LoadBalancer) -> Result<Plan<Change>> {
    if let Some(owner) = &other.owner {
        let owner = format!("Service {}/{} of cluster {}", owner.namespace, owner.service, owner.cluster);
        let message = format!("load balancer {} belongs to {owner}", other.id);
        return Err(Error::new(ErrorKind::AlreadyExists, ADOPT, message));
    }
    let owner = FieldChange::new("owner", None, Some(desired.key.uid.clone()));
    let mark = step(desired, Verb::Update, vec![owner], Change::Adopt(other.id.clone()));
    let steps = [mark].into_iter().chain(update(desired, spec, other)).collect();
    Ok(Plan { locks: [other.id.clone()].into(), ..Plan::of(steps) })
}

/// Plans to delete the load balancer or, with `bowline.dev/policy: retain`, to remove only its mark.
fn removal(desired: &DesiredLoadBalancer, own: &LoadBalancer) -> Step<Change> {
    if desired.settings.policy != DeletionPolicy::Retain {
        return step(desired, Verb::Delete, Vec::new(), Change::Delete(own.id.clone()));
    }
    let owner = FieldChange::new("owner", Some(desired.key.uid.clone()), None);
    step(desired, Verb::Update, vec![owner], Change::Release(own.id.clone()))
}

/// Returns the desired ports, in the order in which the cloud returns them.
fn ports(spec: &LoadBalancerSpec) -> Vec<Port> {
    let port = |port: &PortSpec| Some(Port { port: port.port, node_port: port.node_port? });
    let mut ports: Vec<_> = spec.ports.iter().filter_map(port).collect();
    ports.sort_unstable();
    ports
}

/// Returns the desired servers, in the order in which the cloud returns them. Draining targets are left out: the kind does not
/// claim `drain`.
fn servers(spec: &LoadBalancerSpec) -> Vec<String> {
    let targets = spec.targets.iter().filter(|target| !target.draining);
    let ids = targets.filter_map(|target| target.provider_id.as_ref()).filter(|id| id.prefix() == Some(NAME));
    let mut servers: Vec<_> = ids.filter_map(|id| id.rest()).map(str::to_lowercase).collect();
    servers.sort_unstable();
    servers
}

/// Describes a changed list for readers of the plan.
fn changes<T: Display>(field: &str, old: &[T], new: &[T]) -> Vec<FieldChange> {
    let texts = |list: &[T]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
    let mut changes = FieldChanges::default();
    changes.compare(field, &texts(old), &texts(new));
    changes.into_vec()
}

fn step(desired: &DesiredLoadBalancer, verb: Verb, changes: Vec<FieldChange>, change: Change) -> Step<Change> {
    let name = format!("{}/{}", desired.key.namespace, desired.key.service);
    Step::new(verb, "load balancer", name, changes, change)
}
