//! What a balancer consists of.

use bowline_cloud::Result;
use futures::{StreamExt as _, TryStreamExt as _, stream, try_join};

use super::super::names::Names;
use super::super::observation::SeenPool;
use super::sight::Sight;
use super::{AT_ONCE, Observer, told};
use crate::api::octavia::{self, HealthMonitor, Listener, LoadBalancer, Member, Pool};

/// Listeners and pools.
type Parts = (Vec<Listener>, Vec<SeenPool>);

impl Observer<'_> {
    /// All listeners and pools; with members where the pool may be the Service's.
    pub(super) async fn parts(
        &self,
        sight: &Sight<'_>,
        names: &Names<'_>,
        balancer: Option<&LoadBalancer>,
    ) -> Result<Parts> {
        let Some(balancer) = balancer else { return Ok(Parts::default()) };
        let (listeners, pools) = try_join!(sight.listeners(&balancer.id), sight.pools(&balancer.id)).map_err(told)?;
        let tag = names.balancer();
        let is_ours = |listener: &Listener| listener.tags.is_empty() || listener.tags.contains(&tag);
        let ours: Vec<&str> = listeners.iter().filter(|listener| is_ours(listener)).map(|it| it.id.as_str()).collect();
        let seen = pools.into_iter().map(|pool| {
            let is_ours = pool.listeners.iter().any(|served| ours.contains(&served.id.as_str()));
            self.pool(sight, pool, is_ours)
        });
        let seen: Vec<_> = seen.collect();
        let seen = stream::iter(seen).buffered(AT_ONCE).try_collect().await?;
        Ok((listeners, seen))
    }

    /// What can be removed one by one; members go with their pool.
    pub(super) async fn parts_to_remove(&self, sight: &Sight<'_>, balancer: Option<&LoadBalancer>) -> Result<Parts> {
        let Some(balancer) = balancer else { return Ok(Parts::default()) };
        let (listeners, pools) = try_join!(sight.listeners(&balancer.id), sight.pools(&balancer.id)).map_err(told)?;
        let seen: Vec<_> = pools.into_iter().map(|pool| self.pool(sight, pool, false)).collect();
        let seen = stream::iter(seen).buffered(AT_ONCE).try_collect().await?;
        Ok((listeners, seen))
    }

    async fn pool(&self, sight: &Sight<'_>, pool: Pool, with_members: bool) -> Result<SeenPool> {
        let (members, monitor) = try_join!(self.members(&pool, with_members), self.monitor(sight, &pool))?;
        Ok(SeenPool { pool, members, monitor })
    }

    async fn members(&self, pool: &Pool, wanted: bool) -> Result<Vec<Member>> {
        match wanted {
            true => octavia::members(self.session, &pool.id).await.map_err(told),
            false => Ok(Vec::new()),
        }
    }

    async fn monitor(&self, sight: &Sight<'_>, pool: &Pool) -> Result<Option<HealthMonitor>> {
        match pool.healthmonitor_id.as_str() {
            "" => Ok(None),
            id => sight.monitor(id).await.map(Some).map_err(told),
        }
    }
}
