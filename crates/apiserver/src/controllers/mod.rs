//! Built-in controllers that run in the kube-controller-manager of a real cluster: namespace deletion, garbage collection,
//! default service accounts, endpoint slices, and expiry of Events and Pods.
//!
//! ```text
//! store ──changes of all collections──► Controllers::on_change ──► controllers ──writes──► store
//! ```
//!
//! One task runs all controllers, one sync at a time. A sync reads the changes since the last one, updates small indexes and
//! lets each controller process its queue. Controllers are level-triggered: the next sync retries a failed write.

mod accounts;
mod expiry;
mod garbage;
mod namespaces;
mod slices;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::auth::User;
use crate::resources::{RESOURCES, Resource, WriteCx, find_kind};
use crate::state::State;
use crate::status::ApiResult;
use crate::store::{Change, Read, Stored, Subscription, Verb};
use crate::verbs::{DeleteOptions, Deleted, delete_object};

/// Debounce interval: changes within it are handled by one sync.
const DEBOUNCE: Duration = Duration::from_millis(20);

/// Maximum interval between two syncs, for expiry times that pass without a change.
const RESYNC: Duration = Duration::from_secs(1);

/// Runs the controllers until the server stops.
pub(crate) async fn run(state: Arc<State>, mut stopped: watch::Receiver<bool>, root_ca_pem: String) {
    if !state.options.built_in_controllers {
        return;
    }
    let mut revisions = state.store.revisions();
    let mut controllers = Controllers::new(state, root_ca_pem);
    loop {
        controllers.sync();
        tokio::select! {
            _ = async { stopped.wait_for(|stop| *stop).await.is_ok() } => return,
            _ = revisions.changed() => tokio::time::sleep(DEBOUNCE).await,
            () = tokio::time::sleep(RESYNC) => {}
        }
    }
}

/// All resources with stored objects, without duplicates.
fn stored_resources() -> impl Iterator<Item = &'static Resource> {
    RESOURCES.iter().filter(|r| !r.is_virtual() && r.view.is_none())
}

struct Controllers {
    writer: Writer,
    subscriptions: Vec<(&'static Resource, Subscription)>,
    accounts: accounts::Accounts,
    expiry: expiry::Expiry,
    garbage: garbage::Garbage,
    namespaces: namespaces::Namespaces,
    slices: slices::Slices,
}

impl Controllers {
    fn new(state: Arc<State>, root_ca_pem: String) -> Controllers {
        let mut controllers = Controllers {
            writer: Writer { state, user: controller_user() },
            subscriptions: Vec::new(),
            accounts: accounts::Accounts::new(root_ca_pem),
            expiry: expiry::Expiry::default(),
            garbage: garbage::Garbage::default(),
            namespaces: namespaces::Namespaces::default(),
            slices: slices::Slices::default(),
        };
        controllers.relist();
        controllers
    }

    /// Lists everything, at the start and after falling behind.
    fn relist(&mut self) {
        self.garbage = garbage::Garbage::default();
        self.subscriptions.clear();
        for resource in stored_resources() {
            let (snapshot, subscription) = self.writer.state.store.list_and_subscribe(resource.storage, None);
            self.subscriptions.push((resource, subscription));
            for object in snapshot.objects {
                self.on_change(resource, &Change { verb: Verb::Added, object, previous: None });
            }
        }
    }

    fn sync(&mut self) {
        if !self.read_changes() {
            self.relist();
        }
        self.accounts.reconcile(&self.writer);
        self.garbage.reconcile(&self.writer);
        self.namespaces.reconcile(&self.writer);
        self.slices.reconcile(&self.writer);
        self.expiry.reconcile(&self.writer);
    }

    /// Reads new changes into the indexes; returns false if changes were lost.
    fn read_changes(&mut self) -> bool {
        const BATCH: usize = 1000;
        let mut subscriptions = std::mem::take(&mut self.subscriptions);
        let mut complete = true;
        for (resource, subscription) in &mut subscriptions {
            loop {
                match self.writer.state.store.next_changes(subscription, BATCH) {
                    Read::Changes { changes, .. } if changes.is_empty() => break,
                    Read::Changes { changes, .. } => changes.iter().for_each(|change| self.on_change(resource, change)),
                    Read::Lagged => {
                        complete = false;
                        break;
                    }
                }
            }
        }
        self.subscriptions = subscriptions;
        complete
    }

    fn on_change(&mut self, resource: &'static Resource, change: &Change) {
        self.accounts.on_change(resource, change);
        self.garbage.on_change(resource, change);
        self.namespaces.on_change(resource, change);
        self.slices.on_change(resource, change);
        self.expiry.on_change(resource, change);
    }
}

fn controller_user() -> User {
    User {
        name: "system:kube-controller-manager".into(),
        groups: vec!["system:masters".into(), "system:authenticated".into()],
        ..User::default()
    }
}

/// Writes on behalf of the controllers.
struct Writer {
    state: Arc<State>,
    user: User,
}

impl Writer {
    fn context<'a>(
        &'a self,
        resource: &'static Resource,
        namespace: &'a str,
        subresource: Option<&'a str>,
    ) -> WriteCx<'a> {
        WriteCx {
            state: &self.state,
            resource,
            subresource,
            namespace,
            user: &self.user,
            manager: "kube-controller-manager",
            dry_run: false,
        }
    }

    fn delete(&self, resource: &'static Resource, object: &Stored, options: &DeleteOptions) -> ApiResult<Deleted> {
        delete_object(&self.context(resource, &object.key.namespace, None), &object.key.name, options)
    }
}

/// The resource of a kind that this crate is known to serve.
fn kind(api_version: &str, name: &str) -> &'static Resource {
    match find_kind(api_version, name) {
        Some(resource) => resource,
        None => unreachable!("no resource is called {name} in {api_version}"),
    }
}
