//! Stub for builds without kernel routes.

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::watch;

use super::{DesiredRoutes, KernelRoutesError, RouteProblem};

/// Never constructed.
pub enum KernelRoutes {}

impl KernelRoutes {
    /// Fails: this build has no kernel routes.
    pub fn of_host(_: Handle) -> Result<KernelRoutes, KernelRoutesError> {
        Err(KernelRoutesError::Unsupported)
    }

    /// Fails: this build has no kernel routes.
    pub fn of_namespaces(_: Handle) -> Result<KernelRoutes, KernelRoutesError> {
        Err(KernelRoutesError::Unsupported)
    }

    /// Never called.
    pub fn problems(&self) -> Vec<RouteProblem> {
        match *self {}
    }

    /// Never called.
    pub fn spawn_sync(
        self: &Arc<Self>,
        _: impl Fn() -> Option<DesiredRoutes> + Send + Sync + 'static,
        _: watch::Receiver<u64>,
    ) {
        match **self {}
    }

    /// Never called.
    pub async fn sync(&self, _: impl FnOnce() -> DesiredRoutes) -> bool {
        match *self {}
    }

    /// Never called.
    pub async fn close(&self) {
        match *self {}
    }
}
