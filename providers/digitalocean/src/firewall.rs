//! Loop `firewall`: keeps one cloud firewall in sync with the Services, so that their ports are open and no others.
//!
//! ```text
//!  Services ──► desired rules ──► equal to the firewall: nothing to do
//!                                 otherwise: PUT, or POST if it does not exist
//! ```
//!
//! The firewall is kept in memory for five minutes, so that a change of a Service costs no call if no port changes. It is never
//! deleted.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bowline_cloud::{ClusterSnapshot, Error, ErrorKind, LoopPlan, LoopTriggers, Result, Retry, TypedProviderLoop};
use bowline_core::annotations::read_leniently;
use bowline_core::service::{ServicePort, ServiceType};
use bowline_core::{FieldChange, Protocol, Service, Step, TrafficPolicy, Verb};
use tokio::time::Instant;

use crate::api::{Client, Firewall, FirewallRequest, InboundRule, OutboundRule, Peers};
use crate::config::ManagedFirewall;
use crate::load_balancers::{
    Annotations, FIREWALL_MANAGED, KUBE_PROXY_PORT, LOAD_BALANCER_ID, LoadBalancerType, Network,
};
use crate::metrics::{Metrics, Operation};

/// Interval between two runs, and maximum age of the firewall in memory.
// upstream: 5 minutes.
const PERIOD: Duration = Duration::from_secs(5 * 60);

/// The loop.
pub(crate) struct FirewallLoop {
    client: Client,
    managed: ManagedFirewall,
    default_type: LoadBalancerType,
    metrics: Metrics,
    known: Mutex<Option<Known>>,
}

/// The firewall, as it was last read or written.
struct Known {
    firewall: Option<Firewall>,
    read_at: Instant,
}

/// A firewall to write.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Write {
    /// ID of the existing firewall.
    id: Option<String>,
    request: FirewallRequest,
}

impl FirewallLoop {
    pub(crate) fn new(
        client: Client,
        managed: ManagedFirewall,
        default_type: LoadBalancerType,
        metrics: Metrics,
    ) -> FirewallLoop {
        FirewallLoop { client, managed, default_type, metrics, known: Mutex::default() }
    }

    fn known(&self) -> MutexGuard<'_, Option<Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remember(&self, firewall: Option<Firewall>) {
        *self.known() = Some(Known { firewall, read_at: Instant::now() });
    }

    /// Returns the firewall from memory, or reads it: by ID if it is known, otherwise by name.
    async fn current(&self) -> Result<Option<Firewall>> {
        let id = match &*self.known() {
            Some(known) if known.read_at.elapsed() < PERIOD => return Ok(known.firewall.clone()),
            known => known.as_ref().and_then(|known| known.firewall.as_ref()).map(|firewall| firewall.id.clone()),
        };
        let begun = Instant::now();
        let read = self.read(id.as_deref()).await;
        self.metrics.refreshed(begun.elapsed(), read.is_ok());
        let firewall = read?;
        self.remember(firewall.clone());
        Ok(firewall)
    }

    async fn read(&self, id: Option<&str>) -> Result<Option<Firewall>> {
        if let Some(id) = id {
            let found = self.metrics.measure(Operation::GetById, self.client.firewall(id)).await;
            if let Some(found) = found.map_err(|error| error.during("could not get firewall"))? {
                return Ok(Some(found));
            }
        }
        let found = self.metrics.measure(Operation::GetByList, self.client.firewall_of_name(&self.managed.name)).await;
        found.map_err(|error| error.during("failed to retrieve list of firewalls from DO API"))
    }

    async fn write(&self, write: &Write) -> Result<Firewall> {
        if let Some(id) = &write.id {
            match self.metrics.measure(Operation::Update, self.client.update_firewall(id, &write.request)).await {
                Err(error) if error.is_not_found() => {}
                updated => return updated.map_err(|error| error.during("failed to update firewall")),
            }
        }
        let created = self.metrics.measure(Operation::Create, self.client.create_firewall(&write.request)).await;
        created.map_err(|error| error.during("failed to create firewall"))
    }

    async fn compare(&self, cluster: &ClusterSnapshot) -> Result<LoopPlan<Write>> {
        let request = desired(&cluster.services, &self.managed, self.default_type)?;
        let summary = format!("{} inbound rules", request.inbound_rules.iter().flatten().count());
        let current = self.current().await?;
        let Some(current) = current else {
            let changes = vec![inbound_change(&FirewallRequest::default(), &request)];
            let step = Step::new(Verb::Create, "firewall", &self.managed.name, changes, Write { id: None, request });
            return Ok(LoopPlan::new(summary, vec![step]));
        };
        if comparable(&current.settings) == comparable(&request) {
            return Ok(LoopPlan::new(summary, Vec::new()));
        }
        let changes = changes(&current.settings, &request);
        let step =
            Step::new(Verb::Update, "firewall", &self.managed.name, changes, Write { id: Some(current.id), request });
        Ok(LoopPlan::new(summary, vec![step]))
    }
}

#[async_trait]
impl TypedProviderLoop for FirewallLoop {
    type Change = Write;

    fn name(&self) -> &str {
        "firewall"
    }

    fn period(&self) -> Duration {
        PERIOD
    }

    fn triggers(&self) -> LoopTriggers {
        LoopTriggers::SERVICES
    }

    async fn plan(&self, cluster: &ClusterSnapshot) -> Result<LoopPlan<Write>> {
        let begun = Instant::now();
        let planned = self.compare(cluster).await;
        match &planned {
            Ok(plan) if plan.plan.is_empty() => self.metrics.reconciled(begun.elapsed(), "skipped", None),
            Ok(_) => {}
            Err(error) => self.metrics.reconciled(begun.elapsed(), "failed", Some(error)),
        }
        planned
    }

    async fn apply(&self, write: &Write) -> Result<()> {
        let begun = Instant::now();
        match self.write(write).await {
            Ok(firewall) => {
                self.remember(Some(firewall));
                self.metrics.reconciled(begun.elapsed(), "reconciled", None);
                Ok(())
            }
            Err(error) => {
                // The write may have been executed, so the next run reads the firewall again.
                if let Some(known) = &mut *self.known() {
                    known.read_at = begun.checked_sub(PERIOD).unwrap_or(begun);
                    known.firewall = known.firewall.take().filter(|_| write.id.is_some());
                }
                self.metrics.reconciled(begun.elapsed(), "failed", Some(&error));
                Err(error)
            }
        }
    }
}

// ---- desired firewall

fn anywhere() -> Peers {
    Peers { addresses: vec!["0.0.0.0/0".to_owned(), "::/0".to_owned()], ..Peers::default() }
}

/// Returns the firewall that all Services together need.
fn desired(
    services: &[std::sync::Arc<Service>],
    managed: &ManagedFirewall,
    default_type: LoadBalancerType,
) -> Result<FirewallRequest> {
    let mut rules = Vec::new();
    let mut open = BTreeSet::new();
    for service in services {
        match service.kind {
            ServiceType::NodePort if is_managed(service) => {
                rules.extend(service.ports.iter().filter_map(node_port_rule))
            }
            ServiceType::LoadBalancer if passes_through(service, default_type)? => {
                rules.extend(load_balancer_rules(service).into_iter().filter(|rule| {
                    let is_open = rule.sources.load_balancer_uids.is_empty();
                    !is_open || open.insert((rule.protocol.clone(), rule.ports.clone()))
                }));
            }
            _ => {}
        }
    }
    rules.sort_by(|a, b| (&a.protocol, &a.ports).cmp(&(&b.protocol, &b.ports)));
    let outbound = [("tcp", "all"), ("udp", "all"), ("icmp", "")].map(|(protocol, ports)| OutboundRule {
        protocol: protocol.to_owned(),
        ports: ports.to_owned(),
        destinations: anywhere(),
    });
    Ok(FirewallRequest {
        name: managed.name.clone(),
        inbound_rules: Some(rules).filter(|rules| !rules.is_empty()),
        outbound_rules: Some(outbound.to_vec()),
        droplet_ids: None,
        tags: Some(managed.tags.clone()),
    })
}

// upstream: an invalid value counts as true.
fn is_managed(service: &Service) -> bool {
    Annotations(&service.annotations).get(&FIREWALL_MANAGED).map_or_else(
        |why| {
            tracing::warn!(namespace = service.namespace, service = service.name, "{}: {why}", FIREWALL_MANAGED.key);
            true
        },
        |value| value.unwrap_or(true),
    )
}

/// Whether packets reach the Nodes with the port of the Service, from anywhere.
fn passes_through(service: &Service, default_type: LoadBalancerType) -> Result<bool> {
    let values = Annotations(&service.annotations);
    let is_internal = read_leniently(&service.annotations).0.internal;
    let invalid = |what: &str, why: String| {
        let message =
            format!("failed to get load balancer {what} for service {}/{}: {why}", service.namespace, service.name);
        Error::new(ErrorKind::InvalidConfig, "failed to create reconciled firewall request", message)
            .retry(Retry::Backoff)
    };
    let kind = LoadBalancerType::requested(values, default_type).map_err(|why| invalid("type", why))?;
    let network = Network::requested(values, is_internal).map_err(|why| invalid("network", why))?;
    Ok(kind == LoadBalancerType::RegionalNetwork && network == Network::External)
}

fn protocol(port: &ServicePort) -> Option<&'static str> {
    match port.protocol {
        Protocol::Tcp => Some("tcp"),
        Protocol::Udp => Some("udp"),
        Protocol::Sctp => None,
    }
}

fn inbound(protocol: &str, port: u16, sources: Peers) -> InboundRule {
    InboundRule { protocol: protocol.to_owned(), ports: port.to_string(), sources }
}

fn node_port_rule(port: &ServicePort) -> Option<InboundRule> {
    let number = port.node_port.filter(|port| *port > 0)?;
    protocol(port).map(|protocol| inbound(protocol, number, anywhere()))
}

/// Returns the rule for the health check, and those for the ports of the Service.
fn load_balancer_rules(service: &Service) -> Vec<InboundRule> {
    let id = Annotations(&service.annotations).text(&LOAD_BALANCER_ID);
    let sources = match id {
        Some(id) => Peers { load_balancer_uids: vec![id.to_owned()], ..Peers::default() },
        None => anywhere(),
    };
    let is_local = service.traffic_policy == TrafficPolicy::Local;
    let check = service.health_check_node_port.filter(|port| is_local && *port > 0).unwrap_or(KUBE_PROXY_PORT);
    let ports = service.ports.iter().filter_map(|port| Some(inbound(protocol(port)?, port.port, anywhere())));
    std::iter::once(inbound("tcp", check, sources)).chain(ports).collect()
}

// ---- comparison

/// A rule without what does not matter: order, and other kinds of peers.
type Rule = (String, String, BTreeSet<String>, BTreeSet<String>);

fn rule(protocol: &str, ports: &str, peers: &Peers) -> Rule {
    let ports = if matches!(ports, "all" | "0") { "" } else { ports };
    let (addresses, load_balancers) = (peers.addresses.iter().cloned(), peers.load_balancer_uids.iter().cloned());
    (protocol.to_owned(), ports.to_owned(), addresses.collect(), load_balancers.collect())
}

fn inbound_rules(firewall: &FirewallRequest) -> BTreeSet<Rule> {
    firewall.inbound_rules.iter().flatten().map(|it| rule(&it.protocol, &it.ports, &it.sources)).collect()
}

fn outbound_rules(firewall: &FirewallRequest) -> BTreeSet<Rule> {
    firewall.outbound_rules.iter().flatten().map(|it| rule(&it.protocol, &it.ports, &it.destinations)).collect()
}

fn tags(firewall: &FirewallRequest) -> BTreeSet<&String> {
    firewall.tags.iter().flatten().collect()
}

fn comparable(firewall: &FirewallRequest) -> (&str, BTreeSet<Rule>, BTreeSet<Rule>, BTreeSet<&String>) {
    (&firewall.name, inbound_rules(firewall), outbound_rules(firewall), tags(firewall))
}

fn changes(old: &FirewallRequest, new: &FirewallRequest) -> Vec<FieldChange> {
    let outbound = (outbound_rules(old) != outbound_rules(new))
        .then(|| change("outbound rules", &outbound_rules(old), &outbound_rules(new)));
    let tags = (tags(old) != tags(new)).then(|| FieldChange {
        field: "tags".to_owned(),
        from: old.tags.as_ref().map(|tags| tags.join(", ")),
        to: new.tags.as_ref().map(|tags| tags.join(", ")),
    });
    let inbound = (inbound_rules(old) != inbound_rules(new)).then(|| inbound_change(old, new));
    inbound.into_iter().chain(outbound).chain(tags).collect()
}

fn inbound_change(old: &FirewallRequest, new: &FirewallRequest) -> FieldChange {
    change("inbound rules", &inbound_rules(old), &inbound_rules(new))
}

/// Shows the rules that are removed and added.
fn change(field: &str, old: &BTreeSet<Rule>, new: &BTreeSet<Rule>) -> FieldChange {
    let text = |rules: BTreeSet<&Rule>| rules.into_iter().map(described).collect::<Vec<_>>().join(", ");
    let (removed, added) = (text(old.difference(new).collect()), text(new.difference(old).collect()));
    let value = |text: String| Some(text).filter(|text| !text.is_empty());
    FieldChange { field: field.to_owned(), from: value(removed), to: value(added) }
}

fn described((protocol, ports, addresses, load_balancers): &Rule) -> String {
    let peers = addresses.iter().cloned().chain(load_balancers.iter().map(|id| format!("load balancer {id}")));
    let ports = if ports.is_empty() { "all" } else { ports };
    format!("{protocol} {ports} ({})", peers.collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests;
