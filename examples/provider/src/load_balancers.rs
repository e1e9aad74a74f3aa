//! Implements [`LoadBalancers`](bowline_cloud::LoadBalancers): one kind, TCP only. A plan has at most two steps: the load balancer
//! and its servers.

use async_trait::async_trait;
use bowline_cloud::{Applied, Error, ErrorKind, Result, TypedLoadBalancers};
use bowline_core::{
    ClusterName, DesiredLoadBalancer, FieldChange, Ingress, LoadBalancerKey, LoadBalancerSpec, LoadBalancerState,
    LoadBalancerStatus, Plan, Step, Verb,
};

use crate::client::{LoadBalancer, Port};
use crate::{Acme, NAME};

/// Payload of one plan step.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// Creates the load balancer and records its owner on it.
    Create(Vec<Port>),
    SetPorts(Vec<Port>),
    SetServers(Vec<String>),
    Delete(String),
}

#[async_trait]
impl TypedLoadBalancers for Acme {
    type State = LoadBalancer;
    type Change = Change;
    type Polled = ();

    async fn observe(&self, wanted: &[DesiredLoadBalancer]) -> Vec<Result<Option<LoadBalancerState<LoadBalancer>>>> {
        let mut states = Vec::with_capacity(wanted.len());
        for desired in wanted {
            states.push(self.client.load_balancer(&desired.key).await.map(|own| own.map(state)));
        }
        states
    }

    async fn list(&self, cluster: &ClusterName) -> Result<Vec<LoadBalancerKey>> {
        let all = self.client.load_balancers(&[("cluster", cluster.as_str())]).await?;
        Ok(all.into_iter().filter_map(|one| one.owner).collect())
    }

    fn plan(&self, desired: &DesiredLoadBalancer, state: Option<&LoadBalancer>) -> Result<Plan<Change>> {
        let Some(spec) = &desired.spec else {
            return Ok(Plan::of(state.map(|own| delete(desired, own)).into_iter().collect()));
        };
        let (old, new) = (state.map(|own| &own.ports), ports(spec));
        let (old_servers, new_servers) = (state.map_or(&[][..], |own| &own.servers), servers(spec));
        let first = match old {
            None => Some(step(desired, Verb::Create, changed("ports", &[], &new), Change::Create(new))),
            Some(old) if *old == new => None,
            Some(old) => Some(step(desired, Verb::Update, changed("ports", old, &new), Change::SetPorts(new))),
        };
        let second = (old_servers != new_servers).then(|| {
            let servers = changed("servers", old_servers, &new_servers);
            step(desired, Verb::Update, servers, Change::SetServers(new_servers))
        });
        Ok(Plan::of(first.into_iter().chain(second).collect()))
    }

    async fn apply(&self, key: &LoadBalancerKey, change: &Change, _: Option<&()>) -> Result<Applied<LoadBalancer>> {
        let own = match change {
            Change::Create(ports) => self.client.create_load_balancer(key, ports).await?,
            Change::SetPorts(ports) => self.client.set_ports(&self.own(key).await?, ports).await?,
            Change::SetServers(servers) => self.client.set_servers(&self.own(key).await?, servers).await?,
            Change::Delete(id) => return self.client.delete_load_balancer(id).await.map(|()| Applied::Done),
        };
        Ok(Applied::Observed(Some(state(own))))
    }
}

impl Acme {
    /// Returns the ID of the owner's load balancer. It is read again because an earlier step of the plan may have created it.
    async fn own(&self, key: &LoadBalancerKey) -> Result<String> {
        let gone =
            || Error::new(ErrorKind::Conflict, "find load balancer", "the load balancer was deleted in the meantime");
        Ok(self.client.load_balancer(key).await?.ok_or_else(gone)?.id)
    }
}

fn state(own: LoadBalancer) -> LoadBalancerState<LoadBalancer> {
    let ingress = vec![Ingress { ip: Some(own.ip.clone()), ..Ingress::default() }];
    LoadBalancerState::new(LoadBalancerStatus { ingress }, own)
}

/// Returns the desired ports, in the order in which the cloud returns them.
fn ports(spec: &LoadBalancerSpec) -> Vec<Port> {
    let port = |port: &bowline_core::PortSpec| Some(Port { port: port.port, node_port: port.node_port? });
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

fn step(desired: &DesiredLoadBalancer, verb: Verb, changes: Vec<FieldChange>, change: Change) -> Step<Change> {
    Step::new(verb, "load balancer", format!("{}/{}", desired.key.namespace, desired.key.service), changes, change)
}

fn delete(desired: &DesiredLoadBalancer, own: &LoadBalancer) -> Step<Change> {
    step(desired, Verb::Delete, Vec::new(), Change::Delete(own.id.clone()))
}

/// Describes the change of a list for readers of the plan.
fn changed<T: std::fmt::Display>(field: &str, from: &[T], to: &[T]) -> Vec<FieldChange> {
    let text = |list: &[T]| list.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    vec![FieldChange { field: field.to_owned(), from: Some(text(from)), to: Some(text(to)) }]
}
