//! Observes listeners of a Service on load balancers that do not serve it.
//!
//! A Service that refers to the load balancer of another one gets its listeners there before it is known whether it may share it.
//! If it moves to another load balancer then, these listeners serve no Service and keep the load balancer from being deleted with
//! its owner. The load balancer itself is tagged last: one with the tag of the Service was in service, and is left as the Go
//! manager leaves it.

use bowline_cloud::Result;

use super::super::names::Names;
use super::super::observation::{Found, Stray};
use super::super::tracker::ERROR;
use super::Observer;
use super::parts::MembersOf;
use crate::api::octavia::LoadBalancer;

impl Observer<'_> {
    /// Reads stray listeners until the load balancer of the Service has its tag, and where listings make it free.
    pub(super) async fn strays(&self, names: &Names<'_>, found: &Found) -> Result<Vec<Stray>> {
        let own = names.balancer();
        let serving = match found {
            Found::Nothing => None,
            Found::One { balancer, .. } => Some(&**balancer),
            Found::Missing(_) | Found::Several(_) => return Ok(Vec::new()),
        };
        let has_settled = serving.is_some_and(|balancer| balancer.tags.contains(&own));
        let has_tags = self.features.as_ref().is_ok_and(|features| features.tags);
        if !has_tags || (has_settled && !self.reader.is_listed()) {
            return Ok(Vec::new());
        }
        let elsewhere = self.reader.balancers_with_listeners_tagged(&own, serving).await?;
        let mut strays = Vec::new();
        for balancer in elsewhere.into_iter().filter(|balancer| is_stray(names, balancer)) {
            let (listeners, pools) = self.parts(Some(&balancer), MembersOf::NoOwner).await?;
            strays.push(Stray { balancer, listeners, pools });
        }
        Ok(strays)
    }
}

/// Returns whether it was created for another Service and never served this one. One in ERROR cannot be changed.
fn is_stray(names: &Names<'_>, balancer: &LoadBalancer) -> bool {
    let can_be_changed = !balancer.is_deleting() && balancer.provisioning_status != ERROR;
    can_be_changed && !names.is_balancer(&balancer.name) && !balancer.tags.contains(&names.balancer())
}
