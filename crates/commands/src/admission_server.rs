//! `bowline admission-server`: serves the admission webhooks of the clouds until a signal, without an API server client.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bowline_cloud::{CloudProvider, Clouds, Registry};
use bowline_config::ConfigErrors;
use bowline_runtime::{Reloader, Shutdown, StatusBoard};
use bowline_serving::webhook::{Webhook, standalone_router};
use bowline_serving::{AccessControl, Server};
use bowline_settings::cli::AdmissionServerArgs;
use bowline_settings::{AdmissionServer, BadInput, Credentials, providers, webhooks};
use futures::future::join_all;

use crate::CLOSE_TIMEOUT;

/// Grace period for open requests at shutdown.
const DRAIN: Duration = Duration::from_secs(60);

/// Start of every message about a server that did not start.
const NOT_STARTED: &str = "failed to start admission server";

pub(crate) async fn run(args: &AdmissionServerArgs, registry: &Arc<Registry>) -> anyhow::Result<()> {
    let mut errors = ConfigErrors::new();
    let settings = AdmissionServer::resolve(args, &mut errors);
    let bound = Bound::new(&settings, registry, errors)?;
    bound.serve(Shutdown::on_signals().context("cannot listen for signals")?).await
}

/// A bound server and its clouds. None of them has sent a request yet.
struct Bound {
    server: Server,
    clouds: Clouds,
    credentials: Credentials,
    reloader: Reloader,
}

impl Bound {
    /// Builds the providers and binds the server, unless there are errors: the given ones, and those found here.
    fn new(settings: &AdmissionServer, registry: &Arc<Registry>, mut errors: ConfigErrors) -> anyhow::Result<Bound> {
        let (reach, metrics) = (&settings.reach, prometheus::Registry::new());
        let build_inputs = || reach.build_inputs(&metrics);
        let reloading = providers::build(&reach.providers, &reach.cluster, build_inputs, registry, &mut errors);
        let providers: Vec<_> = reloading.iter().map(|provider| provider.clone() as Arc<dyn CloudProvider>).collect();
        if errors.is_empty() {
            webhooks::check_standalone(&providers, &mut errors);
        }
        if !errors.is_empty() {
            return Err(BadInput(format!("{NOT_STARTED}: {}", BadInput::from(errors))).into());
        }
        let server = Server::bind(&settings.serving)
            .with_context(|| format!("{NOT_STARTED}: failed to serve webhook server"))?;
        Ok(Bound {
            server,
            clouds: Clouds::with_layers(providers, &reach.layers, &metrics),
            credentials: Credentials::of_clouds(&reloading),
            reloader: Reloader::register(&metrics)?,
        })
    }

    /// Starts the clouds and serves their webhooks until shutdown is requested.
    async fn serve(self, shutdown: Shutdown) -> anyhow::Result<()> {
        let webhooks = webhooks::of(&self.clouds);
        tracing::info!(address = %self.server.address(), webhooks = ?paths(&webhooks), "serving admission webhooks");
        let started = shutdown.or(join_all(self.clouds.iter().map(|cloud| cloud.start_with_retries())));
        let reloads = self.credentials.watch(self.reloader, StatusBoard::new(), shutdown.clone());
        let router = standalone_router(&webhooks);
        let served = self.server.drain(DRAIN).serve(router, AccessControl::open(), shutdown.clone());
        let (_, Ok::<_, Infallible>(()), Ok::<_, Infallible>(())) = tokio::join!(started, reloads, served);
        self.clouds.close(CLOSE_TIMEOUT).await;
        tracing::info!("stopped");
        Ok(())
    }
}

fn paths(webhooks: &[Webhook]) -> Vec<&str> {
    webhooks.iter().map(|webhook| webhook.path.as_str()).collect()
}

#[cfg(test)]
mod tests;
