//! The console of a playground: what its cloud and its tour add to the document of the controllers, and the actions of the page.
//!
//! ```text
//!  LocalCloud ── machines, load balancers, routes, faults ──┐
//!  StepRun ──► TourProgress ── steps ───────────────────────┼──► Sources ──► Publisher ──► page
//!  controllers ── clouds, Nodes, Services, queues, Events ──┘                                │
//!                                                                                            ▼
//!  LocalCloud, API server ◄───────────────────────────────────────────── ConsoleActions ◄── Action
//! ```
//!
//! The page changes only what its user could change with `bowline cloud` and `kubectl`. The tour observes the result, so an action on
//! the page counts as the user's own.

mod actions;
mod before;
mod cloud;
mod faults;
mod progress;

use std::sync::Arc;

use bowline_console::Sources;
use bowline_console::page::{PageOptions, Session};
use bowline_local::LocalCloud;

pub(crate) use before::BeforeControllers;
pub(crate) use progress::TourProgress;

use crate::Playground;
use actions::ConsoleActions;

/// Name of the cloud in the document, as in the manager's.
const CLOUD: &str = "local";

/// Registers the sources of the playground. The controllers register theirs later, and complete or replace these items.
pub(crate) fn register(sources: &Sources, cloud: &LocalCloud, before: BeforeControllers, progress: TourProgress) {
    sources.add(before);
    sources.add(cloud::CloudSource::new(cloud.clone()));
    sources.add(progress);
}

impl Playground {
    /// Returns the content of the page. `title` says how to use kubectl with this cluster.
    pub fn page(&self, title: String) -> PageOptions {
        let session = Session {
            source: "playground",
            title,
            actions: true,
            examples: actions::examples().map(|example| example.name().to_owned()).collect(),
        };
        let actions = ConsoleActions {
            cloud: self.cloud.clone(),
            client: self.server.in_process_client(),
            ports: self.ports,
            grace_period: self.timing().grace_period,
        };
        PageOptions { feed: Arc::new(self.publisher.clone()), actions: Some(Arc::new(actions)), session }
    }
}
