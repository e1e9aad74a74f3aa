//! Balancers of Octavia, with their floating IPs and security groups in Neutron.
//!
//! ```text
//!  annotations, class, cloud.conf ──settings──► Settings ─┐
//!  wish ──────────────────────────────────────────────────┼─► plan: steps, each with a Payload ──► apply: one write each
//!  observe ──► Observation (in the state's resources) ────┘
//! ```

mod annotations;
mod change;
mod features;
mod names;
mod nodes;
mod observation;
mod plan;
mod settings;
mod subnets;
#[cfg(test)]
mod testing;
mod waiting;

use std::collections::BTreeMap;

use async_trait::async_trait;
use bowline_cloud::{Applied, Error, ErrorKind, LoadBalancers, Result};
use bowline_core::annotations::{LoadBalancerSettings, Mistake};
use bowline_core::{ClusterName, LoadBalancerKey, LoadBalancerState, LoadBalancerWish, Plan, Step};

use crate::OpenStack;

pub use annotations::reference as annotation_reference;

fn missing(operation: &str) -> Error {
    Error::new(ErrorKind::Unsupported, operation, "not there yet")
}

#[async_trait]
impl LoadBalancers for OpenStack {
    fn settings(
        &self,
        annotations: &BTreeMap<String, String>,
        common: LoadBalancerSettings,
    ) -> std::result::Result<LoadBalancerSettings, Vec<Mistake>> {
        Ok(settings::common_settings(&self.config, annotations, common))
    }

    async fn observe(&self, wishes: &[LoadBalancerWish]) -> Vec<Result<Option<LoadBalancerState>>> {
        wishes.iter().map(|_| Err(missing("observe balancers"))).collect()
    }

    async fn list(&self, _: &ClusterName) -> Result<Vec<LoadBalancerKey>> {
        Err(missing("list balancers"))
    }

    fn plan(&self, wish: &LoadBalancerWish, state: Option<&LoadBalancerState>) -> Result<Plan> {
        match (state, &wish.spec) {
            (Some(state), _) => plan::plan(&self.config, wish, read(state)?),
            (None, None) => Ok(Plan::default()),
            (None, Some(_)) => {
                Err(Error::new(ErrorKind::Unexpected, plan::PLAN, "nothing was looked up for this balancer"))
            }
        }
    }

    async fn apply(&self, _: &LoadBalancerKey, _: &Step) -> Result<Applied> {
        Err(missing("change a balancer"))
    }
}

fn read(state: &LoadBalancerState) -> Result<observation::Observation> {
    serde_json::from_value(state.resources.clone()).map_err(|error| {
        Error::new(ErrorKind::Unexpected, plan::PLAN, format!("this is not what this provider wrote: {error}"))
    })
}
