//! Plans: the steps from the observed to the desired state. Pure.
//!
//! Order of creation: allocation, monitors, pools, LB service, virtual servers. Then what is no longer needed is deleted in the
//! opposite order, so that every object is referenced only by objects that exist.

mod removal;
mod update;
mod warnings;

use bowline_cloud::{Error, ErrorKind, Result};
use bowline_core::{DesiredLoadBalancer, FieldChange, LoadBalancerSpec, Plan, PortSpec, Protocol, Step, Verb};

use super::names::{OwnTags, PORT};
use super::objects::Object;
use super::{Allocated, Allocation, Change, State, Write, annotations};
use crate::config::nsx::LoadBalancerConfig;
use crate::nsx::{Collection, Realization, Record, VIRTUAL_SERVERS};
use update::Update;

const PLAN: &str = "plan load balancer";

pub(super) fn plan(
    config: &LoadBalancerConfig,
    tags: &OwnTags,
    desired: &DesiredLoadBalancer,
    state: Option<&State>,
) -> Result<Plan<Change>> {
    let (none, names) = (State::default(), tags.names(&desired.key));
    let state = state.unwrap_or(&none);
    let Some(spec) = &desired.spec else { return Ok(removal::removal(config, &names, state)) };
    let class = annotations::class(&desired.annotations);
    let errors: Vec<_> = invalid_ports(spec).chain(invalid_class(config, class)).collect();
    // What exists is kept up to date, so that the Service does not lose its Nodes.
    if let Some(error) = errors.first().filter(|_| state.objects.is_empty()) {
        return Err(error.clone());
    }
    let failed = state.objects.allocations.iter().map(|one| &one.allocation.id);
    let taken = failed.chain(&state.objects.deleted).chain(&state.lookups.deleted_services).cloned().collect();
    let errors = errors.iter().map(|error| error.to_plan_error("Service")).collect();
    let plan = Update::new(config, &names.without_ids(taken), spec, state, class, errors).run();
    Ok(Plan { warnings: warnings::warnings(desired, spec, state, class), ..plan })
}

/// Returns the errors of ports that NSX load balancers cannot have.
fn invalid_ports(spec: &LoadBalancerSpec) -> impl Iterator<Item = Error> {
    spec.ports.iter().filter(|port| node_port(port).is_none()).map(|port| {
        let message = match port.protocol {
            Protocol::Sctp => format!("spec.ports: NSX load balancers have no protocol SCTP (port {})", port.port),
            _ => {
                let setting = "spec.allocateLoadBalancerNodePorts";
                format!("{setting}: NSX load balancers need a node port for port {}", port.port)
            }
        };
        Error::new(ErrorKind::Unsupported, PLAN, message)
    })
}

/// Returns the node port of a port that NSX load balancers can have.
fn node_port(port: &PortSpec) -> Option<u16> {
    port.node_port.filter(|_| port.protocol != Protocol::Sctp)
}

fn invalid_class(config: &LoadBalancerConfig, class: &str) -> Option<Error> {
    let classes: Vec<_> = config.classes.keys().map(String::as_str).collect();
    let message = format!("invalid load balancer class {class}; the configuration has {}", classes.join(", "));
    (!config.classes.contains_key(class)).then(|| Error::new(ErrorKind::InvalidConfig, PLAN, message))
}

// ---- steps

/// Returns the step that creates or updates an object; `None` if it is as it should be. Only a virtual server depends on an operation,
/// the allocation of its address.
fn write(mut object: Object, current: Option<&Record>, address_of: Option<Allocation>) -> Option<Step<Change>> {
    let changes = object.changes(current);
    let is_independent = object.collection != &VIRTUAL_SERVERS;
    let (kind, name) = (object.collection.kind, object.name().to_owned());
    let verb = match current {
        Some(current) if object.merged(Some(current)) == *current && address_of.is_none() => return None,
        Some(current) => {
            current.id().clone_into(&mut object.id);
            Verb::Update
        }
        None => Verb::Create,
    };
    let change = Change::Write(Box::new(Write { object, current: current.cloned(), address_of }));
    Some(Step { independent: is_independent, repeatable: true, ..Step::new(verb, kind, name, changes, change) })
}

/// Returns the steps that delete all objects but these.
fn deletions(collection: &'static Collection, all: &[Record], kept: &[&str]) -> Vec<Step<Change>> {
    let unused = all.iter().filter(|one| !kept.contains(&one.id()));
    let step = |one: &Record| {
        let change = Change::Delete(collection, one.id().to_owned());
        Step::new(Verb::Delete, collection.kind, name_with_port(one), Vec::new(), change)
    };
    unused.map(step).collect()
}

/// Name of an object with its port: the objects of all ports have one name.
fn name_with_port(record: &Record) -> String {
    let port = record.tag(PORT).map(|port| format!(" {port}")).unwrap_or_default();
    format!("{}{port}", record.name())
}

fn release(allocated: &Allocated) -> Step<Change> {
    let allocation = &allocated.allocation;
    let alarm = match &allocated.realization {
        Some(Realization::Failed { message, .. }) => vec![FieldChange::new("alarm", Some(message.clone()), None)],
        _ => Vec::new(),
    };
    let name = format!("{} in {}", allocation.id, allocation.pool);
    Step::new(Verb::Delete, "IP allocation", name, alarm, Change::Release(allocation.clone()))
}

/// Lock of the plans that create or delete the LB service.
fn service_lock(tier1: &str) -> String {
    format!("LB service at {tier1}")
}
