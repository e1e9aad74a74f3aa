//! Controllers as others see them: on the board, and among those that run.

use std::sync::Arc;

use bowline_runtime::{ControllerHealth, Kind, Metric, Part, metrics};
use prometheus::{IntGauge, IntGaugeVec, Registry};

use crate::Context;

metrics! {
    /// What is told of all controllers alike.
    pub(crate) METRICS;
    RUNNING = Metric::gauge(
        "running_managed_controllers",
        "Indicates where instances of a controller are currently running",
    ).labels(&["name", "manager"]).beta();
}

/// What managers are told apart by.
const MANAGER: &str = "cloud-controller-manager";

/// Which controllers run. Clones are the same.
#[derive(Clone)]
pub struct RunningControllers(IntGaugeVec);

impl RunningControllers {
    /// Registers the metric.
    pub fn register(registry: &Registry) -> prometheus::Result<RunningControllers> {
        Ok(RunningControllers(RUNNING.register(registry)?))
    }
}

/// A controller on the board.
pub(crate) struct Activity {
    ensemble: Arc<ControllerHealth>,
    running: IntGauge,
}

/// It runs until this is dropped.
pub(crate) struct Running<'a>(&'a Activity);

impl Activity {
    /// Puts the controller and its parts on the board; `short` is its name among those that run.
    // upstream: which is a third name, unlike the one in flags and the one in Events.
    pub(crate) fn new(
        context: &Context,
        name: &'static str,
        short: &str,
        parts: impl IntoIterator<Item = (Kind, String, Arc<dyn Part>)>,
    ) -> Activity {
        let parts = parts.into_iter().map(|(kind, part_name, part)| {
            if kind != Kind::Controller {
                context.board.put(kind, part_name.clone(), part.clone());
            }
            (part_name, part)
        });
        let ensemble = Arc::new(ControllerHealth::new(parts.collect::<Vec<_>>()));
        context.board.put(Kind::Controller, name, ensemble.clone());
        let running = context.running.0.with_label_values(&[short, MANAGER]);
        Activity { ensemble, running }
    }

    /// From now on, until the value is dropped.
    pub(crate) fn runs(&self) -> Running<'_> {
        self.ensemble.started();
        self.running.inc();
        Running(self)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.ensemble.stopped();
        self.0.running.dec();
    }
}
