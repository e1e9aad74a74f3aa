//! Route writes, combined into batches. Batches with the same lock are serialised.
//!
//! ```text
//!  write ──► pending ──after the batch window──► batches, none with two routes of one destination ──► delete, then create
//!               ▲                                                      │
//!               └─ writes that arrive while a lock is held form ◄──────┘ the next batches
//! ```
//!
//! A caller that stops waiting does not affect other callers, and a write without a waiting caller is not started.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bowline_core::{ClusterName, Route, RouteSpec};
use ipnet::IpNet;
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::layers::concurrency::ConcurrencyLimits;
use crate::layers::operation::Operation;
use crate::layers::read::into_batches;
use crate::{CloudProvider, Error, ErrorKind, Locks, Result, Routes};

/// Writes the routes of one provider.
pub(crate) struct RouteWriter {
    provider: Arc<dyn CloudProvider>,
    limits: Arc<ConcurrencyLimits>,
    locks: Locks,
    batch_window: Duration,
    /// Clusters with a running task, and the writes that the task has not taken yet.
    pending: Mutex<HashMap<ClusterName, Pending>>,
}

/// Writes that have not been started, in order of arrival.
#[derive(Default)]
struct Pending {
    deletes: Vec<Write<Route, ()>>,
    creates: Vec<Write<RouteSpec, Route>>,
}

struct Write<R, A> {
    route: R,
    caller: oneshot::Sender<Result<A>>,
}

/// Writes of one call.
enum Batch {
    Delete(Vec<Write<Route, ()>>),
    Create(Vec<Write<RouteSpec, Route>>),
}

impl RouteWriter {
    pub(crate) fn new(
        provider: Arc<dyn CloudProvider>,
        limits: Arc<ConcurrencyLimits>,
        locks: Locks,
        batch_window: Duration,
    ) -> Arc<RouteWriter> {
        Arc::new(RouteWriter { provider, limits, locks, batch_window, pending: Mutex::default() })
    }

    pub(crate) async fn create(self: &Arc<RouteWriter>, cluster: &ClusterName, route: &RouteSpec) -> Result<Route> {
        const OPERATION: Operation = Operation::CreateRoute;
        if let Some(routes) = self.unbatched(cluster)? {
            let created = routes.create(cluster, std::slice::from_ref(route));
            return only(OPERATION, self.limits.run_each(OPERATION, 1, created).await);
        }
        let (write, result) = Write::new(route.clone());
        self.add(cluster, |pending| pending.creates.push(write));
        result.await.unwrap_or_else(|_| Err(no_result(OPERATION)))
    }

    pub(crate) async fn delete(self: &Arc<RouteWriter>, cluster: &ClusterName, route: &Route) -> Result<()> {
        const OPERATION: Operation = Operation::DeleteRoute;
        if let Some(routes) = self.unbatched(cluster)? {
            let deleted = routes.delete(cluster, std::slice::from_ref(route));
            return only(OPERATION, self.limits.run_each(OPERATION, 1, deleted).await);
        }
        let (write, result) = Write::new(route.clone());
        self.add(cluster, |pending| pending.deletes.push(write));
        result.await.unwrap_or_else(|_| Err(no_result(OPERATION)))
    }

    /// Returns the provider's routes if writes are neither batched nor locked.
    fn unbatched(&self, cluster: &ClusterName) -> Result<Option<&dyn Routes>> {
        let (routes, batch) = self.routes()?;
        Ok((batch <= 1 && routes.lock(cluster).is_none()).then_some(routes))
    }

    /// Adds a write, and starts a task for the cluster unless one is running.
    fn add(self: &Arc<RouteWriter>, cluster: &ClusterName, add: impl FnOnce(&mut Pending)) {
        let mut pending = self.lock();
        if !pending.contains_key(cluster) {
            tokio::spawn(Arc::clone(self).run(cluster.clone()));
        }
        add(pending.entry(cluster.clone()).or_default());
    }

    /// Writes until nothing is pending.
    async fn run(self: Arc<RouteWriter>, cluster: ClusterName) {
        loop {
            sleep(self.batch_window).await;
            let lock = self.routes().ok().and_then(|(routes, _)| routes.lock(&cluster));
            let _guard = self.locks.take(&lock.iter().cloned().collect()).await;
            let Some(pending) = self.take(&cluster) else { return };
            let Ok((_, size)) = self.routes() else { continue };
            for batch in pending.into_batches(size) {
                let (writer, cluster) = (Arc::clone(&self), cluster.clone());
                // In a task of its own, so that a panic of the provider fails only this batch.
                let written = tokio::spawn(async move { writer.write(&cluster, batch).await });
                if lock.is_some() {
                    written.await.ok();
                }
            }
        }
    }

    /// Takes the pending writes; `None`, which ends the task, if there are none.
    fn take(&self, cluster: &ClusterName) -> Option<Pending> {
        let mut all = self.lock();
        let pending = all.get_mut(cluster).map(std::mem::take).filter(|pending| !pending.is_empty());
        if pending.is_none() {
            all.remove(cluster);
        }
        pending
    }

    async fn write(&self, cluster: &ClusterName, batch: Batch) {
        let Ok((routes, _)) = self.routes() else { return };
        match batch {
            Batch::Delete(writes) => {
                let (routes_to_write, callers) = unzip(writes);
                let deleted = routes.delete(cluster, &routes_to_write);
                let results = self.limits.run_each(Operation::DeleteRoute, routes_to_write.len(), deleted).await;
                send_all(callers, results);
            }
            Batch::Create(writes) => {
                let (routes_to_write, callers) = unzip(writes);
                let created = routes.create(cluster, &routes_to_write);
                let results = self.limits.run_each(Operation::CreateRoute, routes_to_write.len(), created).await;
                send_all(callers, results);
            }
        }
    }

    /// Returns the provider's routes and the batch size.
    fn routes(&self) -> Result<(&dyn Routes, usize)> {
        let batch = self.provider.capabilities().routes.as_ref().map(|limits| limits.batch.max(1));
        let routes = self.provider.routes().zip(batch);
        routes.ok_or_else(|| super::unsupported(&*self.provider, Operation::CreateRoute, "routes"))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ClusterName, Pending>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pending {
    fn is_empty(&self) -> bool {
        self.deletes.is_empty() && self.creates.is_empty()
    }

    /// Returns the batches in the order in which they are written: deletions first, because they free entries in a full table.
    fn into_batches(self, size: usize) -> impl Iterator<Item = Batch> {
        let deletes =
            awaited_batches(self.deletes, size, |route| route.destination.trunc()).into_iter().map(Batch::Delete);
        let creates =
            awaited_batches(self.creates, size, |route| route.destination.trunc()).into_iter().map(Batch::Create);
        deletes.chain(creates)
    }
}

impl<R, A> Write<R, A> {
    fn new(route: R) -> (Write<R, A>, oneshot::Receiver<Result<A>>) {
        let (caller, result) = oneshot::channel();
        (Write { route, caller }, result)
    }
}

/// Splits the writes with a waiting caller into batches, none with two of one destination.
fn awaited_batches<R, A>(
    writes: Vec<Write<R, A>>,
    size: usize,
    destination: impl Fn(&R) -> IpNet,
) -> Vec<Vec<Write<R, A>>> {
    let writes = writes.into_iter().filter(|write| !write.caller.is_closed());
    into_batches(writes, size, |write| destination(&write.route))
}

fn unzip<R, A>(writes: Vec<Write<R, A>>) -> (Vec<R>, Vec<oneshot::Sender<Result<A>>>) {
    writes.into_iter().map(|write| (write.route, write.caller)).unzip()
}

fn send_all<A>(callers: Vec<oneshot::Sender<Result<A>>>, results: Vec<Result<A>>) {
    // Sending fails if the caller has stopped waiting.
    callers.into_iter().zip(results).for_each(|(caller, result)| drop(caller.send(result)));
}

fn only<A>(operation: Operation, mut results: Vec<Result<A>>) -> Result<A> {
    results.pop().unwrap_or_else(|| Err(no_result(operation)))
}

fn no_result(operation: Operation) -> Error {
    Error::new(ErrorKind::Unexpected, operation.to_string(), "the write ended without a result; see the log")
}
