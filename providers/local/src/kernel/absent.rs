//! In place of the kernel's routes, where this build has none.

use crate::cloud::{CloudError, LocalCloud};
use crate::kernel::RouteProblem;

/// There never is one.
pub(crate) enum Forwarding {}

impl Forwarding {
    pub(crate) fn open() -> Result<Forwarding, CloudError> {
        Err(CloudError::Invalid(
            "routes of the kernel need Linux and a build with the Cargo feature netlink; switch them off, or build with it"
                .to_owned(),
        ))
    }

    pub(crate) fn problems(&self) -> Vec<RouteProblem> {
        match *self {}
    }

    pub(crate) async fn close(&self) {
        match *self {}
    }
}

impl LocalCloud {
    pub(crate) fn keep_forwarding(&self) {}

    pub(crate) async fn forward(&self) -> bool {
        true
    }
}
