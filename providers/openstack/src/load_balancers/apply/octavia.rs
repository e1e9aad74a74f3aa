//! What is written to Octavia. After each call the balancer is at work.

use bowline_cloud::{Error, ErrorKind, Result};
use bowline_core::Operation;
use serde_json::{Value, json};

use super::{APPLY, Writer, text, told, with};
use crate::api::octavia::{self as api, Listener, LoadBalancer, Member, Pool};
use crate::load_balancers::change::{Joining, ListenerRef, PoolRef, Retag};
use crate::load_balancers::plan::{check_room, is_made_for_service, sharer};
use crate::load_balancers::waiting::PENDING_CREATE;

impl Writer<'_> {
    // ---- the balancer itself

    /// Octavia creates any number of load balancers with one name, so the step lists them first, unless that was done just before.
    pub(super) async fn create_balancer(&self, body: &Value) -> Result<Option<Operation>> {
        let name = text(body, "name");
        let known = match self.waiting.created_as(name) {
            Some(id) => Some(LoadBalancer { id, name: name.to_owned(), ..LoadBalancer::default() }),
            None if self.waiting.has_just_missed(name) => None,
            None => self.named(name).await.map_err(Error::executed_nothing)?.into_iter().next(),
        };
        if let Some(known) = known {
            return Ok(self.started(known, PENDING_CREATE));
        }
        self.waiting.creates(name);
        let made = api::LOAD_BALANCERS.create(self.session, body).await.map_err(told).inspect_err(|error| {
            if !error.is_outcome_unknown() {
                self.waiting.forget_named(name);
            }
        })?;
        self.waiting.created(name, &made.id);
        Ok(self.started(LoadBalancer { name: name.to_owned(), ..made }, PENDING_CREATE))
    }

    /// Deletes a balancer that no other Service uses.
    pub(super) async fn delete_unshared(&self, balancer: &LoadBalancer, cascade: bool, own: &str) -> Result<()> {
        self.check_unshared(balancer, own).await?;
        self.delete_balancer(&balancer.id, cascade).await
    }

    async fn delete_balancer(&self, id: &str, cascade: bool) -> Result<()> {
        unless_so(api::delete_load_balancer(self.session, id, cascade).await, self.is_going(id)).await
    }

    /// Deletes a balancer that has never been in service, as a whole. That is the end of this pass: the next one makes another.
    pub(super) async fn discard(&self, id: &str) -> Result<()> {
        self.delete_balancer(id, true).await?;
        self.waiting.forget(id);
        Err(discarded(id))
    }

    async fn is_going(&self, id: &str) -> Result<bool> {
        let found = api::LOAD_BALANCERS.find(self.session, id).await.map_err(told)?;
        Ok(found.is_none_or(|balancer| balancer.is_leaving()))
    }

    /// One that is to be tagged has been looked at right before.
    pub(super) async fn update_balancer(&self, balancer: &LoadBalancer, body: Value, tags: &Retag) -> Result<()> {
        match with_tags(body, &balancer.tags, tags) {
            Some(body) => api::LOAD_BALANCERS.resource.update(self.session, &balancer.id, &body).await.map_err(told),
            None => Ok(()),
        }
    }

    /// Of Services that leave at the same time, each has planned with the tags of the others: only the tags of now show which is
    /// the last one. Its tag stays until the balancer is deleted, so that an interruption leaves nothing behind.
    pub(super) async fn leave_balancer(&self, balancer: &LoadBalancer, tag: String) -> Result<()> {
        let is_last = is_made_for_service(balancer)
            && sharer(&tag, balancer, &[]).is_none()
            && sharer(&tag, balancer, &self.listeners(balancer).await?).is_none();
        let tags = Retag { add: Vec::new(), remove: vec![tag] };
        if is_last { Ok(()) } else { self.update_balancer(balancer, json!({}), &tags).await }
    }

    // ---- what hangs on it

    pub(super) async fn create_listener(
        &self,
        balancer: &LoadBalancer,
        joins: Option<Joining>,
        body: Value,
    ) -> Result<()> {
        if let Some(joining) = joins {
            check_room(APPLY, &joining, balancer, &self.listeners(balancer).await?)?;
        }
        let wanted = with(body, "loadbalancer_id", &balancer.id);
        let is_it = |there: &Listener| {
            let port = wanted.get("protocol_port").and_then(Value::as_u64);
            there.protocol == text(&wanted, "protocol")
                && Some(u64::from(there.protocol_port)) == port
                && there.name == text(&wanted, "name")
        };
        let is_there = async { Ok(self.listeners(balancer).await?.iter().any(is_it)) };
        unless_so(api::LISTENERS.create(self.session, &wanted).await, is_there).await
    }

    pub(super) async fn retag_listener(
        &self,
        balancer: &LoadBalancer,
        id: &str,
        body: Value,
        tags: &Retag,
    ) -> Result<()> {
        let there = if tags.is_nothing() { Vec::new() } else { self.listeners(balancer).await? };
        let now = there.into_iter().find(|listener| listener.id == id).map(|listener| listener.tags);
        match with_tags(body, &now.unwrap_or_default(), tags) {
            Some(body) => api::LISTENERS.resource.update(self.session, id, &body).await.map_err(told),
            None => Ok(()),
        }
    }

    pub(super) async fn create_pool(&self, balancer: &LoadBalancer, listener: &ListenerRef, body: Value) -> Result<()> {
        let listener = self.listener_id(balancer, listener).await?;
        let wanted = with(body, "listener_id", &listener);
        let is_it = |there: &Pool| there.protocol == text(&wanted, "protocol") && there.name == text(&wanted, "name");
        let is_there = async { Ok(self.pool_of(balancer, &listener).await?.as_ref().is_some_and(is_it)) };
        unless_so(api::POOLS.create(self.session, &wanted).await, is_there).await
    }

    pub(super) async fn set_members(&self, balancer: &LoadBalancer, pool: &PoolRef, members: &[Value]) -> Result<()> {
        let pool = self.pool_id(balancer, pool).await?;
        api::set_members(self.session, &pool, members).await.map_err(told)
    }

    pub(super) async fn create_member(&self, balancer: &LoadBalancer, pool: &PoolRef, wanted: &Value) -> Result<()> {
        let pool = &self.pool_id(balancer, pool).await?;
        let is_it = |there: &Member| {
            let port = wanted.get("protocol_port").and_then(Value::as_u64);
            there.address == text(wanted, "address") && Some(u64::from(there.protocol_port)) == port
        };
        let is_there = async { Ok(api::members(self.session, pool).await.map_err(told)?.iter().any(is_it)) };
        unless_so(api::create_member(self.session, pool, wanted).await, is_there).await
    }

    pub(super) async fn create_monitor(&self, balancer: &LoadBalancer, pool: &PoolRef, body: Value) -> Result<()> {
        let pool = &self.pool_id(balancer, pool).await?;
        let wanted = with(body, "pool_id", pool);
        let is_there = async {
            let monitors = api::HEALTH_MONITORS.list(self.session, &[("pool_id", pool)]).await.map_err(told)?;
            Ok(monitors.iter().any(|there| there.kind == text(&wanted, "type")))
        };
        unless_so(api::HEALTH_MONITORS.create(self.session, &wanted).await, is_there).await
    }

    // ---- what earlier steps have made

    pub(super) async fn listeners(&self, balancer: &LoadBalancer) -> Result<Vec<Listener>> {
        api::LISTENERS.list(self.session, &[("loadbalancer_id", &balancer.id)]).await.map_err(told)
    }

    async fn listener_id(&self, balancer: &LoadBalancer, listener: &ListenerRef) -> Result<String> {
        let (protocol, port) = match listener {
            ListenerRef::Id(id) => return Ok(id.clone()),
            ListenerRef::At { protocol, port } => (protocol, *port),
        };
        let listeners = self.listeners(balancer).await?;
        let found = listeners.into_iter().find(|there| there.protocol == *protocol && there.protocol_port == port);
        found.map(|there| there.id).ok_or_else(|| vanished(format!("a listener {protocol}:{port}")))
    }

    async fn pool_id(&self, balancer: &LoadBalancer, pool: &PoolRef) -> Result<String> {
        let listener = match pool {
            PoolRef::Id(id) => return Ok(id.clone()),
            PoolRef::Of(listener) => self.listener_id(balancer, listener).await?,
        };
        let pool = self.pool_of(balancer, &listener).await?;
        pool.map(|pool| pool.id).ok_or_else(|| vanished(format!("a pool of the listener {listener}")))
    }

    async fn pool_of(&self, balancer: &LoadBalancer, listener: &str) -> Result<Option<Pool>> {
        let pools = api::POOLS.list(self.session, &[("loadbalancer_id", &balancer.id)]).await.map_err(told)?;
        Ok(pools.into_iter().find(|pool| pool.listeners.iter().any(|served| served.id == listener)))
    }
}

/// What came of a call. A conflict may be with an earlier attempt that came through: `is_so` tells, and is asked only then.
async fn unless_so<T>(called: std::result::Result<T, Error>, is_so: impl Future<Output = Result<bool>>) -> Result<()> {
    match called {
        Ok(_) => Ok(()),
        Err(error) if error.status() == Some(409) && is_so.await? => Ok(()),
        Err(error) => Err(told(error)),
    }
}

/// The body with the tags that there are to be; `None` if nothing is to be changed.
fn with_tags(mut body: Value, now: &[String], tags: &Retag) -> Option<Value> {
    let then = tags.applied_to(now);
    let fields = body.as_object_mut()?;
    if !tags.is_nothing() && then != now {
        fields.insert("tags".to_owned(), json!(then));
    }
    (!fields.is_empty()).then_some(body)
}

/// An earlier step was to make it, and somebody has removed it since.
fn vanished(what: String) -> Error {
    Error::new(ErrorKind::Conflict, APPLY, format!("{what} was to be there by now and is not"))
}

/// A conflict, because the rest of the plan is about a balancer that is gone: only who plans anew can go on.
fn discarded(id: &str) -> Error {
    let message = format!(
        "load balancer {id} went to ERROR while it was being made, Octavia's log says why; it was deleted, and its creation \
         will be tried again"
    );
    Error::new(ErrorKind::Conflict, APPLY, message)
}
