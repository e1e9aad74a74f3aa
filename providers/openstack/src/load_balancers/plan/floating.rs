//! The floating IP of a balancer.

use bowline_cloud::Result;

use super::{Context, Draft};

pub(super) fn steps(_: &Context<'_>, _: &mut Draft) -> Result<()> {
    Ok(())
}
