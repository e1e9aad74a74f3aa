//! Kernel routes: routes of the Linux kernel in the network namespaces of machines.
//!
//! A machine may have a network namespace. With [`RouteOptions::kernel`], each of these namespaces has a kernel route for every
//! route of the tables, with the `InternalIP` of the target machine as next hop; except the namespace of that machine itself,
//! which owns the pod CIDR. `bowline-agent` syncs them: at the start, after each change and periodically.

mod desired;
mod namespace;

use std::sync::Arc;

use bowline_agent::{DesiredRoutes, KernelRoutes, RouteProblem};
use tokio::runtime::Handle;

use crate::cloud::{CloudError, LocalCloud, World};

use desired::desired_routes;
pub(crate) use namespace::check_namespace;

/// Options of routes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RouteOptions {
    /// Creates kernel routes in the network namespaces of machines. Requires Linux, a build with the feature `netlink`, and root
    /// privileges (`CAP_SYS_ADMIN` to enter a namespace, `CAP_NET_ADMIN` to change its routes). Without it, routes are records
    /// only.
    pub kernel: bool,
}

/// Opens the kernel routes on the current runtime.
pub(crate) fn open_kernel_routes() -> Result<Arc<KernelRoutes>, CloudError> {
    let runtime = Handle::try_current()
        .map_err(|_| CloudError::Invalid("a cloud with kernel routes must be opened on a Tokio runtime".to_owned()))?;
    let kernel = KernelRoutes::of_namespaces(runtime).map_err(|error| CloudError::Invalid(error.to_string()))?;
    Ok(Arc::new(kernel))
}

impl LocalCloud {
    /// Problems of kernel routes, as of the last sync; empty without [`RouteOptions::kernel`].
    pub fn route_problems(&self) -> Vec<RouteProblem> {
        self.shared.kernel.as_ref().map(|kernel| kernel.problems()).unwrap_or_default()
    }

    /// Starts the task that syncs kernel routes, until the cloud is dropped.
    pub(crate) fn spawn_kernel_routes(&self) {
        if let Some(kernel) = &self.shared.kernel {
            let shared = Arc::downgrade(&self.shared);
            let desired = move || shared.upgrade().map(|shared| LocalCloud { shared }.read(of_world));
            kernel.spawn_sync(desired, self.route_changes());
        }
    }

    /// Syncs the kernel routes with the current tables. Returns whether there are no problems.
    pub(crate) async fn sync_kernel_routes(&self) -> bool {
        match &self.shared.kernel {
            Some(kernel) => kernel.sync(|| self.read(of_world)).await,
            None => true,
        }
    }
}

fn of_world(world: &World) -> DesiredRoutes {
    desired_routes(world.fleet.iter(), world.routes.iter())
}
