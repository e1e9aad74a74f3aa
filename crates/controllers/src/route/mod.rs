//! The node-route-controller (ROUTE-1 to ROUTE-14): a route to every Node for each of its pod ranges, and no other.

use std::time::Duration;

use bowline_core::ClusterName;
use bowline_runtime::Shutdown;
use ipnet::IpNet;

use crate::Context;

/// The canonical name, in flags and health checks.
pub const NAME: &str = "node-route-controller";

/// How the controller is set.
#[derive(Debug, Clone)]
pub struct Options {
    /// `--cluster-name`: what is made in a cloud is marked with it.
    pub cluster: ClusterName,
    /// `--cluster-cidr`: where pods may live.
    pub ranges: Vec<IpNet>,
    /// How it hears of changes.
    pub mode: Mode,
    /// `--route-deletion-max-share`: if more than this share of all routes would go at once, none goes before the API server
    /// has confirmed twice that their Nodes are gone. 1 switches the brake off.
    pub max_share: f64,
}

/// How the controller hears of changes (the feature gate `CloudControllerManagerWatchBasedRoutesReconciliation`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// From the watch, Node by Node; now and then everything is compared with the cloud.
    Watch {
        /// `--route-refresh-period`: how often; zero for never again after the start.
        refresh: Duration,
    },
    /// Everything is compared with the cloud, again and again.
    Periodic {
        /// `--route-reconciliation-period`: from one beginning to the next.
        period: Duration,
    },
}

impl Default for Mode {
    fn default() -> Mode {
        Mode::Watch { refresh: Duration::from_secs(600) }
    }
}

/// The controller.
pub struct RouteController {
    _context: Context,
}

impl RouteController {
    /// Listens to the Nodes from now on; works once it [runs](RouteController::run). `None` if no cloud has routes (ROUTE-1).
    pub fn new(context: Context, options: Options) -> Result<Option<RouteController>, prometheus::Error> {
        let _ = (context, options);
        todo!()
    }

    /// Runs until shutdown is requested, and then finishes the writes in hand.
    pub async fn run(self, shutdown: Shutdown) {
        let _ = shutdown;
        todo!()
    }
}
