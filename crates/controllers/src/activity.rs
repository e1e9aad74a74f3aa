//! Status of the controllers: on the status board, and in the gauge of running controllers.

use std::sync::Arc;

use bowline_console::document::{self, Health};
use bowline_runtime::{Component, ControllerHealth, Kind, Metric, metrics};
use prometheus::{IntGauge, IntGaugeVec, Registry};

use crate::Context;

metrics! {
    /// Metrics that all controllers share.
    pub(crate) METRICS;
    RUNNING = Metric::gauge(
        "running_managed_controllers",
        "Indicates where instances of a controller are currently running",
    ).labels(&["name", "manager"]).beta();
}

/// Value of the label `manager`.
const MANAGER: &str = "cloud-controller-manager";

/// Gauge of running controllers. Clones share it.
#[derive(Clone)]
pub struct RunningControllers(IntGaugeVec);

impl RunningControllers {
    /// Registers the metric.
    pub fn register(registry: &Registry) -> prometheus::Result<RunningControllers> {
        Ok(RunningControllers(RUNNING.register(registry)?))
    }
}

/// Status of one controller.
pub(crate) struct Activity {
    health: Arc<ControllerHealth>,
    running: IntGauge,
}

/// Marks the controller as running until dropped.
pub(crate) struct Running<'a>(&'a Activity);

impl Activity {
    /// Registers the controller and its parts on the status board; `short` is its name in the gauge of running controllers.
    // upstream: the short name is a third one, besides the names in flags and in Events.
    pub(crate) fn new(
        context: &Context,
        name: &'static str,
        short: &str,
        components: impl IntoIterator<Item = (Kind, String, Arc<dyn Component>)>,
    ) -> Activity {
        let components = components.into_iter().map(|(kind, component_name, component)| {
            if kind != Kind::Controller {
                context.board.put(kind, component_name.clone(), component.clone());
            }
            (component_name, component)
        });
        let health = Arc::new(ControllerHealth::new(components.collect::<Vec<_>>()));
        context.board.put(Kind::Controller, name, health.clone());
        context.console.add(&health, move |health, document, _| {
            let (health, running) = (Health::of(health.health(), "Unhealthy"), health.is_running());
            let item = document::Controller { health, running, ..document::Controller::default() };
            document.controller.insert(name.to_owned(), item);
        });
        let running = context.running.0.with_label_values(&[short, MANAGER]);
        Activity { health, running }
    }

    /// Marks the controller as running until the returned value is dropped.
    pub(crate) fn runs(&self) -> Running<'_> {
        self.health.started();
        self.running.inc();
        Running(self)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.health.stopped();
        self.0.running.dec();
    }
}
