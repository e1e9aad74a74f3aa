//! API clients for the components of the process. Each has its own user agent, and those that write do so only while the process
//! holds its lease.

use std::sync::Arc;

use bowline_runtime::Fence;

use crate::access::Access;
use crate::accounts::Accounts;
use crate::fenced::fenced;

/// Creates API clients.
#[derive(Clone)]
pub struct Clients {
    process: kube::Client,
    identities: Identities,
    fence: Fence,
}

/// Identities under which the controllers access the API server.
#[derive(Clone)]
enum Identities {
    /// One identity and one client for all.
    Shared,
    /// One identity for all, one client each.
    Process(Access),
    /// One service account each (CL-4).
    Accounts(Access, Arc<Accounts>),
}

impl Clients {
    /// Uses this client for every component.
    pub fn shared(client: kube::Client) -> Clients {
        Clients { process: client, identities: Identities::Shared, fence: Fence::open() }
    }

    /// Creates one client per component; with `own_accounts`, each controller uses its own service account
    /// (`--use-service-account-credentials`).
    pub fn new(access: Access, own_accounts: bool) -> Clients {
        let process = access.client();
        let identities = match own_accounts {
            true => Identities::Accounts(access.clone(), Arc::new(Accounts::new(access))),
            false => Identities::Process(access),
        };
        Clients { process, identities, fence: Fence::open() }
    }

    /// Sends the controllers' writes only while this fence is open.
    pub fn fenced(self, fence: Fence) -> Clients {
        Clients { fence, ..self }
    }

    /// Client of the process itself: watches, leases, its own Events.
    pub fn process(&self) -> kube::Client {
        self.process.clone()
    }

    /// Client of the process for writes that require the lease.
    pub fn leader(&self) -> kube::Client {
        fenced(self.process(), self.fence.clone())
    }

    /// As [`process`](Clients::process), with its own user agent and rate limit.
    pub fn named(&self, user: &str) -> kube::Client {
        match &self.identities {
            Identities::Shared => self.process.clone(),
            Identities::Process(access) | Identities::Accounts(access, _) => access.named(user),
        }
    }

    /// Client of the controller with this client name (`node-controller`, `service-controller`, …).
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
