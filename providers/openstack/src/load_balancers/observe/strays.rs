//! What a Service has on balancers that are not to serve it.
//!
//! A Service that names the balancer of another gets its listeners there before it is known whether it may stay. If it is sent
//! elsewhere then, they are in nobody's service, and keep the balancer from going with its owner. The balancer's own tag comes
//! last of all: where it has the Service's, that was in service, and is left as the Go manager leaves it.

use bowline_cloud::Result;

use super::super::names::Names;
use super::super::observation::{Found, Stray};
use super::super::waiting::ERROR;
use super::Observer;
use super::parts::MembersOf;
use crate::api::octavia::LoadBalancer;

impl Observer<'_> {
    /// Asked for until the balancer of the Service has its tag, and where it costs nothing.
    pub(super) async fn strays(&self, names: &Names<'_>, found: &Found) -> Result<Vec<Stray>> {
        let own = names.balancer();
        let serving = match found {
            Found::Nothing => None,
            Found::One { balancer, .. } => Some(&**balancer),
            Found::Missing(_) | Found::Several(_) => return Ok(Vec::new()),
        };
        let has_settled = serving.is_some_and(|balancer| balancer.tags.contains(&own));
        let has_tags = self.features.as_ref().is_ok_and(|features| features.tags);
        if !has_tags || (has_settled && !self.sight.is_listed()) {
            return Ok(Vec::new());
        }
        let elsewhere = self.sight.balancers_with_listeners_tagged(&own, serving).await?;
        let mut strays = Vec::new();
        for balancer in elsewhere.into_iter().filter(|balancer| is_stray(names, balancer)) {
            let (listeners, pools) = self.parts(Some(&balancer), MembersOf::NoOwner).await?;
            strays.push(Stray { balancer, listeners, pools });
        }
        Ok(strays)
    }
}

/// It was made for another, and never had the Service in its service. One that has failed cannot be changed.
fn is_stray(names: &Names<'_>, balancer: &LoadBalancer) -> bool {
    let can_be_changed = !balancer.is_leaving() && balancer.provisioning_status != ERROR;
    can_be_changed && !names.is_balancer(&balancer.name) && !balancer.tags.contains(&names.balancer())
}
