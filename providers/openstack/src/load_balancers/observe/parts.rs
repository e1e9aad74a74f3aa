//! What a balancer consists of.

use bowline_cloud::Result;
use futures::{StreamExt as _, TryStreamExt as _, stream, try_join};

use super::super::names::{Names, cluster_of};
use super::super::observation::SeenPool;
use super::sight::{Outcome, Sight};
use super::{AT_ONCE, Observer, told};
use crate::api::octavia::{self, HealthMonitor, Listener, LoadBalancer, Member, Pool};

/// Listeners and pools.
type Parts = (Vec<Listener>, Vec<SeenPool>);

/// Whose members are looked at.
#[derive(Clone, Copy)]
pub(super) enum MembersOf<'a> {
    /// Those of pools that may be this Service's.
    Service(Names<'a>),
    /// Nobody's: they go with their pool.
    Nobody,
}

impl Observer<'_> {
    /// All listeners and pools of a balancer. What one answer names may be gone before it is asked for, so a part that is missing
    /// is reason to look at all of them anew, once.
    pub(super) async fn parts(
        &self,
        sight: &Sight<'_>,
        balancer: Option<&LoadBalancer>,
        members: MembersOf<'_>,
    ) -> Result<Parts> {
        let Some(balancer) = balancer else { return Ok(Parts::default()) };
        let seen = match self.parts_of(sight, &balancer.id, members).await {
            Err(error) if error.is_not_found() => self.parts_of(&sight.anew(), &balancer.id, members).await,
            seen => seen,
        };
        seen.map_err(told)
    }

    async fn parts_of(&self, sight: &Sight<'_>, balancer: &str, members: MembersOf<'_>) -> Outcome<Parts> {
        let (listeners, pools) = try_join!(sight.listeners(balancer), sight.pools(balancer))?;
        let is_ours = |listener: &Listener| match members {
            MembersOf::Service(names) => may_be_of(names, listener),
            MembersOf::Nobody => false,
        };
        let ours: Vec<&str> = listeners.iter().filter(|listener| is_ours(listener)).map(|it| it.id.as_str()).collect();
        let serves_us = |pool: &Pool| pool.listeners.iter().any(|served| ours.contains(&served.id.as_str()));
        let seen = pools.into_iter().map(|pool| {
            let is_ours = serves_us(&pool);
            self.pool(sight, pool, is_ours)
        });
        let seen: Vec<_> = seen.collect();
        let seen = stream::iter(seen).buffered(AT_ONCE).try_collect().await?;
        Ok((listeners, seen))
    }

    async fn pool(&self, sight: &Sight<'_>, pool: Pool, with_members: bool) -> Outcome<SeenPool> {
        let (members, monitor) = try_join!(self.members(&pool, with_members), self.monitor(sight, &pool))?;
        Ok(SeenPool { pool, members, monitor })
    }

    async fn members(&self, pool: &Pool, wanted: bool) -> Outcome<Vec<Member>> {
        match wanted {
            true => octavia::members(self.session, &pool.id).await,
            false => Ok(Vec::new()),
        }
    }

    async fn monitor(&self, sight: &Sight<'_>, pool: &Pool) -> Outcome<Option<HealthMonitor>> {
        match pool.healthmonitor_id.as_str() {
            "" => Ok(None),
            id => sight.monitor(id).await.map(Some),
        }
    }
}

/// Nobody has marked it, or the Service has, be it under an earlier name of the cluster.
fn may_be_of(names: Names<'_>, listener: &Listener) -> bool {
    let is_own = |tag: &str| cluster_of(tag).is_some_and(|cluster| names.balancer_in(cluster) == tag);
    let mut marks = listener.tags.iter().filter(|tag| !tag.is_empty()).peekable();
    marks.peek().is_none() || marks.any(|tag| *tag == names.balancer() || is_own(tag))
}
