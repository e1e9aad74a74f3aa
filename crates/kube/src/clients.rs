//! Clients for the parts of the process: each speaks to the API server under its own name, and none of those that write
//! does so without the right to lead.

use bowline_runtime::Fence;

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
        // TODO(fence, identities): the layer that asks the fence; with --use-service-account-credentials an own identity.
        let _ = &self.fence;
        self.process.clone()
    }
}
