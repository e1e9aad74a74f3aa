//! Stub for builds without kernel routes.

use crate::cloud::{CloudError, LocalCloud};
use crate::kernel::RouteProblem;

/// Never constructed.
pub(crate) enum KernelRoutes {}

impl KernelRoutes {
    pub(crate) fn open() -> Result<KernelRoutes, CloudError> {
        Err(CloudError::Invalid(
            "kernel routes require Linux and a build with the Cargo feature netlink; disable them, or enable the feature"
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
    pub(crate) fn spawn_kernel_routes(&self) {}

    pub(crate) async fn sync_kernel_routes(&self) -> bool {
        true
    }
}
