//! `bowline apiserver`: start, say so, wait, stop.

use std::io::{self, Write as _};
use std::path::Path;

use anyhow::Context as _;
use bowline_apiserver::{ApiServer, Options, StartError};

use crate::BadInput;
use crate::cli::ApiserverArgs;
use crate::kubeconfig;

pub(crate) async fn run(args: ApiserverArgs) -> anyhow::Result<()> {
    Running::start(Options::from(&args), &args.kubeconfig).await?.until_stopped().await
}

/// A server that said it is ready, and the signals that end it.
pub(crate) struct Running {
    server: ApiServer,
    signals: Signals,
}

impl Running {
    /// Starts a server, writes the kubeconfig of its administrator, and then prints the one line that scripts wait for.
    pub(crate) async fn start(options: Options, path: &Path) -> anyhow::Result<Running> {
        kubeconfig::check(path)?;
        // Before the line below: who reads it may send a signal at once, and must not find the default handler.
        let signals = Signals::new()?;
        let server = ApiServer::start(options).await.map_err(explain)?;
        kubeconfig::write(path, &server.kubeconfig())?;
        say(format_args!("API server ready at {} (kubeconfig {})\n", server.url(), path.display()));
        Ok(Running { server, signals })
    }

    /// Runs until the process is told to stop; a second signal does not wait further.
    pub(crate) async fn until_stopped(mut self) -> anyhow::Result<()> {
        self.signals.next().await;
        tracing::info!("stopping");
        tokio::select! {
            () = self.server.shutdown() => Ok(()),
            () = self.signals.next() => anyhow::bail!("stopped by a second signal before every request had ended"),
        }
    }
}

/// Options that the server refuses came from our flags.
fn explain(error: StartError) -> anyhow::Error {
    match error {
        StartError::Options(what) => BadInput(what).into(),
        other => anyhow::Error::new(other).context("cannot start the API server"),
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
