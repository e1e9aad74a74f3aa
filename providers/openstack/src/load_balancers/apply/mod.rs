//! Carries out one step: one writing call, and the looks that it needs.
//!
//! ```text
//!  Payload ──► which load balancer? ──► written since it was last at rest? ──no──► write
//!                                                   │yes                            ▲
//!                                                   └──► look: at rest ─────────────┘
//!                                                              at work ──► InProgress, nothing is written
//! ```
//!
//! A step may come again after it was carried out, and may have been cut off before its outcome was known. So what is there
//! already in the way that is wished, and what is gone already, is a success.

mod neutron;
mod octavia;

use bowline_cloud::{Applied, Error, ErrorKind, Result};
use serde_json::{Value, json};

use super::change::{BalancerRef, Change, Payload};
use super::observation::Observation;
use super::plan::sharer;
use super::waiting::{ACTIVE, ERROR, PENDING_DELETE, Waiting, check_at_rest};
use crate::api::octavia::{self as api, LoadBalancer};
use crate::session::Session;

pub(super) const APPLY: &str = "change a balancer";

/// Writes to the cloud.
#[derive(Clone, Copy)]
pub(super) struct Writer<'a> {
    pub(super) session: &'a Session,
    pub(super) waiting: &'a Waiting,
}

impl Writer<'_> {
    /// Carries out what a step says.
    pub(super) async fn write(&self, payload: Payload) -> Result<Applied<Observation>> {
        let Payload { balancer, change } = payload;
        match balancer {
            None => self.write_freely(change).await?,
            Some(balancer) => self.write_at_rest(&self.id_of(balancer).await?, change).await?,
        }
        Ok(Applied::Done)
    }

    /// What needs no balancer at rest: there is none yet, or Octavia has no part in it.
    async fn write_freely(&self, change: Change) -> Result<()> {
        match change {
            Change::CreateLoadBalancer { body } => self.create_balancer(&body).await,
            change => self.write_to_neutron(change, None).await,
        }
    }

    /// What is done to a load balancer, or at its address. The plan's locks keep other Services from writing to it meanwhile.
    async fn write_at_rest(&self, id: &str, change: Change) -> Result<()> {
        let seen = match self.waiting.is_written(id) || change.needs_look() {
            true => match self.look(id, &change).await? {
                // There are no floating IPs of IPv6, and which family a new balancer gets is not always known before.
                Look::Rest(balancer) if change.needs_vip() && balancer.has_ipv6_vip() => return Ok(()),
                Look::Rest(balancer) => Some(balancer),
                Look::NothingToDo => return Ok(()),
            },
            false => None,
        };
        match change.is_of_octavia() {
            true => {
                // Before the call, because it may be cut off; a look too many does no harm.
                self.waiting.wrote(id);
                self.write_to_octavia(id, seen.as_deref(), change).await
            }
            false => self.write_to_neutron(change, seen.as_deref()).await,
        }
    }

    /// Whether the balancer can be changed now.
    async fn look(&self, id: &str, change: &Change) -> Result<Look> {
        let balancer = match api::load_balancer(self.session, id).await {
            Ok(balancer) => Box::new(balancer),
            Err(error) if error.is_not_found() && change.is_farewell() => {
                self.waiting.forget(id);
                return Ok(Look::NothingToDo);
            }
            Err(error) => return Err(told(error)),
        };
        self.waiting.saw(&balancer);
        match balancer.provisioning_status.as_str() {
            ACTIVE => Ok(Look::Rest(balancer)),
            ERROR if change.deletes_balancer() => Ok(Look::Rest(balancer)),
            ERROR if self.waiting.is_fresh(id) => self.discard(id).await.map(|()| Look::NothingToDo),
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
        if let Some(id) = self.waiting.made_as(&name) {
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
        let mut found = api::load_balancers(self.session, &[("name", name)]).await.map_err(told)?;
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

    fn is_of_octavia(&self) -> bool {
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
