//! Balancers of Octavia, with their floating IPs and security groups in Neutron.
//!
//! ```text
//!  annotations, class, cloud.conf ──settings──► Settings ─┐
//!  wish ──────────────────────────────────────────────────┼─► plan: steps, each with a Payload ──► apply: one write each
//!  observe ──► Observation (in the state's resources) ────┘
//! ```

mod change;
mod observation;
mod subnets;
mod waiting;

use async_trait::async_trait;
use bowline_cloud::{Applied, Error, ErrorKind, LoadBalancers, Result};
use bowline_core::{ClusterName, LoadBalancerKey, LoadBalancerState, LoadBalancerWish, Plan, Step};

use crate::OpenStack;

fn missing(operation: &str) -> Error {
    Error::new(ErrorKind::Unsupported, operation, "not there yet")
}

#[async_trait]
impl LoadBalancers for OpenStack {
    async fn observe(&self, wishes: &[LoadBalancerWish]) -> Vec<Result<Option<LoadBalancerState>>> {
        wishes.iter().map(|_| Err(missing("observe balancers"))).collect()
    }

    async fn list(&self, _: &ClusterName) -> Result<Vec<LoadBalancerKey>> {
        Err(missing("list balancers"))
    }

    fn plan(&self, _: &LoadBalancerWish, _: Option<&LoadBalancerState>) -> Result<Plan> {
        Err(missing("plan a balancer"))
    }

    async fn apply(&self, _: &LoadBalancerKey, _: &Step) -> Result<Applied> {
        Err(missing("change a balancer"))
    }
}
