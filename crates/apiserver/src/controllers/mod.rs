//! The small helpers that a real cluster has elsewhere: namespace purge, garbage collection, default service
//! accounts, endpoint slices, and the end of old events and pods.
//!
//! ```text
//! store ──changes of all collections──► Keeper::fold (what is dirty?) ──► helpers ──writes──► store
//! ```
//!
//! One task does all of it, one pass at a time. A pass reads what changed since the last one, folds it into small
//! indexes, and lets each helper work off what concerns it. Helpers are level-triggered: a write that fails is tried
//! again in the next pass.

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

/// Changes that come close together are worked off in one pass.
const GATHER: Duration = Duration::from_millis(20);

/// A pass is made at least this often, for what time alone changes.
const RESYNC: Duration = Duration::from_secs(1);

/// Runs the helpers until the server stops.
pub(crate) async fn run(state: Arc<State>, mut stopped: watch::Receiver<bool>, authority: String) {
    if !state.options.built_in_controllers {
        return;
    }
    let mut revisions = state.store.revisions();
    let mut keeper = Keeper::new(state, authority);
    loop {
        keeper.pass();
        tokio::select! {
            _ = async { stopped.wait_for(|stop| *stop).await.is_ok() } => return,
            _ = revisions.changed() => tokio::time::sleep(GATHER).await,
            () = tokio::time::sleep(RESYNC) => {}
        }
    }
}

/// The resources whose objects are stored, each once.
fn stored_resources() -> impl Iterator<Item = &'static Resource> {
    RESOURCES.iter().filter(|r| !r.is_virtual() && r.view.is_none())
}

struct Keeper {
    hands: Hands,
    subscriptions: Vec<(&'static Resource, Subscription)>,
    accounts: accounts::Accounts,
    expiry: expiry::Expiry,
    garbage: garbage::Garbage,
    namespaces: namespaces::Namespaces,
    slices: slices::Slices,
}

impl Keeper {
    fn new(state: Arc<State>, authority: String) -> Keeper {
        let mut keeper = Keeper {
            hands: Hands { state, user: helper_user() },
            subscriptions: Vec::new(),
            accounts: accounts::Accounts::new(authority),
            expiry: expiry::Expiry::default(),
            garbage: garbage::Garbage::default(),
            namespaces: namespaces::Namespaces::default(),
            slices: slices::Slices::default(),
        };
        keeper.start_over();
        keeper
    }

    /// Reads everything anew: at the start, and after falling behind.
    fn start_over(&mut self) {
        self.garbage = garbage::Garbage::default();
        self.subscriptions.clear();
        for resource in stored_resources() {
            let (snapshot, subscription) = self.hands.state.store.list_and_subscribe(resource.storage, None);
            self.subscriptions.push((resource, subscription));
            for object in snapshot.objects {
                self.fold(resource, &Change { verb: Verb::Added, object, previous: None });
            }
        }
    }

    fn pass(&mut self) {
        if !self.read_changes() {
            self.start_over();
        }
        self.accounts.work(&self.hands);
        self.garbage.work(&self.hands);
        self.namespaces.work(&self.hands);
        self.slices.work(&self.hands);
        self.expiry.work(&self.hands);
    }

    /// Folds in what is new; false if some of it is lost.
    fn read_changes(&mut self) -> bool {
        const BATCH: usize = 1000;
        let mut subscriptions = std::mem::take(&mut self.subscriptions);
        let mut whole = true;
        for (resource, subscription) in &mut subscriptions {
            loop {
                match self.hands.state.store.next_changes(subscription, BATCH) {
                    Read::Changes { changes, .. } if changes.is_empty() => break,
                    Read::Changes { changes, .. } => changes.iter().for_each(|change| self.fold(resource, change)),
                    Read::Lagged => {
                        whole = false;
                        break;
                    }
                }
            }
        }
        self.subscriptions = subscriptions;
        whole
    }

    fn fold(&mut self, resource: &'static Resource, change: &Change) {
        self.accounts.fold(resource, change);
        self.garbage.fold(resource, change);
        self.namespaces.fold(resource, change);
        self.slices.fold(resource, change);
        self.expiry.fold(resource, change);
    }
}

fn helper_user() -> User {
    User {
        name: "system:kube-controller-manager".into(),
        groups: vec!["system:masters".into(), "system:authenticated".into()],
        ..User::default()
    }
}

/// What the helpers write with.
struct Hands {
    state: Arc<State>,
    user: User,
}

impl Hands {
    fn write<'a>(
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
        delete_object(&self.write(resource, &object.key.namespace, None), &object.key.name, options)
    }
}

/// The resource of a kind this crate's own tables name.
fn kind(api_version: &str, name: &str) -> &'static Resource {
    match find_kind(api_version, name) {
        Some(resource) => resource,
        None => unreachable!("no resource is called {name} in {api_version}"),
    }
}
