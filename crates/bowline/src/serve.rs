//! `bowline apiserver`: start, say so, wait, stop.

use std::io::{self, Write as _};
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use bowline_apiserver::{ApiServer, Options};

use crate::cli::ApiserverArgs;
use crate::kubeconfig;

/// How long running requests may take to end after a signal. Watches are told at once; this is for the rest.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) async fn run(args: ApiserverArgs) -> anyhow::Result<()> {
    let server = start(Options::from(&args), &args.kubeconfig).await?;
    until_stopped(server).await
}

/// Starts a server, writes the kubeconfig of its administrator, and then prints the one line that scripts wait for.
pub(crate) async fn start(options: Options, path: &Path) -> anyhow::Result<ApiServer> {
    kubeconfig::check(path)?;
    let listen = options.listen;
    let server = ApiServer::start(options).await.with_context(|| format!("cannot start the API server on {listen}"))?;
    kubeconfig::write(path, &server.kubeconfig())?;
    say(format_args!("API server ready at {} (kubeconfig {})\n", server.url(), path.display()));
    Ok(server)
}

/// Runs until the process is told to stop; a second signal, or too much patience, ends it without waiting further.
pub(crate) async fn until_stopped(server: ApiServer) -> anyhow::Result<()> {
    let mut signals = Signals::new()?;
    signals.next().await;
    tracing::info!("stopping");
    tokio::select! {
        () = server.shutdown() => Ok(()),
        () = signals.next() => anyhow::bail!("stopped by a second signal before every request had ended"),
        () = tokio::time::sleep(PATIENCE) => anyhow::bail!("some requests did not end within {PATIENCE:?}"),
    }
}

/// Writes to standard output. A reader that went away is no reason to stop serving the others.
pub(crate) fn say(text: std::fmt::Arguments<'_>) {
    let mut out = io::stdout().lock();
    let _ = out.write_fmt(text).and_then(|()| out.flush());
}

/// SIGINT and SIGTERM, as one stream of requests to stop.
#[cfg(unix)]
struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn new() -> anyhow::Result<Signals> {
        use tokio::signal::unix::{SignalKind, signal};
        let listen = |kind| signal(kind).context("cannot listen for signals");
        Ok(Signals { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => (),
            _ = self.terminate.recv() => (),
        }
    }
}

/// Ctrl-C, where there are no signals.
#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn new() -> anyhow::Result<Signals> {
        Ok(Signals)
    }

    async fn next(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending().await
        }
    }
}
