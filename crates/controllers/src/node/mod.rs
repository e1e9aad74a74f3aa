//! The cloud-node-controller (NODE-1 to NODE-26).

use std::time::Duration;

use bowline_runtime::Shutdown;

use crate::Context;

/// The canonical name, in flags, health checks and Events.
pub const NAME: &str = "cloud-node-controller";

/// How the controller is set.
#[derive(Debug, Clone)]
pub struct Options {
    /// `--concurrent-node-syncs`: Nodes that are written at once.
    pub concurrency: usize,
    /// `--concurrent-node-status-updates`: addresses that are written at once.
    pub status_concurrency: usize,
    /// `--node-status-update-frequency`: the pause between two looks at all addresses.
    pub status_period: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options { concurrency: 16, status_concurrency: 16, status_period: Duration::from_secs(300) }
    }
}

/// The controller.
pub struct NodeController {
    context: Context,
    options: Options,
}

impl NodeController {
    /// Listens to the Nodes from now on; works once it [runs](NodeController::run).
    pub fn new(context: Context, options: Options) -> NodeController {
        NodeController { context, options }
    }

    /// Runs until shutdown is requested, and then finishes the writes in hand.
    pub async fn run(self, shutdown: Shutdown) {
        let _ = (self.context, self.options, shutdown);
        todo!()
    }
}
