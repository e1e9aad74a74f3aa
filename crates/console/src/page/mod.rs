//! The page: static files and a small HTTP API on a loopback address.
//!
//! ```text
//!  GET  /, /console.css, /console.js, …   static files; no data, no token
//!  GET  /session                          where the document comes from, and which actions there are
//!  GET  /document?epoch=E&since=N         Changes (JSON) since this position
//!  POST /actions  {"action": …, "target": …}
//! ```
//!
//! The page belongs to the user who started it. Its URL has a random token in the fragment, which browsers send to no server; the page
//! sends it in the header [`TOKEN_HEADER`]. A page of another origin can neither know the token nor set the header, and a request with
//! another `Host` is rejected, so that DNS rebinding has no effect. The content security policy permits the page's own files only, and
//! the page creates text nodes only, so that no text of the document can become code.
//!
//! The scripts are modules without dependencies, in `assets/`:
//!
//! ```text
//!  feed.js ──items──► console.js ──► overview.js, attention.js, lists.js (grid.js), now.js, playground.js, details.js
//!  polls, back-off     frame, URL     views: functions of the items, drawn with dom.js, parts.js, charts.js; texts in explain.js
//! ```

mod assets;
mod serve;

use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};

use crate::{Position, Publisher};

pub use serve::{PageError, PageServer, TOKEN_HEADER};

/// Provides the document: of this process, or of a manager that is reached through the API server.
pub trait Feed: Send + Sync {
    /// Returns the [`Changes`](crate::Changes) since this position, as JSON.
    fn changes<'a>(&'a self, position: &'a Position) -> BoxFuture<'a, Result<Bytes, FeedError>>;
}

/// The document cannot be read at the moment. The page shows the message and tries again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedError(pub String);

impl Feed for Publisher {
    fn changes<'a>(&'a self, position: &'a Position) -> BoxFuture<'a, Result<Bytes, FeedError>> {
        let changes = Publisher::changes(self, position).and_then(|changes| serde_json::to_vec(&changes));
        Box::pin(std::future::ready(changes.map(Bytes::from).map_err(|error| FeedError(error.to_string()))))
    }
}

/// Performs what the user requests on the page. Only the playground has actions.
pub trait Actions: Send + Sync {
    /// Performs the action, and returns a sentence with the result, or an error with its remedy.
    fn perform(&self, action: Action) -> BoxFuture<'_, Result<String, String>>;
}

/// A request of the user.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "action", content = "target", rename_all = "camelCase", deny_unknown_fields)]
pub enum Action {
    /// Stops the machine with this ID.
    StopMachine(String),
    /// Starts the machine with this ID.
    StartMachine(String),
    /// Deletes the machine with this ID.
    DeleteMachine(String),
    /// Turns on the fault of this name.
    StartFault(String),
    /// Turns off the fault of this name.
    StopFault(String),
    /// Creates the objects of the example of this name.
    CreateExample(String),
    /// Deletes the objects of the example of this name.
    DeleteExample(String),
}

/// Where the document comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Session {
    /// `playground` or `cluster`.
    pub source: &'static str,
    /// Address of the cluster, or how to use kubectl with it.
    pub title: String,
    /// Whether there are [`Actions`].
    pub actions: bool,
    /// Names of examples that can be created.
    pub examples: Vec<String>,
}

/// Content of the page.
#[derive(Clone)]
pub struct PageOptions {
    /// Provides the document.
    pub feed: Arc<dyn Feed>,
    /// Performs actions, if there are any.
    pub actions: Option<Arc<dyn Actions>>,
    /// Where the document comes from.
    pub session: Session,
}
