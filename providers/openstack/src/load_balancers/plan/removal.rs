//! How a balancer goes.

use bowline_cloud::Result;
use bowline_core::LoadBalancerWish;

use super::super::observation::Observation;
use super::Draft;
use crate::Config;
use crate::api::octavia::LoadBalancer;

pub(super) fn steps(_: &Config, _: &LoadBalancerWish, _: &Observation, _: &mut Draft) -> Result<()> {
    Ok(())
}

/// One that has failed before it was ever in service.
pub(super) fn discard(_: &Config, _: &LoadBalancer, _: &mut Draft) {}
