//! Finds the load balancer of a Service.
//!
//! ```text
//!  annotation load-balancer-id ──► that one or none: the user has chosen it
//!  otherwise its name ──► the legacy name (`a` and the UID) ──► the one to adopt
//!  for a removal: all of these ways, then its tag
//! ```

use bowline_cloud::Result;

use super::super::names::Names;
use super::super::observation::Found;
use super::super::tracker::DELETED;
use super::Observer;
use crate::api::octavia::LoadBalancer;

/// Names and IDs that identify a load balancer.
#[derive(Clone, Copy)]
pub(super) struct Lookup<'a> {
    pub(super) names: Names<'a>,
    /// `load-balancer-id`.
    pub(super) id: Option<&'a str>,
    /// `adopt`: name or ID.
    pub(super) adopt: Option<&'a str>,
}

impl Observer<'_> {
    pub(super) async fn find(&self, lookup: Lookup<'_>) -> Result<Found> {
        if let Some(id) = lookup.id {
            let found = self.identified(id).await?;
            let by_id = |found: LoadBalancer| {
                // One with the Service's own name would be found by name as well.
                let by_id = found.name != lookup.names.balancer();
                self.one(found, by_id)
            };
            return Ok(found.map_or_else(|| Found::Missing(id.to_owned()), by_id));
        }
        let named = self.named(&lookup.names, |balancer| !balancer.is_deleting() || self.tracker.is_fresh(balancer));
        match (named.await?, lookup.adopt) {
            (Found::Nothing, Some(adopt)) => self.find_adopted(adopt).await,
            (found, _) => Ok(found),
        }
    }

    /// Finds the load balancer to delete. One that is being deleted is_candidate: it has to be deleted again if that fails.
    pub(super) async fn find_for_removal(&self, lookup: Lookup<'_>) -> Result<Found> {
        if let Some(id) = lookup.id
            && let Some(found) = self.identified(id).await?
            && found.provisioning_status != DELETED
        {
            return Ok(self.one(found, true));
        }
        let found = self.named(&lookup.names, |balancer| balancer.provisioning_status != DELETED).await?;
        if found != Found::Nothing {
            return Ok(found);
        }
        self.tracker.forget_named(&lookup.names.balancer());
        // Search by tag while it is unknown whether Octavia supports tags.
        match self.features.as_ref().ok().is_none_or(|features| features.tags) {
            true => self.tagged(&lookup.names).await,
            false => Ok(Found::Nothing),
        }
    }

    /// Reads a load balancer by ID, and forgets one that does not exist.
    async fn identified(&self, id: &str) -> Result<Option<LoadBalancer>> {
        let found = self.reader.balancer(id).await?;
        if found.is_none() {
            self.tracker.forget(id);
        }
        Ok(found)
    }

    /// Finds a load balancer by name, then by its legacy name.
    async fn named(&self, names: &Names<'_>, is_candidate: impl Fn(&LoadBalancer) -> bool) -> Result<Found> {
        let name = names.balancer();
        let found = self.only(self.reader.balancers_named(&name).await?, &is_candidate);
        if found != Found::Nothing {
            return Ok(found);
        }
        // One that was just created may not be listed yet.
        if let Some(id) = self.tracker.created_id(&name) {
            let created = self.identified(&id).await?;
            if let Some(created) = created.filter(&is_candidate) {
                return Ok(self.one(created, false));
            }
        }
        match names.legacy_balancer() {
            Some(legacy) => Ok(self.only(self.reader.balancers_named(&legacy).await?, &is_candidate)),
            None => Ok(Found::Nothing),
        }
    }

    /// Finds a load balancer by tag. A Service that shares one has its tag there, whatever the name is. Its listeners are tagged
    /// earlier, which is_candidate only if nothing else is known of the Service.
    async fn tagged(&self, names: &Names<'_>) -> Result<Found> {
        let tag = names.balancer();
        let mut found = self.reader.balancers_tagged(&tag).await?;
        if found.is_empty() && !names.has_uid() {
            found = self.reader.balancers_with_listeners_tagged(&tag, None).await?;
        }
        Ok(self.only(found, |balancer| balancer.provisioning_status != DELETED))
    }

    async fn find_adopted(&self, adopt: &str) -> Result<Found> {
        let named = self.reader.balancers_named(adopt).await?;
        let found = match self.only(named, |balancer| !balancer.is_deleting()) {
            Found::Nothing => self.by_id(adopt).await?,
            found => found,
        };
        Ok(match found {
            Found::One { balancer, fresh, .. } => Found::One { balancer, by_id: false, adopted: true, fresh },
            found => found,
        })
    }

    /// Reads a load balancer whose name may be an ID. Some services answer 400 if it is not.
    async fn by_id(&self, id: &str) -> Result<Found> {
        let found = match self.reader.balancer(id).await {
            Err(error) if error.status() == Some(400) => None,
            read => read?,
        };
        let found = found.filter(|balancer| !balancer.is_deleting());
        Ok(found.map_or(Found::Nothing, |balancer| self.one(balancer, false)))
    }

    fn only(&self, mut found: Vec<LoadBalancer>, is_candidate: impl Fn(&LoadBalancer) -> bool) -> Found {
        found.retain(is_candidate);
        // Prefer a load balancer that is not being deleted.
        if found.iter().any(|balancer| !balancer.is_deleting()) {
            found.retain(|balancer| !balancer.is_deleting());
        }
        match found.len() {
            0 | 1 => found.pop().map_or(Found::Nothing, |balancer| self.one(balancer, false)),
            _ => Found::Several(found.into_iter().map(|balancer| balancer.id).collect()),
        }
    }

    fn one(&self, balancer: LoadBalancer, by_id: bool) -> Found {
        let fresh = self.tracker.is_fresh(&balancer);
        Found::One { balancer: Box::new(balancer), by_id, adopted: false, fresh }
    }
}
