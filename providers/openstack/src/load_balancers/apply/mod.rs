//! Carries out one step: one writing call, and the looks that it needs.
//!
//! ```text
//!  Payload ──► which load balancer? ──► the first step about it ─────► write ──► Octavia is at work: Started
//!                                       polled, and it is at rest ───────┘
//!                                       neither: read it ──► at rest ────┘
//!                                                      └──► at work: Error::pending, nothing is written
//! ```
//!
//! A step may come again after it was carried out, and may have been cut off before its outcome was known. So what is there
//! already in the way that is wished, and what is gone already, is a success.

mod neutron;
mod octavia;

use bowline_cloud::{Applied, Error, ErrorKind, Result};
use bowline_core::{Operation, Progress};
use serde_json::{Value, json};

use super::change::{BalancerRef, Change, Payload, Polled};
use super::observation::Observation;
use super::plan::sharer;
use super::waiting::{ACTIVE, ERROR, PENDING_DELETE, PENDING_UPDATE, Waiting, check_at_rest};
use super::written::Written;
use crate::api::network;
use crate::api::octavia::{self as api, LoadBalancer};
use crate::session::Session;

pub(super) const APPLY: &str = "change a balancer";
const POLL: &str = "poll a load balancer";

/// Writes to the cloud.
#[derive(Clone, Copy)]
pub(super) struct Writer<'a> {
    pub(super) session: &'a Session,
    pub(super) waiting: &'a Waiting,
    pub(super) written: &'a Written,
    /// The load balancer that an operation has ended on right before this step.
    pub(super) polled: Option<&'a Polled>,
}

impl Writer<'_> {
    /// Applies a step.
    pub(super) async fn write(&self, payload: Payload) -> Result<Applied<Observation>> {
        let Payload { balancer, is_first, change } = payload;
        let started = match balancer {
            None => self.execute(&LoadBalancer::default(), change).await?,
            Some(balancer) => self.write_at_rest(&self.id_of(balancer).await?, is_first, change).await?,
        };
        Ok(started.map_or(Applied::Done, Applied::Started))
    }

    /// Polls an operation of Octavia.
    pub(super) async fn poll(&self, operation: &Operation) -> Result<Progress<Polled>> {
        let id = operation.id.clone();
        let balancer = api::LOAD_BALANCERS.find(self.session, &id).await.map_err(|error| error.during(POLL))?;
        match &balancer {
            Some(balancer) => self.waiting.saw(balancer),
            None => self.waiting.forget(&id),
        }
        let is_running = balancer.as_ref().is_some_and(LoadBalancer::is_at_work);
        Ok(if is_running { Progress::Running } else { Progress::Done(Polled { id, balancer }) })
    }

    /// Writes to a load balancer, or at its address. The plan's locks keep other Services from writing to it meanwhile.
    async fn write_at_rest(&self, id: &str, is_first: bool, change: Change) -> Result<Option<Operation>> {
        let polled = self.polled.filter(|polled| polled.id == id);
        let seen = match is_first && polled.is_none() && !change.needs_look() {
            true => Some(LoadBalancer { id: id.to_owned(), ..LoadBalancer::default() }),
            false => self.look(id, polled, &change).await?,
        };
        let Some(balancer) = seen else { return Ok(None) };
        let status = if change.deletes_balancer() { PENDING_DELETE } else { PENDING_UPDATE };
        let is_of_octavia = !change.needs_vip();
        self.execute(&balancer, change).await?;
        Ok(if is_of_octavia { self.started(balancer, status) } else { None })
    }

    /// The operation that a write to a load balancer has started.
    fn started(&self, balancer: LoadBalancer, status: &str) -> Option<Operation> {
        self.waiting.operation(&LoadBalancer { provisioning_status: status.to_owned(), ..balancer })
    }

    /// The load balancer as it is now, if it can be changed; `None` if the change is made already: it is gone, or going.
    async fn look(&self, id: &str, polled: Option<&Polled>, change: &Change) -> Result<Option<LoadBalancer>> {
        let balancer = match polled.map(|polled| polled.balancer.clone()) {
            Some(Some(balancer)) => balancer,
            Some(None) if change.is_farewell() => return Ok(None),
            _ => match api::LOAD_BALANCERS.get(self.session, id).await {
                Err(error) if error.is_not_found() && change.is_farewell() => {
                    self.waiting.forget(id);
                    return Ok(None);
                }
                read => read.map_err(told)?,
            },
        };
        let is_fresh = self.waiting.is_fresh(&balancer);
        self.waiting.saw(&balancer);
        match balancer.provisioning_status.as_str() {
            // There are no floating IPs of IPv6, and which family a new balancer gets is not always known before.
            ACTIVE if change.needs_vip() && balancer.has_ipv6_vip() => Ok(None),
            ACTIVE => Ok(Some(balancer)),
            ERROR if change.deletes_balancer() => Ok(Some(balancer)),
            ERROR if is_fresh => self.discard(id).await.map(|()| None),
            PENDING_DELETE if change.deletes_balancer() => Ok(None),
            _ => match self.waiting.operation(&balancer) {
                Some(operation) => Err(Error::pending(operation, APPLY)),
                None => check_at_rest(APPLY, &balancer).map(|()| Some(balancer)),
            },
        }
    }

    /// Makes the call. `balancer` is the payload's; if it was not read, only its ID is known.
    async fn execute(&self, balancer: &LoadBalancer, change: Change) -> Result<Option<Operation>> {
        let session = self.session;
        let written = match change {
            Change::CreateLoadBalancer { body } => return self.create_balancer(&body).await,
            Change::UpdateLoadBalancer { body, tags } => self.update_balancer(balancer, body, &tags).await,
            Change::LeaveLoadBalancer { tag } => self.leave_balancer(balancer, tag).await,
            Change::DeleteLoadBalancer { cascade, tag } => self.delete_unshared(balancer, cascade, &tag).await,
            Change::DiscardLoadBalancer => self.discard(&balancer.id).await,
            Change::CreateListener { body, joins } => self.create_listener(balancer, joins, body).await,
            Change::RetagListener { id, body, tags } => self.retag_listener(balancer, &id, body, &tags).await,
            Change::CreatePool { listener, body } => self.create_pool(balancer, &listener, body).await,
            Change::SetMembers { pool, members } => self.set_members(balancer, &pool, &members).await,
            Change::CreateMember { pool, body } => self.create_member(balancer, &pool, &body).await,
            Change::DeleteMember { pool, id } => api::delete_member(session, &pool, &id).await.map_err(told),
            Change::CreateMonitor { pool, body } => self.create_monitor(balancer, &pool, body).await,
            Change::CreateFloatingIp { body, subnets } => self.create_floating_ip(balancer, body, &subnets).await,
            Change::AttachFloatingIp { id, port } => self.attach_floating_ip(&id, port, balancer).await,
            Change::DetachFloatingIp { id, port } => self.detach_floating_ip(&id, &port).await,
            Change::DeleteFloatingIp { id, port, leads_to } => self.delete_floating_ip(&id, &port, leads_to).await,
            Change::CreateSecurityGroup { body } => self.create_group(&body).await,
            Change::CreateSecurityGroupRule { group, body } => self.create_rule(&group, body).await,
            Change::JoinSecurityGroup { port, group } => self.join_group(*port, &group).await,
            Change::LeaveSecurityGroup { port, group } => self.leave_group(*port, &group).await,
            Change::DeletePortTag { port, tag } => network::delete_port_tag(session, &port, &tag).await.map_err(told),
            Change::Update { resource, id, body } => resource.update(session, &id, &body).await.map_err(told),
            Change::Delete { resource, id } => resource.delete(session, &id).await.map_err(told),
        };
        written.map(|()| None)
    }

    /// Another Service may have come to use it since the plan was made, which may be minutes ago.
    async fn check_unshared(&self, balancer: &LoadBalancer, own: &str) -> Result<()> {
        let id = &balancer.id;
        match sharer(own, balancer, &self.listeners(balancer).await?) {
            None => Ok(()),
            Some(other) => {
                let message = format!("load balancer {id} is not deleted: {other} has come to use it");
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
        if let Some(id) = polled.map(|balancer| balancer.id.clone()).or_else(|| self.waiting.created_as(&name)) {
            return Ok(id);
        }
        match self.named(&name).await?.as_slice() {
            [one] => Ok(one.id.clone()),
            // Whoever plans anew sees what there is.
            others => {
                let message =
                    format!("there are {} load balancers named {name}, where there was to be one", others.len());
                Err(Error::new(ErrorKind::Conflict, APPLY, message))
            }
        }
    }

    /// Those of this name that are there to stay.
    async fn named(&self, name: &str) -> Result<Vec<LoadBalancer>> {
        let mut found = api::LOAD_BALANCERS.list(self.session, &[("name", name)]).await.map_err(told)?;
        found.retain(|balancer| balancer.name == name && !balancer.is_leaving());
        Ok(found)
    }
}

impl Change {
    /// It deletes the whole balancer.
    fn deletes_balancer(&self) -> bool {
        matches!(self, Change::DeleteLoadBalancer { .. } | Change::DiscardLoadBalancer)
    }

    /// It takes something away: if the balancer is gone, that is gone, too.
    fn is_farewell(&self) -> bool {
        match self {
            Change::UpdateLoadBalancer { body, tags } => *body == json!({}) && tags.add.is_empty(),
            Change::LeaveLoadBalancer { .. } | Change::Delete { .. } | Change::DeleteMember { .. } => true,
            _ => self.deletes_balancer(),
        }
    }

    /// It depends on what the balancer is like by then, whatever it was when the plan was made.
    fn needs_look(&self) -> bool {
        match self {
            Change::UpdateLoadBalancer { tags, .. } => !tags.is_nothing(),
            Change::CreateListener { joins, .. } => joins.is_some(),
            Change::LeaveLoadBalancer { .. } | Change::DeleteLoadBalancer { .. } => true,
            _ => self.needs_vip(),
        }
    }

    /// It is written to Neutron, and needs the balancer's port. All others that are about a balancer are written to Octavia.
    pub(super) fn needs_vip(&self) -> bool {
        matches!(self, Change::CreateFloatingIp { .. } | Change::AttachFloatingIp { .. })
    }
}

/// In the words of the contract.
fn told(error: Error) -> Error {
    error.during(APPLY)
}

/// The body with one more field.
fn with(mut body: Value, field: &str, value: &str) -> Value {
    if let Some(fields) = body.as_object_mut() {
        fields.insert(field.to_owned(), value.into());
    }
    body
}

/// The text of a field of a body that was planned.
fn text<'a>(body: &'a Value, field: &str) -> &'a str {
    body.get(field).and_then(Value::as_str).unwrap_or_default()
}
