//! The security group of a Service.

use bowline_cloud::Result;

use super::{Context, Draft};

pub(super) fn steps(_: &Context<'_>, _: &mut Draft) -> Result<()> {
    Ok(())
}
