//! Writes to Octavia. The load balancer is PENDING after each of them.

use bowline_cloud::{Error, ErrorKind, Result};
use bowline_core::Operation;
use serde_json::{Value, json};

use super::{APPLY, Writer, text, with};
use crate::api::Resource;
use crate::api::octavia::{self as api, Listener, LoadBalancer, Member, Pool};
use crate::load_balancers::change::{Joining, ListenerRef, PoolRef, TagChange};
use crate::load_balancers::plan::{check_sharing_limit, is_created_for_service, other_service};
use crate::load_balancers::tracker::PENDING_CREATE;

impl Writer<'_> {
    // ---- load balancers

    /// Creates a load balancer. Octavia does not enforce unique names, so this lists them first, unless an observation just did.
    pub(super) async fn create_balancer(&self, body: &Value) -> Result<Option<Operation>> {
        let name = text(body, "name");
        let known = match self.tracker.created_id(name) {
            Some(id) => Some(LoadBalancer { id, name: name.to_owned(), ..LoadBalancer::default() }),
            None if self.tracker.was_just_absent(name) => None,
            None => self.named(name).await.map_err(Error::not_executed)?.into_iter().next(),
        };
        if let Some(known) = known {
            return Ok(self.started(known, PENDING_CREATE));
        }
        self.tracker.record_create(name);
        let created = api::LOAD_BALANCERS.create(self.session, body).await.inspect_err(|error| {
            if !error.is_outcome_unknown() {
                self.tracker.forget_named(name);
            }
        })?;
        self.tracker.record_created(name, &created.id);
        Ok(self.started(LoadBalancer { name: name.to_owned(), ..created }, PENDING_CREATE))
    }

    /// Deletes a load balancer that no other Service uses.
    pub(super) async fn delete_unshared(&self, balancer: &LoadBalancer, cascade: bool, own: &str) -> Result<()> {
        self.check_unshared(balancer, own).await?;
        self.delete_balancer(&balancer.id, cascade).await
    }

    async fn delete_balancer(&self, id: &str, cascade: bool) -> Result<()> {
        accept_conflict_if(api::delete_load_balancer(self.session, id, cascade).await, self.is_being_deleted(id)).await
    }

    /// Deletes a load balancer that was never in service, with all its parts, and ends this sync: the next one creates another.
    pub(super) async fn discard(&self, id: &str) -> Result<()> {
        self.delete_balancer(id, true).await?;
        self.tracker.forget(id);
        Err(discarded(id))
    }

    async fn is_being_deleted(&self, id: &str) -> Result<bool> {
        let found = api::LOAD_BALANCERS.find(self.session, id).await?;
        Ok(found.is_none_or(|balancer| balancer.is_deleting()))
    }

    /// Updates a resource. A load balancer whose tags change was read right before this call; its listeners are listed here.
    pub(super) async fn update(
        &self,
        balancer: &LoadBalancer,
        resource: Resource,
        id: &str,
        body: Value,
        tags: &TagChange,
    ) -> Result<()> {
        let now = match resource == api::LISTENERS.resource && !tags.is_empty() {
            true => self.listeners(balancer).await?.into_iter().find(|listener| listener.id == id).map(|it| it.tags),
            false => Some(balancer.tags.clone()),
        };
        match with_tags(body, &now.unwrap_or_default(), tags) {
            Some(body) => resource.update(self.session, id, &body).await,
            None => Ok(()),
        }
    }

    /// Removes the tag of a Service, unless it is the last user. Services that leave concurrently each planned with the tags of the
    /// others, so only the current tags show which one is the last. Its tag stays until the load balancer is deleted, so an
    /// interruption leaves no orphan.
    pub(super) async fn leave_balancer(&self, balancer: &LoadBalancer, tag: String) -> Result<()> {
        let is_last = is_created_for_service(balancer)
            && other_service(&tag, balancer, &[]).is_none()
            && other_service(&tag, balancer, &self.listeners(balancer).await?).is_none();
        let (resource, tags) = (api::LOAD_BALANCERS.resource, TagChange::removing(tag));
        if is_last { Ok(()) } else { self.update(balancer, resource, &balancer.id, json!({}), &tags).await }
    }

    // ---- listeners, pools, members, health monitors

    pub(super) async fn create_listener(
        &self,
        balancer: &LoadBalancer,
        joins: Option<Joining>,
        body: Value,
    ) -> Result<()> {
        if let Some(joining) = joins {
            check_sharing_limit(APPLY, &joining, balancer, &self.listeners(balancer).await?)?;
        }
        let wanted = with(body, "loadbalancer_id", &balancer.id);
        let is_same = |existing: &Listener| {
            let port = wanted.get("protocol_port").and_then(Value::as_u64);
            existing.protocol == text(&wanted, "protocol")
                && Some(u64::from(existing.protocol_port)) == port
                && existing.name == text(&wanted, "name")
        };
        let exists = async { Ok(self.listeners(balancer).await?.iter().any(is_same)) };
        accept_conflict_if(api::LISTENERS.create(self.session, &wanted).await, exists).await
    }

    pub(super) async fn create_pool(&self, balancer: &LoadBalancer, listener: &ListenerRef, body: Value) -> Result<()> {
        let listener = self.listener_id(balancer, listener).await?;
        let wanted = with(body, "listener_id", &listener);
        let is_same =
            |existing: &Pool| existing.protocol == text(&wanted, "protocol") && existing.name == text(&wanted, "name");
        let exists = async { Ok(self.pool_of(balancer, &listener).await?.as_ref().is_some_and(is_same)) };
        accept_conflict_if(api::POOLS.create(self.session, &wanted).await, exists).await
    }

    pub(super) async fn set_members(&self, balancer: &LoadBalancer, pool: &PoolRef, members: &[Value]) -> Result<()> {
        let pool = self.pool_id(balancer, pool).await?;
        api::set_members(self.session, &pool, members).await
    }

    pub(super) async fn create_member(&self, balancer: &LoadBalancer, pool: &PoolRef, wanted: &Value) -> Result<()> {
        let pool = &self.pool_id(balancer, pool).await?;
        let is_same = |existing: &Member| {
            let port = wanted.get("protocol_port").and_then(Value::as_u64);
            existing.address == text(wanted, "address") && Some(u64::from(existing.protocol_port)) == port
        };
        let exists = async { Ok(api::members(self.session, pool).await?.iter().any(is_same)) };
        accept_conflict_if(api::create_member(self.session, pool, wanted).await, exists).await
    }

    pub(super) async fn create_monitor(&self, balancer: &LoadBalancer, pool: &PoolRef, body: Value) -> Result<()> {
        let pool = &self.pool_id(balancer, pool).await?;
        let wanted = with(body, "pool_id", pool);
        let exists = async {
            let monitors = api::HEALTH_MONITORS.list(self.session, &[("pool_id", pool)]).await?;
            Ok(monitors.iter().any(|existing| existing.kind == text(&wanted, "type")))
        };
        accept_conflict_if(api::HEALTH_MONITORS.create(self.session, &wanted).await, exists).await
    }

    // ---- resources of earlier steps

    pub(super) async fn listeners(&self, balancer: &LoadBalancer) -> Result<Vec<Listener>> {
        api::LISTENERS.list(self.session, &[("loadbalancer_id", &balancer.id)]).await
    }

    async fn listener_id(&self, balancer: &LoadBalancer, listener: &ListenerRef) -> Result<String> {
        let (protocol, port) = match listener {
            ListenerRef::Id(id) => return Ok(id.clone()),
            ListenerRef::At { protocol, port } => (protocol, *port),
        };
        let listeners = self.listeners(balancer).await?;
        let found =
            listeners.into_iter().find(|existing| existing.protocol == *protocol && existing.protocol_port == port);
        found.map(|existing| existing.id).ok_or_else(|| missing(format!("a listener {protocol}:{port}")))
    }

    async fn pool_id(&self, balancer: &LoadBalancer, pool: &PoolRef) -> Result<String> {
        let listener = match pool {
            PoolRef::Id(id) => return Ok(id.clone()),
            PoolRef::Of(listener) => self.listener_id(balancer, listener).await?,
        };
        let pool = self.pool_of(balancer, &listener).await?;
        pool.map(|pool| pool.id).ok_or_else(|| missing(format!("a pool of the listener {listener}")))
    }

    async fn pool_of(&self, balancer: &LoadBalancer, listener: &str) -> Result<Option<Pool>> {
        let pools = api::POOLS.list(self.session, &[("loadbalancer_id", &balancer.id)]).await?;
        Ok(pools.into_iter().find(|pool| pool.listeners.iter().any(|served| served.id == listener)))
    }
}

/// Accepts a conflict (409) with an earlier attempt that succeeded. `is_done` reads whether it did, and runs only on a conflict.
async fn accept_conflict_if<T>(
    called: std::result::Result<T, Error>,
    is_done: impl Future<Output = Result<bool>>,
) -> Result<()> {
    match called {
        Err(error) if error.status() == Some(409) && is_done.await? => Ok(()),
        outcome => outcome.map(drop),
    }
}

/// Adds the changed tags to a body; `None` if nothing is to be written.
fn with_tags(mut body: Value, now: &[String], tags: &TagChange) -> Option<Value> {
    let then = tags.applied_to(now);
    let fields = body.as_object_mut()?;
    if !tags.is_empty() && then != now {
        fields.insert("tags".to_owned(), json!(then));
    }
    (!fields.is_empty()).then_some(body)
}

/// A resource of an earlier step does not exist: another client deleted it.
fn missing(what: String) -> Error {
    Error::new(ErrorKind::Conflict, APPLY, format!("{what} does not exist, although an earlier step created it"))
}

/// A conflict, because the rest of the plan is about a deleted load balancer and only a new plan helps.
fn discarded(id: &str) -> Error {
    let message = format!(
        "load balancer {id} went to ERROR while it was created, see Octavia's log; it was deleted, and creating it will be tried \
         again"
    );
    Error::new(ErrorKind::Conflict, APPLY, message)
}
