//! `bowline apiserver`: runs the API server until a signal.

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

/// A running server and its shutdown signal.
pub(crate) struct Running {
    server: ApiServer,
    shutdown: Shutdown,
}

impl Running {
    /// Starts the server, writes the administrator's kubeconfig, and then prints the ready line that scripts wait for.
    pub(crate) async fn start(options: Options, path: &Path) -> anyhow::Result<Running> {
        kubeconfig::check(path)?;
        // Before the ready line is printed: a reader of that line may send a signal at once, which the default handler must not
        // get.
        let shutdown = Shutdown::on_signals().context("cannot listen for signals")?;
        let server = ApiServer::start(options).await.map_err(to_error)?;
        kubeconfig::write(path, &server.kubeconfig())?;
        say(format_args!("API server ready at {} (kubeconfig {})\n", server.url(), path.display()));
        Ok(Running { server, shutdown })
    }

    /// Runs until SIGINT or SIGTERM, then waits until all requests have finished.
    pub(crate) async fn until_stopped(self) -> anyhow::Result<()> {
        self.shutdown.requested().await;
        self.server.shutdown().await;
        Ok(())
    }
}

/// Reports options that the server rejects as invalid flags.
fn to_error(error: StartError) -> anyhow::Error {
    match error {
        StartError::Options(message) => BadInput(message).into(),
        other => anyhow::Error::new(other).context("cannot start the API server"),
    }
}
