//! Clients for the parts of the process: each speaks to the API server under its own name, and none of those that write
//! does so without the right to lead.

use std::sync::Arc;

use bowline_runtime::Fence;

use crate::access::Access;
use crate::accounts::Accounts;
use crate::fenced::fenced;

/// Hands out clients.
#[derive(Clone)]
pub struct Clients {
    process: kube::Client,
    identities: Identities,
    fence: Fence,
}

/// Who the controllers are to the API server.
#[derive(Clone)]
enum Identities {
    /// All the same, with one client.
    Shared,
    /// All the same, each with a client of its own.
    Process(Access),
    /// Each its own service account (CL-4).
    Accounts(Access, Arc<Accounts>),
}

impl Clients {
    /// One client and one identity for all.
    pub fn shared(client: kube::Client) -> Clients {
        Clients { process: client, identities: Identities::Shared, fence: Fence::open() }
    }

    /// A client for each, on this way to the API server; with `own_accounts`, each controller under its own service account
    /// (`--use-service-account-credentials`).
    pub fn new(access: Access, own_accounts: bool) -> Clients {
        let process = access.client();
        let identities = match own_accounts {
            true => Identities::Accounts(access.clone(), Arc::new(Accounts::new(access))),
            false => Identities::Process(access),
        };
        Clients { process, identities, fence: Fence::open() }
    }

    /// What the controllers send is held back unless this is open.
    pub fn fenced(self, fence: Fence) -> Clients {
        Clients { fence, ..self }
    }

    /// For what the process does in its own name: watches, leases, its own Events.
    pub fn process(&self) -> kube::Client {
        self.process.clone()
    }

    /// For what the process writes in its own name while it leads.
    pub fn leader(&self) -> kube::Client {
        fenced(self.process(), self.fence.clone())
    }

    /// As [`process`](Clients::process), with a user agent and a rate of its own.
    pub fn named(&self, user: &str) -> kube::Client {
        match &self.identities {
            Identities::Shared => self.process.clone(),
            Identities::Process(access) | Identities::Accounts(access, _) => access.named(user),
        }
    }

    /// For the controller of this name in its clients (`node-controller`, `service-controller`, …).
    pub fn controller(&self, name: &'static str) -> kube::Client {
        fenced(self.identity(name), self.fence.clone())
    }

    fn identity(&self, name: &'static str) -> kube::Client {
        match &self.identities {
            Identities::Shared | Identities::Process(_) => self.named(name),
            Identities::Accounts(_, accounts) => accounts.client(name, &self.fence),
        }
    }
}
