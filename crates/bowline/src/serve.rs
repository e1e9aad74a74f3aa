//! `bowline apiserver`: start, say so, wait, stop.

use std::io::{self, Write as _};
use std::path::Path;

use anyhow::Context as _;
use bowline_apiserver::{ApiServer, Options, StartError};
use bowline_runtime::Shutdown;

use crate::BadInput;
use crate::cli::ApiserverArgs;
use crate::kubeconfig;

pub(crate) async fn run(args: ApiserverArgs) -> anyhow::Result<()> {
    Running::start(Options::from(&args), &args.kubeconfig).await?.until_stopped().await
}

/// A server that said it is ready, and the wish that ends it.
pub(crate) struct Running {
    server: ApiServer,
    shutdown: Shutdown,
}

impl Running {
    /// Starts a server, writes the kubeconfig of its administrator, and then prints the one line that scripts wait for.
    pub(crate) async fn start(options: Options, path: &Path) -> anyhow::Result<Running> {
        kubeconfig::check(path)?;
        // Before the line below: who reads it may send a signal at once, and must not find the default handler.
        let shutdown = stopped_by_signals()?;
        let server = ApiServer::start(options).await.map_err(explain)?;
        kubeconfig::write(path, &server.kubeconfig())?;
        say(format_args!("API server ready at {} (kubeconfig {})\n", server.url(), path.display()));
        Ok(Running { server, shutdown })
    }

    /// Runs until the process is told to stop, and then until every request has ended.
    pub(crate) async fn until_stopped(self) -> anyhow::Result<()> {
        self.shutdown.requested().await;
        self.server.shutdown().await;
        Ok(())
    }
}

/// The wish to end that SIGINT and SIGTERM utter; a second signal ends the process at once.
pub(crate) fn stopped_by_signals() -> anyhow::Result<Shutdown> {
    let shutdown = Shutdown::new();
    tokio::spawn(bowline_runtime::signals(shutdown.clone()).context("cannot listen for signals")?);
    Ok(shutdown)
}

/// Options that the server refuses came from our flags.
fn explain(error: StartError) -> anyhow::Error {
    match error {
        StartError::Options(what) => BadInput(what).into(),
        other => anyhow::Error::new(other).context("cannot start the API server"),
    }
}

/// Writes what a command is for to standard output. If that cannot be, the command has failed; a reader that has seen enough
/// is no failure.
pub(crate) fn print(text: std::fmt::Arguments<'_>) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_fmt(text).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(anyhow::Error::new(error).context("cannot write to standard output"))
        }
        _ => Ok(()),
    }
}

/// Writes to standard output. A reader that went away is no reason to stop serving the others.
pub(crate) fn say(text: std::fmt::Arguments<'_>) {
    let mut out = io::stdout().lock();
    let _ = out.write_fmt(text).and_then(|()| out.flush());
}
