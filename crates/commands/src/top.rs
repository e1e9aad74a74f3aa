//! `bowline top`: shows what a manager in a cluster does, in the terminal.
//!
//! ```text
//!  feed ──► Follower (View) ──► tables ──┬─► Screen: tabs, search, details ──► terminal, until q
//!                                        └─► plain text, once
//! ```

mod detail;
mod follow;
mod live;
mod plain;
mod screen;
mod table;
mod values;

use anyhow::{Context as _, anyhow};
use bowline_runtime::Shutdown;

use crate::cli::{Output, TopArgs};
use crate::console::Source;
use crate::output::print;
use crate::terminal::Terminal;
use crate::terminal::style::Style;
use follow::Follower;

pub(crate) async fn run(args: &TopArgs) -> anyhow::Result<()> {
    let shutdown = Shutdown::on_signals().context("cannot listen for signals")?;
    let Some(source) = shutdown.or(Source::open(&args.manager)).await else { return Ok(()) };
    let Some(started) = shutdown.or(Follower::start(source?)).await else { return Ok(()) };
    // Once there is a document, later failures are shown beside it.
    let follower = started.map_err(|error| anyhow!(error))?;
    match args.output {
        Output::Json => print(format_args!("{:#}\n", follower.view.to_json())),
        Output::Text if args.once || !is_live() => print(format_args!("{}", plain::text(&follower.view))),
        Output::Text => live::run(follower, &shutdown).await,
    }
}

/// Whether a person can use the screen: keys can be read, and lines can be replaced.
fn is_live() -> bool {
    Terminal::is_interactive() && Style::of_terminal().in_place
}
