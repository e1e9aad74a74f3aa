//! `bowline console`: serves the page of a manager that runs in a cluster.
//!
//! ```text
//!  browser ──► PageServer (loopback, token in the URL) ──► feed ──► API server ──► Pod of the leader: /consolez
//!                                                           └─ --manager ─────────► /consolez of this manager
//! ```
//!
//! The feed belongs to the user who starts the command: it reads with the credentials of their kubeconfig, and only reads.

mod call;
mod connection;
mod direct;
mod leader;
mod remote;
mod remote_error;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use bowline_console::Position;
use bowline_console::page::{Feed, FeedError, PageOptions, PageServer, Session};
use bowline_runtime::Shutdown;

use crate::cli::{ConsoleArgs, ReachArgs};
use crate::output::print;
use crate::progress;
use connection::Connection;
use direct::DirectFeed;
use remote::RemoteFeed;

/// A feed, and the name of what it shows.
pub(crate) struct Source {
    pub(crate) feed: Arc<dyn Feed>,
    /// Cluster or manager, for titles.
    pub(crate) title: String,
}

impl Source {
    /// Connects as the flags say. Nothing is sent yet.
    pub(crate) async fn open(args: &ReachArgs) -> anyhow::Result<Source> {
        let connection = Connection::open(args).await?;
        let title = connection.title();
        let feed: Arc<dyn Feed> = match &args.manager {
            Some(manager) => Arc::new(DirectFeed::new(connection, manager, args)?),
            None => Arc::new(RemoteFeed::new(connection.client()?, connection.server(), args)),
        };
        Ok(Source { feed, title: args.manager.clone().unwrap_or(title) })
    }

    /// Checks that the document can be read, so that a missing permission is reported at the start.
    pub(crate) async fn check(&self) -> anyhow::Result<()> {
        let _waiting = progress::show("reading the document of the manager");
        let read = self.feed.changes(&Position::default()).await;
        read.map(drop).map_err(|FeedError(message)| anyhow!(message))
    }
}

pub(crate) async fn run(args: &ConsoleArgs) -> anyhow::Result<()> {
    // Before the URL is printed: a reader of that line may send a signal at once.
    let shutdown = Shutdown::on_signals().context("cannot listen for signals")?;
    let Some(source) = shutdown.or(Source::open(&args.manager)).await else { return Ok(()) };
    let source = source?;
    let Some(checked) = shutdown.or(source.check()).await else { return Ok(()) };
    checked?;
    let session = Session { source: "cluster", title: source.title.clone(), actions: false, examples: Vec::new() };
    let options = PageOptions { feed: source.feed, actions: None, session };
    let page = PageServer::bind(args.listen, options).with_context(|| format!("--listen {}", args.listen))?;
    print(format_args!(
        "Console of {}: {}\nOpen it in your browser. It only reads. Ctrl-C ends it.\n",
        source.title,
        page.url()
    ))?;
    page.serve(shutdown).await;
    Ok(())
}
