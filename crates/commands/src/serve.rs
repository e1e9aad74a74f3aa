//! `bowline apiserver`: start, say so, wait, stop.

use std::path::Path;

use anyhow::Context as _;
use bowline_apiserver::{ApiServer, Options, StartError};
use bowline_runtime::Shutdown;
use bowline_settings::BadInput;

use crate::cli::ApiserverArgs;
use crate::kubeconfig;
use crate::output::say;

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
        let shutdown = Shutdown::on_signals().context("cannot listen for signals")?;
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

/// Options that the server refuses came from our flags.
fn explain(error: StartError) -> anyhow::Error {
    match error {
        StartError::Options(what) => BadInput(what).into(),
        other => anyhow::Error::new(other).context("cannot start the API server"),
    }
}
