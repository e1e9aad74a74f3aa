//! Observes listeners, pools, members and health monitors.

use bowline_cloud::Result;
use bowline_core::DesiredLoadBalancer;
use futures::{StreamExt as _, TryStreamExt as _, stream, try_join};

use super::super::names::{Names, cluster_of};
use super::super::observation::PoolState;
use super::super::plan::is_deleted_with;
use super::{AT_ONCE, CloudReader, Observer, during_observe};
use crate::api::octavia::{self, Listener, LoadBalancer, Pool};

/// Listeners and pools.
type Parts = (Vec<Listener>, Vec<PoolState>);

/// Selects the members to read.
#[derive(Clone, Copy)]
pub(super) enum MembersOf<'a> {
    /// Members of pools that may belong to this Service.
    Service(Names<'a>),
    /// None: members are deleted with their pool.
    NoOwner,
    /// None, and no pools if the load balancer of this Service is deleted as a whole.
    Removed(&'a DesiredLoadBalancer, &'a LoadBalancer),
}

impl Observer<'_> {
    /// Reads all listeners and pools of a load balancer. A part that one response names may be deleted before it is read; then all
    /// of them are read again, once.
    pub(super) async fn parts(&self, balancer: Option<&LoadBalancer>, members: MembersOf<'_>) -> Result<Parts> {
        let Some(balancer) = balancer else { return Ok(Parts::default()) };
        match self.parts_of(&balancer.id, members).await {
            Err(error) if error.is_not_found() => {
                Observer { reader: &CloudReader::without_listings(self.reader.session), ..*self }
                    .parts_of(&balancer.id, members)
                    .await
            }
            seen => seen,
        }
    }

    async fn parts_of(&self, balancer: &str, members: MembersOf<'_>) -> Result<Parts> {
        let listeners = self.reader.listeners(balancer).await?;
        if let MembersOf::Removed(desired, balancer) = members
            && self.config.load_balancer.cascade_delete
            && is_deleted_with(desired, balancer, &listeners)
        {
            return Ok((listeners, Vec::new()));
        }
        let pools = self.reader.pools(balancer).await?;
        let is_ours = |listener: &Listener| match members {
            MembersOf::Service(names) => may_be_of(names, listener),
            MembersOf::NoOwner | MembersOf::Removed(..) => false,
        };
        let ours: Vec<&str> = listeners.iter().filter(|listener| is_ours(listener)).map(|it| it.id.as_str()).collect();
        let serves_us = |pool: &Pool| pool.listeners.iter().any(|served| ours.contains(&served.id.as_str()));
        let seen = pools.into_iter().map(|pool| {
            let is_ours = serves_us(&pool);
            self.pool(pool, is_ours)
        });
        let seen: Vec<_> = seen.collect();
        let seen = stream::iter(seen).buffered(AT_ONCE).try_collect().await?;
        Ok((listeners, seen))
    }

    async fn pool(&self, pool: Pool, with_members: bool) -> Result<PoolState> {
        let members = async {
            match with_members {
                true => octavia::members(self.reader.session, &pool.id).await.map_err(during_observe),
                false => Ok(Vec::new()),
            }
        };
        let monitor = async {
            match pool.healthmonitor_id.as_str() {
                "" => Ok(None),
                id => self.reader.monitor(id).await.map(Some),
            }
        };
        let (members, monitor) = try_join!(members, monitor)?;
        Ok(PoolState { pool, members, monitor })
    }
}

/// Returns whether a listener has no tags, or one of the Service, possibly under an earlier name of the cluster.
fn may_be_of(names: Names<'_>, listener: &Listener) -> bool {
    let is_own = |tag: &str| cluster_of(tag).is_some_and(|cluster| names.balancer_in(cluster) == tag);
    let mut marks = listener.tags.iter().filter(|tag| !tag.is_empty()).peekable();
    marks.peek().is_none() || marks.any(|tag| *tag == names.balancer() || is_own(tag))
}
