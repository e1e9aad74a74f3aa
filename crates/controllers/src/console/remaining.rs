//! Health that follows from the items of several controllers, once all of them have contributed.

use bowline_console::document::{Document, Health, Level, Work};

use super::with_next_try;
use crate::{node, service};

/// Controllers that are enabled, whether they run or not.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Enabled {
    pub(crate) node: bool,
    pub(crate) service: bool,
}

/// Completes the health of Nodes and Services.
pub(super) fn complete(document: &mut Document, enabled: Enabled) {
    let initializes = missing(document, node::NAME, enabled.node);
    for node in document.node.values_mut() {
        if let Some(missing) = initializes.as_ref().filter(|_| node.uninitialized && !node.paused) {
            node.health.worsen(missing.clone());
        }
        for (controller, work) in &node.work {
            node.health.worsen(failure(controller, work));
        }
    }
    let Some(missing) = missing(document, service::NAME, enabled.service) else { return };
    for service in document.service.values_mut().filter(|service| service.addresses.is_empty()) {
        service.health.worsen(missing.clone());
    }
}

/// Health of an object whose controller does not run; `None` if it runs.
fn missing(document: &Document, controller: &str, is_enabled: bool) -> Option<Health> {
    let message = match document.controller.get(controller) {
        Some(item) if item.running => return None,
        Some(_) => format!("The {controller} has not started in this manager, or is stopping."),
        None if is_enabled => {
            format!(
                "The {controller} does not run: it has not started yet, or no configured cloud supports what it needs."
            )
        }
        None => format!("The {controller} is disabled in this manager (--controllers)."),
    };
    Some(Health::new(Level::Warning, "NoController", message))
}

/// Health of an object whose last sync by this controller failed.
fn failure(controller: &str, work: &Work) -> Health {
    match work.error.as_deref().filter(|_| work.failures > 0 || work.next.is_some()) {
        Some(error) => {
            Health::new(Level::Warning, "SyncFailed", with_next_try(&format!("{controller}: {error}"), work))
        }
        None => Health::ok(),
    }
}
