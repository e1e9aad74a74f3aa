//! Clients for the parts of the process: each speaks to the API server under its own name, and none of those that write
//! does so without the right to lead.

use bowline_runtime::Fence;

use crate::fenced::fenced;

/// Hands out clients.
#[derive(Clone)]
pub struct Clients {
    process: kube::Client,
    fence: Fence,
}

impl Clients {
    /// One client and one identity for all.
    pub fn shared(client: kube::Client) -> Clients {
        Clients { process: client, fence: Fence::open() }
    }

    /// What the controllers send is held back unless this is open.
    pub fn fenced(self, fence: Fence) -> Clients {
        Clients { fence, ..self }
    }

    /// For what the process does in its own name: watches, leases, its own Events.
    pub fn process(&self) -> kube::Client {
        self.process.clone()
    }

    /// For the controller of this name in its clients (`node-controller`, `service-controller`, …).
    pub fn controller(&self, _name: &'static str) -> kube::Client {
        fenced(self.process.clone(), self.fence.clone())
    }
}
