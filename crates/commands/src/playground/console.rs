//! The page of the playground, on a loopback address.

use anyhow::anyhow;
use bowline_console::page::PageServer;
use bowline_playground::Playground;
use bowline_runtime::Shutdown;

use crate::cli::{ConsoleListen, PlaygroundArgs};

/// A page that is served until this is dropped.
pub(super) struct Console {
    url: String,
    shutdown: Shutdown,
}

impl Console {
    /// Starts the page; `None` if it is off. Must be called in a Tokio runtime.
    pub(super) fn start(playground: &Playground, args: &PlaygroundArgs) -> anyhow::Result<Option<Console>> {
        let ConsoleListen::At(address) = args.console else { return Ok(None) };
        let title = format!("kubectl --kubeconfig {}", args.kubeconfig.display());
        let server = PageServer::bind(address, playground.page(title)).map_err(|error| {
            anyhow!("--console {address}: {error}; fix: choose another port, 0 for a free one, or --console off")
        })?;
        let console = Console { url: server.url(), shutdown: Shutdown::new() };
        tokio::spawn(server.serve(console.shutdown.clone()));
        Ok(Some(console))
    }

    /// Returns the URL, with the token of this page.
    pub(super) fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        self.shutdown.request();
    }
}
