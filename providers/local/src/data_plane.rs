//! Data plane of load balancers: sockets that forward the traffic of the records.

use std::net::IpAddr;
use std::time::Duration;

use bowline_agent::{Records, Sockets, load_balancer_config, target_host};
use bowline_agent_client::BalancerTarget;
use bowline_core::AddressType;
use bowline_l4::{LoadBalancerConfig, LoadBalancerStatus};
use tokio::runtime::Handle;

use crate::cloud::{CloudError, LocalCloud, Shared, World};

/// Opens the data plane on the current runtime.
pub(crate) fn open_sockets() -> Result<Sockets, CloudError> {
    let without_runtime =
        |_| CloudError::Invalid("a cloud with a data plane must be opened on a Tokio runtime".to_owned());
    Handle::try_current().map(Sockets::new).map_err(without_runtime)
}

impl Records for Shared {
    fn config(&self, id: &str) -> Option<LoadBalancerConfig> {
        let world = &self.state().world;
        load_balancer_config(&world.balancers, id, |target| host(world, target))
    }
}

impl LocalCloud {
    /// Status of a load balancer: listeners, targets, health and counters. `None` without a data plane.
    pub fn balancer_status(&self, id: &str) -> Option<LoadBalancerStatus> {
        self.shared.sockets.as_ref()?.status(id)
    }

    /// Waits until the data plane has all load balancers and the kernel all routes, which otherwise happens in the background after
    /// every change.
    pub async fn ready(&self) {
        self.sync_kernel_routes().await;
        let Some(sockets) = &self.shared.sockets else { return };
        for id in self.all_balancer_ids() {
            sockets.update(&self.shared, &id).await;
        }
    }

    /// Closes all listeners, and connections after at most `grace`. Records and kernel routes stay.
    pub async fn close(&self, grace: Duration) {
        if let Some(kernel) = &self.shared.kernel {
            kernel.close().await;
        }
        if let Some(sockets) = &self.shared.sockets {
            sockets.close(grace).await;
        }
    }

    /// Updates the data plane in a task, so that it completes if the caller is cancelled.
    pub(crate) async fn update_load_balancer(&self, id: &str) {
        if let Some(sockets) = &self.shared.sockets {
            sockets.update_in_task(&self.shared, id).await;
        }
    }

    /// Updates the data plane in the background.
    pub(crate) fn spawn_updates(&self, ids: Vec<String>) {
        if let Some(sockets) = &self.shared.sockets {
            sockets.spawn_updates(&self.shared, ids);
        }
    }

    /// IDs of all load balancers.
    pub(crate) fn all_balancer_ids(&self) -> Vec<String> {
        self.read(|world| world.balancers.balancers().map(|balancer| balancer.id.clone()).collect())
    }
}

/// Address of a target. Default: the internal IP of its machine.
fn host(world: &World, target: &BalancerTarget) -> Option<IpAddr> {
    target_host(target).or_else(|| {
        let machine = world.fleet.get(target.machine.as_deref()?).ok()?;
        let internal = machine.spec.addresses.iter().filter(|address| address.kind == AddressType::InternalIP);
        internal.filter_map(|address| address.address.parse().ok()).next()
    })
}
