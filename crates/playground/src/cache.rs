//! Shared cache of Nodes, Pods, Leases and Services for the simulated components.
//!
//! It has one watch per kind, so that a thousand kubelets need four watches and not four thousand.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use kube::runtime::reflector::{self, Lookup, Store};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::time::Interval;

use crate::objects::{Lease, Node, Pod, Service};

/// Namespace of the kubelets' Leases.
pub(crate) const LEASE_NAMESPACE: &str = "kube-node-lease";

/// Debounce interval of changes.
const DEBOUNCE: Duration = Duration::from_millis(5);

/// Objects as last received from the watches. Clones share the same cache.
#[derive(Clone)]
pub(crate) struct Cache {
    nodes: Store<Node>,
    pods: Store<Pod>,
    leases: Store<Lease>,
    services: Store<Service>,
    filled: watch::Receiver<bool>,
    /// Number of changes of Pods and Services.
    changes: watch::Receiver<u64>,
}

impl Cache {
    /// Returns a cache and the future that runs its watches, which never completes.
    pub(crate) fn new(client: &Client) -> (Cache, impl Future<Output = ()> + Send + use<>) {
        let (count, changes) = watch::channel(0);
        let counted = Arc::new(count);
        let (on_pod, on_service) = (counter(&counted), counter(&counted));
        let (nodes, feed_nodes) = reflect(Api::<Node>::all(client.clone()), || ());
        let (pods, feed_pods) = reflect(Api::<Pod>::all(client.clone()), on_pod);
        let (leases, feed_leases) = reflect(Api::<Lease>::namespaced(client.clone(), LEASE_NAMESPACE), || ());
        let (services, feed_services) = reflect(Api::<Service>::all(client.clone()), on_service);
        let (fill, filled) = watch::channel(false);
        let cache = Cache { nodes, pods, leases, services, filled, changes };
        let full = cache.clone();
        let feed = async move {
            tokio::join!(feed_nodes, feed_pods, feed_leases, feed_services, async {
                full.wait_until_filled().await;
                fill.send_replace(true);
                // Keeps the sender alive: receivers treat a dropped sender as the end of the feed.
                std::future::pending::<()>().await;
            });
        };
        (cache, feed)
    }

    /// Waits until the initial lists are complete. Before that, a missing object may still exist.
    pub(crate) async fn synced(&self) {
        // An error means that the feed was dropped; the waiting components are dropped with it.
        let _ = self.filled.clone().wait_for(|filled| *filled).await.is_ok();
    }

    /// Waits for a change of a Pod or Service that this clone has not seen yet, or for the next tick. The ticks cover changes
    /// without an event, such as those of machines.
    pub(crate) async fn changed(&mut self, ticks: &mut Interval) {
        tokio::select! {
            changed = self.changes.changed() => match changed {
                // Coalesces changes that arrive together.
                Ok(()) => tokio::time::sleep(DEBOUNCE).await,
                // The feed was dropped; the waiting components are dropped with it.
                Err(_) => std::future::pending().await,
            },
            _ = ticks.tick() => {}
        }
    }

    /// Waits for the stores. Only one task may call this: with several waiters, a store may wake only one of them.
    async fn wait_until_filled(&self) {
        let (nodes, pods) = (self.nodes.wait_until_ready(), self.pods.wait_until_ready());
        let (leases, services) = (self.leases.wait_until_ready(), self.services.wait_until_ready());
        let _ = tokio::join!(nodes, pods, leases, services);
    }

    /// Returns all Nodes, sorted by name.
    pub(crate) fn nodes(&self) -> Vec<Arc<Node>> {
        by_name(&self.nodes)
    }

    /// Returns all Pods, sorted by namespace and name.
    pub(crate) fn pods(&self) -> Vec<Arc<Pod>> {
        let mut pods = self.pods.state();
        pods.sort_by_cached_key(|pod| (pod.metadata.namespace.clone(), pod.name_any()));
        pods
    }

    /// Returns all Services, sorted by namespace and name.
    pub(crate) fn services(&self) -> Vec<Arc<Service>> {
        let mut services = self.services.state();
        services.sort_by_cached_key(|service| (service.metadata.namespace.clone(), service.name_any()));
        services
    }

    /// Returns the Leases of all kubelets, sorted by name.
    pub(crate) fn leases(&self) -> Vec<Arc<Lease>> {
        by_name(&self.leases)
    }
}

fn by_name<K: Resource + Lookup + Clone + 'static>(store: &Store<K>) -> Vec<Arc<K>>
where
    <K as Lookup>::DynamicType: Eq + Hash + Clone,
{
    let mut objects = store.state();
    objects.sort_by_cached_key(|object| object.name_any());
    objects
}

fn counter(count: &Arc<watch::Sender<u64>>) -> impl Fn() + Send + use<> {
    let count = count.clone();
    move || count.send_modify(|count| *count = count.wrapping_add(1))
}

/// Returns a store and the future that feeds it and calls `notify` on every change.
fn reflect<K>(api: Api<K>, notify: impl Fn() + Send) -> (Store<K>, impl Future<Output = ()> + Send)
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let (reader, writer) = reflector::store();
    let feed = watcher(api, watcher::Config::default())
        .default_backoff()
        // Managed fields are a third of most objects, and unused here.
        .modify(|object| object.managed_fields_mut().clear())
        .reflect(writer)
        .for_each(move |event| {
            match event {
                Ok(_) => notify(),
                Err(error) => tracing::debug!(%error, "watch of the simulated components failed; retrying"),
            }
            std::future::ready(())
        });
    (reader, feed)
}
