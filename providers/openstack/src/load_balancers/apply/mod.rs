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
use crate::api::octavia::{self as api, LoadBalancer};
use crate::session::Session;

pub(super) const APPLY: &str = "change a balancer";
const POLL: &str = "poll a load balancer";

/// Writes to the cloud.
#[derive(Clone, Copy)]
pub(super) struct Writer<'a> {
    pub(super) session: &'a Session,
    pub(super) waiting: &'a Waiting,
    /// The load balancer that an operation has ended on right before this step.
    pub(super) polled: Option<&'a Polled>,
}

impl Writer<'_> {
    /// Carries out what a step says.
    pub(super) async fn write(&self, payload: Payload) -> Result<Applied<Observation>> {
        let Payload { balancer, is_first, change } = payload;
        let started = match balancer {
            None => self.write_freely(change).await?,
            Some(balancer) => self.write_at_rest(&self.id_of(balancer).await?, is_first, change).await?,
        };
        Ok(started.map_or(Applied::Done, Applied::Started))
    }

    /// Polls an operation of Octavia.
    pub(super) async fn poll(&self, operation: &Operation) -> Result<Progress<Polled>> {
        let id = operation.id.clone();
        let balancer = match api::LOAD_BALANCERS.get(self.session, &id).await {
            Ok(balancer) => Some(balancer),
            Err(error) if error.is_not_found() => None,
            Err(error) => return Err(error.during(POLL)),
        };
        match &balancer {
            Some(balancer) => self.waiting.saw(balancer),
            None => self.waiting.forget(&id),
        }
        let is_running = balancer.as_ref().is_some_and(LoadBalancer::is_at_work);
        Ok(if is_running { Progress::Running } else { Progress::Done(Polled { id, balancer }) })
    }

    /// What needs no balancer at rest: there is none yet, or Octavia has no part in it.
    async fn write_freely(&self, change: Change) -> Result<Option<Operation>> {
        match change {
            Change::CreateLoadBalancer { body } => self.create_balancer(&body).await,
            change => self.write_to_neutron(change, None).await.map(|()| None),
        }
    }

    /// What is done to a load balancer, or at its address. The plan's locks keep other Services from writing to it meanwhile.
    async fn write_at_rest(&self, id: &str, is_first: bool, change: Change) -> Result<Option<Operation>> {
        let seen = match self.polled.filter(|polled| polled.id == id) {
            Some(Polled { balancer: Some(balancer), .. }) => {
                Some(self.look(Box::new(balancer.clone()), &change).await?)
            }
            Some(Polled { balancer: None, .. }) if change.is_farewell() => Some(Look::NothingToDo),
            None if is_first && !change.needs_look() => None,
            _ => Some(self.read(id, &change).await?),
        };
        let seen = match seen {
            // There are no floating IPs of IPv6, and which family a new balancer gets is not always known before.
            Some(Look::Rest(balancer)) if change.needs_vip() && balancer.has_ipv6_vip() => return Ok(None),
            Some(Look::Rest(balancer)) => Some(balancer),
            Some(Look::NothingToDo) => return Ok(None),
            None => None,
        };
        if !change.is_of_octavia() {
            return self.write_to_neutron(change, seen.as_deref()).await.map(|()| None);
        }
        let status = if change.deletes_balancer() { PENDING_DELETE } else { PENDING_UPDATE };
        let name = seen.as_ref().map(|balancer| balancer.name.clone()).unwrap_or_default();
        self.write_to_octavia(id, seen.as_deref(), change).await?;
        Ok(self.started(id, name, status))
    }

    /// The operation that a write to a load balancer has started.
    fn started(&self, id: &str, name: String, status: &str) -> Option<Operation> {
        let (id, provisioning_status) = (id.to_owned(), status.to_owned());
        self.waiting.operation(&LoadBalancer { id, name, provisioning_status, ..LoadBalancer::default() })
    }

    /// Reads the load balancer, and whether it can be changed now.
    async fn read(&self, id: &str, change: &Change) -> Result<Look> {
        match api::LOAD_BALANCERS.get(self.session, id).await {
            Ok(balancer) => self.look(Box::new(balancer), change).await,
            Err(error) if error.is_not_found() && change.is_farewell() => {
                self.waiting.forget(id);
                Ok(Look::NothingToDo)
            }
            Err(error) => Err(told(error)),
        }
    }

    /// Whether a load balancer as it is now can be changed.
    async fn look(&self, balancer: Box<LoadBalancer>, change: &Change) -> Result<Look> {
        let id = &balancer.id;
        let is_fresh = self.waiting.is_fresh(&balancer);
        self.waiting.saw(&balancer);
        match balancer.provisioning_status.as_str() {
            ACTIVE => Ok(Look::Rest(balancer)),
            ERROR if change.deletes_balancer() => Ok(Look::Rest(balancer)),
            ERROR if is_fresh => self.discard(id).await.map(|()| Look::NothingToDo),
            PENDING_DELETE if change.deletes_balancer() => Ok(Look::NothingToDo),
            _ => match self.waiting.operation(&balancer) {
                Some(operation) => Err(Error::pending(operation, APPLY)),
                None => check_at_rest(APPLY, &balancer).map(|()| Look::Rest(balancer)),
            },
        }
    }

    /// Another Service may have come to use it since the plan was made, which may be minutes ago.
    async fn check_unshared(&self, balancer: &LoadBalancer, own: &str) -> Result<()> {
        let id = &balancer.id;
        match sharer(own, balancer, &self.listeners(id).await?) {
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

/// What a look at a balancer tells whoever wants to change it.
enum Look {
    /// It can be changed.
    Rest(Box<LoadBalancer>),
    /// It is as is wished already: gone, or going.
    NothingToDo,
}

impl Change {
    /// It deletes the whole balancer.
    fn deletes_balancer(&self) -> bool {
        matches!(self, Change::DeleteLoadBalancer { .. } | Change::DiscardLoadBalancer)
    }

    /// It takes something away: if the balancer is gone, that is gone, too.
    fn is_farewell(&self) -> bool {
        let untags =
            matches!(self, Change::UpdateLoadBalancer { body, tags } if *body == json!({}) && tags.add.is_empty());
        let deletes = matches!(
            self,
            Change::DeleteListener { .. }
                | Change::DeletePool { .. }
                | Change::DeleteMember { .. }
                | Change::DeleteMonitor { .. }
        );
        untags || deletes || self.deletes_balancer()
    }

    /// It depends on what the balancer is like by then, whatever it was when the plan was made.
    fn needs_look(&self) -> bool {
        let retags = matches!(self, Change::UpdateLoadBalancer { tags, .. } if !tags.is_nothing());
        let joins = matches!(self, Change::CreateListener { joins: Some(_), .. });
        retags || joins || self.needs_vip() || matches!(self, Change::DeleteLoadBalancer { .. })
    }

    /// It needs the balancer's port.
    fn needs_vip(&self) -> bool {
        matches!(self, Change::CreateFloatingIp { .. } | Change::AttachFloatingIp { .. })
    }

    pub(super) fn is_of_octavia(&self) -> bool {
        match self {
            Change::CreateLoadBalancer { .. }
            | Change::UpdateLoadBalancer { .. }
            | Change::DeleteLoadBalancer { .. }
            | Change::DiscardLoadBalancer
            | Change::CreateListener { .. }
            | Change::UpdateListener { .. }
            | Change::DeleteListener { .. }
            | Change::CreatePool { .. }
            | Change::UpdatePool { .. }
            | Change::DeletePool { .. }
            | Change::SetMembers { .. }
            | Change::CreateMember { .. }
            | Change::DeleteMember { .. }
            | Change::CreateMonitor { .. }
            | Change::UpdateMonitor { .. }
            | Change::DeleteMonitor { .. } => true,
            Change::CreateFloatingIp { .. }
            | Change::AttachFloatingIp { .. }
            | Change::DetachFloatingIp { .. }
            | Change::UpdateFloatingIp { .. }
            | Change::DeleteFloatingIp { .. }
            | Change::CreateSecurityGroup { .. }
            | Change::UpdateSecurityGroup { .. }
            | Change::DeleteSecurityGroup { .. }
            | Change::CreateSecurityGroupRule { .. }
            | Change::DeleteSecurityGroupRule { .. }
            | Change::JoinSecurityGroup { .. }
            | Change::LeaveSecurityGroup { .. }
            | Change::DeletePortTag { .. } => false,
        }
    }
}

/// In the words of the contract.
fn told(error: Error) -> Error {
    error.during(APPLY)
}

/// A step that its kind of payload does not fit.
fn misplaced(change: &Change) -> Error {
    Error::new(ErrorKind::Unexpected, APPLY, format!("this step is not understood: {change:?}"))
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
