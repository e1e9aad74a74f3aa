//! Writes of routes, combined into batches. Batches with the same lock run one after the other.
//!
//! ```text
//!  write ──► pending ──a moment later──► batches, none with two routes of one destination ──► delete, then create
//!               ▲                                              │
//!               └─ writes that arrive while a lock is held ◄───┘ form the next batches
//! ```
//!
//! A caller that stops waiting takes no other caller's answer away, and a write that no caller waits for any more is not
//! started.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bowline_core::{ClusterName, Route, RouteSpec};
use ipnet::IpNet;
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::layers::operation::Operation;
use crate::layers::places::Places;
use crate::layers::read::into_batches;
use crate::{CloudProvider, Error, ErrorKind, Locks, Result, Routes};

/// Writes the routes of one provider.
pub(crate) struct RouteWriter {
    provider: Arc<dyn CloudProvider>,
    places: Arc<Places>,
    locks: Locks,
    gather: Duration,
    /// Clusters for which a task is running, and the writes that it has not taken yet.
    pending: Mutex<HashMap<ClusterName, Pending>>,
}

/// Writes that have not been started, in the order in which they arrived.
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
        places: Arc<Places>,
        locks: Locks,
        gather: Duration,
    ) -> Arc<RouteWriter> {
        Arc::new(RouteWriter { provider, places, locks, gather, pending: Mutex::default() })
    }

    pub(crate) async fn create(self: &Arc<RouteWriter>, cluster: &ClusterName, route: &RouteSpec) -> Result<Route> {
        const OPERATION: Operation = Operation::CreateRoute;
        if let Some(routes) = self.unshared(cluster)? {
            let created = routes.create(cluster, std::slice::from_ref(route));
            return only(OPERATION, self.places.run_each(OPERATION, 1, created).await);
        }
        let (write, answer) = Write::new(route.clone());
        self.add(cluster, |pending| pending.creates.push(write));
        answer.await.unwrap_or_else(|_| Err(outcome_unknown(OPERATION)))
    }

    pub(crate) async fn delete(self: &Arc<RouteWriter>, cluster: &ClusterName, route: &Route) -> Result<()> {
        const OPERATION: Operation = Operation::DeleteRoute;
        if let Some(routes) = self.unshared(cluster)? {
            let deleted = routes.delete(cluster, std::slice::from_ref(route));
            return only(OPERATION, self.places.run_each(OPERATION, 1, deleted).await);
        }
        let (write, answer) = Write::new(route.clone());
        self.add(cluster, |pending| pending.deletes.push(write));
        answer.await.unwrap_or_else(|_| Err(outcome_unknown(OPERATION)))
    }

    /// Returns the provider's routes if a write neither joins a batch nor waits for a lock.
    fn unshared(&self, cluster: &ClusterName) -> Result<Option<&dyn Routes>> {
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
            sleep(self.gather).await;
            let lock = self.routes().ok().and_then(|(routes, _)| routes.lock(&cluster));
            let _guard = self.locks.take(&lock.iter().cloned().collect()).await;
            let Some(pending) = self.take(&cluster) else { return };
            let Ok((_, size)) = self.routes() else { continue };
            for batch in pending.into_batches(size) {
                let (writer, cluster) = (Arc::clone(&self), cluster.clone());
                // In a task of its own: a panic of the provider fails this batch alone.
                let written = tokio::spawn(async move { writer.write(&cluster, batch).await });
                if lock.is_some() {
                    written.await.ok();
                }
            }
        }
    }

    /// Takes what is pending; `None`, which ends the task, if that is nothing.
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
                let (wanted, callers) = unzip(writes);
                let deleted = routes.delete(cluster, &wanted);
                let answers = self.places.run_each(Operation::DeleteRoute, wanted.len(), deleted).await;
                answer_all(callers, answers);
            }
            Batch::Create(writes) => {
                let (wanted, callers) = unzip(writes);
                let created = routes.create(cluster, &wanted);
                let answers = self.places.run_each(Operation::CreateRoute, wanted.len(), created).await;
                answer_all(callers, answers);
            }
        }
    }

    /// Returns the provider's routes and the size of its batches.
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

    /// Batches in the order in which they are written: deletes first, because they make room in a full table.
    fn into_batches(self, size: usize) -> impl Iterator<Item = Batch> {
        let deletes = wanted(self.deletes, size, |route| route.destination.trunc()).into_iter().map(Batch::Delete);
        let creates = wanted(self.creates, size, |route| route.destination.trunc()).into_iter().map(Batch::Create);
        deletes.chain(creates)
    }
}

impl<R, A> Write<R, A> {
    fn new(route: R) -> (Write<R, A>, oneshot::Receiver<Result<A>>) {
        let (caller, answer) = oneshot::channel();
        (Write { route, caller }, answer)
    }
}

/// Batches of the writes that a caller still waits for, none with two of one destination.
fn wanted<R, A>(writes: Vec<Write<R, A>>, size: usize, destination: impl Fn(&R) -> IpNet) -> Vec<Vec<Write<R, A>>> {
    let writes = writes.into_iter().filter(|write| !write.caller.is_closed());
    into_batches(writes, size, |write| destination(&write.route))
}

fn unzip<R, A>(writes: Vec<Write<R, A>>) -> (Vec<R>, Vec<oneshot::Sender<Result<A>>>) {
    writes.into_iter().map(|write| (write.route, write.caller)).unzip()
}

fn answer_all<A>(callers: Vec<oneshot::Sender<Result<A>>>, answers: Vec<Result<A>>) {
    // A caller that stopped waiting does not receive its answer.
    callers.into_iter().zip(answers).for_each(|(caller, answer)| drop(caller.send(answer)));
}

fn only<A>(operation: Operation, mut answers: Vec<Result<A>>) -> Result<A> {
    answers.pop().unwrap_or_else(|| Err(outcome_unknown(operation)))
}

fn outcome_unknown(operation: Operation) -> Error {
    Error::new(ErrorKind::Unexpected, operation.to_string(), "the write ended without an answer; the log says why")
}
