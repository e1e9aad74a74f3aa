//! The cloud-node-lifecycle-controller (LIFE-1 to LIFE-10).

use std::time::Duration;

use bowline_core::lifecycle::Policy;
use bowline_runtime::Shutdown;

use crate::Context;

/// The canonical name, in flags, health checks and Events.
pub const NAME: &str = "cloud-node-lifecycle-controller";

/// How the controller is set.
#[derive(Debug, Clone)]
pub struct Options {
    /// `--node-monitor-period`: the pause after each pass.
    pub monitor_period: Duration,
    /// `--concurrent-node-lifecycle-syncs`: writes at once.
    pub concurrency: usize,
    /// When a deletion is beyond doubt.
    pub policy: Policy,
    /// A Node without provider ID that no provider knows by name is deleted, too, as the Go manager does.
    pub delete_unclaimed: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            monitor_period: Duration::from_secs(5),
            concurrency: 16,
            policy: Policy::default(),
            delete_unclaimed: false,
        }
    }
}

/// The controller.
pub struct NodeLifecycleController {
    context: Context,
    options: Options,
}

impl NodeLifecycleController {
    /// Ready to run.
    pub fn new(context: Context, options: Options) -> NodeLifecycleController {
        NodeLifecycleController { context, options }
    }

    /// Runs until shutdown is requested, and then finishes the writes in hand.
    pub async fn run(self, shutdown: Shutdown) {
        let _ = (self.context, self.options, shutdown);
        todo!()
    }
}
