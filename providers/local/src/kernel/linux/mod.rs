//! Keeps the kernel's routes.

mod diff;
mod entering;
mod netlink;
mod wanted;

use std::collections::BTreeSet;
use std::mem;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use ipnet::IpNet;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{self, Instant};

use self::diff::{Plan, Routes, diff};
use self::entering::{EnterError, connect, may_enter};
use self::wanted::{Wanted, wanted};
use super::{RouteProblem, namespace};
use crate::cloud::{CloudError, LocalCloud, Shared, World};

/// After this long all is compared again, though nothing has changed: an interface that goes down takes its routes along.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// After this long a failure is tried again; twice as long after each further one, up to [`LOOK_AGAIN`].
const RETRY: Duration = Duration::from_secs(1);

/// The longest that one namespace may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// What keeps the kernel's routes as the tables say.
pub(crate) struct Forwarding {
    home: Handle,
    /// One pass at a time, so that what was wanted earlier never replaces what is wanted now.
    turn: tokio::sync::Mutex<Turn>,
    problems: Mutex<BTreeSet<RouteProblem>>,
}

/// What is known from one pass to the next.
#[derive(Default)]
struct Turn {
    /// Namespaces where we may have routes, though none of the machines may be there any more.
    visited: BTreeSet<String>,
    /// What the last pass wanted and got, and when.
    done: Option<(Wanted, Instant)>,
    /// Nothing is to be changed any more.
    closed: bool,
}

impl Forwarding {
    /// On the runtime on which this is called.
    pub(crate) fn open() -> Result<Forwarding, CloudError> {
        let home = Handle::try_current().map_err(|_| {
            CloudError::Invalid("a cloud with routes of the kernel must be opened on a Tokio runtime".to_owned())
        })?;
        may_enter()
            .map_err(|error| CloudError::Invalid(format!("routes of the kernel, in a network namespace: {error}")))?;
        Ok(Forwarding { home, turn: tokio::sync::Mutex::default(), problems: Mutex::default() })
    }

    /// What is wrong, as of the last pass.
    pub(crate) fn problems(&self) -> Vec<RouteProblem> {
        self.problems.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    /// From now on, nothing is changed any more. The routes stay, as the records do.
    pub(crate) async fn close(&self) {
        self.turn.lock().await.closed = true;
    }

    /// Says what is new and what is over, not the same again with each attempt.
    fn tell(&self, problems: BTreeSet<RouteProblem>) {
        let mut told = self.problems.lock().unwrap_or_else(PoisonError::into_inner);
        for problem in problems.difference(&told) {
            tracing::warn!(%problem, "a route of the kernel is not as it should be; trying again");
        }
        for problem in told.difference(&problems) {
            tracing::info!(%problem, "this no longer stands in the way of a route of the kernel");
        }
        *told = problems;
    }
}

impl LocalCloud {
    /// From now on the kernel's routes are kept.
    pub(crate) fn keep_forwarding(&self) {
        if let Some(kernel) = &self.shared.kernel {
            kernel.home.spawn(keep(Arc::downgrade(&self.shared), self.route_changes()));
        }
    }

    /// Returns once the kernel was told what the tables say now; whether all is as it should be.
    pub(crate) async fn forward(&self) -> bool {
        let Some(kernel) = &self.shared.kernel else { return true };
        let mut turn = kernel.turn.lock().await;
        let wanted = self.read(of_world);
        if turn.closed || turn.is_done(&wanted) {
            return true;
        }
        let problems = turn.carry_over(wanted).await;
        let is_right = problems.is_empty();
        kernel.tell(problems);
        is_right
    }
}

/// Works until the cloud is dropped.
async fn keep(cloud: Weak<Shared>, mut changes: watch::Receiver<u64>) {
    let mut pause = RETRY;
    while let Some(shared) = cloud.upgrade() {
        let is_right = LocalCloud { shared }.forward().await;
        let wait = if is_right { LOOK_AGAIN } else { pause };
        pause = if is_right { RETRY } else { LOOK_AGAIN.min(pause * 2) };
        // A change, the time, or the end of the cloud: what it is shows above.
        let _ = time::timeout(wait, changes.changed()).await;
    }
}

fn of_world(world: &World) -> Wanted {
    wanted(world.fleet.iter(), world.routes.iter())
}

// ---- one pass

impl Turn {
    /// The kernel was told the same, not long ago, and took it.
    fn is_done(&self, wanted: &Wanted) -> bool {
        self.done.as_ref().is_some_and(|(before, when)| before == wanted && when.elapsed() < LOOK_AGAIN)
    }

    /// Makes the kernel's routes what is wanted, as far as that goes; what remains is returned.
    async fn carry_over(&mut self, wanted: Wanted) -> BTreeSet<RouteProblem> {
        let mut problems: BTreeSet<_> = wanted.problems.iter().cloned().collect();
        self.visited.extend(wanted.namespaces.keys().cloned());
        for name in mem::take(&mut self.visited) {
            let routes = wanted.namespaces.get(&name);
            let left = settle(&name, routes).await;
            // One that is nobody's any more is remembered until our routes are out of it.
            if routes.is_some() || !left.is_empty() {
                self.visited.insert(name);
            }
            problems.extend(left);
        }
        self.done = problems.is_empty().then(|| (wanted, Instant::now()));
        problems
    }
}

/// Makes the routes of one namespace what is wanted there; `None` if no machine is there any more. What fails is returned.
async fn settle(name: &str, wanted: Option<&Routes>) -> Vec<RouteProblem> {
    let of_one = |(destination, message)| RouteProblem { namespace: Some(name.to_owned()), destination, message };
    let problems = match time::timeout(PATIENCE, reconcile(name, wanted)).await {
        Ok(problems) => problems,
        Err(_) => vec![(None, "it takes too long to ask the kernel there".to_owned())],
    };
    problems.into_iter().map(of_one).collect()
}

/// A range, if it is about one, and what is wrong.
type Failure = (Option<IpNet>, String);

async fn reconcile(name: &str, wanted: Option<&Routes>) -> Vec<Failure> {
    let kernel = match connect(namespace::path(name)).await {
        Ok(kernel) => kernel,
        // Its routes are gone with it.
        Err(EnterError::Missing) if wanted.is_none() => return Vec::new(),
        Err(error) => return vec![(None, error.to_string())],
    };
    match netlink::dump(&kernel).await {
        Ok(found) => apply(name, &kernel, diff(wanted.unwrap_or(&Routes::new()), &found)).await,
        Err(error) => vec![(None, netlink::explain(&error, None))],
    }
}

/// What fails leaves the rest alone.
async fn apply(name: &str, kernel: &rtnetlink::Handle, plan: Plan) -> Vec<Failure> {
    let mut failures = Vec::new();
    for route in plan.remove {
        tracing::debug!(namespace = name, destination = %route.destination, "removing a route of the kernel");
        if let Err(error) = netlink::remove(kernel, &route).await {
            failures.push((Some(route.destination), netlink::explain(&error, None)));
        }
    }
    for (destination, hop) in plan.add {
        tracing::debug!(namespace = name, %destination, ?hop, "making a route of the kernel");
        if let Err(error) = netlink::add(kernel, destination, hop).await {
            failures.push((Some(destination), netlink::explain(&error, Some(hop))));
        }
    }
    failures
}
