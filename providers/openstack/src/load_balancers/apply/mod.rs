//! Applies one step of a plan: one write, and the reads that it needs.
//!
//! ```text
//!  Payload ──► load balancer ──► its first step in the plan ──► write ──► Octavia changes it: Started
//!                                just polled, and ACTIVE ────────┘
//!                                neither: read it ──► ACTIVE ────┘
//!                                               └──► PENDING: Error::pending, nothing is written
//! ```
//!
//! Steps are idempotent, because a step is applied again if its outcome is unknown: a resource that already has the desired state,
//! or is already deleted, is a success.

mod neutron;
mod octavia;

use bowline_cloud::{Applied, Error, ErrorKind, Result};
use bowline_core::{Operation, Progress};
use serde_json::{Value, json};

use super::change::{BalancerRef, Change, Payload, Polled};
use super::observation::Observation;
use super::plan::other_service;
use super::tracker::{ACTIVE, ERROR, PENDING_DELETE, PENDING_UPDATE, Tracker, check_active};
use super::write_cache::WriteCache;
use crate::api::network;
use crate::api::octavia::{self as api, LoadBalancer};
use crate::session::Session;

pub(super) const APPLY: &str = "change a load balancer";
const POLL: &str = "poll a load balancer";

/// Writes to the cloud.
#[derive(Clone, Copy)]
pub(super) struct Writer<'a> {
    pub(super) session: &'a Session,
    pub(super) tracker: &'a Tracker,
    pub(super) write_cache: &'a WriteCache,
    /// The load balancer whose operation ended right before this step.
    pub(super) polled: Option<&'a Polled>,
}

impl Writer<'_> {
    /// Applies a step.
    pub(super) async fn write(&self, payload: Payload) -> Result<Applied<Observation>> {
        let Payload { balancer, is_first, change } = payload;
        let started = match balancer {
            None => self.execute(&LoadBalancer::default(), change).await,
            Some(balancer) => self.write_active(balancer, is_first, change).await,
        };
        Ok(started.map_err(|error| error.during(APPLY))?.map_or(Applied::Done, Applied::Started))
    }

    /// Polls an Octavia operation.
    pub(super) async fn poll(&self, operation: &Operation) -> Result<Progress<Polled>> {
        let id = operation.id.clone();
        let balancer = api::LOAD_BALANCERS.find(self.session, &id).await.map_err(|error| error.during(POLL))?;
        match &balancer {
            Some(balancer) => self.tracker.record(balancer),
            None => self.tracker.forget(&id),
        }
        let is_running = balancer.as_ref().is_some_and(LoadBalancer::is_pending);
        Ok(if is_running { Progress::Running } else { Progress::Done(Polled { id, balancer }) })
    }

    /// Writes to a load balancer or to its floating IP. The plan's locks keep other Services from writing to it concurrently.
    async fn write_active(&self, balancer: BalancerRef, is_first: bool, change: Change) -> Result<Option<Operation>> {
        let id = &self.id_of(balancer).await?;
        let polled = self.polled.filter(|polled| polled.id == *id);
        let current = match is_first && polled.is_none() && !change.needs_current_state() {
            true => Some(LoadBalancer { id: id.clone(), ..LoadBalancer::default() }),
            false => self.read_current(id, polled, &change).await?,
        };
        let Some(balancer) = current else { return Ok(None) };
        let status = if change.deletes_balancer() { PENDING_DELETE } else { PENDING_UPDATE };
        let is_of_octavia = !change.needs_vip();
        self.execute(&balancer, change).await?;
        Ok(if is_of_octavia { self.started(balancer, status) } else { None })
    }

    /// Returns the operation that a write to a load balancer starts.
    fn started(&self, balancer: LoadBalancer, status: &str) -> Option<Operation> {
        self.tracker.operation(&LoadBalancer { provisioning_status: status.to_owned(), ..balancer })
    }

    /// Returns the current load balancer if it can be changed; `None` if nothing is left to change, because it is deleted.
    async fn read_current(&self, id: &str, polled: Option<&Polled>, change: &Change) -> Result<Option<LoadBalancer>> {
        let balancer = match polled.map(|polled| polled.balancer.clone()) {
            Some(Some(balancer)) => balancer,
            Some(None) if change.only_removes() => return Ok(None),
            _ => match api::LOAD_BALANCERS.get(self.session, id).await {
                Err(error) if error.is_not_found() && change.only_removes() => {
                    self.tracker.forget(id);
                    return Ok(None);
                }
                read => read?,
            },
        };
        let is_fresh = self.tracker.is_fresh(&balancer);
        self.tracker.record(&balancer);
        match balancer.provisioning_status.as_str() {
            // Floating IPs are IPv4 only, and the family of a new load balancer is not always known when the plan is made.
            ACTIVE if change.needs_vip() && balancer.has_ipv6_vip() => Ok(None),
            ACTIVE => Ok(Some(balancer)),
            ERROR if change.deletes_balancer() => Ok(Some(balancer)),
            ERROR if is_fresh => self.discard(id).await.map(|()| None),
            PENDING_DELETE if change.deletes_balancer() => Ok(None),
            _ => match self.tracker.operation(&balancer) {
                Some(operation) => Err(Error::pending(operation, APPLY)),
                None => check_active(APPLY, &balancer).map(|()| Some(balancer)),
            },
        }
    }

    /// Makes the API call. `balancer` is the payload's; only its ID is known if it was not read.
    async fn execute(&self, balancer: &LoadBalancer, change: Change) -> Result<Option<Operation>> {
        let session = self.session;
        let written = match change {
            Change::CreateLoadBalancer { body } => return self.create_balancer(&body).await,
            Change::LeaveLoadBalancer { tag } => self.leave_balancer(balancer, tag).await,
            Change::DeleteLoadBalancer { cascade, tag } => self.delete_unshared(balancer, cascade, &tag).await,
            Change::DiscardLoadBalancer => self.discard(&balancer.id).await,
            Change::CreateListener { body, joins } => self.create_listener(balancer, joins, body).await,
            Change::CreatePool { listener, body } => self.create_pool(balancer, &listener, body).await,
            Change::SetMembers { pool, members } => self.set_members(balancer, &pool, &members).await,
            Change::CreateMember { pool, body } => self.create_member(balancer, &pool, &body).await,
            Change::DeleteMember { pool, id } => api::delete_member(session, &pool, &id).await,
            Change::CreateMonitor { pool, body } => self.create_monitor(balancer, &pool, body).await,
            Change::CreateFloatingIp { body, subnets } => self.create_floating_ip(balancer, body, &subnets).await,
            Change::AttachFloatingIp { id, port } => self.attach_floating_ip(&id, port, balancer).await,
            Change::DetachFloatingIp { id, port } => self.detach_floating_ip(&id, &port).await,
            Change::DeleteFloatingIp { id, port, leads_to } => self.delete_floating_ip(&id, &port, leads_to).await,
            Change::CreateSecurityGroup { body } => self.create_group(&body).await,
            Change::CreateSecurityGroupRule { group, body } => self.create_rule(&group, body).await,
            Change::UpdatePortGroups { port, group, adds } => self.change_groups(*port, &group, adds).await,
            Change::DeletePortTag { port, tag } => network::delete_port_tag(session, &port, &tag).await,
            Change::Update { resource, id, body, tags } => self.update(balancer, resource, &id, body, &tags).await,
            Change::Delete { resource, id } => resource.delete(session, &id).await,
        };
        written.map(|()| None)
    }

    /// Fails if another Service uses the load balancer. It may have started to after the plan was made, which may be minutes ago.
    async fn check_unshared(&self, balancer: &LoadBalancer, own: &str) -> Result<()> {
        let id = &balancer.id;
        match other_service(own, balancer, &self.listeners(balancer).await?) {
            None => Ok(()),
            Some(other) => {
                let message = format!("load balancer {id} is not deleted: {other} uses it now");
                Err(Error::new(ErrorKind::Conflict, APPLY, message))
            }
        }
    }

    async fn id_of(&self, balancer: BalancerRef) -> Result<String> {
        let name = match balancer {
            BalancerRef::Id(id) => return Ok(id),
            BalancerRef::Name(name) => name,
        };
        let polled = self.polled.and_then(|polled| polled.balancer.as_ref()).filter(|balancer| balancer.name == name);
        if let Some(id) = polled.map(|balancer| balancer.id.clone()).or_else(|| self.tracker.created_id(&name)) {
            return Ok(id);
        }
        let found = self.named(&name).await?.into_iter().map(|balancer| balancer.id).collect();
        only("load balancers", &name, found)
    }

    /// Lists the load balancers of this name that are not being deleted.
    async fn named(&self, name: &str) -> Result<Vec<LoadBalancer>> {
        let mut found = api::LOAD_BALANCERS.list(self.session, &[("name", name)]).await?;
        found.retain(|balancer| balancer.name == name && !balancer.is_deleting());
        Ok(found)
    }
}

impl Change {
    /// Deletes the whole load balancer.
    fn deletes_balancer(&self) -> bool {
        matches!(self, Change::DeleteLoadBalancer { .. } | Change::DiscardLoadBalancer)
    }

    fn updates_balancer(&self) -> bool {
        matches!(self, Change::Update { resource, .. } if *resource == api::LOAD_BALANCERS.resource)
    }

    /// Only removes something, so a deleted load balancer is a success.
    fn only_removes(&self) -> bool {
        match self {
            Change::Update { body, tags, .. } => self.updates_balancer() && *body == json!({}) && tags.add.is_empty(),
            Change::LeaveLoadBalancer { .. } | Change::Delete { .. } | Change::DeleteMember { .. } => true,
            _ => self.deletes_balancer(),
        }
    }

    /// Depends on the state of the load balancer at the time of the write, not on that of the plan.
    fn needs_current_state(&self) -> bool {
        match self {
            Change::Update { tags, .. } => self.updates_balancer() && !tags.is_empty(),
            Change::CreateListener { joins, .. } => joins.is_some(),
            Change::LeaveLoadBalancer { .. } | Change::DeleteLoadBalancer { .. } => true,
            _ => self.needs_vip(),
        }
    }

    /// Is written to Neutron and needs the VIP port. All other changes with a load balancer are written to Octavia.
    pub(super) fn needs_vip(&self) -> bool {
        matches!(self, Change::CreateFloatingIp { .. } | Change::AttachFloatingIp { .. })
    }
}

/// Returns the only one of these IDs. Otherwise the next plan reads which resources exist.
fn only(kind: &str, name: &str, mut ids: Vec<String>) -> Result<String> {
    let count = ids.len();
    let id = ids.pop().filter(|_| count == 1);
    let message = || format!("found {count} {kind} named {name}, expected one");
    id.ok_or_else(|| Error::new(ErrorKind::Conflict, APPLY, message()))
}

/// Adds a field to a body.
fn with(mut body: Value, field: &str, value: &str) -> Value {
    if let Some(fields) = body.as_object_mut() {
        fields.insert(field.to_owned(), value.into());
    }
    body
}

/// Returns the text of a field of a planned body.
fn text<'a>(body: &'a Value, field: &str) -> &'a str {
    body.get(field).and_then(Value::as_str).unwrap_or_default()
}
