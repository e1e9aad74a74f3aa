//! Follows the document of a manager.

use std::sync::Arc;
use std::time::Duration;

use bowline_console::Position;
use bowline_console::client::{ReceivedChanges, View};
use bowline_console::page::{Feed, FeedError};
use tokio::sync::mpsc;

use crate::console::Source;
use crate::progress;

/// Pause between two requests, and after a failed one.
const INTERVAL: Duration = Duration::from_secs(1);
const RETRY: Duration = Duration::from_secs(3);

/// Changes, or why there are none.
pub(super) type Read = Result<ReceivedChanges, String>;

/// The document, as far as it has been read.
pub(super) struct Follower {
    source: Source,
    pub(super) view: View,
    /// Why the last request failed; the view is that of the request before.
    pub(super) error: Option<String>,
}

impl Follower {
    /// Reads the document for the first time.
    pub(super) async fn start(source: Source) -> Result<Follower, String> {
        let _waiting = progress::show("reading the document of the manager");
        let mut view = View::new();
        view.apply(read(&*source.feed, view.position()).await?);
        Ok(Follower { source, view, error: None })
    }

    /// Cluster or manager, for the title.
    pub(super) fn title(&self) -> &str {
        &self.source.title
    }

    /// Polls in a task of its own, so that keys do not delay it. It ends when the receiver is dropped.
    pub(super) fn changes(&self) -> mpsc::Receiver<Read> {
        let (sender, receiver) = mpsc::channel(1);
        tokio::spawn(poll(self.source.feed.clone(), self.view.position().clone(), sender));
        receiver
    }

    /// Applies what a request has read.
    pub(super) fn apply(&mut self, read: Read) {
        match read {
            Ok(changes) => {
                self.view.apply(changes);
                self.error = None;
            }
            Err(error) => self.error = Some(error),
        }
    }
}

async fn poll(feed: Arc<dyn Feed>, mut position: Position, sender: mpsc::Sender<Read>) {
    loop {
        let read = read(&*feed, &position).await;
        let pause = if read.is_ok() { INTERVAL } else { RETRY };
        if let Ok(changes) = &read {
            position = Position { epoch: changes.epoch.clone(), revision: changes.revision };
        }
        tokio::select! {
            sent = sender.send(read) => if sent.is_err() { return },
            () = sender.closed() => return,
        }
        tokio::time::sleep(pause).await;
    }
}

async fn read(feed: &dyn Feed, position: &Position) -> Read {
    let json = feed.changes(position).await.map_err(|FeedError(message)| message)?;
    serde_json::from_slice(&json).map_err(|error| format!("the manager's response is invalid: {error}"))
}
