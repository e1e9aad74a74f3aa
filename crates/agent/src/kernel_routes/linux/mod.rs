//! Syncs kernel routes.

mod diff;
mod namespace_socket;
mod netlink;

use std::collections::BTreeSet;
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ipnet::IpNet;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{self, Instant};

use self::diff::{Plan, diff};
use self::namespace_socket::{EnterError, check_privileges, connect};
use super::{DesiredRoutes, KernelRoutesError, Namespace, RouteProblem, Routes};

/// Interval of periodic syncs: an interface that goes down loses its routes.
const SYNC_INTERVAL: Duration = Duration::from_secs(30);

/// Back-off after a failed sync; it doubles up to [`SYNC_INTERVAL`].
const RETRY: Duration = Duration::from_secs(1);

/// Timeout of one namespace.
const NAMESPACE_TIMEOUT: Duration = Duration::from_secs(10);

/// Syncs the kernel routes with the desired ones.
pub struct KernelRoutes {
    runtime: Handle,
    /// Serializes syncs, so that an older state never replaces a newer one.
    sync: tokio::sync::Mutex<SyncState>,
    problems: Mutex<BTreeSet<RouteProblem>>,
}

/// State between syncs.
#[derive(Default)]
struct SyncState {
    /// Namespaces that may have routes of this program, although none is desired.
    visited: BTreeSet<Namespace>,
    /// Routes and time of the last successful sync.
    synced: Option<(DesiredRoutes, Instant)>,
    /// No further changes are made.
    closed: bool,
}

impl KernelRoutes {
    /// Kernel routes in the namespace that this process runs in. Missing privileges are a problem of the first route.
    pub fn of_host(runtime: Handle) -> Result<KernelRoutes, KernelRoutesError> {
        Ok(KernelRoutes { runtime, sync: tokio::sync::Mutex::default(), problems: Mutex::default() })
    }

    /// Kernel routes in several namespaces. Fails if this process may not enter them.
    pub fn of_namespaces(runtime: Handle) -> Result<KernelRoutes, KernelRoutesError> {
        check_privileges().map_err(|error| KernelRoutesError::CannotEnter(error.to_string()))?;
        KernelRoutes::of_host(runtime)
    }

    /// Problems of the last sync.
    pub fn problems(&self) -> Vec<RouteProblem> {
        self.problems.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    /// Stops syncing. The routes stay.
    pub async fn close(&self) {
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

    /// Syncs in a task: at once, after each change, periodically, and until `desired` returns `None`, because the records are
    /// dropped.
    pub fn spawn_sync(
        self: &Arc<Self>,
        desired: impl Fn() -> Option<DesiredRoutes> + Send + Sync + 'static,
        changes: watch::Receiver<u64>,
    ) {
        self.runtime.spawn(run(self.clone(), desired, changes));
    }

    /// Syncs the kernel routes with the desired ones, which are computed when no other sync runs. Returns whether there are no
    /// problems.
    pub async fn sync(&self, desired: impl FnOnce() -> DesiredRoutes) -> bool {
        self.sync_if(|| Some(desired())).await.unwrap_or(true)
    }

    async fn sync_if(&self, desired: impl FnOnce() -> Option<DesiredRoutes>) -> Option<bool> {
        let mut sync = self.sync.lock().await;
        let desired = desired()?;
        if sync.closed || sync.is_synced(&desired) {
            return Some(true);
        }
        let problems = sync.apply(desired).await;
        let is_synced = problems.is_empty();
        self.report(problems);
        Some(is_synced)
    }
}

/// Syncs until the records are dropped.
async fn run(
    kernel: Arc<KernelRoutes>,
    desired: impl Fn() -> Option<DesiredRoutes> + Send + Sync + 'static,
    mut changes: watch::Receiver<u64>,
) {
    let mut pause = RETRY;
    while let Some(is_synced) = kernel.sync_if(&desired).await {
        let wait = if is_synced { SYNC_INTERVAL } else { pause };
        pause = if is_synced { RETRY } else { SYNC_INTERVAL.min(pause * 2) };
        // Woken by a change, the timeout, or the end of the records.
        let _ = time::timeout(wait, changes.changed()).await;
    }
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
        for namespace in mem::take(&mut self.visited) {
            let routes = desired.namespaces.get(&namespace);
            let failed = sync_namespace(&namespace, routes).await;
            // A namespace that is no longer listed is kept until the routes are removed from it.
            if routes.is_some() || !failed.is_empty() {
                self.visited.insert(namespace);
            }
            problems.extend(failed);
        }
        self.synced = problems.is_empty().then(|| (desired, Instant::now()));
        problems
    }
}

/// Syncs the routes of one namespace, and returns the problems. `desired` is `None` if the namespace is no longer listed.
async fn sync_namespace(namespace: &Namespace, desired: Option<&Routes>) -> Vec<RouteProblem> {
    let problem =
        |(destination, message)| RouteProblem { namespace: namespace.name().map(str::to_owned), destination, message };
    let problems = match time::timeout(NAMESPACE_TIMEOUT, reconcile(namespace, desired)).await {
        Ok(problems) => problems,
        Err(_) => vec![(None, "the kernel did not respond in time".to_owned())],
    };
    problems.into_iter().map(problem).collect()
}

/// Destination, if the failure is about one, and the message.
type Failure = (Option<IpNet>, String);

async fn reconcile(namespace: &Namespace, desired: Option<&Routes>) -> Vec<Failure> {
    let kernel = match connect(namespace).await {
        Ok(kernel) => kernel,
        // The routes were deleted with the namespace.
        Err(EnterError::Missing) if desired.is_none() => return Vec::new(),
        Err(error) => return vec![(None, error.to_string())],
    };
    match netlink::dump(&kernel).await {
        Ok(found) => apply(namespace, &kernel, diff(desired.unwrap_or(&Routes::new()), &found)).await,
        Err(error) => vec![(None, netlink::explain(&error, namespace, None))],
    }
}

/// Applies a plan. A failed route does not stop the others.
async fn apply(namespace: &Namespace, kernel: &rtnetlink::Handle, plan: Plan) -> Vec<Failure> {
    let mut failures = Vec::new();
    for route in plan.remove {
        tracing::debug!(namespace = namespace.name(), destination = %route.destination, "removing a kernel route");
        if let Err(error) = netlink::remove(kernel, &route).await {
            failures.push((Some(route.destination), netlink::explain(&error, namespace, None)));
        }
    }
    for (destination, hop) in plan.add {
        tracing::debug!(namespace = namespace.name(), %destination, ?hop, "adding a kernel route");
        if let Err(error) = netlink::add(kernel, destination, hop).await {
            failures.push((Some(destination), netlink::explain(&error, namespace, Some(hop))));
        }
    }
    failures
}
