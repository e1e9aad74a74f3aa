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
use bowline_core::{FieldChange, FieldChanges, Protocol, Service, Step, TrafficPolicy, Verb};
use tokio::time::Instant;

use crate::api::{Client, Firewall, FirewallSettings, Peers, Rule};
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
    known: Mutex<Known>,
}

/// The firewall, as it was last read or written; without a time it has to be read again.
#[derive(Default)]
struct Known {
    firewall: Option<Firewall>,
    read_at: Option<Instant>,
}

/// A firewall to write.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Write {
    /// ID of the existing firewall.
    id: Option<String>,
    request: FirewallSettings,
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

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remember(&self, firewall: Option<Firewall>) {
        *self.known() = Known { firewall, read_at: Some(Instant::now()) };
    }

    /// Returns the firewall from memory, or reads it: by ID if it is known, otherwise by name.
    async fn current(&self) -> Result<Option<Firewall>> {
        let id = match &*self.known() {
            Known { firewall, read_at: Some(at) } if at.elapsed() < PERIOD => return Ok(firewall.clone()),
            Known { firewall, .. } => firewall.as_ref().map(|firewall| firewall.id.clone()),
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
            let found = self.metrics.measure(Operation::GET_BY_ID, self.client.firewall(id), Option::is_some).await;
            if let Some(found) = found.map_err(|error| error.during("could not get firewall"))? {
                return Ok(Some(found));
            }
        }
        let listed = self.client.firewall_of_name(&self.managed.name);
        let found = self.metrics.measure(Operation::GET_BY_LIST, listed, |_| true).await;
        found.map_err(|error| error.during("failed to retrieve list of firewalls from DO API"))
    }

    async fn write(&self, Write { id, request }: &Write) -> Result<Firewall> {
        if let Some(id) = id {
            let updated = self.client.write_firewall(Some(id), request);
            match self.metrics.measure(Operation::UPDATE, updated, |_| true).await {
                Err(error) if error.is_not_found() => {}
                updated => return updated.map_err(|error| error.during("failed to update firewall")),
            }
        }
        let created = self.client.write_firewall(None, request);
        let created = self.metrics.measure(Operation::CREATE, created, |_| true).await;
        created.map_err(|error| error.during("failed to create firewall"))
    }

    async fn compare(&self, cluster: &ClusterSnapshot) -> Result<LoopPlan<Write>> {
        let request = desired(&cluster.services, &self.managed, self.default_type)?;
        let summary = format!("{} inbound rules", request.inbound_rules.iter().flatten().count());
        let current = self.current().await?;
        let (verb, id) = match &current {
            Some(current) => (Verb::Update, Some(current.id.clone())),
            None => (Verb::Create, None),
        };
        let changes = changes(&current.map(|current| current.settings).unwrap_or_default(), &request);
        if verb == Verb::Update && changes.is_empty() {
            return Ok(LoopPlan::new(summary, Vec::new()));
        }
        let step = Step::new(verb, "firewall", &self.managed.name, changes, Write { id, request });
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
        // A write that fails may have been executed, so the next run reads the firewall again.
        self.known().read_at = None;
        let written = self.write(write).await.map(|firewall| self.remember(Some(firewall)));
        let result = if written.is_ok() { "reconciled" } else { "failed" };
        self.metrics.reconciled(begun.elapsed(), result, written.as_ref().err());
        written
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
) -> Result<FirewallSettings> {
    let mut rules = Vec::new();
    let mut open = BTreeSet::new();
    for service in services {
        match service.kind {
            ServiceType::NodePort if is_managed(service) => {
                rules.extend(service.ports.iter().filter_map(node_port_rule))
            }
            ServiceType::LoadBalancer if passes_through(service, default_type)? => {
                rules.extend(load_balancer_rules(service).into_iter().filter(|rule| {
                    let is_open = rule.sources.as_ref().is_some_and(|sources| sources.load_balancer_uids.is_empty());
                    !is_open || open.insert((rule.protocol.clone(), rule.ports.clone()))
                }));
            }
            _ => {}
        }
    }
    rules.sort_by(|a, b| (&a.protocol, &a.ports).cmp(&(&b.protocol, &b.ports)));
    let outbound = [("tcp", "all"), ("udp", "all"), ("icmp", "")].map(|(protocol, ports)| {
        let destinations = Some(anywhere());
        Rule { protocol: protocol.to_owned(), ports: ports.to_owned(), destinations, sources: None }
    });
    Ok(FirewallSettings {
        name: managed.name.clone(),
        inbound_rules: Some(rules).filter(|rules| !rules.is_empty()),
        outbound_rules: Some(outbound.to_vec()),
        droplet_ids: None,
        tags: Some(managed.tags.clone()),
    })
}

// upstream: an invalid value counts as true.
fn is_managed(service: &Service) -> bool {
    let value = Annotations(&service.annotations).get(&FIREWALL_MANAGED).unwrap_or_else(|why| {
        tracing::warn!(namespace = service.namespace, service = service.name, "{}: {why}", FIREWALL_MANAGED.key);
        None
    });
    value.unwrap_or(true)
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

fn inbound(protocol: &str, port: u16, sources: Peers) -> Rule {
    Rule { protocol: protocol.to_owned(), ports: port.to_string(), sources: Some(sources), destinations: None }
}

fn node_port_rule(port: &ServicePort) -> Option<Rule> {
    let number = port.node_port.filter(|port| *port > 0)?;
    protocol(port).map(|protocol| inbound(protocol, number, anywhere()))
}

/// Returns the rule for the health check, and those for the ports of the Service.
fn load_balancer_rules(service: &Service) -> Vec<Rule> {
    let sources = match Annotations(&service.annotations).text(&LOAD_BALANCER_ID) {
        Some(id) => Peers { load_balancer_uids: vec![id.to_owned()], ..Peers::default() },
        None => anywhere(),
    };
    let is_local = service.traffic_policy == TrafficPolicy::Local;
    let check = service.health_check_node_port.filter(|port| is_local && *port > 0).unwrap_or(KUBE_PROXY_PORT);
    let ports = service.ports.iter().filter_map(|port| Some(inbound(protocol(port)?, port.port, anywhere())));
    std::iter::once(inbound("tcp", check, sources)).chain(ports).collect()
}

// ---- comparison

/// Returns the rules and tags that are removed and added. Their order does not matter, nor do other kinds of peers.
fn changes(old: &FirewallSettings, new: &FirewallSettings) -> Vec<FieldChange> {
    let rules = |rules: &Option<Vec<Rule>>| rules.iter().flatten().map(described).collect::<BTreeSet<_>>();
    let tags = |settings: &FirewallSettings| settings.tags.iter().flatten().cloned().collect::<BTreeSet<_>>();
    let mut changes = FieldChanges::default();
    changes.compare_sets("inbound rule", &rules(&old.inbound_rules), &rules(&new.inbound_rules));
    changes.compare_sets("outbound rule", &rules(&old.outbound_rules), &rules(&new.outbound_rules));
    changes.compare_sets("tag", &tags(old), &tags(new));
    changes.into_vec()
}

/// Describes everything that matters about a rule. All ports are written as `all` and read as `0`.
fn described(rule: &Rule) -> String {
    let ports = if matches!(rule.ports.as_str(), "" | "0") { "all" } else { &rule.ports };
    let peers = rule.sources.iter().chain(&rule.destinations);
    let peers: BTreeSet<String> = peers
        .flat_map(|peers| {
            let load_balancers = peers.load_balancer_uids.iter().map(|id| format!("load balancer {id}"));
            peers.addresses.iter().cloned().chain(load_balancers)
        })
        .collect();
    format!("{} {ports} ({})", rule.protocol, peers.into_iter().collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests;
