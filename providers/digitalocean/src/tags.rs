//! Loop `tags`: adds the tag of the cluster to load balancers that do not have it, such as those that were created before the cluster
//! had an ID. Tags are never removed.

use std::time::Duration;

use async_trait::async_trait;
use bowline_cloud::{ClusterSnapshot, Error, LoopPlan, LoopTriggers, Result, TypedProviderLoop};
use bowline_core::service::ServiceType;
use bowline_core::{FieldChange, Service, Step, Verb};

use crate::api::{Client, LoadBalancer, TaggedResource};
use crate::load_balancers::{Annotations, LOAD_BALANCER_ID, service_names};

/// Interval between two runs.
// upstream: 15 minutes.
const PERIOD: Duration = Duration::from_secs(15 * 60);

/// The loop.
pub(crate) struct TagLoop {
    pub(crate) client: Client,
    pub(crate) tag: String,
}

#[async_trait]
impl TypedProviderLoop for TagLoop {
    /// Load balancers to tag.
    type Change = Vec<TaggedResource>;

    fn name(&self) -> &str {
        "tags"
    }

    fn period(&self) -> Duration {
        PERIOD
    }

    /// New load balancers are created with the tag, so changes of Services trigger no run.
    fn triggers(&self) -> LoopTriggers {
        LoopTriggers::NONE
    }

    async fn plan(&self, cluster: &ClusterSnapshot) -> Result<LoopPlan<Vec<TaggedResource>>> {
        let services = cluster.services.iter().filter(|service| service.kind == ServiceType::LoadBalancer);
        let services: Vec<_> = services.filter(|service| !service.is_paused()).collect();
        if services.is_empty() {
            return Ok(LoopPlan::new("no load balancers", Vec::new()));
        }
        let all = self.client.load_balancers().await?;
        let mut untagged: Vec<&LoadBalancer> =
            services.iter().filter_map(|service| of_service(service, &all)).collect();
        untagged.retain(|one| !one.settings.tags.contains(&self.tag));
        untagged.sort_by(|a, b| a.id.cmp(&b.id));
        untagged.dedup_by(|a, b| a.id == b.id);
        let summary = format!("{} load balancers", services.len());
        if untagged.is_empty() {
            return Ok(LoopPlan::new(summary, Vec::new()));
        }
        let tagged = |one: &&LoadBalancer| {
            FieldChange::new(format!("load balancer {}", one.settings.name), None, Some(self.tag.clone()))
        };
        let changes = untagged.iter().map(tagged).collect();
        let resources = untagged.iter().map(|one| TaggedResource::load_balancer(&one.id)).collect();
        Ok(LoopPlan::new(summary, vec![Step::new(Verb::Update, "tag", &self.tag, changes, resources)]))
    }

    async fn apply(&self, resources: &Vec<TaggedResource>) -> Result<()> {
        let failed = |error: Error| error.during(format!("failed to tag LB resource(s) with tag {:?}", self.tag));
        match self.client.tag(&self.tag, resources).await {
            Err(error) if error.is_not_found() => {
                let created = self.client.create_tag(&self.tag).await;
                created.map_err(|error| error.during(format!("failed to create tag {:?}", self.tag)))?;
                self.client.tag(&self.tag, resources).await.map_err(failed)
            }
            tagged => tagged.map_err(failed),
        }
    }
}

/// Returns the load balancer of a Service: by the ID of its annotation, else by its name.
fn of_service<'a>(service: &Service, all: &'a [LoadBalancer]) -> Option<&'a LoadBalancer> {
    match Annotations(&service.annotations).text(&LOAD_BALANCER_ID) {
        Some(id) => all.iter().find(|one| one.id == id),
        None => {
            let names = service_names(service);
            all.iter().find(|one| names.contains(&one.settings.name))
        }
    }
}
