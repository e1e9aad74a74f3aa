//! Syncs kernel routes.

mod desired;
mod diff;
mod namespace_socket;
mod netlink;

use std::collections::BTreeSet;
use std::mem;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use ipnet::IpNet;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{self, Instant};

use self::desired::{DesiredRoutes, desired_routes};
use self::diff::{Plan, Routes, diff};
use self::namespace_socket::{EnterError, check_privileges, connect};
use super::{RouteProblem, namespace};
use crate::cloud::{CloudError, LocalCloud, Shared, World};

/// Interval of periodic syncs: an interface that goes down loses its routes.
const SYNC_INTERVAL: Duration = Duration::from_secs(30);

/// Back-off after a failed sync; it doubles up to [`SYNC_INTERVAL`].
const RETRY: Duration = Duration::from_secs(1);

/// Timeout of one namespace.
const NAMESPACE_TIMEOUT: Duration = Duration::from_secs(10);

/// Syncs the kernel routes with the tables.
pub(crate) struct KernelRoutes {
    runtime: Handle,
    /// Serializes syncs, so that an older state never replaces a newer one.
    sync: tokio::sync::Mutex<SyncState>,
    problems: Mutex<BTreeSet<RouteProblem>>,
}

/// State between syncs.
#[derive(Default)]
struct SyncState {
    /// Namespaces that may have routes of the cloud, even without machines.
    visited: BTreeSet<String>,
    /// Routes and time of the last successful sync.
    synced: Option<(DesiredRoutes, Instant)>,
    /// No further changes are made.
    closed: bool,
}

impl KernelRoutes {
    /// Starts on the current runtime.
    pub(crate) fn open() -> Result<KernelRoutes, CloudError> {
        let runtime = Handle::try_current().map_err(|_| {
            CloudError::Invalid("a cloud with kernel routes must be opened on a Tokio runtime".to_owned())
        })?;
        check_privileges()
            .map_err(|error| CloudError::Invalid(format!("kernel routes: network namespace: {error}")))?;
        Ok(KernelRoutes { runtime, sync: tokio::sync::Mutex::default(), problems: Mutex::default() })
    }

    /// Problems of the last sync.
    pub(crate) fn problems(&self) -> Vec<RouteProblem> {
        self.problems.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    /// Stops syncing. The routes stay.
    pub(crate) async fn close(&self) {
        self.sync.lock().await.closed = true;
    }

    /// Logs new and resolved problems, but not repeated ones.
    fn report(&self, problems: BTreeSet<RouteProblem>) {
        let mut known = self.problems.lock().unwrap_or_else(PoisonError::into_inner);
        for problem in problems.difference(&known) {
            tracing::warn!(%problem, "cannot sync a kernel route; retrying");
        }
        for problem in known.difference(&problems) {
            tracing::info!(%problem, "problem of a kernel route resolved");
        }
        *known = problems;
    }
}

impl LocalCloud {
    /// Starts the task that syncs kernel routes.
    pub(crate) fn spawn_kernel_routes(&self) {
        if let Some(kernel) = &self.shared.kernel {
            kernel.runtime.spawn(run(Arc::downgrade(&self.shared), self.route_changes()));
        }
    }

    /// Syncs the kernel routes with the current tables. Returns whether there are no problems.
    pub(crate) async fn sync_kernel_routes(&self) -> bool {
        let Some(kernel) = &self.shared.kernel else { return true };
        let mut sync = kernel.sync.lock().await;
        let desired = self.read(of_world);
        if sync.closed || sync.is_synced(&desired) {
            return true;
        }
        let problems = sync.apply(desired).await;
        let is_synced = problems.is_empty();
        kernel.report(problems);
        is_synced
    }
}

/// Syncs until the cloud is dropped.
async fn run(cloud: Weak<Shared>, mut changes: watch::Receiver<u64>) {
    let mut pause = RETRY;
    while let Some(shared) = cloud.upgrade() {
        let is_synced = LocalCloud { shared }.sync_kernel_routes().await;
        let wait = if is_synced { SYNC_INTERVAL } else { pause };
        pause = if is_synced { RETRY } else { SYNC_INTERVAL.min(pause * 2) };
        // Woken by a change, the timeout, or the end of the cloud.
        let _ = time::timeout(wait, changes.changed()).await;
    }
}

fn of_world(world: &World) -> DesiredRoutes {
    desired_routes(world.fleet.iter(), world.routes.iter())
}

// ---- one sync

impl SyncState {
    /// Whether the same routes were synced recently.
    fn is_synced(&self, desired: &DesiredRoutes) -> bool {
        self.synced.as_ref().is_some_and(|(before, when)| before == desired && when.elapsed() < SYNC_INTERVAL)
    }

    /// Applies the desired routes and returns the problems.
    async fn apply(&mut self, desired: DesiredRoutes) -> BTreeSet<RouteProblem> {
        let mut problems: BTreeSet<_> = desired.problems.iter().cloned().collect();
        self.visited.extend(desired.namespaces.keys().cloned());
        for name in mem::take(&mut self.visited) {
            let routes = desired.namespaces.get(&name);
            let failed = sync_namespace(&name, routes).await;
            // A namespace without machines is kept until the routes of the cloud are removed from it.
            if routes.is_some() || !failed.is_empty() {
                self.visited.insert(name);
            }
            problems.extend(failed);
        }
        self.synced = problems.is_empty().then(|| (desired, Instant::now()));
        problems
    }
}

/// Syncs the routes of one namespace, and returns the problems. `desired` is `None` if no machine has the namespace any more.
async fn sync_namespace(name: &str, desired: Option<&Routes>) -> Vec<RouteProblem> {
    let problem = |(destination, message)| RouteProblem { namespace: Some(name.to_owned()), destination, message };
    let problems = match time::timeout(NAMESPACE_TIMEOUT, reconcile(name, desired)).await {
        Ok(problems) => problems,
        Err(_) => vec![(None, "the kernel did not respond in time".to_owned())],
    };
    problems.into_iter().map(problem).collect()
}

/// Destination, if the failure is about one, and the message.
type Failure = (Option<IpNet>, String);

async fn reconcile(name: &str, desired: Option<&Routes>) -> Vec<Failure> {
    let kernel = match connect(namespace::path(name)).await {
        Ok(kernel) => kernel,
        // The routes were deleted with the namespace.
        Err(EnterError::Missing) if desired.is_none() => return Vec::new(),
        Err(error) => return vec![(None, error.to_string())],
    };
    match netlink::dump(&kernel).await {
        Ok(found) => apply(name, &kernel, diff(desired.unwrap_or(&Routes::new()), &found)).await,
        Err(error) => vec![(None, netlink::explain(&error, None))],
    }
}

/// Applies a plan. A failed route does not stop the others.
async fn apply(name: &str, kernel: &rtnetlink::Handle, plan: Plan) -> Vec<Failure> {
    let mut failures = Vec::new();
    for route in plan.remove {
        tracing::debug!(namespace = name, destination = %route.destination, "removing a kernel route");
        if let Err(error) = netlink::remove(kernel, &route).await {
            failures.push((Some(route.destination), netlink::explain(&error, None)));
        }
    }
    for (destination, hop) in plan.add {
        tracing::debug!(namespace = name, %destination, ?hop, "adding a kernel route");
        if let Err(error) = netlink::add(kernel, destination, hop).await {
            failures.push((Some(destination), netlink::explain(&error, Some(hop))));
        }
    }
    failures
}
