//! What the simulated parts of the cluster see: the Nodes, Pods, Leases and Services as they were last heard of.
//!
//! One watch per kind feeds all of them, so that a thousand kubelets cost four watches and not four thousand.

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

/// Where kubelets keep their Leases.
pub(crate) const LEASE_NAMESPACE: &str = "kube-node-lease";

/// How long changes are gathered before anybody reacts.
const GATHER: Duration = Duration::from_millis(5);

/// The objects as they were last heard of. Clones are the same view.
#[derive(Clone)]
pub(crate) struct View {
    nodes: Store<Node>,
    pods: Store<Pod>,
    leases: Store<Lease>,
    services: Store<Service>,
    filled: watch::Receiver<bool>,
    /// Counts what happens to Pods and Services.
    changes: watch::Receiver<u64>,
}

impl View {
    /// A view, and the work that keeps it fresh; that never ends by itself.
    pub(crate) fn new(client: &Client) -> (View, impl Future<Output = ()> + Send + use<>) {
        let (count, changes) = watch::channel(0);
        let counted = Arc::new(count);
        let (on_pod, on_service) = (counter(&counted), counter(&counted));
        let (nodes, feed_nodes) = reflect(Api::<Node>::all(client.clone()), || ());
        let (pods, feed_pods) = reflect(Api::<Pod>::all(client.clone()), on_pod);
        let (leases, feed_leases) = reflect(Api::<Lease>::namespaced(client.clone(), LEASE_NAMESPACE), || ());
        let (services, feed_services) = reflect(Api::<Service>::all(client.clone()), on_service);
        let (fill, filled) = watch::channel(false);
        let view = View { nodes, pods, leases, services, filled, changes };
        let full = view.clone();
        let feed = async move {
            tokio::join!(feed_nodes, feed_pods, feed_leases, feed_services, async {
                full.filling().await;
                fill.send_replace(true);
                // As long as the sender lives, a view that waits is not told that its feed is gone.
                std::future::pending::<()>().await;
            });
        };
        (view, feed)
    }

    /// Waits until everything that was there at the start is in. Before that, absence means nothing.
    pub(crate) async fn synced(&self) {
        // An error says that the feed was dropped, and then those who wait are about to be, too.
        let _ = self.filled.clone().wait_for(|filled| *filled).await.is_ok();
    }

    /// Waits until something happens to a Pod or a Service that this clone has not been told of, or until the next tick. A
    /// cluster reacts to what it hears; the ticks are for what happens in silence.
    pub(crate) async fn changed(&mut self, ticks: &mut Interval) {
        tokio::select! {
            changed = self.changes.changed() => match changed {
                // What comes together is seen together.
                Ok(()) => tokio::time::sleep(GATHER).await,
                // The feed is gone, and those who wait are about to be, too.
                Err(_) => std::future::pending().await,
            },
            _ = ticks.tick() => {}
        }
    }

    /// Only one may wait for a reflector's store: with several, the waker of one can be lost for the other's.
    async fn filling(&self) {
        let (nodes, pods) = (self.nodes.wait_until_ready(), self.pods.wait_until_ready());
        let (leases, services) = (self.leases.wait_until_ready(), self.services.wait_until_ready());
        let _ = tokio::join!(nodes, pods, leases, services);
    }

    /// All Nodes, by name.
    pub(crate) fn nodes(&self) -> Vec<Arc<Node>> {
        by_name(&self.nodes)
    }

    /// All Pods, by namespace and name.
    pub(crate) fn pods(&self) -> Vec<Arc<Pod>> {
        let mut pods = self.pods.state();
        pods.sort_by_cached_key(|pod| (pod.metadata.namespace.clone(), pod.name_any()));
        pods
    }

    /// All Services, by namespace and name.
    pub(crate) fn services(&self) -> Vec<Arc<Service>> {
        let mut services = self.services.state();
        services.sort_by_cached_key(|service| (service.metadata.namespace.clone(), service.name_any()));
        services
    }

    /// All kubelets' Leases, by name.
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

/// A store, and what feeds it and tells of every change.
fn reflect<K>(api: Api<K>, tell: impl Fn() + Send) -> (Store<K>, impl Future<Output = ()> + Send)
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let (reader, writer) = reflector::store();
    let feed = watcher(api, watcher::Config::default())
        .default_backoff()
        // A third of most objects, and nothing here reads it.
        .modify(|object| object.managed_fields_mut().clear())
        .reflect(writer)
        .for_each(move |event| {
            match event {
                Ok(_) => tell(),
                Err(error) => tracing::debug!(%error, "the watch of a simulated component was cut"),
            }
            std::future::ready(())
        });
    (reader, feed)
}
