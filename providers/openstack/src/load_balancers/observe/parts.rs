//! What a balancer consists of.

use bowline_cloud::Result;
use bowline_core::DesiredLoadBalancer;
use futures::{StreamExt as _, TryStreamExt as _, stream, try_join};

use super::super::names::{Names, cluster_of};
use super::super::observation::SeenPool;
use super::super::plan::goes_with;
use super::{AT_ONCE, Observer, told};
use crate::api::octavia::{self, Listener, LoadBalancer, Pool};

/// Listeners and pools.
type Parts = (Vec<Listener>, Vec<SeenPool>);

/// Whose members are looked at.
#[derive(Clone, Copy)]
pub(super) enum MembersOf<'a> {
    /// Those of pools that may be this Service's.
    Service(Names<'a>),
    /// Nobody's: they go with their pool.
    NoOwner,
    /// Those of a balancer of this Service that is to go. Nothing behind its listeners, if it goes as a whole.
    Removed(&'a DesiredLoadBalancer, &'a LoadBalancer),
}

impl Observer<'_> {
    /// All listeners and pools of a balancer. What one answer names may be gone before it is asked for, so a part that is missing
    /// is reason to look at all of them anew, once.
    pub(super) async fn parts(&self, balancer: Option<&LoadBalancer>, members: MembersOf<'_>) -> Result<Parts> {
        let Some(balancer) = balancer else { return Ok(Parts::default()) };
        match self.parts_of(&balancer.id, members).await {
            Err(error) if error.is_not_found() => {
                Observer { sight: &self.sight.anew(), ..*self }.parts_of(&balancer.id, members).await
            }
            seen => seen,
        }
    }

    async fn parts_of(&self, balancer: &str, members: MembersOf<'_>) -> Result<Parts> {
        let listeners = self.sight.listeners(balancer).await?;
        if let MembersOf::Removed(desired, balancer) = members
            && self.config.load_balancer.cascade_delete
            && goes_with(desired, balancer, &listeners)
        {
            return Ok((listeners, Vec::new()));
        }
        let pools = self.sight.pools(balancer).await?;
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

    async fn pool(&self, pool: Pool, with_members: bool) -> Result<SeenPool> {
        let members = async {
            match with_members {
                true => octavia::members(self.sight.session, &pool.id).await.map_err(told),
                false => Ok(Vec::new()),
            }
        };
        let monitor = async {
            match pool.healthmonitor_id.as_str() {
                "" => Ok(None),
                id => self.sight.monitor(id).await.map(Some),
            }
        };
        let (members, monitor) = try_join!(members, monitor)?;
        Ok(SeenPool { pool, members, monitor })
    }
}

/// Nobody has marked it, or the Service has, be it under an earlier name of the cluster.
fn may_be_of(names: Names<'_>, listener: &Listener) -> bool {
    let is_own = |tag: &str| cluster_of(tag).is_some_and(|cluster| names.balancer_in(cluster) == tag);
    let mut marks = listener.tags.iter().filter(|tag| !tag.is_empty()).peekable();
    marks.peek().is_none() || marks.any(|tag| *tag == names.balancer() || is_own(tag))
}
