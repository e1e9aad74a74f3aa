//! Which balancer is a Service's.
//!
//! ```text
//!  the annotation load-balancer-id ──► that one or none: a user who names one wants no other
//!  else its name ──► else the name that very old managers gave ──► else the one that is to be adopted
//!  one that is to go is looked for in all of these ways, and by its tag
//! ```

use bowline_cloud::Result;

use super::super::names::Names;
use super::super::observation::Found;
use super::super::waiting::DELETED;
use super::Observer;
use crate::api::octavia::LoadBalancer;

/// What leads to a balancer.
#[derive(Clone, Copy)]
pub(super) struct Marks<'a> {
    pub(super) names: Names<'a>,
    /// `load-balancer-id`.
    pub(super) id: Option<&'a str>,
    /// `adopt`: name or ID.
    pub(super) adopt: Option<&'a str>,
}

impl Observer<'_> {
    pub(super) async fn find(&self, marks: Marks<'_>) -> Result<Found> {
        if let Some(id) = marks.id {
            let found = self.identified(id).await?;
            let by_id = |found: LoadBalancer| {
                // What has the Service's name is found by that as well.
                let by_id = found.name != marks.names.balancer();
                self.one(found, by_id)
            };
            return Ok(found.map_or_else(|| Found::Missing(id.to_owned()), by_id));
        }
        let named = self.named(&marks.names, |balancer| !balancer.is_leaving() || self.waiting.is_fresh(balancer));
        match (named.await?, marks.adopt) {
            (Found::Nothing, Some(adopt)) => self.adoptee(adopt).await,
            (found, _) => Ok(found),
        }
    }

    /// One that is going is not gone: should that fail, it has to be told to go once more.
    pub(super) async fn find_for_removal(&self, marks: Marks<'_>) -> Result<Found> {
        if let Some(id) = marks.id
            && let Some(found) = self.identified(id).await?
            && found.provisioning_status != DELETED
        {
            return Ok(self.one(found, true));
        }
        let found = self.named(&marks.names, |balancer| balancer.provisioning_status != DELETED).await?;
        if found != Found::Nothing {
            return Ok(found);
        }
        self.waiting.forget_named(&marks.names.balancer());
        // Where nobody says whether there are tags, they are looked for.
        match self.features.as_ref().ok().is_none_or(|features| features.tags) {
            true => self.tagged(&marks.names).await,
            false => Ok(Found::Nothing),
        }
    }

    /// What is remembered of one that is gone goes with it.
    async fn identified(&self, id: &str) -> Result<Option<LoadBalancer>> {
        let found = self.sight.balancer(id).await?;
        if found.is_none() {
            self.waiting.forget(id);
        }
        Ok(found)
    }

    /// By name, or by the name of old.
    async fn named(&self, names: &Names<'_>, counts: impl Fn(&LoadBalancer) -> bool) -> Result<Found> {
        let name = names.balancer();
        let found = self.only(self.sight.balancers_named(&name).await?, &counts);
        if found != Found::Nothing {
            return Ok(found);
        }
        // What was made a moment ago may not be in a listing yet.
        if let Some(id) = self.waiting.created_as(&name) {
            let made = self.identified(&id).await?;
            if let Some(made) = made.filter(&counts) {
                return Ok(self.one(made, false));
            }
        }
        match names.legacy_balancer() {
            Some(legacy) => Ok(self.only(self.sight.balancers_named(&legacy).await?, &counts)),
            None => Ok(Found::Nothing),
        }
    }

    /// A Service that shares a balancer with others has its tag there, whatever the balancer's name. Its listeners have it
    /// earlier, which only counts where nothing else is known of the Service any more.
    async fn tagged(&self, names: &Names<'_>) -> Result<Found> {
        let tag = names.balancer();
        let mut found = self.sight.balancers_tagged(&tag).await?;
        if found.is_empty() && !names.has_uid() {
            found = self.sight.balancers_with_listeners_tagged(&tag, None).await?;
        }
        Ok(self.only(found, |balancer| balancer.provisioning_status != DELETED))
    }

    async fn adoptee(&self, adopt: &str) -> Result<Found> {
        let named = self.sight.balancers_named(adopt).await?;
        let found = match self.only(named, |balancer| !balancer.is_leaving()) {
            Found::Nothing => self.by_id(adopt).await?,
            found => found,
        };
        Ok(match found {
            Found::One { balancer, fresh, .. } => Found::One { balancer, by_id: false, adopted: true, fresh },
            found => found,
        })
    }

    /// A name may be no ID at all, which some services answer with 400.
    async fn by_id(&self, id: &str) -> Result<Found> {
        let found = match self.sight.balancer(id).await {
            Err(error) if error.status() == Some(400) => None,
            asked => asked?,
        };
        let found = found.filter(|balancer| !balancer.is_leaving());
        Ok(found.map_or(Found::Nothing, |balancer| self.one(balancer, false)))
    }

    fn only(&self, mut found: Vec<LoadBalancer>, counts: impl Fn(&LoadBalancer) -> bool) -> Found {
        found.retain(counts);
        // One that stays goes before those of the name that are going.
        if found.iter().any(|balancer| !balancer.is_leaving()) {
            found.retain(|balancer| !balancer.is_leaving());
        }
        match found.len() {
            0 | 1 => found.pop().map_or(Found::Nothing, |balancer| self.one(balancer, false)),
            _ => Found::Several(found.into_iter().map(|balancer| balancer.id).collect()),
        }
    }

    fn one(&self, balancer: LoadBalancer, by_id: bool) -> Found {
        let fresh = self.waiting.is_fresh(&balancer);
        Found::One { balancer: Box::new(balancer), by_id, adopted: false, fresh }
    }
}
